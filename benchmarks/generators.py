"""Sparsity patterns of the kinds that applications have, made up: vectorised, and the same for the same arguments.

Each function returns a canonical CSR matrix (sorted rows, no duplicates, int32 indices) whose values are all 1;
`suite` then draws the values.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Csr = Any  # scipy.sparse.csr_array
Indices = NDArray[np.int64]


def _csr(indices: NDArray[Any], lengths: NDArray[Any], shape: tuple[int, int]) -> Csr:
    """The pattern with `lengths[i]` sorted columns in row i, all of them in `indices`."""
    starts = np.zeros(shape[0] + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    columns = np.ascontiguousarray(indices, dtype=np.int32)
    return sp.csr_array((np.ones(columns.size, np.float32), columns, starts.astype(np.int32)), shape=shape)


def pattern(rows: Indices, columns: Indices, shape: tuple[int, int]) -> Csr:
    """The pattern of these entries, duplicates merged.  One sort of 64-bit keys: much faster than going through COO."""
    key = rows.astype(np.int64) * shape[1]
    key += columns
    key.sort()
    if key.size:
        key = key[np.concatenate(([True], key[1:] != key[:-1]))]
    row, column = np.divmod(key, shape[1])
    return _csr(column, np.bincount(row, minlength=shape[0]), shape)


# --- Grids and bands ----------------------------------------------------------------------------------


def stencil(grid: Sequence[int], offsets: Sequence[Sequence[int]]) -> Csr:
    """Each point of a grid (row-major numbers) with its neighbours at `offsets`; what is outside the grid is left out."""
    dims, n = tuple(grid), int(np.prod(grid))
    strides = [int(np.prod(dims[d + 1 :])) for d in range(len(dims))]
    ordered = sorted(offsets, key=lambda o: sum(a * b for a, b in zip(o, strides, strict=True)))
    inside = np.ones((*dims, len(ordered)), dtype=bool)
    for place, offset in enumerate(ordered):
        for axis, step in enumerate(offset):
            at = np.arange(dims[axis]) + step
            shape = [1] * len(dims)
            shape[axis] = dims[axis]
            inside[..., place] &= ((at >= 0) & (at < dims[axis])).reshape(shape)
    inside = inside.reshape(n, len(ordered))
    jumps = np.array([sum(a * b for a, b in zip(o, strides, strict=True)) for o in ordered], dtype=np.int32)
    columns = (np.arange(n, dtype=np.int32)[:, None] + jumps)[inside]
    return _csr(columns, inside.sum(axis=1), (n, n))


def star(grid: Sequence[int]) -> Csr:
    """Neighbours along the axes: 5 points in two dimensions, 7 in three."""
    origin = (0,) * len(grid)
    steps = [tuple(s if a == axis else 0 for a in range(len(grid))) for axis in range(len(grid)) for s in (-1, 1)]
    return stencil(grid, [origin, *steps])


def box(grid: Sequence[int]) -> Csr:
    """Neighbours in all directions: 9 points in two dimensions, 27 in three."""
    return stencil(grid, list(itertools.product((-1, 0, 1), repeat=len(grid))))


def stencil27(n: int) -> Csr:
    """27 points on an n^3 grid."""
    return box((n, n, n))


def tridiagonal(n: int) -> Csr:
    return banded(n, 1)


def banded(n: int, half: int, keep: float = 1.0, seed: int = 0) -> Csr:
    """A band of 2·half + 1 diagonals, of which each entry off the diagonal is kept with probability `keep`."""
    full = stencil((n,), [(o,) for o in range(-half, half + 1)])
    if keep >= 1:
        return full
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(full.indptr))
    kept = (np.random.default_rng(seed).random(full.nnz, dtype=np.float32) < keep) | (row == full.indices)
    return _csr(full.indices[kept], np.bincount(row[kept], minlength=n), (n, n))


def elasticity(n: int) -> Csr:
    """Trilinear finite elements on an n^3 grid with three unknowns a node: 27 dense 3x3 blocks a node."""
    nodes = stencil27(n)
    blocks = np.ones((nodes.nnz, 3, 3), np.float32)
    return sp.csr_array(sp.bsr_array((blocks, nodes.indices, nodes.indptr), shape=(3 * n**3,) * 2))


# --- Graphs -------------------------------------------------------------------------------------------


def rmat(scale: int, edge_factor: int, seed: int = 0) -> Csr:
    """R-MAT with (a, b, c, d) = (.57, .19, .19, .05)."""
    rng = np.random.default_rng(seed)
    n = 1 << scale
    rows, columns = np.zeros(n * edge_factor, np.int64), np.zeros(n * edge_factor, np.int64)
    for _ in range(scale):
        u = rng.random(rows.size)
        rows *= 2
        rows += u > 0.76
        columns *= 2
        columns += (u > 0.57) & (u <= 0.76) | (u > 0.95)
    return pattern(rows, columns, (n, n))


def uniform(n: int, per_row: int, seed: int = 1) -> Csr:
    """`per_row` columns a row drawn uniformly, duplicates merged."""
    columns = np.random.default_rng(seed).integers(0, n, size=n * per_row)
    return pattern(np.repeat(np.arange(n), per_row), columns, (n, n))


def road(width: int, seed: int = 0) -> Csr:
    """Streets: a width^2 lattice of which 62 % of the edges are there (mean degree 2.5), numbered with locality.

    Numbers run along strips and are shuffled over about a hundred places, as those of digitised maps are.
    """
    rng = np.random.default_rng(seed)
    n = width * width
    point = np.arange(n).reshape(width, width)
    pairs = [(point[:, :-1], point[:, 1:]), (point[:-1], point[1:])]
    ends = [(a[keep], b[keep]) for a, b in pairs for keep in [rng.random(a.shape) < 0.62]]
    number = np.empty(n, np.int64)
    number[np.argsort(np.arange(n) + rng.normal(0, 50, n), kind="stable")] = np.arange(n)
    a, b = (number[np.concatenate(e)] for e in zip(*ends, strict=True))
    return pattern(np.concatenate((a, b)), np.concatenate((b, a)), (n, n))


def web(n: int, mean: float, seed: int = 0) -> Csr:
    """Pages of hosts: links go to near pages of the host and to popular pages, and half of the pages copy a neighbour's.

    Host sizes and popularity follow power laws; pages of one host have consecutive numbers.
    """
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.zipf(1.6, size=n), max(2, n // 50))
    first = np.concatenate(([0], np.cumsum(sizes)))
    first = first[: int(np.searchsorted(first, n)) + 1]
    page = np.arange(n)
    host = np.searchsorted(first, page, side="right") - 1
    lengths = np.minimum(rng.lognormal(np.log(mean) - 0.5, 1.0, n).astype(np.int64), 2000)
    source = np.repeat(page, lengths)
    near = source + np.rint(rng.laplace(0, 20, source.size)).astype(np.int64)
    start, end = first[host[source]], np.append(first, n)[host[source] + 1]
    near = np.clip(near, start, np.minimum(end, n) - 1)
    popular = first[:-1][(rng.random(source.size) ** 3 * (first.size - 1)).astype(np.int64)] % n
    links = pattern(source, np.where(rng.random(source.size) < 0.75, near, popular), (n, n))
    original = rng.random(n) < 0.5
    original[0] = True
    return links[np.maximum.accumulate(np.where(original, page, 0))]  # a copy has the row of the last original before it


def circuit(n: int, dense: int = 4, seed: int = 0) -> Csr:
    """A circuit: a diagonal, few near neighbours, and `dense` nets that touch a tenth of everything, as rows and as columns."""
    rng = np.random.default_rng(seed)
    a = np.repeat(np.arange(n), rng.integers(1, 4, n))
    b = np.clip(a + rng.geometric(0.03, a.size) * rng.choice((-1, 1), a.size), 0, n - 1)
    net = np.repeat(rng.choice(n, dense, replace=False), n // 10)
    touched = rng.integers(0, n, net.size)
    rows = np.concatenate((np.arange(n), a, b, net, touched))
    return pattern(rows, np.concatenate((np.arange(n), b, a, touched, net)), (n, n))


def kronecker(edges: Sequence[tuple[int, int]], power: int) -> Csr:
    """The Kronecker power of a small pattern, given by its entries."""
    rows, columns = (np.array(x, dtype=np.int64) for x in zip(*edges, strict=True))
    n = int(max(rows.max(), columns.max())) + 1
    r, c, size = rows, columns, n
    for _ in range(power - 1):
        r, c, size = np.add.outer(r * n, rows).ravel(), np.add.outer(c * n, columns).ravel(), size * n
    return pattern(r, c, (size, size))


# --- Optimisation, learning, and what is odd -----------------------------------------------------------


def linear_program(rows: int, columns: int, per_column: int, seed: int = 0) -> Csr:
    """A wide constraint matrix: a staircase of blocks, and ten linking rows that hold a fifth of the columns each."""
    rng = np.random.default_rng(seed)
    column = np.repeat(np.arange(columns), rng.integers(1, 2 * per_column, columns))
    stage = column * rows // columns
    row = np.clip(stage + rng.integers(-max(2, rows // 50), max(2, rows // 50), column.size), 0, rows - 1)
    linking = np.repeat(rng.choice(rows, min(10, rows), replace=False), columns // 5)
    return pattern(
        np.concatenate((row, linking)), np.concatenate((column, rng.integers(0, columns, linking.size))), (rows, columns)
    )


def tall_program(rows: int, columns: int, per_row: int, seed: int = 0) -> Csr:
    """The transpose of a wide one."""
    return sp.csr_array(linear_program(columns, rows, per_row, seed).T)


def block_diagonal(blocks: int, least: int, most: int, seed: int = 0) -> Csr:
    """Dense blocks of `least` to `most` rows on the diagonal."""
    sizes = np.random.default_rng(seed).integers(least, most + 1, blocks)
    first = np.cumsum(sizes) - sizes
    size, start = np.repeat(sizes, sizes), np.repeat(first, sizes)  # of each row
    place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    n = int(sizes.sum())
    return _csr(np.repeat(start, size) + place, size, (n, n))


def pruned_layer(rows: int, columns: int, sparsity: float, seed: int = 0) -> Csr:
    """A weight matrix pruned by magnitude: random places, rows of unequal length."""
    rng = np.random.default_rng(seed)
    density = np.minimum((1 - sparsity) * rng.lognormal(-0.045, 0.3, rows), 1).astype(np.float32)
    kept = rng.random((rows, columns), dtype=np.float32) < density[:, None]
    return _csr(np.nonzero(kept)[1], kept.sum(axis=1), (rows, columns))


def hypersparse(n: int, used_rows: int, per_row: int, seed: int = 0) -> Csr:
    """Few rows that hold anything, anywhere."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.choice(n, used_rows, replace=False), rng.integers(1, 2 * per_row, used_rows))
    return pattern(rows, rng.integers(0, n, rows.size), (n, n))
