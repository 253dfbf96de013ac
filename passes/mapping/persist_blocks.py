"""`persist-blocks`: as many blocks as the GPU holds at a time, each of which takes work until none is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, gpu

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import op_name, walk
from sparseditto.dialects.errors import NotApplicable, PlanError
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, MappingPass, option
from sparseditto.passes.nest import WALKS, Loop, LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops, inline_body

_WAITS = ("gpu.barrier", "ditto.shared_buffer")  # a block_reduce ends with a barrier itself
_BOUNDS = ("nvvm.minctasm", "nvvm.maxnreg")


@register
@dataclass(frozen=True)
class PersistBlocks(MappingPass):
    """Launch no more blocks than the multiprocessors hold, and let each take every so many-th block's work in a loop.

    The grid is `per-multiprocessor` blocks for each multiprocessor of the target, or `blocks` where that is given, and never
    more than there is work for.  All threads of a block go round equally often, so that they still meet at barriers; where
    they share a buffer they wait for each other before they use it again.

    Before::

        scf.forall (%b) in (%blocks) {
          scf.forall (%t) in (128) {
            ...
          } {mapping = [#gpu.thread<linear_dim_0>]}
        } {mapping = [#gpu.block<linear_dim_0>]}

    After ``persist-blocks{per-multiprocessor=8}``::

        %grid = arith.minsi %blocks, %c1056
        scf.forall (%g) in (%grid) {
          scf.forall (%t) in (128) {
            scf.for %b = %g to %blocks step %grid {
              ...
            } {ditto.walks = "blocks"}
          } {mapping = [#gpu.thread<linear_dim_0>]}
        } {mapping = [#gpu.block<linear_dim_0>]}

    Leaves alone: what is done for one block's work; kernels that a pass has finished, such as those for long rows.
    Refuses: a target whose number of multiprocessors is not known (GPUs with the same chip differ), where `blocks` is not
    given; more threads than a multiprocessor holds.
    """

    name: ClassVar[str] = "persist-blocks"
    relieves = (Bottleneck.LAUNCH, Bottleneck.LATENCY)
    requires = (Form.BLOCKS,)
    excludes = (Form.PERSISTENT,)
    provides = (Form.PERSISTENT,)

    per_multiprocessor: int = option("blocks for each multiprocessor", default=8, choices=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
    blocks: int = option("blocks in all, whatever the GPU is (0: by its multiprocessors)", default=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.blocks < 1 << 31:
            raise PlanError(
                f"blocks={self.blocks}: a grid has 1 to {(1 << 31) - 1} blocks (0: by multiprocessors)", where=self.name
            )

    @classmethod
    def candidates(cls, context: Any) -> tuple[PersistBlocks, ...]:
        """Grids that fill the GPU, where its size is known."""
        return () if context.target.multiprocessors is None else tuple(cls(per_multiprocessor=n) for n in (8, 4, 16, 2, 32, 1))

    def run(self, nest: LoopNest, target: Target) -> None:
        (threads,) = nest.mapped("thread")
        if body_ops(nest.outer.body) != [threads.op]:
            raise NotApplicable("there are ops between the blocks and their threads", where=self.name)
        most = self._most(threads.extent or 0, target)
        with ir.InsertionPoint(nest.outer.op):
            extent = nest.outer.extent
            count = nest.outer.op.operands[0] if extent is None else b.index(extent)
            grid = b.index(min(extent, most)) if extent is not None else arith.minsi(count, b.index(most))
            with b.forall(grid, "block") as first, b.forall(threads.extent or 0, "thread") as thread:
                new = ir.InsertionPoint.current.block.owner.operation.parent
                _each_block(nest, threads, thread, (first, count, grid))
        for name in (name for name in _BOUNDS if name in nest.outer.op.attributes):
            new.attributes[name] = nest.outer.op.attributes[name]
        nest.outer.op.operation.erase()

    def _most(self, threads: int, target: Target) -> int:
        """The number of blocks when there is work for all."""
        if self.blocks:
            return self.blocks
        if target.multiprocessors is None:
            raise NotApplicable(
                f"the multiprocessors of {target.chip} are not known, its GPUs differ; give blocks=…",
                where=self.name,
            )
        if self.per_multiprocessor * threads > target.threads_per_multiprocessor:
            limit = target.threads_per_multiprocessor
            raise NotApplicable(
                f"{self.per_multiprocessor} blocks of {threads} threads exceed the {limit} of a multiprocessor", where=self.name
            )
        return self.per_multiprocessor * target.multiprocessors


def _each_block(nest: LoopNest, threads: Loop, thread: ir.Value, bounds: tuple[ir.Value, ir.Value, ir.Value]) -> None:
    """The loop of one thread over its block's work."""
    waits = any(op_name(op) in _WAITS for op in walk(nest.outer.op))

    def body(block: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
        inline_body(threads, {nest.outer.iv: block, threads.iv: thread})
        if waits:
            gpu.barrier()  # nobody writes what others still read in shared memory
        return ()

    place = ir.InsertionPoint.current.block
    b.for_loop(*bounds, [], body)
    list(place.operations)[-1].attributes[WALKS] = ir.StringAttr.get("blocks")
