"""`jam-columns`: several tiles of dense columns in one walk over the entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import LoopNest, Slices
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, yielded


@register
@dataclass(frozen=True)
class JamColumns(SchedulePass):
    """Cut the dense columns into `factor` tiles and compute one column (or vector) of every tile at a time.

    The loop over entries runs once for all of them: coordinates and values are loaded once, and the loads of the dense rows
    are independent of each other.  Tiles lie `columns / factor` apart, so that neighbouring lanes stay on neighbouring
    columns of a tile.

    Before::

        scf.for %k = %c0 to %c64 step %c4 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          vector.store %s, %C[%i, %k]
        }

    After ``jam-columns{factor=2}``::

        scf.for %k = %c0 to %c32 step %c4 {
          %k1 = arith.addi %k, %c32
          %s:2 = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero, %a1 = %zero) {
            ...
          }
          vector.store %s#0, %C[%i, %k]
          vector.store %s#1, %C[%i, %k1]
        }

    Leaves alone: what does not depend on the column; it is computed once.
    Refuses: a number of columns that is not constant, or that does not make `factor` equal tiles.
    """

    name: ClassVar[str] = "jam-columns"
    relieves = (Bottleneck.LATENCY, Bottleneck.ISSUE)
    consumes = (Resource.REGISTERS, Resource.CODE)
    requires = (Form.COLUMNS, Form.REGISTER_ACCUMULATION)
    excludes = (Form.THREADS, Form.UNROLLED, Form.JAMMED)
    provides = (Form.JAMMED,)

    factor: int = option("tiles of columns that are computed together", default=2, choices=(1, 2, 3, 4, 8))

    def run(self, nest: LoopNest, target: Target) -> None:
        loop = nest.columns[-1]
        trips, step = loop.trip_count, b.known(loop.step)
        if trips is None or step is None or b.known(loop.lower) != 0:
            raise NotApplicable("the number of columns is not known; give its size (--size K=…)", where=self.name)
        if trips % self.factor:
            raise NotApplicable(f"{trips} steps of the column loop do not make {self.factor} equal tiles", where=self.name)
        tile = trips // self.factor * step
        jam = _Jam(loop.iv)
        jam.check(body_ops(loop.body), self.name)
        with ir.InsertionPoint(loop.op):

            def body(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
                jam.ops(body_ops(loop.body), [{loop.iv: b.add(iv, b.index(j * tile))} for j in range(self.factor)])
                return ()

            b.for_loop(loop.lower, b.index(tile), loop.step, [], body)
        loop.op.operation.erase()


class _Jam:
    """Clones ops for several columns at once: `copies` maps the old values to those of each column."""

    def __init__(self, column: ir.Value) -> None:
        self.column = column
        self.slices = Slices()

    def check(self, ops: Sequence[ir.OpView], where: str) -> None:
        """Refuse, before anything is changed, loops and conditions that differ between columns."""
        for op in ops:
            controls = list(op.operands)[: {"scf.for": 3, "scf.if": 1}.get(op_name(op), 0)]
            if any(self.column.owner in self.slices.blocks(v) for v in controls):
                raise NotApplicable("a loop or a condition depends on the column", where=where)
            if op_name(op) == "scf.if" and len(op.results):
                raise NotApplicable("a condition gives a value", where=where)
            for region in op.regions:
                for block in region:
                    self.check(body_ops(block), where)

    def ops(self, ops: Sequence[ir.OpView], copies: list[Values]) -> list[Values]:
        for op in ops:
            if op_name(op) == "scf.for":
                copies = self._loop(op, copies)
            elif op_name(op) == "scf.if":
                self._condition(op, copies)
            elif self._shared(op, copies):
                values = clone_ops([op], copies[0])
                copies = [{**copy, **{r: values[r] for r in op.results}} for copy in copies]
            else:
                copies = [clone_ops([op], copy) for copy in copies]
        return copies

    def _shared(self, op: ir.OpView, copies: list[Values]) -> bool:
        """Whether all columns agree on every operand, and the op gives a value (a store is done for each)."""
        first, *rest = copies
        return bool(len(op.results)) and all(copy.get(v, v) == first.get(v, v) for v in op.operands for copy in rest)

    def _loop(self, op: ir.OpView, copies: list[Values]) -> list[Values]:
        block = op.regions[0].blocks[0]
        lower, upper, step, *initial = op.operands
        bounds = [copies[0].get(v, v) for v in (lower, upper, step)]
        carried, width = list(block.arguments)[1:], len(initial)

        def body(iv: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            inner = [
                {**copy, block.arguments[0]: iv, **dict(zip(carried, sums[j * width : (j + 1) * width], strict=True))}
                for j, copy in enumerate(copies)
            ]
            return [copy.get(v, v) for copy in self.ops(body_ops(block), inner) for v in yielded(block)]

        results = b.for_loop(bounds[0], bounds[1], bounds[2], [copy.get(v, v) for copy in copies for v in initial], body)
        return [
            {**copy, **dict(zip(op.results, results[j * width : (j + 1) * width], strict=True))}
            for j, copy in enumerate(copies)
        ]

    def _condition(self, op: ir.OpView, copies: list[Values]) -> None:
        blocks = [block for region in op.regions for block in region]
        new = scf.IfOp(copies[0].get(op.operands[0], op.operands[0]), has_else=len(blocks) > 1)
        for old, region in zip(blocks, new.regions, strict=False):
            with ir.InsertionPoint(region.blocks[0]):
                self.ops(body_ops(old), copies)
                scf.yield_([])
