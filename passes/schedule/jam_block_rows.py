"""`jam-block-rows`: all rows of a block in one walk over the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass
from sparseditto.passes.jam import Jam, Tiles
from sparseditto.passes.nest import Loop, LoopKind, LoopNest, Role
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops
from sparseditto.passes.work import Work

MOST_ROWS = 16  # of a block: a sum each


@register
@dataclass(frozen=True)
class JamBlockRows(SchedulePass):
    """Compute all rows of a block (BSR) together, with a sum each.

    The blocks are walked once instead of once a row: their coordinates, and what they point to, are loaded once for all
    rows of the block.

    Before::

        scf.for %r = %c0 to %c3 step %c1 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i3r]
        }

    After::

        %s:3 = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero, %b = %zero, %c = %zero) {
          ...
        }
        memref.store %s#0, %y[%i3]
        memref.store %s#1, %y[%i31]
        memref.store %s#2, %y[%i32]

    Leaves alone: the columns of a block.
    Refuses: a nest whose rows come one by one, and blocks of more than 16 rows.
    """

    name: ClassVar[str] = "jam-block-rows"
    relieves = (Bottleneck.BANDWIDTH, Bottleneck.LATENCY, Bottleneck.ISSUE)
    consumes = (Resource.REGISTERS, Resource.CODE)
    requires = (Form.REGISTER_ACCUMULATION,)
    excludes = (Form.THREADS, Form.UNROLLED, Form.JAMMED, Form.MIRRORED)
    provides = (Form.JAMMED,)

    def effect(self, work: Work) -> Work:
        return work._replace(block_jam=True)

    def run(self, nest: LoopNest, target: Target) -> None:
        loop = self._rows(nest)
        tiles = Tiles(loop.trip_count or 0, 1, loop.trip_count or 0)
        jam = Jam(loop.iv, nest.output, tiles)
        jam.check(body_ops(loop.body), self.name)
        with ir.InsertionPoint(loop.op):
            jam.body(body_ops(loop.body), b.index(0))
        loop.op.operation.erase()

    def _rows(self, nest: LoopNest) -> Loop:
        found = [loop for loop in nest.loops if loop.kind is LoopKind.BLOCK and loop.role is Role.PARALLEL]
        if not found:
            raise NotApplicable("the matrix is not stored in blocks", where=self.name)
        loop = found[0]
        if not loop.starts_at_zero_by_one() or not 0 < (loop.trip_count or 0) <= MOST_ROWS:
            raise NotApplicable(f"needs blocks of at most {MOST_ROWS} rows", where=self.name)
        return loop
