"""`lower-fill`: a fill of the output that no pass took into the nest becomes a kernel of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import functions, op_name
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import element_kernel


@register
@dataclass(frozen=True)
class LowerFill(LoweringPass):
    """Spell out each `linalg.fill` of a buffer as a loop over blocks of 256 threads, an element a thread.

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

    Leaves alone: functions without a fill.
    """

    name: ClassVar[str] = "lower-fill"
    kind = Kind.LOWERING

    def apply(self, module: ir.Module, target: Target) -> None:
        with module.context, ir.Location.unknown():
            for func in functions(module):
                for op in [op for op in func.regions[0].blocks[0] if op_name(op) == "linalg.fill"]:
                    with ir.InsertionPoint(op):
                        _fill(op.operands[0], op.operands[1])
                    op.operation.erase()


def _fill(value: ir.Value, buffer: ir.Value) -> None:
    dynamic = ir.ShapedType.get_dynamic_size()
    extents = [memref.dim(buffer, b.index(k)) if n == dynamic else b.index(n) for k, n in enumerate(buffer.type.shape)]

    def store(at: list[ir.Value]) -> None:
        memref.store(value, buffer, at)

    element_kernel("_fill", extents, store)
