"""Layouts that level types do not express: diagonals, rows of one width, narrow columns, one value, listed rows.

Recipes are unpacked again, and kernels run under emulation with all checks, each result held to SciPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import Array, matmul, matvec, of_lengths, transposed_matvec
from hypothesis import given, settings
from hypothesis import strategies as st
from test_new_schedules import WIDE as OTHER_WIDE
from test_new_schedules import alternating, banded, checked, compiled, each_checked, hard, setting_of
from test_scalars import prologue
from test_schedules import mixed

from sparseditto.agent.features import Features, analyse
from sparseditto.agent.planner import Task, ranked
from sparseditto.compiler.api import bind_package, compile_file, run
from sparseditto.compiler.dtypes import dtype_of
from sparseditto.compiler.execute import prepare
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.packing import pack
from sparseditto.dialects.encoding import named_encoding
from sparseditto.dialects.errors import InputError, NotApplicable, PlanError
from sparseditto.dialects.layouts import block_bitmaps, equal_rows, listed_rows, one_value, row_diagonals, row_offsets
from sparseditto.dialects.recipes import Recipe
from sparseditto.dialects.target import Target
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]
ANY = 1 << 20  # places an entry

# --- Recipes: unpacking gives the matrix back ---------------------------------------------------------

FLOATS = ("float16", "bfloat16", "float32", "float64")


@st.composite
def matrices(draw: st.DrawFn, most: int = 40) -> sp.csr_array:
    """Small matrices in canonical form, with stored zeros of both signs, NaN of several bits and infinities."""
    rows, columns = draw(st.integers(0, most)), draw(st.integers(0, most))
    cells = st.integers(0, max(rows * columns - 1, 0))
    places = np.array(sorted(draw(st.sets(cells, max_size=60))) if rows * columns else [], np.int64)
    special = st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0])
    values = np.array(draw(st.lists(st.one_of(special, st.floats(width=16)), min_size=places.size, max_size=places.size)))
    row, column = (places // columns, places % columns) if columns else (places, places)
    return sp.csr_array((values, column, np.searchsorted(row, np.arange(rows + 1))), (rows, columns))


def bits_of(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"int{8 * values.itemsize}")


def stored_values(a: sp.csr_array, dtype: str) -> Array:
    """The values as they are packed, and one NaN that looks like the mark."""
    values: Array = np.asarray(a.data, dtype_of(dtype))
    if values.size:
        bits_of(values)[-1] = -1
    return values


def same(a: sp.csr_array, values: Array, row: Array, column: Array, found: Array) -> None:
    """Whether entries in any order are those of the matrix, values bit by bit but for the NaN that was replaced."""
    order = np.lexsort((column, row))
    assert np.array_equal(row[order], np.repeat(np.arange(a.shape[0]), np.diff(a.indptr)))
    assert np.array_equal(column[order], a.indices)
    expected = values.copy()
    expected[bits_of(values) == -1] = np.nan
    got = found[order]
    assert got.dtype == values.dtype
    assert ((bits_of(got) == bits_of(expected)) | (np.isnan(got) & np.isnan(expected))).all()


@settings(deadline=None, max_examples=200)
@given(a=matrices(), dtype=st.sampled_from(FLOATS))
def test_diagonals_hold_the_matrix(a: sp.csr_array, dtype: str) -> None:
    values = stored_values(a, dtype)
    made = row_diagonals(a.indptr.astype(np.int64), a.indices, values, ANY)
    offsets, stored = made["offsets"], made["values"].reshape(-1, a.shape[0]) if a.shape[0] else np.zeros((0, 0), values.dtype)
    assert offsets.dtype == np.int32
    assert (np.diff(offsets) > 0).all()
    number, row = np.nonzero(bits_of(stored) != -1)
    assert np.unique(number).size == offsets.size
    same(a, values, row, row + offsets[number], stored[number, row])


@settings(deadline=None, max_examples=200)
@given(
    a=matrices(), dtype=st.sampled_from(FLOATS), width=st.sampled_from((8, 16, 32, 64)), bits=st.sampled_from((8, 16, 32, 64))
)
def test_rows_of_one_width_hold_the_matrix(a: sp.csr_array, dtype: str, width: int, bits: int) -> None:
    values = np.asarray(a.data, dtype_of(dtype))
    bits = min(bits, width)
    indices = a.indices.astype({8: np.uint8, 16: np.uint16, 32: np.int32, 64: np.int64}[width])
    made = equal_rows(a.indptr.astype(np.int64), indices, values, ANY, bits)
    (most,), rows = made["widths"], a.shape[0]
    assert most == np.diff(a.indptr).max(initial=0)
    coordinates, stored = (made[part].reshape(most, rows) for part in ("coordinates", "values"))
    assert coordinates.itemsize * 8 == bits
    assert ("bases" in made) == (bits < width)
    k, row = np.nonzero(bits_of(coordinates) != -1)
    bases = made["bases"][row // 32].astype(np.int64) if "bases" in made else 0
    assert (k < np.diff(a.indptr)[row]).all()
    same(a, values, row, coordinates[k, row].astype(np.int64) + bases, stored[k, row])


@settings(deadline=None, max_examples=200)
@given(a=matrices(), bits=st.sampled_from((8, 16)))
def test_offsets_and_bases_are_the_columns(a: sp.csr_array, bits: int) -> None:
    made = row_offsets(a.indptr.astype(np.int64), a.indices, bits)
    assert made["coordinates"].dtype == f"uint{bits}"
    assert made["bases"].size == a.shape[0]
    assert np.array_equal(np.repeat(made["bases"], np.diff(a.indptr)) + made["coordinates"].astype(np.int64), a.indices)


@settings(deadline=None, max_examples=200)
@given(lengths=st.lists(st.one_of(st.just(0), st.integers(0, 3)), max_size=200), share=st.sampled_from((1, 4, 16, 64)))
def test_every_row_is_listed_or_flagged(lengths: list[int], share: int) -> None:
    count = np.array(lengths, np.int64)
    positions = np.append(0, np.cumsum(count))
    made = listed_rows(positions, share)
    rows = made["rows"].astype(np.int64)
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(made["positions"][:-1], positions[rows])
    assert np.array_equal(np.diff(made["positions"]), count[rows])
    flags = np.unpackbits(made["empty"].view(np.uint8), bitorder="little")
    listed = np.zeros(flags.size, bool)
    listed[rows] = True
    assert np.array_equal(np.flatnonzero(flags), np.flatnonzero(~listed[: count.size]))
    assert rows.size == max((count > 0).sum(), -(-count.size // share))


@settings(deadline=None, max_examples=100)
@given(a=matrices(), dtype=st.sampled_from(FLOATS), block=st.sampled_from(((2, 2), (3, 4), (8, 4), (2, 16))))
def test_bits_and_entries_are_the_blocks(a: sp.csr_array, dtype: str, block: tuple[int, int]) -> None:
    values = pack(Matrix(a), named_encoding("bsr", block=block), dtype_of(dtype)).arrays["values"]
    places = block[0] * block[1]
    made = block_bitmaps(values, places)
    bits = np.unpackbits(made["bitmaps"].view(np.uint8), bitorder="little").reshape(-1, 32)
    assert not bits[:, places:].any()
    filled = np.full((len(bits), places), -0.0, values.dtype)
    filled[bits[:, :places] != 0] = made["values"][:-1]
    assert np.array_equal(bits_of(filled.ravel()), bits_of(values))
    assert np.array_equal(made["first_entries"], np.cumsum(bits.sum(axis=1)) - bits.sum(axis=1))
    assert made["values"].size == a.nnz + 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_value(dtype: str) -> None:
    values = np.full(5, 2.5, dtype_of(dtype))
    assert one_value(values)["value"].tolist() == [2.5]
    assert one_value(values[:0])["value"].tolist() == [0]
    assert np.isnan(one_value(np.full(3, np.nan, dtype_of(dtype)))["value"]).all()
    for other in (2.0, -2.5, np.nan):
        values[3] = other
        with pytest.raises(InputError, match=r"the values are not all equal \(2\.5 and"):
            one_value(values)
    with pytest.raises(InputError, match=r"not all equal \(0\.0 and -0\.0\)"):
        one_value(np.array([0.0, -0.0]))


# --- Recipes: what they refuse ------------------------------------------------------------------------


def test_padding_is_refused_with_its_number() -> None:
    a = sp.csr_array(of_lengths([300, 1, 1, 1]))
    for recipe, what in (
        (row_diagonals, r"diagonals of 4 rows are"),
        (lambda *r: equal_rows(*r, 32), r"4 rows of 300 entries are 1200"),
    ):
        with pytest.raises(InputError, match=rf"{what}.* places for 303 entries, .* each, and the plan allows 2:"):
            recipe(a.indptr.astype(np.int64), a.indices, a.data, 2)
    equal_rows(a.indptr.astype(np.int64), a.indices, a.data, 4, 32)


def test_columns_too_far_apart_are_refused() -> None:
    positions, values = np.array([0, 2]), np.ones(2)
    for far, bits in ((1 << 16, 16), (1 << 8, 8)):
        with pytest.raises(InputError, match=rf"the columns of a row span {far + 1}, and offsets of {bits} bits reach {far}"):
            row_offsets(positions, np.array([3, 3 + far]), bits)
        assert row_offsets(positions, np.array([3, 2 + far]), bits)["coordinates"][1] == far - 1
    with pytest.raises(InputError, match="the columns of 32 rows span 65535, and 16 bits hold less than 65535"):
        equal_rows(positions, np.array([7, 7 + (1 << 16) - 1]), values, 1, 16)
    assert equal_rows(positions, np.array([7, 7 + (1 << 16) - 2]), values, 1, 16)["coordinates"][1] == (1 << 16) - 2
    with pytest.raises(InputError, match="there are columns up to number 65535"):
        equal_rows(positions, np.array([7, (1 << 16) - 1], np.uint16), values, 1, 16)
    far = np.array([1 << 31, (1 << 31) + 5])
    for recipe in (lambda: row_offsets(positions, far, 8), lambda: equal_rows(positions, far, values, 1, 16)):
        with pytest.raises(InputError, match=r"2\^31"):
            recipe()
    with pytest.raises(InputError, match=r"2\^31"):
        row_diagonals(positions, far, values, ANY)


@pytest.mark.parametrize(
    "text", ["row-diagonals{level=1 factor=4}", "equal-rows{level=1 factor=4 bits=16}", "one-value{level=1}"]
)
def test_recipes_read_back_what_they_print(text: str) -> None:
    assert str(Recipe.parse(text)) == text


# --- Kernels ------------------------------------------------------------------------------------------

DIAGONALS = tuple(
    f"diagonals{{factor={ANY}}},{rows}"
    for rows in (
        "rows-to-threads,map-blocks",
        "rows-to-threads,unroll{factor=4 tail=halves},map-blocks",
        "rows-to-subgroups{lanes=8},unroll{factor=2 tail=clamp},map-blocks",
        "stream-entries,rows-to-threads,coarsen-rows{rows=2},map-blocks,bound-launch{blocks=8}",
    )
)
ELL = tuple(
    f"ell-rows{{offsets={offsets} factor={ANY}}},{rows}"
    for offsets, rows in (
        (32, "rows-to-threads,map-blocks"),
        (16, "rows-to-threads,unroll{factor=8 tail=halves},map-blocks"),
        (16, "rows-to-subgroups{lanes=4},unroll{factor=2 tail=clamp},map-blocks"),
        (32, "stream-entries,rows-to-threads,unroll,map-blocks,bound-launch{blocks=8}"),
    )
)
NARROW = (
    *(
        f"narrow-coordinates{{bits=16}},{rows},map-blocks"
        for rows in (
            "rows-to-threads,unroll{factor=4 tail=halves}",
            "rows-to-subgroups{lanes=8},unroll",
            "segment-rows{length=16},rows-to-subgroups{lanes=4}",
            "segment-rows{length=16},vectorize-entries,rows-to-threads",
            "bin-rows{limit=32 length=1024 threads=128},rows-to-threads",
            "vectorize-entries{width=8},rows-to-subgroups{lanes=4},unroll{factor=2}",
        )
    ),
    "narrow-coordinates,stage-entries{entries=128 threads=64 stage=entries}",
)
LISTED = tuple(
    f"nonempty-rows{{share={share}}},{rows}"
    for share, rows in (
        (16, "rows-to-threads,map-blocks"),
        (4, "rows-to-threads,unroll{factor=4 tail=halves},map-blocks"),
        (64, "rows-to-subgroups{lanes=4},unroll{factor=2},map-blocks"),
        (8, "stream-entries,rows-to-threads,coarsen-rows{rows=4},map-blocks"),
        (32, "rows-to-subgroups{lanes=32},map-blocks,persist-blocks"),
    )
)
PLANS = (*DIAGONALS, *ELL, *NARROW, *LISTED)
UNIFORM = (
    "uniform-values,rows-to-threads,unroll{factor=4 tail=halves},map-blocks",
    "uniform-values,narrow-coordinates,rows-to-subgroups{lanes=8},map-blocks",
    "uniform-values,vectorize-entries,rows-to-threads,map-blocks",
    "uniform-values,slice-rows{height=8 window=128 offsets=16},rows-to-threads,map-blocks",
    "uniform-values,ell-rows{offsets=16 factor=1048576},rows-to-threads,unroll,map-blocks",
    "uniform-values,nonempty-rows,rows-to-threads,map-blocks",
    "uniform-values,segment-rows{length=16},rows-to-threads,map-blocks",
    "uniform-values,bin-rows{limit=32 length=1024 threads=128},rows-to-subgroups{lanes=2},map-blocks",
    "uniform-values,split-entries{length=64},map-blocks",
    "uniform-values,stage-entries{entries=128 threads=64}",
)


@pytest.mark.parametrize("plan", PLANS)
def test_spmv_is_right(plan: str, kernel_file: Write) -> None:
    e, start, widths = setting_of(PLANS.index(plan))
    if "narrow" in plan:
        widths = (widths[0], max(widths[1], 32))
    each_checked(compiled(kernel_file(matvec(e, fill=start)), plan, widths), hard().values())


def ones(a: sp.csr_array, value: float = 2.5) -> sp.csr_array:
    return sp.csr_array((np.full(a.nnz, value), a.indices, a.indptr), a.shape)


@pytest.mark.parametrize("plan", UNIFORM)
def test_one_value_for_all_entries(plan: str, kernel_file: Write) -> None:
    e, start, _ = setting_of(UNIFORM.index(plan))
    package = compiled(kernel_file(matvec(e, fill=start)), plan)
    each_checked(package, (ones(a) for a in hard().values()))
    with pytest.raises(InputError, match="the values are not all equal"):
        prepare(package, bind_package(package, {"A": mixed()}))


@pytest.mark.parametrize("layout", ["dcsr", "bsr"])
def test_one_value_in_other_formats(layout: str, kernel_file: Write) -> None:
    """Also in blocks, where they are all full."""
    package = compiled(kernel_file(matvec(fill=0.0)), "uniform-values,rows-to-threads,map-blocks", layout=layout)
    checked(package, sp.csr_array(sp.kron(ones(of_lengths([2, 0, 5, 1], 7)), np.ones((4, 4)))))
    if layout == "bsr":
        with pytest.raises(InputError, match="the values are not all equal"):
            prepare(package, bind_package(package, {"A": ones(mixed())}))


@pytest.mark.parametrize("plan", [DIAGONALS[1], ELL[1], NARROW[0], LISTED[1], LISTED[2]])
def test_columns_of_a_transposed_matrix(plan: str, kernel_file: Write) -> None:
    package = compiled(kernel_file(transposed_matvec()), plan, layout="csc")
    names = ("mixed", "one row of many blocks", "no entries", "thousands of empty rows")
    each_checked(package, (sp.csr_array(hard()[name].T) for name in names), transpose=True)


WIDE = {
    "diagonals": f"diagonals{{factor={ANY}}},vectorize,rows-to-subgroups{{lanes=4}},unroll{{factor=4 tail=halves}},map-blocks",
    "diagonals in tiles": f"diagonals{{factor={ANY}}},tile-columns{{width=8}},rows-to-subgroups{{lanes=8 groups=2}},map-blocks",
    "ell": f"ell-rows{{offsets=16 factor={ANY}}},vectorize,jam-columns,rows-to-subgroups{{lanes=2}},unroll,map-blocks",
    "narrow": "narrow-coordinates,vectorize,rows-to-subgroups{lanes=4},unroll{factor=4 tail=clamp},map-blocks",
    "narrow segments": "narrow-coordinates,segment-rows{length=16},jam-columns,rows-to-subgroups{lanes=8},map-blocks",
}


@pytest.mark.parametrize("plan", WIDE)
def test_spmm_is_right(plan: str, kernel_file: Write) -> None:
    e, start, _ = setting_of(list(WIDE).index(plan))
    package = compiled(kernel_file(matmul(e, fill=start)), WIDE[plan], sizes={"K": 16})
    each_checked(package, (hard()[name] for name in ("mixed", "bands", "no entries", "0x5", "5x0", "one entry")))


def test_one_value_and_columns(kernel_file: Write) -> None:
    for plan in (OTHER_WIDE["slices"], WIDE["ell"], WIDE["narrow"]):
        package = compiled(kernel_file(matmul()), f"uniform-values,{plan}", sizes={"K": 16})
        each_checked(package, (ones(hard()[name]) for name in ("mixed", "bands", "no entries")))


@pytest.mark.parametrize("e", ["f16", "bf16"])
@pytest.mark.parametrize("plan", [DIAGONALS[0], ELL[1], UNIFORM[1], LISTED[0]])
def test_halves(plan: str, e: str, kernel_file: Write) -> None:
    text = f"""func.func @spmv(%A: tensor<?x?x{e}> {{ditto.sparse}}, %x: tensor<?x{e}>, %y: tensor<?xf32>) -> tensor<?xf32> {{
  %r = linalg.matvec ins(%A, %x : tensor<?x?x{e}>, tensor<?x{e}>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}}"""
    a = ones(banded(90)) if "uniform" in plan else banded(90)
    result = run(compiled(kernel_file(text), plan), {"A": a}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


@pytest.mark.parametrize("beta", [0.0, -0.5])
@pytest.mark.parametrize("plan", [DIAGONALS[1], ELL[2], NARROW[1], *LISTED[:3], UNIFORM[0]])
def test_alpha_and_beta(plan: str, beta: float, kernel_file: Write) -> None:
    package = compiled(kernel_file(prologue()), plan)
    for name in ("mixed", "thousands of empty rows"):
        a = ones(hard()[name]) if "uniform" in plan else hard()[name]
        y = np.full(a.shape[0], np.nan if beta == 0 else 3, np.float32)
        result = run(package, {"A": a, "y": y, "alpha": 2.5, "beta": beta}, verify=True)
        assert result.check is not None
        assert result.check.passed, result.check


def test_every_width_of_pinned_coordinates(kernel_file: Write) -> None:
    """Among them 8 bits, and MLIR's index type, which an encoding without widths has."""
    a = of_lengths([3, 0, 17, 40, 1, 5], 200)
    for widths in ("", ", posWidth = 8, crdWidth = 8", ", posWidth = 16, crdWidth = 64"):
        text = matvec(a=f"tensor<?x?xf32, #sparse_tensor.encoding<{{map = (i, j) -> (i : dense, j : compressed){widths}}}>>")
        for plan in (DIAGONALS[0], ELL[0], ELL[1], LISTED[0], *(NARROW[:1] if "crdWidth = 8" not in widths else ())):
            checked(compile_file(kernel_file(text), plan=f"accumulate-registers,{plan}").package, a)


@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize("plan", PLANS)
def test_nan_and_infinity_do_not_leak(plan: str, parity: int, kernel_file: Write) -> None:
    """Every other column holds none but NaN and infinities: rows that do not have it know nothing of them."""
    lengths = [1 + 7 * i % 23 for i in range(90)] + [300, 301, 1, 2]
    a = alternating(lengths)
    x = np.ones(a.shape[1], np.float32)
    x[parity::2] = np.resize([np.nan, np.inf, -np.inf], a.shape[1] // 2)
    output = checked(compiled(kernel_file(matvec(fill=0.0)), plan), a, x=x)
    assert np.array_equal(output[1 - parity :: 2], lengths[1 - parity :: 2])
    assert not np.isfinite(output[parity::2]).any()


@pytest.mark.parametrize("e", ["f32", "f64"])
def test_stored_zeros_are_entries_of_diagonals(e: str, kernel_file: Write) -> None:
    """0 times infinity is NaN where 0 is stored, of either sign, and nothing where nothing is; NaNs of any bits stay NaN."""
    values = np.array([0.0, -0.0, np.nan, 1.0, np.nan], {"f32": np.float32, "f64": np.float64}[e])
    bits_of(values)[-1] = -1  # what marks a place without an entry
    a = sp.csr_array((values, ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])), (6, 6))
    output = checked(compiled(kernel_file(matvec(e, fill=0.0)), DIAGONALS[0]), a, x=np.array([np.inf] * 2 + [1.0] * 4))
    assert np.isnan(output[[0, 1, 2, 4]]).all()
    assert output[[3, 5]].tolist() == [1, 0]


