"""Reading matrices: every field and symmetry, what is forgiven, what is refused and on which line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import math
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import SHARED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import mmwrite

from sparseditto.compiler import matrix_market, text_blocks
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.matrix_io import from_scipy, load_matrix
from sparseditto.dialects.errors import InputError

ODD = SHARED / "data/odd"

REAL = "%%MatrixMarket matrix coordinate real general\n"
PATTERN = "%%MatrixMarket matrix coordinate pattern general\n"
INTEGER = "%%MatrixMarket matrix coordinate integer general\n"
UNSIGNED = "%%MatrixMarket matrix coordinate unsigned-integer general\n"
SYMMETRIC = "%%MatrixMarket matrix coordinate real symmetric\n"
SKEW = "%%MatrixMarket matrix coordinate real skew-symmetric\n"
ARRAY = "%%MatrixMarket matrix array real general\n"

nan, inf = math.nan, math.inf


def read(folder: Path, text: str | bytes, name: str = "a.mtx") -> Matrix:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    matrix = load_matrix(path)
    check_canonical(matrix)
    return matrix


def case(value: object) -> str | None:
    """A short test id for a file's text."""
    return repr(value)[1:61] if isinstance(value, str) else None


def check_canonical(matrix: Matrix) -> None:
    csr = matrix.csr
    fresh = sp.csr_array((csr.data, csr.indices, csr.indptr), shape=csr.shape)
    fresh.check_format(full_check=True)
    assert fresh.has_canonical_format
    assert csr.data.dtype in (np.float32, np.float64)
    assert csr.indices.dtype == csr.indptr.dtype == (np.int32 if max(csr.shape) < 2**31 else np.int64)


def refuse(folder: Path, text: str | bytes, message: str, line: int | None = None, name: str = "a.mtx") -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(folder, text, name)
    assert caught.value.where == (f"{folder / name}:{line}" if line else str(folder / name))


# ----------------------------------------------------------------------------------------------------- Matrix Market: accepted


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("real", ["1.5", "-2e3"]),
        ("double", ["1.5", "-2e3"]),
        ("integer", ["7", "-3"]),
        ("unsigned-integer", ["7", "12"]),
        ("pattern", ["", ""]),
    ],
)
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
def test_fields_and_symmetries(tmp_path: Path, field: str, values: list[str], symmetry: str) -> None:
    text = f"%%MatrixMarket matrix coordinate {field} {symmetry}\n3 3 2\n2 1 {values[0]}\n3 2 {values[1]}\n"
    matrix = read(tmp_path, text)
    expected = np.zeros((3, 3))
    expected[1, 0], expected[2, 1] = (float(value or 1) for value in values)
    if symmetry != "general":
        expected += -expected.T if symmetry == "skew-symmetric" else expected.T
        kind = "symmetric" if symmetry == "hermitian" else symmetry
        assert f"{kind}: 2 entries mirrored" in matrix.notes
    assert matrix.csr.toarray().tolist() == expected.tolist()
    assert ("hermitian, but not complex: read as symmetric" in matrix.notes) == (symmetry == "hermitian")


@pytest.mark.parametrize("field", ["real", "integer"])
@pytest.mark.parametrize(
    ("symmetry", "numbers", "expected"),
    [
        ("general", "1 2 3 4", [[1, 3], [2, 4]]),
        ("symmetric", "1 2 3", [[1, 2], [2, 3]]),
        ("hermitian", "1 2 3", [[1, 2], [2, 3]]),
        ("skew-symmetric", "2", [[0, -2], [2, 0]]),
    ],
)
@pytest.mark.parametrize("separator", [" ", "\n", "\n\n% comment\n"])
def test_arrays(tmp_path: Path, field: str, symmetry: str, numbers: str, expected: list[Any], separator: str) -> None:
    text = f"%%MatrixMarket matrix array {field} {symmetry}\n2 2\n{numbers.replace(' ', separator)}\n"
    assert read(tmp_path, text).csr.toarray().tolist() == expected


def test_array_is_stored_by_columns(tmp_path: Path) -> None:
    matrix = read(tmp_path, ARRAY + "2 3\n1\n0\nnan\n4\n5\n6\n")
    assert matrix.csr.nnz == 5
    np.testing.assert_array_equal(matrix.csr.toarray(), [[1, nan, 5], [0, 4, 6]])


