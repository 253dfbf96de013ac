"""`nonempty-rows`: walk only the rows that have entries, of a matrix in which most rows have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import PLAIN_EXCLUDES, Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.layouts import erase_unused
from sparseditto.passes.nest import WALKS, Loop, LoopNest, accessed, indices
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, clone_reduction, clone_slice, clone_to
from sparseditto.passes.rows import Finish, is_load, other_parallel, recipe_argument, row_entries, stored_entries, stored_index
from sparseditto.passes.work import INDEX_BYTES, Work

WORD = 32  # rows whose flags are one load


@register
@dataclass(frozen=True)
class NonemptyRows(SchedulePass):
    """Walk the rows that have entries; rows without are stored by the way, in the same kernel.

    The host lists the rows that have entries and where those start (recipe `listed-rows`): 8 bytes for each of them, where
    CSR reads 4 for every row.  Where the output does not simply keep its old value, thread t of n also stores what sums start
    from to rows t, t + n, t + 2n, … that have no entries, which one bit a row says: neighbouring threads write neighbours, and
    it costs one streaming write.  The list is filled up with rows without entries, so that none of its rows has more than
    `share` others to look after.  The rows are those of DCSR, and of a COO sorted by rows.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %lo = ... memref.load %pos[%i]
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i]
        }

    After::

        scf.for %g = %c0 to %listed step %c1 {
          %row = memref.load %rows[%g]
          %i = arith.index_castui %row
          %start = memref.load %positions[%g]
          %lo = arith.index_castui %start
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i]
          scf.for %r = %g to %m step %listed {
            %word = arith.divui %r, %c32
            %flags = memref.load %empty[%word]
            ...
            scf.if %none {
              memref.store %zero, %y[%r]
            }
          } {ditto.walks = "empty rows"}
        }

    Leaves alone: what is done for one entry.
    Refuses: rows with dense columns or blocks inside (``set-encoding{format=dcsr}`` takes those); what `segment-rows` refuses.
    """

    name: ClassVar[str] = "nonempty-rows"
    relieves = (Bottleneck.BANDWIDTH, Bottleneck.DIVERGENCE)
    consumes = (Resource.PREPROCESSING,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = PLAIN_EXCLUDES
    provides = (Form.LISTED,)

    share: int = option("most rows that a listed row looks after", default=16, choices=(4, 8, 16, 32, 64))

    def effect(self, work: Work) -> Work:
        filled = work.rows * (1 - work.pattern.empty_rows)
        return work._replace(units=filled, row_bytes=work.row_bytes * filled / work.rows + INDEX_BYTES if work.rows else 0.0)

    @classmethod
    def candidates(cls, context: Any) -> tuple[NonemptyRows, ...]:
        """Where half of the rows or more have no entries, and no dense columns are multiplied by them."""
        features = context.features
        few = features is not None and features.empty_rows >= 0.5
        return (cls(), cls(64)) if few and context.task.columns in (0, 1) else ()

    def run(self, nest: LoopNest, target: Target) -> None:
        entries = row_entries(nest, self.name)
        if other_parallel(nest) or nest.children(entries):
            raise NotApplicable(
                "rows with dense columns or blocks inside are not listed; set-encoding{format=dcsr} takes them", where=self.name
            )
        finish = Finish.read(nest, entries, self.name)
        with ir.InsertionPoint(nest.outer.op):
            listed = _Listed(nest, entries, finish, self)
            b.for_loop(b.index(0), listed.count, b.index(1), [], listed.build)
        nest.outer.op.operation.erase()


class _Listed:
    """The body of the loop over listed rows."""

    def __init__(self, nest: LoopNest, entries: Loop, finish: Finish, options: NonemptyRows) -> None:
        self.nest, self.entries, self.finish = nest, entries, finish
        stored = stored_entries(entries, options.name)
        recipe = stored.recipe("listed-rows", share=options.share)
        self.rows, self.positions = (recipe_argument(nest.func, stored, recipe, part) for part in ("rows", "positions"))
        self.empty = None if self._keeps() else recipe_argument(nest.func, stored, recipe, "empty")
        self.count = memref.dim(self.rows, b.index(0))

    def _keeps(self) -> bool:
        """Whether a row without entries holds what it held before."""
        initial, store = self.finish.initial, self.finish.store
        return is_load(initial) and accessed(initial.owner.opview) == accessed(store) and _same_place(initial, store)

    def build(self, slot: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
        row = stored_index(memref.load(self.rows, [slot]))
        bounds = [stored_index(memref.load(self.positions, [i])) for i in (slot, b.add(slot, b.index(1)))]

        def sum_(rest: list[ir.OpView], values: Values) -> None:
            loop = self.entries
            initial = [values.get(v, v) for v in loop.initial]
            results = clone_reduction(loop, values, bounds[0], bounds[1], loop.step, initial)
            clone_ops(rest, {**values, **dict(zip(loop.op.results, results, strict=True))})
            if self.empty is not None:
                self._store_others(slot)

        clone_to(body_ops(self.nest.outer.body), self.entries.op, {self.nest.outer.iv: row}, sum_)
        erase_unused(ir.InsertionPoint.current.block)
        return ()

    def _store_others(self, slot: ir.Value) -> None:
        """What sums start from, to every `count`-th row that has no entries and is not listed."""
        i32, empty = ir.IntegerType.get_signless(32), self.empty
        place = ir.InsertionPoint.current.block

        def body(row: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
            flags = memref.load(empty, [b.div(row, b.index(WORD))])
            bit = arith.andi(arith.shrui(flags, arith.index_cast(i32, b.rem(row, b.index(WORD)))), arith.constant(i32, 1))
            none = arith.cmpi(arith.CmpIPredicate.ne, bit, arith.constant(i32, 0))
            with b.if_then(none):
                values: Values = {self.nest.outer.iv: row}
                store = self.finish.store
                start = clone_slice(self.finish.initial, values)
                at = [clone_slice(i, values) for i in indices(store)]
                memref.store(b.convert(start, self.nest.output.type.element_type), accessed(store), at)
            return ()

        b.for_loop(slot, self.nest.outer.upper, self.count, [], body)
        list(place.operations)[-1].attributes[WALKS] = ir.StringAttr.get("empty rows")


def _same_place(load: ir.Value, store: ir.OpView) -> bool:
    return indices(load.owner.opview) == indices(store)
