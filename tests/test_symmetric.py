"""Symmetric storage: one triangle of the matrix, each entry of which is added to two rows.

The recipe is unpacked again, and kernels run under emulation with all checks, each result held to SciPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import Array, matmul, matvec, of_lengths, transposed_matvec
from hypothesis import given, settings
from hypothesis import strategies as st
from test_layouts import FLOATS, bits_of, matrices
from test_new_schedules import banded, checked, compiled, each_checked
from test_scalars import prologue

from sparseditto.agent.features import analyse
from sparseditto.agent.planner import Task
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.api import bind_package, run
from sparseditto.compiler.dtypes import dtype_of
from sparseditto.compiler.execute import prepare
from sparseditto.dialects.errors import InputError, NotApplicable, PlanError
from sparseditto.dialects.recipes import Recipe
from sparseditto.dialects.symmetric import check_symmetric, lower_triangle
from sparseditto.passes.base import Kind, Resource
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry
from sparseditto.passes.upstream import PREFIX

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]

# --- The recipe ---------------------------------------------------------------------------------------


def symmetric(a: sp.csr_array) -> sp.csr_array:
    """The lower triangle of a matrix and its mirror image, for as many rows as columns; values keep their bits."""
    size = min(a.shape)
    lower = a.tocoo()
    keep = (lower.row < size) & (lower.col <= lower.row)
    row, column, values = lower.row[keep], lower.col[keep], lower.data[keep]
    below = row != column
    entries = (np.append(row, column[below]), np.append(column, row[below]))
    numbers = np.append(np.arange(row.size), np.flatnonzero(below))
    made = sp.csr_array((numbers, entries), (size, size), dtype=np.int64)
    return sp.csr_array((values[made.data], made.indices, made.indptr), (size, size))


def arrays_of(a: sp.csr_array, dtype: str = "float64") -> tuple[Array, Array, Array, Array]:
    return a.indptr.astype(np.int64), a.indices, np.asarray(a.data, dtype_of(dtype)), np.array(a.shape)


@settings(deadline=None, max_examples=200)
@given(a=matrices(), dtype=st.sampled_from(FLOATS), index=st.sampled_from((np.uint8, np.uint16, np.int32, np.int64)))
def test_the_triangle_holds_the_matrix(a: sp.csr_array, dtype: str, index: type) -> None:
    a = symmetric(a)
    positions, coordinates, values, extents = arrays_of(a, dtype)
    made = lower_triangle(positions, coordinates.astype(index), values, extents)
    row = np.repeat(np.arange(a.shape[0]), np.diff(made["positions"]))
    column, stored = made["coordinates"].astype(np.int64), made["values"]
    assert (column <= row).all()
    assert made["coordinates"].dtype == index
    below = column < row
    row, column = np.append(row, column[below]), np.append(column, row[below])
    order = np.lexsort((column, row))
    assert np.array_equal(row[order], np.repeat(np.arange(a.shape[0]), np.diff(a.indptr)))
    assert np.array_equal(column[order], a.indices)
    found = np.append(stored, stored[below])[order]
    assert ((bits_of(found) == bits_of(values)) | (np.isnan(found) & np.isnan(values))).all()


def first_difference(a: sp.csr_array) -> tuple[int, int] | None:
    """The first place, row by row, that only one of a matrix and its transpose stores, or where they hold other bits."""
    row = np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))
    stored = {(int(i), int(j)): bits_of(v.reshape(1))[0] for i, j, v in zip(row, a.indices, a.data, strict=True)}
    mirrored = {(j, i): v for (i, j), v in stored.items()}
    return min((place for place in stored | mirrored if stored.get(place) != mirrored.get(place)), default=None)


@settings(deadline=None, max_examples=200)
@given(a=matrices(most=12), drop=st.booleans(), data=st.data())
def test_a_single_difference_is_found(a: sp.csr_array, drop: bool, data: st.DataObject) -> None:
    a = symmetric(a)
    if a.nnz:
        changed = data.draw(st.integers(0, a.nnz - 1))
        if drop:
            row = np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))
            kept = np.arange(a.nnz) != changed
            a = sp.csr_array((a.data[kept], (row[kept], a.indices[kept])), a.shape)
        else:
            a.data[changed] = 3.25
    a.data[np.isnan(a.data)] = np.nan  # of one kind, as zeros are
    a.data += 0.0
    place = first_difference(a)
    if place is None:
        assert np.array_equal(check_symmetric(*arrays_of(a)), np.repeat(np.arange(a.shape[0]), np.diff(a.indptr)))
        return
    i, j = place
    with pytest.raises(InputError, match=rf"\(({i}, {j}|{j}, {i})\) is .*, and \(({i}, {j}|{j}, {i})\) is "):
        check_symmetric(*arrays_of(a))


@pytest.mark.parametrize(
    ("entries", "shape", "why"),
    [
        ([(0, 0, 1.0)], (2, 3), "a matrix of 2 x 3 is not symmetric"),
        ([(0, 0, 1.0)], (3, 2), "a matrix of 3 x 2 is not symmetric"),
        ([(0, 2, 1.5), (2, 0, -2.0)], (3, 3), r"\(0, 2\) is 1.5, and \(2, 0\) is -2.0: leave lower-triangle out of the plan"),
        ([(0, 2, 1.5)], (3, 3), r"\(0, 2\) is 1.5, and \(2, 0\) is not stored"),
        ([(1, 1, 7.0), (2, 0, 1.5)], (3, 3), r"\(2, 0\) is 1.5, and \(0, 2\) is not stored"),
        ([(0, 1, np.nan), (1, 0, 1.0)], (2, 2), r"\(0, 1\) is nan, and \(1, 0\) is 1.0"),
        ([(0, 1, 1.0), (1, 0, -1.0)], (2, 2), r"\(0, 1\) is 1.0, and \(1, 0\) is -1.0"),
    ],
)
def test_other_matrices_are_refused(entries: list[tuple[int, int, float]], shape: tuple[int, int], why: str) -> None:
    i, j, values = zip(*entries, strict=True)
    with pytest.raises(InputError, match=why):
        check_symmetric(*arrays_of(sp.csr_array((np.array(values), (i, j)), shape)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_mirror_images_may_differ_in_bits_that_say_nothing(dtype: str) -> None:
    """Zeros of both signs, and NaNs."""
    positions, coordinates = np.array([0, 2, 4]), np.array([0, 1, 0, 1])
    for upper, lower in ((0.0, -0.0), (np.nan, np.nan)):
        values = np.array([1.0, upper, lower, 1.0], dtype_of(dtype))
        if upper != upper:
            bits_of(values)[2] = -1
        check_symmetric(positions, coordinates, values, np.array([2, 2]))


def test_the_recipe_reads_back_what_it_prints() -> None:
    for text in ("lower-triangle{level=1}", "lower-triangle{level=1}|row-offsets{level=1 bits=16}"):
        assert str(Recipe.parse(text)) == text


# --- Kernels ------------------------------------------------------------------------------------------

PLANS = (
    "lower-triangle,rows-to-threads,map-blocks",
    "lower-triangle,rows-to-threads,unroll{factor=4 tail=loop},map-blocks",
    "lower-triangle,rows-to-threads,unroll{factor=4 tail=clamp},map-blocks,bound-launch{blocks=8}",
    "lower-triangle,rows-to-subgroups{lanes=8},map-blocks{threads=96}",
    "lower-triangle,rows-to-subgroups{lanes=4},unroll{factor=4 tail=halves},coarsen-rows{rows=2},map-blocks",
    "lower-triangle,rows-to-subgroups{lanes=32},unroll{factor=2 tail=clamp},map-blocks,persist-blocks{blocks=3}",
    "lower-triangle,stream-entries,keep-gathered,rows-to-threads,coarsen-rows{rows=4},map-blocks,persist-blocks{blocks=2}",
    "mlir-cse,lower-triangle,mlir-canonicalize,rows-to-threads,mlir-arith-int-range-narrowing,map-blocks",
    "lower-triangle,rows-to-subgroups{lanes=8},mlir-scf-for-loop-range-folding,unroll{factor=4 tail=clamp},map-blocks",
)
NARROW = "lower-triangle,narrow-coordinates,rows-to-subgroups{lanes=8},unroll{factor=2},map-blocks"
UNIFORM = (
    "uniform-values,lower-triangle,rows-to-threads,map-blocks",
    "lower-triangle,uniform-values,narrow-coordinates{bits=8},rows-to-subgroups{lanes=4},map-blocks",
)


@cache
def hard() -> dict[str, sp.csr_array]:
    hub = of_lengths([120, 0, 3, 1, *[2] * 140], 144)
    special = np.array([np.inf, np.nan, 0.0, -0.0, 2.0])
    return {
        "no rows": sp.csr_array((0, 0)),
        "no entries": sp.csr_array((5, 5)),
        "1x1": sp.csr_array([[2.5]]),
        "a diagonal": sp.csr_array(sp.diags_array(np.arange(1.0, 71.0))),
        "full": symmetric(sp.csr_array(np.arange(1.0, 1.0 + 33 * 33).reshape(33, 33))),
        "a hub": symmetric(sp.csr_array((hub + hub.T).tocsr())),
        "a tridiagonal matrix": symmetric(banded(200)),
        "no diagonal": sp.csr_array(np.ones((9, 9)) - np.eye(9)),
        "special values": symmetric(sp.csr_array((special, ([1, 2, 3, 4, 4], [0, 2, 1, 0, 3])), (6, 6))),
    }


SETTINGS = [("f32", 0.0, (32, 32)), ("f64", None, (64, 64)), ("f32", None, (32, 16)), ("f64", -2.5, (32, 64))]


@pytest.mark.parametrize("plan", [*PLANS, NARROW])
def test_spmv_is_right(plan: str, kernel_file: Write) -> None:
    e, start, widths = SETTINGS[[*PLANS, NARROW].index(plan) % len(SETTINGS)]
    each_checked(compiled(kernel_file(matvec(e, fill=start)), plan, widths), hard().values())


@pytest.mark.slow
@pytest.mark.parametrize(("e", "start", "widths"), SETTINGS)
@pytest.mark.parametrize("plan", PLANS)
def test_spmv_sweep(plan: str, e: str, start: float | None, widths: tuple[int, int], kernel_file: Write) -> None:
    each_checked(compiled(kernel_file(matvec(e, fill=start)), plan, widths), hard().values())


@pytest.mark.parametrize("plan", UNIFORM)
def test_one_value_for_all_entries(plan: str, kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec(fill=0.0)), plan)
    ones = (sp.csr_array((np.full(a.nnz, 2.5), a.indices, a.indptr), a.shape) for a in hard().values())
    each_checked(package, ones)


def test_columns_of_a_transposed_matrix(kernel_file: Write) -> None:
    each_checked(compiled(kernel_file(transposed_matvec()), PLANS[3], layout="csc"), hard().values(), transpose=True)


@pytest.mark.parametrize(
    "rows",
    [
        "rows-to-threads",
        "rows-to-subgroups{lanes=8},unroll{factor=4 tail=clamp}",
        "rows-to-subgroups{lanes=16 groups=4},coarsen-rows",
        "rows-to-subgroups{lanes=4 share=entries}",
    ],
)
@pytest.mark.parametrize("columns", [6, 8])
def test_dense_columns(rows: str, columns: int, kernel_file: Write) -> None:
    """Also where lanes without a column of their own come along."""
    package = compiled(kernel_file(matmul(fill=0.0)), f"lower-triangle,{rows},map-blocks", sizes={"K": columns})
    each_checked(package, (hard()[name] for name in ("no entries", "1x1", "a hub", "special values")))


@pytest.mark.parametrize("beta", [0.0, -0.5])
@pytest.mark.parametrize("plan", [PLANS[1], PLANS[5]])
def test_alpha_and_beta(plan: str, beta: float, kernel_file: Write) -> None:
    package = compiled(kernel_file(prologue()), plan)
    for name in ("a hub", "full", "no entries"):
        y = np.full(hard()[name].shape[0], np.nan if beta == 0 else 3, np.float32)
        result = run(package, {"A": hard()[name], "y": y, "alpha": 2.5, "beta": beta}, verify=True)
        assert result.check is not None
        assert result.check.passed, result.check


@pytest.mark.parametrize("plan", [PLANS[0], PLANS[2], PLANS[5]])
def test_nan_and_infinity_do_not_leak(plan: str, kernel_file: Write) -> None:
    """Even rows have entries in even columns only."""
    a = symmetric(sp.csr_array(sp.kron(of_lengths([1 + 3 * i % 7 for i in range(40)], 40), np.eye(2))))
    a.eliminate_zeros()
    x = np.ones(a.shape[1], np.float32)
    x[::2] = np.resize([np.nan, np.inf, -np.inf], a.shape[1] // 2)
    output = checked(compiled(kernel_file(matvec(fill=0.0)), plan), a, x=x)
    assert np.isfinite(output[1::2]).all()


def test_halves_are_summed_wide(kernel_file: Write) -> None:
    text = """func.func @spmv(%A: tensor<?x?xf16> {ditto.sparse}, %x: tensor<?xf16>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %r = linalg.matvec ins(%A, %x : tensor<?x?xf16>, tensor<?xf16>) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}"""
    result = run(compiled(kernel_file(text), PLANS[0]), {"A": hard()["a tridiagonal matrix"]}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


def test_half_of_the_entries_are_read(kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec()), PLANS[0])
    assert {b.name for b in package.buffers} == {
        "x",
        "y",
        *(f"A.lower_triangle.{p}" for p in ("positions", "coordinates", "values")),
    }
    assert len(package.launches) == 1
    a = hard()["no diagonal"]
    arrays = prepare(package, bind_package(package, {"A": a})).arrays
    assert arrays["A.lower_triangle.values"].size == a.nnz // 2
    started = compiled(kernel_file(matvec(fill=0.0)), PLANS[0])
    assert len(started.launches) == 2


# --- What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_matrices_that_are_not_symmetric(shape: tuple[int, int], kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec()), PLANS[0])
    with pytest.raises(InputError, match="not symmetric"):
        prepare(package, bind_package(package, {"A": sp.csr_array(([1.0], ([1], [2])), shape)}))


GOES_WITH = (
    "coarsen-rows",
    "keep-gathered",
    "narrow-coordinates",
    "next-part",
    "rows-to-subgroups",
    "rows-to-threads",
    "stream-entries",
    "uniform-values",
    "unroll",
)
OURS = {
    name
    for name, cls in registry().items()
    if cls.__module__.startswith("sparseditto.") and not name.startswith(PREFIX)  # upstream's leave a nest what it is
}


@pytest.mark.parametrize("other", sorted(n for n in OURS.difference(GOES_WITH) if registry()[n].kind is Kind.SCHEDULE))
def test_other_schedules_are_refused(other: str) -> None:
    """What changes how entries are walked does not know of their mirror images."""
    rows = "rows-to-subgroups," if other == "share-loads" else ""
    with pytest.raises(PlanError, match="does not go with one triangle of a symmetric matrix"):
        Plan.parse(f"set-encoding,lower-triangle,{rows}{other}")


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("lower-triangle,lower-triangle", "does not go with one triangle"),
        ("narrow-coordinates,lower-triangle", "does not go with coordinates stored as offsets"),
        ("reorder{rows=rcm columns=same},lower-triangle", "does not go with rows or columns in another order"),
        ("partition,lower-triangle", "does not go with the matrix in parts"),
        ("rows-to-threads,lower-triangle", "needs a parallel loop outside all others"),
        ("lower-triangle,split-entries{mode=deterministic}", "does not go with one triangle"),
    ],
)
def test_plans_that_are_refused(plan: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        Plan.parse(f"set-encoding,accumulate-registers,{plan}")


@pytest.mark.parametrize(
    ("plan", "text", "layout", "reason"),
    [
        (PLANS[0], matvec(), "dcsr", "needs dense rows over compressed entries"),
        (PLANS[0], matvec(), "bsr", "needs dense rows over compressed entries"),
        (PLANS[0], matvec("f16"), "csr", "would be rounded"),
        (f"accumulate-wide,{PLANS[0]}", matvec(), "csr", "would be rounded"),
        ("partition,rows-to-threads,map-blocks,next-part,lower-triangle,rows-to-threads,map-blocks", matvec(), "csr", "a part"),
    ],
)
def test_nests_that_are_refused(plan: str, text: str, layout: str, reason: str, kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match=reason):
        compiled(kernel_file(text), plan, layout=layout)


# --- What a search proposes ---------------------------------------------------------------------------


def proposed(a: sp.csr_array, columns: int) -> list[str]:
    task = Task(rows_first=True, choose_format=True, columns=columns, element_bytes=4, shape=a.shape)
    return [str(step) for step in Space(Context(task, analyse(a))).variants(registry()["lower-triangle"])]


def test_square_matrices_times_a_vector_are_proposed() -> None:
    assert proposed(banded(90), 0) == ["lower-triangle"]
    assert proposed(banded(90), 16) == []
    assert proposed(of_lengths([1, 2], 9), 0) == []
    assert Resource.ATOMICS in registry()["lower-triangle"].consumes