@pytest.mark.parametrize(
    ("text", "expected", "note"),
    [
        (REAL + "1 2 1\n1 2 1\n", [[0, 1]], None),
        (REAL + "1 1 0\n", [[0]], None),
        (REAL + "0 3 0\n", np.zeros((0, 3)), None),
        (REAL + "2 0 0\n", np.zeros((2, 0)), None),
        (ARRAY + "0 3\n", np.zeros((0, 3)), None),
        (REAL + "1 3 3\n1 1 nan\n1 2 -INF\n1 3 Infinity\n", [[nan, -inf, inf]], None),
        (REAL + "1 2 2\n1 1 -1E400\n1 2 1e-400\n", [[-inf, 0]], "1 value beyond the range of float64 became infinite"),
        (REAL + "1 4 4\n1 1 .5\n1 2 5.\n1 3 -.5e+1\n1 4 007\n", [[0.5, 5, -5, 7]], None),
        (REAL + "1 3 3\n1 1 1.5D3\n1 2 -2d-1\n1 3 1D+01\n", [[1500, -0.2, 10]], None),
        (REAL + "1 2 2\n+1 +1 +1.5\n1 2\t+inf\n", [[1.5, inf]], None),
        (REAL + "1 1 1\n1 1 1e+02\n", [[100]], None),
        (REAL + "1 2 3\n1 2 1\n1 1 5\n1 2 2\n", [[5, 3]], "1 duplicate entry was summed"),
        (PATTERN + "1 2 3\n1 2\n1 2\n1 2\n", [[0, 3]], "2 duplicate entries were summed"),
        (SYMMETRIC + "2 2 2\n1 2 3\n2 2 1\n", [[0, 3], [3, 1]], "symmetric: 1 entry mirrored"),
        (SYMMETRIC + "2 2 2\n2 1 3\n2 1 4\n", [[0, 7], [7, 0]], "2 duplicate entries were summed"),
        (SYMMETRIC + "3 3 2\n2 1 3\n1 3 4\n", [[0, 3, 4], [3, 0, 0], [4, 0, 0]], None),
        (SKEW + "2 2 2\n2 1 3\n2 2 0\n", [[0, -3], [3, 0]], None),
        (INTEGER + "1 1 1\n1 1 9007199254740993\n", [[2.0**53]], "1 integer of 2^53 or more may be rounded"),
        (INTEGER + "1 1 1\n1 1 36893488147419103232\n", [[2.0**65]], "may be rounded"),
        ("%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 2\n", [[2]], "the banner starts with one %"),
        ("1 1 1\n1 1 2\n", [[2]], "no banner"),
        ("% made by hand\n% twice\n1 1 1\n1 1 2\n", [[2]], "no banner"),
        ("\n\n" + REAL + "1 1 1\n1 1 2\n", [[2]], None),
        ("\ufeff" + REAL + "1 1 1\n1 1 2\n", [[2]], None),
        (REAL.upper() + "1 1 1\n1 1 2\n", [[2]], None),
        (REAL + "%\n   % x\n\n1 1 1\n%y 1 1 1\n\n  % 3 3 3\n1 1 2\n% z", [[2]], None),
        (REAL + "\t1  1\t1 \n \t1 1  2 \n", [[2]], None),
        ((REAL + "1 1 1\n1 1 2\n").replace("\n", "\r\n"), [[2]], None),
        ((REAL + "% x\n1 1 1\n1 1 2\n").replace("\n", "\r"), [[2]], None),
        (REAL + "1 2 2\n1 1 2\r1 2 3\n", [[2, 3]], None),
        (REAL + "1 1 1\n1 1 2", [[2]], None),
    ],
    ids=case,
)
def test_what_is_forgiven(tmp_path: Path, text: str, expected: Any, note: str | None) -> None:
    matrix = read(tmp_path, text)
    np.testing.assert_array_equal(matrix.csr.toarray(), np.array(expected, dtype=float))
    if note:
        assert note in " / ".join(matrix.notes)
    else:
        assert not [n for n in matrix.notes if "mirrored" not in n]


def test_stored_zeros_are_kept(tmp_path: Path) -> None:
    csr = read(tmp_path, REAL + "2 2 3\n1 1 0\n2 1 -0.0\n2 2 1\n").csr
    assert csr.indices.tolist() == [0, 0, 1]
    assert csr.data.tolist() == [0, 0, 1]


def test_sums_that_cancel_stay_stored(tmp_path: Path) -> None:
    assert read(tmp_path, REAL + "1 1 2\n1 1 2\n1 1 -2\n").csr.nnz == 1


def test_wide_matrices_have_long_indices(tmp_path: Path) -> None:
    csr = read(tmp_path, REAL + f"2 {2**40} 1\n2 {2**40} 3\n").csr
    assert csr.indices.tolist() == [2**40 - 1]


