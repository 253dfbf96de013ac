"""`mlir-scf-for-loop-range-folding`: upstream's `scf-for-loop-range-folding` on a nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sparseditto.passes.base import Form, Pass
from sparseditto.passes.registry import register
from sparseditto.passes.upstream import UpstreamPass


@register
@dataclass(frozen=True)
class ScfForLoopRangeFolding(UpstreamPass):
    """Let a loop count over what its body only ever adds to or multiplies with its number.

    The bounds and the step take the addition or the product over, which is then not computed in each iteration.

    Before::

        scf.for %r = %c0 to %c64 step %c32 {
          %row = arith.addi %first, %r
          %inside = arith.cmpi ult, %row, %m

    After::

        %end = arith.addi %first, %c64
        scf.for %row = %first to %end step %c32 {
          %inside = arith.cmpi ult, %row, %m

    Leaves alone: loops whose number the body uses in another way too.
    Refuses: a nest whose rows are not mapped yet: other passes look for loops that count from 0.
    """

    name: ClassVar[str] = "mlir-scf-for-loop-range-folding"
    requires = (Form.THREADS,)

    @classmethod
    def candidates(cls, _context: Any) -> tuple[Pass, ...]:
        """Worth a try: LLVM makes other loops of it."""
        return (cls(),)
