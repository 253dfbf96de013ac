"""Rows and columns in another order, and the matrix in parts: recipes that compose, and kernels in the order that users have.

Kernels run under emulation with all checks.  Each result is held to the compiler's own check and to SciPy in float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, matmul, matvec, of_lengths, transposed_matvec
from hypothesis import given, settings
from hypothesis import strategies as st
from test_new_schedules import banded, checked, each_checked
from test_scalars import epilogue, prologue
from test_schedules import ROW_SCALED, mixed

from sparseditto.agent.features import analyse
from sparseditto.agent.planner import Task
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.api import bind_package, compile_file, run
from sparseditto.compiler.execute import prepare
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.runtimes.simt import SimtModule
from sparseditto.dialects.errors import DittoError, InputError, NotApplicable, PlanError
from sparseditto.dialects.orders import COLUMN_ORDERS, CRITERIA, ROW_ORDERS
from sparseditto.dialects.recipes import Recipe, run_recipe
from sparseditto.passes.base import Form, Kind
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]
Arrays = dict[str, np.ndarray[Any, Any]]

THREADS = "rows-to-threads,map-blocks"
GROUPS = "rows-to-subgroups{lanes=8},map-blocks"
ORDERS = [
    f"reorder{{rows={rows} columns={columns}}}"
    for rows, columns in product(ROW_ORDERS, COLUMN_ORDERS)
    if rows != "none" or columns == "degree"
]
SPLITS = ["length limit=16", "length limit=1000000", "column limit=20", "column limit=100000", "diagonal limit=50"]
SMALL = ("no entries", "0x0", "0x5", "5x0", "1x1", "one entry", "full column", "special values")


def hard() -> dict[str, sp.csr_array]:
    """Empty rows, a full row, bands (of which an order has fixed points), wide and high matrices, NaN and infinities."""
    return {
        "mixed": mixed(),
        "a full row": of_lengths([2, 0, 500, 1, 0, 0, 7], 500),
        "high": sp.csr_array(of_lengths([3, 1, 0, 40, 2], 300).T),
        "bands": banded(300),
        **{name: MATRICES[name]() for name in SMALL},
    }


def compiled(text: Path, plan: str, encoding: str = "set-encoding", **options: Any) -> KernelPackage:
    return compile_file(text, plan=f"{encoding},accumulate-registers,{plan}", **options).package


# --- Recipes ------------------------------------------------------------------------------------------


def stored(a: sp.csr_array) -> Arrays:
    return {"positions1": a.indptr, "coordinates1": a.indices, "values": a.data}


def made(text: str, a: sp.csr_array) -> Arrays:
    return dict(run_recipe(Recipe.parse(text), stored(a)))


def as_matrix(arrays: Arrays, columns: int) -> sp.csr_array:
    shape = (arrays["positions"].size - 1, columns)
    return sp.csr_array((arrays["values"], arrays["coordinates"], arrays["positions"]), shape)


@st.composite
def matrices(draw: st.DrawFn) -> sp.csr_array:
    rows, columns = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    dense = rng.random((rows, columns)) < draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    return sp.csr_array(dense * rng.uniform(1, 2, dense.shape))


@given(matrices(), st.sampled_from(ORDERS))
@settings(deadline=None)
def test_an_order_is_a_permutation(a: sp.csr_array, order: str) -> None:
    found = made(order.replace("{", "{level=1 "), a)
    assert sorted(found["rows"]) == list(range(a.shape[0]))
    moved = a[found["rows"]]
    if "gathers" in found:
        assert sorted(found["gathers"]) == sorted(set(a.indices))
        moved = moved[:, found["gathers"]]
    assert (as_matrix(found, moved.shape[1]) != moved).nnz == 0
    for start, end in zip(found["positions"], found["positions"][1:], strict=False):
        assert (np.diff(found["coordinates"][start:end]) > 0).all()


@given(matrices(), st.sampled_from(CRITERIA), st.sampled_from([1, 2, 5, 50, 100]))
@settings(deadline=None)
def test_parts_add_up_to_the_matrix(a: sp.csr_array, by: str, limit: int) -> None:
    total, rows = sp.csr_array(a.shape), []
    for part in (0, 1):
        found = made(f"partition{{level=1 by={by} limit={limit} part={part}}}", a)
        place = sp.csr_array(
            (np.ones(found["rows"].size), (found["rows"], np.arange(found["rows"].size))), (a.shape[0], found["rows"].size)
        )
        total = total + place @ as_matrix(found, a.shape[1])
        rows.append(found["rows"])
    assert (total != a).nnz == 0
    if by == "length":
        assert sorted(np.concatenate(rows)) == list(range(a.shape[0]))
    else:
        assert list(rows[0]) == list(range(a.shape[0]))
        assert set(rows[1]) <= set(np.flatnonzero(np.diff(a.indptr)))


def test_orders_are_what_their_names_say() -> None:
    a = of_lengths([3, 0, 5, 1], 9)
    assert list(made("reorder{level=1 rows=degree columns=none}", a)["rows"]) == [2, 0, 3, 1]
    counts = np.bincount(a.indices, minlength=9)
    gathers = made("reorder{level=1 rows=none columns=degree}", a)["gathers"]
    assert list(counts[gathers]) == sorted(counts[counts > 0], reverse=True)
    twins = sp.csr_array(np.kron(np.eye(3), np.ones((1, 8))).repeat(2, axis=0)[[0, 2, 4, 1, 3, 5]])
    order = list(made("reorder{level=1 rows=cluster columns=none}", twins)["rows"])
    assert {frozenset(order[k : k + 2]) for k in (0, 2, 4)} == {frozenset(pair) for pair in ((0, 3), (1, 4), (2, 5))}


def test_reverse_cuthill_mckee_finds_the_bands_again() -> None:
    shuffled = np.random.default_rng(1).permutation(200)
    a = sp.csr_array(banded(200)[shuffled][:, shuffled])
    found = made("reorder{level=1 rows=rcm columns=same}", a)
    rows, columns = as_matrix(found, 200).nonzero()
    assert abs(rows - columns).max() <= 2


def test_diagonals_that_are_full_enough() -> None:
    a = sp.csr_array(sp.diags_array([np.ones(10), np.r_[1.0, np.zeros(8)]], offsets=[0, 1]))
    a.eliminate_zeros()
    found = made("partition{level=1 by=diagonal limit=50 part=0}", a)
    assert as_matrix(found, 10).nnz == 10
    assert made("partition{level=1 by=diagonal limit=50 part=1}", a)["rows"].tolist() == [0]


def test_recipes_read_what_the_one_before_made() -> None:
    a = of_lengths([1, 40, 0, 3], 60)
    text = "reorder{level=1 rows=degree columns=none}|row-segments{level=1 length=16}"
    recipe = Recipe.parse(text)
    assert str(recipe) == text
    assert recipe.source == Recipe.parse(text.split("|")[0])
    done: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    found = run_recipe(recipe, stored(a), done, seconds)
    assert np.diff(found["positions"]).tolist() == [13, 13, 14, 3, 1, 0]
    assert set(done) == {text, text.split("|")[0]}
    assert seconds.keys() == {"reorder", "row-segments"}
    assert min(seconds.values()) >= 0
    assert run_recipe(recipe, {}, done) is found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reorder{level=1 rows=degree columns=none}|", "'' is no recipe"),
        ("reorder{level=1 rows=3 columns=none}", "rows=3 is no word"),
        ("reorder{level=1 rows=degree}", "reorder has the parameters columns, level, rows"),
        ("partition{level=1 by=length limit=few part=0}", "limit=few is no number"),
        ("partition{level=1 by=length limit=0 part=0}", "at least 1"),
        ("row-segments{level=1 length=0}", "at least 1"),
        ("shuffle{level=1}|row-segments{level=1 length=4}", "'shuffle.*' is no recipe"),
    ],
)
def test_recipes_that_are_none(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Recipe.parse(text)


def test_an_order_of_too_many_rows_is_refused() -> None:
    from sparseditto.dialects import orders

    class Many:
        size = 2**31 + 2

    with pytest.raises(InputError, match="2\\^31"):
        orders.reorder(Many(), np.zeros(0, np.int32), np.zeros(0), "degree", "none")  # type: ignore[arg-type]


# --- Orders -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_spmv_in_another_order(order: str, kernel_file: Write) -> None:
    number = ORDERS.index(order)
    e, start, encoding = (
        ("f32", "f64")[number % 2],
        (None, 0.0, 1.5)[number % 3],
        ("", "{coordinates=16}", "{positions=64}")[number % 3],
    )
    package = compiled(
        kernel_file(matvec(e, fill=start)), f"{order},{(THREADS, GROUPS)[number % 2]}", f"set-encoding{encoding}"
    )
    each_checked(package, hard().values())


@pytest.mark.parametrize(("k", "plan"), [(1, THREADS), (9, THREADS), (32, f"vectorize{{width=4}},{GROUPS}"), (33, GROUPS)])
@pytest.mark.parametrize("order", ["reorder{rows=rcm columns=same}", "reorder{rows=cluster}"])
def test_spmm_in_another_order(order: str, k: int, plan: str, kernel_file: Write) -> None:
    e, start = ("f64", 0.0) if k == 9 else ("f32", None)
    package = compiled(kernel_file(matmul(e, fill=start)), f"{order},{plan}", sizes={"K": k})
    each_checked(package, (hard()[name] for name in ("mixed", "high", "bands", "no entries", "0x5", "5x0", "special values")))


def test_columns_are_copied_once_and_the_packed_matrix_is_not_read(kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec(fill=0.0)), f"reorder{{rows=degree columns=degree}},{THREADS}")
    gather, main = package.launches
    assert gather.kernel.endswith("_gather")
    assert "A.reorder.gathers.dim0" in gather.grid[0]
    assert "x" not in main.arguments
    assert package.buffer("A.reorder.x.gathered.copy").access == "write"
    assert not any(b.name.startswith("A.") and not b.recipe for b in package.buffers)


def test_columns_without_entries_are_not_copied(kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec(fill=0.0)), f"reorder{{rows=none columns=degree}},{THREADS}")
    a = sp.csr_array(([1.0, 2.0], ([0, 1], [3, 7])), (2, 9))
    inputs = prepare(package, bind_package(package, {"A": a, "x": np.r_[[np.nan] * 3, 1.0, [np.nan] * 3, 1.0, np.nan]}))
    assert inputs.sizes["A.reorder.x.gathered.copy.dim0"] == 2
    checked(package, a, x=inputs.dense["x"])


@pytest.mark.parametrize(
    "plan", [f"reorder{{rows=rcm columns=same}},{THREADS}", f"partition{{by=column}},{THREADS},next-part,{GROUPS}"]
)
def test_columns_of_a_transposed_matrix(plan: str, kernel_file: Write) -> None:
    package = compiled(kernel_file(transposed_matvec()), plan, "set-encoding{format=csc}")
    each_checked(package, (sp.csr_array(hard()[name].T) for name in ("mixed", "bands", "no entries")), transpose=True)


def test_a_row_has_a_value_of_its_own(kernel_file: Write) -> None:
    """It is that of the row, not of its place; and where nothing is gathered, there is no order of columns."""
    a = mixed()
    package = compiled(kernel_file(ROW_SCALED), f"reorder,partition{{limit=20}},{THREADS},next-part,{GROUPS}")
    result = run(package, {"A": a}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check
    with pytest.raises(NotApplicable, match="nothing is gathered by columns"):
        compiled(kernel_file(ROW_SCALED), f"reorder{{columns=degree}},{THREADS}")


def test_an_unknown_number_of_columns_is_no_reason_to_refuse_an_order_of_rows(kernel_file: Write) -> None:
    text = kernel_file(matmul())
    package = compiled(text, f"reorder,{THREADS}")
    checked(package, mixed(), B=np.ones((mixed().shape[1], 5), np.float32))
    with pytest.raises(NotApplicable, match="--size K="):
        compiled(text, f"reorder{{columns=degree}},{THREADS}")


@pytest.mark.parametrize("e", ["f16", "bf16"])
def test_sixteen_bits_in_another_order(e: str, kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec(e, fill=0.0)), f"reorder{{rows=cluster columns=degree}},{THREADS}")
    result = run(package, {"A": mixed()}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


@pytest.mark.parametrize(
    "plan",
    [
        f"reorder{{rows=rcm columns=same}},slice-rows{{height=4}},{THREADS}",
        f"partition{{by=column limit=20}},slice-rows{{height=4}},{THREADS},next-part,{GROUPS}",
        f"partition{{by=length limit=4}},{THREADS},next-part,stage-entries{{entries=128 threads=64}}",
    ],
)
def test_what_is_no_number_stays_in_its_rows(plan: str, kernel_file: Write) -> None:
    a = sp.csr_array(sp.vstack([banded(60), of_lengths([9, 0, 1], 60)]))
    x = np.ones(60)
    x[[3, 40]] = np.nan, np.inf
    y = checked(compiled(kernel_file(matvec("f64", fill=0.0)), plan), a, x=x)
    assert set(np.flatnonzero(~np.isfinite(y))) == set(a[:, [3, 40]].tocoo().row)


# --- Parts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("start", [None, 0.0, -2.5])
def test_spmv_in_parts(split: str, start: float | None, kernel_file: Write) -> None:
    e = "f64" if start else "f32"
    package = compiled(kernel_file(matvec(e, fill=start)), f"partition{{by={split}}},{THREADS},next-part,{GROUPS}")
    assert [launch.kernel.split("_")[-1] for launch in package.launches] == ["part0", "spmv"]
    each_checked(package, hard().values())


@pytest.mark.parametrize(("k", "second"), [(1, THREADS), (9, GROUPS), (32, f"vectorize{{width=4}},{GROUPS}"), (33, GROUPS)])
@pytest.mark.parametrize("split", ["length limit=16", "column limit=20", "diagonal limit=50"])
def test_spmm_in_parts(split: str, k: int, second: str, kernel_file: Write) -> None:
    e, start = ("f64", None) if k == 9 else ("f32", 0.0)
    package = compiled(
        kernel_file(matmul(e, fill=start)), f"partition{{by={split}}},{THREADS},next-part,{second}", sizes={"K": k}
    )
    each_checked(package, (hard()[name] for name in ("mixed", "high", "bands", "no entries", "0x5", "5x0", "special values")))


HYBRIDS = {
    "slices and a warp a row": "partition{by=length limit=32},slice-rows{height=8 window=128},rows-to-threads,unroll,"
    "map-blocks,next-part,rows-to-subgroups{lanes=32},map-blocks",
    "blocks of entries, and pieces": "partition{by=length limit=64},stage-entries{entries=128 threads=64},"
    "next-part,split-entries{length=64 mode=deterministic},map-blocks",
    "diagonals and the rest": "partition{by=diagonal limit=60},diagonals{factor=1048576},rows-to-threads,map-blocks,next-part,"
    "partition{by=length limit=8},slice-rows{height=4},rows-to-threads,map-blocks,"
    "next-part,bin-rows{limit=32 length=1024 threads=128},rows-to-subgroups{lanes=2},map-blocks",
    "parts of parts": f"partition{{by=column limit=200}},partition{{by=length limit=8}},{THREADS},"
    f"next-part,segment-rows{{length=16}},{THREADS},"
    f"next-part,reorder{{rows=rcm columns=same}},segment-rows{{length=32}},{THREADS}",
    "hot columns": f"reorder{{rows=degree columns=degree}},partition{{by=column limit=16}},{THREADS},"
    f"next-part,narrow-coordinates,{GROUPS},persist-blocks",
}


@pytest.mark.parametrize("start", [None, 0.0])
@pytest.mark.parametrize("plan", HYBRIDS)
def test_hybrids(plan: str, start: float | None, kernel_file: Write) -> None:
    each_checked(compiled(kernel_file(matvec(fill=start)), HYBRIDS[plan]), hard().values())
    assert Plan.parse(Plan.parse(HYBRIDS[plan]).text()) == Plan.parse(HYBRIDS[plan])
    assert Plan.from_json(Plan.parse(HYBRIDS[plan]).to_json()) == Plan.parse(HYBRIDS[plan])


def test_kernels_of_parts_have_names_of_their_own(kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec(fill=0.0)), HYBRIDS["diagonals and the rest"])
    names = [launch.kernel for launch in package.launches]
    assert names == ["spmv_part0", "spmv_part1", "spmv", "spmv_long"]
    assert len({b.name for b in package.buffers}) == len(package.buffers)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize(("text", "beta"), [(prologue, 0.0), (prologue, 0.5), (epilogue, 0.5)])
@pytest.mark.parametrize("split", ["length limit=16", "column limit=20", "diagonal limit=50"])
def test_scaled_products_in_parts(split: str, text: Callable[..., str], beta: float, columns: bool, kernel_file: Write) -> None:
    """The output's old value is scaled once, by the first part; where beta is 0 it is not read."""
    sizes = {"K": 9} if columns else {}
    package = compiled(
        kernel_file(text(columns=columns)), f"reorder,partition{{by={split}}},{THREADS},next-part,{GROUPS}", sizes=sizes
    )
    a = mixed()
    y = np.full((a.shape[0], 9) if columns else a.shape[0], np.nan if beta == 0.0 else 2.0, np.float32)
    result = run(package, {"A": a, "y": y, "alpha": -1.5, "beta": beta}, sizes or None, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


def test_sums_that_are_wider_than_the_output(kernel_file: Write) -> None:
    """Parts by length round a row once; parts by column would round it twice."""
    text = kernel_file(matvec("f16", fill=0.0))
    result = run(compiled(text, f"partition{{limit=16}},{THREADS},next-part,{THREADS}"), {"A": mixed()}, verify=True)
    assert result.check is not None
    assert result.check.passed
    with pytest.raises(NotApplicable, match="rounded"):
        compiled(text, f"partition{{by=column}},{THREADS},next-part,{THREADS}")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("partition{limit=0}", "limit=0: say at least 1"),
        ("partition{by=diagonal limit=101}", "at most 100 percent"),
        ("partition{by=colour}", "by=colour is not one of"),
        ("reorder{rows=none}", "changes nothing"),
        ("reorder{rows=none columns=same}", "changes nothing"),
        ("reorder,reorder", "does not go with rows or columns in another order"),
        (f"{THREADS},next-part", "needs the matrix in parts, of which some wait; put partition before it"),
        ("partition,next-part", "needs the grid split into blocks of threads"),
        (f"partition,{THREADS}", "1 parts wait for a schedule; add next-part"),
        (f"partition,partition,{THREADS},next-part,{THREADS}", "1 parts wait"),
        (f"partition,{THREADS},next-part,{THREADS},next-part,{THREADS}", "needs the matrix in parts"),
        (f"partition,{THREADS},next-part,map-blocks", "needs rows mapped to threads"),
        (f"partition,segment-rows,{THREADS},next-part,{THREADS},segment-rows", "stands after a mapping pass"),
        ("reorder,accumulate-registers", "does not go with rows or columns in another order"),
        ("slice-rows,reorder", "does not go with rows stored in slices"),
    ],
)
def test_plans_that_are_refused(plan: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.parse(f"accumulate-registers,{plan}")


@pytest.mark.parametrize("format_", ["bsr", "dcsr"])
@pytest.mark.parametrize("plan", [f"reorder,{THREADS}", f"partition,{THREADS},next-part,{THREADS}"])
def test_rows_must_be_dense_over_compressed_entries(format_: str, plan: str, kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match="needs dense rows over compressed entries"):
        compiled(kernel_file(matvec(fill=0.0)), plan, f"set-encoding{{format={format_}}}")


def test_the_initial_value_belongs_to_the_nest(kernel_file: Write) -> None:
    with pytest.raises(DittoError, match="accumulate-registers"):
        compile_file(kernel_file(matvec(fill=0.0)), plan=f"set-encoding,partition,{THREADS},next-part,{THREADS}")


@pytest.mark.parametrize("plan", ["hot columns", "parts of parts"])
def test_hybrids_of_any_matrix(plan: str, kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec("f64", fill=0.0)), HYBRIDS[plan].replace("limit=200", "limit=20"))
    module = SimtModule(package.mlir)

    @given(matrices())
    @settings(deadline=None, max_examples=25)
    def right(a: sp.csr_array) -> None:
        checked(package, a, module)

    right()