# ------------------------------------------------------------------------------------------------------ Matrix Market: refused


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        # the banner
        ("%%MatrixMarket matrix coordinate complex general\n1 1 0\n", 1, "complex values are not supported"),
        ("%%MatrixMarket matrix coordinate reel general\n1 1 0\n", 1, "field 'reel' .* did you mean 'real'"),
        ("%%MatrixMarket matrix coordinates real general\n1 1 0\n", 1, "format 'coordinates' .* 'coordinate'"),
        ("%%MatrixMarket matrix coordinate real symetric\n1 1 0\n", 1, "symmetry 'symetric' .* 'symmetric'"),
        ("%%MatrixMarket vector coordinate real general\n4 1\n1 1\n", 1, "object 'vector' is not supported"),
        ("%%MatrixMarket matrix array pattern general\n1 1\n", 1, "use 'coordinate pattern'"),
        ("%%MatrixMarket matrix coordinate real\n1 1 0\n", 1, "the banner has 4 words"),
        ("%%MatrixMarket matrix coordinate real general x\n1 1 0\n", 1, "the banner has 6 words"),
        ("%%Matrix Market matrix coordinate real general\n1 1 0\n", 1, "is no Matrix Market banner"),
        ("%%MatrixMarket+ matrix coordinate real general\n1 1 0\n", 1, "is no Matrix Market banner"),
        ("%%MatrxMarket matrix coordinate real symmetric\n1 1 0\n", 1, "is no Matrix Market banner"),
        ("% matrix coordinate real symmetric\n1 1 0\n", 1, "is no Matrix Market banner"),
        ("\n\nhello world\n", 3, "'hello world' is no Matrix Market banner"),
        ("a" * 1000, 1, r"'a{57}\.\.\.' is no Matrix Market banner"),
        ("1 2\n3 4\n", 1, "'1 2' is no size line"),
        # the size line
        (REAL, 1, "ends before its size line 'rows columns entries'"),
        (REAL + "% only\n\n% comments\n", 4, "ends before its size line"),
        (REAL + "1 1\n", 2, "'1 1' is no size line"),
        (REAL + "%\n1 1 1 1\n", 3, "'1 1 1 1' is no size line"),
        (REAL + "2 2.5 1\n", 2, "'2 2.5 1' is no size line"),
        (REAL + "2 0x2 1\n", 2, "is no size line"),
        (REAL + f"2 {'9' * 5000} 1\n", 2, "is no size line"),
        (ARRAY + "2 2 4\n", 2, "should hold 'rows columns'"),
        (REAL + "-2 2 1\n", 2, "no size may be negative"),
        (REAL + "2 2 -1\n", 2, "no size may be negative"),
        (SYMMETRIC + "2 3 1\n2 1 1\n", 2, "must be square, and this one is 2 x 3"),
        (REAL + f"{2**40} 1 1\n1 1 1\n", 2, f"CSR needs {2**40 + 1} row positions"),
        (REAL + f"{2**31} 1 1\n1 1 1\n", 2, f"CSR needs {2**31 + 1} row positions"),
        (REAL + f"{2**30} 1 1\n1 1 1\n", 2, "is too large"),
        (REAL + f"1 {2**63} 1\n1 1 1\n", 2, "is too large"),
        # the number of entries
        (REAL + "2 2 3\n1 1 1\n2 2 2\n", 4, "promises 3 entries, and the file has 2"),
        (REAL + "2 2 1\n% x\n1 1 1\n\n2 2 2\n", 6, "promises 1 entry, and here is one more"),
        (REAL + "2 2 1000000000000000\n1 1 1\n", 3, "promises 1000000000000000 entries, and the file has 1"),
        (ARRAY + "2 2\n1\n2\n3\n", 5, "promises 4 entries, and the file has 3"),
        (ARRAY + "2 2\n1 2\n3 4 5\n", 4, "promises 4 entries, and here is one more"),
        (ARRAY + f"{2**25} {2**25}\n1\n", 3, f"promises {2**50} entries"),
        # the number of numbers
        (REAL + "2 2 2\n1 1\n2 2\n", 3, "'1 1' has 2 numbers; .* has 3: row, column, value"),
        (REAL + "2 2 1\n1 1 1 1\n", 3, "'1 1 1 1' has 4 numbers"),
        (REAL + "2 2 2\n1 1 1 2 2 2\n", 3, "has 6 numbers"),
        (REAL + "2 2 2\n1 1\n1 2 2 2\n", 3, "has 2 numbers"),
        (PATTERN + "2 2 2\n1 1\n2 2 1\n", 4, "'2 2 1' has 3 numbers; .* has 2: row, column"),
        (PATTERN + "2 2 2\n1 1 2 2\n", 3, "has 4 numbers"),
        (REAL + "7 7 2\n2 1 1\n5 2", 4, "'5 2' has 2 numbers"),
        # indices
        (REAL + "2 2 1\n0 1 1\n", 3, r"row 0 is outside 1\.\.2; rows and columns count from 1"),
        (REAL + "2 2 2\n1 1 1\n1 0 1\n", 4, r"column 0 is outside 1\.\.2"),
        (REAL + "2 2 1\n3 1 1\n", 3, r"row 3 is outside 1\.\.2"),
        (REAL + "2 2 1\n-1 1 1\n", 3, r"row -1 is outside"),
        (REAL + "2 2 1\n4294967297 1 1\n", 3, "row 4294967297 is outside"),
        (REAL + "2 2 1\n1 19223372036854775808 1\n", 3, "column 19223372036854775808 is outside"),
        (REAL + f"2 2 1\n1 {'9' * 5000} 1\n", 3, r"column 9+\.\.\. is outside"),
        (PATTERN + "0 0 1\n1 1\n", 3, "row 1 is outside"),
        (REAL + "2 2 1\n1.5 1 1\n", 3, "row '1.5' is not an integer"),
        (REAL + "2 9 1\n1 1.5 1\n", 3, "column '1.5' is not an integer"),
        (REAL + "2 9 1\n1 1e0 1\n", 3, "column '1e0' is not an integer"),
        (REAL + "2 9 1\n1 .5 1\n", 3, "column '.5' is not an integer"),
        (REAL + "2 9 1\n1 nan 1\n", 3, "column 'nan' is not an integer"),
        (REAL + "2 9 1\ninf 1 1\n", 3, "row 'inf' is not an integer"),
        (REAL + "2 9 1\n- 1 1\n", 3, "row '-' is not an integer"),
        # symmetry
        (SKEW + "2 2 2\n2 1 3\n\n2 2 1\n", 5, r"\(2, 2\) of a skew-symmetric matrix must be zero"),
        (SKEW + "2 2 1\n1 1 nan\n", 3, r"\(1, 1\) of a skew-symmetric matrix"),
        (SYMMETRIC + "2 2 2\n1 2 3\n% x\n2 1 3\n", 5, r"\(2, 1\) is stored, and so is its mirror"),
        (SKEW + "3 3 3\n3 1 1\n2 1 3\n1 2 -3\n", 5, r"\(1, 2\) is stored, and so is its mirror"),
        # bytes
        (REAL + "2 2 1\n1 1 3\0\n", 3, r"'\\x00' may not stand in a number"),
        (REAL + "2 2 1\n1 1 3\n\0\0", 4, r"'\\x00' may not stand"),
        (REAL + "2 2 1\n1 1\f3\n", 3, r"'\\x0c' may not stand"),
        (REAL + "2 2 1\n1 1 \u00a03\n", 3, "may not stand in a number"),
        (REAL + "2 2 1\n1 1 3\n\x1a", 4, r"'\\x1a' may not stand"),
    ],
    ids=case,
)
def test_refusals(tmp_path: Path, text: str, line: int, message: str) -> None:
    refuse(tmp_path, text, message, line)


