"""Packed files: what they hold, the way back, `sparseditto pack`, and files that are not what they say."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, UNNAMED_ENCODINGS, matmul
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparseditto.compiler import matrix, packing
from sparseditto.compiler.api import compile_file, run
from sparseditto.compiler.cli import main as sparseditto_main
from sparseditto.compiler.cli.common import run_and_report
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.matrix_io import from_scipy, load, load_matrix
from sparseditto.compiler.matrix_tensor import Tensor, make_tensor
from sparseditto.compiler.packed_io import FORMATS, PackedFile, load_packed, pack_source, packed_format, save_packed
from sparseditto.compiler.packing import pack
from sparseditto.dialects.encoding import Encoding, Level
from sparseditto.dialects.errors import InputError

A = sp.csr_array(np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 0, 4], [0, 0, 5, 0], [0, 0, 0, 6]]))
DTYPES = ("float16", "bfloat16", "float32", "float64")


def packed(source: Any, name: str, dtype: str = "float64", **widths: Any) -> PackedFile:
    loaded = source if isinstance(source, (Matrix, Tensor)) else from_scipy(source)
    rank = 2 if isinstance(loaded, Matrix) else loaded.rank
    return pack_source(loaded, packed_format(name, rank, **widths), dtype)


def same(a: Any, b: Any) -> bool:
    return (
        a.shape == b.shape
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and np.array_equal(a.data, b.data, equal_nan=True)
    )


# ----------------------------------------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("matrix_name", MATRICES)
@pytest.mark.parametrize("name", FORMATS)
def test_there_and_back(tmp_path: Path, matrix_name: str, name: str) -> None:
    source = MATRICES[matrix_name]()
    save_packed(tmp_path / "a.npz", packed(source, name, "float32"))
    found = load_matrix(tmp_path / "a.npz")
    with np.errstate(over="ignore"):
        assert same(found.csr, source.astype(np.float32))
    assert found.csr.indices.dtype == found.csr.indptr.dtype == np.int32
    assert found.notes[0].startswith("packed as #sparse_tensor.encoding<{ map = (d0, d1) -> (")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("widths", [{}, {"coordinate_width": 8, "position_width": 16}, {"coordinate_width": 64}])
def test_types_and_widths(tmp_path: Path, dtype: str, widths: dict[str, int]) -> None:
    file = packed(A, "csr", dtype, **widths)
    save_packed(tmp_path / "a.npz", file)
    back = load_packed(tmp_path / "a.npz")
    assert back.packed.encoding == file.packed.encoding
    assert back.packed.sizes == file.packed.sizes
    for name, array in file.packed.arrays.items():
        assert back.packed.arrays[name].dtype == array.dtype
        assert back.packed.arrays[name].tobytes() == array.tobytes()
    loaded = load_matrix(tmp_path / "a.npz").csr
    assert loaded.toarray().tolist() == A.toarray().tolist()
    assert loaded.dtype == (np.float64 if dtype == "float64" else np.float32)


@pytest.mark.parametrize("encoding", UNNAMED_ENCODINGS.values(), ids=list(UNNAMED_ENCODINGS))
def test_encodings_without_a_name(tmp_path: Path, encoding: Encoding) -> None:
    save_packed(tmp_path / "a.npz", pack_source(from_scipy(A), encoding, "float64"))
    assert same(load_matrix(tmp_path / "a.npz").csr, A)


@pytest.mark.parametrize("name", ["coo", "csf"])
@pytest.mark.parametrize("rank", [3, 4])
def test_tensors(tmp_path: Path, name: str, rank: int) -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((3, 4, 5, 2)[:rank]) * (rng.random((3, 4, 5, 2)[:rank]) < 0.4)
    source = make_tensor(np.nonzero(dense), dense[np.nonzero(dense)], dense.shape, None)
    assert isinstance(source, Tensor)
    save_packed(tmp_path / "t.npz", packed(source, name))
    found = load(tmp_path / "t.npz")
    assert isinstance(found, Tensor)
    assert found.shape == dense.shape
    assert found.values.tolist() == source.values.tolist()
    for mine, theirs in zip(found.coordinates, source.coordinates, strict=True):
        assert mine.tolist() == theirs.tolist()
    with pytest.raises(InputError, match="mode=0 unfolds it"):
        load_matrix(tmp_path / "t.npz")
    with pytest.raises(InputError, match=f"format 'csr' is for matrices; a tensor of {rank} dimensions can be coo or csf"):
        packed(source, "csr")


def test_the_layout_of_a_file(tmp_path: Path) -> None:
    """As the module's documentation says; NumPy alone can read it."""
    save_packed(tmp_path / "a.npz", packed(A, "csr", "bfloat16", coordinate_width=16))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert set(file) == {"ditto", "positions1", "coordinates1", "values"}
        header = json.loads(file["ditto"].item())
        assert file["positions1"].tolist() == [0, 2, 2, 4, 5, 6]
        assert (file["coordinates1"].dtype, file["values"].dtype) == (np.uint16, np.uint16)
        assert (file["values"].astype(np.uint32) << 16).view(np.float32).tolist() == [1.5, 2, 3, 4, 5, 6]
        for name, digest in header["sha256"].items():
            assert hashlib.sha256(file[name].tobytes()).hexdigest() == digest
    assert set(header) == {"schema", "encoding", "text", "shape", "dtype", "sizes", "sha256", "notes"}
    assert header["text"] == packed_format("csr", coordinate_width=16).text()
    assert (header["schema"], header["shape"], header["dtype"]) == (1, [5, 4], "bfloat16")
    assert header["sizes"] == {"lvl0": 5, "lvl1": 4, "positions1": 6, "coordinates1": 6, "values": 6}


