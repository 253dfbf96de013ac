"""Packing: the layout against worked examples and MLIR's own runtime, and the way back for every kind of encoding."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import UNNAMED_ENCODINGS
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import mmwrite
from scipy.sparse import coo_array, csr_array

from sparseditto.compiler import packing
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.matrix_io import from_scipy
from sparseditto.compiler.packing import Packed, pack, pack_tensor, unpack, unpack_tensor
from sparseditto.dialects.encoding import Encoding, Level, named_encoding
from sparseditto.dialects.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]

COO = UNNAMED_ENCODINGS["coo"]
ENCODINGS = {
    **{name: named_encoding(name) for name in ("csr", "csc", "dcsr", "dcsc")},
    **{f"bsr{i}x{j}": named_encoding("bsr", block=(i, j)) for i, j in ((1, 1), (2, 3), (4, 4), (5, 2))},
    **UNNAMED_ENCODINGS,
    "coo by columns": Encoding((Level(1, "compressed", unique=False), Level(0, "singleton"))),
    "loose csc": Encoding((Level(1), Level(0, "loose_compressed"))),
    "loose dcsr": Encoding((Level(0, "compressed"), Level(1, "loose_compressed"))),
    "dense by columns": Encoding((Level(1), Level(0))),
    "dense rows": Encoding((Level(0, "compressed"), Level(1))),
    "coordinates in blocks": Encoding(
        (
            Level(0, "dense", "floordiv", 3),
            Level(1, "compressed", unique=False),
            Level(0, "singleton", "mod", 3),
        )
    ),
}


def matrix_of(rows: list[list[float]]) -> Matrix:
    return from_scipy(np.array(rows))


def random_matrix(shape: tuple[int, int], density: float) -> csr_array:
    rng = np.random.default_rng(7)
    return csr_array((1 + rng.random(shape)) * (rng.random(shape) < density))


def equal(a: csr_array, b: csr_array) -> bool:
    """Equal as stored: the same entries (zeros too) with the same values (NaN equals NaN)."""
    return (
        a.shape == b.shape
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and np.array_equal(a.data, b.data, equal_nan=True)
    )


# ------------------------------------------------------------------------------------------------------------ the layout

#      0  1  2  3  4
# 0:   1  .  .  2  .
# 1:   .  .  .  .  .
# 2:   .  3  .  4  5
EXAMPLE = [[1, 0, 0, 2, 0], [0, 0, 0, 0, 0], [0, 3, 0, 4, 5]]


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("csr", {"positions1": [0, 2, 2, 5], "coordinates1": [0, 3, 1, 3, 4], "values": [1, 2, 3, 4, 5]}),
        ("csc", {"positions1": [0, 1, 2, 2, 4, 5], "coordinates1": [0, 2, 0, 2, 2], "values": [1, 3, 2, 4, 5]}),
        (
            "dcsr",
            {
                "positions0": [0, 2],
                "coordinates0": [0, 2],
                "positions1": [0, 2, 5],
                "coordinates1": [0, 3, 1, 3, 4],
                "values": [1, 2, 3, 4, 5],
            },
        ),
        (
            "dcsc",
            {
                "positions0": [0, 4],
                "coordinates0": [0, 1, 3, 4],
                "positions1": [0, 1, 2, 4, 5],
                "coordinates1": [0, 2, 0, 2, 2],
                "values": [1, 3, 2, 4, 5],
            },
        ),
        (
            "coo",
            {"positions0": [0, 5], "coordinates0": [0, 0, 2, 2, 2], "coordinates1": [0, 3, 1, 3, 4], "values": [1, 2, 3, 4, 5]},
        ),
        ("loose csr", {"positions1": [0, 2, 2, 2, 2, 5], "coordinates1": [0, 3, 1, 3, 4], "values": [1, 2, 3, 4, 5]}),
        (
            "bsr2x3",
            {
                "positions1": [0, 2, 4],
                "coordinates1": [0, 1, 0, 1],
                "values": [*(1, 0, 0, 0, 0, 0), *(2, 0, 0, 0, 0, 0), *(0, 3, 0, 0, 0, 0), *(4, 5, 0, 0, 0, 0)],
            },
        ),
        ("dense by columns", {"values": [1, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 4, 0, 0, 5]}),
        ("dense rows", {"positions0": [0, 2], "coordinates0": [0, 2], "values": [1, 0, 0, 2, 0, 0, 3, 0, 4, 5]}),
    ],
)
def test_layout(name: str, arrays: dict[str, list[float]]) -> None:
    packed = pack(matrix_of(EXAMPLE), ENCODINGS[name], "float32")
    assert {key: array.tolist() for key, array in packed.arrays.items()} == arrays
    lengths = {key: len(array) for key, array in arrays.items()}
    extents = {f"lvl{k}": size for k, size in enumerate(ENCODINGS[name].level_sizes((3, 5)))}
    assert packed.sizes == lengths | extents
    assert packed.shape == (3, 5)
    assert all(array.flags.c_contiguous and array.ndim == 1 for array in packed.arrays.values())


def test_tensor_layout() -> None:
    """Compressed sparse fibres and three-dimensional coordinates; the input may be in any order."""
    places = np.array([[2, 0, 0, 2], [1, 0, 0, 1], [3, 1, 0, 0]])
    values = np.array([4.0, 2.0, 1.0, 3.0])
    fibres = Encoding(tuple(Level(d, "compressed") for d in range(3)))
    packed = pack_tensor(places, values, (3, 2, 4), fibres, "float64")
    assert {key: array.tolist() for key, array in packed.arrays.items()} == {
        "positions0": [0, 2],
        "coordinates0": [0, 2],
        "positions1": [0, 1, 2],
        "coordinates1": [0, 1],
        "positions2": [0, 2, 4],
        "coordinates2": [0, 1, 0, 3],
        "values": [1, 2, 3, 4],
    }
    listed = Encoding((Level(0, "compressed", unique=False), Level(1, "singleton", unique=False), Level(2, "singleton")))
    packed = pack_tensor(places, values, (3, 2, 4), listed, "float64")
    assert packed.arrays["coordinates1"].tolist() == [0, 0, 1, 1]
    coordinates, back = unpack_tensor(packed)
    assert [c.tolist() for c in coordinates] == [[0, 0, 2, 2], [0, 0, 1, 1], [0, 1, 0, 3]]
    assert back.tolist() == [1, 2, 3, 4]
    with pytest.raises(InputError, match="rank 3 is no matrix"):
        unpack(packed)


# ----------------------------------------------------------------------------------------------------- MLIR's own runtime


class MemRef(ctypes.Structure):
    _fields_ = (
        ("allocated", ctypes.c_void_p),
        ("aligned", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("stride", ctypes.c_int64),
    )


class Runtime:
    """`sparse_tensor`'s runtime library, called as code from `-sparse-tensor-conversion` calls it."""

    LEVELS: ClassVar = {"dense": 1 << 16, "compressed": 1 << 18, "singleton": 1 << 19, "loose_compressed": 1 << 20}
    WIDTHS: ClassVar = {64: 1, 32: 2, 16: 3, 8: 4}

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        for name in ("_mlir_ciface_createCheckedSparseTensorReader", "_mlir_ciface_newSparseTensor"):
            getattr(self.library, name).restype = ctypes.c_void_p

    def pack(self, path: Path, encoding: Encoding, shape: tuple[int, int]) -> dict[str, Array]:
        kept: list[Array] = []

        def memref(numbers: list[int] | tuple[int, ...]) -> Any:
            array = np.array(numbers, dtype=np.uint64)
            kept.append(array)
            return ctypes.byref(MemRef(array.ctypes.data, array.ctypes.data, 0, array.size, 1))

        name = ctypes.c_char_p(str(path).encode())
        f64 = ctypes.c_int32(1)
        reader = self.library._mlir_ciface_createCheckedSparseTensorReader(name, memref([0, 0]), f64)
        tensor = ctypes.c_void_p(
            self.library._mlir_ciface_newSparseTensor(
                memref(shape),
                memref(encoding.level_sizes(shape)),
                memref([self.LEVELS[level.type] | (not level.unique) for level in encoding.levels]),
                memref([self._to_level(level) for level in encoding.levels]),
                memref([self._to_dim(encoding, dim) for dim in range(2)]),
                ctypes.c_int32(self.WIDTHS[encoding.position_width]),
                ctypes.c_int32(self.WIDTHS[encoding.coordinate_width]),
                f64,
                ctypes.c_int32(1),  # read from `reader`
                ctypes.c_void_p(reader),
            )
        )
        arrays = {}
        for number, level in enumerate(encoding.levels):
            if level.type in ("compressed", "loose_compressed"):
                arrays[f"positions{number}"] = self._array("sparsePositions", encoding.position_width, tensor, number)
            if level.type != "dense":
                arrays[f"coordinates{number}"] = self._array("sparseCoordinates", encoding.coordinate_width, tensor, number)
        arrays["values"] = self._array("sparseValuesF", 64, tensor, None)
        self.library.delSparseTensor(tensor)
        self.library.delSparseTensorReader(ctypes.c_void_p(reader))
        return arrays

    def _array(self, function: str, width: int, tensor: Any, level: int | None) -> Array:
        ref = MemRef()
        arguments = [] if level is None else [ctypes.c_uint64(level)]
        getattr(self.library, f"_mlir_ciface_{function}{width}")(ctypes.byref(ref), tensor, *arguments)
        data = ctypes.string_at(ref.aligned, ref.size * width // 8) if ref.size else b""
        return np.frombuffer(data, dtype=f"{'f' if level is None else 'u'}{width // 8}")

    @staticmethod
    def _to_level(level: Level) -> int:
        return level.dim | (0 if level.op is None else level.size << 20 | {"floordiv": 1, "mod": 2}[level.op] << 60)

    @staticmethod
    def _to_dim(encoding: Encoding, dim: int) -> int:
        numbers = {level.op: number for number, level in enumerate(encoding.levels) if level.dim == dim}
        if None in numbers:
            return numbers[None]
        return 3 << 60 | numbers["floordiv"] << 40 | encoding.levels[numbers["mod"]].size << 20 | numbers["mod"]


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    spec = importlib.util.find_spec("mlir")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in Path(folder).rglob("libmlir_c_runner_utils.so")]
    if not found:
        pytest.skip("MLIR's runtime library is not installed")
    return Runtime(found[0])


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize(("shape", "density"), [((20, 30), 0.1), ((20, 30), 0.7), ((60, 6), 0.01), ((30, 20), 1.0)])
def test_equals_upstream_runtime(runtime: Runtime, tmp_path: Path, name: str, shape: tuple[int, int], density: float) -> None:
    sparse = random_matrix(shape, density)
    mmwrite(tmp_path / "a.mtx", sparse)
    encoding = ENCODINGS[name]
    for widths in ((32, 32), (16, 8), (64, 64)):
        encoding = Encoding(encoding.levels, *widths)
        theirs = runtime.pack(tmp_path / "a.mtx", encoding, shape)
        ours = pack(from_scipy(sparse), encoding, "float64").arrays
        assert ours.keys() == theirs.keys()
        for part, array in ours.items():
            expected = theirs[part]
            if "loose" in name and part == "positions1":
                expected = expected[:-1]  # see packing.py
            assert array.dtype.itemsize == expected.dtype.itemsize
            np.testing.assert_array_equal(array, expected, err_msg=part)


