"""`coarsen-rows`: several rows a thread or subgroup, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import WALKS, LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops, has_collectives, inline_body, within
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class CoarsenRows(SchedulePass):
    """Give `rows` rows to each thread or subgroup, so that fewer of them pay for what each does before its first row.

    The rows of a warp stay together: it takes as many neighbouring rows at a time as it has threads (or subgroups), `rows`
    times in succession.  So neighbouring threads are always on neighbouring rows, which share positions and
    coalesce, and what a warp reads lies in one piece, whatever the block is.  Threads past the last row do nothing; where
    lanes meet in a collective they do the last row again, and no store of theirs happens.

    Before::

        scf.forall (%i) in (%m) {
          ...
        } {mapping = [#gpu.thread<linear_dim_0>]}

    After ``coarsen-rows{rows=4}``::

        %threads = arith.muli %warps, %c32
        scf.forall (%g) in (%threads) {
          %warp = arith.divui %g, %c32
          %start = arith.muli %warp, %c128
          %lane = arith.remui %g, %c32
          %own = arith.addi %start, %lane
          scf.for %k = %c0 to %c128 step %c32 {
            %i = arith.addi %own, %k
            %inside = arith.cmpi ult, %i, %m
            scf.if %inside {
              ...
            }
          } {ditto.walks = "rows"}
        } {mapping = [#gpu.thread<linear_dim_0>]}

    Leaves alone: what is done for one row.
    Refuses: rows that are not mapped to threads or subgroups, or are in blocks already; `share-loads` after it (share first).
    """

    name: ClassVar[str] = "coarsen-rows"
    relieves = (Bottleneck.LAUNCH, Bottleneck.ISSUE)
    consumes = (Resource.REGISTERS,)
    requires = (Form.THREADS,)
    excludes = (Form.COARSENED, Form.BLOCKS)
    provides = (Form.COARSENED,)

    rows: int = option("rows a thread or subgroup", default=2, choices=(1, 2, 4, 8, 16))

    def effect(self, work: Work) -> Work:
        fewer = max(1.0, work.units / self.rows)
        return work._replace(units=fewer, longest=work.longest + (self.rows - 1) * work.pattern.mean_row)

    def run(self, nest: LoopNest, target: Target) -> None:
        if self.rows == 1:
            return
        lanes = nest.mapped("lane")
        if lanes and body_ops(nest.outer.body) != [lanes[0].op]:
            raise NotApplicable("there are ops between the rows and their lanes", where=self.name)
        beside = target.warp_size // ((lanes[0].extent or 1) if lanes else 1)
        with ir.InsertionPoint(nest.outer.op):
            extent = nest.outer.extent
            count = nest.outer.op.operands[0] if extent is None else b.index(extent)
            warps = b.ceildiv(count, b.index(beside * self.rows))
            with b.forall(b.mul(warps, b.index(beside)), nest.outer.mapping or "thread") as item:
                if lanes:
                    with b.forall(lanes[0].extent or 1, "lane") as lane:
                        self._walk(nest, item, beside, count, lambda row: _lane(nest, row, lane))
                else:
                    self._walk(nest, item, beside, count, lambda row: _thread(nest, row))
        nest.outer.op.operation.erase()

    def _walk(self, nest: LoopNest, item: ir.Value, beside: int, count: ir.Value, build: Callable[[ir.Value], None]) -> None:
        """The rows of one thread: `beside` apart, from the place of its warp on."""
        place, share = ir.InsertionPoint.current.block, beside * self.rows
        own = b.add(b.mul(b.div(item, b.index(beside)), b.index(share)), b.rem(item, b.index(beside)))

        def body(offset: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
            within(b.add(own, offset), count, has_collectives(nest.outer.op), build)
            return ()

        b.for_loop(b.index(0), b.index(share), b.index(beside), [], body)
        list(place.operations)[-1].attributes[WALKS] = ir.StringAttr.get("rows")


def _thread(nest: LoopNest, row: ir.Value) -> None:
    inline_body(nest.outer, {nest.outer.iv: row})


def _lane(nest: LoopNest, row: ir.Value, lane: ir.Value) -> None:
    """What one lane does for one row; the loop over lanes stands alone in the loop over rows."""
    (lanes,) = nest.mapped("lane")
    inline_body(lanes, {nest.outer.iv: row, lanes.iv: lane})
