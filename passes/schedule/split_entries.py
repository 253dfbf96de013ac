"""`split-entries`: equal parts of the stored entries, whatever the rows are, and sums row by row inside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import Loop, LoopNest
from sparseditto.passes.part_pieces import Added, Carries, Keeps
from sparseditto.passes.part_walk import ADD, WARP, Arrays, PartWalk, Pieces
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, neutral, tile_and_row
from sparseditto.passes.row_sums import RowSums
from sparseditto.passes.rows import recipe_argument, stored_entries, stored_index
from sparseditto.passes.work import INDEX_BYTES, Work

_LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)


@register
@dataclass(frozen=True)
class SplitEntries(SchedulePass):
    """Give each group of lanes about `length` consecutive stored entries, whatever rows they belong to.

    This is the nonzero split of merge-based SpMV and SpMM (Merrill and Garland, SC 2016; Yang, Buluc and Owens, Euro-Par 2018)
    with rows told apart by flags, one bit an entry, as in CSR5 (Liu and Vinter, ICS 2015).  The host cuts the entries and makes
    the flags (recipe `entry-parts`), so that no lane searches for its row: the number of ends of rows before an entry, counted
    from a word of flags, finds it in a list of the rows that have entries.  Flags and counts are a quarter of a byte an
    entry; the positions are not read.  A part may begin a little earlier or later, with a row: only a row of more than half
    of `length` is ever cut.

    With ``share=entries`` the 32 lanes of a warp take `items` neighbouring entries each, with vector loads, and a
    `ditto.segmented_scan` hands the sum of a row on from lane to lane; ``lanes=1`` gives a part to one thread.  With
    ``share=columns`` the lanes share the dense columns and each walks all entries of the part, `items` at a time, so that
    their loads are in flight together.  ``share=auto`` takes columns where there are any.  With `tiles` all parts are walked
    for the first share of the columns, then for the next: what they gather from is narrower, and more of it stays cached.

    A row whose entries are all in one part is stored there.  The pieces of a cut row are, with ``mode=atomic``, added to the
    output, which a kernel of its own sets first where sums start from a constant.  With ``mode=deterministic`` they go to a
    workspace, and a second kernel adds them up in their order: the result has the same bits in every run.  The parts store
    rows without entries on their way.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``split-entries{items=2}``::

        scf.forall (%part) in (%parts) {
          scf.forall (%lane) in (32) {
            ...
            %last = scf.for %base = %start to %end step %c64 iter_args(%carry = %zero) {
              ...
              %open:2 = "ditto.segmented_scan"(%tail, %heads) {kind = "arith.addf", lanes = 32 : i32}
              ...
                  memref.atomic_rmw addf %s, %y[%i]
              ...
                  memref.store %s, %y[%i]
            }
            ...
              memref.atomic_rmw addf %last, %y[%next]
          } {mapping = [#gpu.lane<linear_dim_0>]}
        } {mapping = [#gpu.warp<linear_dim_0>]}

    Leaves alone: what is done for one entry; vectors and tiles of columns that earlier passes made.
    Refuses: rows that are not a dense level over a compressed one; reductions other than sums; entries that are
    multiplied by a value of their row; with ``mode=atomic`` sums that are wider than the output, of which each piece would be
    rounded; with ``mode=deterministic`` a number of columns that is not known.
    """

    name: ClassVar[str] = "split-entries"
    relieves = (Bottleneck.IMBALANCE, Bottleneck.DIVERGENCE, Bottleneck.COALESCING)
    consumes = (Resource.ATOMICS, Resource.SHUFFLE, Resource.PREPROCESSING)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = (Form.THREADS, Form.TILES, Form.UNROLLED, Form.SEGMENTS, Form.BINS, Form.SLICES, Form.LISTED, Form.MIRRORED)
    provides = (Form.THREADS, Form.SEGMENTS, Form.UNROLLED)
    removes = (Form.ROWS,)

    length: int = option("entries of a part", default=256, choices=_LENGTHS)
    items: int = option("neighbouring entries that a lane takes at a time", default=4, choices=(1, 2, 4, 8))
    lanes: int = option("lanes that share a part", default=32, choices=(1, 2, 4, 8, 16, 32))
    share: str = option("what the lanes share", default="auto", choices=("auto", "columns", "entries"))
    mode: str = option("how pieces of a cut row meet", default="atomic", choices=("atomic", "deterministic"))
    tiles: int = option(
        "shares of the dense columns; all parts are walked for one before the next", default=1, choices=(1, 2, 4, 8)
    )

    def effect(self, work: Work) -> Work:
        columns = self.share == "columns" or (self.share == "auto" and work.columns > 1)
        parts = max(1.0, work.entries / self.length)
        ends = work.rows * (1 - work.pattern.empty_rows)
        return work._replace(
            units=parts,
            longest=float(self.length),
            uneven=1.0,
            cut=min(2 * parts, 2 * work.entries / max(self.length / 2, 1)) if work.pattern.max_row > self.length / 2 else 0.0,
            most_cut=work.pattern.max_row / self.length,
            entry_bytes=work.entry_bytes + 0.25,
            row_bytes=INDEX_BYTES * ends / work.rows if work.rows else 0.0,
            lanes=self.lanes,
            groups=1 if columns else self.lanes,
            unroll=self.items,
            entry_vector=self.items,
            tile=-(-work.columns // self.tiles) if self.tiles > 1 else work.tile,
            scanned=True,
            launches=work.launches + 1,
        )

    @classmethod
    def candidates(cls, context: Any) -> tuple[SplitEntries, ...]:
        """Parts that make about as many groups of lanes as the GPU holds come first; both modes of the best ones."""
        columns, entries = context.task.columns, context.features.entries if context.features is not None else 1 << 22
        found = []
        for lanes in _lanes(columns):
            best = log2(max(entries * lanes, 1) / context.machine.resident)
            lengths = sorted(_LENGTHS, key=lambda length: abs(log2(length) - best))[:3]
            found += [cls(length, items, lanes) for items in (4, 8) for length in lengths]
        return (*found, *(replace(one, mode="deterministic") for one in found if one.items == 4))

    def run(self, nest: LoopNest, target: Target) -> None:
        sums = RowSums.read(nest, self.name)
        shared = self._shared_columns(nest)
        keeps = Keeps.read(sums, self.mode, self.name)
        split = _Split(self, sums, shared, keeps)
        with ir.InsertionPoint(nest.outer.op):
            if self.mode == "atomic":
                if not keeps.all:
                    cut = split.array("cut")
                    sums.initialise(keeps.initial, memref.dim(cut, b.index(0)), lambda k: stored_index(memref.load(cut, [k])))
                split.build(lambda _: Added(sums, keeps))
            else:
                carries = Carries(sums, split.stored, self.length)
                split.build(carries.of)
                carries.add_up()
        nest.outer.op.operation.erase()

    def _shared_columns(self, nest: LoopNest) -> Loop | None:
        """The loop whose iterations the lanes share, or None where they share the entries."""
        if self.share == "columns" or (self.share == "auto" and nest.columns):
            if len(nest.columns) != 1:
                raise NotApplicable(f"needs one loop over dense columns, not {len(nest.columns)}", where=self.name)
            loop = nest.columns[0]
            if self.tiles > 1 and (loop.trip_count is None or loop.trip_count % self.tiles):
                raise NotApplicable(f"{self.tiles} tiles do not share out the columns evenly", where=self.name)
            return loop
        if self.tiles > 1:
            raise NotApplicable("no columns are shared out, which tiles could cut", where=self.name)
        if self.lanes not in (1, WARP):
            raise NotApplicable(f"entries are shared by all {WARP} lanes of a warp, or not at all", where=self.name)
        return None


def _lanes(columns: int | None) -> tuple[int, ...]:
    """Numbers of lanes that are worth a try for so many dense columns (None: not known): a quarter of them first."""
    if columns in (0, 1):
        return (WARP, 1)
    most = min(columns or WARP, WARP)
    return tuple(sorted((n for n in (2, 4, 8, 16, 32) if n <= most), key=lambda n: abs(log2(4 * n / (columns or 4 * WARP)))))


class _Split:
    """The main kernel: each group of lanes walks one part."""

    def __init__(self, options: SplitEntries, sums: RowSums, shared: Loop | None, keeps: Keeps) -> None:
        self.options, self.sums, self.shared, self.keeps = options, sums, shared, keeps
        self.stored = stored_entries(sums.entries, options.name)
        self.recipe = self.stored.recipe("entry-parts", length=options.length, items=options.items)
        self.tile: ir.Value | None = None  # the first iteration of the shared loop that is the walk's own

    def array(self, part: str) -> ir.Value:
        return recipe_argument(self.sums.nest.func, self.stored, self.recipe, part)

    def build(self, pieces: Callable[[ir.Value], Pieces]) -> None:
        """The loops over parts and lanes; `pieces` says for a part where pieces of its cut rows go."""
        names = ("starts", "carry", "flags", "ranks", "rows", *(("lanes",) if self._scans else ()))
        self.arrays = Arrays(*map(self.array, names))
        self.empty = None if self.keeps.all else self.array("empty")
        self.parts = b.sub(memref.dim(self.arrays.starts, b.index(0)), b.index(1))
        walks = b.mul(self.parts, b.index(self.options.tiles)) if self.options.tiles > 1 else self.parts
        if self.options.lanes == 1:
            with b.forall(walks, "thread") as walk:
                self._walk(walk, b.index(0), pieces)
        else:
            with b.forall(walks, "warp") as walk, b.forall(self.options.lanes, "lane") as lane:
                self._walk(walk, lane, pieces)

    def _walk(self, number: ir.Value, lane: ir.Value, pieces: Callable[[ir.Value], Pieces]) -> None:
        """One part, for one tile of the columns."""
        tiles, part = self.options.tiles, number
        if tiles > 1 and self.shared is not None:
            self.tile, part = tile_and_row(number, self.parts, tiles, (self.shared.trip_count or 0) // tiles)
        self._part(part, lane, pieces(part))

    @property
    def _scans(self) -> bool:
        """Whether lanes share the entries of a part."""
        return self.shared is None and self.options.lanes > 1

    def _part(self, part: ir.Value, lane: ir.Value, pieces: Pieces) -> None:
        walk = PartWalk(self.sums, self.arrays, self.options.items, pieces, part)

        def innermost(values: Values) -> None:
            if self.empty is not None:
                self._store_empty_rows(part, lane, values)
            if self._scans:
                walk.together(lane, values)
            else:
                walk.alone(values)

        self._loops(list(self.sums.others), lane, {}, innermost)

    def _store_empty_rows(self, part: ir.Value, lane: ir.Value, values: Values) -> None:
        """Rows without entries hold what sums start from; the parts take them in turn, and lanes that share entries do."""
        first, stride = part, self.parts
        if self._scans:
            lanes = b.index(self.options.lanes)
            first, stride = b.add(b.mul(part, lanes), lane), b.mul(stride, lanes)
        empty = self.empty
        assert empty is not None

        def store(which: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
            row = stored_index(memref.load(empty, [which]))
            for k, initial in enumerate(self.sums.entries.initial):
                self.sums.store(k, neutral(ADD, initial.type), row, values)
            return ()

        b.for_loop(first, memref.dim(empty, b.index(0)), stride, [], store)

    def _loops(self, loops: list[Loop], lane: ir.Value, values: Values, innermost: Callable[[Values], None]) -> None:
        """The loops inside the rows, around the walk; lanes share the iterations of one of them, or else the walk."""
        if not loops:
            innermost(values)
            return
        loop, *inner = loops
        lower, upper, step = (self.sums.compute(v, dict(values)) for v in (loop.lower, loop.upper, loop.step))

        def body(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
            self._loops(inner, lane, {**values, loop.iv: iv}, innermost)
            return ()

        if loop is not self.shared:
            b.for_loop(lower, upper, step, [], body)
            return
        trips = loop.trip_count
        if self.tile is not None and trips is not None:
            trips //= self.options.tiles
            lower = b.add(lower, b.mul(self.tile, step))
            upper = b.add(lower, b.mul(b.index(trips), step))
        first, lanes = b.add(lower, b.mul(lane, step)), self.options.lanes
        if trips == lanes:
            body(first, [])
        elif trips is not None and trips < lanes:
            with b.if_then(arith.cmpi(arith.CmpIPredicate.ult, first, upper)):
                body(first, [])
        else:
            b.for_loop(first, upper, b.mul(step, b.index(lanes)), [], body)