# -------------------------------------------------------------------------------------------------------- there and back


@st.composite
def matrices(draw: st.DrawFn) -> csr_array:
    """Small matrices with the patterns that break packers; values are distinct and not zero."""
    rows, columns = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    pattern = draw(st.sampled_from(["empty", "random", "random", "row", "column", "one", "diagonal", "full"]))
    i, j = draw(st.integers(0, max(rows - 1, 0))), draw(st.integers(0, max(columns - 1, 0)))
    mask = np.zeros((rows, columns), dtype=bool)
    if pattern == "random":
        mask = np.array(draw(st.lists(st.booleans(), min_size=mask.size, max_size=mask.size)), dtype=bool).reshape(mask.shape)
    elif pattern == "diagonal":
        mask = np.eye(rows, columns, dtype=bool)
    elif pattern == "full":
        mask[:] = True
    else:
        where: dict[str, Any] = {"empty": ([], []), "row": (i, slice(None)), "column": (slice(None), j), "one": (i, j)}
        if mask.size:
            mask[where[pattern]] = True
    row, column = np.nonzero(mask)
    values = np.arange(1, row.size + 1, dtype=draw(st.sampled_from([np.float32, np.float64])))
    repeats = draw(st.integers(1, 2))  # duplicates in the input
    order = np.array(draw(st.permutations(range(row.size * repeats))), dtype=np.int64)
    parts = [np.tile(part, repeats)[order] for part in (values, row, column)]
    return coo_array((parts[0], (parts[1], parts[2])), shape=(rows, columns))


