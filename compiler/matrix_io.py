"""Read a sparse matrix or tensor from a file, or take a matrix from SciPy, into one canonical form.

`load_matrix` and `load` read Matrix Market text (`.mtx`), FROSTT text (`.tns`), SciPy's `.npz` and our own packed ones, and
triplets in `.npy`; `from_scipy` takes what is in memory.  All end in a `Matrix`: CSR, rows sorted, no duplicates, stored zeros
kept; `load` also gives a `Tensor`.  Whatever is wrong ends in an `InputError`.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from lzma import LZMAError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.matrix import (
    FORMATS,
    NUMPY_REFUSALS,
    Matrix,
    as_real,
    check_real,
    check_shape,
    counted,
    duplicates_note,
    from_coordinates,
    from_dense,
    index_dtype,
    is_long_integer,
    make_canonical,
    rounding_note,
)
from sparseditto.compiler.matrix_market import load_text
from sparseditto.compiler.matrix_tensor import Tensor, load_tns, make_tensor, unfold
from sparseditto.compiler.matrix_triplets import load_triplets
from sparseditto.compiler.text_blocks import without_compression
from sparseditto.dialects.errors import InputError, did_you_mean

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Options:
    """What a file does not say.  `shape`: the sizes, for triplets and `.tns`; `mode`: the dimension of a tensor that
    becomes the rows of a matrix, the others its columns (`matrix_tensor.unfold`).
    """

    shape: tuple[int, ...] | None = None
    mode: int | None = None


@dataclass(frozen=True)
class Source:
    """A file and how to read it, as in `tensor.tns,mode=1` or `triplets.npy,shape=70x50`."""

    path: Path
    options: Options = field(default_factory=Options)

    @staticmethod
    def parse(text: str) -> Source:
        """Raises `InputError` for options that do not exist.  A file whose name looks like options is a file."""
        found = re.fullmatch(r"(.+?)((?:,[a-z]+=[^,=]*)+)", text)
        if found is None or Path(text).exists():
            return Source(Path(text))
        options: dict[str, Any] = {}
        for word in found[2].removeprefix(",").split(","):
            name, _, value = word.partition("=")
            if name not in _OPTIONS:
                raise InputError(
                    f"no option is named '{name}'{did_you_mean(name, _OPTIONS)}; there are shape and mode", where=text
                )
            if name in options or not re.fullmatch(_OPTIONS[name], value):
                raise InputError(f"'{word}' is no option; write ,shape=70x50 or ,mode=1, each once", where=text)
            options[name] = tuple(map(int, value.split("x"))) if name == "shape" else int(value)
        return Source(Path(found[1]), Options(**options))


_OPTIONS = {"shape": r"\d{1,18}(x\d{1,18})+", "mode": r"\d{1,3}"}


def load_matrix(path: Path, options: Options | None = None) -> Matrix:
    """Read `path`; its suffix says the format.  Raises `InputError`, with the line where one is to blame."""
    found = load(path, options)
    if isinstance(found, Tensor):
        sizes = " x ".join(map(str, found.shape))
        raise InputError(
            f"is a tensor of {sizes}, and a matrix has 2 dimensions; {path},mode=0 unfolds it into one, "
            f"with the rows from dimension 0 (or another of 0..{found.rank - 1})",
            where=str(path),
        )
    return found


def load(path: Path, options: Options | None = None) -> Matrix | Tensor:
    """As `load_matrix`, but a tensor that no `mode` unfolds is given as it is."""
    path, options = Path(path), options or Options()
    try:
        if path.exists() and not path.is_file():
            raise InputError("is not a file", where=str(path))
        found = _read(path, options)
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror or e}", where=str(path)) from e
    except (EOFError, zlib.error, LZMAError) as e:
        raise InputError(f"is damaged or cut short: {e}", where=str(path)) from e
    except MemoryError as e:
        raise InputError("needs more memory than there is", where=str(path)) from e
    if options.mode is None:
        return found
    if isinstance(found, Matrix):
        raise InputError("is a matrix; mode= is for tensors of more dimensions", where=str(path))
    return unfold(found, options.mode, str(path))


def from_scipy(matrix: Any) -> Matrix:
    """Canonical form of a SciPy sparse matrix or array, or of a dense 2-D array (whose zeros are not stored).

    The input is never changed; when it is canonical CSR already, the result shares its arrays.
    Raises `InputError` when it is not two-dimensional, not real, or its index arrays contradict each other.
    """
    import scipy.sparse

    if isinstance(matrix, np.ndarray):
        return from_dense(np.asarray(matrix))
    if not scipy.sparse.issparse(matrix):
        raise InputError(f"a {type(matrix).__name__} is neither a SciPy sparse matrix nor a NumPy array")
    sparse: Any = matrix
    if len(sparse.shape) != 2:
        raise InputError(f"has {len(sparse.shape)} dimensions; a matrix has 2")
    if sparse.format not in _PARTS:
        sparse = sparse.tocoo()
    return from_parts(sparse.format, sparse.shape, {name: getattr(sparse, name) for name in _PARTS[sparse.format]})


def _read(path: Path, options: Options) -> Matrix | Tensor:
    name = without_compression(path.name.lower())
    whole = path.name.lower()
    if name.endswith(".tns"):
        return load_tns(path, options.shape)
    if whole.endswith(".npy"):
        return load_triplets(path, options.shape)
    if options.shape is not None and (name.endswith(".mtx") or whole.endswith(".npz")):
        raise InputError("says its own shape; shape= is for .npy and .tns", where=str(path))
    if name.endswith(".mtx"):
        return load_text(path)
    if whole.endswith(".npz"):
        return _load_npz(path)
    archive = whole.endswith((".tar", ".tgz", ".zip")) or name.endswith(".tar")
    unpack = "; unpack the archive first" if archive else ""
    raise InputError(f"is in no format that can be read; these can: {FORMATS}{unpack}", where=str(path))


# ------------------------------------------------------------------------------------------------------- SciPy's formats

_PARTS: dict[str, tuple[str, ...]] = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


def _load_npz(path: Path) -> Matrix | Tensor:
    """A file of `scipy.sparse.save_npz`, or of `packed_io.save_packed`.  Nothing in it is unpickled."""
    from sparseditto.compiler.packed_io import is_packed, read_packed, unpacked

    where = str(path)
    with path.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise InputError("is no .npz archive; scipy.sparse.save_npz writes one that can be read", where=where)
        stream.seek(0)
        try:
            with np.load(stream, allow_pickle=False) as file:
                if is_packed(file):
                    return unpacked(read_packed(file, where), where)
                kind, shape = _npz_kind(file, where), _npz_shape(file, where)
                if kind == "coo" and len(shape) > 2 and "coords" in file and "data" in file:
                    return _npz_tensor(np.asarray(file["coords"]), np.asarray(file["data"]), shape, where)
                return from_parts(kind, shape, _npz_parts(file, kind, where), where)
        except NUMPY_REFUSALS as e:
            raise InputError(f"is no .npz file that can be read: {e}", where=where) from e


def _npz_tensor(coordinates: Array, values: Array, shape: tuple[int, ...], where: str) -> Matrix | Tensor:
    if coordinates.dtype.kind not in "iu" or values.ndim != 1 or coordinates.shape != (len(shape), values.size):
        found = f"{coordinates.dtype} of shape {coordinates.shape}"
        raise InputError(f"array 'coords' ({found}) is no list of {values.size} places in {len(shape)} dimensions", where=where)
    if min(shape) < 0 or max(shape) > np.iinfo(np.int64).max:
        raise InputError(f"the size {' x '.join(map(str, shape))} is negative or too large", where=where)
    return make_tensor(list(coordinates), values, shape, where)


def _npz_kind(file: Mapping[str, Any], where: str) -> str:
    if "format" not in file:
        raise InputError("holds no sparse matrix; scipy.sparse.save_npz writes one that can be read", where=where)
    kind = np.asarray(file["format"]).item()
    kind = kind.decode("latin-1") if isinstance(kind, bytes) else str(kind)
    if kind not in _PARTS:
        raise InputError(
            f"format '{kind}' is not known{did_you_mean(kind, _PARTS)}; known are {', '.join(_PARTS)}", where=where
        )
    return kind


def _npz_shape(file: Mapping[str, Any], where: str) -> tuple[int, ...]:
    shape = np.asarray(file["shape"]) if "shape" in file else np.zeros(1)
    if shape.dtype.kind not in "iu" or shape.ndim != 1:
        raise InputError("array 'shape' is absent or holds no sizes", where=where)
    return tuple(int(size) for size in shape)


def _npz_parts(file: Mapping[str, Any], kind: str, where: str) -> dict[str, Array]:
    if kind == "coo" and "row" not in file and "coords" in file:  # how later SciPy versions store it
        coordinates = np.asarray(file["coords"])
        if coordinates.ndim != 2 or len(coordinates) != 2:
            raise InputError(f"array 'coords' has shape {coordinates.shape}; a matrix needs 2 rows", where=where)
        return {"data": np.asarray(file["data"]), "row": coordinates[0], "col": coordinates[1]}
    missing = [name for name in _PARTS[kind] if name not in file]
    if missing:
        raise InputError(f"format '{kind}' needs array '{missing[0]}', which is absent", where=where)
    return {name: np.asarray(file[name]) for name in _PARTS[kind]}


def from_parts(kind: str, shape: tuple[int, ...], parts: Mapping[str, Array], where: str | None = None) -> Matrix:
    """The matrix that SciPy's arrays describe, checked before SciPy's unchecked C++ sees them."""
    data = parts["data"]
    check_real(data, "array 'data'", where)
    size = check_shape(shape, data.size, where)
    _check_dimensions(kind, data, parts, where)
    if kind == "dia":
        return _from_diagonals(data, parts["offsets"], size, where)
    if kind == "coo":
        row, column = parts["row"], parts["col"]
        _check_range(row, "row", size[0], where)
        _check_range(column, "col", size[1], where)
        if not data.size == row.size == column.size:
            raise InputError(f"'data', 'row' and 'col' have lengths {data.size}, {row.size}, {column.size}", where=where)
        csr, summed = from_coordinates(as_real(data), row, column, size)
        return Matrix(csr, rounding_note(csr.data, is_long_integer(data)) + duplicates_note(summed))
    return _from_compressed(kind, data, parts["indices"], parts["indptr"], size, where)


def _check_dimensions(kind: str, data: Array, parts: Mapping[str, Array], where: str | None) -> None:
    wanted = {"bsr": 3, "dia": 2}.get(kind, 1)
    if data.ndim != wanted:
        raise InputError(f"array 'data' has {data.ndim} dimensions; format '{kind}' needs {wanted}", where=where)
    for name, array in parts.items():
        if name != "data" and (array.ndim != 1 or array.dtype.kind not in "iu"):
            raise InputError(f"array '{name}' ({array.dtype}, {array.ndim}-D) is no list of integers", where=where)


def _check_range(indices: Array, name: str, size: int, where: str | None) -> None:
    if indices.size:
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= size:
            raise InputError(f"array '{name}' holds {low if low < 0 else high}; it must lie in 0..{size - 1}", where=where)


def _from_diagonals(data: Array, offsets: Array, shape: tuple[int, int], where: str | None) -> Matrix:
    """A zero on a stored diagonal is padding, as in SciPy: it is not stored."""
    from scipy.sparse import dia_array

    if len(offsets) != len(data):
        raise InputError(f"{len(data)} diagonals have {len(offsets)} offsets", where=where)
    if np.unique(offsets).size != offsets.size:
        raise InputError("array 'offsets' names a diagonal twice", where=where)
    inside = (offsets > -shape[0]) & (offsets < shape[1])
    data = data[inside]
    coo = dia_array((as_real(data), offsets[inside].astype(np.int64)), shape=shape).tocoo()
    csr, _ = from_coordinates(coo.data, coo.row, coo.col, shape)
    return Matrix(csr, rounding_note(csr.data, is_long_integer(data)))


def _from_compressed(
    kind: str, data: Array, indices: Array, starts: Array, shape: tuple[int, int], where: str | None
) -> Matrix:
    """CSR, CSC or BSR.  Arrays longer than `indptr` says are cut, as SciPy allows them."""
    from scipy.sparse import bsr_array, csc_array, csr_array

    block = (int(data.shape[1]), int(data.shape[2])) if kind == "bsr" else (1, 1)
    if 0 in block or shape[0] % block[0] or shape[1] % block[1]:
        raise InputError(f"blocks of {block[0]} x {block[1]} do not tile {shape[0]} x {shape[1]}", where=where)
    counts = (shape[0] // block[0], shape[1] // block[1])
    major, minor = counts if kind != "csc" else counts[::-1]
    stored = _check_starts(starts, major, min(len(data), len(indices)), where)
    spare = max(len(data), len(indices)) - stored
    data, indices = data[:stored], indices[:stored]
    _check_range(indices, "indices", minor, where)
    dtype = index_dtype(shape, data.size)
    parts = (as_real(data), np.ascontiguousarray(indices, dtype), np.ascontiguousarray(starts, dtype))
    container = {"csr": csr_array, "csc": csc_array, "bsr": bsr_array}[kind]
    given = container(parts, shape=shape)
    in_order = bool(given.has_sorted_indices)
    csr, summed = make_canonical(given.tocsr())
    notes: tuple[str, ...] = (f"{counted(spare, 'entry', 'entries')} beyond the last position ignored",) if spare else ()
    notes += (
        () if in_order else (f"array 'indices' was not in order within {'columns' if kind == 'csc' else 'rows'}, and is now",)
    )
    zeros = data.size - np.count_nonzero(data) if kind == "bsr" else 0
    if zeros:
        notes += (f"{counted(zeros, 'zero', 'zeros')} in blocks kept as stored entries",)
    return Matrix(csr, notes + rounding_note(csr.data, is_long_integer(data)) + duplicates_note(summed))


def _check_starts(starts: Array, major: int, available: int, where: str | None) -> int:
    """Check `indptr`; returns the number of entries that it covers."""
    if len(starts) != major + 1:
        raise InputError(f"array 'indptr' has {len(starts)} positions; {major + 1} are needed", where=where)
    if starts[0] != 0:
        raise InputError(f"array 'indptr' starts at {starts[0]}, not at 0", where=where)
    if (starts[1:] < starts[:-1]).any():
        raise InputError("array 'indptr' is not ascending", where=where)
    if starts[-1] > available:
        raise InputError(f"array 'indptr' ends at {starts[-1]}, but only {available} entries are stored", where=where)
    return int(starts[-1])
