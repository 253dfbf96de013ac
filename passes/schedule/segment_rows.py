"""`segment-rows`: cut long rows, so that no row holds up the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, memref, scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option, plain_but
from sparseditto.passes.nest import Loop, LoopNest, accessed, indices
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import (
    Values,
    body_ops,
    clone_reduction,
    clone_slice,
    clone_to,
    element_kernel,
    finish_sum,
    neutral,
)
from sparseditto.passes.rows import (
    Finish,
    is_load,
    other_parallel,
    recipe_argument,
    row_entries,
    stored_entries,
    stored_index,
)
from sparseditto.passes.work import INDEX_BYTES, Work


@register
@dataclass(frozen=True)
class SegmentRows(SchedulePass):
    """Walk segments of rows instead of rows: no segment has more than `length` stored entries.

    The host cuts the rows (recipe `row-segments`): for each segment its row, complemented where the row was cut, and
    where its entries start.  A row in one piece is stored as before; the pieces of a cut row meet in atomic additions.  Where
    the output does not simply start from its old value, a kernel of its own sets the cut rows to their initial values first.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %lo = ... memref.load %pos[%i]
          %hi = ... memref.load %pos[%i1]
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``segment-rows{length=64}``::

        scf.for %g = %c0 to %segments step %c1 {
          %tag = memref.load %rows[%g]
          %cut = arith.cmpi slt, %tag, %c0_i32
          ...
          %s = scf.for %p = %first to %last step %c1 iter_args(%a = %zero) {
            ...
          }
          scf.if %cut {
            memref.atomic_rmw addf %s, %y[%i]
          } else {
            memref.store %s, %y[%i]
          }
        }

    Leaves alone: what is done for one entry.
    Refuses: rows that are not a dense level over a compressed one; reductions other than sums (only those have atomics);
    sums that are wider than the output, of which each piece would be rounded.
    """

    name: ClassVar[str] = "segment-rows"
    relieves = (Bottleneck.IMBALANCE, Bottleneck.DIVERGENCE)
    consumes = (Resource.ATOMICS, Resource.PREPROCESSING)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = plain_but(Form.JAMMED, Form.NARROW)
    provides = (Form.SEGMENTS,)

    length: int = option("most entries of a segment", default=128, choices=(16, 32, 64, 128, 256, 512, 1024, 2048, 4096))

    def effect(self, work: Work) -> Work:
        cut = work.cut_at(self.length)
        return cut._replace(row_bytes=work.row_bytes + 2 * INDEX_BYTES, launches=work.launches + (1 if cut.cut else 0))

    def run(self, nest: LoopNest, target: Target) -> None:
        entries = row_entries(nest, self.name)
        finish = Finish.read(nest, entries, self.name)
        stored = stored_entries(entries, self.name)
        recipe = stored.recipe("row-segments", length=self.length)
        rows, positions = (recipe_argument(nest.func, stored, recipe, part) for part in ("rows", "positions"))
        if not is_load(finish.initial):
            cut = recipe_argument(nest.func, stored, recipe, "cut")
            with ir.InsertionPoint(nest.outer.op):
                _initialise(nest, finish, cut)
        with ir.InsertionPoint(nest.outer.op):
            segment = _Segment(nest, entries, finish, rows, positions)
            b.for_loop(b.index(0), memref.dim(rows, b.index(0)), b.index(1), [], segment.build)
        nest.outer.op.operation.erase()


class _Segment:
    """The body of the loop over segments."""

    def __init__(self, nest: LoopNest, entries: Loop, finish: Finish, rows: ir.Value, positions: ir.Value) -> None:
        self.nest, self.entries, self.finish, self.rows, self.positions = nest, entries, finish, rows, positions

    def build(self, segment: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
        i32 = ir.IntegerType.get_signless(32)
        tag = memref.load(self.rows, [segment])
        self.cut = arith.cmpi(arith.CmpIPredicate.slt, tag, arith.constant(i32, 0))
        row = stored_index(arith.select(self.cut, arith.xori(tag, arith.constant(i32, -1)), tag))
        self.first = stored_index(memref.load(self.positions, [segment]))
        self.last = stored_index(memref.load(self.positions, [b.add(segment, b.index(1))]))
        clone_to(body_ops(self.nest.outer.body), self.entries.op, {self.nest.outer.iv: row}, self._sum)
        return ()

    def _sum(self, rest: list[ir.OpView], values: Values) -> None:
        entries = self.entries
        zero = neutral("arith.addf", entries.initial[0].type)
        (total,) = clone_reduction(entries, values, self.first, self.last, entries.step, [zero])
        store = self.finish.store
        at = [clone_slice(v, values) for v in indices(store)]
        branch = scf.IfOp(self.cut, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            memref.atomic_rmw(arith.AtomicRMWKind.addf, self.finish.part_of(total, values), accessed(store), at)
            scf.yield_([])
        with ir.InsertionPoint(branch.else_block):
            finish_sum(entries, rest, values, total)
            scf.yield_([])


def _initialise(nest: LoopNest, finish: Finish, cut: ir.Value) -> None:
    """A kernel that sets the rows that were cut to what their sums are added to."""
    others, store = other_parallel(nest), finish.store
    extents = [memref.dim(cut, b.index(0)), *(loop.upper for loop in others)]

    def set_element(at: list[ir.Value]) -> None:
        row = stored_index(memref.load(cut, at[:1]))
        values = {nest.outer.iv: row, **{loop.iv: i for loop, i in zip(others, at[1:], strict=True)}}
        at_store = [clone_slice(i, values) for i in indices(store)]
        memref.store(clone_slice(finish.initial, values), accessed(store), at_store)

    element_kernel("_init", extents, set_element)
