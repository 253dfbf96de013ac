"""`mlir-loop-invariant-code-motion`: upstream's `loop-invariant-code-motion` on a nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparseditto.passes.registry import register
from sparseditto.passes.upstream import UpstreamPass


@register
@dataclass(frozen=True)
class LoopInvariantCodeMotion(UpstreamPass):
    """Compute before a loop what each of its iterations would compute alike.

    Index arithmetic moves, as it has no effects; loads stay.  What unrolling computes of the entries of a row is then not
    computed for each tile of columns again.

    Before::

        scf.for %k = %c0 to %c64 step %c4 {
          %span = arith.subi %hi, %lo
          %some = arith.maxsi %span, %c0
          %groups = arith.divui %some, %c2
          %whole = arith.muli %groups, %c2
          %even = arith.addi %lo, %whole

    After::

        %span = arith.subi %hi, %lo
        %some = arith.maxsi %span, %c0
        %groups = arith.divui %some, %c2
        %whole = arith.muli %groups, %c2
        %even = arith.addi %lo, %whole
        scf.for %k = %c0 to %c64 step %c4 {

    Leaves alone: what may read or write memory.
    Refuses: nothing itself; but passes after it refuse a nest in which it left operations between the rows and their lanes.
    """

    name: ClassVar[str] = "mlir-loop-invariant-code-motion"
