"""What a nonzero costs in each storage format, and how few bits its indices need: from `Features` alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from sparseditto.agent.features.definition import Kind, feature
from sparseditto.agent.features.formats import PatternSizes, format_sizes
from sparseditto.agent.features.pattern import HYBRID, SLICED, Features

BLOCKS = {(2, 2): "fill_2", (3, 3): "fill_3", (4, 4): "fill_4", (8, 4): "fill_8"}
INDEX_BYTES = 4

_width = partial(feature, kind=Kind.REPRESENTATION, unit="bits")
_bytes = partial(feature, kind=Kind.REPRESENTATION, unit="bytes an entry")


@dataclass(frozen=True)
class Storage:
    """Bits are 8, 16, 32 or 64, the fewest that hold the largest number.  Bytes are of all arrays over the entries, 0 without
    entries; indices have 32 bits (64 where these do not suffice) unless it says otherwise.
    """

    absolute_bits: int = _width("of a column: holds columns - 1")
    row_offset_bits: int = _width("of a column as an offset from the first of its row: holds row_span - 1")
    slice_offset_bits: int = _width("of a column as an offset from the first of 32 rows, with a mark: holds span")
    delta_bits: int = _width("of the difference to the column before it in the row: holds max_gap")
    csr_bytes: float = _bytes("(4 * (rows + 1) + entries * (4 + value bytes)) / entries: CSR")
    csr_narrow_bytes: float = _bytes("CSR with columns of absolute_bits")
    row_offset_bytes: float = _bytes("CSR with columns of row_offset_bits and a base of 32 bits a row")
    delta_bytes: float = _bytes("CSR with columns of delta_bits and a base of 32 bits a row")
    coo_bytes: float = _bytes("COO: two coordinates and a value an entry")
    ell_bytes: float = _bytes("ELL: rows * max_row coordinates and values")
    sell_bytes: float = _bytes("SELL-32: padding coordinates and values an entry, a position a slice", source=SLICED)
    sell_sorted_bytes: float = _bytes("the same with padding_sorted, and a row number a row", source=SLICED)
    slice_offset_bytes: float = _bytes("SELL-32 with columns of slice_offset_bits and a base of 32 bits a slice")
    hybrid_bytes: float = _bytes("ELL of hybrid_width, what is beyond it as COO", source=HYBRID)
    bsr_2_bytes: float = _bytes("BSR 2 x 2: a coordinate and 4 values a block", estimated=True)
    bsr_3_bytes: float = _bytes("BSR 3 x 3: a coordinate and 9 values a block", estimated=True)
    bsr_4_bytes: float = _bytes("BSR 4 x 4: a coordinate and 16 values a block", estimated=True)
    bsr_8_bytes: float = _bytes("BSR 8 x 4: a coordinate and 32 values a block", estimated=True)
    dia_bytes: float = _bytes("DIA: rows values a diagonal, and its offset")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def storage(f: Features, value_bytes: int) -> Storage:
    """The storage features of a matrix whose values have so many bytes."""
    sizes = {size.name: size.bytes for size in format_sizes(pattern_sizes(f), value_bytes)}

    def each(size: float | None) -> float:
        return size / f.entries if size is not None and f.entries else 0.0

    widths = bits(f.columns - 1), bits(f.row_span - 1), bits(f.span), bits(f.max_gap)
    csr, sell = sizes["CSR"] or 0, sizes["SELL-32"] or 0
    stored = 4 if f.columns <= 1 << 31 else 8
    absolute, row_offset, slice_offset, delta = (width // 8 - stored for width in widths)
    beyond = f.hybrid_rest * f.entries
    ell = f.rows * f.hybrid_width
    return Storage(
        *widths,
        csr_bytes=each(csr),
        csr_narrow_bytes=each(csr + f.entries * absolute),
        row_offset_bytes=each(csr + f.entries * row_offset + f.rows * INDEX_BYTES),
        delta_bytes=each(csr + f.entries * delta + f.rows * INDEX_BYTES),
        coo_bytes=each(sizes["COO"]),
        ell_bytes=each(sizes["ELL"]),
        sell_bytes=each(sell),
        sell_sorted_bytes=each(sizes["SELL-32 sorted"]),
        slice_offset_bytes=each(sell + f.padding * f.entries * slice_offset + -(-f.rows // 32) * INDEX_BYTES),
        hybrid_bytes=each(ell * (stored + value_bytes) + beyond * (2 * stored + value_bytes)),
        bsr_2_bytes=each(sizes["BSR 2x2"]),
        bsr_3_bytes=each(sizes["BSR 3x3"]),
        bsr_4_bytes=each(sizes["BSR 4x4"]),
        bsr_8_bytes=each(sizes["BSR 8x4"]),
        dia_bytes=each(sizes["DIA"]),
    )


def pattern_sizes(f: Features) -> PatternSizes:
    """What the sizes of formats follow from, with blocks as estimated."""
    blocks = {
        (height, width): round(f.entries / (getattr(f, name) * height * width)) if getattr(f, name) else 0
        for (height, width), name in BLOCKS.items()
    }
    filled = f.rows - round(f.empty_rows * f.rows)
    sliced, ordered = (round(padding * f.entries) for padding in (f.padding, f.padding_sorted))
    return PatternSizes(f.rows, f.columns, f.entries, f.max_row, filled, blocks, sliced, ordered, f.diagonals)


def bits(largest: int) -> int:
    """The fewest of 8, 16, 32 and 64 bits that hold `largest` without a sign."""
    return next(width for width in (8, 16, 32, 64) if largest < 1 << width)
