"""`keep-gathered`: what entries gather from is to stay in the L2 cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects.binding import argument_attributes, defining_op, set_signature
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, SchedulePass
from sparseditto.passes.nest import KEEP, LoopNest, accessed, buffer_part, is_scratch, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops


@register
@dataclass(frozen=True)
class KeepGathered(SchedulePass):
    """Mark the dense operands that entries gather from, so that the L2 cache evicts their lines last.

    The stored entries and the output pass through the cache once; what is gathered is read again and again, but not in order,
    and loses its lines to them.  In PTX its loads become `ld.global.nc.L2::cache_hint` with a policy of
    `createpolicy.fractional.L2::evict_last` (`lower-keep`); for a chip whose PTX is older than 7.4 (before
    sm_89) nothing changes.

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
        """Whether a sum over entries reads a dense operand of the kernel here."""
        buffer = root_buffer(accessed(load))
        inside = any(load in body_ops(loop.body) for loop in nest.reductions)
        dense = defining_op(buffer) is None and buffer_part(buffer) is None
        return inside and dense and buffer != nest.output and not is_scratch(buffer)