BAD_NUMBERS = [
    *("x", "e5", "1e", "1e+", "1e--", "1d", "1.D", "-", ".", "-.", ".e5", "1-1", "--1", "++1", "1.2.3", "1e5.3", "1e5e3"),
    *("1.5abc", "1.5f", "1,5", "1_000", "0x10", "nan(12)", "nan1", "1inf", "infx", "-in", "infinityx", "-infini"),
]


@pytest.mark.parametrize("number", BAD_NUMBERS)
@pytest.mark.parametrize("banner", [REAL, INTEGER, UNSIGNED])
def test_bad_numbers(tmp_path: Path, banner: str, number: str) -> None:
    refuse(tmp_path, banner + f"3 3 2\n1 1 1\n2 2 {number}\n", rf"value '{re.escape(number)}' is not an? ", 4)


@pytest.mark.parametrize("number", BAD_NUMBERS)
def test_bad_numbers_in_arrays(tmp_path: Path, number: str) -> None:
    refuse(tmp_path, ARRAY + f"3 1\n1\n\n2 {number}\n", rf"value '{re.escape(number)}' is not a number", 5)


@pytest.mark.parametrize("number", ["3.5", "3e2", "nan", "1.", "1E400"])
def test_integers_have_no_point(tmp_path: Path, number: str) -> None:
    refuse(tmp_path, INTEGER + f"1 1 1\n1 1 {number}\n", f"value '{number}' is not an integer", 3)


def test_unsigned_integers_have_no_minus(tmp_path: Path) -> None:
    refuse(tmp_path, UNSIGNED + "1 1 1\n1 1 -3\n", "value '-3' is not an integer of at least 0", 3)


# ----------------------------------------------------------------------------------------------- Matrix Market: any spelling


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, dict[tuple[int, int], float], tuple[int, int]]:
    """A legal general file in some odd spelling, what it says, and its shape."""
    shape = draw(st.integers(1, 30)), draw(st.integers(1, 30))
    places = st.tuples(st.integers(1, shape[0]), st.integers(1, shape[1]))
    entries = draw(st.dictionaries(places, st.floats(width=64), max_size=12))
    spell = st.sampled_from([repr, "{:.17e}".format, "{:+.17E}".format, lambda v: repr(v).replace("e", "D")])
    gaps = st.sampled_from([" ", "\t", "   ", " \t "])
    fillers = st.sampled_from(["", "", "", "\n", "  \n", "% 1 2 3\n", "  %%\n"])
    lines = [REAL, draw(fillers), f"{shape[0]}{draw(gaps)}{shape[1]} {len(entries)}\n"]
    for (row, column), value in entries.items():
        lines += [draw(fillers), f"{row}{draw(gaps)}{column}{draw(gaps)}{draw(spell)(value)}\n"]
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    return "".join(lines).replace("\n", end).encode(), {(i - 1, j - 1): v for (i, j), v in entries.items()}, shape


@given(file=files(), block=st.sampled_from([1, 2, 3, 7, 64, 1 << 20]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_spelling(tmp_path: Path, file: tuple[bytes, dict[tuple[int, int], float], tuple[int, int]], block: int) -> None:
    text, entries, shape = file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_blocks, "BLOCK", block)
        csr = read(tmp_path, text).csr
    coo = csr.tocoo()
    found = dict(zip(zip(coo.row.tolist(), coo.col.tolist(), strict=True), coo.data.tolist(), strict=True))
    assert csr.shape == shape
    assert found.keys() == entries.keys()
    for place, value in entries.items():
        np.testing.assert_array_equal(found[place], value)


@given(
    file=files(),
    edits=st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3), st.integers(0, 4)), min_size=1, max_size=3),
    suffix=st.sampled_from([".mtx", ".mtx.gz"]),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_refused_or_harmless(tmp_path: Path, file: Any, edits: list[tuple[int, bytes, int]], suffix: str) -> None:
    """Whatever a file holds, reading it ends in a canonical matrix or an `InputError`."""
    damaged = bytearray(file[0] if suffix == ".mtx" else gzip.compress(file[0]))
    for place, inserted, removed in edits:
        place %= len(damaged) + 1
        damaged[place : place + removed] = inserted
    with contextlib.suppress(InputError):
        read(tmp_path, bytes(damaged), "damaged" + suffix)


