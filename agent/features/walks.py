"""Exact walks over a matrix in pieces that stay in the cache, on several threads.

What decides whether a layout is legal must be exact: the lengths of rows, the columns that rows and slices span, the largest
gap, the occupied diagonals.  All of it follows from the positions, from the first and the last entry of each row, or from one
pass over the coordinates.  A piece at a time is an order of magnitude faster than arrays as long as the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sparseditto.agent.features.distribution import Distribution
from sparseditto.agent.features.formats import SLICE
from sparseditto.dialects.layouts import window_order, window_shortfalls

if TYPE_CHECKING:
    import scipy.sparse as sp

WINDOW = 1024  # rows that are sorted by length
ROWS = 1 << 17  # of a piece; a multiple of WINDOW
ENTRIES = 1 << 16  # of a piece
FAR = 1 << 16  # columns: no offset of 16 bits reaches farther, and by how much is not asked
FEW = 12  # entries: of rows that have no more, windows are counted, which is faster than to sort them
SHORT = 1 << 16  # entries: longer rows are so few that they are listed
PROBED = 4096  # rows whose diagonals are counted first
PROBED_ENTRIES = 256  # of each of them
MOST_DIAGONALS = 8.0  # places an entry from which diagonals are not counted further
PARTS = 8  # of a walk, more than threads, so that none waits long for another

Array = NDArray[Any]
T = TypeVar("T")


class Most(NamedTuple):
    """What is the largest of any piece."""

    row_span: int = 0
    span: int = 0
    span_sorted: int = 0
    below: int = 0
    above: int = 0


class Total(NamedTuple):
    """What adds up over the pieces."""

    places: int = 0
    places_sorted: int = 0
    spans: int = 0
    envelope: int = 0


@dataclass(frozen=True)
class Rows:
    """What the walk over the rows finds."""

    lengths: Distribution
    most: Most
    total: Total


def keep_freed_memory() -> None:
    """Have the arrays of one piece stand where those of the last one stood.

    glibc gives memory back to the system, page by page, unless a larger block has been freed before (mallopt(3), on the dynamic
    M_MMAP_THRESHOLD, which follows blocks of up to 32 MiB); to get it back takes longer than what is computed in it.
    """
    np.empty(24 << 20, np.uint8)


def pieces(size: int, step: int) -> Iterator[tuple[int, int]]:
    """(first, one behind the last) of pieces of `step`, the last of what is left."""
    return ((start, min(start + step, size)) for start in range(0, size, step))


def in_parts(pool: Executor, size: int, step: int, work: Callable[[int, int], T]) -> list[T]:
    """`work(start, stop)` of about `PARTS` parts, each of whole pieces of `step`, in their order."""
    part = step * max(1, -(-size // (step * PARTS)))
    return list(pool.map(lambda ends: work(*ends), pieces(size, part)))


# --- Rows ---------------------------------------------------------------------------------------------


def walk_rows(csr: sp.csr_array, pool: Executor) -> Rows:
    """Lengths, slices, spans and bandwidths; exact, in time linear in the rows."""
    walks = in_parts(pool, csr.shape[0], ROWS, lambda start, stop: _RowWalk(csr, start, stop))
    return Rows(
        _lengths(walks),
        Most(*map(max, zip(Most(), *(walk.most for walk in walks), strict=True))),
        Total(*map(sum, zip(Total(), *(walk.total for walk in walks), strict=True))),
    )


class _RowWalk:
    """The rows from `start` to `stop`."""

    def __init__(self, csr: sp.csr_array, start: int, stop: int) -> None:
        self._csr = csr
        self._wide = np.dtype(np.int32 if max(csr.shape) < 1 << 31 else np.int64)
        self.short = np.zeros(SHORT, np.int64)  # rows by their length
        self.long: list[Array] = []
        self.most, self.total = Most(), Total()
        for first, behind in pieces(stop - start, ROWS):
            self._piece(start + first, start + behind)

    def _piece(self, start: int, stop: int) -> None:
        lengths = np.diff(self._csr.indptr[start : stop + 1])
        longest, shortest = int(lengths.max()), int(lengths.min())
        alike = shortest == longest
        order = None if alike or self.most.span_sorted > FAR else window_order(lengths, WINDOW)
        places = _places(lengths)
        if longest > FEW or alike:
            self._count(lengths, longest)
            places_sorted = places if alike else _places_sorted(lengths, longest)
        else:
            places_sorted = self._count_few(lengths, longest)
        most, spans, envelope = self._ends(start, lengths, order, alike) if longest else (Most(), 0, 0)
        self.most = Most(*map(max, self.most, most))
        total = Total(places, places_sorted, spans, envelope)
        self.total = Total(*map(sum, zip(self.total, total, strict=True)))

    def _count(self, lengths: Array, longest: int) -> None:
        if longest >= SHORT:
            self.long.append(lengths[lengths >= SHORT])
            lengths = lengths[lengths < SHORT]
        counts = np.bincount(lengths)
        self.short[: counts.size] += counts

    def _count_few(self, lengths: Array, longest: int) -> int:
        """Count the lengths; gives what `_places_sorted` does.

        Where k rows of a window have at least n entries, so have the first rows of its first k / SLICE slices, rounded up.
        """
        windows = np.zeros((-(-lengths.size // WINDOW), WINDOW), np.uint8)
        windows.reshape(-1)[: lengths.size] = lengths
        reach = [(windows >= n).view(np.uint8).sum(axis=1, dtype=np.int32) for n in range(1, longest + 1)]
        totals = [lengths.size, *(int(rows.sum()) for rows in reach), 0]
        self.short[: longest + 1] -= np.diff(totals)
        return SLICE * sum(int((-(-rows // SLICE)).sum()) for rows in reach)

    def _ends(self, start: int, lengths: Array, order: Array | None, alike: bool) -> tuple[Most, int, int]:
        """From the first and the last column of each row, which are in order.

        A row without entries begins behind all rows and columns, and ends before them: then it counts nowhere.
        """
        csr, stop, behind = self._csr, start + lengths.size, max(self._csr.shape)
        positions = csr.indptr[start : stop + 1]
        first = csr.indices.take(positions[:-1], mode="clip").astype(self._wide, copy=False)
        last = csr.indices.take(positions[1:] - 1, mode="clip").astype(self._wide, copy=False)
        some = lengths > 0
        filled = int(np.count_nonzero(some))
        if filled < lengths.size:  # what `np.where` does, which is slow where rows with and without entries alternate
            first = np.maximum(first, np.multiply(~some, behind, dtype=self._wide))
            last = np.minimum(last, np.multiply(some, np.iinfo(self._wide).max, dtype=self._wide) - 1)
        row = np.arange(start, stop, dtype=self._wide)
        spans, below = last - first, row - first
        span = _slice_span(first, last)
        span_sorted = span if alike else 0 if order is None else _slice_span(first.take(order), last.take(order))
        most = Most(int(spans.max()) + 1, span, span_sorted, int(below.max()), int((last - row).max()))
        empty = lengths.size - filled
        return (
            most,
            int(spans.sum(dtype=np.int64)) + filled + empty * (1 + behind),
            int(np.maximum(below, 0).sum(dtype=np.int64)),
        )


def _lengths(walks: list[_RowWalk]) -> Distribution:
    short = sum((walk.short for walk in walks), np.zeros(SHORT, np.int64))
    some = np.flatnonzero(short)
    long, counts = np.unique(
        np.concatenate([some[:0], *(lengths for walk in walks for lengths in walk.long)]), return_counts=True
    )
    return Distribution(np.append(some, long), np.append(short[some], counts))


def _places(lengths: Array) -> int:
    """Of slices that are each as wide as their longest row."""
    return SLICE * int(np.maximum.reduceat(lengths, np.arange(0, lengths.size, SLICE)).sum(dtype=np.int64))


def _places_sorted(lengths: Array, longest: int) -> int:
    """The same where rows are sorted within windows: the first row of a slice is its longest."""
    missing = window_shortfalls(lengths, WINDOW)
    missing.sort(axis=1, kind="stable")
    return SLICE * int((longest - missing[:, ::SLICE].astype(np.int64)).sum())


def _slice_span(first: Array, last: Array) -> int:
    """The most columns from the first to the last of a slice."""
    starts = np.arange(0, first.size, SLICE)
    return int((np.maximum.reduceat(last, starts) - np.minimum.reduceat(first, starts)).max()) + 1


# --- Entries ------------------------------------------------------------------------------------------


def largest_gap(csr: sp.csr_array, pool: Executor) -> int:
    """The largest difference of two neighbouring columns of a row; 0 where no row has two."""
    return max(in_parts(pool, int(csr.nnz), ENTRIES, lambda start, stop: _largest_gap(csr, start, stop)), default=0)


def _largest_gap(csr: sp.csr_array, start: int, stop: int) -> int:
    """Of the entries from `start` to `stop` and what is before each of them."""
    most = 0
    for first, behind in pieces(stop - start, ENTRIES):
        before = max(start + first - 1, 0)
        gaps = np.diff(csr.indices[before : start + behind])
        if gaps.max(initial=0) > most:  # perhaps from one row to the next
            ends = np.searchsorted(csr.indptr, np.array((before + 1, start + behind), csr.indptr.dtype))
            gaps[csr.indptr[slice(*ends)] - (before + 1)] = 0
            most = max(most, int(gaps.max()))
    return most


def all_equal(values: Array) -> bool:
    """Whether there are values, and no two differ (a NaN equals the same NaN); most matrices show it at once that some do."""
    if not values.size:
        return False
    bits = np.ascontiguousarray(values).view(f"uint{8 * values.itemsize}") if values.itemsize <= 8 else values
    return all(bool((bits[start:stop] == bits[0]).all()) for start, stop in pieces(bits.size, ENTRIES))


# --- Diagonals ----------------------------------------------------------------------------------------


def occupied_diagonals(csr: sp.csr_array, pool: Executor) -> int:
    """The diagonals that hold entries: of some rows, and of all where those leave diagonals worth a try."""
    rows = int(csr.shape[0])
    if rows > PROBED:
        found = _probed_diagonals(csr, np.linspace(0, rows - 1, PROBED).astype(np.int64))
        if found * rows > MOST_DIAGONALS * csr.nnz:
            return found
    if sum(csr.shape) > max(64 * csr.nnz, 1 << 24):  # far fewer entries than diagonals
        return different(csr.indices.astype(np.int64) - np.repeat(np.arange(rows), np.diff(csr.indptr)))
    seen = np.zeros(max(sum(csr.shape) - 1, 0), bool)
    in_parts(pool, rows, ROWS, lambda start, stop: _see_diagonals(csr, seen, start, stop))
    return int(np.count_nonzero(seen))


def _probed_diagonals(csr: sp.csr_array, picked: Array) -> int:
    """The diagonals on which these rows have their first entries; a row of more entries has a diagonal for each."""
    first = csr.indptr[picked].astype(np.int64)
    whole = csr.indptr[picked + 1] - first
    lengths = np.minimum(whole, PROBED_ENTRIES)
    columns = csr.indices[places_of(first, lengths)].astype(np.int64)
    return max(different(columns - np.repeat(picked, lengths)), int(whole.max()))


def places_of(first: Array, lengths: Array) -> Array:
    """`first`, `first` + 1, … of each row, so many as it has entries."""
    return np.arange(lengths.sum()) + np.repeat(first - (np.cumsum(lengths) - lengths), lengths)


def _see_diagonals(csr: sp.csr_array, seen: NDArray[np.bool_], start: int, stop: int) -> None:
    """Set `seen[column - row + rows - 1]` for the entries of these rows."""
    step = max(1, ENTRIES * (stop - start) // max(int(csr.indptr[stop] - csr.indptr[start]), 1))
    wide = np.int32 if sum(csr.shape) < 1 << 31 else np.int64
    for first, behind in pieces(stop - start, step):
        positions = csr.indptr[start + first : start + behind + 1]
        row = np.arange(start + first, start + behind, dtype=wide) - (csr.shape[0] - 1)
        columns = csr.indices[positions[0] : positions[-1]]
        place = columns - np.repeat(row, np.diff(positions))
        if not seen.take(place).all():  # which takes a third of the time that setting them does
            seen[place] = True


def different(numbers: Array) -> int:
    """How many different numbers there are, in time almost linear where they come in long rising or falling runs (Timsort)."""
    ordered = np.sort(numbers, kind="stable")
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + bool(ordered.size)
