"""What all lanes of a warp must agree on before they meet in a shuffle: values, and whether they get there at all."""

from __future__ import annotations

from mlir import ir

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import defining_op, op_name
from sparseditto.passes.nest import Loop, LoopNest, root_buffer

_NUMBERS = {
    "arith.addi": lambda x, y: x + y,
    "arith.subi": lambda x, y: x - y,
    "arith.muli": lambda x, y: x * y,
    "arith.divui": lambda x, y: x // y,
    "arith.remui": lambda x, y: x % y,
}
_LESS = 6  # the predicate `ult` of arith.cmpi


class Agreement:
    """How many neighbouring lanes compute the same value, where `lanes` lanes share an iteration of the outermost loop."""

    def __init__(self, nest: LoopNest, lane_loop: Loop, lanes: int, warp: int) -> None:
        self.lane, self.row, self.output = lane_loop.iv, nest.outer.iv, nest.output
        self.lanes, self.warp = lanes, warp
        self._cache: dict[ir.Value, int] = {}

    def of(self, *values: ir.Value) -> int:
        """The number of lanes, a power of two, that agree on all of `values`; the whole warp on what no row or lane changes."""
        return min((self._of(value) for value in values), default=self.warp)

    def _of(self, value: ir.Value) -> int:
        if value not in self._cache:
            self._cache[value] = self._computed(value)
        return self._cache[value]

    def _computed(self, value: ir.Value) -> int:
        if value == self.lane:
            return 1
        if value == self.row:
            return self.lanes
        op = defining_op(value)
        if op is None:
            return self._argument(value)
        if len(op.regions):
            return 1  # nobody needs it
        if op_name(op) == "memref.load" and root_buffer(op.operands[0]) == self.output:
            return 1
        if op_name(op) == "arith.divui" and op.operands[0] == self.lane:
            number = b.known(op.operands[1])
            return number if number is not None and number & (number - 1) == 0 and number <= self.lanes else 1
        return self.of(*op.operands)

    def _argument(self, value: ir.Value) -> int:
        """A loop's counter is what its bounds make of it; what a loop carries may be anything."""
        owner = value.owner.owner
        if op_name(owner) != "scf.for":
            return self.warp  # of the function
        return self.of(*list(owner.operands)[:3]) if value.arg_number == 0 else 1


def evaluate(value: ir.Value, where: dict[ir.Value, int]) -> int | None:
    """The number (or truth) that index arithmetic gives when the values in `where` are these numbers; None if it takes more."""
    if value in where:
        return where[value]
    if (number := b.known(value)) is not None:
        return number
    op = defining_op(value)
    if op is None or op_name(op) not in (*_NUMBERS, "arith.cmpi"):
        return None
    x, y = (evaluate(v, where) for v in op.operands)
    if x is None or y is None:
        return None
    if op_name(op) != "arith.cmpi":
        return _NUMBERS[op_name(op)](x, y)
    return int(x < y) if int(ir.IntegerAttr(op.attributes["predicate"]).value) == _LESS else None
