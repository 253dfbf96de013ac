"""`mlir-canonicalize`: upstream's `canonicalize` on a nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparseditto.passes.base import option
from sparseditto.passes.registry import register
from sparseditto.passes.upstream import UpstreamPass


@register
@dataclass(frozen=True)
class Canonicalize(UpstreamPass):
    """Fold what is known, and bring each operation into the form that upstream prefers.

    Passes leave additions of 0 and products of constants behind, and read the nest by its operations, so that one may do more
    with what another made after this.

    Before::

        func.func @f(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          scf.for %i = %c0 to %n step %c1 {
            %j = arith.addi %i, %c0 : index
            %v = memref.load %x[%j] : memref<?xf32>
            memref.store %v, %y[%i] : memref<?xf32>
          }
          return
        }

    After::

        func.func @f(%x: memref<?xf32>, %y: memref<?xf32>, %n: index) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          scf.for %i = %c0 to %n step %c1 {
            %v = memref.load %x[%i] : memref<?xf32>
            memref.store %v, %y[%i] : memref<?xf32>
          }
          return
        }

    Leaves alone: loops that are mapped to a GPU.
    Refuses: a nest that loses a mark by it, such as that it is unrolled.
    """

    name: ClassVar[str] = "mlir-canonicalize"

    top_down: bool = option("whether operations are visited from the first to the last", default=True)
