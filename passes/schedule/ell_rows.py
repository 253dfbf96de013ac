"""`ell-rows`: all rows at one width, column by column (ELLPACK), so that neighbouring threads read neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.layouts import SLICE
from sparseditto.dialects.target import Target
from sparseditto.passes.base import PLAIN_EXCLUDES, Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.layouts import Entry, MarkedLayout, Walk
from sparseditto.passes.nest import LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rows import stored_index
from sparseditto.passes.schedule.diagonals import FACTORS
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class EllRows(SchedulePass):
    """Store all rows as wide as the longest: the first entries of all rows, then their second ones.

    The host packs them so (recipe `equal-rows`).  All threads make the same number of steps, which no array says row by row,
    and read coordinates and values side by side with their neighbours.  Where a row has no entry any more, all bits of the
    coordinate are set: the thread loads what coordinate 0 points to and takes no sum (a product with 0 would let a NaN
    through).  With ``offsets=16`` coordinates are offsets from the least column of each 32 neighbouring rows.  This is the
    format of ELLPACK (Rice and Boisvert, 1985).

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            %j = memref.load %crd[%p]
            %v = memref.load %val[%p]
            ...
          }
          memref.store %s, %y[%i]
        }

    After::

        scf.for %i = %c0 to %m step %c1 {
          %w = memref.load %widths[%c0]
          %width = arith.index_castui %w
          %s = scf.for %k = %c0 to %width step %c1 iter_args(%a = %zero) {
            %start = arith.muli %k, %m
            %place = arith.addi %start, %i
            %j = memref.load %coordinates[%place]
            %v = memref.load %values[%place]
            %inside = arith.cmpi ne, %j, %c-1
            ...
            %n = arith.addf %a, %t
            %next = arith.select %inside, %n, %a
            scf.yield %next
          }
          memref.store %s, %y[%i]
        }

    Leaves alone: what is done for one entry.
    Refuses: what `slice-rows` refuses; at packing, more than `factor` places an entry, and 32 rows whose columns span 65,535 or
    more with ``offsets=16``.
    """

    name: ClassVar[str] = "ell-rows"
    relieves = (Bottleneck.COALESCING, Bottleneck.BANDWIDTH, Bottleneck.DIVERGENCE)
    consumes = (Resource.PREPROCESSING,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = PLAIN_EXCLUDES
    provides = (Form.SLICES,)

    offsets: int = option("bits of a coordinate", default=32, choices=(16, 32))
    factor: int = option("most places an entry that packing accepts", default=4, choices=FACTORS)

    def effect(self, work: Work) -> Work:
        return work._replace(
            entries=work.entries * work.pattern.ell_padding,
            entry_bytes=work.value_bytes + self.offsets / 8,
            row_bytes=0.0,
            uneven=1.0,
            side_by_side=True,
        )

    @classmethod
    def candidates(cls, context: Any) -> tuple[EllRows, ...]:
        """Where the longest row is not much longer than the mean; offsets where 32 rows read columns near each other."""
        features = context.features
        if features is None or features.ell_padding > cls.factor:
            return ()
        return (cls(16), cls(32)) if features.span < 1 << 16 else (cls(32),)

    def run(self, nest: LoopNest, target: Target) -> None:
        _EqualRows(self, nest).rebuild()


class _EqualRows(MarkedLayout):
    """The nest over rows of one width."""

    def __init__(self, options: EllRows, nest: LoopNest) -> None:
        super().__init__(nest, options.name)
        width = self.width(options.offsets)
        recipe = self.stored.recipe("equal-rows", factor=options.factor, bits=width)
        self.widths = self.array(recipe, "widths")
        self.take_entries(recipe, width)

    def walk(self, slot: ir.Value) -> Walk:
        width = stored_index(memref.load(self.widths, [b.index(0)]))
        base = None if self.bases is None else self.base(b.div(slot, b.index(SLICE)))
        return Walk(slot, b.index(0), width, b.index(1), base)

    def entry(self, place: ir.Value, walk: Walk) -> Entry:
        return self.marked_entry(b.add(b.mul(place, self.nest.outer.upper), walk.row), walk)
