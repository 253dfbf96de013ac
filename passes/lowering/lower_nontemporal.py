"""`lower-nontemporal`: loads that are read once name their cache policy in PTX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects.binding import op_name, walk
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.ptx_load import HINTS_PTX, is_scalar, load
from sparseditto.passes.registry import register


@register
@dataclass(frozen=True)
class LowerNontemporal(LoweringPass):
    """Replace each nontemporal `llvm.load` from global memory by inline PTX that keeps it out of L1.

    LLVM's NVPTX back end drops the hint.  Only read-only data is marked (`stream-entries`), so the load is `.nc`.

    Before::

        %v = llvm.load %p {nontemporal} : !llvm.ptr<1> -> f32

    After::

        %v = llvm.inline_asm "ld.global.nc.L1::no_allocate.f32 $0, [$1];", "=f,l" %p : (!llvm.ptr<1>) -> f32

    Leaves alone: types that a single register does not hold.
    """

    name: ClassVar[str] = "lower-nontemporal"
    kind = Kind.LOWERING

    def apply(self, module: ir.Module, target: Target) -> None:
        if target.ptx < HINTS_PTX:
            return
        with module.context, ir.Location.unknown():
            for op in [op for op in walk(module.operation) if op_name(op) == "llvm.load"]:
                pointer, type_ = op.operands[0], op.results[0].type
                if "nontemporal" not in op.attributes or str(pointer.type) != "!llvm.ptr<1>" or not is_scalar(type_):
                    continue
                with ir.InsertionPoint(op):
                    value = load(pointer, type_, ".L1::no_allocate")
                op.results[0].replace_all_uses_with(value)
                op.operation.erase()
