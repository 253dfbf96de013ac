"""`slice-rows`: entries of neighbouring rows side by side (SELL-C-sigma), so that neighbouring threads read neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import Loop, LoopNest, buffer_part, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, clone_to, yielded
from sparseditto.passes.rows import bits, reads_entry, recipe_argument, row_entries, stored_entries, stored_index


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
    excludes = (
        Form.THREADS,
        Form.TILES,
        Form.VECTORS,
        Form.ENTRY_VECTORS,
        Form.UNROLLED,
        Form.SEGMENTS,
        Form.BINS,
        Form.SLICES,
        Form.NARROW,
        Form.LISTED,
    )
    provides = (Form.SLICES,)

    height: int = option("rows of a slice", default=32, choices=(2, 4, 8, 16, 32, 64, 128))
    window: int = option("rows that are sorted by length together", default=1, choices=(1, 128, 1024, 8192, 1 << 16, 1 << 30))
    offsets: int = option("bits of a coordinate", default=32, choices=(16, 32))

    def run(self, nest: LoopNest, target: Target) -> None:
        entries = row_entries(nest, self.name)
        slices = _Slices(self, nest, entries)
        with ir.InsertionPoint(nest.outer.op):
            b.for_loop(nest.outer.lower, nest.outer.upper, nest.outer.step, [], slices.build)
        nest.outer.op.operation.erase()


class _Slices:
    """The nest over slots: the rows in the order in which they are packed."""

    def __init__(self, options: SliceRows, nest: LoopNest, entries: Loop) -> None:
        self.options, self.nest, self.entries = options, nest, entries
        self.loads = [op for op in body_ops(entries.body) if reads_entry(op, entries.iv)]
        others = [op for op in body_ops(entries.body) if op not in self.loads]
        if any(entries.iv in list(op.operands) for op in others) or nest.children(entries):
            raise NotApplicable("entries are read by more than their coordinates and values", where=options.name)
        coordinates = [load for load in self.loads if buffer_part(root_buffer(load.operands[0])) == "coordinates"]
        if len(coordinates) != 1:
            raise NotApplicable("no column is read, where a mark could say that a row has no entry", where=options.name)
        (self.coordinate,) = coordinates
        self.bits = bits(self.coordinate.results[0].type)
        self.narrow = options.offsets == 16 and self.bits > 16
        self._arguments()

    def _arguments(self) -> None:
        source = stored_entries(self.entries, self.options.name)
        o, width = self.options, 16 if self.narrow else self.bits
        recipe = source.recipe("sliced-rows", height=o.height, window=o.window, bits=width)

        def argument(part: str, type_: ir.Type | None = None) -> ir.Value:
            return recipe_argument(self.nest.func, source, recipe, part, type_)

        self.starts = argument("starts")
        self.rows = argument("rows") if o.window > 1 else None
        self.bases = argument("bases") if self.narrow else None
        stored = ir.IntegerType.get_signless(16) if self.narrow else self.coordinate.results[0].type
        types = [stored if load == self.coordinate else load.results[0].type for load in self.loads]
        self.packed = [
            argument(buffer_part(root_buffer(load.operands[0])) or "", type_)
            for load, type_ in zip(self.loads, types, strict=True)
        ]

    def build(self, slot: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
        height = b.index(self.options.height)
        slice_ = b.div(slot, height)
        self.base = None if self.bases is None else memref.load(self.bases, [slice_])
        place = b.rem(slot, height)
        self.lower, self.upper = (
            b.add(stored_index(memref.load(self.starts, [i])), place) for i in (slice_, b.add(slice_, b.index(1)))
        )
        row = slot if self.rows is None else stored_index(memref.load(self.rows, [slot]))
        clone_to(body_ops(self.nest.outer.body), self.entries.op, {self.nest.outer.iv: row}, self._sum)
        return ()

    def _sum(self, rest: list[ir.OpView], values: Values) -> None:
        loop = self.entries
        carried = list(loop.body.arguments)[1:]
        ops = [op for op in body_ops(loop.body) if op not in self.loads]

        def body(place: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            known, inside = self._load(place)
            done = clone_ops(ops, {**values, **known, **dict(zip(carried, sums, strict=True))})
            new = [done.get(v, v) for v in yielded(loop.body)]
            return [arith.select(inside, n, old) for n, old in zip(new, sums, strict=True)]

        initial = [values.get(v, v) for v in loop.initial]
        results = b.for_loop(self.lower, self.upper, b.index(self.options.height), initial, body)
        clone_ops(rest, {**values, **dict(zip(loop.op.results, results, strict=True))})

    def _load(self, place: ir.Value) -> tuple[Values, ir.Value]:
        """What the loads of the CSR arrays gave, from a place of the slices, and whether there is an entry."""
        stored = [memref.load(buffer, [place]) for buffer in self.packed]
        known: Values = {load.results[0]: value for load, value in zip(self.loads, stored, strict=True)}
        coordinate = known[self.coordinate.results[0]]
        inside = arith.cmpi(arith.CmpIPredicate.ne, coordinate, arith.constant(coordinate.type, -1))
        coordinate = arith.select(inside, coordinate, arith.constant(coordinate.type, 0))
        known[self.coordinate.results[0]] = self._absolute(coordinate)
        return known, inside

    def _absolute(self, coordinate: ir.Value) -> ir.Value:
        """A stored coordinate as the CSR array has it."""
        if self.base is None:
            return coordinate
        wide = self.coordinate.results[0].type
        return arith.addi(_widened(self.base, wide), _widened(coordinate, wide))


def _widened(value: ir.Value, type_: ir.Type) -> ir.Value:
    """A stored non-negative integer in a type of at least its width."""
    if isinstance(type_, ir.IndexType):
        return stored_index(value)
    return value if value.type == type_ else arith.extui(type_, value)
