"""Schedules that cut rows, jam columns, stream entries and unroll with either tail: right together, on hard matrices.

Kernels run under emulation with all checks.  Each result is held to the compiler's own check and to SciPy in float64.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import (
    MATRICES,
    PRODUCT,
    Array,
    both,
    every_case,
    generic,
    matmul,
    matvec,
    of_lengths,
    pairs_of,
    transposed_matmul,
    transposed_matvec,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sparseditto.compiler.api import bind_package, compile_file, run
from sparseditto.compiler.execute import prepare, run_simt
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.runtimes.resources import ptxas_resources
from sparseditto.compiler.runtimes.simt import SimtModule
from sparseditto.dialects.errors import InputError, NotApplicable, PlanError
from sparseditto.dialects.recipes import Recipe, long_segments, row_segments, run_recipe
from sparseditto.passes.plan import Plan

Write = Callable[[str], Path]
Case = dict[str, Any]

INT32 = 2**31 - 1
ROW_SCALED = generic(
    "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>",
    "parallel reduction",
    PRODUCT,
    types="tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>",
)
ROW_AND_COLUMN_SCALED = generic(
    "affine_map<(i, k, j) -> (i, j)>, affine_map<(i, k, j) -> (i, k)>, affine_map<(i, k, j) -> (i, k)>",
    "parallel parallel reduction",
    PRODUCT,
    types="tensor<?x?xf32>, tensor<?x16xf32>, tensor<?x16xf32>",
)


@cache
def mixed() -> sp.csr_array:
    """Rows of every length up to 34, around 64 and 128, of 300 and 1000, and empty ones between and at both ends."""
    return of_lengths([0, 0, *range(35), 1000, 0, 63, 64, 65, 0, 127, 128, 129, 300, 1, 0])


HARD: dict[str, Callable[[], sp.csr_array]] = {
    "mixed": mixed,
    "one giant row": lambda: of_lengths([0, 1, 2500, 0, 3], 3001),
    "a giant row alone": lambda: of_lengths([2500], 3001),
    "the last row is long": lambda: of_lengths([1, 1, 0, 400]),
    "all rows are long": lambda: of_lengths([400, 401, 500]),
    **{name: MATRICES[name] for name in ("no entries", "0x0", "0x5", "5x0", "1x1", "full column", "special values")},
}


# --- All together -------------------------------------------------------------------------------------

SEGMENTS = ("segment-rows{length=16}", "segment-rows{length=64}")
BINS = ("bin-rows{limit=32 length=1024 threads=128}", "bin-rows{limit=128 length=1073741824 threads=512}")
UNROLLS = ("", "unroll{factor=4}", "unroll{factor=2 tail=clamp}", "unroll{factor=4 tail=clamp}", "unroll{factor=16 tail=clamp}")
ENTRIES = tuple(f"rows-to-subgroups{{lanes={n} share=entries}}" for n in (1, 4, 32))
COLUMNS = tuple(f"rows-to-subgroups{{lanes={n} share=columns}}" for n in (2, 8, 32))
COMMON: dict[str, tuple[Any, ...]] = {
    "dtype": ("f32", "f64"),
    "format": ("csr", "bsr block-rows=3 block-columns=4", "dcsr"),
    "start": (None, 0.0, 1.5),
    "stream": ("", "first", "last"),
    "unroll": UNROLLS,
    "unroll first": (False, True),
    "blocks": (
        "map-blocks",
        "map-blocks{threads=96},bound-launch{registers=64}",
        "map-blocks{threads=256},bound-launch{blocks=8}",
    ),
}
FACTORS: dict[str, dict[str, tuple[Any, ...]]] = {
    "spmv": {**COMMON, "balance": ("", *SEGMENTS, *BINS), "rows": ("rows-to-threads", *ENTRIES)},
    "spmm": {
        **COMMON,
        "balance": ("", *SEGMENTS),
        "rows": ("rows-to-threads", *ENTRIES[1:], *COLUMNS),
        "columns": (1, 9, 33, 64, 96),
        "vector": (1, 2, 4),
        "jam": (1, 2, 3, 4, 8),
    },
}


def valid(case: Case) -> bool:
    """Whether the combination is one that passes accept."""
    if case["balance"] and case["format"] == "dcsr":
        return False  # rows are no dense level
    if "bin-rows" in case["balance"] and "bsr" in case["format"]:
        return False
    shares_entries = "entries" in case["rows"]
    if case["unroll first"] and (shares_entries or not case["unroll"]):
        return False
    if "columns" not in case:
        return True
    steps, rest = divmod(case["columns"], case["vector"])
    if rest or (case["jam"] - 1) * -(-steps // case["jam"]) >= steps:
        return False  # no whole vectors, or a tile without columns
    return case["columns"] > 1 or (case["jam"] == 1 and "columns" not in case["rows"])  # a loop over one column folds away


def plan_of(case: Case) -> str:
    vector, jam = case.get("vector", 1), case.get("jam", 1)
    walk = [case["unroll"], case["rows"]] if case["unroll first"] else [case["rows"], case["unroll"]]
    steps = [
        f"set-encoding{{format={case['format']}}}",
        "accumulate-registers",
        "stream-entries" if case["stream"] == "first" else "",
        case["balance"],
        f"vectorize{{width={vector}}}" if vector > 1 else "",
        f"jam-columns{{factor={jam}}}" if jam > 1 else "",
        *walk,
        "stream-entries" if case["stream"] == "last" else "",
        case["blocks"],
    ]
    return ",".join(filter(None, steps))


@cache
def thinned(name: str) -> tuple[Case, ...]:
    """Few cases that hold every possible pair of values: each new one takes the most that are missing out of 40 random ones."""
    rng = random.Random(0)
    cases = list(every_case(FACTORS[name], valid))
    holding: dict[Any, list[Case]] = {}
    for case in rng.sample(cases, min(len(cases), 6000)):
        for pair in pairs_of(case):
            holding.setdefault(pair, []).append(case)
    missing, chosen = set(holding), []
    while missing:
        candidates = holding[min(missing, key=str)]
        best = max(rng.sample(candidates, min(40, len(candidates))), key=lambda case: len(pairs_of(case) & missing))
        missing -= pairs_of(best)
        chosen.append(best)
    return tuple(chosen)


def case_id(case: Case) -> str:
    return " ".join(str(value) for value in case.values()).replace("[", "(").replace("]", ")")


def compile_and_check(case: Case, write: Write, a: sp.csr_array) -> None:
    text = (matmul if "columns" in case else matvec)(case["dtype"], fill=case["start"])
    both(write(text), a, plan_of(case), case.get("columns"))


@pytest.mark.parametrize("case", thinned("spmv"), ids=case_id)
def test_spmv_is_right(case: Case, kernel_file: Write) -> None:
    compile_and_check(case, kernel_file, mixed())


@pytest.mark.parametrize("case", thinned("spmm"), ids=case_id)
def test_spmm_is_right(case: Case, kernel_file: Write) -> None:
    compile_and_check(case, kernel_file, mixed())


@pytest.mark.slow
@pytest.mark.parametrize("balance", ["", *SEGMENTS, *BINS])
@pytest.mark.parametrize("rows", ["rows-to-threads", *ENTRIES, *COLUMNS])
@pytest.mark.parametrize("layout", COMMON["format"])
@pytest.mark.parametrize("kind", FACTORS)
def test_sweep(kind: str, layout: str, rows: str, balance: str, kernel_file: Write) -> None:
    factors = FACTORS[kind]
    if rows not in factors["rows"] or balance not in factors["balance"]:
        pytest.skip("no such plan exists")
    cases = list(every_case({**factors, "format": (layout,), "rows": (rows,), "balance": (balance,)}, valid))
    if not cases:
        pytest.skip("no such plan exists")
    for case in random.Random(f"{kind} {layout} {rows} {balance}").sample(cases, min(25, len(cases))):
        compile_and_check(case, kernel_file, mixed())


# --- Hard matrices ------------------------------------------------------------------------------------

CLAMPED = "unroll{factor=4 tail=clamp}"
SPMV_PLANS = {
    "segments, threads": f"segment-rows{{length=16}},{CLAMPED},rows-to-threads,map-blocks",
    "segments, lanes": f"stream-entries,segment-rows{{length=32}},rows-to-subgroups{{lanes=8}},{CLAMPED},map-blocks",
    "bins": f"bin-rows{{limit=32 length=1024}},rows-to-subgroups{{lanes=4}},{CLAMPED},map-blocks",
}
SPMM_PLANS = {
    "segments, columns": "segment-rows{length=16},vectorize,jam-columns,unroll{tail=clamp},rows-to-subgroups,map-blocks",
    "segments, entries": f"segment-rows{{length=16}},rows-to-subgroups{{lanes=4 share=entries}},{CLAMPED},map-blocks",
}


@pytest.mark.parametrize("plan", SPMV_PLANS)
@pytest.mark.parametrize("name", HARD)
def test_spmv_on_hard_matrices(name: str, plan: str, kernel_file: Write) -> None:
    start = None if len(name) % 2 else -2.5
    both(kernel_file(matvec(fill=start)), HARD[name](), f"set-encoding,accumulate-registers,{SPMV_PLANS[plan]}")


@pytest.mark.parametrize("plan", SPMM_PLANS)
@pytest.mark.parametrize("name", HARD)
def test_spmm_on_hard_matrices(name: str, plan: str, kernel_file: Write) -> None:
    start = None if len(name) % 2 else -2.5
    both(kernel_file(matmul(fill=start)), HARD[name](), f"set-encoding,accumulate-registers,{SPMM_PLANS[plan]}", 16)


GROUPS = {
    "a lane a column": ("", 1, 32, 32, ""),
    "vectors": ("vectorize{width=4},", 64, 32, 8, "unroll{factor=4},"),
    "vectors, twice": ("vectorize{width=4},", 64, 16, 8, "unroll{factor=2 tail=clamp},"),
    "tiles": ("vectorize{width=2},jam-columns{factor=2},", 8, 32, 16, ""),
    "odd tiles": ("jam-columns{factor=3},", 33, 32, 32, "unroll{factor=4 tail=clamp},"),
    "odd columns": ("", 9, 8, 8, "unroll{factor=2},"),
}


@pytest.mark.parametrize("e", ["f32", "f64"])
@pytest.mark.parametrize("cut", ["", "segment-rows{length=16},"])
@pytest.mark.parametrize("encoding", ["set-encoding", "set-encoding{format=bsr block-rows=3 block-columns=2}"])
@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_lanes_share_entries(name: str, encoding: str, cut: str, e: str, kernel_file: Write) -> None:
    before, columns, lanes, groups, after = GROUPS[name]
    share = f"rows-to-subgroups{{lanes={lanes} groups={groups} share={'columns' if columns > 1 else 'entries'}}}"
    share = share if columns > 1 else share.replace(f"groups={groups}", "groups=1")
    plan = f"{encoding},accumulate-registers,{cut}{before}{share},{after}map-blocks"
    both(kernel_file(matmul(e)), mixed()[:40], plan, columns)


@pytest.mark.parametrize("plan", [SPMV_PLANS["segments, lanes"], SPMV_PLANS["bins"]])
def test_columns_of_a_transposed_matrix_are_cut(plan: str, kernel_file: Write) -> None:
    a = sp.csr_array(mixed().T)
    both(kernel_file(transposed_matvec()), a, f"set-encoding{{format=csc}},accumulate-registers,{plan}", transpose=True)


def test_columns_of_a_transposed_matrix_are_jammed(kernel_file: Write) -> None:
    plan = f"set-encoding{{format=csc}},accumulate-registers,{SPMM_PLANS['segments, columns']}"
    both(kernel_file(transposed_matmul()), sp.csr_array(mixed().T), plan, 16, transpose=True)


@pytest.mark.parametrize("widths", [(16, 16), (64, 64), (32, 16), (64, 32)])
@pytest.mark.parametrize("plan", [SPMV_PLANS["segments, lanes"], SPMV_PLANS["bins"]])
def test_widths_of_stored_indices(plan: str, widths: tuple[int, int], kernel_file: Write) -> None:
    encoding = "set-encoding{{positions={} coordinates={}}}".format(*widths)
    both(kernel_file(matvec("f64")), mixed(), f"{encoding},accumulate-registers,{plan}")


@pytest.mark.parametrize("tail", ["loop", "clamp"])
@pytest.mark.parametrize("rows", ["rows-to-threads", "rows-to-subgroups{lanes=4}", "segment-rows{length=16},rows-to-threads"])
def test_entries_past_the_end_of_a_row_are_not_read(rows: str, tail: str, kernel_file: Write) -> None:
    """Columns that only odd rows have hold NaN and infinities: even rows know nothing of them."""
    lengths = [1 + i % 23 for i in range(96)]
    columns = [np.arange(n) * 2 + i % 2 for i, n in enumerate(lengths)]
    a = sp.csr_array((np.ones(sum(lengths)), np.concatenate(columns), np.cumsum([0, *lengths])), (96, 46))
    x = np.ones(46, np.float32)
    x[1::2] = np.resize([np.nan, np.inf, -np.inf], 23)
    plan = f"set-encoding,accumulate-registers,{rows},unroll{{factor=8 tail={tail}}},map-blocks"
    package = compile_file(kernel_file(matvec(fill=0.0)), {"A": a}, plan=plan).package
    result = run(package, {"A": a, "x": x}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check
    assert np.array_equal(result.output[::2], lengths[::2])
    assert not np.isfinite(result.output[1::2]).any()


@pytest.mark.parametrize("first", ["inf", "nan", "0 times inf"])
def test_an_entry_that_is_read_again_counts_once(first: str, kernel_file: Write) -> None:
    """The clamped iterations of a row of one entry read it again."""
    a = sp.csr_array(([0.0 if first == "0 times inf" else 1.0, 1.0], [0, 1], [0, 1, 2]), (2, 2))
    x = np.array([np.nan if first == "nan" else np.inf, 3.0], np.float32)
    plan = f"set-encoding,accumulate-registers,{CLAMPED},rows-to-threads,map-blocks"
    package = compile_file(kernel_file(matvec(fill=0.0)), {"A": a}, plan=plan).package
    output = run(package, {"A": a, "x": x}).output
    assert np.isinf(output[0]) if first == "inf" else np.isnan(output[0])
    assert output[1] == 3


@pytest.mark.parametrize(
    "plan", [f"segment-rows{{length=16}},{CLAMPED},rows-to-threads,map-blocks", "jam", "segments of vectors"]
)
def test_rows_with_a_value_of_their_own(plan: str, kernel_file: Write) -> None:
    """What a row loads before its entries is loaded for each of its segments, and once for all columns."""
    text = ROW_SCALED
    steps = f"segment-rows{{length=16}},{CLAMPED},rows-to-threads"
    if plan != "segments":
        text = ROW_AND_COLUMN_SCALED
        cut = "segment-rows{length=16},vectorize," if plan == "segments of vectors" else ""
        steps = f"{cut}jam-columns{{factor=4}},{CLAMPED},rows-to-subgroups{{lanes=2}}"
    a = mixed()
    package = compile_file(kernel_file(text), {"A": a}, plan=f"set-encoding,accumulate-registers,{steps},map-blocks").package
    result = run(package, {"A": a}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


# --- What does not go together -------------------------------------------------------------------------

REFUSED = {
    "segment-rows,segment-rows": "does not go with rows cut into segments",
    "segment-rows,bin-rows": "does not go with rows cut into segments",
    "bin-rows,segment-rows": "does not go with long rows in a kernel of their own",
    "bin-rows,bin-rows": "does not go with long rows in a kernel of their own",
    "unroll,segment-rows": "does not go with the innermost reduction unrolled",
    "unroll{tail=clamp},bin-rows": "does not go with the innermost reduction unrolled",
    "unroll,unroll{tail=clamp}": "does not go with the innermost reduction unrolled",
    "rows-to-threads,segment-rows": "needs a parallel loop outside all others",
    "rows-to-subgroups,bin-rows": "needs a parallel loop outside all others",
    "rows-to-threads,jam-columns": "does not go with rows mapped to threads or subgroups",
    "jam-columns,rows-to-threads": "needs a sequential loop over dense columns",
}


@pytest.mark.parametrize("plan", REFUSED)
def test_what_does_not_go_together_is_refused(plan: str, kernel_file: Write) -> None:
    mapped = plan if "rows-to" in plan else f"{plan},rows-to-threads"
    with pytest.raises((NotApplicable, PlanError), match=REFUSED[plan]):
        compile_file(kernel_file(matvec()), plan=f"set-encoding,accumulate-registers,{mapped},map-blocks")


@pytest.mark.parametrize(
    ("plan", "columns", "message"),
    [
        ("bin-rows", 16, "long rows with dense columns or blocks inside are not binned; segment-rows cuts them"),
        ("jam-columns{factor=7}", 16, "16 steps of the column loop make 6 tiles of 3, not 7"),
        ("vectorize,jam-columns{factor=8}", 16, "4 steps of the column loop make 4 tiles of 1, not 8"),
        ("jam-columns", None, "the number of columns is not known"),
        ("jam-columns,jam-columns", 16, "does not go with several tiles of columns in one walk"),
        ("unroll,rows-to-subgroups{share=entries}", 16, "share first, then unroll"),
    ],
)
def test_what_columns_do_not_allow_is_refused(plan: str, columns: int | None, message: str, kernel_file: Write) -> None:
    sizes = {"K": columns} if columns else {}
    mapped = plan if "rows-to" in plan else f"{plan},rows-to-threads"
    with pytest.raises((NotApplicable, PlanError), match=message):
        compile_file(kernel_file(matmul()), sizes=sizes, plan=f"set-encoding,accumulate-registers,{mapped},map-blocks")


@pytest.mark.parametrize("cut", ["segment-rows", "bin-rows"])
def test_rows_that_are_stored_themselves_are_not_cut(cut: str, kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match="needs dense rows over compressed entries"):
        compile_file(
            kernel_file(matvec()), plan=f"set-encoding{{format=dcsr}},accumulate-registers,{cut},rows-to-threads,map-blocks"
        )


# --- Packages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", ["segment-rows{length=16},rows-to-threads", "bin-rows{limit=32},rows-to-threads"])
def test_a_package_cuts_the_rows_of_the_matrix_that_it_is_given(cut: str, kernel_file: Write, tmp_path: Path) -> None:
    compiled = compile_file(kernel_file(matvec()), {"A": mixed()}, plan=f"set-encoding,accumulate-registers,{cut},map-blocks")
    compiled.package.save(tmp_path / "package")
    package = KernelPackage.load(tmp_path / "package")
    for a in (mixed(), of_lengths([600]), of_lengths([0, 0]), of_lengths([1, 700, 33], 800)):
        result = run(package, {"A": a}, verify=True)
        assert result.check is not None
        assert result.check.passed


def test_launches_stand_in_order_and_are_left_out_when_empty(kernel_file: Write) -> None:
    from sparseditto.compiler.runtimes.launches import resolve

    plan = "set-encoding,accumulate-registers,bin-rows{limit=32 length=1024 threads=128},rows-to-threads,map-blocks"
    package = compile_file(kernel_file(matvec()), plan=plan).package
    a = of_lengths([33, 32, 0, 2500, 1024, 1025], 3000)

    def launches(matrix: sp.csr_array) -> list[tuple[str, int, int]]:
        sizes = prepare(package, bind_package(package, {"A": matrix})).sizes
        return [(launch.kernel, launch.grid[0], launch.block[0]) for launch in resolve(package, sizes)]

    assert launches(a) == [("spmv", 1, 128), ("spmv_long", 1 + 3 + 1 + 2, 128)]
    assert launches(of_lengths([32, 1, 0])) == [("spmv", 1, 128)]
    assert launches(sp.csr_array((0, 5))) == []


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_whole_rows_in_bins_give_the_same_bits_on_any_number_of_processors(dtype: str, kernel_file: Write) -> None:
    plan = f"bin-rows{{limit=32 length={1 << 30} threads=128}},rows-to-subgroups{{lanes=4}},{CLAMPED},map-blocks"
    a = mixed()
    package = compile_file(kernel_file(matvec(dtype)), {"A": a}, plan=f"set-encoding,accumulate-registers,{plan}").package
    inputs = prepare(package, bind_package(package, {"A": a}))
    results = [
        run_simt(package, inputs, module=module).tobytes()
        for module in (SimtModule(package.mlir, threads=n) for n in (1, 2, 3, 8, 16))
        for _ in range(3)
    ]
    assert len(set(results)) == 1


# --- PTX ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_ptx_version_has_what_streamed_loads_use(chip: str, kernel_file: Write) -> None:
    """`L1::no_allocate` came with PTX 7.4: older PTX must do without."""
    plan = "set-encoding,accumulate-registers,stream-entries,rows-to-threads,map-blocks"
    ptx = compile_file(kernel_file(matvec()), plan=plan, chip=chip).package.ptx
    version = re.search(r"^\.version (\d+)\.(\d+)", ptx, re.M)
    assert version is not None
    assert "L1::no_allocate" not in ptx or tuple(map(int, version.groups())) >= (7, 4)


@pytest.mark.parametrize("chip", ["sm_75", "sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("cut", ["bin-rows", "segment-rows"])
def test_the_assembler_takes_every_schedule(cut: str, chip: str, kernel_file: Write) -> None:
    plan = (
        f"set-encoding,accumulate-registers,stream-entries,{cut},{CLAMPED},rows-to-threads,map-blocks,bound-launch{{blocks=4}}"
    )
    package = compile_file(kernel_file(matvec("f64")), plan=plan, chip=chip).package
    found, reason = ptxas_resources(package.ptx, chip)
    if found is None:
        pytest.skip(reason)
    assert {r.kernel for r in found} == {launch.kernel for launch in package.launches}
    assert all(r.spill_bytes == 0 for r in found)


# --- Recipes ------------------------------------------------------------------------------------------

LENGTHS = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 70), st.integers(0, 3000)), max_size=30)


def positions_of(lengths: list[int]) -> Array:
    return np.cumsum([0, *lengths])


@settings(deadline=None, max_examples=200)
@given(lengths=LENGTHS, length=st.integers(1, 100))
def test_segments_partition_the_entries(lengths: list[int], length: int) -> None:
    made = row_segments(positions_of(lengths), length)
    rows, positions, cut = made["rows"], made["positions"], made["cut"]
    assert {array.dtype for array in made.values()} == {np.dtype(np.int32)}
    assert positions.size == rows.size + 1
    assert positions[0] == 0
    assert positions[-1] == sum(lengths)
    owner, sizes = np.where(rows < 0, ~rows, rows), np.diff(positions)
    assert (np.diff(owner) >= 0).all()
    assert (sizes >= 0).all()
    for row, n in enumerate(lengths):
        mine = sizes[owner == row]
        assert mine.sum() == n
        assert len(mine) == max(1, -(-n // length)), "as few segments as can be, and one where there is no entry"
        assert mine.max() <= length
        assert mine.max() - mine.min() <= 1
        assert ((rows[owner == row] < 0) == (len(mine) > 1)).all(), "the row is complemented where it was cut"
        assert (positions[:-1][owner == row][0]) == sum(lengths[:row])
    assert cut.tolist() == [row for row, n in enumerate(lengths) if n > length]


@settings(deadline=None, max_examples=200)
@given(lengths=LENGTHS, limit=st.integers(0, 100), length=st.integers(1, 400))
def test_long_rows_are_cut_and_short_ones_left_out(lengths: list[int], limit: int, length: int) -> None:
    positions = positions_of(lengths)
    made = long_segments(positions, limit, length)
    rows, first, last = made["rows"], made["first"], made["last"]
    assert {array.dtype for array in made.values()} == {np.dtype(np.int32)}
    assert sorted(set(rows.tolist())) == [row for row, n in enumerate(lengths) if n > limit]
    assert (np.diff(rows) >= 0).all()
    for row in set(rows.tolist()):
        starts, ends = first[rows == row], last[rows == row]
        assert starts[0] == positions[row]
        assert ends[-1] == positions[row + 1]
        assert (starts[1:] == ends[:-1]).all()
        sizes = ends - starts
        assert sizes.max() <= length
        assert sizes.max() - sizes.min() <= 1
        assert len(sizes) == -(-lengths[row] // length)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [7]])
def test_the_smallest_matrices(lengths: list[int]) -> None:
    made = row_segments(positions_of(lengths), 16)
    assert made["rows"].tolist() == list(range(len(lengths)))
    assert made["positions"].tolist() == [*positions_of(lengths)]
    assert made["cut"].size == 0
    assert all(array.size == 0 for array in long_segments(positions_of(lengths), 32, 1024).values())


@pytest.mark.parametrize("make", [lambda p: row_segments(p, 1 << 30), lambda p: long_segments(p, 32, 1 << 30)])
def test_entries_that_32_bits_do_not_number_are_refused(make: Callable[[Array], dict[str, Array]]) -> None:
    made = make(np.array([0, 5, INT32]))
    assert max(int(array.max()) for array in made.values() if array.size) == INT32
    with pytest.raises(InputError, match=r"more than 2\^31 rows or entries"):
        make(np.array([0, 5, INT32 + 1]))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
def test_positions_of_any_width(dtype: Any) -> None:
    positions = np.array([0, 3, 3, 200, 255])
    recipe = Recipe("row-segments", (("level", 1), ("length", 64)))
    made = run_recipe(recipe, {"positions1": positions.astype(dtype)})
    wanted = row_segments(positions, 64)
    assert all(np.array_equal(made[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("text", ["row-segments{level=1 length=64}", "long-segments{level=2 limit=32 length=1024}"])
def test_recipes_read_back_what_they_print(text: str) -> None:
    assert str(Recipe.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "row-segments",
        "row-segments{}",
        "row-segments{level}",
        "row-segments{level=-1 length=64}",
        "row-segments{level=1, length=64}",
        "row-segments{level=1 length=64} ",
        "column-segments{level=1 length=64}",
        "row-segments{length=64}",
        "row-segments{level=1 lenght=64}",
        "row-segments{level=1 length=64 limit=3}",
        "row-segments{level=1 length=0}",
    ],
)
def test_what_is_no_recipe_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        Recipe.parse(text)


def test_a_format_without_the_level_is_refused() -> None:
    with pytest.raises(InputError, match="reads positions1, which this format does not have"):
        run_recipe(Recipe.parse("row-segments{level=1 length=64}"), {"coordinates1": np.zeros(1)})


def test_a_plan_may_be_longer_than_a_file_name(kernel_file: Write) -> None:
    plan = "set-encoding{format=csr positions=32 coordinates=32 block-rows=4 block-columns=4},accumulate-registers,"
    plan += "stream-entries,bin-rows{limit=256 length=1073741824 threads=1024},rows-to-subgroups{lanes=32 share=entries},"
    plan += "unroll{factor=16 tail=clamp},map-blocks{threads=256},bound-launch{blocks=8 registers=0}"
    assert len(plan) > 255
    assert Plan.parse(plan).text() == Plan.parse(compile_file(kernel_file(matvec()), plan=plan).plan.text()).text()


@pytest.mark.parametrize("name", ["spmv", "spmm"])
def test_thinning_keeps_plans_that_read_back(name: str) -> None:
    assert len(thinned(name)) < 100
    for case in thinned(name):
        assert Plan.parse(plan_of(case)) == Plan.parse(Plan.parse(plan_of(case)).text())
