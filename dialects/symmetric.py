"""The recipe of symmetric storage: one triangle of a matrix that equals its transpose, which is checked entry by entry.

It makes rows of entries again, in which entries stay sorted by column, so that other recipes can follow.  The check transposes
the pattern, and so is linear in the rows and the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.dialects.errors import InputError

Array = NDArray[Any]
Arrays = dict[str, Array]


def lower_triangle(positions: Array, coordinates: Array, values: Array, extents: Array) -> Arrays:
    """The entries on and below the diagonal: those at `positions[i]` to `positions[i + 1]` are of row i, in rising columns.

    `extents` are those of the levels, the rows and the columns.  Raises `InputError` for a matrix that is not symmetric, as
    `check_symmetric` does.
    """
    row = check_symmetric(positions, coordinates, values, extents)
    keep = coordinates <= row
    before = np.append(0, np.cumsum(keep))
    return {"positions": before[positions], "coordinates": coordinates[keep], "values": values[keep]}


def check_symmetric(positions: Array, coordinates: Array, values: Array, extents: Array) -> Array:
    """The row of each entry of a symmetric matrix.

    Mirror images must be equal, or both NaN.  Raises `InputError` for a matrix that is not
    square, and at the first place, row by row, where it differs from its transpose.
    """
    rows, columns = (int(n) for n in extents)
    if rows != columns:
        raise InputError(f"a matrix of {rows} x {columns} is not symmetric: {_ADVICE}")
    row = np.repeat(np.arange(rows), np.diff(positions))
    row_of_mirrored, column_of_mirrored, mirror = _transposed(positions, coordinates, rows)
    same_place = (row == row_of_mirrored) & (coordinates == column_of_mirrored)
    differ = np.flatnonzero(~(same_place & _same_values(values, values[mirror])))
    if differ.size:
        at = int(differ[0])
        here, there = (int(row[at]), int(coordinates[at])), (int(row_of_mirrored[at]), int(column_of_mirrored[at]))
        if here == there:
            raise _not_symmetric(here, values[at], f"({here[1]}, {here[0]}) is {values[mirror[at]]}")
        first = here if here < there else there[::-1]  # what is not in both orders: its mirror image is not stored
        value = values[at] if here < there else values[mirror[at]]
        raise _not_symmetric(first, value, f"({first[1]}, {first[0]}) is not stored")
    return row


def _transposed(positions: Array, coordinates: Array, size: int) -> tuple[Array, Array, Array]:
    """Row, column and number in the matrix of each entry of its transpose, row by row."""
    from scipy.sparse import csr_array

    numbers = np.arange(coordinates.size)
    by_columns = csr_array((numbers, coordinates.astype(positions.dtype), positions), (size, size)).tocsc()
    return np.repeat(np.arange(size), np.diff(by_columns.indptr)), by_columns.indices, by_columns.data


def _same_values(x: Array, y: Array) -> Array:
    """Whether values are equal, or both NaN."""
    same: Array = (x == y) | ((x != x) & (y != y))
    return same


_ADVICE = "leave lower-triangle out of the plan"


def _not_symmetric(place: tuple[int, int], value: Any, mirror: str) -> InputError:
    return InputError(f"the matrix is not symmetric: ({place[0]}, {place[1]}) is {value}, and {mirror}: {_ADVICE}")


SYMMETRIC: dict[str, Callable[..., Arrays]] = {"lower-triangle": lower_triangle}
