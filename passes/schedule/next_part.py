"""`next-part`: the part of the matrix that passes have worked on is finished; the passes after it work on the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, SchedulePass
from sparseditto.passes.nest import KERNEL, PART, WAITING, LoopNest
from sparseditto.passes.registry import register


@register
@dataclass(frozen=True)
class NextPart(SchedulePass):
    """Finish the part that is being scheduled, and turn to the first that waits.

    `partition` leaves the nest of its second part waiting.  The kernels of the finished part, and what passes made beside
    them, get a number in their names; they run in the order in which they stand.

    Before::

        scf.forall (%b) in (%blocks) {
          ...
        } {mapping = [#gpu.block<linear_dim_0>]}
        scf.for %slot = %c0 to %m step %c1 {
          ...
        } {ditto.waiting}

    After::

        scf.forall (%b) in (%blocks) {
          ...
        } {ditto.kernel = "_part0", mapping = [#gpu.block<linear_dim_0>]}
        scf.for %slot = %c0 to %m step %c1 {
          ...
        }

    Leaves alone: the nests themselves.
    Refuses: a part that is not mapped to blocks yet; a function in which no part waits.
    """

    name: ClassVar[str] = "next-part"
    relieves = (Bottleneck.IMBALANCE, Bottleneck.DIVERGENCE)
    requires = (Form.BLOCKS, Form.PARTS)
    starts_part = True

    def run(self, nest: LoopNest, target: Target) -> None:
        ops = list(nest.func.regions[0].blocks[0])
        waiting = [op for op in ops if WAITING in op.attributes]
        if not waiting:
            raise NotApplicable("no part waits", where=self.name)
        nest.outer.op.attributes[KERNEL] = ir.StringAttr.get("")
        mine = [op for op in ops if KERNEL in op.attributes and not _suffix(op).startswith(PART)]
        number = len({_suffix(op).removeprefix(PART).split("_")[0] for op in ops if KERNEL in op.attributes and op not in mine})
        for op in mine:
            op.attributes[KERNEL] = ir.StringAttr.get(f"{PART}{number}{_suffix(op)}")
        del waiting[0].attributes[WAITING]


def _suffix(op: ir.OpView) -> str:
    return str(ir.StringAttr(op.attributes[KERNEL]).value)
