"""`mlir-arith-unsigned-when-equivalent`: upstream's `arith-unsigned-when-equivalent` on a nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparseditto.passes.registry import register
from sparseditto.passes.upstream import UpstreamPass


@register
@dataclass(frozen=True)
class ArithUnsignedWhenEquivalent(UpstreamPass):
    """Make signed operations unsigned where both give the same, which then often fold.

    The number of places that a row has in ELL is loaded as unsigned: it need not be held against 0 before it is divided.

    Before::

        %1 = memref.load %places[%c0] : memref<?xi32>
        %n = arith.index_castui %1 : i32 to index
        %some = arith.maxsi %n, %c0 : index
        %groups = arith.divui %some, %c4 : index

    After::

        %1 = memref.load %places[%c0] : memref<?xi32>
        %n = arith.index_castui %1 : i32 to index
        %groups = arith.divui %n, %c4 : index

    Leaves alone: values that may be negative.
    Refuses: nothing itself; but `persist-blocks` refuses the least of two unsigned numbers in the size of a launch.
    """

    name: ClassVar[str] = "mlir-arith-unsigned-when-equivalent"
