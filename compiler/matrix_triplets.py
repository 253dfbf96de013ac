"""Read a matrix from a `.npy` file of triplets: row, column and value of each entry, counted from 0.

Two layouts are taken:

    a structured array   fields `row` (or `i`), `column` (`col`, `j`) and `value` (`val`, `data`, `v`; 1 where absent)
    an array of n x 3    row, column and value; of n x 2, of integers: row and column, the values are 1

The shape is one more than the largest indices, unless `shape` gives a larger one.  Entries may come in any order, and
those at the same place are summed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.matrix import (
    NUMPY_REFUSALS,
    Matrix,
    as_real,
    check_real,
    check_shape,
    duplicates_note,
    from_coordinates,
    is_long_integer,
    rounding_note,
)
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_FIELDS = {"row": ("row", "i"), "column": ("column", "col", "j"), "value": ("value", "val", "data", "v")}
_HINT = "a dense matrix is saved with scipy.sparse.save_npz(FILE, scipy.sparse.csr_array(a))"


def load_triplets(path: Path, shape: tuple[int, ...] | None = None) -> Matrix:
    """Raises `InputError` when the file holds no triplets, or an index is negative, no integer or outside `shape`."""
    where = str(path)
    row, column, values = _columns(load_npy(path), where)
    check_real(values, "column 'value'", where)
    rows, columns = (_as_index(part, name, where) for part, name in ((row, "row"), (column, "column")))
    least = tuple(int(part.max()) + 1 if part.size else 0 for part in (rows, columns))
    notes = rounding_note(as_real(values), is_long_integer(values))
    if shape is None:
        notes = (f"no shape is stored: {least[0]} x {least[1]} follow from the largest indices", *notes)
    elif len(shape) != 2:
        raise InputError(f"shape= says {len(shape)} dimensions; triplets are a matrix, which has 2", where=where)
    for name, most, size in zip(("row", "column"), least, shape or least, strict=True):
        if most > size:
            raise InputError(f"{name} {most - 1} is outside 0..{size - 1}, which shape= says", where=where)
    csr, summed = from_coordinates(as_real(values), rows, columns, check_shape(shape or least, values.size, where))
    return Matrix(csr, notes + duplicates_note(summed))


def load_npy(path: Path) -> Array:
    """The array of a `.npy` file, never unpickled.  Raises `InputError` when it is damaged, cut short or something else."""
    where = str(path)
    try:
        with path.open("rb") as stream:
            array = np.load(stream, allow_pickle=False)
            if not isinstance(array, np.ndarray):
                raise InputError("cannot be read as .npy: it is an .npz archive", where=where)
    except (*NUMPY_REFUSALS, OSError, MemoryError) as e:
        raise InputError(f"cannot be read as .npy: {getattr(e, 'strerror', None) or e}", where=where) from e
    return array


def _columns(array: Array, where: str) -> tuple[Array, Array, Array]:
    """Rows, columns and values as the file has them."""
    if array.dtype.names is not None:
        return _fields(array, where)
    if array.ndim == 2 and array.shape[1] == 3 and array.dtype.kind in "biuf":
        return array[:, 0], array[:, 1], array[:, 2]
    if array.ndim == 2 and array.shape[1] == 2 and array.dtype.kind in "iu":
        return array[:, 0], array[:, 1], np.ones(len(array), dtype=np.float32)
    found = f"{' x '.join(map(str, array.shape)) or 'a single value'} of {array.dtype}"
    turned = "; transpose it" if array.ndim == 2 and array.shape[0] == 3 else f"; {_HINT}"
    raise InputError(f"holds {found}, not triplets (n x 3: row, column, value from 0){turned}", where=where)


def _fields(array: Array, where: str) -> tuple[Array, Array, Array]:
    names = array.dtype.names or ()
    found = {part: next((name for name in known if name in names), None) for part, known in _FIELDS.items()}
    if array.ndim != 1 or found["row"] is None or found["column"] is None:
        wanted = "one dimension and fields row, column, value"
        raise InputError(f"a structured array of triplets has {wanted}; this one has {array.ndim}, and {names}", where=where)
    used = [name for name in found.values() if name is not None]
    if any(array.dtype[name].shape for name in used):
        raise InputError("a field of a triplet is one number, not an array", where=where)
    values = np.ones(len(array), dtype=np.float32) if found["value"] is None else array[found["value"]]
    return array[found["row"]], array[found["column"]], values


def _as_index(part: Array, name: str, where: str) -> Array:
    """`part` as int64, refused where it is negative or not surely an integer."""
    if part.dtype.kind not in "iuf":
        raise InputError(f"column '{name}' holds {part.dtype}, not integers", where=where)
    limit: int = np.iinfo(np.int64).max if part.dtype.kind in "iu" else 2 ** (np.finfo(part.dtype).nmant + 1)
    with np.errstate(invalid="ignore"):
        wrong = (part < 0) | (part > limit)
        if part.dtype.kind == "f":
            wrong |= ~np.isfinite(part) | (part != np.floor(part))
    if wrong.any():
        entry = int(np.argmax(wrong))
        why = f"{part.dtype} is exact to {limit} only; use a structured array" if part[entry] > limit else "count from 0"
        if not np.isfinite(part[entry]) or part[entry] != np.floor(part[entry]):
            why = "an index is an integer"
        raise InputError(f"entry {entry} has {name} {part[entry]}; {why}", where=where)
    index: Array = part.astype(np.int64)
    return index
