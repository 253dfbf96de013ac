"""What is known of an index that is computed from a dense column: where its neighbours lie, and where they agree."""

from __future__ import annotations

from collections.abc import Callable

from mlir import ir

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import defining_op, op_name

_SUMS = ("arith.addi", "arith.subi", "arith.minui", "arith.maxui")
_ORDERS = (6, 9)  # the predicates `ult` and `uge` of arith.cmpi


def is_multiple(value: ir.Value, of: int) -> bool:
    """Whether an index is seen to be a multiple of `of`."""
    number = b.known(value)
    if number is not None:
        return number % of == 0
    op = defining_op(value)
    if op is None:
        return False
    operands = list(op.operands)
    if op_name(op) == "arith.muli":
        return any(is_multiple(v, of) for v in operands)
    if op_name(op) == "arith.select":
        operands = operands[1:]
    elif op_name(op) not in _SUMS:
        return False
    return all(is_multiple(v, of) for v in operands)


class Neighbours:
    """`width` columns side by side from a multiple of `width` on, of which `column` is the first."""

    def __init__(self, column: ir.Value, width: int, depends: Callable[[ir.Value], bool]) -> None:
        self.column, self.width, self.depends = column, width, depends

    def beside(self, index: ir.Value) -> bool:
        """Whether `index` is the column, or the column after a whole number of vectors: its neighbours are theirs."""
        if index == self.column:
            return True
        op = defining_op(index)
        if op is None or op_name(op) != "arith.addi":
            return False
        x, y = op.operands
        return (self.beside(x) and self._whole(y)) or (self.beside(y) and self._whole(x))

    def agree(self, condition: ir.Value) -> bool:
        """Whether `condition` holds for all of them or for none: it compares the column with a whole number of vectors."""
        op = defining_op(condition)
        if op is None or op_name(op) != "arith.cmpi" or int(ir.IntegerAttr(op.attributes["predicate"]).value) not in _ORDERS:
            return False
        x, y = op.operands
        return self.beside(x) and self._whole(y)

    def _whole(self, value: ir.Value) -> bool:
        return is_multiple(value, self.width) and not self.depends(value)