def test_equal_content_is_an_equal_file(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save_packed(tmp_path / name, packed(A, "bsr"))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


# ------------------------------------------------------------------------------------------------------------------- notes


def test_padding_is_said() -> None:
    assert packed(A, "bsr", block=(2, 3)).notes == ("padded with zeros from 5 x 4 to 6 x 6, whole blocks of 2 x 3",)
    assert packed(A, "bsr", block=(5, 2)).notes == ()


def test_duplicates_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 3\n2 1 1\n1 1 5\n2 1 2\n")
    file = packed(load_matrix(tmp_path / "a.mtx"), "csr")
    assert file.notes == ("1 duplicate entry was summed",)
    assert file.packed.arrays["values"].tolist() == [5, 3]


@pytest.mark.parametrize("name", FORMATS)
def test_values_that_are_no_numbers_are_kept(tmp_path: Path, name: str) -> None:
    source = sp.csr_array(([np.nan, np.inf, -np.inf, 1e40], ([0, 1, 2, 3], [0, 1, 2, 3])), shape=(4, 4))
    file = packed(source, name, "float32")
    assert file.notes == ("1 value beyond the range of float32 became infinite",)
    save_packed(tmp_path / "a.npz", file)
    np.testing.assert_array_equal(load_matrix(tmp_path / "a.npz").csr.data, np.float32([np.nan, np.inf, -np.inf, np.inf]))


# ---------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "widths", "message"),
    [
        ("csx", {}, "no format is named 'csx'; did you mean 'cs"),
        ("bsr", {"block": (0, 4)}, "a block of 0 x 4 holds nothing"),
        ("csr", {"coordinate_width": 12}, "width 12 is not one of"),
    ],
)
def test_formats_that_do_not_exist(name: str, widths: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        packed(A, name, **widths)


def test_narrow_indices_overflow_with_advice() -> None:
    wide = sp.csr_array(([1.0], ([0], [70_000])), shape=(1, 70_001))
    with pytest.raises(InputError, match="coordinate 70000 of level 1 does not fit in 16 bits; use coordinate width 32"):
        packed(wide, "csr", coordinate_width=16)
    long = sp.csr_array(np.ones((300, 1)))
    with pytest.raises(InputError, match="position 300 of level 1 does not fit in 8 bits; use position width 16"):
        packed(long, "csr", position_width=8)


def tampered(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], rehash: bool = True) -> Path:
    """A file of `A` whose arrays and header `change` has had, with hashes and sizes that fit."""
    save_packed(folder / "whole.npz", packed(A, "csr"))
    with np.load(folder / "whole.npz") as file:
        arrays = {name: file[name] for name in file}
    header = json.loads(arrays.pop("ditto").item())
    change(arrays, header)
    if rehash:
        header["sha256"] = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
        if isinstance(header["sizes"], dict):
            header["sizes"] |= {name: array.size for name, array in arrays.items()}
    np.savez(folder / "a.npz", ditto=np.array(json.dumps(header)), **arrays)
    return folder / "a.npz"