@given(sparse=matrices(), name=st.sampled_from(sorted(ENCODINGS)), widths=st.sampled_from([(8, 16), (32, 32), (64, 64)]))
@settings(max_examples=400, deadline=None)
def test_round_trip(sparse: csr_array, name: str, widths: tuple[int, int]) -> None:
    matrix = from_scipy(sparse)
    packed = pack(matrix, Encoding(ENCODINGS[name].levels, *widths), matrix.csr.dtype)
    check_invariants(packed)
    back = unpack(packed)
    assert equal(back, matrix.csr)
    assert back.dtype == matrix.csr.dtype


@given(sparse=matrices(), name=st.sampled_from(sorted(ENCODINGS)), part=st.integers(0, 4))
@settings(max_examples=300, deadline=None)
def test_parts_make_the_same_arrays(sparse: csr_array, name: str, part: int) -> None:
    """Large matrices are packed some rows at a time."""
    matrix, encoding = from_scipy(sparse), ENCODINGS[name]
    whole = pack(matrix, encoding, "float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_PART", part)
        parts = pack(matrix, encoding, "float32")
    check_invariants(parts)
    assert parts.sizes == whole.sizes
    for key, array in whole.arrays.items():
        assert parts.arrays[key].dtype == array.dtype
        assert np.array_equal(parts.arrays[key].view(np.uint8), array.view(np.uint8)), key


