"""Recipes of layouts that level types cannot express: what the host makes of a packed matrix for `diagonals`, `ell-rows`, ….

All are linear in the rows and the entries.  Where a layout has a place for an entry that a row does not have, the place is
marked: by a coordinate with all bits set, or by the NaN with all bits set in its value.  A NaN of the matrix is another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.dialects.errors import InputError

Array = NDArray[Any]
Arrays = dict[str, Array]
SLICE = 32  # rows that share the base of their offsets

_INT32 = np.iinfo(np.int32).max


def window_order(lengths: NDArray[np.integer], window: int) -> NDArray[np.int64]:
    """The rows by falling length, in their order where that is equal, within windows of `window` rows."""
    if window <= 1 or not lengths.size:
        return np.arange(lengths.size)
    window = min(window, lengths.size)
    order: NDArray[np.int64] = window_shortfalls(lengths, window).argsort(axis=1, kind="stable")
    order += np.arange(0, order.size, window)[:, np.newaxis]
    return order.ravel()[: lengths.size]


def window_shortfalls(lengths: NDArray[np.integer], window: int) -> NDArray[np.integer]:
    """What each row is shorter than the longest of all, a window of rows in each row of the result; the last is filled up with
    rows without entries.  The type has few bits, with which NumPy's stable sort is a radix sort.
    """
    longest = int(lengths.max())
    missing = np.full(-(-lengths.size // window) * window, longest, np.min_scalar_type(longest))
    np.subtract(longest, lengths, out=missing[: lengths.size], casting="unsafe")
    return missing.reshape(-1, window)


def row_diagonals(positions: Array, coordinates: Array, values: Array, factor: int) -> Arrays:
    """The occupied diagonals (DIA), with a value for every row.

    `offsets[d]` is the distance of diagonal d from the main one, in rising order: row i has column i + offsets[d] there, and
    its value is `values[d * rows + i]`, marked where the row has no entry.  Raises `InputError` when that are more than
    `factor` places an entry.
    """
    rows = positions.size - 1
    most = int(coordinates.max(initial=0))
    if max(rows, most) > _INT32:
        raise InputError("more than 2^31 rows or columns have diagonals that 32 bits do not number")
    row = np.repeat(np.arange(rows, dtype=np.int32), np.diff(positions))
    diagonal = coordinates.astype(np.int64)
    diagonal -= row
    diagonal += rows - 1
    occupied = np.zeros(rows + most + 1, bool)
    occupied[diagonal] = True
    offsets = np.flatnonzero(occupied) - (rows - 1)
    what = f"{offsets.size} diagonals of {rows} rows"
    _check_places(offsets.size * rows, row.size, factor, what)
    stored = marked(offsets.size * rows, values.dtype)
    places = (np.cumsum(occupied) - 1)[diagonal]
    del diagonal
    places *= rows
    places += row
    stored[places] = unmarked(values)
    return {"offsets": offsets.astype(np.int32), "values": stored}


def equal_rows(positions: Array, coordinates: Array, values: Array, factor: int, bits: int) -> Arrays:
    """The entries of rows that are all as wide as the longest (ELLPACK), which has `widths[0]` of them.

    Entry k of row i stands at k * rows + i of `coordinates` and `values`; where there is none, all bits of the coordinate are
    set, and the value is 0.  Coordinates of fewer `bits` than the array has are offsets from `bases[i // 32]`, the least
    column of 32 rows.  Raises `InputError` when that are more than `factor` places an entry, or a coordinate does not fit.
    """
    count = np.diff(positions)
    rows, width = count.size, int(count.max(initial=0))
    _check_places(rows * width, coordinates.size, factor, f"{rows} rows of {width} entries")
    found: Arrays = {"widths": np.array([width], np.int32)}
    narrow = bits < 8 * coordinates.itemsize
    if narrow:
        bases = _least_columns(positions, coordinates)
        found["bases"] = bases.astype(np.int32)
        coordinates = coordinates - np.repeat(np.repeat(bases.astype(coordinates.dtype), SLICE)[:rows], count)
    _check_unmarked(coordinates, bits, f"the columns of {SLICE} rows span" if narrow else "there are columns up to number")
    places = np.arange(coordinates.size)
    places -= np.repeat(positions[:-1], count)
    places *= rows
    places += np.repeat(np.arange(rows), count)
    stored = np.full(rows * width, -1, f"int{bits}")
    stored[places] = coordinates.astype(f"uint{bits}").view(f"int{bits}")
    entries = np.zeros(rows * width, values.dtype)
    entries[places] = values
    return {**found, "coordinates": stored.view(f"uint{bits}") if bits < 32 else stored, "values": entries}


def _least_columns(positions: Array, coordinates: Array) -> Array:
    """The least column of each `SLICE` rows, 0 where they have no entries; entries of a row are in order."""
    count = np.diff(positions)
    least = np.full(-(-count.size // SLICE) * SLICE, np.iinfo(np.int64).max)
    some = np.flatnonzero(count)
    least[some] = coordinates[positions[:-1][some]]
    bases = least.reshape(-1, SLICE).min(axis=1, initial=np.iinfo(np.int64).max)
    bases[bases == np.iinfo(np.int64).max] = 0
    _check_bases(bases)
    return bases


def _check_bases(bases: Array) -> None:
    if bases.max(initial=0) > _INT32:
        raise InputError("a column of 2^31 or more has no 32-bit base: store coordinates as they are")


def _check_unmarked(coordinates: Array, bits: int, what: str) -> None:
    """Raises `InputError` when a coordinate has more than `bits` bits, or all of them set, which marks padding."""
    most = int(coordinates.max(initial=0))
    if most >= (1 << bits) - 1:
        raise InputError(f"{what} {most}, and {bits} bits hold less than {(1 << bits) - 1}: store coordinates with more bits")


def row_offsets(positions: Array, coordinates: Array, bits: int) -> Arrays:
    """Columns as offsets of `bits` bits from `bases`, the first column of each row (0 where a row has no entries)."""
    count = np.diff(positions)
    bases = np.zeros(count.size, np.int64)
    some = count > 0
    bases[some] = coordinates[positions[:-1][some]]
    offsets = coordinates - np.repeat(bases, count)
    span = int(offsets.max(initial=0)) + 1
    if span > 1 << bits:
        raise InputError(
            f"the columns of a row span {span}, and offsets of {bits} bits reach {1 << bits}: take more bits, or store "
            "coordinates as they are (without narrow-coordinates)"
        )
    _check_bases(bases)
    return {"bases": bases.astype(np.int32), "coordinates": offsets.astype(f"uint{bits}")}


def listed_rows(positions: Array, share: int) -> Arrays:
    """The rows that have entries, in order, and as many others as make one listed row for each `share` rows.

    `positions[g]` to `positions[g + 1]` are the entries of row `rows[g]`.  Bit i % 32 of `empty[i // 32]` says that row i is
    not listed.
    """
    count = np.diff(positions)
    if max(count.size, int(positions[-1])) > _INT32:
        raise InputError("more than 2^31 rows or entries cannot be listed")
    some, none = np.flatnonzero(count), np.flatnonzero(count == 0)
    more = max(-(-count.size // share) - some.size, 0)
    rows = np.sort(np.append(some, none[np.arange(more) * none.size // max(more, 1)]))
    others = np.zeros(-(-count.size // 32) * 32, bool)
    others[none] = True
    others[rows] = False
    return {
        "rows": rows.astype(np.int32),
        "positions": np.append(positions[rows], positions[-1]).astype(np.int32),
        "empty": np.packbits(others, bitorder="little").view(np.int32),
    }


def block_bitmaps(values: Array, places: int) -> Arrays:
    """The entries of blocks of `places` places (32 at most), in order, and a zero after the last, for places after that.

    Bit k of `bitmaps[p]` says that place k of block p holds an entry (what fills a block is -0, which no entry is), and
    `first_entries[p]` is the number of the block's first entry.
    """
    bits = 8 * values.itemsize
    whole = np.ascontiguousarray(values).view(f"uint{bits}").reshape(-1, places)
    present = whole != 1 << (bits - 1)
    count = present.sum(axis=1)
    if count.sum() > _INT32:
        raise InputError("more than 2^31 entries have no 32-bit numbers: store blocks as they are")
    wide = np.zeros((len(present), 32), bool)
    wide[:, :places] = present
    return {
        "bitmaps": np.packbits(wide, axis=1, bitorder="little").view(np.int32).ravel(),
        "first_entries": (np.cumsum(count) - count).astype(np.int32),
        "values": np.append(values[present.ravel()], values.dtype.type(0)),
    }


def one_value(values: Array) -> Arrays:
    """The value that all entries have, 0 where there are none.  Raises `InputError` when the bits of two differ."""
    bits = np.ascontiguousarray(values).view(f"uint{8 * values.itemsize}")
    if bits.size and (bits != bits[0]).any():
        other = values[np.flatnonzero(bits != bits[0])[0]]
        raise InputError(f"the values are not all equal ({values[0]} and {other}): leave uniform-values out of the plan")
    return {"value": np.copy(values[:1]) if values.size else np.zeros(1, values.dtype)}


def marked(count: int, dtype: np.dtype[Any]) -> Array:
    """Values of which each says that there is no entry."""
    return np.full(count, -1, f"int{8 * dtype.itemsize}").view(dtype)


def unmarked(values: Array) -> Array:
    """Values of which none is the mark: a NaN that looks like it becomes another NaN."""
    same = np.ascontiguousarray(values).view(f"int{8 * values.itemsize}") == -1
    if not same.any():
        return values
    found: Array = np.where(same, values.dtype.type(np.nan), values)
    return found


def _check_places(places: int, entries: int, factor: int, what: str) -> None:
    """Raises `InputError` when a layout has more than `factor` places an entry."""
    if places > factor * entries:
        raise InputError(
            f"{what} are {places} places for {entries} entries, {places / max(entries, 1):.1f} each, and the plan allows "
            f"{factor}: store the matrix otherwise (slice-rows, csr), or raise the factor"
        )


LAYOUTS: dict[str, Callable[..., Arrays]] = {
    "row-diagonals": row_diagonals,
    "equal-rows": equal_rows,
    "row-offsets": row_offsets,
    "one-value": one_value,
    "block-bitmaps": block_bitmaps,
    "listed-rows": listed_rows,
}
