"""Structural numbers of a sparse matrix, from its pattern (and whether its values differ)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.dialects.layouts import window_order

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import NDArray

SLICE = 32  # rows
BLOCK_ROWS = 24  # rows of a window that is looked at for blocks: whole blocks of every height
SAMPLED = 500_000  # entries that are looked at for blocks
BLOCKS = {"fill_2": (2, 2), "fill_3": (3, 3), "fill_4": (4, 4), "fill_8": (8, 4)}
WINDOW = 1024
PROBED = 4096  # rows whose diagonals are counted first
MOST_DIAGONALS = 8.0  # places an entry from which diagonals are not counted further


@dataclass(frozen=True)
class Features:
    """What the planner reads.

    `rows`, `columns`, `entries` are the sizes; `mean_row`, `max_row` the mean and the largest number of entries of a row;
    `variation` the standard deviation of row lengths over their mean (0 for an empty matrix); `empty_rows` the share
    of rows without entries.  For slices of 32 neighbouring rows, each as wide as its longest row (SELL-32): `padding` is the
    number of places over the number of entries (1 for an empty matrix), and `span` the most columns from the first to the last
    that a slice reads; `padding_sorted` and `span_sorted` are the same with rows sorted by falling length within windows of
    1024.  `fill_2`, `fill_3`, `fill_4` and `fill_8` are the shares of places that hold entries in blocks of 2 x 2, 3 x 3,
    4 x 4 and 8 x 4 (BSR; estimated from half a million entries).

    For other layouts: `ell_padding` is `rows * max_row / entries`, the places an entry of rows that are all as wide as the
    longest (1 for an empty matrix); `diagonals` the number of diagonals that hold entries, and `diagonal_padding` is
    `rows * diagonals / entries`.  Where the diagonals of 4096 rows, spread evenly, make more than 8 places an entry, those of
    the other rows are not looked at, and both numbers are lower bounds.  `row_span` is the most columns from the first to
    the last of one row, which offsets from a row's first column must reach.  `equal_values` says whether there are entries
    and the bits of all their values are the same.
    """

    rows: int
    columns: int
    entries: int
    mean_row: float
    max_row: int
    variation: float
    empty_rows: float
    padding: float = 1.0
    padding_sorted: float = 1.0
    span: int = 0
    span_sorted: int = 0
    fill_2: float = 0.0
    fill_3: float = 0.0
    fill_4: float = 0.0
    fill_8: float = 0.0
    ell_padding: float = 1.0
    diagonals: int = 0
    diagonal_padding: float = 1.0
    row_span: int = 0
    equal_values: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def analyse(csr: sp.csr_array) -> Features:
    """The features of a matrix in CSR form; cost is linear in its rows (in its entries, where it may have few diagonals)."""
    rows, columns = csr.shape
    lengths = np.diff(csr.indptr)
    mean = float(lengths.mean()) if rows else 0.0
    longest, diagonals, entries = int(lengths.max(initial=0)), _diagonals(csr), int(csr.nnz)
    by_length = window_order(lengths, WINDOW)
    return Features(
        rows=int(rows),
        columns=int(columns),
        entries=entries,
        mean_row=mean,
        max_row=longest,
        variation=float(lengths.std() / mean) if mean else 0.0,
        empty_rows=float((lengths == 0).mean()) if rows else 0.0,
        padding=_padding(lengths),
        padding_sorted=_padding(lengths[by_length]),
        span=_span(csr, np.arange(rows)),
        span_sorted=_span(csr, by_length),
        **_fills(csr),
        ell_padding=rows * longest / entries if entries else 1.0,
        diagonals=diagonals,
        diagonal_padding=rows * diagonals / entries if entries else 1.0,
        row_span=_row_span(csr, lengths),
        equal_values=_all_equal(csr.data),
    )


def _diagonals(csr: sp.csr_array) -> int:
    """The diagonals that hold entries: of some rows, and of all where those leave diagonals worth a try."""
    rows = int(csr.shape[0])
    if rows > PROBED:
        found = _occupied(csr, np.linspace(0, rows - 1, PROBED).astype(np.int64))
        if found * rows > MOST_DIAGONALS * csr.nnz:
            return found
    return _occupied(csr, None)


def _occupied(csr: sp.csr_array, picked: NDArray[np.int64] | None) -> int:
    """The number of diagonals on which these rows (None: all) have entries."""
    rows, columns = csr.shape
    part = csr if picked is None else csr[picked]
    row = np.repeat(np.arange(rows) if picked is None else picked, np.diff(part.indptr))
    diagonal = part.indices.astype(np.int64) - row + (rows - 1)
    if rows + columns > max(64 * diagonal.size, 1 << 24):  # far fewer entries than diagonals
        return _different(diagonal)
    seen = np.zeros(max(rows + columns - 1, 0), bool)
    seen[diagonal] = True
    return int(np.count_nonzero(seen))


def _different(numbers: NDArray[np.int64]) -> int:
    """How many different numbers there are (`np.unique` takes ten times as long)."""
    ordered = np.sort(numbers)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + bool(ordered.size)


def _row_span(csr: sp.csr_array, lengths: NDArray[np.integer]) -> int:
    """The most columns from the first to the last of a row; column indices are sorted."""
    some = np.flatnonzero(lengths)
    if not some.size:
        return 0
    first, last = csr.indices[csr.indptr[some]], csr.indices[csr.indptr[some + 1] - 1]
    return int((last - first).max()) + 1


def _all_equal(values: NDArray[Any]) -> bool:
    """Whether there are values, and no two differ (a NaN equals the same NaN); most matrices show it at once that some do."""
    if not values.size:
        return False
    bits = np.ascontiguousarray(values).view(f"uint{8 * values.itemsize}") if values.itemsize <= 8 else values
    return bool((bits[:64] == bits[0]).all() and (bits == bits[0]).all())


def _fills(csr: sp.csr_array) -> dict[str, float]:
    """The shares of places that hold entries in blocks, from windows of rows spread evenly over the matrix."""
    rows = int(csr.shape[0])
    share = min(1.0, SAMPLED / max(int(csr.nnz), 1))
    count = max(1, int(share * rows) // BLOCK_ROWS)
    starts = np.unique(np.linspace(0, max(rows - 1, 0) // BLOCK_ROWS, count).astype(np.int64)) * BLOCK_ROWS
    picked = np.concatenate([np.arange(s, min(s + BLOCK_ROWS, rows)) for s in starts]) if rows else np.arange(0)
    part = csr[picked] if len(picked) < rows else csr
    row = np.repeat(picked, np.diff(part.indptr))
    return {name: _fill(row, part.indices, *block) for name, block in BLOCKS.items()}


def _fill(row: NDArray[np.integer], column: NDArray[np.integer], height: int, width: int) -> float:
    """Entries over the places of the blocks of `height` x `width` that hold any."""
    if not len(row):
        return 0.0
    most = int(column.max()) // width + 1
    blocks = _different((row // height).astype(np.int64) * most + column // width)
    return len(row) / (blocks * height * width)


def _padding(lengths: NDArray[np.integer]) -> float:
    """Places of the slices over entries."""
    whole = np.zeros(-(-len(lengths) // SLICE) * SLICE, lengths.dtype)
    whole[: len(lengths)] = lengths
    places = int(whole.reshape(-1, SLICE).max(axis=1, initial=0).sum(dtype=np.int64)) * SLICE
    entries = int(lengths.sum(dtype=np.int64))
    return places / entries if entries else 1.0


def _span(csr: sp.csr_array, rows: NDArray[np.integer]) -> int:
    """The most columns from the first to the last of a slice of the rows in this order; column indices are sorted."""
    slots = np.flatnonzero(np.diff(csr.indptr)[rows])
    if not slots.size:
        return 0
    some = rows[slots]
    first, last = csr.indices[csr.indptr[some]], csr.indices[csr.indptr[some + 1] - 1]
    starts = np.flatnonzero(np.diff(slots // SLICE, prepend=-1))
    return int((np.maximum.reduceat(last, starts) - np.minimum.reduceat(first, starts)).max()) + 1


def transposed(csr: sp.csr_array) -> Features:
    """The features of the transposed matrix (its rows are the columns of `csr`)."""
    return analyse(csr.tocsc().T.tocsr() if csr.nnz else type(csr)((csr.shape[1], csr.shape[0]), dtype=csr.dtype))
