"""`guard-padding`: what fills up a block adds nothing, not even where it meets an infinity or a NaN."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, scf, vector

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, defining_op, op_name, sparse_encoding, walk
from sparseditto.dialects.target import Target
from sparseditto.passes.base import FunctionPass, Kind
from sparseditto.passes.nest import COMBINERS, Loop, LoopNest, Role, accessed, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, depends, yielded


@register
@dataclass(frozen=True)
class GuardPadding(FunctionPass):
    """Compute a sum over blocks (BSR) again, without what fills them up, when it is no number.

    Places of a block that hold no entry hold -0 (an entry is never -0: packing makes it +0).  Times a finite number that
    adds nothing; times an infinity or a NaN it makes the sum a NaN.  So a sum that is a number is right, and one that is not
    is computed once more, with a test for each place.

    Before::

        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
          ...
            %v = memref.load %val[%at]
            ...
            %n = arith.addf %b, %t
            scf.yield %n
        }

    After::

        %fast = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
          ...
        }
        %bad = arith.cmpf une, %fast, %fast
        %s = scf.if %bad {
          %slow = scf.for %q = %lo to %hi step %c1 iter_args(%c = %zero) {
            ...
              %v = memref.load %val[%at]
              ...
              %n = arith.addf %b, %t
              %bits = arith.bitcast %v
              %entry = arith.cmpi ne, %bits, %minus_zero
              %next = arith.select %entry, %n, %b
              scf.yield %next
          }
          scf.yield %slow
        } else {
          scf.yield %fast
        }

    Leaves alone: nests over formats that store entries only.
    """

    name: ClassVar[str] = "guard-padding"
    kind = Kind.LOWERING

    def run_on(self, func: ir.OpView, target: Target) -> None:
        with func.operation.context, func.location:
            nests = LoopNest.read_each(func, self.name)
            for loop in [loop for nest in nests for loop in nest.reductions if _is_over_blocks(nest, loop)]:
                _guard(loop)


def _is_over_blocks(nest: LoopNest, loop: Loop) -> bool:
    """Whether a reduction in registers, not inside another one, adds up what may fill blocks."""
    around = nest.parent(loop)
    outermost = around is None or around.role is not Role.REDUCTION
    return outermost and bool(loop.initial) and any(map(_reads_block, walk(loop.op)))


def _reads_block(op: ir.OpView) -> bool:
    """Whether an op loads a value from storage whose last level is dense: it may be one that fills a block."""
    if op_name(op) != "memref.load":
        return False
    source = defining_op(root_buffer(accessed(op)))
    if source is None or op_name(source) != "sparse_tensor.values":
        return False
    encoding = sparse_encoding(source.operands[0].type)
    return encoding is not None and encoding.levels[-1].type == "dense"


def _guard(loop: Loop) -> None:
    with ir.InsertionPoint(loop.op):
        fast = list(clone_into(loop.op, {}).results)
        bad = reduce(arith.ori, [_is_no_number(v) for v in fast])
        branch = scf.IfOp(bad, [v.type for v in fast], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            scf.yield_(_guarded_loop(loop.op, {}))
        with ir.InsertionPoint(branch.else_block):
            scf.yield_(fast)
    for old, new in zip(loop.op.results, branch.results, strict=True):
        old.replace_all_uses_with(new)
    loop.op.operation.erase()


def _is_no_number(value: ir.Value) -> ir.Value:
    """Whether a float, or an element of a vector of floats, is a NaN."""
    unequal = arith.cmpf(arith.CmpFPredicate.UNE, value, value)
    return vector.reduction(ir.IntegerType.get_signless(1), vector.CombiningKind.OR, unequal) if _is_vector(value) else unequal


def _is_vector(value: ir.Value) -> bool:
    return isinstance(value.type, ir.VectorType)


def _guarded_loop(loop: ir.OpView, values: Values) -> list[ir.Value]:
    """The loop with a test at each addition of what may fill a block; returns its results."""
    lower, upper, step, *initial = (values.get(v, v) for v in loop.operands)
    block = loop.regions[0].blocks[0]

    def body(iv: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        inner = {**values, **dict(zip(block.arguments, [iv, *sums], strict=True))}
        for op in body_ops(block):
            inner = _guarded_op(op, inner, list(block.arguments)[1:])
        return [inner.get(v, v) for v in yielded(block)]

    return b.for_loop(lower, upper, step, initial, body)


def _guarded_op(op: ir.OpView, values: Values, carried: list[ir.Value]) -> Values:
    if op_name(op) == "scf.for" and any(map(_reads_block, walk(op))):
        return {**values, **dict(zip(op.results, _guarded_loop(op, values), strict=True))}
    done = clone_ops([op], values)
    if op_name(op) not in COMBINERS or not depends(op.results[0], carried):
        return done
    before, term = op.operands if depends(op.operands[0], carried) else reversed(op.operands)
    for load in _block_loads(term):
        bits = ir.IntegerType.get_signless(load.results[0].type.width)
        stored = arith.bitcast(bits, done[load.results[0]])
        entry = arith.cmpi(arith.CmpIPredicate.ne, stored, arith.constant(bits, -(1 << (bits.width - 1))))
        done[op.results[0]] = arith.select(entry, done[op.results[0]], done.get(before, before))
    return done


def _block_loads(term: ir.Value) -> list[ir.OpView]:
    """The loads of values that a term is computed from."""
    op = defining_op(term)
    if op is None or op_name(op) == "scf.for":
        return []
    if _reads_block(op):
        return [op]
    return list(dict.fromkeys(load for operand in op.operands for load in _block_loads(operand)))