def test_parts_refuse_what_the_whole_does(monkeypatch: pytest.MonkeyPatch) -> None:
    scattered = csr_array((np.ones(40), (np.arange(40) * 100, np.arange(40) * 100)), shape=(4000, 4000))
    encoding = named_encoding("bsr", block=(50, 50))
    monkeypatch.setattr(packing, "MAX_IDLE_VALUES", 50_000)
    for part in (1 << 20, 10):
        monkeypatch.setattr(packing, "_PART", part)
        with pytest.raises(InputError, match="values for 40 entries; choose"):
            pack(from_scipy(scattered), encoding, "float32")
    monkeypatch.setattr(packing, "MAX_IDLE_VALUES", 100_000)
    assert pack(from_scipy(scattered), encoding, "float32").sizes["values"] == 100_000


def check_invariants(packed: Packed) -> None:
    """What every consumer of the arrays relies on."""
    count = 1
    for number, level in enumerate(packed.encoding.levels):
        extent = packed.sizes[f"lvl{number}"]
        if level.type == "dense":
            count *= extent
            continue
        coordinates = packed.arrays[f"coordinates{number}"]
        assert coordinates.size == 0 or coordinates.max() < extent
        if level.type != "singleton":
            positions = packed.arrays[f"positions{number}"].astype(np.int64)
            assert positions.size == (count + 1 if level.type == "compressed" else 2 * count)
            assert (np.diff(positions) >= 0).all()
            assert not positions.size or (positions[0], positions[-1]) == (0, coordinates.size)
        count = coordinates.size
    assert packed.arrays["values"].size == count


