"""`narrow-coordinates`: columns as 16-bit or 8-bit offsets from the first column of their row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option, plain_but
from sparseditto.passes.layouts import narrow_type, widened
from sparseditto.passes.nest import LoopNest, buffer_part, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops
from sparseditto.passes.rows import bits, reads_entry, recipe_argument, row_entries, stored_entries
from sparseditto.passes.work import INDEX_BYTES, Work


@register
@dataclass(frozen=True)
class NarrowCoordinates(SchedulePass):
    """Store columns as offsets of `bits` bits from the first column of their row, where that has more.

    The host makes them (recipe `row-offsets`).  An f32 entry is 6 bytes with 16 bits and 5 with 8, instead of 8, and a row
    4 bytes more.  Rows, positions and the order of entries stay as they are, so that all that goes with rows of stored
    entries goes with these.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            %j = memref.load %crd[%p] : memref<?xi32>
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``narrow-coordinates{bits=16}``::

        scf.for %i = %c0 to %m step %c1 {
          %base = memref.load %bases[%i]
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            %o = memref.load %coordinates[%p] : memref<?xi16>
            %wide = arith.extui %o : i16 to i32
            %j = arith.addi %base, %wide
            ...
          }
          memref.store %s, %y[%i]
        }

    Leaves alone: everything else.
    Refuses: what `segment-rows` refuses; coordinates that have no more bits already; entries whose column is not read; at
    packing, a row whose columns span more than the bits hold.  What an entry adds depends on its row then, so that passes
    which refuse that (`split-entries`, `stage-entries{stage=products}`) refuse the nest.
    """

    name: ClassVar[str] = "narrow-coordinates"
    relieves = (Bottleneck.BANDWIDTH,)
    consumes = (Resource.PREPROCESSING,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = plain_but(Form.MIRRORED)
    provides = (Form.NARROW,)

    bits: int = option("bits of a stored column", default=16, choices=(8, 16))

    def effect(self, work: Work) -> Work:
        stored = work.block_rows * work.block_columns * work.value_bytes + self.bits / 8
        return work._replace(entry_bytes=stored, row_bytes=work.row_bytes + INDEX_BYTES, decode=work.decode + 1)

    @classmethod
    def candidates(cls, context: Any) -> tuple[NarrowCoordinates, ...]:
        """As many bits as rows need."""
        features = context.features
        return tuple(cls(bits) for bits in (8, 16) if features is not None and features.row_span <= 1 << bits)

    def run(self, nest: LoopNest, target: Target) -> None:
        entries = row_entries(nest, self.name, cut=False)
        loads = [op for op in body_ops(entries.body) if reads_entry(op, entries.iv)]
        columns = [load for load in loads if buffer_part(root_buffer(load.operands[0])) == "coordinates"]
        if len(columns) != 1:
            raise NotApplicable("no column of the entries is read", where=self.name)
        (load,) = columns
        wide = load.results[0].type
        stored = narrow_type(load, self.bits)
        if stored is None:
            raise NotApplicable(f"coordinates have no more than {self.bits} bits already", where=self.name)
        source = stored_entries(entries, self.name)
        recipe = source.recipe("row-offsets", bits=self.bits)
        bases = recipe_argument(nest.func, source, recipe, "bases", wide if bits(wide) < 32 else None)
        offsets = recipe_argument(nest.func, source, recipe, "coordinates", stored)
        with ir.InsertionPoint.at_block_begin(nest.outer.body):
            base = memref.load(bases, [nest.outer.iv])
        with ir.InsertionPoint(load):
            offset = memref.load(offsets, [entries.iv])
            column = arith.addi(widened(base, wide), widened(offset, wide))
        load.results[0].replace_all_uses_with(column)
        load.operation.erase()
