"""`fuse-multiply-add`: a product that is only added becomes one instruction with one rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import math

from sparseditto.dialects.binding import defining_op, op_name, walk
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.registry import register


@register
@dataclass(frozen=True)
class FuseMultiplyAdd(LoweringPass):
    """Contract `x + a*b` to `math.fma` where nothing else uses the product.

    LLVM spells out the rounding of `mulf` and `addf` in PTX, so that the assembler may not contract them.

    Before::

        %t = arith.mulf %a, %b : f32
        %s = arith.addf %x, %t : f32

    After::

        %s = math.fma %a, %b, %x : f32
    """

    name: ClassVar[str] = "fuse-multiply-add"
    kind = Kind.LOWERING

    def apply(self, module: ir.Module, target: Target) -> None:
        with module.context, ir.Location.unknown():
            for op in [op for op in walk(module.operation) if op_name(op) == "arith.addf"]:
                _contract(op)


def _contract(add: ir.OpView) -> None:
    for which in (1, 0):
        product = defining_op(add.operands[which])
        if product is None or op_name(product) != "arith.mulf" or len(list(product.results[0].uses)) != 1:
            continue
        with ir.InsertionPoint(add):
            fused = math.fma(product.operands[0], product.operands[1], add.operands[1 - which])
        add.results[0].replace_all_uses_with(fused)
        add.operation.erase()
        product.operation.erase()
        return