@given(data=st.data(), rank=st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_tensor_round_trip(data: st.DataObject, rank: int) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank)))
    entries = data.draw(st.sets(st.integers(0, int(np.prod(shape)) - 1), max_size=20))
    flat = np.array(data.draw(st.permutations(sorted(entries))), dtype=np.int64)
    dims = data.draw(st.permutations(range(rank)))
    types = data.draw(st.lists(st.sampled_from(["dense", "compressed", "loose_compressed"]), min_size=rank, max_size=rank))
    encoding = Encoding(tuple(Level(dim, kind) for dim, kind in zip(dims, types, strict=True)))
    packed = pack_tensor(np.unravel_index(flat, shape), flat + 1.0, shape, encoding, "float64")
    check_invariants(packed)
    coordinates, values = unpack_tensor(packed)
    assert sorted(values.tolist()) == sorted(flat + 1.0)
    assert np.array_equal(np.ravel_multi_index(tuple(coordinates), shape), values.astype(np.int64) - 1)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (3, 4)])
def test_nothing_stored(name: str, shape: tuple[int, int]) -> None:
    packed = pack(from_scipy(csr_array(shape)), ENCODINGS[name], "float32")
    assert not packed.arrays["values"].any()
    assert equal(unpack(packed), csr_array(shape, dtype=np.float32))


def test_stored_zeros() -> None:
    """They are entries: what fills a block is -0."""
    sparse = csr_array((np.array([0.0, np.nan]), np.array([1, 2]), np.array([0, 1, 2])), shape=(2, 4))
    for name, encoding in ENCODINGS.items():
        back = unpack(pack(from_scipy(sparse), encoding, "float64"))
        assert back.nnz == 2, name
        assert np.isnan(back[1, 2])


def test_unpack_refuses_what_lies_outside() -> None:
    packed = pack(matrix_of([[1, 2], [3, 4], [5, 6]]), ENCODINGS["bsr2x3"], "float64")
    packed.arrays["values"][-1] = 1
    with pytest.raises(InputError, match="outside the tensor"):
        unpack(packed)


# ------------------------------------------------------------------------------------------------------- values and widths


def test_csr_is_packed_without_a_copy() -> None:
    matrix = from_scipy(random_matrix((50, 60), 0.1))
    packed = pack(matrix, named_encoding("csr"), np.float64)
    assert np.shares_memory(packed.arrays["values"], matrix.csr.data)
    assert np.shares_memory(packed.arrays["coordinates1"], matrix.csr.indices)
    assert np.shares_memory(packed.arrays["positions1"], matrix.csr.indptr)


@pytest.mark.parametrize("name", ENCODINGS)
def test_packing_leaves_the_matrix_alone(name: str) -> None:
    matrix = from_scipy(random_matrix((30, 30), 0.02))
    before = matrix.csr.copy()
    pack(matrix, Encoding(ENCODINGS[name].levels, 16, 8), "float16")
    assert equal(matrix.csr, before)


@pytest.mark.parametrize("dtype", ["float16", "float32", np.float64, np.dtype("float32")])
@pytest.mark.parametrize("name", ["csr", "csc", "bsr2x3", "coo"])
def test_values_are_cast(name: str, dtype: Any) -> None:
    packed = pack(matrix_of([[1.0, 1e300], [0, -2.0]]), ENCODINGS[name], dtype)
    assert packed.arrays["values"].dtype == dtype
    back = unpack(packed).toarray()
    assert back.tolist() == [[1.0, 1e300 if np.dtype(dtype) == np.float64 else np.inf], [0, -2.0]]