def test_large_file(tmp_path: Path) -> None:
    """More than one block, written by SciPy."""
    rng = np.random.default_rng(0)
    sparse = sp.csr_array(rng.random((2000, 3000)) * (rng.random((2000, 3000)) < 0.02))
    mmwrite(tmp_path / "a.mtx", sparse)
    assert (tmp_path / "a.mtx").stat().st_size > 2 * text_blocks.BLOCK
    matrix = load_matrix(tmp_path / "a.mtx")
    check_canonical(matrix)
    assert (matrix.csr != sparse).nnz == 0
    lines = (tmp_path / "a.mtx").read_text().splitlines(keepends=True)
    lines[-10] = lines[-10].replace(" ", " 99999", 1)
    refuse(tmp_path, "".join(lines), "column .* is outside", len(lines) - 9)
    lines[-10] = "1 1 1.5.5\n"
    refuse(tmp_path, "".join(lines), "value '1.5.5' is not a number", len(lines) - 9)


# ------------------------------------------------------------------------------------------------------------- files as such


def test_gzip(tmp_path: Path) -> None:
    text = (REAL + "2 2 2\n1 1 1.5\n2 2 -1\n").encode()
    for name in ("a.mtx.gz", "A.MTX.GZ", "compressed-all-the-same.mtx"):
        assert read(tmp_path, gzip.compress(text), name).csr.toarray().tolist() == [[1.5, 0], [0, -1]]
    assert read(tmp_path, text, "not-compressed.mtx.gz").csr.nnz == 2
    refuse(tmp_path, gzip.compress(text + b"3 3 3\n"), "promises 2 entries", 5, "a.mtx.gz")


@pytest.mark.parametrize("compress", [bz2.compress, lzma.compress], ids=["bz2", "xz"])
def test_other_compressions(tmp_path: Path, compress: Any) -> None:
    suffix = {bz2.compress: ".bz2", lzma.compress: ".xz"}[compress]
    text = (REAL + "2 2 2\n1 1 1.5\n2 2 -1\n").encode()
    for name in (f"a.mtx{suffix}", f"A.MTX{suffix.upper()}", "compressed-all-the-same.mtx"):
        assert read(tmp_path, compress(text), name).csr.toarray().tolist() == [[1.5, 0], [0, -1]]
    assert read(tmp_path, text, f"not-compressed.mtx{suffix}").csr.nnz == 2
    refuse(tmp_path, compress(text + b"3 3 3\n"), "promises 2 entries", 5, f"a.mtx{suffix}")
    whole = compress(text)
    refuse(tmp_path, whole[:-12], "damaged or cut short", name=f"a.mtx{suffix}")
    middle = len(whole) // 2
    broken = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    refuse(tmp_path, broken, "damaged or cut short|cannot be read", name=f"a.mtx{suffix}")


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress((REAL + "2 2 2\n1 1 1.5\n2 2 -1\n").encode())
    refuse(tmp_path, whole[:-12], "damaged or cut short", name="a.mtx.gz")
    refuse(tmp_path, whole[:-8] + bytes(8), "cannot be read: CRC check failed", name="a.mtx.gz")
    refuse(tmp_path, whole[:12] + b"\xff\xff\xff" + whole[15:], "damaged or cut short", name="a.mtx.gz")


@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz", "a.npz"])
def test_what_is_no_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(InputError, match="No such file"):
        load_matrix(path)
    os.mkfifo(path)
    with pytest.raises(InputError, match="is not a file"):
        load_matrix(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="is not a file") as caught:
        load_matrix(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz", "a.npz"])
def test_unreadable_file(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).touch()

    def refuse_to_open(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse_to_open)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        load_matrix(tmp_path / name)


def test_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(matrix_market, "_parse", allocate)
    refuse(tmp_path, REAL + "1 1 1\n1 1 1\n", "more memory than there is")


@pytest.mark.parametrize("content", [b"", b"\n \n\r\n"])
def test_empty_text(tmp_path: Path, content: bytes) -> None:
    refuse(tmp_path, content, "is empty")


def test_binary_content(tmp_path: Path) -> None:
    refuse(tmp_path, b"\x7fELF\x00\x01\x02\n", "is binary")
    refuse(tmp_path, np.random.default_rng(0).bytes(300_000).replace(b"\n", b"").replace(b"\r", b""), "text file", 1)
    refuse(tmp_path, REAL + "1 1 1\n" + "1" * 100_000, "a line of more than 65536 characters", 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.txt", "these can"), ("a", "these can"), ("a.npz.gz", "these can"), ("a.tar.bz2", "unpack the archive first")],
)
def test_unknown_format(tmp_path: Path, name: str, message: str) -> None:
    refuse(tmp_path, REAL, message, name=name)


# -------------------------------------------------------------------------------------------------------------------- .npz

EXAMPLE = sp.csr_array(np.array([[0, 1.5, 0, 2], [0, 0, 0, 0], [3, 0, 0, 4], [0, 0, 5, 0]]))


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def as_arrays(kind: str) -> dict[str, Any]:
    """What `save_npz` would store."""
    matrix: Any = EXAMPLE.tobsr((2, 2)) if kind == "bsr" else EXAMPLE.asformat(kind)
    names = {"coo": ("row", "col"), "dia": ("offsets",)}.get(kind, ("indices", "indptr"))
    parts = {name: getattr(matrix, name).copy() for name in names}
    return {"format": kind.encode(), "shape": np.array(matrix.shape), "data": matrix.data.copy(), **parts}


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("make", [lambda m: m, lambda m: getattr(sp, f"{m.format}_matrix")(m)], ids=["array", "matrix"])
def test_npz(tmp_path: Path, kind: str, make: Any) -> None:
    stored = make(EXAMPLE.tobsr((2, 2)) if kind == "bsr" else EXAMPLE.asformat(kind))
    sp.save_npz(tmp_path / "a.npz", stored)
    matrix = load_matrix(tmp_path / "a.npz")
    check_canonical(matrix)
    assert matrix.csr.toarray().tolist() == EXAMPLE.toarray().tolist()
    assert matrix.csr.nnz == (16 if kind == "bsr" else 5)
    assert matrix.notes == (("11 zeros in blocks kept as stored entries",) if kind == "bsr" else ())


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("float32", "float32"), ("float16", "float32"), (">f8", "float64"), ("longdouble", "float64"), ("int8", "float64"),
     ("bool", "float64"), ("uint64", "float64")],
)  # fmt: skip
def test_npz_values(tmp_path: Path, dtype: str, kept: str) -> None:
    parts = as_arrays("csr")
    matrix = load_matrix(save(tmp_path / "a.npz", **parts | {"data": parts["data"].astype(dtype)}))
    check_canonical(matrix)
    assert matrix.csr.dtype == np.dtype(kept)
    assert matrix.csr.data.tolist() == parts["data"].astype(dtype).astype(float).tolist()


