"""Packed matrices and tensors as files: the arrays of an encoding in a `.npz` archive, under the names of `packing.py`.

A packed file is an uncompressed `.npz` that `numpy.load` reads without pickle.  It holds

    positions{l}, coordinates{l}, values    the arrays of `Packed`; bfloat16 as its bits (uint16)
    ditto                                   a text, JSON: what the arrays mean

and the JSON object has the keys

    schema      1
    encoding    the levels and widths, as `Encoding.to_json`
    text        the same as MLIR's attribute, for people
    shape       the sizes of the dimensions
    dtype       the type of the values, by NumPy's name
    sizes       the length of each array, and lvl{l}, the extent of each level
    sha256      of the bytes of each array, little-endian
    notes       what was done to the source, in words

A file is believed only after its hashes, lengths, positions and coordinates have been checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.dtypes import HALVES, as_bits, dtype_of
from sparseditto.compiler.matrix import NUMPY_REFUSALS, Matrix, check_shape, counted, index_dtype
from sparseditto.compiler.matrix_tensor import Tensor, make_tensor
from sparseditto.compiler.packing import VALUE_TYPES, Packed, check_encoding, pack, pack_tensor, unpack, unpack_tensor
from sparseditto.dialects.encoding import Encoding, Level, named_encoding
from sparseditto.dialects.errors import InputError, did_you_mean

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

HEADER = "ditto"
SCHEMA = 1
FORMATS = ("csr", "csc", "dcsr", "dcsc", "bsr", "coo", "csf")
TENSOR_FORMATS = ("coo", "csf")
_KEYS = {"schema", "encoding", "text", "shape", "dtype", "sizes", "sha256", "notes"}


@dataclass(frozen=True, eq=False)
class PackedFile:
    """What a packed file holds: the arrays, and in words what was done to their source."""

    packed: Packed
    notes: tuple[str, ...] = ()


def packed_format(
    name: str, rank: int = 2, position_width: int = 32, coordinate_width: int = 32, block: tuple[int, int] = (4, 4)
) -> Encoding:
    """The encoding that `name` (of `FORMATS`) means for a tensor of this rank.

    Beside the formats of matrices there are `coo`, a list of entries, and `csf`, compressed in each dimension (DCSR for a
    matrix).  Raises `InputError` for other names, and for a format of matrices where the rank is not 2.
    """
    if name not in FORMATS:
        raise InputError(f"no format is named '{name}'{did_you_mean(name, FORMATS)}; there are {', '.join(FORMATS)}")
    if rank != 2 and name not in TENSOR_FORMATS:
        raise InputError(f"format '{name}' is for matrices; a tensor of {rank} dimensions can be {' or '.join(TENSOR_FORMATS)}")
    if min(block) < 1:
        raise InputError(f"a block of {block[0]} x {block[1]} holds nothing")
    if name == "coo":
        last = rank - 1
        inner = tuple(Level(d, "singleton", unique=d == last) for d in range(1, rank))
        return Encoding((Level(0, "compressed", unique=False), *inner), position_width, coordinate_width)
    if name == "csf":
        return Encoding(tuple(Level(d, "compressed") for d in range(rank)), position_width, coordinate_width)
    return named_encoding(name, position_width, coordinate_width, block)


def pack_source(source: Matrix | Tensor, encoding: Encoding, dtype: str) -> PackedFile:
    """Pack a matrix or tensor; the notes say what the reader did, what is padded and what became infinite."""
    if isinstance(source, Matrix):
        packed, values = pack(source, encoding, dtype_of(dtype)), source.csr.data
    else:
        values = source.values
        packed = pack_tensor(source.coordinates, values, source.shape, encoding, dtype_of(dtype))
    notes = source.notes + _padding_notes(packed) + _value_notes(values, dtype)
    return PackedFile(packed, notes)


def _padding_notes(packed: Packed) -> tuple[str, ...]:
    blocks = {level.dim: level.size for level in packed.encoding.levels if level.op}
    padded = [-(-size // blocks.get(dim, 1)) * blocks.get(dim, 1) for dim, size in enumerate(packed.shape)]
    if padded == list(packed.shape):
        return ()
    tile = " x ".join(str(blocks.get(dim, 1)) for dim in range(len(padded)))
    before, after = (" x ".join(map(str, sizes)) for sizes in (packed.shape, padded))
    return (f"padded with zeros from {before} to {after}, whole blocks of {tile}",)


def _value_notes(values: Array, dtype: str) -> tuple[str, ...]:
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = int(np.count_nonzero(np.isinf(values.astype(dtype_of(dtype)).astype(np.float32)) & np.isfinite(values)))
    if dtype not in ("float64",) and beyond:
        return (f"{counted(beyond, 'value', 'values')} beyond the range of {dtype} became infinite",)
    return ()


# -------------------------------------------------------------------------------------------------------------- writing


def header(file: PackedFile) -> dict[str, Any]:
    """What the file says of its arrays."""
    packed = file.packed
    return {
        "schema": SCHEMA,
        "encoding": packed.encoding.to_json(),
        "text": packed.encoding.text(),
        "shape": list(packed.shape),
        "dtype": packed.arrays["values"].dtype.name,
        "sizes": packed.sizes,
        "sha256": {name: _digest(array) for name, array in packed.arrays.items()},
        "notes": list(file.notes),
    }


def save_packed(path: Path, file: PackedFile) -> dict[str, Any]:
    """Write the file, whole or not at all; returns its header.  Raises `InputError` when it cannot be written there."""
    head = header(file)
    arrays = {name: _plain(array) for name, array in file.packed.arrays.items()}
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                np.savez(stream, **{HEADER: np.array(json.dumps(head))}, **arrays)  # type: ignore[arg-type]
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as e:
        raise InputError(f"cannot write there: {e.strerror or e}", where=str(path)) from e
    return head


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _plain(array: Array) -> Array:
    """The array as the file has it: little-endian, and of a type that every NumPy knows."""
    return np.asarray(as_bits(array)).astype(as_bits(array).dtype.newbyteorder("<"), copy=False)


def _digest(array: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(_plain(array)).view(np.uint8).data).hexdigest()


# -------------------------------------------------------------------------------------------------------------- reading


def is_packed(archive: Mapping[str, Any]) -> bool:
    """Whether an open `.npz` archive says that it is a packed file."""
    return HEADER in archive


def load_packed(path: Path) -> PackedFile:
    """Read a packed file and check it.  Raises `InputError` when it is damaged, or no packed file."""
    where = str(path)
    try:
        with path.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise InputError("is no packed file; sparseditto pack writes one", where=where)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                if not is_packed(archive):
                    raise InputError("is no packed file; sparseditto pack writes one", where=where)
                return read_packed(archive, where)
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror or e}", where=where) from e
    except NUMPY_REFUSALS as e:
        raise InputError(f"is no packed file that can be read: {e}", where=where) from e


def read_packed(archive: Mapping[str, Any], where: str) -> PackedFile:
    """As `load_packed`, from an open `.npz` archive."""
    data = _read_header(archive, where)
    arrays = {}
    for name, digest in data["sha256"].items():
        if name not in archive:
            raise InputError(f"array '{name}' is absent", where=where)
        array = np.asarray(archive[name])
        if name == "values" and data["dtype"] == "bfloat16" and array.dtype == np.uint16:
            array = array.view(dtype_of("bfloat16"))
        if _digest(array) != digest:
            raise InputError(f"array '{name}' is not what was written: its hash differs", where=where)
        arrays[name] = array
    try:
        encoding = Encoding.from_json(data["encoding"])
        shape = tuple(int(size) for size in data["shape"])
        sizes = {str(name): int(size) for name, size in data["sizes"].items()}
        packed = Packed(encoding, shape, arrays, sizes)
        _check(packed, data["dtype"])
    except InputError as e:
        raise InputError(e.message, where=where) from e
    return PackedFile(packed, tuple(str(note) for note in data["notes"]))


def _read_header(archive: Mapping[str, Any], where: str) -> dict[str, Any]:
    text = np.asarray(archive[HEADER])
    try:
        data = json.loads(str(text.item())) if text.dtype.kind == "U" and text.size == 1 else None
    except ValueError:
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("schema"), int):
        raise InputError(f"array '{HEADER}' does not say what is packed", where=where)
    if data["schema"] != SCHEMA:
        raise InputError(f"is packed by schema {data['schema']}, and this version reads {SCHEMA}; pack it again", where=where)
    wrong = _KEYS ^ data.keys()
    objects = all(isinstance(data.get(key), dict) for key in ("encoding", "sizes", "sha256"))
    lists = all(isinstance(data.get(key), list) for key in ("shape", "notes"))
    if wrong or not (objects and lists):
        raise InputError(f"the header of a packed file has the keys {', '.join(sorted(_KEYS))}", where=where)
    return data


def _check(packed: Packed, dtype: Any) -> None:
    """Check that the arrays are what the encoding says, so that unpacking reads nothing else."""
    levels = check_encoding(packed.encoding, len(packed.shape))
    if dtype not in VALUE_TYPES or packed.arrays["values"].dtype != dtype_of(dtype):
        raise InputError(f"values of type {packed.arrays['values'].dtype} are not the {dtype} that the header says")
    if min(packed.shape) < 0:
        raise InputError("a size is negative")
    if len(packed.shape) == 2:
        check_shape(packed.shape, packed.arrays["values"].size, None)
    extents = packed.encoding.level_sizes(packed.shape)
    expected = {f"lvl{number}": extent for number, extent in enumerate(extents)}
    if packed.sizes != expected | {name: array.size for name, array in packed.arrays.items()}:
        raise InputError("the sizes are not those of the arrays")
    names, count = {"values"}, 1
    for number, (level, extent) in enumerate(zip(levels, extents, strict=True)):
        names |= {f"{part}{number}" for part in _parts(level)}
        count = _check_level(packed, number, level, extent, count)
    if packed.arrays.keys() != names:
        raise InputError(f"the arrays are {', '.join(packed.arrays)}, and the encoding has {', '.join(sorted(names))}")
    if packed.arrays["values"].size != count or packed.arrays["values"].ndim != 1:
        raise InputError(f"there are {packed.arrays['values'].size} values for {count} positions")


def _parts(level: Level) -> tuple[str, ...]:
    return {"dense": (), "singleton": ("coordinates",)}.get(level.type, ("positions", "coordinates"))


def _check_level(packed: Packed, number: int, level: Level, extent: int, above: int) -> int:
    """The number of positions of this level, of which there are `above` above it."""
    if level.type == "dense":
        return above * extent
    widths = {"positions": packed.encoding.position_width, "coordinates": packed.encoding.coordinate_width}
    for part in _parts(level):
        array = packed.arrays.get(f"{part}{number}")
        if array is None or array.ndim != 1 or array.dtype.kind not in "iu" or 8 * array.dtype.itemsize != widths[part]:
            raise InputError(f"level {number} needs an array '{part}{number}' of {widths[part]} bits")
    places = packed.arrays[f"coordinates{number}"]
    if places.size and not 0 <= int(places.min()) <= int(places.max()) < extent:
        raise InputError(f"a coordinate of level {number} is outside 0..{extent - 1}")
    count = above if level.type == "singleton" else _check_positions(packed, number, level, above)
    if places.size != count:
        raise InputError(f"level {number} has {places.size} coordinates for {count} positions")
    return count


def _check_positions(packed: Packed, number: int, level: Level, above: int) -> int:
    starts = packed.arrays[f"positions{number}"].astype(np.int64)
    count = int(packed.arrays[f"coordinates{number}"].size)
    if level.type == "loose_compressed":
        right = (
            starts.size == 2 * above and (starts >= 0).all() and (starts <= count).all() and (starts[::2] <= starts[1::2]).all()
        )
    else:
        right = starts.size == above + 1 and starts[0] == 0 and starts[-1] == count and (starts[1:] >= starts[:-1]).all()
    if not right:
        raise InputError(f"the positions of level {number} do not ascend from 0 to {count}, one for each of {above} above")
    return count


def unpacked(file: PackedFile, where: str) -> Matrix | Tensor:
    """The matrix or tensor that a checked file stores."""
    packed = file.packed
    notes = (f"packed as {packed.encoding.text()}", *file.notes)
    try:
        if len(packed.shape) == 2:
            return _as_read(unpack(packed), notes)
        coordinates, values = unpack_tensor(packed)
    except InputError as e:
        raise InputError(e.message, where=where) from e
    values = values.astype(np.float32) if values.dtype.name in HALVES else values
    return make_tensor(coordinates, values, packed.shape, where, notes)


def _as_read(csr: Any, notes: tuple[str, ...]) -> Matrix:
    from scipy.sparse import csr_array

    dtype = index_dtype(csr.shape, csr.nnz)
    parts = (csr.data, csr.indices.astype(dtype, copy=False), csr.indptr.astype(dtype, copy=False))
    return Matrix(csr_array(parts, shape=csr.shape), notes)
