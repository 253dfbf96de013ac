"""What an output element holds before anything is added to it, as the `linalg` op says that initialises the output.

That op is a `linalg.fill` of a constant, or a `linalg.generic` over the output alone, which rounds a constant or scales the
old value.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir
from mlir.dialects import memref, scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import defining_op, op_name
from sparseditto.passes.rewrite import Values, clone_slice


def constant_of(op: ir.OpView) -> ir.Value | None:
    """The constant that an initialising op writes everywhere, perhaps rounded; None for one that reads the old value."""
    if op_name(op) == "linalg.fill":
        return op.operands[0]
    (block,) = op.regions[0].blocks
    (result,) = list(block.operations)[-1].operands
    rounding = defining_op(result)
    if rounding is not None and op_name(rounding) == "arith.truncf":
        result = rounding.operands[0]
    source = defining_op(result)
    return result if source is not None and op_name(source) == "arith.constant" else None


def initial_value(op: ir.OpView, at: Sequence[ir.Value], type_: ir.Type) -> ir.Value:
    """What `op` gives the output element at `at`, in `type_`, at the insertion point.

    Where the op selects a constant by a condition that does not depend on the old value, the old value is read in the
    other case only.
    """
    constant = constant_of(op)
    if constant is not None:
        return b.convert(constant, type_)
    (block,) = op.regions[0].blocks
    old = block.arguments[0]
    (result,) = list(block.operations)[-1].operands
    result = _unrounded(result, type_)
    choice = defining_op(result)

    def computed(value: ir.Value) -> ir.Value:
        values: Values = {old: memref.load(op.operands[-1], list(at))}
        return b.convert(clone_slice(value, values), type_)

    if choice is None or op_name(choice) != "arith.select" or not _is_outside(choice.operands[0], block):
        return computed(result)
    condition, constant, other = choice.operands
    branch = scf.IfOp(condition, [type_], has_else=True)
    with ir.InsertionPoint(branch.then_block):
        scf.yield_([b.convert(clone_slice(constant, {}), type_)])
    with ir.InsertionPoint(branch.else_block):
        scf.yield_([computed(other)])
    return branch.results[0]


def _unrounded(value: ir.Value, type_: ir.Type) -> ir.Value:
    """A value before it is rounded from `type_`."""
    op = defining_op(value)
    rounds = op is not None and op_name(op) == "arith.truncf" and op.operands[0].type == type_
    return op.operands[0] if op is not None and rounds else value


def _is_outside(value: ir.Value, block: ir.Block) -> bool:
    owner = value.owner
    return owner != block if isinstance(owner, ir.Block) else owner.operation.block != block