def test_npz_as_other_versions_write_it(tmp_path: Path) -> None:
    coo = as_arrays("coo")
    coordinates = np.array([coo.pop("row"), coo.pop("col")])
    for changed in ({"coords": coordinates}, {"coords": coordinates, "format": "coo"}):
        matrix = load_matrix(save(tmp_path / "a.npz", **coo | changed))
        assert (matrix.csr != EXAMPLE).nnz == 0


def test_npz_is_made_canonical(tmp_path: Path) -> None:
    parts = {"format": b"csr", "shape": [2, 3], "data": [1.0, 2, 4, 8, 99], "indices": [2, 0, 2, 1, 7], "indptr": [0, 3, 4]}
    matrix = load_matrix(save(tmp_path / "a.npz", **parts))
    check_canonical(matrix)
    assert matrix.csr.toarray().tolist() == [[2, 0, 5], [0, 8, 0]]
    unsorted = "array 'indices' was not in order within rows, and is now"
    assert matrix.notes == ("1 entry beyond the last position ignored", unsorted, "1 duplicate entry was summed")


def test_npz_wide_indices(tmp_path: Path) -> None:
    parts = as_arrays("csr")
    for dtype in ("int64", "uint64", ">i4", "uint8"):
        wide = {name: parts[name].astype(dtype) for name in ("indices", "indptr")}
        check_canonical(load_matrix(save(tmp_path / "a.npz", **parts | wide)))


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("csr", {"format": b"lil"}, "format 'lil' is not known"),
        ("csr", {"format": b"csx"}, "did you mean 'cs"),
        ("csr", {"format": np.array([1, 2])}, "can be read"),
        ("csr", {"shape": np.array([4])}, "has 1 dimensions"),
        ("csr", {"shape": np.array([4, 4, 1])}, "has 3 dimensions"),
        ("csr", {"shape": np.array([4, -4])}, "is negative"),
        ("csr", {"shape": np.array([4.0, 4.0])}, "'shape' is absent or holds no sizes"),
        ("csr", {"shape": np.array([2**40, 4])}, f"CSR needs {2**40 + 1} row positions"),
        ("csr", {"shape": np.array([5, 4])}, "'indptr' has 5 positions; 6 are needed"),
        ("csr", {"indptr": np.array([1, 2, 2, 4, 5])}, "'indptr' starts at 1"),
        ("csr", {"indptr": np.array([0, 2, 1, 4, 5])}, "'indptr' is not ascending"),
        ("csr", {"indptr": np.array([0, 2, 2, 4, 6])}, "'indptr' ends at 6, but only 5 entries"),
        ("csr", {"indptr": np.array([0, 2, 2, 4, 2**32 + 5])}, "'indptr' ends at"),
        ("csr", {"indptr": np.array([0.0, 2, 2, 4, 5])}, "'indptr' .* is no list of integers"),
        ("csr", {"indptr": np.zeros(0, np.int32)}, "'indptr' has 0 positions"),
        ("csr", {"indptr": np.array(3)}, "'indptr' .* is no list"),
        ("csr", {"indices": np.array([1, 3, 0, 4, 2])}, r"'indices' holds 4; it must lie in 0\.\.3"),
        ("csr", {"indices": np.array([1, 3, 0, -1, 2])}, "'indices' holds -1"),
        ("csr", {"indices": np.array([1, 3, 0, 2**32, 2])}, "'indices' holds 4294967296"),
        ("csr", {"indices": np.array([1, 3, 0])}, "only 3 entries are stored"),
        ("csr", {"data": np.ones(3)}, "only 3 entries are stored"),
        ("csr", {"data": np.ones((5, 1))}, "'data' has 2 dimensions; format 'csr' needs 1"),
        ("csr", {"data": np.ones(5) * 1j}, "complex values are not supported"),
        ("csr", {"data": np.array(["a"] * 5)}, "'data' holds <U1, not real numbers"),
        ("csr", {"data": np.zeros(5, "M8[s]")}, "not real numbers"),
        ("csc", {"indices": np.array([1, 3, 0, 4, 2])}, "'indices' holds 4"),
        ("coo", {"row": np.array([0, 0, 2, 2, 4])}, r"'row' holds 4; it must lie in 0\.\.3"),
        ("coo", {"col": np.array([0, 0, 2, 2, -4])}, "'col' holds -4"),
        ("coo", {"row": np.array([0, 0, 2, 2])}, "have lengths 5, 4, 5"),
        ("bsr", {"shape": np.array([5, 4])}, "blocks of 2 x 2 do not tile 5 x 4"),
        ("bsr", {"data": np.ones((4, 0, 2))}, "blocks of 0 x 2"),
        ("bsr", {"data": np.ones(4)}, "'data' has 1 dimensions; format 'bsr' needs 3"),
        ("dia", {"offsets": np.array([0])}, "diagonals have 1 offsets"),
        ("dia", {"offsets": np.zeros(4, np.int32)}, "'offsets' names a diagonal twice"),
    ],
)
def test_npz_refusals(tmp_path: Path, kind: str, changed: dict[str, Any], message: str) -> None:
    path = save(tmp_path / "a.npz", **as_arrays(kind) | changed)
    with pytest.raises(InputError, match=message) as caught:
        load_matrix(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("missing", ["format", "shape", "data", "indices", "indptr"])
def test_npz_without_an_array(tmp_path: Path, missing: str) -> None:
    parts = as_arrays("csr")
    del parts[missing]
    with pytest.raises(InputError, match="no sparse matrix" if missing == "format" else f"'{missing}'"):
        load_matrix(save(tmp_path / "a.npz", **parts))


class Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize("name", ["format", "shape", "data", "indices"])
def test_npz_is_never_unpickled(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path / "a.npz", **as_arrays("csr") | {name: np.array([Trap()], dtype=object)})
    with pytest.raises(InputError, match="allow_pickle=False"):
        load_matrix(path)
    assert not (tmp_path / "sprung").exists()


def test_npz_that_is_none(tmp_path: Path) -> None:
    for content in (b"", b"hello", b"PK\x03\x04" + bytes(100), bytes(1000)):
        refuse(tmp_path, content, "is no .npz archive", name="a.npz")
    buffer = io.BytesIO()
    np.save(buffer, np.ones((2, 2)))
    refuse(tmp_path, buffer.getvalue(), "is no .npz archive", name="a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("format", b"csr")
        archive.writestr("shape", b"\x02\x00")
    with pytest.raises(InputError, match="'shape' is absent"):
        load_matrix(tmp_path / "a.npz")


def test_npz_that_claims_too_much(tmp_path: Path) -> None:
    """A header may promise any size; what is not in the file is not read."""
    save(tmp_path / "whole.npz", **as_arrays("csr"))
    with zipfile.ZipFile(tmp_path / "whole.npz") as whole, zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in whole.namelist():
            content = whole.read(name)
            if name == "data.npy":
                content = content.replace(b"(5,), }" + b" " * 13, b"(1099511627776,), }  ")
                assert b"1099511627776" in content
            archive.writestr(name, content)
    with pytest.raises(InputError):
        load_matrix(tmp_path / "a.npz")


@pytest.mark.filterwarnings("ignore:Reading .*npy")  # a header that only Python 2 writes
@given(
    edits=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6),
    kind=st.sampled_from(["csr", "coo", "bsr", "dia"]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_npz(tmp_path: Path, edits: list[tuple[int, int]], kind: str) -> None:
    damaged = bytearray(save(tmp_path / "whole.npz", **as_arrays(kind)).read_bytes())
    for place, byte in edits:
        damaged[place % len(damaged)] = byte
    with contextlib.suppress(InputError):
        read(tmp_path, bytes(damaged), "damaged.npz")


# ------------------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("suffix", ["array", "matrix"])
def test_from_scipy(kind: str, suffix: str) -> None:
    given_ = getattr(sp, f"{kind}_{suffix}")(EXAMPLE)
    before = given_.copy()
    matrix = from_scipy(given_)
    check_canonical(matrix)
    assert matrix.csr.toarray().tolist() == EXAMPLE.toarray().tolist()
    assert (given_ != before).nnz == 0


def test_from_scipy_shares_or_copies() -> None:
    assert np.shares_memory(from_scipy(EXAMPLE).csr.data, EXAMPLE.data)
    untidy = sp.csr_array((np.array([1.0, 2, 4]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    arrays = [untidy.data.copy(), untidy.indices.copy(), untidy.indptr.copy()]
    matrix = from_scipy(untidy)
    assert matrix.csr.toarray().tolist() == [[2, 0, 5]]
    assert matrix.notes == ("array 'indices' was not in order within rows, and is now", "1 duplicate entry was summed")
    for array, before in zip((untidy.data, untidy.indices, untidy.indptr), arrays, strict=True):
        assert np.array_equal(array, before)


def test_order_is_said() -> None:
    columns = sp.csc_array((np.array([1.0, 2]), np.array([1, 0]), np.array([0, 2])), shape=(2, 1))
    assert from_scipy(columns).notes == ("array 'indices' was not in order within columns, and is now",)
    assert from_scipy(columns).csr.toarray().tolist() == [[2], [1]]
    assert from_scipy(EXAMPLE.tocsc()).notes == ()


def test_flags_are_not_believed() -> None:
    untidy = sp.csr_array((np.array([1.0, 2, 4]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    untidy.has_sorted_indices = untidy.has_canonical_format = True
    matrix = from_scipy(untidy)
    check_canonical(matrix)
    assert matrix.csr.nnz == 2


def test_broken_arrays_are_refused() -> None:
    broken = EXAMPLE.copy()
    broken.indices[0] = 17
    with pytest.raises(InputError, match="'indices' holds 17"):
        from_scipy(broken)
    coo = EXAMPLE.tocoo()
    coo.row[0] = -1
    with pytest.raises(InputError, match="'row' holds -1"):
        from_scipy(coo)


def test_long_indices_are_narrowed() -> None:
    wide = EXAMPLE.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    check_canonical(from_scipy(wide))


def test_long_integers_are_noted() -> None:
    matrix = from_scipy(np.array([[2**60 + 1, 3]]))
    assert matrix.notes == ("1 integer of 2^53 or more may be rounded",)
    assert from_scipy(sp.csc_array(np.array([[-(2**60), 2**62]]))).notes == ("2 integers of 2^53 or more may be rounded",)


@pytest.mark.parametrize("kept", ["float32", "float64"])
def test_dense(kept: str) -> None:
    dense = np.array([[0, nan, 2], [0, 0, -0.0]], dtype=kept)
    for array in (dense, np.asfortranarray(dense), dense.repeat(2, axis=1)[:, ::2], np.flip(dense[::-1, ::-1])):
        matrix = from_scipy(array)
        check_canonical(matrix)
        assert matrix.csr.dtype == np.dtype(kept)
        assert matrix.csr.nnz == 2
        np.testing.assert_array_equal(matrix.csr.toarray(), dense)
    for shape in ((0, 0), (0, 3), (3, 0)):
        assert from_scipy(np.zeros(shape)).csr.shape == shape


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones((2, 2)) * 1j, "complex"),
        (EXAMPLE.astype(np.complex64), "complex"),
        (np.ones(3), "has 1 dimensions"),
        (np.ones((1, 1, 1)), "has 3 dimensions"),
        (np.array([["a"]]), "not real numbers"),
        (np.array([[None]]), "not real numbers"),
        (np.zeros((2**40, 0)), "is too large"),
        ([[1, 2]], "a list is neither"),
        (None, "a NoneType is neither"),
    ],
)
def test_from_scipy_refusals(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_scipy(value)


def test_sparse_vectors_are_refused() -> None:
    vector = sp.coo_array(np.ones(3))
    if len(vector.shape) == 2:
        pytest.skip("this SciPy has no sparse vectors")
    with pytest.raises(InputError, match="has 1 dimensions"):
        from_scipy(vector)


def test_import_is_light() -> None:
    code = "import sparseditto.compiler.matrix_io, sparseditto.compiler.packing, sys; print('scipy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "False"


# -------------------------------------------------------------------------------------------- odd files from other projects


def odd_files() -> list[tuple[str, str, str]]:
    """Name, "correct reader" and "SciPy result" of each file in the table."""
    if not (ODD / "ODD.md").is_file():
        return []
    rows = [[cell.strip() for cell in line.split("|")] for line in (ODD / "ODD.md").read_text().splitlines()]
    return [(row[1], row[4], row[5]) for row in rows if len(row) > 5 and row[1].endswith(".mtx")]


@pytest.mark.skipif(not odd_files(), reason=f"there is no {ODD}")
def test_odd_files_are_all_listed() -> None:
    assert {path.name for path in ODD.glob("*.mtx*")} == {name for name, _, _ in odd_files()}


@pytest.mark.parametrize(("name", "verdict", "result"), odd_files())
def test_odd_file(name: str, verdict: str, result: str) -> None:
    if re.match(r"reject|accept/reject", verdict):  # the latter: reject what is complex
        with pytest.raises(InputError) as caught:
            load_matrix(ODD / name)
        assert re.fullmatch(rf"{re.escape(str(ODD / name))}:\d+", caught.value.where or "")
        return
    assert re.match(r"accept|lenient: |policy: sum|inf or", verdict), "a verdict that this test does not know"
    matrix = load_matrix(ODD / name)
    check_canonical(matrix)
    if stated := re.fullmatch(r"(\d+)x(\d+), csr nnz (\d+), sum (\S+)", result):
        assert (*matrix.csr.shape, matrix.csr.nnz) == tuple(int(number) for number in stated.groups()[:3])
    elif stated := re.fullmatch(r"dense \((\d+), (\d+)\), sum (\S+)", result):
        assert matrix.csr.shape == tuple(int(number) for number in stated.groups()[:2])
    if stated:
        with np.errstate(invalid="ignore"):
            total, magnitude = matrix.csr.data.sum(), np.abs(matrix.csr.data).sum()
        np.testing.assert_allclose(total, float(stated.groups()[-1]), rtol=1e-5, atol=1e-15 * np.nan_to_num(magnitude))


@pytest.mark.skipif(not odd_files(), reason=f"there is no {ODD}")
def test_odd_values() -> None:
    """What the table says in words about values."""
    dense = {
        name: load_matrix(ODD / f"{name}.mtx").csr.toarray()
        for name in ("duplicates", "cr_only", "array_real", "skew_real_inf")
    }
    assert dense["duplicates"][1, 1] == 10.5
    assert dense["cr_only"].tolist() == np.eye(3).tolist()
    assert dense["array_real"][1, 0] == 0.709
    assert (dense["skew_real_inf"][4, 0], dense["skew_real_inf"][0, 4]) == (inf, -inf)
    assert load_matrix(ODD / "overflow_int32.mtx").csr.data.tolist() == [8589934592]
    assert load_matrix(ODD / "overflow_float64.mtx").csr.data.tolist() == [inf]
