"""Unroll and jam: iterations of a parallel loop, some tiles apart, in one walk over the loops inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith, scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.passes.nest import STORES, Slices, accessed, indices, root_buffer
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, clone_slice, yielded


@dataclass(frozen=True)
class Tiles:
    """`trips` steps of `step` columns in `count` tiles of equally many steps; the last one may begin inside the one before."""

    trips: int
    step: int
    count: int

    @property
    def steps(self) -> int:
        """Steps of a tile."""
        return -(-self.trips // self.count)

    @property
    def needed(self) -> int:
        """Tiles of that size that hold all steps."""
        return -(-self.trips // max(1, self.steps))

    @property
    def starts(self) -> list[int]:
        """The first column of each tile."""
        return [min(j * self.steps, self.trips - self.steps) * self.step for j in range(self.count)]

    @property
    def shared(self) -> int:
        """How many columns of the last tile are the previous one's as well."""
        return (self.count * self.steps - self.trips) * self.step


class Jam:
    """Clones ops for several columns at once: `copies` maps the old values to those of each column.

    Where the last tile begins inside the one before, `new` says whether its column is its own: only then may it be stored,
    and only then may the output be read there, since another thread stores it.
    """

    def __init__(self, column: ir.Value, output: ir.Value, tiles: Tiles) -> None:
        self.column, self.output, self.tiles = column, output, tiles
        self.slices = Slices()
        self.new: ir.Value | None = None

    def check(self, ops: Sequence[ir.OpView], where: str) -> None:
        """Refuse, before anything is changed, loops and conditions that differ between columns."""
        for op in ops:
            controls = list(op.operands)[: {"scf.for": 3, "scf.if": 1}.get(op_name(op), 0)]
            if any(self._depends(v) for v in controls) and not self._is_guard(op):
                raise NotApplicable("a loop or a condition depends on the column", where=where)
            for region in op.regions:
                for block in region:
                    self.check(body_ops(block), where)

    def body(self, ops: Sequence[ir.OpView], iv: ir.Value) -> None:
        """The ops of the column loop, for the column `iv` of every tile."""
        if self.tiles.shared:
            self.new = arith.cmpi(arith.CmpIPredicate.uge, iv, b.index(self.tiles.shared))
        self.ops(ops, [{self.column: b.add(iv, b.index(start))} for start in self.tiles.starts])

    def ops(self, ops: Sequence[ir.OpView], copies: list[Values]) -> list[Values]:
        for op in ops:
            if op_name(op) == "scf.for":
                copies = self._loop(op, copies)
            elif op_name(op) == "scf.if" and not self._is_guard(op):
                copies = self._condition(op, copies)
            elif self._shared(op, copies):
                values = clone_ops([op], copies[0])
                copies = [{**copy, **{r: values[r] for r in op.results}} for copy in copies]
            else:
                first = [clone_ops([op], copy) for copy in copies[:-1]]
                copies = [*first, self._last(op, copies)]
        return copies

    def _last(self, op: ir.OpView, copies: list[Values]) -> Values:
        """`op` for the last tile."""
        *_, copy = copies
        if self.new is None:
            return clone_ops([op], copy)
        if op_name(op) in STORES or self._is_guard(op):
            with b.if_then(self.new):
                clone_into(op, copy)
            return copy
        if op_name(op) in ("memref.load", "vector.load") and root_buffer(accessed(op)) == self.output:
            at = dict(zip(indices(op), self._own(indices(op), copies), strict=True))
            return {**copy, op.results[0]: clone_into(op, {**copy, **at}).results[0]}
        return clone_ops([op], copy)

    def _own(self, values: Sequence[ir.Value], copies: list[Values]) -> list[ir.Value]:
        """Indices at a column that this thread stores itself: the last tile's, or else the first one's."""
        first, last = copies[0], copies[-1]
        column = arith.select(self.new, last[self.column], first[self.column])
        known = {old: value for old, value in first.items() if not self._depends(old)} | {self.column: column}
        return [clone_slice(value, known) for value in values]

    def _depends(self, value: ir.Value) -> bool:
        return self.column.owner in self.slices.blocks(value)

    def _is_guard(self, op: ir.OpView) -> bool:
        """Whether an op is done for some columns only, and gives no value (`tile-columns` leaves such a store)."""
        return op_name(op) == "scf.if" and not len(op.results) and self._depends(op.operands[0])

    def _shared(self, op: ir.OpView, copies: list[Values]) -> bool:
        """Whether all columns agree on every operand, and the op gives a value (a store is done for each)."""
        first, *rest = copies
        return bool(len(op.results)) and all(copy.get(v, v) == first.get(v, v) for v in op.operands for copy in rest)

    def _loop(self, op: ir.OpView, copies: list[Values]) -> list[Values]:
        block = op.regions[0].blocks[0]
        lower, upper, step, *initial = op.operands
        bounds = [copies[0].get(v, v) for v in (lower, upper, step)]
        carried, width = list(block.arguments)[1:], len(initial)

        def body(iv: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            inner = [
                {**copy, block.arguments[0]: iv, **dict(zip(carried, sums[j * width : (j + 1) * width], strict=True))}
                for j, copy in enumerate(copies)
            ]
            return [copy.get(v, v) for copy in self.ops(body_ops(block), inner) for v in yielded(block)]

        results = b.for_loop(bounds[0], bounds[1], bounds[2], [copy.get(v, v) for copy in copies for v in initial], body)
        return [
            {**copy, **dict(zip(op.results, results[j * width : (j + 1) * width], strict=True))}
            for j, copy in enumerate(copies)
        ]

    def _condition(self, op: ir.OpView, copies: list[Values]) -> list[Values]:
        blocks = [block for region in op.regions for block in region]
        types = [result.type for _ in copies for result in op.results]
        new = scf.IfOp(copies[0].get(op.operands[0], op.operands[0]), types, has_else=len(blocks) > 1)
        for old, region in zip(blocks, new.regions, strict=False):
            with ir.InsertionPoint(region.blocks[0]):
                inner = self.ops(body_ops(old), copies)
                scf.yield_([copy.get(v, v) for copy in inner for v in yielded(old)])
        width = len(op.results)
        return [
            {**copy, **dict(zip(op.results, list(new.results)[j * width : (j + 1) * width], strict=True))}
            for j, copy in enumerate(copies)
        ]
