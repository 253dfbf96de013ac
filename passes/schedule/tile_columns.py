"""`tile-columns`: the whole matrix for a few dense columns, then for the next ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import defining_op
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, SchedulePass, option
from sparseditto.passes.nest import Loop, LoopNest, accessed, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import (
    Values,
    body_ops,
    clone_ops,
    clone_reduction,
    clone_to,
    combine,
    combiner_of,
    guard_stores,
    neutral,
    require_plain,
    sums_are_independent,
    take_initial,
    tile_and_row,
)
from sparseditto.passes.work import Work

WIDTHS = (8, 16, 32, 64, 128)
_CACHE = 24 << 20  # bytes of the dense operand that an L2 cache keeps beside everything else


@register
@dataclass(frozen=True)
class TileColumns(SchedulePass):
    """Cut the dense columns into tiles of `width`, and walk all rows for one tile before the next.

    What the entries gather from is then `width` columns of the dense operand, which stay in the cache where all columns do
    not.  The price: the stored entries are read once for each tile, and each tile pays for every row again.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          scf.for %k = %c0 to %c64 step %c1 {
            ...
            memref.store %s, %C[%i, %k]
          }
        }

    After ``tile-columns{width=32}``::

        %all = arith.muli %m, %c2
        scf.for %t = %c0 to %all step %c1 {
          %second = arith.cmpi uge, %t, %m
          %first = arith.select %second, %c32, %c0
          %left = arith.subi %t, %m
          %i = arith.select %second, %left, %t
          scf.for %k = %c0 to %c32 step %c1 {
            %column = arith.addi %first, %k
            ...
            memref.store %s, %C[%i, %column]
          }
        }

    Where `width` does not divide the columns, the last tile ends with the last column and begins inside the tile before it.
    The columns that both have are computed twice; the last tile does not store them, and reads no old value of them::

        %start = arith.minui %first, %last_start
        %shared = arith.subi %first, %start
        scf.for %k = %c0 to %c32 step %c1 {
          %column = arith.addi %start, %k
          %own = arith.cmpi uge, %k, %shared
          ...
          scf.if %own {
            memref.store %s, %C[%i, %column]
          }
        }

    Leaves alone: what is done for one row and column; a kernel that sets rows to their initial values.
    Refuses: a number of columns that is not constant or that fits in one tile; where `width` does not divide it, an old
    value of the output that is more than what one sum starts from.
    """

    name: ClassVar[str] = "tile-columns"
    relieves = (Bottleneck.BANDWIDTH,)
    requires = (Form.ROWS, Form.COLUMNS, Form.REGISTER_ACCUMULATION)
    excludes = (Form.THREADS, Form.VECTORS, Form.JAMMED, Form.TILES, Form.MIRRORED)
    provides = (Form.TILES,)

    width: int = option("columns of a tile", default=32, choices=WIDTHS)

    def effect(self, work: Work) -> Work:
        return work._replace(tile=min(self.width, work.columns))

    @classmethod
    def candidates(cls, context: Any) -> tuple[TileColumns, ...]:
        """Widths that leave more than one tile: the widest whose part of the dense operand a cache keeps comes first."""
        columns = context.task.columns or 0
        column_bytes = context.task.element_bytes * (context.features.columns if context.features is not None else 0)
        if 0 < column_bytes * columns <= _CACHE:
            return ()  # it keeps all columns
        widths = [width for width in WIDTHS if width < columns]
        kept = [width for width in widths if width * column_bytes <= _CACHE]
        return tuple(map(cls, [*reversed(kept), *widths[len(kept) :]]))

    def run(self, nest: LoopNest, target: Target) -> None:
        loop = self._column_loop(nest)
        columns = loop.trip_count or 0
        tail = columns % self.width != 0
        guard = _Guard.read(nest, loop, self.name) if tail else None
        first = _walk_tiles(nest.outer, -(-columns // self.width), self.width)
        start = first
        if tail:
            with ir.InsertionPoint.after(defining_op(first)):
                start = arith.minui(first, b.index(columns - self.width))
                shared = b.sub(first, start)
        _narrow(loop, start, self.width)
        if guard is not None:
            guard.build(shared)

    def _column_loop(self, nest: LoopNest) -> Loop:
        require_plain(nest.outer, self.name)
        if len(nest.columns) != 1:
            raise NotApplicable(f"needs one loop over dense columns, not {len(nest.columns)}", where=self.name)
        (loop,) = nest.columns
        require_plain(loop, self.name)
        if loop.trip_count is None:
            raise NotApplicable("the number of columns is not known; give its size (--size K=…)", where=self.name)
        if loop.trip_count <= self.width:
            raise NotApplicable(f"{loop.trip_count} columns make one tile of {self.width}; tile them narrower", where=self.name)
        return loop


def _walk_tiles(outer: Loop, tiles: int, width: int) -> ir.Value:
    """Make the loop over rows one over tiles and rows; returns the first column of the tile, inside it."""
    rows, users = outer.upper, list(outer.iv.uses)
    with ir.InsertionPoint(outer.op):
        outer.op.operation.operands[1] = b.mul(rows, b.index(tiles))
    with ir.InsertionPoint.at_block_begin(outer.body):
        first, row = tile_and_row(outer.iv, rows, tiles, width)
    _replace(users, row)
    return first


def _narrow(loop: Loop, start: ir.Value, width: int) -> None:
    """Make a loop over all columns one over `width` columns from `start` on."""
    users = list(loop.iv.uses)
    with ir.InsertionPoint(loop.op):
        loop.op.operation.operands[1] = b.index(width)
    with ir.InsertionPoint.at_block_begin(loop.body):
        column = b.add(start, loop.iv)
    _replace(users, column)


def _replace(uses: list[ir.OpOperand], value: ir.Value) -> None:
    for use in uses:
        use.owner.operation.operands[use.operand_number] = value


@dataclass(frozen=True)
class _Guard:
    """The column loop of a tile that begins inside the one before; what they share, only one of them may touch.

    `entries` is the sum that starts from an old value of the output, which is then read after it; None where none is read.
    """

    loop: Loop
    entries: Loop | None

    @staticmethod
    def read(nest: LoopNest, loop: Loop, where: str) -> _Guard:
        """Raises `NotApplicable` when the old value is read for anything else."""
        body = loop.op.operation
        old = [op for op in nest.loads if root_buffer(accessed(op)) == nest.output and op.operation.parent == body]
        sums = [inner for inner in nest.reductions if inner.op.operation.parent == body]
        before = [op for op in old if not sums or op.operation.is_before_in_block(sums[0].op.operation)]
        if not before:
            return _Guard(loop, None)
        (entries,) = sums if len(sums) == 1 else (None,)
        if (
            entries is None
            or [defining_op(v) for v in entries.initial] != before
            or any(len(list(op.results[0].uses)) != 1 for op in before)
            or combiner_of(entries) is None
            or not sums_are_independent(entries)
        ):
            raise NotApplicable(
                "the last tile would be narrower, and the output's old value is more than what one sum starts from; "
                "take a width that divides the columns",
                where=where,
            )
        return _Guard(loop, entries)

    def build(self, shared: ir.Value) -> None:
        """Store only from column number `shared` of the tile on."""
        loop = self.loop
        if self.entries is None:
            with ir.InsertionPoint.at_block_begin(loop.body):
                own = arith.cmpi(arith.CmpIPredicate.uge, loop.iv, shared)
            guard_stores(loop.body, own)
            return
        entries = self.entries
        with ir.InsertionPoint(loop.op):

            def body(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
                own = arith.cmpi(arith.CmpIPredicate.uge, iv, shared)
                clone_to(
                    body_ops(loop.body), entries.op, {loop.iv: iv}, lambda rest, values: _sum_first(entries, own, rest, values)
                )
                return ()

            b.for_loop(loop.lower, loop.upper, loop.step, [], body)
        loop.op.operation.erase()


def _sum_first(entries: Loop, own: ir.Value, rest: list[ir.OpView], values: Values) -> None:
    """The sums from nothing on, and then, where the column is the tile's own, what they are added to."""
    combiner = combiner_of(entries) or ""
    zeros = [neutral(combiner, initial.type) for initial in entries.initial]
    bounds = [values.get(v, v) for v in (entries.lower, entries.upper, entries.step)]
    totals = clone_reduction(entries, values, bounds[0], bounds[1], bounds[2], zeros)
    with b.if_then(own):
        results = [combine(combiner, take_initial(entries, values, k), total) for k, total in enumerate(totals)]
        clone_ops(rest, {**values, **dict(zip(entries.op.results, results, strict=True))})
