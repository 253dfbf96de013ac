"""`lower-keep`: loads of buffers that the L2 cache is to keep name their cache policy in PTX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import llvm

from sparseditto.dialects.binding import defining_op, op_name, walk
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.lowering.lower_nontemporal import REGISTERS
from sparseditto.passes.nest import KEEP
from sparseditto.passes.registry import register

LEAST_CAPABILITY = 80  # the first GPUs with cache policies


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

    Leaves alone: loads that `lower-nontemporal` has rewritten, types that PTX does not load at once, GPUs before sm_80.
    """

    name: ClassVar[str] = "lower-keep"
    kind = Kind.LOWERING

    def apply(self, module: ir.Module, target: Target) -> None:
        with module.context, ir.Location.unknown():
            for func in [op for op in walk(module.operation) if op_name(op) == "llvm.func" and KEEP in op.attributes]:
                kept = set(ir.DenseI32ArrayAttr(func.attributes[KEEP]))
                del func.attributes[KEEP]
                if int(target.chip.removeprefix("sm_").rstrip("af")) >= LEAST_CAPABILITY:
                    _lower(func, kept)


def _lower(func: ir.OpView, kept: set[int]) -> None:
    entry = func.regions[0].blocks[0]
    loads = [op for op in walk(func) if op_name(op) == "llvm.load" and _is_kept(op, entry, kept)]
    if not loads:
        return
    i64 = ir.IntegerType.get_signless(64)
    with ir.InsertionPoint.at_block_begin(entry):
        policy = llvm.inline_asm(i64, [], "createpolicy.fractional.L2::evict_last.b64 $0, 1.0;", "=l")
    for load in loads:
        with ir.InsertionPoint(load):
            value = _load(load.operands[0], load.results[0].type, policy)
        load.results[0].replace_all_uses_with(value)
        load.operation.erase()


def _is_kept(load: ir.OpView, entry: ir.Block, kept: set[int]) -> bool:
    """Whether a load's address is computed from one of these arguments, and its type is one that PTX loads at once."""
    value, type_ = load.operands[0], load.results[0].type
    while (op := defining_op(value)) is not None and op_name(op) == "llvm.getelementptr":
        value = op.operands[0]
    if op is not None or value.owner != entry or value.arg_number not in kept:
        return False
    count, element = _shape(type_)
    return str(element) in REGISTERS and count in (1, 2, 4) and count * _bits(element) <= 128


def _shape(type_: ir.Type) -> tuple[int, ir.Type]:
    """How many elements of which type a load gives."""
    return (type_.shape[0], type_.element_type) if isinstance(type_, ir.VectorType) else (1, type_)


def _bits(type_: ir.Type) -> int:
    return int(type_.width)


def _load(pointer: ir.Value, type_: ir.Type, policy: ir.Value) -> ir.Value:
    count, element = _shape(type_)
    ptx, constraint = REGISTERS[str(element)]
    register = ir.IntegerType.get_signless(16) if constraint == "h" else element  # a register of 16 bits holds an integer
    vector = isinstance(type_, ir.VectorType)
    width, out = (f".v{count}", ", ".join(f"${i}" for i in range(count))) if count > 1 else ("", "$0")
    text = f"ld.global.nc.L2::cache_hint{width}.{ptx} {f'{{{out}}}' if count > 1 else out}, [${count}], ${count + 1};"
    constraints = ",".join([*[f"={constraint}"] * count, "l", "l"])
    result = ir.Type.parse(f"!llvm.struct<({', '.join([str(register)] * count)})>") if count > 1 else register
    loaded = llvm.inline_asm(result, [pointer, policy], text, constraints)
    parts = [loaded] if count == 1 else [llvm.extractvalue(register, loaded, [i]) for i in range(count)]
    parts = [part if register == element else llvm.bitcast(element, part) for part in parts]
    if not vector:
        return parts[0]
    whole: ir.Value = llvm.mlir_poison(type_)
    for i, part in enumerate(parts):
        at = llvm.mlir_constant(ir.IntegerAttr.get(ir.IntegerType.get_signless(32), i))
        whole = llvm.insertelement(whole, part, at)
    return whole
