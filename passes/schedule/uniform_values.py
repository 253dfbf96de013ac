"""`uniform-values`: one value instead of an array of equal ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass
from sparseditto.passes.nest import LoopNest, accessed, buffer_part, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rows import recipe_argument, stored_in
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class UniformValues(SchedulePass):
    """Read one value for all entries, of a matrix whose values are all the same (the adjacency matrix of a graph).

    The host takes it from the matrix (recipe `one-value`) and refuses a matrix with two values, so that a package never gives
    a wrong result.  An entry is then its coordinate: 4 bytes instead of 8, 2 with 16-bit coordinates.  The load does
    not depend on the entry, and the compiler takes it out of the loop.

    Before::

        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
          %j = memref.load %crd[%p]
          %v = memref.load %val[%p]
          ...
        }

    After::

        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
          %j = memref.load %crd[%p]
          %v = memref.load %value[%c0]
          ...
        }

    Leaves alone: coordinates, which other passes store in another way after it.
    Refuses: a nest that reads no values of the matrix one by one; at packing, values whose bits differ (a stored -0 is not 0).
    """

    name: ClassVar[str] = "uniform-values"
    relieves = (Bottleneck.BANDWIDTH,)
    consumes = (Resource.PREPROCESSING,)
    requires = (Form.REGISTER_ACCUMULATION,)
    excludes = (
        Form.THREADS,
        Form.ENTRY_VECTORS,
        Form.UNROLLED,
        Form.BINS,
        Form.SLICES,
        Form.UNIFORM,
        Form.BITMAPS,
    )
    provides = (Form.UNIFORM,)

    def effect(self, work: Work) -> Work:
        return work._replace(entry_bytes=max(0.0, work.entry_bytes - work.value_bytes * work.block_rows * work.block_columns))

    @classmethod
    def candidates(cls, context: Any) -> tuple[UniformValues, ...]:
        """Where the values are the same."""
        return (cls(),) if context.features is not None and context.features.equal_values else ()

    def run(self, nest: LoopNest, target: Target) -> None:
        loads = [load for load in nest.loads if buffer_part(root_buffer(accessed(load))) == "values"]
        sources = {root_buffer(accessed(load)) for load in loads}
        if len(sources) != 1 or any(op_name(load) != "memref.load" for load in loads):
            raise NotApplicable("the nest does not read the values of the matrix one by one", where=self.name)
        (source,) = sources
        stored = stored_in(source, self.name)
        value = recipe_argument(nest.func, stored, stored.recipe("one-value"), "value", source.type.element_type)
        for load in loads:
            with ir.InsertionPoint(load):
                load.results[0].replace_all_uses_with(memref.load(value, [b.index(0)]))
            load.operation.erase()
