"""`rows-to-threads`: one thread a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects import builders as b
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, SchedulePass
from sparseditto.passes.nest import LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import inline_body, require_plain


@register
@dataclass(frozen=True)
class RowsToThreads(SchedulePass):
    """Give each iteration of the outermost parallel loop to one thread of the grid.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          ...
        }

    After::

        scf.forall (%i) in (%m) {
          ...
        } {mapping = [#gpu.thread<linear_dim_0>]}

    Leaves alone: everything inside the loop.
    Refuses: an outermost loop that is a reduction, is mapped already, or does not count from 0 by 1.
    """

    name: ClassVar[str] = "rows-to-threads"
    relieves = (Bottleneck.LAUNCH,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    provides = (Form.THREADS,)
    removes = (Form.ROWS,)

    def run(self, nest: LoopNest, target: Target) -> None:
        require_plain(nest.outer, self.name)
        with ir.InsertionPoint(nest.outer.op), b.forall(nest.outer.upper, "thread") as row:
            inline_body(nest.outer, {nest.outer.iv: row})
        nest.outer.op.operation.erase()
