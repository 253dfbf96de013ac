"""`stream-entries`: keep the matrix out of the L1 cache, which dense operands need more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects.binding import op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, SchedulePass
from sparseditto.passes.nest import LoopNest, accessed, buffer_part, root_buffer
from sparseditto.passes.registry import register


@register
@dataclass(frozen=True)
class StreamEntries(SchedulePass):
    """Mark the loads of coordinates and values, which are read once, so that they take no room in L1.

    In PTX they become `ld.global.nc.L1::no_allocate`.

    Before::

        %j = memref.load %crd[%p] : memref<?xi32>
        %v = memref.load %val[%p] : memref<?xf32>

    After ``stream-entries``::

        %j = memref.load %crd[%p] {nontemporal = true} : memref<?xi32>
        %v = memref.load %val[%p] {nontemporal = true} : memref<?xf32>

    Leaves alone: positions, which neighbouring rows share, and dense operands.
    Refuses: a nest that loads no entries.
    """

    name: ClassVar[str] = "stream-entries"
    relieves = (Bottleneck.BANDWIDTH,)
    requires = (Form.REGISTER_ACCUMULATION,)

    def run(self, nest: LoopNest, target: Target) -> None:
        loads = [load for load in nest.loads if buffer_part(root_buffer(accessed(load))) in ("coordinates", "values")]
        if not loads:
            raise NotApplicable("the nest loads no entries", where=self.name)
        for load in loads:
            if op_name(load) == "memref.load":
                load.attributes["nontemporal"] = ir.BoolAttr.get(True)