@pytest.mark.parametrize("dtype", ["int32", "complex128", "bool", "longdouble"])
def test_other_value_types_are_refused(dtype: str) -> None:
    with pytest.raises(InputError, match="only as float16, bfloat16, float32, float64"):
        pack(matrix_of(EXAMPLE), COO, dtype)


@pytest.mark.parametrize(("width", "dtype", "last"), [(8, np.uint8, 255), (16, np.uint16, 65535), (32, np.int32, 70000)])
def test_coordinate_width(width: int, dtype: type, last: int) -> None:
    wide = from_scipy(coo_array((np.ones(1), ([0], [last])), shape=(1, last + 3)))
    packed = pack(wide, named_encoding("csr", coordinate_width=width), "float32")
    assert packed.arrays["coordinates1"].dtype == dtype
    assert packed.arrays["coordinates1"].tolist() == [last]
    assert unpack(packed).indices.tolist() == [last]
    if width < 32:
        wide = from_scipy(coo_array((np.ones(1), ([0], [last + 1])), shape=(1, last + 3)))
        message = f"coordinate {last + 1} of level 1 does not fit in {width} bits; use coordinate width {2 * width}"
        with pytest.raises(InputError, match=message):
            pack(wide, named_encoding("csr", coordinate_width=width), "float32")


@pytest.mark.parametrize(("width", "dtype", "count"), [(8, np.uint8, 255), (16, np.uint16, 65535)])
@pytest.mark.parametrize("name", ["csr", "loose csr", "dcsr", "coo"])
def test_position_width(name: str, width: int, dtype: type, count: int) -> None:
    encoding = Encoding(ENCODINGS[name].levels, position_width=width)
    packed = pack(from_scipy(np.ones((1, count))), encoding, "float32")
    positions = [array for part, array in packed.arrays.items() if part.startswith("positions")]
    assert all(array.dtype == dtype for array in positions)
    with pytest.raises(InputError, match=rf"position {count + 1} of level \d does not fit in {width} bits"):
        pack(from_scipy(np.ones((1, count + 1))), encoding, "float32")


# ------------------------------------------------------------------------------------------------------------------ guards


def lone(shape: tuple[int, int]) -> Matrix:
    """One entry, in the last corner."""
    return from_scipy(coo_array((np.ones(1), ([shape[0] - 1], [shape[1] - 1])), shape=shape))


@pytest.mark.parametrize(
    ("encoding", "number"),
    [
        (ENCODINGS["dense"], 2**40),
        (ENCODINGS["dense rows"], None),
        (named_encoding("bsr", block=(2**14, 2**14)), 2**28),
        (Encoding((Level(0), Level(1), Level(2, "compressed"))), None),
    ],
)
def test_dense_blow_up_is_refused(encoding: Encoding, number: int | None) -> None:
    if encoding.rank == 3:
        corner = [np.array([0])] * 3
        with pytest.raises(InputError, match=f"{2**40} positions for 1 entries"):
            pack_tensor(corner, np.ones(1), (2**20, 2**20, 4), encoding, "float32")
    elif number is None:
        assert pack(lone((2**20, 2**20)), encoding, "float32").sizes["values"] == 2**20
    else:
        with pytest.raises(InputError, match=f"{number} values for 1 entries"):
            pack(lone((2**20, 2**20)), encoding, "float32")


