"""`rows-to-subgroups`: a group of lanes a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import Loop, LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import (
    Values,
    body_ops,
    clone_ops,
    clone_reduction,
    clone_to,
    collective,
    combine,
    combiner_of,
    guard_stores,
    is_zero,
    neutral,
    require_plain,
    sums_are_independent,
    take_initial,
)
from sparseditto.passes.work import Work

LANES = (1, 2, 4, 8, 16, 32)


@register
@dataclass(frozen=True)
class RowsToSubgroups(SchedulePass):
    """Share each iteration of the outermost parallel loop among `lanes` lanes of a warp.

    With ``share=columns`` the lanes take the iterations of the dense column loop in turn, so that neighbours read
    neighbouring columns.  With ``share=entries`` they take the stored entries of the row in turn, and the partial sums
    meet in a `ditto.lane_reduce`; lane 0 stores.  ``share=auto`` takes columns where there are any.  With ``groups=n`` the
    lanes share both: they make n groups, which take the stored entries in turn, and the lanes of a group share the columns.
    All lanes reach the reduction then: one that has no column left computes the first lane's again, and does not store it.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %y0 = memref.load %y[%i]
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) {
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``rows-to-subgroups{lanes=8 share=entries}``::

        scf.forall (%i) in (%m) {
          scf.forall (%lane) in (8) {
            %first = arith.addi %lo, %lane
            %part = scf.for %p = %first to %hi step %c8 iter_args(%a = %zero) {
              ...
            }
            %all = "ditto.lane_reduce"(%part) {kind = "arith.addf", lanes = 8 : i32}
            %leader = arith.cmpi eq, %lane, %c0
            scf.if %leader {
              %y0 = memref.load %y[%i]
              %s = arith.addf %y0, %all
              memref.store %s, %y[%i]
            }
          } {mapping = [#gpu.lane<linear_dim_0>]}
        } {mapping = [#gpu.warp<linear_dim_0>]}

    Leaves alone: the loops that are not shared.
    Refuses: a nest without the loop to share; an outermost loop that is mapped already.
    """

    name: ClassVar[str] = "rows-to-subgroups"
    relieves = (Bottleneck.COALESCING, Bottleneck.DIVERGENCE)
    consumes = (Resource.SHUFFLE,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    provides = (Form.THREADS,)
    removes = (Form.ROWS,)

    lanes: int = option("lanes that share a row", default=8, choices=LANES)
    share: str = option("what the lanes share", default="auto", choices=("auto", "columns", "entries"))
    groups: int = option(
        "groups of lanes that share the entries while the lanes of each share the columns", default=1, choices=LANES
    )

    def effect(self, work: Work) -> Work:
        columns = self.share == "columns" or (self.share == "auto" and work.columns > 1)
        return work._replace(lanes=self.lanes, groups=self.groups if columns else self.lanes)

    def run(self, nest: LoopNest, target: Target) -> None:
        require_plain(nest.outer, self.name)
        columns = self.share == "columns" or (self.share == "auto" and bool(nest.columns))
        if not columns and self.groups != 1:
            raise NotApplicable("groups of lanes need columns to share", where=self.name)
        groups = self.groups if columns else self.lanes
        entries = self._entry_loop(nest) if groups > 1 or not columns else None
        loop = self._column_loop(nest, groups) if columns else None
        with ir.InsertionPoint(nest.outer.op), b.forall(nest.outer.upper, "warp") as row, b.forall(self.lanes, "lane") as lane:
            _Sharing(self.lanes, groups, lane, loop, entries).build(body_ops(nest.outer.body), {nest.outer.iv: row})
        nest.outer.op.operation.erase()

    def _column_loop(self, nest: LoopNest, groups: int) -> Loop:
        if len(nest.columns) != 1:
            raise NotApplicable(f"needs one loop over dense columns, not {len(nest.columns)}", where=self.name)
        if self.lanes % groups:
            raise NotApplicable(f"{self.lanes} lanes do not make {groups} groups", where=self.name)
        return nest.columns[0]

    def _entry_loop(self, nest: LoopNest) -> Loop:
        if not nest.reductions:
            raise NotApplicable("there is no reduction to share", where=self.name)
        first = nest.reductions[0]
        if "ditto.unrolled" in first.op.attributes or any(r.depth == first.depth for r in nest.reductions[1:]):
            raise NotApplicable("the reduction is unrolled already: share first, then unroll", where=self.name)
        if combiner_of(first) is None:
            raise NotApplicable("the reduction is no sum", where=self.name)
        if not sums_are_independent(first):
            raise NotApplicable("a sum of the reduction depends on another", where=self.name)
        return first


class _Sharing:
    """Clones a row for one lane: it is lane `place` of `group`, takes every `width`-th column and every `groups`-th entry."""

    def __init__(self, lanes: int, groups: int, lane: ir.Value, columns: Loop | None, entries: Loop | None) -> None:
        self.groups, self.width = groups, lanes // groups
        self.place = lane if groups == 1 else b.rem(lane, b.index(self.width))
        self.group = b.div(lane, b.index(self.width))
        self.columns, self.entries = columns, entries
        self.inside: ir.Value | None = None  # whether the lane has a column of its own, where some have none

    def build(self, ops: list[ir.OpView], values: Values) -> None:
        if self.columns is not None:
            clone_to(ops, self.columns.op, values, self._share_columns)
        else:
            self._clone(ops, values)

    def _clone(self, ops: list[ir.OpView], values: Values) -> None:
        """Ops around the reduction, or all there are when entries are not shared."""
        if self.entries is None:
            clone_ops(ops, values)
        else:
            clone_to(ops, self.entries.op, values, self._share_entries)

    def _share_columns(self, rest: list[ir.OpView], values: Values) -> None:
        """Every `width`-th column; no loop where each lane has at most one.

        Where entries are shared too, all lanes take equally many turns, each at a column that exists.
        """
        loop = self.columns
        assert loop is not None
        lower, upper, step = (values.get(v, v) for v in (loop.lower, loop.upper, loop.step))
        first = b.add(lower, b.mul(self.place, step))
        trips = loop.trip_count
        stride = b.mul(step, b.index(self.width))

        def columns(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
            self._clone(body_ops(loop.body), {**values, loop.iv: iv})
            return ()

        def clamped(start: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
            column = b.add(start, b.mul(self.place, step))
            self.inside = arith.cmpi(arith.CmpIPredicate.ult, column, upper)
            return columns(arith.select(self.inside, column, start), [])

        few = trips is not None and trips <= self.width
        if self.entries is not None and (trips is None or trips % self.width):
            clamped(lower, []) if few else b.for_loop(lower, upper, stride, [], clamped)
        elif trips == self.width:
            columns(first, [])
        elif few:
            with b.if_then(arith.cmpi(arith.CmpIPredicate.ult, first, upper)):
                columns(first, [])
        else:
            b.for_loop(first, upper, stride, [], columns)
        clone_ops(rest, values)

    def _share_entries(self, rest: list[ir.OpView], values: Values) -> None:
        """Every `groups`-th entry, the sums over all groups, and what follows for the first group alone."""
        loop = self.entries
        assert loop is not None
        combiner = combiner_of(loop) or ""
        stride = {"stride": self.width} if self.width > 1 else {}
        totals = [
            collective("ditto.lane_reduce", part, combiner, lanes=self.groups, **stride)
            for part in self._partial_sums(loop, combiner, values)
        ]
        leads = arith.cmpi(arith.CmpIPredicate.eq, self.group, b.index(0))
        with b.if_then(leads if self.inside is None else arith.andi(leads, self.inside)):
            results = dict(values)
            for k, total in enumerate(totals):
                initial = take_initial(loop, values, k)  # only the first group reads it
                plain = combiner == "arith.addf" and is_zero(initial)
                results[loop.op.results[k]] = total if plain else combine(combiner, initial, total)
            clone_ops(rest, results)

    def _partial_sums(self, loop: Loop, combiner: str, values: Values) -> list[ir.Value]:
        lower, upper, step = (values.get(v, v) for v in (loop.lower, loop.upper, loop.step))
        zeros = [neutral(combiner, initial.type) for initial in loop.initial]
        first = b.add(lower, b.mul(self.group, step))
        place = ir.InsertionPoint.current.block
        before = len(list(place.operations))
        sums = clone_reduction(loop, values, first, upper, b.mul(step, b.index(self.groups)), zeros)
        if self.inside is not None:
            guard_stores(place, self.inside, before)
        return sums
