"""How a sparse operand is stored: a value type that mirrors `#sparse_tensor.encoding`, without MLIR.

The packer and a packed kernel on a machine without MLIR both read it; `binding.py` turns it into the attribute.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sparseditto.dialects.errors import InputError

LEVEL_TYPES = ("dense", "compressed", "singleton", "loose_compressed")
INDEX_WIDTHS = (8, 16, 32, 64)


@dataclass(frozen=True)
class Level:
    """One level of storage: which dimension it walks and how.

    `dim` is the tensor dimension; `op` with `size` says which part of its coordinate the level holds:
    `None` all of it, `"floordiv"` the block number, `"mod"` the place inside the block of `size`.
    `type` is one of `LEVEL_TYPES`; `unique` is false where a coordinate may repeat (COO's first level).
    """

    dim: int
    type: str = "dense"
    op: str | None = None
    size: int = 1
    unique: bool = True

    def expression(self) -> str:
        return f"d{self.dim}" if self.op is None else f"d{self.dim} {self.op} {self.size}"

    def extent(self, dim_size: int) -> int:
        """Number of coordinates of this level for a dimension of `dim_size`."""
        if self.op == "mod":
            return self.size
        return -(-dim_size // self.size) if self.op == "floordiv" else dim_size


@dataclass(frozen=True)
class Encoding:
    """Levels in storage order, and the widths in bits of stored positions and coordinates."""

    levels: tuple[Level, ...]
    position_width: int = 32
    coordinate_width: int = 32

    @property
    def rank(self) -> int:
        """Number of tensor dimensions (levels may be more: blocks)."""
        return 1 + max(level.dim for level in self.levels)

    def level_sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(level.extent(shape[level.dim]) for level in self.levels)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Encoding:
        try:
            return Encoding(tuple(Level(**level) for level in data["levels"]), data["position_width"], data["coordinate_width"])
        except (KeyError, TypeError) as e:
            raise InputError(f"this is no stored encoding: {e}") from e

    def text(self) -> str:
        """The attribute as MLIR writes it."""
        dims = ", ".join(f"d{d}" for d in range(self.rank))
        levels = ", ".join(
            f"{level.expression()} : {level.type}{'' if level.unique else '(nonunique)'}" for level in self.levels
        )
        return (
            f"#sparse_tensor.encoding<{{ map = ({dims}) -> ({levels}), "
            f"posWidth = {self.position_width}, crdWidth = {self.coordinate_width} }}>"
        )


def named_encoding(
    name: str, position_width: int = 32, coordinate_width: int = 32, block: tuple[int, int] = (4, 4)
) -> Encoding:
    """The matrix format that the field calls `name`: csr, csc, dcsr, dcsc or bsr.  Raises `InputError` on another name."""
    dense, compressed = "dense", "compressed"
    bi, bj = block
    formats = {
        "csr": (Level(0), Level(1, compressed)),
        "csc": (Level(1), Level(0, compressed)),
        "dcsr": (Level(0, compressed), Level(1, compressed)),
        "dcsc": (Level(1, compressed), Level(0, compressed)),
        "bsr": (
            Level(0, dense, "floordiv", bi),
            Level(1, compressed, "floordiv", bj),
            Level(0, dense, "mod", bi),
            Level(1, dense, "mod", bj),
        ),
    }
    if name not in formats:
        raise InputError(f"no format is named '{name}'; there are {', '.join(formats)}")
    return Encoding(formats[name], position_width, coordinate_width)
