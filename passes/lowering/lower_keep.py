"""`lower-keep`: loads of buffers that the L2 cache is to keep name their cache policy in PTX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import llvm

from sparseditto.dialects.binding import defining_op, op_name, walk
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.nest import KEEP
from sparseditto.passes.ptx_load import HINTS_PTX, is_loaded_at_once, load
from sparseditto.passes.registry import register


@register
@dataclass(frozen=True)
class LowerKeep(LoweringPass):
    """Load from the arguments that `ditto.keep` numbers with a policy that evicts their lines last from L2.

    The policy is made once a thread, of constants; `ptxas` makes a constant of it.  `keep-gathered` marks only what a kernel
    reads and does not write, so the load is `.nc`.

    Before::

        llvm.func @f(%p: !llvm.ptr<1>) -> f32 attributes {ditto.keep = array<i32: 0>} {
          %v = llvm.load %p : !llvm.ptr<1> -> f32
          llvm.return %v : f32
        }

    After::

        llvm.func @f(%p: !llvm.ptr<1>) -> f32 {
          %keep = llvm.inline_asm "createpolicy.fractional.L2::evict_last.b64 $0, 1.0;", "=l" : () -> i64
          %v = llvm.inline_asm "ld.global.nc.L2::cache_hint.f32 $0, [$1], $2;", "=f,l,l" %p, %keep : (!llvm.ptr<1>, i64) -> f32
          llvm.return %v : f32
        }

    Leaves alone: loads that `lower-nontemporal` has rewritten, types that PTX does not load at once, and chips whose
    PTX is older than 7.4 (before sm_89).
    """

    name: ClassVar[str] = "lower-keep"
    kind = Kind.LOWERING

    def apply(self, module: ir.Module, target: Target) -> None:
        with module.context, ir.Location.unknown():
            for func in [op for op in walk(module.operation) if op_name(op) == "llvm.func" and KEEP in op.attributes]:
                kept = set(ir.DenseI32ArrayAttr(func.attributes[KEEP]))
                del func.attributes[KEEP]
                if target.ptx >= HINTS_PTX:
                    _lower(func, kept)


def _lower(func: ir.OpView, kept: set[int]) -> None:
    entry = func.regions[0].blocks[0]
    loads = [op for op in walk(func) if op_name(op) == "llvm.load" and _is_kept(op, entry, kept)]
    if not loads:
        return
    i64 = ir.IntegerType.get_signless(64)
    with ir.InsertionPoint.at_block_begin(entry):
        policy = llvm.inline_asm(i64, [], "createpolicy.fractional.L2::evict_last.b64 $0, 1.0;", "=l")
    for op in loads:
        with ir.InsertionPoint(op):
            value = load(op.operands[0], op.results[0].type, ".L2::cache_hint", [policy])
        op.results[0].replace_all_uses_with(value)
        op.operation.erase()


def _is_kept(read: ir.OpView, entry: ir.Block, kept: set[int]) -> bool:
    """Whether a load's address is computed from one of these arguments, and its type is one that PTX loads at once."""
    value, type_ = read.operands[0], read.results[0].type
    while (op := defining_op(value)) is not None and op_name(op) == "llvm.getelementptr":
        value = op.operands[0]
    if op is not None or value.owner != entry or value.arg_number not in kept:
        return False
    return is_loaded_at_once(type_)
