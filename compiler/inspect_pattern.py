"""What a sparse matrix or tensor looks like, in numbers: `inspect_matrix` and `inspect_tensor`.

Every number but the planner's estimates among the features is exact; the cost is linear in the entries, rows and columns, and
nothing is packed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.agent.features import Features, analyse
from sparseditto.agent.features.formats import FormatSize, PatternSizes, format_sizes
from sparseditto.compiler.matrix import MAX_FILL, Matrix
from sparseditto.compiler.matrix_tensor import Tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    Array = np.ndarray[Any, np.dtype[Any]]

BLOCKS = (2, 3, 4, 8, 16)  # rows and columns of the blocks that are counted
THREADS = 4  # each holds some arrays as long as the matrix has entries


@dataclass(frozen=True)
class Values:
    """`minimum` and `maximum` are of the finite values, None where there are none; `zeros` are stored ones."""

    dtype: str
    minimum: float | None
    maximum: float | None
    nans: int
    infinities: int
    zeros: int


@dataclass(frozen=True)
class Symmetry:
    """Of the entries of a square matrix that are not on the diagonal, the share (1 where there are none) whose mirror is
    stored (`pattern`), is stored and equal (`values`), is stored and the negative (`skew`).
    """

    pattern: float
    values: float
    skew: float


@dataclass(frozen=True)
class Bin:
    """How many rows have from `least` to `most` entries."""

    least: int
    most: int
    rows: int


@dataclass(frozen=True)
class Inspection:
    """What is known of a matrix.

    `density` is entries over places.  `below` and `above` are the bandwidths: the most that an entry's row exceeds its column,
    and the other way round.  `diagonals` of the rows + columns - 1 have entries; `diagonal_entries` are on the main one.
    `formats` hold values of `value_bytes`.
    """

    features: Features
    density: float
    symmetry: Symmetry | None
    below: int
    above: int
    diagonals: int
    diagonal_entries: int
    max_column: int
    empty_columns: float
    values: Values
    histogram: tuple[Bin, ...]
    value_bytes: int
    formats: tuple[FormatSize, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        formats = [f.to_json(self.features.entries) for f in self.formats]
        return {"kind": "matrix"} | asdict(self) | {"formats": formats}


@dataclass(frozen=True)
class Mode:
    """Of the slices of one dimension: how many have entries, and how many entries the fullest has."""

    size: int
    filled: int
    most: int


@dataclass(frozen=True)
class TensorInspection:
    """What is known of a tensor; `bytes` are those of the formats that hold it, with values of `value_bytes`."""

    shape: tuple[int, ...]
    entries: int
    density: float
    modes: tuple[Mode, ...]
    values: Values
    value_bytes: int
    bytes: dict[str, int]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"kind": "tensor"} | asdict(self)


def inspect_matrix(matrix: Matrix, value_bytes: int = 4) -> Inspection:
    """What is known of `matrix`.  The parts run in threads, since NumPy and SciPy let go of the interpreter."""
    csr = matrix.csr
    square = csr.shape[0] == csr.shape[1]
    with ThreadPoolExecutor(THREADS) as pool:
        analysed = pool.submit(analyse, csr)
        found = pool.submit(_Offsets, csr)
        symmetry = pool.submit(_symmetry, csr) if square else None
        blocks = {size: pool.submit(count_blocks, csr, size) for size in BLOCKS}
        columns, lengths = _counts(csr.indices, csr.shape[1]), np.diff(csr.indptr)
        values = inspect_values(csr.data)
        features, offsets = analysed.result(), found.result()
        mirrored = symmetry.result() if symmetry else None
        sizes = PatternSizes(
            features.rows,
            features.columns,
            features.entries,
            features.max_row,
            int(np.count_nonzero(lengths)),
            {(size, size): count.result() for size, count in blocks.items()},
            round(features.padding * features.entries),
            round(features.padding_sorted * features.entries),
            offsets.occupied,
            (features.entries + offsets.main) // 2 if mirrored is not None and mirrored.values == 1 else None,
        )
        return Inspection(
            features,
            features.density,
            mirrored,
            features.lower_bandwidth,
            features.upper_bandwidth,
            offsets.occupied,
            offsets.main,
            int(columns.max(initial=0)),
            1 - np.count_nonzero(columns) / csr.shape[1] if csr.shape[1] else 0.0,
            values,
            row_histogram(lengths),
            value_bytes,
            tuple(format_sizes(sizes, value_bytes)),
            matrix.notes,
        )


def inspect_tensor(tensor: Tensor, value_bytes: int = 4) -> TensorInspection:
    entries = tensor.values.size
    counts = [_counts(places, size) for places, size in zip(tensor.coordinates, tensor.shape, strict=True)]
    modes = [
        Mode(size, int(np.count_nonzero(count)), int(count.max(initial=0)))
        for size, count in zip(tensor.shape, counts, strict=True)
    ]
    width = 4 if max(*tensor.shape, entries) < 2**31 else 8
    nodes = _nodes(tensor)
    above = [1, *nodes[:-1]]
    sizes = {
        "COO": 2 * width + entries * (tensor.rank * width + value_bytes),
        "CSF": sum(width * (parents + 1 + count) for parents, count in zip(above, nodes, strict=True)) + entries * value_bytes,
    }
    density = _density(entries, tensor.shape)
    return TensorInspection(
        tensor.shape, entries, density, tuple(modes), inspect_values(tensor.values), value_bytes, sizes, tensor.notes
    )


def _nodes(tensor: Tensor) -> list[int]:
    """How many different beginnings of 1, 2, … coordinates the entries have: the nodes of CSF's tree, level by level."""
    fresh = np.zeros(tensor.values.size, dtype=bool)
    fresh[:1] = True
    nodes = []
    for places in tensor.coordinates:
        fresh[1:] |= places[1:] != places[:-1]
        nodes.append(int(np.count_nonzero(fresh)))
    return nodes


