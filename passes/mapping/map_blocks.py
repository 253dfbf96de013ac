"""`map-blocks`: cut the grid of threads or subgroups into blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects import builders as b
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, MappingPass, option
from sparseditto.passes.nest import LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops, clone_ops, has_collectives, inline_body, within
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class MapBlocks(MappingPass):
    """Make the outermost mapped loop a loop over blocks of `threads` threads, and the inner one over the block's threads.

    A thread past the last row does nothing.  Where lanes meet in a collective all lanes of a warp must get there, so
    there the threads past the end do the last row again, and no store of theirs happens.

    Before::

        scf.forall (%i) in (%m) {
          ...
        } {mapping = [#gpu.thread<linear_dim_0>]}

    After ``map-blocks{threads=128}``::

        %blocks = arith.ceildivui %m, %c128
        scf.forall (%b) in (%blocks) {
          scf.forall (%t) in (128) {
            %first = arith.muli %b, %c128
            %i = arith.addi %first, %t
            %inside = arith.cmpi ult, %i, %m
            scf.if %inside {
              ...
            }
          } {mapping = [#gpu.thread<linear_dim_0>]}
        } {mapping = [#gpu.block<linear_dim_0>]}

    Leaves alone: what one thread does.
    Refuses: a nest whose outermost loop is not mapped to threads or subgroups, or that has blocks already.
    """

    name: ClassVar[str] = "map-blocks"
    relieves = (Bottleneck.LAUNCH, Bottleneck.LATENCY)
    requires = (Form.THREADS,)
    excludes = (Form.BLOCKS,)
    provides = (Form.BLOCKS,)

    threads: int = option("threads a block", default=128, choices=(32, 64, 96, 128, 192, 256, 384, 512, 768, 1024))

    def effect(self, work: Work) -> Work:
        return work._replace(threads=self.threads)

    def run(self, nest: LoopNest, target: Target) -> None:
        lanes_loop = next(iter(nest.mapped("lane")), None)
        lanes = 1 if lanes_loop is None else lanes_loop.extent or 1
        items = self.threads // lanes
        with ir.InsertionPoint(nest.outer.op):
            extent = nest.outer.extent
            count = nest.outer.op.operands[0] if extent is None else b.index(extent)
            blocks = b.ceildiv(count, b.index(items))
            with b.forall(blocks, "block") as block, b.forall(self.threads, "thread") as thread:
                self._thread(nest, block, thread, lanes, count)
        nest.outer.op.operation.erase()

    def _thread(self, nest: LoopNest, block: ir.Value, thread: ir.Value, lanes: int, count: ir.Value) -> None:
        local, lane = b.div(thread, b.index(lanes)), b.rem(thread, b.index(lanes))
        item = b.add(b.mul(block, b.index(self.threads // lanes)), local)
        within(item, count, has_collectives(nest.outer.op), lambda row: _item(nest, row, lane))


def _item(nest: LoopNest, item: ir.Value, lane: ir.Value) -> None:
    """What one thread does for one row."""
    values = {nest.outer.iv: item}
    for op in body_ops(nest.outer.body):
        inner = next((loop for loop in nest.mapped("lane") if loop.op == op), None)
        if inner is None:
            values = clone_ops([op], values)
        else:
            values = inline_body(inner, {**values, inner.iv: lane})
