"""`diagonals`: the values of each occupied diagonal, and no coordinates (DIA)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import sparse_encoding
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import PLAIN_EXCLUDES, Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.layouts import Entry, Layout, Walk, has_value
from sparseditto.passes.nest import LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.work import Work

FACTORS = (1, 2, 4, 8, 16, 1 << 20)


@register
@dataclass(frozen=True)
class Diagonals(SchedulePass):
    """Store every diagonal that has an entry, with a value for each row, and no coordinates.

    The host packs them so (recipe `row-diagonals`): row i has column i + offset on a diagonal, and one offset is loaded for all
    rows.  That is 4 bytes an f32 entry on full diagonals, instead of 8, and neighbouring threads read neighbours of all
    they read.  Where a row has no entry on a diagonal, all bits of the value are set, which is a NaN that no entry has: the
    thread takes no sum there (a product with 0 would let a NaN through).  What it loads there is what the nearest column
    points to.  This is DIA (Saad, SPARSKIT, 1994).

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
          %s = scf.for %d = %c0 to %diagonals step %c1 iter_args(%a = %zero) {
            %o = memref.load %offsets[%d]
            %wide = arith.index_cast %o
            %j = arith.addi %i, %wide
            ...
            %start = arith.muli %d, %m
            %place = arith.addi %start, %i
            %v = memref.load %values[%place]
            %bits = arith.bitcast %v : f32 to i32
            %inside = arith.cmpi ne, %bits, %c-1
            ...
            %n = arith.addf %a, %t
            %next = arith.select %inside, %n, %a
            scf.yield %next
          }
          memref.store %s, %y[%i]
        }

    Leaves alone: what is done for one entry; the order of additions, since diagonals are in the order of columns.
    Refuses: what `slice-rows` refuses; entries whose values are not read; at packing, more than `factor` places an entry.
    """

    name: ClassVar[str] = "diagonals"
    relieves = (Bottleneck.BANDWIDTH, Bottleneck.COALESCING, Bottleneck.DIVERGENCE)
    consumes = (Resource.PREPROCESSING,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = (*PLAIN_EXCLUDES, Form.UNIFORM, Form.GATHERED)
    provides = (Form.SLICES,)

    factor: int = option("most places an entry that packing accepts", default=4, choices=FACTORS)

    def effect(self, work: Work) -> Work:
        places = max(work.pattern.diagonals * work.rows, work.entries)
        return work._replace(
            entries=places,
            entry_bytes=float(work.value_bytes),
            row_bytes=0.0,
            longest=float(work.pattern.diagonals),
            uneven=1.0,
            side_by_side=True,
            near=1.0,
        )

    @classmethod
    def candidates(cls, context: Any) -> tuple[Diagonals, ...]:
        """Where diagonals have few places without an entry."""
        features = context.features
        return (cls(),) if features is not None and features.diagonal_padding <= cls.factor else ()

    def run(self, nest: LoopNest, target: Target) -> None:
        _Diagonals(self, nest).rebuild()


class _Diagonals(Layout):
    """The nest over rows and diagonals."""

    def __init__(self, options: Diagonals, nest: LoopNest) -> None:
        super().__init__(nest, options.name)
        if not self.values:
            raise NotApplicable("no value is read, which could say that a row has no entry", where=options.name)
        recipe = self.stored.recipe("row-diagonals", factor=options.factor)
        self.offsets, self.packed = self.array(recipe, "offsets"), self.value_array(recipe)
        with ir.InsertionPoint(nest.outer.op):
            self.count = memref.dim(self.offsets, b.index(0))
            self.last = b.sub(_columns(nest.func, self.stored.level), b.index(1))

    def walk(self, slot: ir.Value) -> Walk:
        return Walk(slot, b.index(0), self.count, b.index(1))

    def entry(self, place: ir.Value, walk: Walk) -> Entry:
        assert self.packed is not None
        offset = arith.index_cast(ir.IndexType.get(), memref.load(self.offsets, [place]))
        column = arith.minsi(arith.maxsi(b.add(walk.row, offset), b.index(0)), self.last)
        value = memref.load(self.packed, [b.add(b.mul(place, self.nest.outer.upper), walk.row)])
        result = self.coordinate.results[0]
        known = {result: column if isinstance(result.type, ir.IndexType) else arith.index_cast(result.type, column)}
        known |= {load.results[0]: value for load in self.values}
        return Entry(known, has_value(value))


def _columns(func: ir.OpView, level: int) -> ir.Value:
    """The number of columns, at the insertion point: the extent of a level of the sparse operand."""
    tensor = next(argument for argument in func.regions[0].blocks[0].arguments if sparse_encoding(argument.type) is not None)
    extent = [tensor, b.index(level)]
    return ir.Operation.create("sparse_tensor.lvl", results=[ir.IndexType.get()], operands=extent).results[0]
