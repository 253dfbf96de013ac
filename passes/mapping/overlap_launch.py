"""`overlap-launch`: let the blocks of a kernel start while the kernel before it ends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, MappingPass
from sparseditto.passes.nest import OVERLAP, LoopNest
from sparseditto.passes.registry import register

OLDEST = 90  # of the chips whose kernels can wait for each other


@register
@dataclass(frozen=True)
class OverlapLaunch(MappingPass):
    """Start blocks while the kernel before this one in the stream ends, and have each wait for all that it wrote.

    A kernel that follows another one otherwise starts when that has ended and its writes are seen: about a microsecond in
    which the GPU does nothing.  With it the first thing that a block does is to wait for just that (`griddepcontrol.wait`),
    then it lets the kernel after it do the same (`griddepcontrol.launch_dependents`).  Nothing is read or written before the
    wait, so results and their order are those of kernels one after the other.  The launch has to allow it
    (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`), as the runtime's does; otherwise the kernel starts as any other.
    Source: CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization.

    Before::

        func.func @spmv(...) {
          scf.forall (%b) in (%blocks) {

    After::

        func.func @spmv(...) attributes {ditto.overlap} {
          scf.forall (%b) in (%blocks) {

    All kernels of the function do so: one that fills the output, too.

    Leaves alone: the nest.
    Refuses: chips before sm_90.
    """

    name: ClassVar[str] = "overlap-launch"
    relieves = (Bottleneck.LAUNCH,)
    requires = (Form.BLOCKS,)

    def run(self, nest: LoopNest, target: Target) -> None:
        if int(re.sub(r"\D", "", target.chip)) < OLDEST:
            raise NotApplicable(
                f"{target.chip} has no kernels that wait for each other; sm_{OLDEST} and later have", where=self.name
            )
        nest.func.attributes[OVERLAP] = ir.UnitAttr.get()