def _density(entries: int, shape: tuple[int, ...]) -> float:
    places = 1
    for size in shape:
        places *= int(size)
    return entries / places if places else 0.0


def _counts(indices: Array, size: int) -> Array:
    """How often each index occurs; those that do not occur are left out where there are far more of them."""
    if size <= MAX_FILL * (indices.size + 2**14):
        return np.bincount(indices, minlength=size)
    return np.unique(indices, return_counts=True)[1]


def inspect_values(values: Array) -> Values:
    nans, infinities = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    finite = values[np.isfinite(values)] if nans or infinities else values
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return Values(values.dtype.name, low, high, nans, infinities, int(values.size - np.count_nonzero(values)))


def row_histogram(lengths: Array) -> tuple[Bin, ...]:
    """Rows by their number of entries: 0, 1, 2, 3 to 4, 5 to 8, and so on to the longest."""
    most = int(lengths.max(initial=0))
    ends = [0, *(1 << k for k in range(max(most - 1, 0).bit_length() + 1))] if most else [0]
    counts = np.bincount(np.searchsorted(ends, lengths), minlength=len(ends))
    starts = [0, *(end + 1 for end in ends[:-1])]
    return tuple(Bin(start, end, int(count)) for start, end, count in zip(starts, ends, counts, strict=True))


# ------------------------------------------------------------------------------------------------------------ structure


class _Offsets:
    """Diagonals, from column minus row of each entry."""

    def __init__(self, csr: csr_array) -> None:
        self.occupied = self.main = 0
        if not csr.nnz:
            return
        rows, columns = csr.shape
        wide = np.int32 if rows + columns < 2**31 else np.int64
        offset = csr.indices.astype(wide)
        offset -= np.repeat(np.arange(rows, dtype=wide), np.diff(csr.indptr))
        self.main = int(np.count_nonzero(offset == 0))
        if rows + columns > MAX_FILL * (csr.nnz + 2**14):
            offset.sort()
            self.occupied = 1 + int(np.count_nonzero(np.diff(offset)))
            return
        offset += rows - 1
        seen = np.zeros(rows + columns - 1, dtype=bool)
        seen[offset] = True
        self.occupied = int(np.count_nonzero(seen))


def _symmetry(csr: csr_array) -> Symmetry:
    from scipy.sparse import csr_array

    outside = csr.indices != np.repeat(np.arange(csr.shape[0], dtype=csr.indices.dtype), np.diff(csr.indptr))
    count = int(np.count_nonzero(outside))
    if not count:
        return Symmetry(1.0, 1.0, 1.0)
    numbers = np.arange(1, csr.nnz + 1, dtype=csr.indices.dtype)
    numbered = csr_array((numbers, csr.indices, csr.indptr), shape=csr.shape)
    turned = numbered.T.tocsr()
    if np.array_equal(csr.indptr, turned.indptr) and np.array_equal(csr.indices, turned.indices):
        here, there = csr.data[outside], csr.data[turned.data[outside] - 1]
    else:
        mine, theirs = _ones_of(turned).multiply(numbered).data - 1, _ones_of(numbered).multiply(turned).data - 1
        here, there = (csr.data[which[outside[mine]]] for which in (mine, theirs))
    nan = np.isnan(here) & np.isnan(there)
    equal, opposite = (int(np.count_nonzero((here == other) | nan)) for other in (there, -there))
    return Symmetry(here.size / count, equal / count, opposite / count)


def _ones_of(csr: csr_array) -> csr_array:
    """Ones where `csr` has entries."""
    return type(csr)((np.ones_like(csr.data), csr.indices, csr.indptr), shape=csr.shape)


def count_blocks(csr: csr_array, size: int) -> int:
    """How many blocks of `size` x `size`, counted from the first row and column, have entries."""
    from scipy.sparse import csr_array

    starts = np.append(csr.indptr[:-1:size], csr.indptr[-1:])  # of rows of blocks
    block_columns = -(-csr.shape[1] // size)
    place = csr.indices // size
    if block_columns > MAX_FILL * (csr.nnz + 2**14):  # a transposed matrix would have far more rows than entries
        row = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        order = np.lexsort((place, row))
        return 1 + int(np.count_nonzero(np.diff(row[order]) | np.diff(place[order]))) if order.size else 0
    blocks = csr_array((np.ones(place.size, np.int8), place, starts), shape=(starts.size - 1, block_columns))
    turned = blocks.tocsc()  # sorts the entries of each column by row, so that those of one block are neighbours
    fresh = np.ones(place.size, dtype=bool)
    np.not_equal(turned.indices[1:], turned.indices[:-1], out=fresh[1:])
    fresh[turned.indptr[:-1][np.diff(turned.indptr) > 0]] = True
    return int(np.count_nonzero(fresh))
