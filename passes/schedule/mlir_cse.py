"""`mlir-cse`: upstream's `cse` on a nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparseditto.passes.registry import register
from sparseditto.passes.upstream import UpstreamPass


@register
@dataclass(frozen=True)
class Cse(UpstreamPass):
    """Compute once what is computed twice from the same operands.

    Loads count too, where nothing that may write stands between them.

    Before::

        func.func @f(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          scf.for %i = %c0 to %n step %c1 {
            %j = arith.addi %i, %c1 : index
            %v = memref.load %x[%j] : memref<?xf32>
            %k = arith.addi %i, %c1 : index
            memref.store %v, %y[%k] : memref<?xf32>
          }
          return
        }

    After::

        func.func @f(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          scf.for %i = %c0 to %n step %c1 {
            %j = arith.addi %i, %c1 : index
            %v = memref.load %x[%j] : memref<?xf32>
            memref.store %v, %y[%j] : memref<?xf32>
          }
          return
        }

    Leaves alone: operations whose effects upstream does not know, such as `ditto` collectives.
    Refuses: a nest that loses a mark by it.
    """

    name: ClassVar[str] = "mlir-cse"
