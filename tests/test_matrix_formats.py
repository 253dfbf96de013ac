"""Reading tensors (`.tns`, `.npz`), triplets (`.npy`), and the options behind a file's name."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import SHARED, computation, matvec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparseditto.compiler import text_blocks
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.matrix_io import Options, Source, load, load_matrix
from sparseditto.compiler.matrix_tensor import Tensor, make_tensor, unfold
from sparseditto.compiler.problem import bind
from sparseditto.dialects.errors import InputError

TENSORS = SHARED / "data/corpus/tensors"
nan, inf = math.nan, math.inf


def write(folder: Path, content: str | bytes, name: str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def tensor(folder: Path, text: str | bytes, name: str = "t.tns", options: Options | None = None) -> Tensor:
    found = load(write(folder, text, name), options)
    assert isinstance(found, Tensor)
    return found


def entries(found: Tensor) -> list[tuple[Any, ...]]:
    return list(zip(*(c.tolist() for c in found.coordinates), found.values.tolist(), strict=True))


def matrix_of(path: Path, options: Options | None = None) -> Matrix:
    matrix = load_matrix(path, options)
    fresh = sp.csr_array((matrix.csr.data, matrix.csr.indices, matrix.csr.indptr), shape=matrix.csr.shape)
    fresh.check_format(full_check=True)
    assert fresh.has_canonical_format
    return matrix


# ----------------------------------------------------------------------------------------------------------- .tns: accepted

TEXT = "# a comment\n\n2 1 3 1.5\n1 1 1 -2e0 # here too\n 2\t2 1 0\n1 1 1 5\n"


def test_tns(tmp_path: Path) -> None:
    found = tensor(tmp_path, TEXT)
    assert found.shape == (2, 2, 3)
    assert entries(found) == [(0, 0, 0, 3), (1, 0, 2, 1.5), (1, 1, 0, 0)]
    assert found.notes == ("no shape is stored: 2 x 2 x 3 are the largest indices", "1 duplicate entry was summed")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_tns_compressed_and_with_other_line_ends(tmp_path: Path, compress: Any, end: str) -> None:
    text = TEXT.replace("\n", end).encode()
    for name in ("t.tns.gz", "t.tns.bz2", "t.TNS.xz", "t.tns"):
        assert entries(tensor(tmp_path, compress(text), name)) == entries(tensor(tmp_path, TEXT))


def test_tns_as_mlir_extends_it(tmp_path: Path) -> None:
    found = tensor(tmp_path, "# extended FROSTT format\n3 2\n4 5 6\n1 2 3 1\n4 5 6 2\n")
    assert found.shape == (4, 5, 6)
    assert found.notes == ()
    assert entries(found) == [(0, 1, 2, 1), (3, 4, 5, 2)]
    assert tensor(tmp_path, "3 0\n4 5 6\n").values.size == 0


def test_tns_of_more_dimensions(tmp_path: Path) -> None:
    assert tensor(tmp_path, "1 2 3 4 5 6\n").shape == (1, 2, 3, 4, 5)


def test_tns_of_two_dimensions_is_a_matrix(tmp_path: Path) -> None:
    path = write(tmp_path, "2 3 1.5\n1 1 2\n2 3 1\n", "a.tns")
    assert matrix_of(path).csr.toarray().tolist() == [[2, 0, 0], [0, 0, 2.5]]
    assert matrix_of(path, Options(shape=(3, 3))).csr.shape == (3, 3)


def test_tns_values(tmp_path: Path) -> None:
    found = tensor(tmp_path, "1 1 1 nan\n1 1 2 -INF\n1 1 3 Infinity\n1 1 4 1e400\n1 1 5 .5\n")
    np.testing.assert_array_equal(found.values, [nan, -inf, inf, inf, 0.5])


def test_tns_with_a_shape(tmp_path: Path) -> None:
    assert tensor(tmp_path, TEXT, options=Options(shape=(4, 4, 4))).shape == (4, 4, 4)


def test_tns_with_long_indices(tmp_path: Path) -> None:
    found = tensor(tmp_path, f"{2**40} 1 {2**62} 1\n")
    assert entries(found) == [(2**40 - 1, 0, 2**62 - 1, 1)]


def test_tns_in_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK", 16)
    assert entries(tensor(tmp_path, TEXT)) == [(0, 0, 0, 3), (1, 0, 2, 1.5), (1, 1, 0, 0)]
    with pytest.raises(InputError, match="index 0 of dimension 1") as caught:
        tensor(tmp_path, TEXT + "#\n1 0 1 1\n")
    assert caught.value.where == f"{tmp_path / 't.tns'}:8"


# ------------------------------------------------------------------------------------------------------------ .tns: refused


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "has no entry"),
        ("# only\n\n", None, "has no entry"),
        ("1\n", 1, "an entry of 0 dimensions"),
        ("1 " * 17 + "1\n", 1, "an entry of 17 dimensions"),
        ("1 1.5\n", 1, "'1 1.5' is neither an entry nor 'rank entries'"),
        ("3 1\n", 1, "should hold 3 sizes"),
        ("3 1\n2 2\n1 1 1 1\n", 2, "should hold 3 sizes"),
        ("1 1\n2\n1 1\n", 1, "an entry of 1 dimension"),
        ("3 2\n2 2 2\n1 1 1 1\n", None, "line 1 promises 2 entries, and the file has 1"),
        ("3 1\n2 2 2\n1 1 3 1\n", None, r"index 3 of dimension 2 is outside 1\.\.2, which the file says"),
        ("1 1 1 1\n1 1 1\n", 2, "'1 1 1' has 3 numbers; an entry has 3 indices and a value"),
        ("1 1 1 1\n1 1 1 1 1\n", 2, "has 5 numbers"),
        ("1 1 1 1\n#\n0 1 1 1\n", 3, "index 0 of dimension 0 is out of range; indices count from 1"),
        ("1 -1 1 1\n", 1, "index -1 of dimension 1"),
        ("1 1.0 1 1\n", 1, "index '1.0' is not an integer"),
        ("1 1e0 1 1\n", 1, "index '1e0' is not an integer"),
        (f"1 1 {2**63} 1\n", 1, "is out of range"),
        ("1 1 1 x\n", 1, "value 'x' is not a number"),
        ("1 1 1 1.5.5\n", 1, "value '1.5.5' is not a number"),
        ("1 1 1 1\n1 1 1 1\0\n", 2, "value '1.x00' is not a number"),
        ("%%MatrixMarket matrix coordinate real general\n", 1, "index '%%MatrixMarket' is not an integer"),
    ],
)
def test_tns_refusals(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(write(tmp_path, text, "t.tns"))
    where = str(tmp_path / "t.tns")
    assert caught.value.where == (f"{where}:{line}" if line else where)


def test_tns_against_a_shape(tmp_path: Path) -> None:
    for shape, message in (
        ((1, 2, 3), r"index 2 of dimension 0 is outside 1\.\.1, which shape="),
        ((2, 2), "says 2 dimensions"),
    ):
        with pytest.raises(InputError, match=message):
            tensor(tmp_path, TEXT, options=Options(shape=shape))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_tns_cut_short(tmp_path: Path, compress: Any) -> None:
    with pytest.raises(InputError, match="damaged or cut short"):
        load(write(tmp_path, compress(TEXT.encode() * 50)[:-9], "t.tns.xz"))


@pytest.mark.filterwarnings("ignore:Reading .*npy")  # a header that only Python 2 writes
@given(
    edits=st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3), st.integers(0, 4)), min_size=1, max_size=3),
    suffix=st.sampled_from([".tns", ".tns.gz", ".npy", ".npz"]),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_refused_or_harmless(tmp_path: Path, edits: list[tuple[int, bytes, int]], suffix: str) -> None:
    path = tmp_path / f"whole{suffix}"
    if suffix == ".npy":
        np.save(path, np.array([(0, 1, 2.5), (3, 1, 1)]))
    elif suffix == ".npz":
        np.savez(path, format=b"coo", shape=(2, 2, 2), data=np.ones(2), coords=np.array([[0, 1], [1, 1], [0, 0]]))
    else:
        path.write_bytes(TEXT.encode() if suffix == ".tns" else gzip.compress(TEXT.encode()))
    damaged = bytearray(path.read_bytes())
    for place, inserted, removed in edits:
        place %= len(damaged) + 1
        damaged[place : place + removed] = inserted
    with contextlib.suppress(InputError):
        load(write(tmp_path, bytes(damaged), "damaged" + suffix))


# ------------------------------------------------------------------------------------------------------------------ tensors


def test_tensors_in_npz(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"format": b"coo", "shape": (2, 3, 4), "data": np.array([1.0, 2, 3], np.float32)}
    parts["coords"] = np.array([[1, 0, 1], [2, 0, 2], [3, 1, 3]])
    np.savez(tmp_path / "t.npz", **parts)
    found = load(tmp_path / "t.npz")
    assert isinstance(found, Tensor)
    assert entries(found) == [(0, 0, 1, 2), (1, 2, 3, 4)]
    assert found.values.dtype == np.float32
    for changed, message in (
        ({"shape": (2, 3, 3)}, r"index 3 of dimension 2 is outside 0\.\.2"),
        ({"shape": (2, 3)}, "a matrix needs 2 rows"),
        ({"shape": (2, 3, -4)}, "is negative"),
        ({"coords": parts["coords"][:2]}, "is no list of 3 places in 3 dimensions"),
        ({"coords": parts["coords"] * 1.0}, "is no list of 3 places"),
        ({"data": np.ones(3) * 1j}, "complex"),
    ):
        np.savez(tmp_path / "t.npz", **parts | changed)
        with pytest.raises(InputError, match=message):
            load(tmp_path / "t.npz")


def test_tensors_as_scipy_saves_them(tmp_path: Path) -> None:
    try:
        sp.save_npz(tmp_path / "t.npz", sp.coo_array(np.arange(8.0).reshape(2, 2, 2)))
    except (ValueError, TypeError):
        pytest.skip("this SciPy has no sparse arrays of three dimensions")
    found = load(tmp_path / "t.npz")
    assert isinstance(found, Tensor)
    assert found.shape == (2, 2, 2)
    assert found.values.tolist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_unfolding(mode: int) -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((3, 4, 5)) * (rng.random((3, 4, 5)) < 0.4)
    found = make_tensor(np.nonzero(dense), dense[np.nonzero(dense)], dense.shape, None)
    assert isinstance(found, Tensor)
    expected = np.moveaxis(dense, mode, 0).reshape(dense.shape[mode], -1, order="F")  # as Kolda and Bader define it
    matrix = unfold(found, mode)
    assert matrix.csr.toarray().tolist() == expected.tolist()
    assert matrix.notes == (f"a tensor of 3 x 4 x 5, unfolded with the rows from dimension {mode}",)


def test_unfolding_refusals(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT, "t.tns")
    with pytest.raises(InputError, match=r"mode 3 is not one of 0\.\.2"):
        load(path, Options(mode=3))
    with pytest.raises(InputError, match="is too large"):
        load(write(tmp_path, f"1 {2**40} {2**40} 1\n", "t.tns"), Options(mode=0))
    with pytest.raises(InputError, match="is a matrix; mode= is for tensors"):
        load(write(tmp_path, "1 1 1\n", "a.tns"), Options(mode=0))


def test_a_tensor_is_bound_unfolded_or_not_at_all(tmp_path: Path) -> None:
    path, spmv = write(tmp_path, TEXT, "t.tns"), computation(matvec())
    with pytest.raises(InputError, match=r"is a tensor of 2 x 2 x 3, .* t.tns,mode=0 unfolds".replace(" t.tns", ".*t.tns")):
        bind(spmv, {"A": str(path)})
    problem = bind(spmv, {"A": f"{path},mode=2"})
    assert problem.sizes == {0: 3, 1: 4}
    assert "unfolded with the rows from dimension 2" in " ".join(problem.notes)


@pytest.mark.skipif(not TENSORS.is_dir(), reason=f"there is no {TENSORS}")
@pytest.mark.parametrize("name", ["gene_go_evidence", "wordnet3"])
def test_real_tensors(tmp_path: Path, name: str) -> None:
    """As its README says: zigzag differences of each coordinate, in planes of bytes."""
    with np.load(TENSORS / f"{name}.npz") as file:
        shape = tuple(int(size) for size in file["shape"])
        planes = [np.ascontiguousarray(file[f"d{k}"].T).view("<u4").ravel().astype(np.int64) for k in range(len(shape))]
    coordinates = np.cumsum([(u >> 1) ^ -(u & 1) for u in planes], axis=1)[:, :20_000]
    lines = "\n".join(" ".join(map(str, (*entry, 1))) for entry in (coordinates.T + 1).tolist())
    found = tensor(tmp_path, lines, options=Options(shape=shape))
    assert found.shape == shape
    for stored, given_ in zip(found.coordinates, coordinates, strict=True):
        assert np.array_equal(stored, given_)
    rows = unfold(found, 1)
    assert rows.csr.sum() == coordinates.shape[1]


# --------------------------------------------------------------------------------------------------------------- triplets

ROWS, COLUMNS, VALUES = [2, 0, 2], [1, 3, 1], [1.5, 2, -1]
EXPECTED = [[0, 0, 0, 2], [0, 0, 0, 0], [0, 0.5, 0, 0]]


def save(folder: Path, array: Any) -> Path:
    np.save(folder / "a.npy", array)
    return folder / "a.npy"


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "longdouble"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_triplets(tmp_path: Path, dtype: str, order: Any) -> None:
    matrix = matrix_of(save(tmp_path, np.asarray(np.array([ROWS, COLUMNS, VALUES], dtype).T, order=order)))
    assert matrix.csr.toarray().tolist() == EXPECTED
    assert matrix.csr.dtype == (np.float32 if dtype in ("f2", "f4") else np.float64)
    assert matrix.notes == ("no shape is stored: 3 x 4 follow from the largest indices", "1 duplicate entry was summed")


@pytest.mark.parametrize("names", [("row", "column", "value"), ("i", "j", "v"), ("row", "col", "data"), ("i", "col", "val")])
@pytest.mark.parametrize("index", ["i4", "u2", ">i8", "u8"])
def test_structured_triplets(tmp_path: Path, names: tuple[str, str, str], index: str) -> None:
    row, column, value = names
    array = np.zeros(3, [(value, "f4"), ("other", "U3"), (row, index), (column, "i1")])
    array[row], array[column], array[value] = ROWS, COLUMNS, VALUES
    assert matrix_of(save(tmp_path, array)).csr.toarray().tolist() == EXPECTED


def test_triplets_without_values(tmp_path: Path) -> None:
    pairs = np.array([ROWS, COLUMNS]).T
    structured = np.array([tuple(pair) for pair in pairs.tolist()], [("row", "i8"), ("column", "i8")])
    for array in (pairs, structured):
        assert matrix_of(save(tmp_path, array)).csr.toarray().tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 2, 0, 0]]


def test_triplets_with_a_shape(tmp_path: Path) -> None:
    path = save(tmp_path, np.array([ROWS, COLUMNS, VALUES]).T)
    assert matrix_of(path, Options(shape=(5, 6))).csr.shape == (5, 6)
    problem = bind(computation(matvec()), {"A": f"{path},shape=70x50"})
    assert problem.sizes == {0: 70, 1: 50}
    for shape, message in (((2, 9), r"row 2 is outside 0\.\.1"), ((9, 3), r"column 3 is outside"), ((9, 9, 9), "3 dimensions")):
        with pytest.raises(InputError, match=message):
            load_matrix(path, Options(shape=shape))


def test_no_triplets_are_a_matrix(tmp_path: Path) -> None:
    assert matrix_of(save(tmp_path, np.zeros((0, 3)))).csr.shape == (0, 0)
    assert matrix_of(tmp_path / "a.npy", Options(shape=(3, 4))).csr.shape == (3, 4)


def test_integer_triplets_are_exact_or_noted(tmp_path: Path) -> None:
    wide = save(tmp_path, np.array([(0, 2**40, 2**60 + 1)]))
    matrix = matrix_of(wide)
    assert matrix.csr.indices.tolist() == [2**40]
    assert "1 integer of 2^53 or more may be rounded" in matrix.notes


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((4, 4)), "holds 4 x 4 of float64, not triplets .*; a dense matrix is saved with scipy.sparse.save_npz"),
        (np.ones((3, 9)), "; transpose it"),
        (np.ones((4, 2)), "not triplets"),
        (np.ones(3), "not triplets"),
        (np.array(1.0), "holds a single value"),
        (np.ones((4, 3, 1)), "not triplets"),
        (np.ones((4, 3)) * 1j, "not triplets"),
        (np.array([["a", "b", "c"]]), "not triplets"),
        (np.array([(0, -1, 2.0)]), "entry 0 has column -1.0; count from 0"),
        (np.array([(0, 0, 2.0), (0.5, 1, 2)]), "entry 1 has row 0.5; an index is an integer"),
        (np.array([(nan, 1, 2)]), "entry 0 has row nan; an index is an integer"),
        (np.array([(inf, 1, 2)]), "entry 0 has row inf; an index is an integer"),
        (np.array([(0, 2**24 + 2, 1)], np.float32), "float32 is exact to 16777216 only; use a structured array"),
        (np.array([(0, 1e300, 1)]), "float64 is exact to 9007199254740992 only"),
        (np.array([(2**40, 0, 1)]), "is too large: CSR needs"),
        (np.array([(2**63, 0, 1)], np.uint64), "entry 0 has row 9223372036854775808; uint64 is exact to"),
        (np.zeros(2, [("row", "i4"), ("value", "f4")]), "fields row, column, value; this one has 1, and .'row', 'value'"),
        (np.zeros((2, 2), [("row", "i4"), ("col", "i4")]), "has one dimension and fields"),
        (np.zeros(2, [("row", "i4", 2), ("col", "i4")]), "one number, not an array"),
        (np.zeros(2, [("row", "U1"), ("col", "i4")]), "column 'row' holds <U1, not integers"),
        (np.zeros(2, [("row", "i4"), ("col", "i4"), ("value", "c8")]), "complex"),
    ],
)
def test_triplets_refusals(tmp_path: Path, array: Any, message: str) -> None:
    path = save(tmp_path, array)
    with pytest.raises(InputError, match=message) as caught:
        load_matrix(path)
    assert caught.value.where == str(path)


def test_npy_that_is_none(tmp_path: Path) -> None:
    whole = save(tmp_path, np.ones((500, 3))).read_bytes()
    np.savez(tmp_path / "archive.npz", a=np.ones(3))
    for content in (b"", b"hello", whole[:60], whole[:-9], (tmp_path / "archive.npz").read_bytes()):
        with pytest.raises(InputError, match=r"cannot be read as .npy"):
            load_matrix(write(tmp_path, content, "b.npy"))
    with pytest.raises(InputError, match=r"cannot be read as .npy: .*allow_pickle"):
        load_matrix(save(tmp_path, np.array([object()])))


# ---------------------------------------------------------------------------------------------------------------- options


def test_options_behind_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Source.parse("a.npy") == Source(Path("a.npy"))
    assert Source.parse("d/a,b.npy") == Source(Path("d/a,b.npy"))
    assert Source.parse("a.npy,shape=70x50") == Source(Path("a.npy"), Options((70, 50)))
    assert Source.parse("t.tns,mode=1,shape=3x4x5") == Source(Path("t.tns"), Options((3, 4, 5), 1))
    Path("odd.npy,mode=1").touch()
    assert Source.parse("odd.npy,mode=1") == Source(Path("odd.npy,mode=1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t.tns,mod=1", "no option is named 'mod'; did you mean 'mode'"),
        ("t.tns,mode=", "'mode=' is no option; write"),
        ("t.tns,mode=-1", "'mode=-1' is no option"),
        ("t.tns,mode=1,mode=1", "each once"),
        ("t.tns,shape=70", "'shape=70' is no option"),
        ("t.tns,shape=7x", "'shape=7x' is no option"),
    ],
)
def test_options_refusals(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Source.parse(text)


@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.bz2", "a.npz"])
def test_files_that_say_their_shape(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="says its own shape"):
        load(write(tmp_path, "", name), Options(shape=(2, 2)))
