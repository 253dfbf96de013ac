"""`mlir-arith-int-range-narrowing`: upstream's `arith-int-range-narrowing` on a nest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sparseditto.passes.base import Form, Pass, option
from sparseditto.passes.registry import register
from sparseditto.passes.upstream import UpstreamPass


@register
@dataclass(frozen=True)
class ArithIntRangeNarrowing(UpstreamPass):
    """Compute in fewer bits what is known to fit, such as the numbers of lanes.

    A GPU adds, multiplies and compares 32 bits in one instruction and 64 in two or more, and they take half as many registers.
    What is known follows from constants, bounds of loops and the widths of what is loaded.

    Before::

        %first = arith.cmpi eq, %lane, %c0 : index
        scf.if %first {

    After ``mlir-arith-int-range-narrowing{int-bitwidths-supported=32}``::

        %narrow = arith.index_castui %lane : index to i32
        %first = arith.cmpi eq, %narrow, %c0_i32 : i32
        scf.if %first {

    Leaves alone: what may need all bits, such as products with sizes that are not constants.
    Refuses: a nest whose rows are not mapped yet: other passes look for index arithmetic.
    """

    name: ClassVar[str] = "mlir-arith-int-range-narrowing"
    requires = (Form.THREADS,)

    int_bitwidths_supported: int = option("bits to narrow to", default=32, choices=(16, 32))

    @classmethod
    def candidates(cls, _context: Any) -> tuple[Pass, ...]:
        """32 bits: no GPU is faster with 16."""
        return (cls(),)