def test_very_many_columns() -> None:
    """What has no array as long as there are columns works; CSC does not, and says so."""
    matrix = lone((3, 2**40))
    for name in ("csr", "dcsr", "dcsc", "coo"):
        packed = pack(matrix, Encoding(ENCODINGS[name].levels, coordinate_width=64), "float32")
        assert equal(unpack(packed), matrix.csr)
    with pytest.raises(InputError, match=f"coordinate {2**40 - 1} of level 0 does not fit in 32 bits"):
        pack(matrix, ENCODINGS["dcsc"], "float32")
    with pytest.raises(InputError, match=f"{2**40 + 1} positions for 1 entries"):
        pack(matrix, ENCODINGS["csc"], "float32")


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ((Level(0), Level(1, "hashed")), "unknown type 'hashed'"),
        ((Level(0), Level(1, "compresed")), "did you mean 'compressed'"),
        ((Level(0), Level(1, "compressed", "shift", 2)), "unknown expression"),
        ((Level(0), Level(1, "compressed", "mod", 0)), "unknown expression"),
        ((Level(0), Level(1, "singleton")), "level 1 is a singleton"),
        ((Level(0, "singleton"), Level(1)), "level 0 is a singleton"),
        ((Level(0, unique=False), Level(1)), "level 0 is dense"),
        ((Level(0),), "dimension 1 needs one level"),
        ((Level(0), Level(1), Level(1)), "dimension 1 needs one level"),
        ((Level(0), Level(1, "dense", "floordiv", 2)), "dimension 1 needs one level"),
        ((Level(0), Level(1, "dense", "floordiv", 2), Level(1, "dense", "mod", 3)), "different sizes"),
        ((Level(0), Level(1), Level(2)), "level 2 walks dimension 2"),
        ((Level(0), Level(-1)), "level 1 walks dimension -1"),
        ((), "needs a level"),
    ],
)
def test_encodings_that_store_no_matrix(levels: tuple[Level, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pack(matrix_of(EXAMPLE), Encoding(levels), "float32")


def test_width_must_be_known() -> None:
    with pytest.raises(InputError, match="width 12 is not one of"):
        pack(matrix_of(EXAMPLE), named_encoding("csr", 12), "float32")


def test_singleton_takes_one_entry_a_position() -> None:
    one_a_row = Encoding((Level(0, "compressed"), Level(1, "singleton")))
    assert equal(unpack(pack(matrix_of([[0, 1], [2, 0]]), one_a_row, "float64")), matrix_of([[0, 1], [2, 0]]).csr)
    with pytest.raises(InputError, match="level 1 is a singleton; 5 entries share 2 positions"):
        pack(matrix_of(EXAMPLE), one_a_row, "float64")


@pytest.mark.parametrize(
    ("places", "shape", "message"),
    [
        (lambda: [np.array([0, 1])], (3, 3), "1 coordinate arrays for 2 dimensions"),
        (lambda: [np.array([0, 1]), np.array([0.0, 1.0])], (3, 3), "dimension 1 are not one integer"),
        (lambda: [np.array([0, 1]), np.array([0])], (3, 3), "dimension 1 are not one integer"),
        (lambda: [np.array([0, 3]), np.array([0, 1])], (3, 3), r"dimension 0 is outside 0\.\.2"),
        (lambda: [np.array([0, -1]), np.array([0, 1])], (3, 3), r"dimension 0 is outside 0\.\.2"),
        (lambda: [np.array([1, 1]), np.array([2, 2])], (3, 3), "occurs twice"),
        (lambda: [np.array([1, 1]), np.array([2, 2])], (2**40, 2**40), "occurs twice"),
    ],
)
def test_tensor_input_is_checked(places: Callable[[], list[Array]], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pack_tensor(places(), np.ones(2), shape, COO, "float64")


def test_sorting_beyond_one_key() -> None:
    """Extents whose product exceeds 64 bits are sorted without a combined key."""
    places = [np.array([5, 2**39, 5]), np.array([2**39, 0, 1])]
    encoding = Encoding(COO.levels, coordinate_width=64)
    packed = pack_tensor(places, np.array([1.0, 2.0, 3.0]), (2**40, 2**40), encoding, "float64")
    assert packed.arrays["values"].tolist() == [3, 1, 2]
