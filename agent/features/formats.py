"""How many bytes a matrix takes in each storage format, from a few numbers of its pattern; nothing is packed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SLICE = 32  # rows of a slice of SELL-32


@dataclass(frozen=True)
class PatternSizes:
    """What the sizes of formats follow from.

    `max_row` is the length of the longest row, `filled_rows` the number of rows that have entries, `blocks` the number of
    blocks that have entries by their rows and columns, `sliced` and `sliced_sorted` the number of places of SELL-32 (rows as
    they are, or sorted by length in windows), `diagonals` the number of diagonals that have entries, `lower` the number of
    entries on and below the diagonal of a symmetric matrix (None: it is not known to be symmetric).
    """

    rows: int
    columns: int
    entries: int
    max_row: int = 0
    filled_rows: int = 0
    blocks: dict[tuple[int, int], int] = field(default_factory=dict)
    sliced: int = 0
    sliced_sorted: int = 0
    diagonals: int = 0
    lower: int | None = None


@dataclass(frozen=True)
class FormatSize:
    """What a format takes.

    `bytes` is None where the format cannot hold the matrix, and `why` says the reason.  `places` is the number of stored
    values, padding among them; `positions` and `coordinates` are the widths of the indices in bits, 0 where there are none.
    """

    name: str
    bytes: int | None
    places: int
    positions: int = 0
    coordinates: int = 0
    why: str = ""

    def to_json(self, entries: int) -> dict[str, Any]:
        each = None if self.bytes is None or not entries else self.bytes / entries
        return asdict(self) | {"bytes_per_entry": each, "fill": self.places / entries if entries else None}


def format_sizes(p: PatternSizes, value_bytes: int) -> list[FormatSize]:
    """The size of every format whose indices are of 32 bits (64 where these do not suffice; 16 where it says so)."""
    row, column = _width(p.rows - 1), _width(p.columns - 1)
    at = _width(p.entries)
    stored = p.entries * value_bytes
    found = [
        FormatSize("CSR", _bytes(at, p.rows + 1) + _bytes(column, p.entries) + stored, p.entries, at, column),
        _narrow("CSR 16", p.columns, _bytes(at, p.rows + 1) + _bytes(16, p.entries) + stored, p.entries, at),
        FormatSize("CSC", _bytes(at, p.columns + 1) + _bytes(row, p.entries) + stored, p.entries, at, row),
        _narrow("CSC 16", p.rows, _bytes(at, p.columns + 1) + _bytes(16, p.entries) + stored, p.entries, at),
        FormatSize(
            "DCSR",
            _bytes(at, 2 + p.filled_rows + 1) + _bytes(max(row, column), p.filled_rows + p.entries) + stored,
            p.entries,
            at,
            max(row, column),
        ),
        FormatSize("COO", _bytes(at, 2) + _bytes(max(row, column), 2 * p.entries) + stored, p.entries, at, max(row, column)),
    ]
    found += [_blocked(p, *block, count, value_bytes) for block, count in p.blocks.items()]
    places = p.rows * p.max_row
    found.append(FormatSize("ELL", places * value_bytes + _bytes(column, places), places, 0, column))
    found += [_sliced(p, "SELL-32", p.sliced, value_bytes, 0), _sliced(p, "SELL-32 sorted", p.sliced_sorted, value_bytes, row)]
    places = p.diagonals * p.rows
    found.append(FormatSize("DIA", places * value_bytes + _bytes(max(row, column), p.diagonals), places, 0, max(row, column)))
    found.append(_lower(p, value_bytes))
    return found


def _width(largest: int) -> int:
    """Bits of an index that goes up to `largest`, 32 at least."""
    return 32 if largest < 1 << 31 else 64


def _bytes(width: int, count: int) -> int:
    return width // 8 * count


def _narrow(name: str, extent: int, size: int, places: int, positions: int) -> FormatSize:
    if extent > 2**16:
        return FormatSize(name, None, places, positions, 16, f"coordinates up to {extent - 1} need more than 16 bits")
    return FormatSize(name, size, places, positions, 16)


def _lower(p: PatternSizes, value_bytes: int) -> FormatSize:
    """One triangle, in CSR."""
    column = _width(p.columns - 1)
    if p.lower is None:
        return FormatSize(
            "CSR lower", None, p.entries, _width(p.entries), column, "the matrix is not known to equal its transpose"
        )
    at = _width(p.lower)
    total = _bytes(at, p.rows + 1) + _bytes(column, p.lower) + p.lower * value_bytes
    return FormatSize("CSR lower", total, p.lower, at, column)


def _blocked(p: PatternSizes, height: int, width: int, count: int, value_bytes: int) -> FormatSize:
    at, column = _width(count), _width(-(-p.columns // width) - 1)
    places = count * height * width
    total = _bytes(at, -(-p.rows // height) + 1) + _bytes(column, count) + places * value_bytes
    return FormatSize(f"BSR {height}x{width}", total, places, at, column)


def _sliced(p: PatternSizes, name: str, places: int, value_bytes: int, order_width: int) -> FormatSize:
    at, column = _width(places), _width(p.columns - 1)
    total = _bytes(at, -(-p.rows // SLICE) + 1) + _bytes(column, places) + places * value_bytes + _bytes(order_width, p.rows)
    return FormatSize(name, total, places, at, column)
