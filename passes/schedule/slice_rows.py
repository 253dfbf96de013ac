"""`slice-rows`: entries of neighbouring rows side by side (SELL-C-sigma), so that neighbouring threads read neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import ClassVar

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option, plain_but
from sparseditto.passes.layouts import Entry, MarkedLayout, Walk
from sparseditto.passes.nest import LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rows import stored_index
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class SliceRows(SchedulePass):
    """Store the entries of each `height` neighbouring rows interleaved: the first of each row, then the second of each.

    The host packs them so (recipe `sliced-rows`), each slice as wide as its longest row.  A thread a row then reads coordinates
    and values side by side with its neighbours, and all of a warp make the same number of steps.  Where a row has no
    entry any more, all bits of the coordinate are set: the thread loads what coordinate 0 points to and takes no sum (a product
    with 0 would let a NaN through).  With a `window` above 1, rows are sorted by length within windows of so many rows, so
    that slices have less padding.  With ``offsets=16`` coordinates are stored as 16-bit offsets from the least column of
    their slice: 6 bytes an entry instead of 8.  This is SELL-C-sigma (Kreutzer et al., SISC 2014).

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            %j = memref.load %crd[%p]
            %v = memref.load %val[%p]
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``slice-rows{height=32}``::

        scf.for %i = %c0 to %m step %c1 {
          %slice = arith.divui %i, %c32
          %place = arith.remui %i, %c32
          %next = arith.addi %slice, %c1
          %start = memref.load %starts[%slice]
          ...
          %lo = arith.addi %first, %place
          %stop = memref.load %starts[%next]
          ...
          %hi = arith.addi %last, %place
          %s = scf.for %p = %lo to %hi step %c32 iter_args(%a = %zero) {
            %j = memref.load %coordinates[%p]
            %v = memref.load %values[%p]
            %inside = arith.cmpi ne, %j, %c-1
            ...
            %n = arith.addf %a, %t
            %taken = arith.select %inside, %n, %a
            scf.yield %taken
          }
          memref.store %s, %y[%i]
        }

    Leaves alone: what is done for one entry.
    Refuses: what `segment-rows` refuses; entries that are read by more than their coordinates and values; at packing, slices
    whose columns span 65,536 or more with ``offsets=16``, and padding beyond 2^31 places.
    """

    name: ClassVar[str] = "slice-rows"
    relieves = (Bottleneck.COALESCING, Bottleneck.BANDWIDTH, Bottleneck.DIVERGENCE)
    consumes = (Resource.PREPROCESSING,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = plain_but(Form.JAMMED)
    provides = (Form.SLICES,)

    height: int = option("rows of a slice", default=32, choices=(2, 4, 8, 16, 32, 64, 128))
    window: int = option("rows that are sorted by length together", default=1, choices=(1, 128, 1024, 8192, 1 << 16, 1 << 30))
    offsets: int = option("bits of a coordinate", default=32, choices=(16, 32))

    def effect(self, work: Work) -> Work:
        f = work.pattern
        whole = f.padding_sorted if self.window > 1 else f.padding
        padding = 1 + (whole - 1) * min(1.2, log2(self.height) / 5)  # the features are of slices of 32 rows
        places = work.entries * padding
        near = work.near * (0.5 if self.window > 1 and f.variation > 0.1 else 1.0)
        return work._replace(
            entries=places,
            entry_bytes=work.value_bytes + self.offsets / 8,
            row_bytes=8 / self.height + (4 if self.window > 1 else 0),
            uneven=1.0,
            side_by_side=True,
            near=near,
        )

    def run(self, nest: LoopNest, target: Target) -> None:
        _Slices(self, nest).rebuild()


class _Slices(MarkedLayout):
    """The nest over slots: the rows in the order in which they are packed."""

    def __init__(self, options: SliceRows, nest: LoopNest) -> None:
        super().__init__(nest, options.name)
        self.options = options
        width = self.width(options.offsets)
        recipe = self.stored.recipe("sliced-rows", height=options.height, window=options.window, bits=width)
        self.starts = self.array(recipe, "starts")
        self.rows = self.array(recipe, "rows") if options.window > 1 else None
        self.take_entries(recipe, width)

    def walk(self, slot: ir.Value) -> Walk:
        height = b.index(self.options.height)
        slice_ = b.div(slot, height)
        base = self.base(slice_)
        place = b.rem(slot, height)
        lower, upper = (b.add(stored_index(memref.load(self.starts, [i])), place) for i in (slice_, b.add(slice_, b.index(1))))
        row = slot if self.rows is None else stored_index(memref.load(self.rows, [slot]))
        return Walk(row, lower, upper, height, base)

    def entry(self, place: ir.Value, walk: Walk) -> Entry:
        return self.marked_entry(place, walk)
