"""`lower-nontemporal`: loads that are read once name their cache policy in PTX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import llvm

from sparseditto.dialects.binding import op_name, walk
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.registry import register

# PTX type and register constraint of a scalar.
REGISTERS = {
    "i16": ("b16", "h"),
    "f16": ("b16", "h"),
    "bf16": ("b16", "h"),
    "i32": ("b32", "r"),
    "i64": ("b64", "l"),
    "f32": ("f32", "f"),
    "f64": ("f64", "d"),
}

NO_ALLOCATE_PTX = 74  # the first version with L1::no_allocate


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
        if target.ptx < NO_ALLOCATE_PTX:
            return
        with module.context, ir.Location.unknown():
            for op in [op for op in walk(module.operation) if op_name(op) == "llvm.load"]:
                type_ = str(op.results[0].type)
                if "nontemporal" not in op.attributes or str(op.operands[0].type) != "!llvm.ptr<1>" or type_ not in REGISTERS:
                    continue
                ptx, constraint = REGISTERS[type_]
                text = f"ld.global.nc.L1::no_allocate.{ptx} $0, [$1];"
                with ir.InsertionPoint(op):
                    half = constraint == "h"  # a register of 16 bits holds an integer
                    loaded = ir.IntegerType.get_signless(16) if half else op.results[0].type
                    value = llvm.inline_asm(loaded, [op.operands[0]], text, f"={constraint},l")
                    if loaded != op.results[0].type:
                        value = llvm.bitcast(op.results[0].type, value)
                op.results[0].replace_all_uses_with(value)
                op.operation.erase()
