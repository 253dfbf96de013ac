"""`jam-columns`: several tiles of dense columns in one walk over the entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import STORES, LoopNest, Slices, accessed, indices, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, clone_slice, yielded


@register
@dataclass(frozen=True)
class JamColumns(SchedulePass):
    """Cut the dense columns into `factor` tiles and compute one column (or vector) of every tile at a time.

    The loop over entries runs once for all of them: coordinates and values are loaded once, and the loads of the dense rows
    are independent of each other.  Neighbouring lanes stay on neighbouring columns of a tile, and the tiles of a lane lie
    a constant apart, so that its loads differ in a constant offset only.

    Before::

        scf.for %k = %c0 to %c64 step %c4 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          vector.store %s, %C[%i, %k]
        }

    After ``jam-columns{factor=2}``::

        scf.for %k = %c0 to %c32 step %c4 {
          %k1 = arith.addi %k, %c32
          %s:2 = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero, %a1 = %zero) {
            ...
          }
          vector.store %s#0, %C[%i, %k]
          vector.store %s#1, %C[%i, %k1]
        }

    After ``jam-columns{factor=3}``, which does not divide the 16 vectors: the last of three tiles of six ends with the last
    column and begins two vectors early.  Those two are computed twice; the last tile does not store them::

        scf.for %k = %c0 to %c24 step %c4 {
          %new = arith.cmpi uge, %k, %c8
          %k1 = arith.addi %k, %c24
          %k2 = arith.addi %k, %c40
          %s:3 = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero, %a1 = %zero, %a2 = %zero) {
            ...
          }
          vector.store %s#0, %C[%i, %k]
          vector.store %s#1, %C[%i, %k1]
          scf.if %new {
            vector.store %s#2, %C[%i, %k2]
          }
        }

    Leaves alone: what does not depend on the column; it is computed once.
    Refuses: a number of columns that is not constant, or so small that fewer than `factor` tiles hold them.
    """

    name: ClassVar[str] = "jam-columns"
    relieves = (Bottleneck.LATENCY, Bottleneck.ISSUE)
    consumes = (Resource.REGISTERS, Resource.CODE)
    requires = (Form.COLUMNS, Form.REGISTER_ACCUMULATION)
    excludes = (Form.THREADS, Form.UNROLLED, Form.JAMMED)
    provides = (Form.JAMMED,)

    factor: int = option("tiles of columns that are computed together", default=2, choices=tuple(range(1, 10)))

    def run(self, nest: LoopNest, target: Target) -> None:
        loop = nest.columns[-1]
        trips, step = loop.trip_count, b.known(loop.step)
        if trips is None or step is None or b.known(loop.lower) != 0:
            raise NotApplicable("the number of columns is not known; give its size (--size K=…)", where=self.name)
        tiles = _Tiles(trips, step, self.factor)
        if self.factor > max(1, tiles.needed):
            raise NotApplicable(
                f"{trips} steps of the column loop make {tiles.needed} tiles of {tiles.steps}, not {self.factor}",
                where=self.name,
            )
        jam = _Jam(loop.iv, nest.output, tiles)
        jam.check(body_ops(loop.body), self.name)
        with ir.InsertionPoint(loop.op):

            def body(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
                jam.body(body_ops(loop.body), iv)
                return ()

            b.for_loop(loop.lower, b.index(tiles.steps * step), loop.step, [], body)
        loop.op.operation.erase()


@dataclass(frozen=True)
class _Tiles:
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


class _Jam:
    """Clones ops for several columns at once: `copies` maps the old values to those of each column.

    Where the last tile begins inside the one before, `new` says whether its column is its own: only then may it be stored,
    and only then may the output be read there, since another thread stores it.
    """

    def __init__(self, column: ir.Value, output: ir.Value, tiles: _Tiles) -> None:
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
