"""`lower-fill`: an initial value of the output that no pass took into the nest becomes a kernel of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import functions, op_name
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.initial import constant_of, initial_value
from sparseditto.passes.nest import INITIALISERS
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import element_kernel


@register
@dataclass(frozen=True)
class LowerFill(LoweringPass):
    """Spell out each op that initialises the output as a loop over blocks of 256 threads, an element a thread.

    Such an op is a `linalg.fill`, or a `linalg.generic` that scales the output in place.

    Before::

        linalg.fill ins(%zero : f32) outs(%C : memref<?x64xf32>)

    After::

        scf.forall (%b) in (%blocks) {
          scf.forall (%t) in (256) {
            ...
            scf.if %inside {
              memref.store %zero, %C[%i, %k]
            }
          } {mapping = [#gpu.thread<linear_dim_0>]}
        } {ditto.kernel = "_fill", mapping = [#gpu.block<linear_dim_0>]}

    Leaves alone: functions without such an op.
    """

    name: ClassVar[str] = "lower-fill"
    kind = Kind.LOWERING

    def apply(self, module: ir.Module, target: Target) -> None:
        with module.context, ir.Location.unknown():
            for func in functions(module):
                for op in [op for op in func.regions[0].blocks[0] if op_name(op) in INITIALISERS]:
                    with ir.InsertionPoint(op):
                        _initialise(op)
                    op.operation.erase()


def _initialise(op: ir.OpView) -> None:
    buffer = op.operands[-1]
    dynamic = ir.ShapedType.get_dynamic_size()
    extents = [memref.dim(buffer, b.index(k)) if n == dynamic else b.index(n) for k, n in enumerate(buffer.type.shape)]

    def store(at: list[ir.Value]) -> None:
        memref.store(initial_value(op, at, buffer.type.element_type), buffer, at)

    element_kernel("_fill" if constant_of(op) is not None else "_scale", extents, store)
