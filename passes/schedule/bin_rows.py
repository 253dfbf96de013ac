"""`bin-rows`: long rows get whole blocks, in a kernel of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option, plain_but
from sparseditto.passes.nest import LONG_ROWS, Loop, LoopNest, accessed, indices
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import (
    Values,
    body_ops,
    clone_ops,
    clone_reduction,
    clone_slice,
    clone_to,
    collective,
    finished_kernel,
    neutral,
)
from sparseditto.passes.rows import Finish, other_parallel, recipe_argument, row_entries, stored_entries, stored_index
from sparseditto.passes.work import Work, share_beyond


@register
@dataclass(frozen=True)
class BinRows(SchedulePass):
    """Give rows of more than `limit` stored entries to blocks of `threads` threads, `length` entries a block.

    The nest itself leaves the entries of those rows out: there it only stores what their sums start from.  A kernel of its own
    runs after it: the host lists the long rows' pieces (recipe `long-segments`), the threads of a block share the entries
    of one, their sums meet in a `ditto.block_reduce`, and thread 0 adds the total to the output atomically.  With
    `length` above the longest row each row has one block, and the result does not depend on timing.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``bin-rows{limit=256 length=4096 threads=256}``::

        scf.for %i = %c0 to %m step %c1 {
          %count = arith.subi %hi, %lo
          %long = arith.cmpi ugt, %count, %c256
          %end = arith.select %long, %lo, %hi
          %s = scf.for %p = %lo to %end step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i]
        }
        scf.forall (%g) in (%pieces) {
          scf.forall (%t) in (256) {
            ...
            %total = "ditto.block_reduce"(%part) {kind = "arith.addf", threads = 256 : i32}
            ...
              memref.atomic_rmw addf %total, %y[%row]
          } {mapping = [#gpu.thread<linear_dim_0>]}
        } {ditto.kernel = "_long", mapping = [#gpu.block<linear_dim_0>]}

    Leaves alone: the schedule of the other rows, which later passes choose.
    Refuses: rows with dense columns or blocks inside; what `segment-rows` refuses.
    """

    name: ClassVar[str] = "bin-rows"
    relieves = (Bottleneck.IMBALANCE, Bottleneck.DIVERGENCE)
    consumes = (Resource.ATOMICS, Resource.SHARED, Resource.PREPROCESSING)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = plain_but(Form.TILES, Form.JAMMED, Form.NARROW)
    provides = (Form.BINS,)

    limit: int = option("entries above which a row is long", default=256, choices=(32, 64, 128, 256, 512, 1024))
    length: int = option("most entries a block", default=4096, choices=(1024, 2048, 4096, 8192, 16384, 1 << 30))
    threads: int = option("threads a block of a long row", default=256, choices=(128, 256, 512, 1024))

    def effect(self, work: Work) -> Work:
        cut = work.cut_at(self.length)
        beyond = share_beyond(work.pattern, self.limit)
        pieces = work.entries * beyond / self.length
        walked = self.limit if beyond else work.longest
        even = min(work.uneven, max(1.0, walked / max(work.pattern.mean_row, 1.0)))
        longest = max(walked, cut.longest / self.threads)
        return work._replace(longest=longest, uneven=even, cut=pieces, most_cut=cut.most_cut, launches=work.launches + 1)

    def run(self, nest: LoopNest, target: Target) -> None:
        entries = row_entries(nest, self.name)
        finish = Finish.read(nest, entries, self.name)
        if other_parallel(nest) or nest.children(entries):
            raise NotApplicable(
                "long rows with dense columns or blocks inside are not binned; segment-rows cuts them", where=self.name
            )
        stored = stored_entries(entries, self.name)
        recipe = stored.recipe("long-segments", limit=self.limit, length=self.length)
        rows, first, last = (recipe_argument(nest.func, stored, recipe, part) for part in ("rows", "first", "last"))
        with ir.InsertionPoint(nest.outer.op):
            b.for_loop(nest.outer.lower, nest.outer.upper, nest.outer.step, [], _Short(nest, entries, self.limit).build)
            self._long_kernel(nest, entries, finish, (rows, first, last))
        nest.outer.op.operation.erase()

    def _long_kernel(self, nest: LoopNest, entries: Loop, finish: Finish, pieces: tuple[ir.Value, ir.Value, ir.Value]) -> None:
        rows, first, last = pieces
        with finished_kernel(LONG_ROWS, memref.dim(rows, b.index(0)), self.threads) as (piece, thread):
            row = stored_index(memref.load(rows, [piece]))
            start = b.add(stored_index(memref.load(first, [piece])), thread)
            end = stored_index(memref.load(last, [piece]))
            values: Values = {nest.outer.iv: row}
            _row_values(entries, values)
            stride = b.mul(entries.step, b.index(self.threads))
            zero = neutral("arith.addf", entries.initial[0].type)
            (part,) = clone_reduction(entries, values, start, end, stride, [zero])
            total = collective("ditto.block_reduce", part, "arith.addf", threads=self.threads)
            with b.if_then(arith.cmpi(arith.CmpIPredicate.eq, thread, b.index(0))):
                at = [clone_slice(i, values) for i in indices(finish.store)]
                memref.atomic_rmw(arith.AtomicRMWKind.addf, finish.part_of(total, values), accessed(finish.store), at)


class _Short:
    """The nest over all rows in which long rows have no entries."""

    def __init__(self, nest: LoopNest, entries: Loop, limit: int) -> None:
        self.nest, self.entries, self.limit = nest, entries, limit

    def build(self, row: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
        clone_to(body_ops(self.nest.outer.body), self.entries.op, {self.nest.outer.iv: row}, self._sum)
        return ()

    def _sum(self, rest: list[ir.OpView], values: Values) -> None:
        entries = self.entries
        lower, upper = (values.get(v, v) for v in (entries.lower, entries.upper))
        is_long = arith.cmpi(arith.CmpIPredicate.ugt, b.sub(upper, lower), b.index(self.limit))
        initial = values.get(entries.initial[0], entries.initial[0])
        end = arith.select(is_long, lower, upper)
        (total,) = clone_reduction(entries, values, lower, end, entries.step, [initial])
        clone_ops(rest, {**values, entries.op.results[0]: total})


def _row_values(entries: Loop, values: Values) -> None:
    """Compute anew, for the row that `values` names, what the entries use of what is computed before them."""
    ops = list(walk(entries.op))
    inside = {*entries.body.arguments, *(result for op in ops for result in op.results)}
    for operand in [operand for op in ops for operand in op.operands if operand not in inside]:
        clone_slice(operand, values)
