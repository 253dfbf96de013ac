"""What is estimated: from windows of whole rows, from entries spread evenly, and from columns picked by a hash.

Up to `SAMPLED` entries all of them are looked at, and the results are exact.  Nothing is random: a matrix always gives the
same numbers.  What one sample says is given beside it; all errors are one standard deviation, of a share p near 1/2.

- **Windows** (`row_windows`): blocks of 24 neighbouring rows, spread evenly, of about half a million entries in all.  What
  neighbours have in common needs whole rows; windows are alike inside, so an error is that of their number, about
  sqrt(p (1 - p) / windows): 0.004 for 20,000 windows of one entry a row, 0.02 for 500 of rows of forty.  Where few
  rows hold much, a few windows decide: gaps of an R-MAT graph may be off by a factor of two, and shares by 0.05.
- **Entries** (`spread_entries`): one of every n, at a place in its stretch that the golden ratio picks, since a fixed place
  would meet the same column of every row where rows are alike.  32,768 of them tell a share to 0.003.
- **Columns** (`column_uses`): those whose multiplicative hash (Knuth, The Art of Computer Programming 3, 6.4) is small, with
  all of their entries, about half a million; they say how often columns are used, which entries that are spread cannot.
  Columns that hold much of the matrix are found among the entries instead, to 1/8 of their use.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.agent.features.distribution import Distribution
from sparseditto.agent.features.walks import ENTRIES, different, in_parts, pieces, places_of

if TYPE_CHECKING:
    import scipy.sparse as sp

SAMPLED = 500_000  # entries up to which everything is exact, and about as many in windows of larger matrices
WINDOW_ROWS = 24  # whole blocks of every height, and as many columns are whole blocks of every width
WINDOW_ENTRIES = 1 << 17  # of a window that may be one of many: of more, the first columns are looked at
SPREAD = 1 << 17  # entries among which columns that hold much are found
MIRRORED = 1 << 15  # entries whose mirrors are looked up
HASHED = 1 << 19  # entries of the columns that are picked
OFTEN = 64  # times a column is met among SPREAD entries, from which that tells its use
GOLDEN = 0.6180339887498949  # (sqrt(5) - 1) / 2
SECTOR = 8  # values of 4 bytes in 32

Array = NDArray[Any]


# --- Windows of rows ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Windows:
    """Rows with their entries: `rows` in rising order, the `lengths` of them, and the `columns` of all their entries.

    `share` is that of the matrix's entries that are among them.
    """

    rows: Array
    lengths: Array
    columns: Array
    share: float


def row_windows(csr: sp.csr_array) -> Windows:
    """All rows of a small matrix, else windows of them.

    Of a window that has too many entries only the first columns are looked at, as many for each of its rows, so that one very
    long row costs no more than others.
    """
    rows, entries = int(csr.shape[0]), int(csr.nnz)
    if entries <= SAMPLED:
        return Windows(np.arange(rows), np.diff(csr.indptr), csr.indices, 1.0)
    count = max(1, int(SAMPLED / entries * rows) // WINDOW_ROWS)
    starts = np.unique(np.linspace(0, (rows - 1) // WINDOW_ROWS, count).astype(np.int64)) * WINDOW_ROWS
    stops = np.minimum(starts + WINDOW_ROWS, rows)
    most = max(2 * SAMPLED // count, WINDOW_ENTRIES)
    held = np.minimum(csr.indptr[stops] - csr.indptr[starts], most)
    thinned = slice(None, None, max(1, -(-int(held.sum(dtype=np.int64)) // (2 * SAMPLED))))
    starts, stops = starts[thinned], stops[thinned]
    picked = (starts[:, np.newaxis] + np.arange(WINDOW_ROWS)).ravel()
    picked = picked[: picked.size + min(0, rows - WINDOW_ROWS - int(starts[-1]))]  # the last window may be cut off
    first = csr.indptr[picked].astype(np.int64)
    lengths = csr.indptr[picked + 1] - first
    width = most // WINDOW_ROWS**2 * WINDOW_ROWS
    for number in np.flatnonzero(csr.indptr[stops] - csr.indptr[starts] > most):
        mine = range(starts[number], stops[number])
        lengths[number * WINDOW_ROWS :][: len(mine)] = [_before(csr, row, width) for row in mine]
    place = places_of(first, lengths)
    return Windows(picked, lengths, csr.indices[place], place.size / entries)


def _before(csr: sp.csr_array, row: int, column: int) -> int:
    """How many entries of a row are before a column."""
    return int(np.searchsorted(csr.indices[csr.indptr[row] : csr.indptr[row + 1]], column))


def fill(windows: Windows, height: int, width: int) -> float:
    """Entries over the places of the blocks of `height` x `width` that hold any."""
    if not windows.columns.size:
        return 0.0
    most = int(windows.columns.max()) // width + 1
    blocks = np.repeat(windows.rows // height * most, windows.lengths)
    blocks += windows.columns // width
    return windows.columns.size / (different(blocks) * height * width)


@dataclass(frozen=True)
class Locality:
    """How near to each other the columns of a row are, and whether the next row has the same."""

    median_gap: int
    gap_q90: int
    adjacent: float
    sectors: float
    row_overlap: float


def locality(windows: Windows, columns: int) -> Locality:
    local = np.repeat(np.arange(windows.rows.size), windows.lengths)
    column = windows.columns
    inner = local[1:] == local[:-1]
    gaps = Distribution(*_runs(np.sort(np.diff(column)[inner])))
    beside = gaps.counts[gaps.sizes == 1].sum() / gaps.members if gaps.members else 0.0
    fresh = np.append(True, ~inner | (column[1:] // SECTOR != column[:-1] // SECTOR)) if column.size else np.zeros(0, bool)
    follows = np.diff(windows.rows, prepend=-2) == 1  # the row before it is there too
    place = local * columns + column
    wanted = place[follows[local]] - columns
    found = wanted.size + place.size - different(np.concatenate((place, wanted)))
    return Locality(
        gaps.quantile(0.5),
        gaps.quantile(0.9),
        float(beside),
        _mean(fresh),
        found / wanted.size if wanted.size else 0.0,
    )


def _mean(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean()) if flags.size else 0.0


# --- Entries that are spread evenly -------------------------------------------------------------------


def spread_entries(entries: int, count: int) -> Array:
    """The places of `count` entries, one in each of as many equal stretches; all of them where there are no more."""
    if entries <= count:
        return np.arange(entries)
    number = np.arange(count)
    return ((number + number * GOLDEN % 1) * (entries / count)).astype(np.int64)


@dataclass(frozen=True)
class Mirrors:
    """Of the entries off the diagonal: the share whose mirror is stored (`symmetry`), and with the same value (a NaN equals a
    NaN); 1 where there are none, 0 where the matrix is not square.
    """

    symmetry: float
    value_symmetry: float


def mirrors(csr: sp.csr_array) -> Mirrors:
    if csr.shape[0] != csr.shape[1]:
        return Mirrors(0.0, 0.0)
    row, column, place = _some_entries(csr)
    outside = row != column
    if not outside.any():
        return Mirrors(1.0, 1.0)
    there = stored_at(csr, column[outside], row[outside])
    stored = there >= 0
    here, mirror = csr.data[place[outside]][stored], csr.data[there[stored]]
    equal = (here == mirror) | (here != here) & (mirror != mirror)
    return Mirrors(_mean(stored), int(np.count_nonzero(equal)) / stored.size)


def full_diagonal(csr: sp.csr_array) -> float:
    """The share of the places on the main diagonal that hold an entry; 0 where there is no place."""
    places = min(map(int, csr.shape))
    if csr.nnz > SAMPLED:
        some = spread_entries(places, MIRRORED)
        return _mean(stored_at(csr, some, some) >= 0)
    row, column, _ = _some_entries(csr)
    return int(np.count_nonzero(row == column)) / places if places else 0.0


def _some_entries(csr: sp.csr_array) -> tuple[Array, Array, Array]:
    """Rows, columns and places of entries that are spread evenly, or of all."""
    entries = int(csr.nnz)
    place = spread_entries(entries, SAMPLED if entries <= SAMPLED else MIRRORED)
    row = np.searchsorted(csr.indptr, place.astype(csr.indptr.dtype), side="right") - 1  # of another type it is copied
    return row, csr.indices[place].astype(np.int64), place


def stored_at(csr: sp.csr_array, row: Array, column: Array) -> Array:
    """The place of each entry (row, column), -1 where none is stored: a binary search in all of these rows at a time."""
    low, behind = csr.indptr[row].astype(np.int64), csr.indptr[row + 1].astype(np.int64)
    high = behind.copy()
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) // 2
        before = (low < high) & (csr.indices[np.minimum(middle, csr.nnz - 1)] < column)
        high = np.where(before, high, np.minimum(middle, high))
        low = np.where(before, middle + 1, low)
    found = (low < behind) & (csr.indices[np.minimum(low, csr.nnz - 1)] == column)
    return np.where(found, low, -1)


# --- Columns ------------------------------------------------------------------------------------------


def column_uses(csr: sp.csr_array, pool: Executor) -> Distribution:
    """How many columns have how many entries, those without any among them."""
    columns, entries = int(csr.shape[1]), int(csr.nnz)
    if entries <= SAMPLED:
        return _with_unused(*_histogram(_runs(np.sort(csr.indices))[1]), columns)
    place = spread_entries(entries, SPREAD)
    often, met = _runs(np.sort(csr.indices.take(place)))
    often, met = often[met >= OFTEN], met[met >= OFTEN]
    share = min(1.0, HASHED / entries)
    parts = in_parts(pool, entries, ENTRIES, lambda start, stop: _hashed(csr.indices[start:stop], share))
    picked, uses = _runs(np.sort(np.concatenate(parts)))
    sizes, counts = _histogram(uses[~np.isin(picked, often)])
    estimated = np.rint(met * (entries / place.size)).astype(np.int64)
    return _with_unused(np.append(sizes, estimated), np.append(counts / share, np.ones(met.size)), columns)


def _histogram(numbers: Array) -> tuple[Array, Array]:
    """The different numbers and how often each occurs."""
    counts = np.bincount(numbers)
    some = np.flatnonzero(counts)
    return some, counts[some]


def _with_unused(uses: Array, counts: Array, columns: int) -> Distribution:
    """With the columns that have no entries, so that all together are `columns`."""
    used = min(float(counts.sum()), float(columns))
    counts = counts * (used / max(float(counts.sum()), 1.0))
    return Distribution.of(np.append(uses, 0), np.append(counts, columns - used))


def _hashed(columns: Array, share: float) -> Array:
    """Those of these columns whose hash is among this share of the smallest."""
    bits = 8 * columns.itemsize
    word = np.dtype(f"uint{bits}").type
    factor, least = word(int(GOLDEN * 2**bits) | 1), word(int(share * 2**bits) - 1)
    kept = []
    for start, stop in pieces(columns.size, ENTRIES):
        piece = columns[start:stop]
        kept.append(piece.compress(piece.view(word) * factor <= least))
    return np.concatenate(kept) if kept else columns[:0]


def _runs(ordered: Array) -> tuple[Array, Array]:
    """The different numbers of an ordered array and how often each occurs."""
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if ordered.size else np.zeros(0, np.int64)
    return ordered[starts], np.diff(starts, append=ordered.size)
