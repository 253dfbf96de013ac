"""`sparseditto inspect`: its numbers against plain SciPy, its plots, and the odd files and real matrices that it must take."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, SHARED
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import mmwrite

from sparseditto.agent.features.formats import FormatSize, PatternSizes, format_sizes
from sparseditto.compiler.cli import main as sparseditto_main
from sparseditto.compiler.cli.common import run_and_report
from sparseditto.compiler.inspect_pattern import (
    BLOCKS,
    Bin,
    Inspection,
    count_blocks,
    inspect_matrix,
    inspect_tensor,
    row_histogram,
)
from sparseditto.compiler.inspect_plots import histogram_text, raster, spy_counts, spy_text, write_png
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.matrix_io import from_scipy
from sparseditto.compiler.matrix_tensor import Tensor, make_tensor
from sparseditto.compiler.packed_io import pack_source, packed_format, save_packed
from sparseditto.compiler.packing import pack
from sparseditto.dialects.errors import InputError

ODD, CORPUS = SHARED / "data/odd", SHARED / "data/corpus"
CHOSEN = ("west0067", "lp_afiro", "pyamg_bar", "cryg2500", "adder_dcop_05", "miniem_empty")


def inspected(csr: Any, value_bytes: int = 4) -> Inspection:
    return inspect_matrix(from_scipy(csr), value_bytes)


def check_against_scipy(csr: sp.csr_array, found: Inspection) -> None:
    """Every number, computed another way."""
    rows, columns = csr.shape
    coo = csr.tocoo()
    row, column = coo.row.astype(np.int64), coo.col.astype(np.int64)
    assert (found.features.rows, found.features.columns, found.features.entries) == (rows, columns, csr.nnz)
    assert found.density == (csr.nnz / (rows * columns) if rows * columns else 0)
    assert found.below == max([0, *(row - column).tolist()])
    assert found.above == max([0, *(column - row).tolist()])
    assert found.diagonals == len(set((column - row).tolist()))
    assert found.diagonal_entries == int((row == column).sum())
    in_columns = np.diff(csr.tocsc().indptr)
    assert found.max_column == max(in_columns, default=0)
    assert found.empty_columns == pytest.approx((in_columns == 0).mean() if columns else 0)
    check_symmetry(csr, row, column, found)
    check_values(csr, found)
    lengths = np.diff(csr.indptr)
    for bin_ in found.histogram:
        assert bin_.rows == int(((lengths >= bin_.least) & (lengths <= bin_.most)).sum())
    assert sum(bin_.rows for bin_ in found.histogram) == rows
    for size in BLOCKS:
        assert count_blocks(csr, size) == len(set(zip((row // size).tolist(), (column // size).tolist(), strict=True)))


def check_symmetry(csr: sp.csr_array, row: Any, column: Any, found: Inspection) -> None:
    if csr.shape[0] != csr.shape[1]:
        assert found.symmetry is None
        return
    stored = dict(zip(zip(row.tolist(), column.tolist(), strict=True), csr.data.tolist(), strict=True))
    outside = {place: value for place, value in stored.items() if place[0] != place[1]}
    mirrored = [(value, outside[j, i]) for (i, j), value in outside.items() if (j, i) in outside]
    nan = [a != a and b != b for a, b in mirrored]
    expected = [
        len(mirrored),
        sum(n or a == b for n, (a, b) in zip(nan, mirrored, strict=True)),
        sum(n or a == -b for n, (a, b) in zip(nan, mirrored, strict=True)),
    ]
    assert found.symmetry is not None
    shares = [found.symmetry.pattern, found.symmetry.values, found.symmetry.skew]
    assert shares == ([count / len(outside) for count in expected] if outside else [1, 1, 1])


def check_values(csr: sp.csr_array, found: Inspection) -> None:
    finite = csr.data[np.isfinite(csr.data)]
    assert found.values.minimum == (finite.min() if finite.size else None)
    assert found.values.maximum == (finite.max() if finite.size else None)
    counts = (found.values.nans, found.values.infinities, found.values.zeros)
    assert counts == (np.isnan(csr.data).sum(), np.isinf(csr.data).sum(), (csr.data == 0).sum())


# ----------------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("name", MATRICES)
def test_hard_matrices(name: str) -> None:
    csr = MATRICES[name]()
    check_against_scipy(csr, inspected(csr))


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 40), columns=st.integers(1, 40), kind=st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_random_matrices(seed: int, rows: int, columns: int, kind: int) -> None:
    rng = np.random.default_rng(seed)
    csr = sp.random_array((rows, columns), density=rng.random() ** 2, rng=rng, format="csr")
    if kind and rows == columns:
        csr = sp.csr_array({1: csr + csr.T, 2: csr - csr.T, 3: csr + 2 * csr.T}[kind])
    csr.sum_duplicates()
    check_against_scipy(csr, inspected(csr))


def test_symmetries() -> None:
    dense = np.array([[1.0, 2, np.nan], [2, 0, -3], [np.nan, 3, 0]])
    found = inspected(sp.csr_array(dense)).symmetry
    assert found is not None
    assert (found.pattern, found.values, found.skew) == (1, 4 / 6, 4 / 6)


def test_matrices_far_wider_than_they_are_full() -> None:
    csr = sp.csr_array((np.arange(1.0, 4), np.array([3, 2**40, 5]), np.array([0, 2, 3])), shape=(2, 2**41))
    found = inspected(csr)
    assert (found.above, found.diagonals, found.max_column) == (2**40, 3, 1)
    assert found.empty_columns == pytest.approx(1)
    assert spy_counts(csr, 2, 4).tolist() == [[1, 0, 1, 0], [1, 0, 0, 0]]
    sizes = {size.name: size for size in found.formats}
    assert sizes["CSR"].coordinates == 64
    assert sizes["CSR 16"].bytes is None
    assert "need more than 16 bits" in sizes["CSR 16"].why
    assert count_blocks(csr, 4) == 3


def test_json_is_strict() -> None:
    text = json.dumps(inspected(MATRICES["special values"]()).to_json(), allow_nan=False)
    assert json.loads(text)["kind"] == "matrix"


def test_histogram() -> None:
    found = row_histogram(np.array([0, 0, 1, 2, 3, 4, 5, 8, 9, 16, 17]))
    assert [(b.least, b.most, b.rows) for b in found] == [
        *((0, 0, 2), (1, 1, 1), (2, 2, 1), (3, 4, 2), (5, 8, 2), (9, 16, 2), (17, 32, 1))
    ]
    assert row_histogram(np.zeros(3, int)) == (Bin(0, 0, 3),)
    assert row_histogram(np.zeros(0, int)) == (Bin(0, 0, 0),)
    assert row_histogram(np.array([1])) == (Bin(0, 0, 0), Bin(1, 1, 1))


# ----------------------------------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bytes_are_those_of_the_packed_arrays(name: str, dtype: str) -> None:
    csr = MATRICES[name]()
    sizes = {size.name: size for size in inspected(csr, np.dtype(dtype).itemsize).formats}
    made = {
        "CSR": packed_format("csr"),
        "CSR 16": packed_format("csr", coordinate_width=16),
        "CSC": packed_format("csc"),
        "CSC 16": packed_format("csc", coordinate_width=16),
        "DCSR": packed_format("dcsr"),
        "COO": packed_format("coo"),
        **{f"BSR {b}x{b}": packed_format("bsr", block=(b, b)) for b in BLOCKS},
    }
    for which, encoding in made.items():
        arrays = pack(from_scipy(csr), encoding, dtype).arrays
        assert sizes[which].bytes == sum(array.nbytes for array in arrays.values()), which
        assert sizes[which].places == arrays["values"].size


def test_ell_sell_and_dia() -> None:
    csr = sp.csr_array(sp.diags_array([np.ones(39), np.ones(40)], offsets=[-1, 0]))  # rows of 1, 2, 2, …
    sizes = {size.name: size for size in inspected(csr).formats}
    assert (sizes["ELL"].places, sizes["ELL"].bytes) == (80, 80 * 8)
    assert (sizes["SELL-32"].places, sizes["SELL-32"].bytes) == (128, 128 * 8 + 3 * 4)
    assert (sizes["SELL-32 sorted"].places, sizes["SELL-32 sorted"].bytes) == (128, 128 * 8 + 3 * 4 + 40 * 4)
    assert (sizes["DIA"].places, sizes["DIA"].bytes) == (80, 80 * 4 + 2 * 4)


def test_one_triangle() -> None:
    csr = sp.csr_array(sp.diags_array([np.ones(39), np.ones(40), np.ones(39)], offsets=[-1, 0, 1]))
    found = next(size for size in inspected(csr).formats if size.name == "CSR lower")
    assert (found.places, found.bytes, found.why) == (79, 79 * 8 + 41 * 4, "")
    csr.data[1] = 2
    for other in (csr, sp.csr_array((3, 4))):
        found = next(size for size in inspected(other).formats if size.name == "CSR lower")
        assert (found.bytes, found.why) == (None, "the matrix is not known to equal its transpose")
    assert found.to_json(0)["bytes_per_entry"] is None


def test_more_entries_than_32_bits_count() -> None:
    """From the sizes alone."""
    entries = 2**33
    pattern = PatternSizes(2**20, 2**16, entries, 2**13, 2**20, {(4, 4): 2**31}, entries, entries, 2**17)
    sizes = {size.name: size for size in format_sizes(pattern, 4)}
    assert sizes["CSR"] == FormatSize("CSR", 8 * (2**20 + 1) + 8 * entries, entries, 64, 32)
    assert sizes["CSR 16"] == FormatSize("CSR 16", 8 * (2**20 + 1) + 6 * entries, entries, 64, 16)
    assert sizes["CSC 16"].bytes is None
    assert sizes["BSR 4x4"].positions == 64
    assert sizes["COO"].bytes == 16 + 12 * entries
    wide = {size.name: size for size in format_sizes(PatternSizes(10, 2**31 + 1, 5, 1, 5), 8)}
    assert (wide["CSR"].coordinates, wide["CSC"].coordinates, wide["COO"].coordinates) == (64, 32, 64)


def test_tensors() -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((3, 4, 5)) * (rng.random((3, 4, 5)) < 0.3)
    dense[1] = 0
    tensor = make_tensor(np.nonzero(dense), dense[np.nonzero(dense)], dense.shape, None)
    assert isinstance(tensor, Tensor)
    found = inspect_tensor(tensor, 8)
    assert (found.entries, found.density) == (np.count_nonzero(dense), np.count_nonzero(dense) / 60)
    for dim, mode in enumerate(found.modes):
        counts = np.count_nonzero(dense, axis=tuple({0, 1, 2} - {dim}))
        assert (mode.size, mode.filled, mode.most) == (dense.shape[dim], np.count_nonzero(counts), counts.max())
    for name, size in found.bytes.items():
        arrays = pack_source(tensor, packed_format(name.lower(), 3), "float64").packed.arrays
        assert size == sum(array.nbytes for array in arrays.values())


# ------------------------------------------------------------------------------------------------------------------- plots


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
@pytest.mark.parametrize("name", MATRICES)
def test_plots_fit(width: int, name: str) -> None:
    csr = MATRICES[name]()
    histogram = histogram_text(inspected(csr).histogram, width)
    assert all(len(line) <= max(width, 20) for line in histogram)
    for unicode in (True, False):
        spy = spy_text(csr, width, unicode)[:-1]
        assert all(len(line) <= max(width, 20) for line in spy)
        assert len({len(line) for line in spy}) <= 1
        assert len(spy) <= 26
        if not unicode:
            assert "".join(spy).isascii()
    assert all(line.isascii() for line in histogram)


def test_histogram_bars() -> None:
    lines = histogram_text((Bin(0, 0, 2), Bin(1, 1, 0), Bin(3, 4, 1000)), 40)
    assert [line.count("#") for line in lines] == [1, 0, 29]
    assert lines[0] == "  0 |    2 #"
    assert histogram_text((Bin(0, 0, 0), Bin(1, 1, 0), Bin(2, 2, 5)), 20) == ["2 | 5 ##############"]


def test_spy_shows_single_entries() -> None:
    (top, *inner, bottom, mark) = spy_text(sp.csr_array(np.eye(8)), 80)
    assert mark == "a dot: entries among 1 x 1 places"
    assert top == bottom == "+----+"
    assert inner == ["|⠑⢄⠀⠀|", "|⠀⠀⠑⢄|"]


def test_spy_shades_what_is_dense() -> None:
    dense = np.ones((400, 400))
    dense[:200, :200] = 0
    dense[::20, ::20] = 1
    *lines, mark = spy_text(sp.csr_array(dense), 42)
    text = "".join(lines)
    assert mark == "░▒▓█: few to many entries among 20 x 10 places"
    assert {"█", "░"} <= set(text) <= set("█▓▒░ |+-")
    assert {"#", "."} <= set("".join(spy_text(sp.csr_array(dense), 42, unicode=False)[:-1])) <= set("#*:. |+-")


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 60), columns=st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_spy_counts_every_entry(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    csr = sp.random_array((rows, columns), density=0.3, rng=rng, format="csr")
    height, width = (int(rng.integers(1, size + 1)) for size in (rows, columns))
    expected = np.zeros((height, width), int)
    coo = csr.tocoo()
    np.add.at(expected, (coo.row.astype(int) * height // rows, coo.col.astype(int) * width // columns), 1)
    assert spy_counts(csr, height, width).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((8, 8), (8, 8)), ((1000, 1000), (96, 96)), ((1000, 3000), (47, 140)), ((36, 87482), (16, 140)), ((1, 1), (1, 1))],
)
def test_raster_is_to_scale(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    assert raster(*shape, 96, 140) == expected


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    for number, name in enumerate(MATRICES):
        csr = MATRICES[name]()
        paths = write_png(csr, inspected(csr).histogram, tmp_path / "plots", f"m{number}")
        assert [path.name for path in paths] == [f"m{number}-rows.png", f"m{number}-spy.png"]
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write there"):
        write_png(csr, (), tmp_path / "file", "a")


def test_png_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"PNGs need matplotlib .*: pip install 'sparseditto\[plot\]'"):
        write_png(MATRICES["1x1"](), (), tmp_path, "a")


# -------------------------------------------------------------------------------------------------------- the command line

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    sp.save_npz(tmp_path / "a.npz", MATRICES["staircase"]())
    (tmp_path / "t.tns").write_text("1 2 3 4.5\n2 2 2 1\n")
    np.save(tmp_path / "t.npy", np.array([(0, 1, 2.0), (3, 1, 1)]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def in_process(*words: str) -> tuple[int, str, str]:
        args = sparseditto_main.parser().parse_args(words)
        code = run_and_report("sparseditto", lambda: int(args.func(args)))
        return (code, *capsys.readouterr())

    return in_process


def test_inspect(run: Run) -> None:
    code, out, err = run("inspect", "a.npz")
    assert (code, err) == (0, "")
    for line in ("matrix: 69 x 67, 2145 entries, density 0.464", "values: float64, ", "CSR 16 ", "SELL-32 sorted", "entries:"):
        assert line in out
    assert max(map(len, out.rsplit("rows by their number of entries:", 1)[1].splitlines())) <= 60


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_inspect_without_a_terminal(run: Run, encoding: str) -> None:
    command = [sys.executable, "-m", "sparseditto.compiler.cli.main", "inspect", "a.npz"]
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(command, capture_output=True, check=True, env=environment, stdin=subprocess.DEVNULL, timeout=60)
    lines = done.stdout.decode(encoding).split("rows by their number of entries:")[1].splitlines()
    assert max(map(len, lines)) <= 80
    assert done.stdout.isascii() == (encoding != "utf-8")
    assert done.stderr == b""


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz", ".mtx.bz2", ".mtx.xz", ".tns", ".tns.gz", ".npz", ".npy", "packed.npz"])
def test_files_cut_short(run: Run, suffix: str) -> None:
    """Of every type, at every place: a message and exit code 2, or a number that the cut has shortened."""
    whole = files_of_every_type(Path())[suffix].read_bytes()
    for end in [*range(0, len(whole) - 1, max(len(whole) // 40, 1)), len(whole) - 2]:
        Path(f"cut{suffix}").write_bytes(whole[:end])
        code, out, err = run("inspect", f"cut{suffix}")
        assert code == 2 or (code == 0 and suffix in (".mtx", ".tns")), f"{end} bytes of {len(whole)}"
        assert bool(out) == (code == 0)
        assert code == 0 or err.startswith(f"sparseditto: bad-input: cut{suffix}")


def files_of_every_type(folder: Path) -> dict[str, Path]:
    """A file of each type with the same matrix (or a tensor)."""
    csr = MATRICES["staircase"]()
    texts = {".mtx": io.BytesIO(), ".tns": io.BytesIO(b"".join(b"%d 2 %d 1.5\n" % (k, k + 7) for k in range(1, 60)))}
    mmwrite(texts[".mtx"], csr)
    compressed = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    found = {}
    for kind, text in texts.items():
        for suffix, compress in ({"": bytes} | compressed).items():
            found[kind + suffix] = folder / f"whole{kind}{suffix}"
            found[kind + suffix].write_bytes(compress(text.getvalue()))
    coo = csr.tocoo()
    found |= {suffix: folder / f"whole{suffix}" for suffix in (".npz", ".npy", "packed.npz")}
    sp.save_npz(found[".npz"], csr)
    np.save(found[".npy"], np.array([coo.row, coo.col, coo.data]).T)
    save_packed(found["packed.npz"], pack_source(from_scipy(csr), packed_format("csr"), "float64"))
    return found


def test_inspect_as_json(run: Run) -> None:
    code, out, _ = run("inspect", "a.npz", "--json", "--dtype", "f64")
    assert code == 0
    data = json.loads(out)
    assert (data["kind"], data["features"]["entries"], data["value_bytes"], data["png"]) == ("matrix", 2145, 8, [])
    csr = next(entry for entry in data["formats"] if entry["name"] == "CSR")
    assert csr["bytes"] == 70 * 4 + 2145 * 12
    assert csr["bytes_per_entry"] == csr["bytes"] / 2145


def test_inspect_tensors(run: Run) -> None:
    code, out, err = run("inspect", "t.tns")
    assert code == 0
    assert "tensor: 2 x 2 x 3, 2 entries" in out
    assert "no shape is stored" in err
    code, out, _ = run("inspect", "t.tns,mode=2,shape=4x4x4", "--json")
    assert json.loads(out)["features"]["columns"] == 16
    assert json.loads(run("inspect", "t.tns", "--json")[1])["kind"] == "tensor"
    code, _, err = run("inspect", "t.tns", "--png", "plots")
    assert (code, "a tensor has no plot" in err) == (2, True)


def test_inspect_triplets(run: Run) -> None:
    assert "matrix: 4 x 2, 2 entries" in run("inspect", "t.npy")[1]
    assert "matrix: 9 x 9, 2 entries" in run("inspect", "t.npy,shape=9x9")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.mtx"], "none.mtx: cannot be read: No such file"),
        (["a.txt"], "a.txt: is in no format that can be read"),
        (["a.npz,shape=3x3"], "a.npz: says its own shape"),
        (["t.npy,mode=0"], "t.npy: is a matrix; mode= is for tensors"),
        (["t.tns,mode=7"], "t.tns: mode 7 is not one of 0..2"),
        (["t.tns,side=7"], "no option is named 'side'"),
        (["."], "is not a file"),
    ],
)
def test_inspect_refusals(run: Run, words: list[str], message: str) -> None:
    code, out, err = run("inspect", *words)
    assert (code, out) == (2, "")
    assert err.startswith("sparseditto: bad-input: ")
    assert message in err


def odd_files() -> list[tuple[str, str]]:
    """Name and "correct reader" of each file in the table."""
    if not (ODD / "ODD.md").is_file():
        return []
    rows = [[cell.strip() for cell in line.split("|")] for line in (ODD / "ODD.md").read_text().splitlines()]
    return [(row[1], row[4]) for row in rows if len(row) > 5 and re.search(r"\.mtxp?$", row[1])]


@pytest.mark.skipif(not odd_files(), reason=f"there is no {ODD}")
def test_every_odd_file_is_listed() -> None:
    assert {path.name for path in ODD.iterdir()} - {"ODD.md"} == {name for name, _ in odd_files()}


@pytest.mark.parametrize(("name", "verdict"), odd_files())
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_odd_files(run: Run, name: str, verdict: str, more: list[str]) -> None:
    code, out, err = run("inspect", str(ODD / name), *more)
    refused = bool(re.match(r"reject|accept/reject", verdict))  # the latter: what is complex
    assert code == (2 if refused else 0), err
    assert "Traceback" not in err
    assert bool(out) != refused
    if refused:
        assert re.match(r"sparseditto: bad-input: .*:\d+: ", err)


# ---------------------------------------------------------------------------------------------------------- real matrices


def corpus() -> list[str]:
    return sorted(path.stem for path in CORPUS.glob("*.npz")) if (CORPUS / "corpus_io.py").is_file() else []


def corpus_matrix(name: str) -> sp.csr_array:
    spec = importlib.util.spec_from_file_location("corpus_io", CORPUS / "corpus_io.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return sp.csr_array(module.load(CORPUS / f"{name}.npz"))


@pytest.mark.skipif(not corpus(), reason=f"there is no {CORPUS}")
@pytest.mark.parametrize("name", CHOSEN)
def test_real_matrices_against_scipy(name: str) -> None:
    csr = corpus_matrix(name)
    check_against_scipy(csr, inspected(csr))


@pytest.mark.slow
@pytest.mark.parametrize("name", corpus())
def test_every_real_matrix(run: Run, name: str) -> None:
    csr = corpus_matrix(name)
    found = inspect_matrix(Matrix(csr))
    assert found.features.entries == csr.nnz
    symmetric = csr.shape[0] == csr.shape[1] and (csr != csr.T).nnz == 0
    assert (found.symmetry is not None and found.symmetry.values == 1) == symmetric
    sp.save_npz("real.npz", csr, compressed=False)
    code, out, _ = run("inspect", "real.npz")
    assert code == 0
    assert f"matrix: {csr.shape[0]} x {csr.shape[1]}, {csr.nnz} entries" in out
