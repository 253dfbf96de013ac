"""Store a matrix or tensor in the arrays of an encoding, and read them back.

The layout is that of MLIR's `sparse_tensor` runtime, one array a level:

    dense              nothing; multiplies the number of positions by its extent
    compressed         positions{l}: one more than there are positions above, from 0; coordinates{l}
    loose_compressed   positions{l}: a pair (first, last + 1) for each position above; coordinates{l}
    singleton          coordinates{l}: one for each position above

`values` has one element for each position of the last level; where that level is dense, absent entries are 0.
The arrays are equal to the runtime's, but that it ends loose positions with one more element, which nothing reads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.dtypes import HALVES
from sparseditto.compiler.matrix import MAX_FILL, Matrix, too_many_positions
from sparseditto.dialects.encoding import INDEX_WIDTHS, LEVEL_TYPES, Encoding, Level
from sparseditto.dialects.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import DTypeLike
    from scipy.sparse import csr_array

    Array = np.ndarray[Any, np.dtype[Any]]

VALUE_TYPES = (*HALVES, "float32", "float64")
MAX_IDLE_VALUES = 2**26
"""A dense level may not make more values than this when it stores more than `MAX_FILL` values for every entry."""

_INDEX_TYPES = {8: np.uint8, 16: np.uint16, 32: np.int32, 64: np.int64}
_LARGEST = {8: 2**8 - 1, 16: 2**16 - 1, 32: 2**31 - 1, 64: 2**63 - 1}
_SEGMENTED = ("compressed", "loose_compressed")
_PART = 1 << 20  # entries that are packed at a time, so that what is needed on the way stays small beside the matrix


@dataclass(frozen=True, eq=False)
class Packed:
    """A tensor stored as `encoding` says.

    `arrays` holds "positions{l}" and "coordinates{l}" of the storage levels l that have them (uint8 and uint16 for widths 8
    and 16, which MLIR extends with zeros; int32 and int64 for 32 and 64) and "values", all one-dimensional and contiguous.
    They may be the arrays of the matrix that was packed: read them, do not write.
    `sizes` holds the length of each array under its name, and "lvl{l}", the extent of level l.
    """

    encoding: Encoding
    shape: tuple[int, ...]
    arrays: dict[str, Array] = field(repr=False)
    sizes: dict[str, int]


def pack(matrix: Matrix, encoding: Encoding, dtype: DTypeLike) -> Packed:
    """Store `matrix` as `encoding` says, its values cast to `dtype` (float16, bfloat16, float32, float64).

    A value beyond the range of `dtype` becomes infinite.  Raises `InputError` when the encoding is not for matrices, an
    index does not fit in its width, or dense levels would make more values or positions than can be meant.
    """
    csr = matrix.csr
    levels = check_encoding(encoding, 2)
    values = _cast(csr.data, dtype)
    rows = _is_rows(levels)
    if rows:
        _refuse_positions(csr.shape[levels[0].dim] + 1, csr.nnz)
    by_columns = levels[0].dim == 1 and (rows or csr.shape[1] <= MAX_FILL * (csr.nnz + 2**14))  # else sorting is cheaper
    starts, inner, values = _by_columns(csr, values) if by_columns else (csr.indptr, csr.indices, values)
    if rows:
        return _finish(encoding, csr.shape, _row_arrays(levels[1], starts, inner), values)
    if values.size > _PART and levels[0].dim == (1 if by_columns else 0) and levels[0].op != "mod":
        return _pack_in_parts(starts, inner, values, csr.shape, encoding)
    lines = _lines(starts, inner.dtype)
    return _pack([inner, lines] if by_columns else [lines, inner], values, csr.shape, encoding)


def pack_tensor(
    coordinates: Sequence[Array], values: Array, shape: tuple[int, ...], encoding: Encoding, dtype: DTypeLike
) -> Packed:
    """Store a tensor of any rank.  `coordinates[d]` are integers, the places in dimension d; in any order, none twice.

    Raises `InputError` as `pack` does, and for coordinates that are outside the shape or occur twice.
    """
    check_encoding(encoding, len(shape))
    _check_coordinates(coordinates, values, shape)
    narrow = [
        np.asarray(c, dtype=np.int32 if size <= _LARGEST[32] else np.int64) for c, size in zip(coordinates, shape, strict=True)
    ]
    return _pack(narrow, _cast(values, dtype), shape, encoding)


def unpack(packed: Packed) -> csr_array:
    """The matrix that `packed` stores, as canonical CSR (16-bit values as float32, which SciPy needs).

    The inverse of `pack`, but that a stored -0 is a stored 0 when the last level is dense (BSR): there -0 marks what fills a
    block.  Raises `InputError` when a block holds a value outside the matrix.
    """
    from scipy.sparse import coo_array

    if len(packed.shape) != 2:
        raise InputError(f"a tensor of rank {len(packed.shape)} is no matrix")
    coordinates, values = unpack_tensor(packed)
    if values.dtype.name in HALVES:
        values = values.astype(np.float32)
    row, column = coordinates
    csr: csr_array = coo_array((values, (row, column)), shape=packed.shape).tocsr()
    return csr


def unpack_tensor(packed: Packed) -> tuple[list[Array], Array]:
    """Coordinates (one int64 array a dimension) and values of what `packed` stores, in storage order; see `unpack`."""
    levels, stored = packed.encoding.levels, _stored_levels(packed.encoding)
    values = packed.arrays["values"]
    at: Array = np.zeros(1, dtype=np.int64)
    places: list[Array] = []
    for number, level in enumerate(levels[:stored]):
        parent, place, at = _children(packed, number, level, at)
        places = [p if parent is None else p[parent] for p in places] + [place]
    if stored == len(levels):
        values = values[at]
    else:
        parent, inner, values = _nonzeros(values, at, [packed.sizes[f"lvl{number}"] for number in range(stored, len(levels))])
        places = [p[parent] for p in places] + inner
    coordinates: list[Array] = [np.zeros(values.size, dtype=np.int64) for _ in packed.shape]
    for level, place in zip(levels, places, strict=True):
        coordinates[level.dim] += place * level.size if level.op == "floordiv" else place
    if any((c >= size).any() for c, size in zip(coordinates, packed.shape, strict=True)):
        raise InputError("a block holds a value outside the tensor")
    return coordinates, values


# --------------------------------------------------------------------------------------------------------------- checks


def check_encoding(encoding: Encoding, rank: int) -> tuple[Level, ...]:
    """The levels of an encoding that can store every tensor of this rank, each entry at one place."""
    levels = encoding.levels
    if not levels or rank < 1:
        raise InputError("an encoding needs a level, and a tensor a dimension")
    for width in (encoding.position_width, encoding.coordinate_width):
        if width not in INDEX_WIDTHS:
            raise InputError(f"width {width} is not one of {INDEX_WIDTHS}")
    for number, level in enumerate(levels):
        _check_level(number, levels)
        if not 0 <= level.dim < rank:
            raise InputError(f"level {number} walks dimension {level.dim} of a tensor of rank {rank}")
    for dim in range(rank):
        parts = sorted((level.op or "", level.size if level.op else 1) for level in levels if level.dim == dim)
        if parts != [("", 1)] and [p[0] for p in parts] != ["floordiv", "mod"]:
            raise InputError(f"dimension {dim} needs one level, or a floordiv and a mod level; it has {len(parts)}")
        if len({size for _, size in parts}) != 1:
            raise InputError(f"the floordiv and the mod level of dimension {dim} have different sizes")
    return levels


def _check_level(number: int, levels: tuple[Level, ...]) -> None:
    level = levels[number]
    if level.type not in LEVEL_TYPES:
        raise InputError(f"level {number} has the unknown type '{level.type}'{did_you_mean(level.type, LEVEL_TYPES)}")
    if level.op not in (None, "floordiv", "mod") or level.size < 1:
        raise InputError(f"level {number} has the unknown expression '{level.expression()}'")
    if level.type == "dense" and not level.unique:
        raise InputError(f"level {number} is dense, so its coordinates cannot be nonunique")
    if level.type == "singleton" and (number == 0 or levels[number - 1].type == "dense"):
        raise InputError(f"level {number} is a singleton; the level above it must store coordinates")


def _check_coordinates(coordinates: Sequence[Array], values: Array, shape: tuple[int, ...]) -> None:
    if len(coordinates) != len(shape):
        raise InputError(f"there are {len(coordinates)} coordinate arrays for {len(shape)} dimensions")
    for dim, (places, size) in enumerate(zip(coordinates, shape, strict=True)):
        if places.dtype.kind not in "iu" or places.shape != values.shape or values.ndim != 1:
            raise InputError(f"coordinates of dimension {dim} are not one integer for each of the {values.size} values")
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < size:
            raise InputError(f"a coordinate of dimension {dim} is outside 0..{size - 1}")
    if _has_duplicates(coordinates, shape):
        raise InputError("an entry occurs twice; sum the duplicates first")


def _has_duplicates(coordinates: Sequence[Array], shape: tuple[int, ...]) -> bool:
    if coordinates[0].size < 2:
        return False
    key = _key(coordinates, shape)
    if key is not None:
        key = np.sort(key)
        return bool((key[1:] == key[:-1]).any())
    order = np.lexsort(coordinates)
    same = np.ones(order.size - 1, dtype=bool)
    for places in coordinates:
        same &= places[order[1:]] == places[order[:-1]]
    return bool(same.any())


def _refuse_positions(count: int, entries: int) -> None:
    if too_many_positions(count, entries):
        raise InputError(f"{count} positions for {entries} entries; choose compressed instead of dense levels")


def _refuse_values(count: int, entries: int) -> None:
    if count > MAX_IDLE_VALUES and count > MAX_FILL * entries:
        raise InputError(f"{count} values for {entries} entries; choose compressed instead of dense levels, or smaller blocks")


def _cast(values: Array, dtype: DTypeLike) -> Array:
    wanted = np.dtype(dtype)
    if wanted.name not in VALUE_TYPES:
        raise InputError(f"values cannot be packed as {wanted}, only as {', '.join(VALUE_TYPES)}")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=wanted)


# -------------------------------------------------------------------------------------------------------------- packing


def _is_rows(levels: tuple[Level, ...]) -> bool:
    """Whether this is CSR or CSC, perhaps loose."""
    return [level.op for level in levels] == [None, None] and levels[0].type == "dense" and levels[1].type in _SEGMENTED


def _row_arrays(level: Level, starts: Array, inner: Array) -> dict[str, Array]:
    return {"positions1": _pairs(starts) if level.type == "loose_compressed" else starts, "coordinates1": inner}


def _by_columns(csr: csr_array, values: Array) -> tuple[Array, Array, Array]:
    """Positions, rows and values of the columns.  16-bit ones are permuted by entry number, as SciPy does not take them."""
    from scipy.sparse import csr_array

    if values.dtype.name not in HALVES:
        csc = csr_array((values, csr.indices, csr.indptr), shape=csr.shape).tocsc()
        return csc.indptr, csc.indices, csc.data
    order = np.arange(csr.nnz, dtype=csr.indices.dtype)
    csc = csr_array((order, csr.indices, csr.indptr), shape=csr.shape).tocsc()
    return csc.indptr, csc.indices, values[csc.data]


def _lines(starts: Array, dtype: DTypeLike) -> Array:
    """The row of each entry, or the column, from the positions of rows or columns."""
    return np.repeat(np.arange(starts.size - 1, dtype=dtype), np.diff(starts))


def _pack_in_parts(starts: Array, inner: Array, values: Array, shape: tuple[int, ...], encoding: Encoding) -> Packed:
    """Pack a matrix some rows at a time, or columns where the first level walks these: the same arrays as at once."""
    first, parts, bounds, stored = encoding.levels[0], [], _part_bounds(starts, encoding.levels[0]), 0
    for begin, end in itertools.pairwise(bounds):
        entries = slice(int(starts[begin]), int(starts[end]))
        places = [_lines(starts[begin : end + 1], inner.dtype), inner[entries]]
        extents = tuple(end - begin if dim == first.dim else size for dim, size in enumerate(shape))
        part = _pack(places[:: -1 if first.dim else 1], values[entries], extents, encoding, values.size)
        stored += part.sizes["values"]
        _refuse_values(stored, values.size)
        parts.append(part)
    begins = [begin // (first.size if first.op else 1) for begin in bounds[:-1]]
    arrays = {name: _joined(name, parts, begins, first) for name in parts[0].arrays}
    return _finish(encoding, shape, arrays, arrays.pop("values"))


def _part_bounds(starts: Array, first: Level) -> list[int]:
    """Where parts begin and end: whole blocks of rows with about `_PART` entries."""
    lines, size = starts.size - 1, first.size if first.op else 1
    bounds = [0]
    while bounds[-1] < lines:
        end = int(np.searchsorted(starts, starts[bounds[-1]] + _PART, side="right")) - 1
        bounds.append(min(max(end // size * size, bounds[-1] + size), lines))
    return bounds


def _joined(name: str, parts: Sequence[Packed], begins: Sequence[int], first: Level) -> Array:
    """One array of the whole from those of the parts, whose first rows (or blocks of them) are `begins`."""
    found = [part.arrays[name] for part in parts]
    if name == "coordinates0":
        found = [part.astype(np.int64) + begin for part, begin in zip(found, begins, strict=True)]
    if not name.startswith("positions"):
        return np.concatenate(found)
    number = name.removeprefix("positions")
    counts = np.cumsum([0, *(part.sizes[f"coordinates{number}"] for part in parts)])
    if number == "0":
        return counts[[0, -1]]
    pairs = parts[0].encoding.levels[int(number)].type == "loose_compressed"
    shifted = [part.astype(np.int64) + before for part, before in zip(found, counts[:-1], strict=True)]
    return np.concatenate(shifted if pairs else [shifted[0], *(part[1:] for part in shifted[1:])])


def _pack(
    coordinates: list[Array], values: Array, shape: tuple[int, ...], encoding: Encoding, entries: int | None = None
) -> Packed:
    """Pack checked entries, level by level.  `entries` are those of the whole tensor, where these are only a part of it.

    Between two levels, `at[e]` is the position of entry e among the `count` of the levels so far.  Entries are sorted by
    all levels but the dense ones at the end, so `at` ascends until these.
    """
    levels = encoding.levels
    extents = encoding.level_sizes(shape)
    stored = _stored_levels(encoding)
    entries = values.size if entries is None else entries
    order = _order([_places(level, coordinates[level.dim]) for level in levels[:stored]], extents[:stored])
    if order is not None:
        coordinates, values = [c[order] for c in coordinates], values[order]
    arrays: dict[str, Array] = {}
    at: Array = np.zeros(values.size, dtype=np.int64)
    count = 1
    for number, level in enumerate(levels):
        place = _places(level, coordinates[level.dim])
        if level.type == "dense":
            count *= extents[number]
            _refuse_positions(count, entries) if number < stored else _refuse_values(count, entries)
            at = at * extents[number] + place
        elif level.type == "singleton":
            if count != values.size:
                raise InputError(f"level {number} is a singleton; {values.size} entries share {count} positions above it")
            arrays[f"coordinates{number}"] = place
        else:
            fresh = _fresh(level, at, place)
            starts = np.zeros(count + 1, dtype=np.int64)
            np.cumsum(np.bincount(at[fresh], minlength=count), out=starts[1:])
            arrays[f"positions{number}"] = _pairs(starts) if level.type == "loose_compressed" else starts
            arrays[f"coordinates{number}"] = place[fresh]
            at, count = np.cumsum(fresh) - 1, int(starts[-1])
    if levels[-1].type == "dense":
        filled = np.full(count, -0.0, dtype=values.dtype)  # what fills a block; an entry is never -0
        filled[at] = values + values.dtype.type(0)
        values = filled
    return _finish(encoding, shape, arrays, values)


def _stored_levels(encoding: Encoding) -> int:
    """Number of levels without the dense ones at the end."""
    return max((number for number, level in enumerate(encoding.levels, start=1) if level.type != "dense"), default=0)


def _places(level: Level, coordinates: Array) -> Array:
    """Coordinates of this level for coordinates of its dimension."""
    if level.op is None:
        return coordinates
    return coordinates // level.size if level.op == "floordiv" else coordinates % level.size


def _order(places: list[Array], extents: tuple[int, ...]) -> Array | None:
    """The order that sorts entries by `places`, the first one first; None when they are sorted already."""
    if not places or places[0].size < 2:
        return None
    key = _key(places, extents)
    if key is None:
        return np.lexsort(places[::-1])
    return None if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")


def _key(places: Sequence[Array], extents: tuple[int, ...]) -> Array | None:
    """One int64 an entry that orders as `places` do, or None when it would not fit."""
    if math.prod(extents) > _LARGEST[64]:
        return None
    key = places[0].astype(np.int64)
    for place, extent in zip(places[1:], extents[1:], strict=True):
        key *= extent
        key += place
    return key


def _fresh(level: Level, at: Array, place: Array) -> Array:
    """Which entries start a new position of this compressed level."""
    fresh = np.ones(at.size, dtype=bool)
    if level.unique:
        np.not_equal(place[1:], place[:-1], out=fresh[1:])
        fresh[1:] |= at[1:] != at[:-1]
    return fresh


def _pairs(starts: Array) -> Array:
    return np.column_stack((starts[:-1], starts[1:])).ravel()


def _finish(encoding: Encoding, shape: tuple[int, ...], arrays: dict[str, Array], values: Array) -> Packed:
    """Narrow the index arrays to their widths and note the sizes."""
    narrow = {name: _narrow(name, array, encoding) for name, array in arrays.items()}
    narrow["values"] = values
    sizes = {f"lvl{number}": size for number, size in enumerate(encoding.level_sizes(shape))}
    return Packed(encoding, tuple(shape), narrow, sizes | {name: array.size for name, array in narrow.items()})


def _narrow(name: str, array: Array, encoding: Encoding) -> Array:
    what = "position" if name.startswith("positions") else "coordinate"
    width = encoding.position_width if what == "position" else encoding.coordinate_width
    largest = int(array.max()) if array.size else 0
    if largest > _LARGEST[width]:
        fits = min(w for w in INDEX_WIDTHS if largest <= _LARGEST[w])
        level = name.removeprefix(f"{what}s")
        raise InputError(f"{what} {largest} of level {level} does not fit in {width} bits; use {what} width {fits}")
    return np.ascontiguousarray(array, dtype=_INDEX_TYPES[width])


# ------------------------------------------------------------------------------------------------------------ unpacking


def _children(packed: Packed, number: int, level: Level, at: Array) -> tuple[Array | None, Array, Array]:
    """For each position below the positions `at`: its parent (an index of `at`; None: the same), coordinate and number."""
    if level.type == "singleton":
        return None, packed.arrays[f"coordinates{number}"][at], at
    if level.type == "dense":
        extent = packed.sizes[f"lvl{number}"]
        parent = np.repeat(np.arange(at.size), extent)
        place = np.tile(np.arange(extent), at.size)
        return parent, place, at[parent] * extent + place
    positions = packed.arrays[f"positions{number}"].astype(np.int64)
    first, end = (
        (positions[2 * at], positions[2 * at + 1]) if level.type == "loose_compressed" else (positions[at], positions[at + 1])
    )
    counts = end - first
    parent = np.repeat(np.arange(at.size), counts)
    before = np.cumsum(counts) - counts
    below = np.arange(parent.size) + (first - before)[parent]
    return parent, packed.arrays[f"coordinates{number}"][below].astype(np.int64), below


def _nonzeros(values: Array, at: Array, extents: list[int]) -> tuple[Array, list[Array], Array]:
    """What is not -0 in the dense levels (`extents`) below the positions `at`: index of `at`, coordinates, values."""
    fill = math.prod(extents)
    if fill == 0 or at.size == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, [nothing] * len(extents), values[:0]
    if not np.array_equal(at, np.arange(values.size // fill)):
        values = values.reshape(-1, fill)[at].ravel()
    found = np.flatnonzero((values != 0) | ~np.signbit(values))
    parent, *inner = np.unravel_index(found, (at.size, *extents))
    return parent, list(inner), values[found]