def setting(name: str, array: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda arrays, header: arrays.update({name: np.asarray(array)})


def saying(**keys: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda arrays, header: header.update(keys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (setting("coordinates1", np.int32([1, 3, 0, 4, 2, 3])), r"a coordinate of level 1 is outside 0\.\.3"),
        (setting("coordinates1", np.int32([1, 3, 0, -1, 2, 3])), "a coordinate of level 1 is outside"),
        (setting("coordinates1", np.int32([1, 3, 0, 3, 2])), "the positions of level 1 do not ascend from 0 to 5"),
        (setting("coordinates1", np.int64([1, 3, 0, 3, 2, 3])), "level 1 needs an array 'coordinates1' of 32 bits"),
        (setting("coordinates1", np.float32([1, 3, 0, 3, 2, 3])), "level 1 needs an array"),
        (setting("positions1", np.int32([0, 2, 1, 4, 5, 6])), "the positions of level 1 do not ascend"),
        (setting("positions1", np.int32([1, 2, 2, 4, 5, 6])), "do not ascend from 0"),
        (setting("positions1", np.int32([0, 2, 2, 4, 6])), "one for each of 5 above"),
        (setting("positions1", np.int32([0, 2, 2, 4, 5, 9])), "do not ascend from 0 to 6"),
        (setting("positions1", np.int32([[0, 2, 2, 4, 5, 6]])), "level 1 needs an array"),
        (setting("values", np.ones(7)), "there are 7 values for 6 positions"),
        (setting("values", np.ones((6, 1))), "there are 6 values for 6 positions"),
        (setting("values", np.ones(6, np.float32)), "values of type float32 are not the float64"),
        (setting("extra", np.ones(6)), "the encoding has coordinates1, positions1, values"),
        (saying(shape=[5, 3]), "the sizes are not those of the arrays"),
        (saying(shape=[5]), "walks dimension 1 of a tensor of rank 1"),
        (saying(shape=[-5, 4]), "a size is negative"),
        (saying(shape=[2**40, 4]), "is too large"),
        (saying(shape=["a", 4]), "is no .* file that can be read"),
        (saying(dtype="int32"), "values of type float64 are not the int32"),
        (saying(dtype=["float64"]), "values of type"),
        (saying(schema=2), "is packed by schema 2, and this version reads 1"),
        (saying(schema="1"), "does not say what is packed"),
        (saying(more=1), "the header of a packed file has the keys"),
        (saying(sizes=3), "the header of a packed file has the keys"),
        (saying(encoding={}), "is no stored encoding"),
        (saying(encoding={"levels": [{"dim": "a"}], "position_width": 32, "coordinate_width": 32}), "can be read"),
        (saying(encoding={"levels": [], "position_width": 32, "coordinate_width": 32}), "an encoding needs a level"),
        (saying(encoding=Encoding((Level(0), Level(1, "compresed"))).to_json()), "unknown type 'compresed'"),
    ],
)
def test_files_that_contradict_themselves(tmp_path: Path, change: Any, message: str) -> None:
    path = tampered(tmp_path, change)
    for reader in (load_matrix, load_packed):
        with pytest.raises(InputError, match=message) as caught:
            reader(path)
        assert caught.value.where == str(path)


def test_loose_positions_are_checked(tmp_path: Path) -> None:
    encoding = UNNAMED_ENCODINGS["loose csr"]
    file = pack_source(from_scipy(A), encoding, "float64")
    for wrong in ([0, 2, 2, 2, 2, 4, 4, 5, 5, 7], [2, 0, 2, 2, 2, 4, 4, 5, 5, 6], [0, 2], [-1, 2, 2, 2, 2, 4, 4, 5, 5, 6]):
        file.packed.arrays["positions1"] = np.array(wrong, np.int32)
        file.packed.sizes["positions1"] = len(wrong)
        save_packed(tmp_path / "a.npz", file)
        with pytest.raises(InputError, match="the positions of level 1 do not ascend"):
            load_matrix(tmp_path / "a.npz")


def test_a_hash_that_differs(tmp_path: Path) -> None:
    path = tampered(tmp_path, setting("values", np.arange(6.0)), rehash=False)
    with pytest.raises(InputError, match="array 'values' is not what was written: its hash differs"):
        load_matrix(path)
    path = tampered(tmp_path, lambda arrays, header: arrays.pop("values"), rehash=False)
    with pytest.raises(InputError, match="array 'values' is absent"):
        load_matrix(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "scipy.npz", A)
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "folder.npz").mkdir()
    for name, message in (
        ("scipy.npz", "is no packed file; sparseditto pack writes one"),
        ("text.npz", "is no packed file; sparseditto"),
        ("none.npz", "cannot be read: No such file"),
        ("folder.npz", "cannot be read: Is a directory"),
    ):
        with pytest.raises(InputError, match=message):
            load_packed(tmp_path / name)
    with pytest.raises(InputError, match="cannot write there: No such file"):
        save_packed(tmp_path / "missing" / "a.npz", packed(A, "csr"))


