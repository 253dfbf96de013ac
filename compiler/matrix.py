"""The canonical form that every matrix is brought into, and the sizes that are refused rather than allocated."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    Array = np.ndarray[Any, np.dtype[Any]]

FORMATS = ".mtx and .tns (also .gz, .bz2 and .xz), .npz and .npy"  # that can be read
INT32_MAX = int(np.iinfo(np.int32).max)
NUMPY_REFUSALS = (
    *(ValueError, TypeError, SyntaxError, KeyError, OverflowError, EOFError, NotImplementedError, RuntimeError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What NumPy raises when it reads a damaged file, beside `OSError`."""
MAX_POSITIONS = 2**31
"""No array of positions may be longer than this."""
MAX_IDLE_POSITIONS = 2**28
"""... nor longer than this when it would hold more than `MAX_FILL` positions for every stored entry."""
MAX_FILL = 64


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix in canonical form.

    `csr` has sorted rows and no duplicates; zeros that the source stored are stored.  Its values are float32 where the
    source had float32 or float16, else float64; its indices are int32 where they fit, else int64.  Its arrays may be those
    of the matrix that it was made from: read them, do not write.  `notes` says in words what the reader did.
    """

    csr: csr_array
    notes: tuple[str, ...] = ()


def check_shape(shape: tuple[int, ...], entries: int, where: str | None) -> tuple[int, int]:
    """`shape` as two plain integers whose row pointer can be allocated."""
    if len(shape) != 2:
        raise InputError(f"has {len(shape)} dimensions; a matrix has 2", where=where)
    rows, columns = (int(size) for size in shape)
    if rows < 0 or columns < 0:
        raise InputError(f"the size {rows} x {columns} is negative", where=where)
    if too_many_positions(rows + 1, entries) or columns > np.iinfo(np.int64).max:
        raise InputError(
            f"{rows} x {columns} with {entries} entries is too large: CSR needs {rows + 1} row positions", where=where
        )
    return rows, columns


def too_many_positions(count: int, entries: int) -> bool:
    """Whether an array of `count` positions for `entries` stored entries is refused rather than allocated."""
    return count > MAX_POSITIONS or (count > MAX_IDLE_POSITIONS and count > MAX_FILL * entries)


def from_coordinates(data: Array, row: Array, column: Array, shape: tuple[int, int]) -> tuple[csr_array, int]:
    """CSR of checked coordinates, and how many duplicates were summed."""
    from scipy.sparse import coo_array

    dtype = index_dtype(shape, data.size)
    csr = coo_array((data, (row.astype(dtype, copy=False), column.astype(dtype, copy=False))), shape=shape).tocsr()
    return csr, data.size - csr.nnz


def make_canonical(csr: csr_array) -> tuple[csr_array, int]:
    """`csr` itself, or a sorted copy with duplicates summed, and how many there were.  Its flags must be fresh."""
    if csr.has_canonical_format:
        return csr, 0
    before = csr.nnz
    csr = csr.copy()
    csr.sum_duplicates()
    return csr, before - csr.nnz


def duplicates_note(summed: int) -> tuple[str, ...]:
    return (f"{counted(summed, 'duplicate entry was', 'duplicate entries were')} summed",) if summed else ()


def counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def from_dense(dense: Array) -> Matrix:
    from scipy.sparse import csr_array

    shape = check_shape(dense.shape, dense.size, None)
    check_real(dense, "the array", None)
    row, column = np.nonzero(dense)
    dtype = index_dtype(shape, row.size)
    starts = np.zeros(shape[0] + 1, dtype=dtype)
    np.cumsum(np.bincount(row, minlength=shape[0]), out=starts[1:])
    data = as_real(dense[row, column])
    csr = csr_array((data, column.astype(dtype), starts), shape=shape)
    return Matrix(csr, rounding_note(data, is_long_integer(dense)))


def check_real(values: Array, name: str, where: str | None) -> None:
    if values.dtype.kind == "c":
        raise InputError("complex values are not supported", where=where)
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name} holds {values.dtype}, not real numbers", where=where)


def as_real(values: Array) -> Array:
    """`values` as float32 (from float32 and float16) or float64, in native byte order and contiguous."""
    wanted = np.float32 if values.dtype.kind == "f" and values.dtype.itemsize <= 4 else np.float64
    with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
        return np.ascontiguousarray(values, dtype=wanted)


def rounding_note(values: Array, integers: bool) -> tuple[str, ...]:
    """`values` are float64; `integers` says that their source was integers of 64 bits or of any length."""
    rounded = int(np.count_nonzero(np.abs(values) >= 2**53)) if integers else 0
    return (f"{counted(rounded, 'integer', 'integers')} of 2^53 or more may be rounded",) if rounded else ()


def is_long_integer(values: Array) -> bool:
    return values.dtype.kind in "iu" and values.dtype.itemsize == 8


def index_dtype(shape: tuple[int, int], entries: int) -> Any:
    return np.int32 if max(*shape, entries) <= INT32_MAX else np.int64
