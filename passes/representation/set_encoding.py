"""`set-encoding`: choose how the operands marked `ditto.sparse` are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects.binding import argument_attributes, encoding_attribute, set_signature
from sparseditto.dialects.encoding import named_encoding
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, RepresentationPass, option
from sparseditto.passes.registry import register
from sparseditto.passes.work import Work

FORMATS = ("csr", "csc", "dcsr", "dcsc", "bsr")
WIDTHS = (16, 32, 64)
BLOCKS = (2, 3, 4, 6, 8, 16)  # upstream folds a division by 1 away and then cannot invert the map


@register
@dataclass(frozen=True)
class SetEncoding(RepresentationPass):
    """Give each operand marked `ditto.sparse` a storage format and the widths of its indices.

    Before::

        func.func @f(%A: tensor<?x?xf32> {ditto.sparse}, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
          %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
          return %0 : tensor<?xf32>
        }

    After ``set-encoding{format=csr coordinates=16}``::

        #CSR = #sparse_tensor.encoding<{map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 32, crdWidth = 16}>
        func.func @f(%A: tensor<?x?xf32, #CSR>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
          %0 = linalg.matvec ins(%A, %x : tensor<?x?xf32, #CSR>, tensor<?xf32>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
          return %0 : tensor<?xf32>
        }

    Leaves alone: operands whose type carries an encoding (they are pinned).
    Refuses: a function with no operand marked `ditto.sparse`; a marked operand that is no matrix.
    """

    name: ClassVar[str] = "set-encoding"
    relieves = (Bottleneck.BANDWIDTH,)

    format: str = option("storage format", default="csr", choices=FORMATS)
    positions: int = option("bits of a stored position", default=32, choices=WIDTHS)
    coordinates: int = option("bits of a stored coordinate", default=32, choices=WIDTHS)
    block_rows: int = option("rows of a block (bsr)", default=4, choices=BLOCKS)
    block_columns: int = option("columns of a block (bsr)", default=4, choices=BLOCKS)

    def effect(self, work: Work) -> Work:
        coordinate, position = self.coordinates / 8, self.positions / 8
        if self.format in ("dcsr", "dcsc"):
            rows = work.rows * (1 - work.pattern.empty_rows)
            return work._replace(
                rows=rows,
                units=rows,
                entry_bytes=work.value_bytes + coordinate,
                row_bytes=position + coordinate,
                launches=work.launches + 1,  # one that sets the rows without entries
            )
        if self.format != "bsr":
            return work._replace(entry_bytes=work.value_bytes + coordinate, row_bytes=position)
        height, width = self.block_rows, self.block_columns
        stored = height * width * work.value_bytes + coordinate
        return work.in_blocks(height, width)._replace(entry_bytes=stored, row_bytes=position)

    def run_on(self, func: ir.OpView, target: Target) -> None:
        block = func.regions[0].blocks[0]
        attributes = argument_attributes(func)
        marked = [i for i, d in enumerate(attributes) if "ditto.sparse" in d]
        if not marked:
            raise NotApplicable("no operand is marked ditto.sparse", where=self.name)
        for i in marked:
            if not isinstance(block.arguments[i].type, ir.RankedTensorType) or block.arguments[i].type.rank != 2:
                raise NotApplicable(f"operand {i} is no matrix", where=self.name)
        encoding = named_encoding(self.format, self.positions, self.coordinates, (self.block_rows, self.block_columns))
        with func.operation.context, func.location:
            attribute = encoding_attribute(encoding)
            for i in marked:
                old = block.arguments[i].type
                block.arguments[i].set_type(ir.RankedTensorType.get(old.shape, old.element_type, attribute))
                del attributes[i]["ditto.sparse"]
            set_signature(func, attributes)