@pytest.mark.filterwarnings("ignore:Reading .*npy")  # a header that only Python 2 writes
@given(edits=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=6), cut=st.integers(0, 400))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files(tmp_path: Path, edits: list[tuple[int, int]], cut: int) -> None:
    save_packed(tmp_path / "whole.npz", packed(A, "dcsr"))
    damaged = bytearray((tmp_path / "whole.npz").read_bytes())
    for place, byte in edits:
        damaged[place % len(damaged)] = byte
    (tmp_path / "a.npz").write_bytes(damaged[: len(damaged) - cut])
    with contextlib.suppress(InputError):
        assert same(load_matrix(tmp_path / "a.npz").csr, A)


# ------------------------------------------------------------------------------------------------- sizes beyond 32 bits, mocked


def test_columns_beyond_32_bits(tmp_path: Path) -> None:
    source = sp.csr_array(([1.0, 2], np.array([5, 2**40 - 1]), np.array([0, 1, 2])), shape=(2, 2**40))
    with pytest.raises(InputError, match=f"coordinate {2**40 - 1} of level 1 does not fit in 32 bits; use coordinate width 64"):
        packed(source, "csr")
    for name in ("csr", "dcsr", "dcsc", "coo"):
        save_packed(tmp_path / "a.npz", packed(source, name, coordinate_width=64))
        found = load_matrix(tmp_path / "a.npz").csr
        assert found.indices.dtype == np.int64
        assert same(found, source)


