"""Recipes that put rows, columns or entries of a packed matrix in another order: what `reorder` and `partition` make the
host do.

What they make is rows of entries again, in which entries stay sorted by column, so that every other recipe can follow.  All are
linear in the entries, but for sorting rows and for `rcm`, a search through the graph of the matrix (SciPy's, in C).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.dialects.errors import InputError

Array = NDArray[Any]
Arrays = dict[str, Array]
ROW_ORDERS = ("none", "degree", "rcm", "cluster")
COLUMN_ORDERS = ("none", "degree", "same")
CRITERIA = ("length", "column", "diagonal")
_NEIGHBOURS = 8  # columns that one sector of 32 bytes holds of a vector: a row that touches one may as well touch the others
_SEEDS = (0x9E3779B1, 0x85EBCA77)  # odd multipliers of two hash functions


def reorder(positions: Array, coordinates: Array, values: Array, rows: str, columns: str) -> Arrays:
    """The matrix with its rows and columns in another order.

    Row i of the new matrix is row `rows[i]`; its entries are at `positions[i]` to `positions[i + 1]` of `coordinates` and
    `values`. Column j is column `gathers[j]`: with an order of columns, only those that have entries are left.

    Orders of rows: `degree`, the most entries first; `rcm`, reverse Cuthill-McKee on the pattern of A + A^T; `cluster`,
    rows next to each other whose columns have the same least hashes, as rows with many columns in common do (min-hash).
    Orders of columns: `degree`, or `same` as that of the rows.
    """
    _check_int32(positions.size - 1, coordinates.size)
    columns_there = _extent(coordinates)
    order = _row_order(rows, positions, coordinates, columns_there)
    moved = order[order < positions.size - 1]
    if rows != "none":
        positions, taken = _move_rows(positions, moved)
        coordinates, values = coordinates[taken], values[taken]
    made = {"rows": moved.astype(np.int32)}
    if columns != "none":
        kept = np.bincount(coordinates, minlength=columns_there)
        made["gathers"] = _column_order(columns, kept, order).astype(np.int32)
        coordinates, values = _rename(positions, coordinates, values, made["gathers"], columns_there)
    return {**made, "positions": positions, "coordinates": coordinates, "values": values}


def gathered(gathers: Array, width: int) -> Arrays:
    """A workspace for rows of a dense operand in the order of the columns: `copy`, of `width` elements a row."""
    shape = (gathers.size, width) if width > 1 else (gathers.size,)
    return {"copy": np.zeros(shape, np.int32)}


def partition(positions: Array, coordinates: Array, values: Array, by: str, limit: int, part: int) -> Arrays:
    """The entries of one of two parts of the matrix.

    Part 0 has, by `length`, the rows of at most `limit` entries; by `column`, the entries in the first `limit` columns; by
    `diagonal`, those on diagonals that are full to at least `limit` percent.  Part 1 has the rest.  Row i of the part is
    row `rows[i]` of the matrix: of parts by length their own rows, else all rows in part 0 and those that have entries in
    part 1.
    """
    count = np.diff(positions)
    _check_int32(count.size, coordinates.size)
    if by == "length":
        chosen = (count <= limit) == (part == 0)
        keep = np.repeat(chosen, count)
    else:
        keep = _first_part(positions, coordinates, by, limit) == (part == 0)
        chosen = np.ones(count.size, bool)
    before = np.append(0, np.cumsum(keep))[positions]
    if by != "length" and part == 1:
        chosen = np.diff(before) > 0
    rows = np.flatnonzero(chosen)
    return {
        "rows": rows.astype(np.int32),
        "positions": np.append(before[:-1][rows], before[-1]),
        "coordinates": coordinates[keep],
        "values": values[keep],
    }


# --- Orders -------------------------------------------------------------------------------------------------


def _row_order(kind: str, positions: Array, coordinates: Array, columns: int) -> Array:
    """All rows in order; there may be numbers above them, which stand for columns of a matrix that is wider than high."""
    rows = positions.size - 1
    if kind == "degree":
        return np.argsort(-np.diff(positions), kind="stable")
    if kind == "rcm":
        return _cuthill_mckee(positions, coordinates, max(rows, columns))
    if kind == "cluster":
        return _clusters(positions, coordinates)
    return np.arange(rows)


def _cuthill_mckee(positions: Array, coordinates: Array, size: int) -> Array:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    if not size:
        return np.arange(0)
    starts = np.append(positions, np.full(size + 1 - positions.size, positions[-1]))
    pattern = csr_array(
        (np.ones(coordinates.size, np.int8), coordinates.astype(np.int32), starts.astype(np.int32)), (size, size)
    )
    return np.asarray(reverse_cuthill_mckee(pattern, symmetric_mode=False), np.int64)


def _clusters(positions: Array, coordinates: Array) -> Array:
    """Rows sorted by the least hashes of the groups of columns that they touch; those without entries last."""
    count = np.diff(positions)
    some = np.flatnonzero(count)
    groups = (coordinates.astype(np.int64) // _NEIGHBOURS).astype(np.uint32)
    keys = [np.minimum.reduceat(_hash(groups, seed), positions[:-1][some]) if some.size else groups for seed in _SEEDS]
    return np.concatenate([some[np.lexsort(keys[::-1])], np.flatnonzero(count == 0)])


def _hash(numbers: NDArray[np.uint32], seed: int) -> NDArray[np.uint32]:
    mixed: NDArray[np.uint32] = numbers * np.uint32(seed)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x2C1B3C6D)
    return mixed


def _column_order(kind: str, count: Array, rows: Array) -> Array:
    """The columns that have entries, in order."""
    if kind == "degree":
        order = np.argsort(-count, kind="stable")
    else:
        order = np.append(rows[rows < count.size], np.arange(rows.size, count.size))
    return order[count[order] > 0]


# --- Moving entries -----------------------------------------------------------------------------------------


def _move_rows(positions: Array, order: Array) -> tuple[Array, Array]:
    """Positions of the rows in order, and which entry each of the entries in the new order was."""
    count = np.diff(positions)[order]
    moved = np.append(0, np.cumsum(count))
    taken = np.repeat(positions[:-1][order] - moved[:-1], count) + np.arange(moved[-1])
    return moved, taken


def _rename(positions: Array, coordinates: Array, values: Array, order: Array, columns: int) -> tuple[Array, Array]:
    """Coordinates as places in the order of columns, the entries of each row sorted by them."""
    from scipy.sparse import csr_array

    place = np.zeros(columns, np.int32)
    place[order] = np.arange(order.size)
    numbers = np.arange(coordinates.size, dtype=np.int32)
    shape = (positions.size - 1, max(order.size, 1))
    moved = csr_array((numbers, place[coordinates], positions.astype(np.int32)), shape)
    moved.sort_indices()
    return moved.indices.astype(coordinates.dtype), values[moved.data]


def _first_part(positions: Array, coordinates: Array, by: str, limit: int) -> NDArray[np.bool_]:
    """Whether each entry is in part 0, of parts by column or by diagonal."""
    if by == "column":
        return np.asarray(coordinates < limit)
    rows, columns = positions.size - 1, _extent(coordinates)
    distance = coordinates.astype(np.int64) - np.repeat(np.arange(rows), np.diff(positions)) + (rows - 1)
    count = np.bincount(distance, minlength=max(rows + columns - 1, 0))
    first = np.arange(count.size) - (rows - 1)
    length = np.minimum(rows, columns - first) - np.maximum(0, -first)
    return np.asarray((100 * count >= limit * length)[distance])


def _extent(coordinates: Array) -> int:
    """The number of columns up to the last that has an entry."""
    return int(coordinates.max()) + 1 if coordinates.size else 0


def _check_int32(*numbers: int) -> None:
    if max(numbers) > np.iinfo(np.int32).max:
        raise InputError("a matrix of more than 2^31 rows or entries cannot be put in another order")


ORDERS: dict[str, Callable[..., Arrays]] = {"reorder": reorder, "gathered": gathered, "partition": partition}
REARRANGED = ("reorder", "partition", "lower-triangle")
"""These make rows of entries again: what other recipes, and passes, begin from."""
