"""`keep-gathered`: what entries gather from is to stay in the L2 cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects.binding import argument_attributes, defining_op, set_signature
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, SchedulePass
from sparseditto.passes.nest import KEEP, LoopNest, accessed, is_scratch, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops


@register
@dataclass(frozen=True)
class KeepGathered(SchedulePass):
    """Mark the dense operands that entries gather from, so that the L2 cache evicts their lines last.

    The stored entries and the output pass through the cache once; what is gathered is read again and again, but not in order,
    and loses its lines to them.  In PTX its loads become `ld.global.nc.L2::cache_hint` with a policy of
    `createpolicy.fractional.L2::evict_last` (`lower-keep`); on a GPU before sm_80 nothing changes.

    Before::

        func.func @spmv(%A: ..., %x: memref<?xf32>, %y: memref<?xf32>) {
          ...
        }

    After::

        func.func @spmv(%A: ..., %x: memref<?xf32> {ditto.keep}, %y: memref<?xf32>) {
          ...
        }

    Leaves alone: the nest; copies of an operand that `reorder` makes.
    Refuses: a nest whose entries read no dense operand.
    """

    name: ClassVar[str] = "keep-gathered"
    relieves = (Bottleneck.BANDWIDTH,)
    requires = (Form.REGISTER_ACCUMULATION,)

    def run(self, nest: LoopNest, target: Target) -> None:
        found = {root_buffer(accessed(op)) for op in nest.loads if self._is_gathered(nest, op)}
        if not found:
            raise NotApplicable("the entries read no dense operand, which a cache could keep", where=self.name)
        attributes = argument_attributes(nest.func)
        for buffer in found:
            attributes[buffer.arg_number][KEEP] = ir.UnitAttr.get()
        set_signature(nest.func, attributes)

    def _is_gathered(self, nest: LoopNest, load: ir.OpView) -> bool:
        """Whether a sum over entries reads an operand of the kernel here, by more than the entry's own number."""
        buffer = root_buffer(accessed(load))
        inside = any(load in body_ops(loop.body) for loop in nest.reductions)
        named = defining_op(buffer) is None and "ditto.part" not in argument_attributes(nest.func)[buffer.arg_number]
        return inside and named and buffer != nest.output and not is_scratch(buffer)