def test_entries_beyond_32_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 32 bits ended at 5."""
    monkeypatch.setattr(matrix, "INT32_MAX", 5)
    monkeypatch.setattr(packing, "_LARGEST", {8: 2, 16: 3, 32: 5, 64: 2**63 - 1})
    loaded = from_scipy(A)
    assert loaded.csr.indices.dtype == loaded.csr.indptr.dtype == np.int64
    with pytest.raises(InputError, match="position 6 of level 1 does not fit in 32 bits; use position width 64"):
        pack_source(loaded, packed_format("csr"), "float64")
    save_packed(tmp_path / "a.npz", pack_source(loaded, packed_format("csr", position_width=64), "float64"))
    found = load_matrix(tmp_path / "a.npz").csr
    assert found.indptr.dtype == np.int64
    assert same(found, A)


# -------------------------------------------------------------------------------------------------------- the command line


def command(*words: str) -> int:
    args = sparseditto_main.parser().parse_args(words)
    return run_and_report("sparseditto", lambda: int(args.func(args)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    sp.save_npz(tmp_path / "a.npz", A)
    (tmp_path / "t.tns").write_text("1 2 3 4.5\n2 2 2 1\n")
    (tmp_path / "spmm.mlir").write_text(matmul())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", FORMATS)
def test_pack(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert command("pack", "--bind", "A=a.npz", "--format", name, "-o", "out.npz", "--coordinates", "16") == 0
    out, err = capsys.readouterr()
    assert out.startswith("encoding: #sparse_tensor.encoding<{ map = (d0, d1)")
    assert out.endswith("packed: out.npz\n")
    assert ("whole blocks" in err) == (name == "bsr")
    assert same(load_matrix(folder / "out.npz").csr, A)


def test_pack_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("pack", "--bind", "A=a.npz", "--dtype", "bf16", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["output"] == "A.npz"
    assert data["arrays"]["values"] == {"dtype": "bfloat16", "length": 6, "bytes": 12}
    assert data["sizes"]["lvl0"] == 5
    assert load_packed(folder / "A.npz").packed.arrays["values"].dtype.name == "bfloat16"


def test_pack_tensors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("pack", "--bind", "T=t.tns", "--format", "csf") == 0
    assert "shape: 2 x 2 x 3, 2 entries" in capsys.readouterr().out
    assert isinstance(load(folder / "T.npz"), Tensor)
    assert command("pack", "--bind", "T=t.tns,mode=1", "--format", "csr", "-o", "m.npz") == 0
    assert load_matrix(folder / "m.npz").csr.shape == (2, 6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bind", "a.npz"], "'a.npz' is no binding"),
        (["--bind", "A=none.npz"], "none.npz: cannot be read: No such file"),
        (["--bind", "A=a.npz", "-o", "a.bin"], "a.bin: a packed file has the suffix .npz"),
        (["--bind", "A=a.npz", "-o", "none/a.npz"], "none/a.npz: cannot write there"),
        (["--bind", "T=t.tns"], "format 'csr' is for matrices"),
        (["--bind", "A=a.npz", "--format", "coo", "--positions", "8", "--coordinates", "8"], None),
    ],
)
def test_pack_refusals(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str | None) -> None:
    assert command("pack", *words) == (2 if message else 0)
    err = capsys.readouterr().err
    assert (message or "") in err
    assert "Traceback" not in err


@pytest.mark.parametrize("words", [["--block", "4"], ["--block", "0x4"], ["--format", "ell"], ["--coordinates", "12"]])
def test_pack_arguments(folder: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command("pack", "--bind", "A=a.npz", *words)
    assert caught.value.code == 2


@pytest.mark.parametrize("name", FORMATS)
def test_a_packed_file_is_bound_to_any_plan(folder: Path, name: str) -> None:
    """Whatever it is packed as, a kernel of another encoding takes it."""
    assert command("pack", "--bind", "A=a.npz", "--format", name, "-o", "out.npz") == 0
    package = compile_file("spmm.mlir", {"A": "out.npz"}, {"K": 3}).package
    result = run(package, {"A": "out.npz"}, device="simt", verify=True)
    assert result.check is not None
    assert result.check.passed
    assert same(result.inputs.matrix, A.astype(np.float32))


def test_pack_is_what_the_kernel_gets(folder: Path) -> None:
    """The arrays in the file are those that `pack` gives to a kernel."""
    assert command("pack", "--bind", "A=a.npz", "--coordinates", "16", "--dtype", "f32", "-o", "out.npz") == 0
    expected = pack(from_scipy(A), packed_format("csr", coordinate_width=16), "float32")
    for name, array in load_packed(folder / "out.npz").packed.arrays.items():
        assert array.tolist() == expected.arrays[name].tolist()