# --- Every order of passes ----------------------------------------------------------------------------

REFUSALS = {"uniform-values": "not all equal"}
FACTORS = {"ell-rows": "ell-rows{factor=1048576}", "diagonals": "diagonals{factor=1048576}"}


def finished(steps: tuple[str, ...]) -> str:
    """The steps and what maps them, where they do not themselves."""
    provided = {form for step in steps for form in registry()[step.split("{")[0]].provides}
    rows = [] if Form.THREADS in provided else ["rows-to-threads"]
    return ",".join([*steps, *rows, *([] if Form.BLOCKS in provided else ["map-blocks"])])


def legal(plan: str) -> bool:
    try:
        Plan.parse(plan)
    except PlanError:
        return False
    return True


SCHEDULES = sorted(n for n, c in registry().items() if c.kind is Kind.SCHEDULE and c.__module__.startswith("sparseditto."))
OTHERS = [FACTORS.get(n, n) for n in SCHEDULES if n not in ("partition", "next-part", "reorder", "accumulate-registers")]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("columns", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_every_order_with_every_pass(other: str, columns: int, kernel_file: Write) -> None:
    """What a plan may say compiles and is right, or is refused with a reason."""
    text = kernel_file(matmul(fill=None) if columns else matvec(fill=0.0))
    first = "accumulate-registers,"
    orders = [finished(steps) for steps in permutations(("reorder{rows=rcm columns=same}", other))]
    orders += [
        finished((other, "reorder")),
        f"partition{{by=column limit=16}},{finished((other,))},next-part,{finished((other,))}",
    ]
    orders += [f"{other},partition{{limit=16}},{THREADS},next-part,{THREADS}"]
    orders += [f"reorder{{columns=degree}},partition{{limit=16}},{finished((other,))},next-part,{finished((other,))}"]
    for plan in filter(legal, (first + order for order in orders)):
        expected = REFUSALS.get(other, "^$")
        with suppress(NotApplicable):
            package = compile_file(text, plan=f"set-encoding,{plan}", sizes={"K": columns} if columns else None).package
            module = SimtModule(package.mlir)
            for name in ("mixed", "bands", "no entries", "5x0"):
                try:
                    checked(package, hard()[name], module)
                except InputError as e:
                    assert re.search(expected, e.message), e.message  # noqa: PT017 (each matrix is tried)


# --- The search ---------------------------------------------------------------------------------------


def test_the_search_splits_the_matrix_and_schedules_each_part() -> None:
    a = of_lengths([4] * 3000 + [900] * 3)
    task = Task(True, True, 0, 4)
    space = Space(Context(task, analyse(a)))
    plan = Plan.parse(f"set-encoding,accumulate-registers,{THREADS}")
    splits = [move for move in space.moves(plan) if move.subject == "+partition"]
    halves = [move.plan.text().split("next-part") for move in splits]
    assert all("rows-to-threads" in first for first, _ in halves)
    for mapper in ("rows-to-threads", "rows-to-subgroups", "stage-entries", "split-entries"):
        assert any(mapper in second for _, second in halves)
    assert {step.limit for move in splits for step in move.plan.steps if step.name == "partition"} == {8, 16, 64}  # type: ignore[attr-defined]
    texts = [near.plan.text() for near in space.moves(splits[0].plan)]
    first, second = (text for text in texts if "rows-to-subgroups{lanes=8 share=auto groups=1}" in text)
    assert first.index("rows-to-subgroups") < first.index("next-part")
    assert second.index("rows-to-subgroups") > second.index("next-part")
    assert any(move.subject == "+reorder" for move in space.moves(plan))


def test_the_cost_of_an_order_is_told_apart(kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec(fill=0.0)), f"reorder{{rows=rcm}},segment-rows,{THREADS}")
    inputs = prepare(package, bind_package(package, {"A": mixed()}))
    assert set(inputs.pack_parts) == {"pack", "reorder", "row-segments"}
    assert sum(inputs.pack_parts.values()) == pytest.approx(inputs.pack_seconds)