# --- What passes read and refuse ----------------------------------------------------------------------


def test_kernels_read_only_what_they_need(kernel_file: Write) -> None:
    wanted = {
        DIAGONALS[0]: {"A.row_diagonals.offsets", "A.row_diagonals.values"},
        ELL[1]: {f"A.equal_rows.{part}" for part in ("widths", "bases", "coordinates", "values")},
        UNIFORM[1]: {"A.positions1", "A.one_value.value", "A.row_offsets.bases", "A.row_offsets.coordinates"},
        LISTED[0]: {"A.coordinates1", "A.values", *(f"A.listed_rows.{part}" for part in ("rows", "positions", "empty"))},
    }
    for plan, names in wanted.items():
        package = compiled(kernel_file(matvec(fill=0.0)), plan)
        assert {b.name for b in package.buffers} == names | {"x", "result"}
        assert len(package.launches) == 1
    kept = compiled(kernel_file(matvec()), LISTED[0])
    assert "A.listed_rows.empty" not in {b.name for b in kept.buffers}


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("diagonals,ell-rows", "does not go with rows stored in slices, diagonals or at one width"),
        ("diagonals,segment-rows", "does not go with rows stored in slices"),
        ("narrow-coordinates,diagonals", "does not go with coordinates stored as offsets"),
        ("narrow-coordinates,slice-rows", "does not go with coordinates stored as offsets"),
        ("narrow-coordinates,narrow-coordinates", "does not go with coordinates stored as offsets"),
        ("uniform-values,uniform-values", "does not go with one value for all entries"),
        ("uniform-values,diagonals", "does not go with one value for all entries"),
        ("nonempty-rows,segment-rows", "does not go with a list of the rows that have entries"),
        ("rows-to-threads,diagonals", "needs a parallel loop outside all others"),
    ],
)
def test_plans_that_are_refused(plan: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        Plan.parse(f"set-encoding,accumulate-registers,{plan}")


@pytest.mark.parametrize(
    ("plan", "layout", "reason"),
    [
        ("diagonals,rows-to-threads,map-blocks", "dcsr", "needs dense rows over compressed entries"),
        ("ell-rows,rows-to-threads,map-blocks", "bsr", "blocks|entries are read by more|scheduled already"),
        ("narrow-coordinates,split-entries,map-blocks", "csr", "row"),
        ("narrow-coordinates,stage-entries", "csr", "depends on its row"),
        ("nonempty-rows,rows-to-threads,map-blocks", "dcsr", "needs dense rows over compressed entries"),
    ],
)
def test_nests_that_are_refused(plan: str, layout: str, reason: str, kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match=reason):
        compiled(kernel_file(matvec()), plan, layout=layout)


def test_blocks_with_narrow_coordinates(kernel_file: Write) -> None:
    for plan in ("rows-to-threads", "jam-block-rows,rows-to-subgroups{lanes=4}"):
        package = compiled(kernel_file(matvec()), f"narrow-coordinates{{bits=8}},{plan},map-blocks", layout="bsr")
        each_checked(package, (banded(300), mixed(), hard()["no entries"]))


BITMAPS = (
    "pack-blocks,rows-to-threads,map-blocks",
    "pack-blocks,jam-block-rows,rows-to-subgroups{lanes=4},unroll,map-blocks",
    "narrow-coordinates,pack-blocks,rows-to-subgroups{lanes=8},map-blocks",
)


def blocks_of(rows: int, columns: int) -> str:
    return f"set-encoding{{format=bsr block-rows={rows} block-columns={columns}}},accumulate-registers"


@pytest.mark.parametrize("block", [(2, 2), (3, 4), (8, 4)])
@pytest.mark.parametrize("plan", BITMAPS)
def test_packed_blocks(plan: str, block: tuple[int, int], kernel_file: Write) -> None:
    """Also where dense operands hold no numbers, which reach only the rows that have entries there."""
    package = compile_file(kernel_file(matvec(fill=0.0)), plan=f"{blocks_of(*block)},{plan}").package
    assert not {"A.values"} & {b.name for b in package.buffers}
    each_checked(package, (hard()[name] for name in ("mixed", "bands", "no entries", "special values", "0x5", "5x0", "1x1")))
    a = alternating([1 + 7 * i % 23 for i in range(60)])
    x = np.ones(a.shape[1], np.float32)
    x[::2] = np.resize([np.nan, np.inf], a.shape[1] // 2)
    assert np.isfinite(checked(package, a, x=x)[1::2]).all()


def test_packed_blocks_and_columns(kernel_file: Write) -> None:
    plan = f"{blocks_of(4, 4)},pack-blocks,vectorize,jam-block-rows,rows-to-subgroups{{lanes=4}},map-blocks"
    package = compile_file(kernel_file(matmul(fill=0.0)), plan=plan, sizes={"K": 16}).package
    each_checked(package, (hard()[name] for name in ("mixed", "bands", "no entries")))


def test_blocks_that_are_not_packed(kernel_file: Write) -> None:
    text = kernel_file(matvec())
    with pytest.raises(NotApplicable, match="blocks have 64 places, and there are bits for 32"):
        compile_file(text, plan=f"{blocks_of(8, 8)},{BITMAPS[0]}")
    with pytest.raises(NotApplicable, match="the matrix is not stored in blocks"):
        compiled(text, BITMAPS[0])
    with pytest.raises(PlanError, match="does not go with blocks that store their entries only"):
        Plan.parse(f"{blocks_of(4, 4)},pack-blocks,pack-blocks")


def test_coordinates_that_are_narrow_already(kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match="coordinates have no more than 16 bits already"):
        compiled(kernel_file(matvec()), NARROW[0], widths=(32, 16))
    checked(
        compiled(kernel_file(matvec()), "narrow-coordinates{bits=8},rows-to-threads,map-blocks", widths=(32, 16)), banded(90)
    )


def test_listed_rows_take_no_dense_columns(kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match=r"dcsr.* takes them"):
        compiled(kernel_file(matmul()), LISTED[0], sizes={"K": 4})


# --- What the planner reads ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(a=matrices())
def test_features_are_what_packing_finds(a: sp.csr_array) -> None:
    f, positions, places = analyse(a), a.indptr.astype(np.int64), max(a.nnz, 1)
    made = row_diagonals(positions, a.indices, a.data, ANY)
    assert f.diagonals == made["offsets"].size
    assert f.diagonal_padding == (made["values"].size / places if a.nnz else 1.0)
    assert f.ell_padding == (equal_rows(positions, a.indices, a.data, ANY, 32)["values"].size / places if a.nnz else 1.0)
    offsets = row_offsets(positions, a.indices, 16)["coordinates"]
    assert f.row_span == (int(offsets.max()) + 1 if a.nnz else 0)
    assert f.equal_values == (np.unique(bits_of(a.data)).size == 1)


def test_diagonals_of_many_rows_are_counted_where_they_are_few() -> None:
    assert analyse(banded(9000, 5)).diagonals == 5
    scattered = sp.csr_array(sp.random_array((9000, 9000), density=0.0005, rng=np.random.default_rng(0)))
    f = analyse(scattered)
    assert f.diagonal_padding > 8
    assert f.diagonals <= 17_999


def plans_of(a: sp.csr_array, columns: int = 0) -> list[str]:
    shape = (a.shape[0], a.shape[1])
    task = Task(rows_first=True, choose_format=True, columns=columns, element_bytes=4, shape=shape)
    return [plan.text() for plan in ranked(task, analyse(a), Target())]


@pytest.mark.parametrize("columns", [0, 16])
def test_plans_for_layouts_fit_their_matrices(columns: int, kernel_file: Write) -> None:
    """What is proposed for a matrix packs, and gives the right result."""
    text = kernel_file(matmul(fill=0.0) if columns else matvec(fill=0.0))
    sizes = {"K": columns} if columns else {}
    wanted = {"diagonals": banded(300), "uniform-values": ones(banded(300))}
    if not columns:
        wanted |= {"narrow-coordinates": banded(300), "ell-rows": banded(300), "nonempty-rows": of_lengths([0] * 90 + [3, 1])}
    else:
        wanted["format=dcsr"] = of_lengths([0] * 90 + [3, 1])
    for name, a in wanted.items():
        found = [plan for plan in plans_of(a, columns) if name in plan]
        assert found, name
        for plan in found:
            checked(compile_file(text, plan=plan, sizes=sizes).package, a)


def test_plans_for_other_matrices_have_no_layouts() -> None:
    scattered = sp.csr_array(sp.random_array((2000, 2000), density=0.01, rng=np.random.default_rng(0)))
    for name in ("diagonals", "uniform-values", "nonempty-rows", "ell-rows", "narrow-coordinates"):
        assert not any(f",{name}" in plan for columns in (0, 16) for plan in plans_of(scattered, columns)), name


def test_candidates_of_a_search_fit_the_matrix() -> None:
    class Context:
        def __init__(self, features: Features | None) -> None:
            self.features, self.task = features, Task(rows_first=True, choose_format=True, columns=0, element_bytes=4)

    band, other = Context(analyse(ones(banded(300)))), Context(analyse(of_lengths([0] * 50 + [200, 3], 70_000)))
    proposed = {
        name: [len(registry()[name].candidates(context)) for context in (band, other, Context(None))]  # type: ignore[attr-defined]
        for name in ("diagonals", "ell-rows", "narrow-coordinates", "uniform-values", "nonempty-rows")
    }
    assert proposed == {
        "diagonals": [1, 0, 0],
        "ell-rows": [2, 0, 0],
        "narrow-coordinates": [2, 0, 0],
        "uniform-values": [1, 0, 0],
        "nonempty-rows": [0, 2, 0],
    }
