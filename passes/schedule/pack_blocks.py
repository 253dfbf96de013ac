"""`pack-blocks`: blocks that store their entries only, and a bit a place that says where these are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass
from sparseditto.passes.nest import Loop, LoopKind, LoopNest, buffer_part, indices, root_buffer
from sparseditto.passes.part_walk import popcount
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops, depends, yielded
from sparseditto.passes.rows import recipe_argument, row_entries, stored_entries, stored_index
from sparseditto.passes.work import Work

MOST_PLACES = 32  # of a block: a bit each


@register
@dataclass(frozen=True)
class PackBlocks(SchedulePass):
    """Store the entries of blocks (BSR) alone, with a bit a place and where each block's entries start.

    The host packs them so (recipe `block-bitmaps`).  An entry's number in its block is the count of set bits before its place.
    A place without an entry takes no sum, whatever the dense operands hold.  With blocks of n places that are full to f, an f32
    entry is 4 + 12 / (n f) bytes, where BSR has (4 + 4 n) / (n f) and CSR 8: bits pay off where blocks are half full.  This is
    the format of bitmasked register blocks (Buluc et al., IPDPS 2011).

    Before::

        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
          ...
          %r = scf.for %q = %c0 to %c3 step %c1 iter_args(%d = %a) {
            %at = arith.addi
            %v = memref.load %val[%at]
            ...
            %n = arith.addf %d, %t
            scf.yield %n
          }
          scf.yield %r
        }

    After::

        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
          %bits = memref.load %bitmaps[%p]
          %start = memref.load %first[%p]
          ...
          %r = scf.for %q = %c0 to %c3 step %c1 iter_args(%d = %a) {
            ...
            %inside = arith.cmpi ne
            ...
            %number = arith.addi
            %v = memref.load %values[%number]
            ...
            %n = arith.addf %d, %t
            %next = arith.select %inside, %n, %d
            scf.yield %next
          }
          scf.yield %r
        }

    Leaves alone: the coordinates of blocks, and the loops.
    Refuses: rows that are not blocks of at most 32 places; a value that is read outside the sum over its block.
    """

    name: ClassVar[str] = "pack-blocks"
    relieves = (Bottleneck.BANDWIDTH,)
    consumes = (Resource.PREPROCESSING, Resource.CODE)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = (
        Form.THREADS,
        Form.TILES,
        Form.VECTORS,
        Form.JAMMED,
        Form.UNROLLED,
        Form.SLICES,
        Form.MIRRORED,
        Form.LISTED,
        Form.BITMAPS,
    )
    provides = (Form.BITMAPS,)

    def effect(self, work: Work) -> Work:
        f, places = work.pattern, work.block_rows * work.block_columns
        filled = f.entries / work.entries if work.entries else 0.0
        stored = work.entry_bytes - places * work.value_bytes + filled * work.value_bytes + places / 8
        return work._replace(entry_bytes=stored, decode=work.decode + 2.0 * places)

    @classmethod
    def candidates(cls, context: Any) -> tuple[PackBlocks, ...]:
        """Where blocks are neither scattered entries nor full."""
        features = context.features
        return (cls(),) if features is not None and any(0.2 < f < 0.8 for f in (features.fill_4, features.fill_8)) else ()

    def run(self, nest: LoopNest, target: Target) -> None:
        entries = row_entries(nest, self.name, cut=False)
        inside = [op for op in walk(entries.op) if op in nest.loads]
        loads = [op for op in inside if buffer_part(root_buffer(op.operands[0])) == "values"]
        sums = [loop for loop in nest.reductions if any(op in body_ops(loop.body) for op in loads)]
        places = _places(nest)
        if len(loads) != 1 or len(sums) != 1 or not places or sums[0] == entries:
            raise NotApplicable("the matrix is not stored in blocks whose columns are summed", where=self.name)
        if places > MOST_PLACES:
            raise NotApplicable(f"blocks have {places} places, and there are bits for {MOST_PLACES}", where=self.name)
        stored = stored_entries(entries, self.name)
        recipe = stored.recipe("block-bitmaps", places=places)
        bitmaps, first = (recipe_argument(nest.func, stored, recipe, part) for part in ("bitmaps", "first_entries"))
        values = recipe_argument(nest.func, stored, recipe, "values", loads[0].results[0].type)
        with ir.InsertionPoint.at_block_begin(entries.body):
            bits, start = (memref.load(array, [entries.iv]) for array in (bitmaps, first))
        _Places(entries, places, bits, start).read(loads[0], values, sums[0])


def _places(nest: LoopNest) -> int:
    """The places of a block; 0 where the matrix is not stored in blocks."""
    extents = [loop.trip_count for loop in nest.loops if loop.kind is LoopKind.BLOCK]
    return prod(n or 0 for n in extents) if len(extents) == 2 else 0


@dataclass(frozen=True)
class _Places:
    """The block that is walked: its bits, and the number of its first entry."""

    entries: Loop
    count: int
    bits: ir.Value
    start: ir.Value

    def read(self, load: ir.OpView, values: ir.Value, loop: Loop) -> None:
        """Read the value at the place of `load`, and take its sum where there is one."""
        word = self.bits.type
        with ir.InsertionPoint(load):
            (at,) = indices(load)
            place = arith.index_cast(word, b.sub(at, b.mul(self.entries.iv, b.index(self.count))))
            one = arith.constant(word, 1)
            mask = arith.shli(one, place)
            inside = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(self.bits, mask), arith.constant(word, 0))
            before = popcount(arith.andi(self.bits, arith.subi(mask, one)))
            value = memref.load(values, [b.add(stored_index(self.start), stored_index(before))])
        load.results[0].replace_all_uses_with(value)
        load.operation.erase()
        end, carried = list(loop.body.operations)[-1], list(loop.body.arguments)[1:]
        for k, result in enumerate(yielded(loop.body)):
            if depends(result, [value]):
                with ir.InsertionPoint(end):
                    end.operation.operands[k] = arith.select(inside, result, carried[k])
