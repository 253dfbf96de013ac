"""Lanes that load entries together, persistent blocks, several rows a thread: right with each other and on hard matrices.

Kernels run under emulation with all checks, and each result is held to SciPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, both, matmul, matvec, transposed_matmul
from test_schedules import HARD, mixed

from sparseditto.agent.planner import Task, default_plan
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.api import bind_package, compile_file, run
from sparseditto.compiler.execute import prepare
from sparseditto.compiler.runtimes.launches import resolve
from sparseditto.dialects.errors import NotApplicable, PlanError
from sparseditto.dialects.target import Target
from sparseditto.passes.mapping.persist_blocks import PersistBlocks
from sparseditto.passes.plan import Plan

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]

FIRST = "set-encoding,accumulate-registers"

# --- share-loads --------------------------------------------------------------------------------------

SHARED = {  # before the lanes, lanes, after them, columns
    "a warp": ("", "lanes=32", "", 32),
    "a warp, ahead": ("", "lanes=32", "", 64),
    "two columns a lane": ("", "lanes=32", "", 64),
    "a warp, not all have columns": ("", "lanes=32", "", 9),
    "a warp, some have two columns": ("", "lanes=32", "unroll{factor=4},", 33),
    "eight lanes": ("", "lanes=8", "", 8),
    "eight lanes, nine columns": ("", "lanes=8", "unroll{factor=2 tail=clamp},", 9),
    "two lanes": ("", "lanes=2", "unroll{factor=2},", 33),
    "sixteen lanes, nine columns": ("", "lanes=16", "unroll,", 9),
    "vectors": ("vectorize{width=4},", "lanes=8", "unroll{factor=4},", 32),
    "vectors, few lanes have columns": ("vectorize{width=4},", "lanes=16", "", 36),
    "vectors, one warp": ("vectorize{width=4},", "lanes=32", "unroll{factor=8},", 128),
    "tiles": ("vectorize{width=2},jam-columns{factor=2},", "lanes=8", "unroll{factor=2},", 32),
    "groups": ("vectorize{width=4},", "lanes=32 groups=4", "unroll{factor=2},", 32),
    "groups of two": ("", "lanes=8 groups=4", "", 8),
    "groups in half a warp": ("", "lanes=16 groups=2", "unroll{factor=4 tail=clamp},", 32),
}


@pytest.mark.parametrize("e", ["f32", "f64"])
@pytest.mark.parametrize("cut", ["", "segment-rows{length=16},"])
@pytest.mark.parametrize("ahead", ["false", "true"])
@pytest.mark.parametrize("name", SHARED)
def test_lanes_load_entries_together(name: str, ahead: str, cut: str, e: str, kernel_file: Write) -> None:
    before, lanes, after, columns = SHARED[name]
    share = f"rows-to-subgroups{{{lanes} share=columns}},share-loads{{ahead={ahead}}}"
    start = None if ahead == "true" else 1.5 if cut else 0.0
    plan = f"{FIRST},{cut}{before}{share},{after}map-blocks{{threads=64}}"
    both(kernel_file(matmul(e, fill=start)), mixed()[:48], plan, columns)


FEW, WHOLE = "rows-to-subgroups{lanes=4 share=columns}", "rows-to-subgroups{lanes=32 share=columns}"
WALKS = {
    "few lanes": f"{FEW},share-loads,unroll{{factor=4}},map-blocks",
    "few lanes, ahead": f"vectorize,{FEW},share-loads{{ahead=true}},unroll{{factor=2 tail=clamp}},map-blocks",
    "a warp": f"{WHOLE},share-loads{{ahead=true}},unroll{{factor=4}},map-blocks",
    "segments": f"segment-rows{{length=16}},vectorize,{FEW},share-loads,map-blocks",
}


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("name", HARD)
def test_lanes_load_the_entries_of_hard_matrices(name: str, walk: str, kernel_file: Write) -> None:
    start = None if len(name) % 2 else -2.5
    both(kernel_file(matmul(fill=start)), HARD[name](), f"{FIRST},{WALKS[walk]}", 16)


@pytest.mark.parametrize("walk", ["few lanes", "a warp"])
@pytest.mark.parametrize("widths", [(16, 16), (64, 64), (64, 16), (32, 32)])
def test_stored_indices_of_any_width_are_broadcast(widths: tuple[int, int], walk: str, kernel_file: Write) -> None:
    encoding = "set-encoding{{positions={} coordinates={}}}".format(*widths)
    both(kernel_file(matmul("f64")), mixed(), f"{encoding},accumulate-registers,{WALKS[walk]}", 16)


@pytest.mark.parametrize("walk", ["few lanes", "a warp"])
@pytest.mark.parametrize("layout", ["dcsr", "csc"])
def test_lanes_load_entries_of_other_formats(layout: str, walk: str, kernel_file: Write) -> None:
    transpose = layout == "csc"
    a = sp.csr_array(mixed().T) if transpose else mixed()
    text = transposed_matmul() if transpose else matmul(fill=None)
    plan = f"set-encoding{{format={layout}}},accumulate-registers,{WALKS[walk]}"
    both(kernel_file(text), a, plan, 16, transpose=transpose)


@pytest.mark.parametrize("where", ["first", "before", "after", "last"])
def test_streamed_entries_are_shared_in_any_order(where: str, kernel_file: Write) -> None:
    steps = ["vectorize", FEW, "share-loads", "unroll", "map-blocks"]
    steps.insert({"first": 0, "before": 2, "after": 3, "last": 4}[where], "stream-entries")
    plan = f"{FIRST},{','.join(steps)}"
    both(kernel_file(matmul()), mixed(), plan, 16)
    package = compile_file(kernel_file(matmul()), sizes={"K": 16}, plan=plan).package
    assert package.ptx.count("L1::no_allocate") >= 2


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("first", [np.nan, np.inf])
def test_a_lane_past_the_end_of_its_row_takes_nothing(first: float, walk: str, kernel_file: Write) -> None:
    """Row 0 of B, which such lanes read, holds no number; rows that do not have column 0 know nothing of it."""
    lengths = [0, 1, 40, 3, 0, 7, 33, 2]
    indices = np.concatenate([np.arange(1, n + 1) for n in lengths])
    a = sp.csr_array((np.ones(sum(lengths)), indices, np.cumsum([0, *lengths])), (8, 41))
    b = np.ones((41, 16), np.float32)
    b[0] = first
    package = compile_file(kernel_file(matmul()), {"A": a}, {"K": 16}, plan=f"{FIRST},{WALKS[walk]}").package
    output = run(package, {"A": a, "B": b}).output
    assert np.array_equal(output, np.repeat(lengths, 16).reshape(8, 16))


def test_blocks_of_entries_are_not_shared(kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match="over stored entries that are no blocks"):
        compile_file(
            kernel_file(matmul()), sizes={"K": 16}, plan=f"set-encoding{{format=bsr}},accumulate-registers,{WALKS['few lanes']}"
        )


def test_any_number_of_columns(kernel_file: Write) -> None:
    """K stays free: no lane knows whether it has a column until it looks."""
    package = compile_file(kernel_file(matmul()), plan=f"{FIRST},{WALKS['a warp']}").package
    for k in (0, 1, 9, 33):
        result = run(package, {"A": MATRICES["staircase"]()}, {"K": k}, verify=True)
        assert result.check is not None
        assert result.check.passed, k


# --- persist-blocks -----------------------------------------------------------------------------------

PERSISTENT = {  # what comes before the blocks, threads a block, K (None: SpMV)
    "threads": ("rows-to-threads", 64, None),
    "lanes": ("rows-to-subgroups{lanes=8},unroll{factor=2}", 96, None),
    "segments": ("segment-rows{length=16},rows-to-subgroups{lanes=4},unroll{factor=4 tail=clamp}", 32, None),
    "bins": ("bin-rows{limit=32 length=1024 threads=128},rows-to-subgroups{lanes=4}", 64, None),
    "columns": ("vectorize,rows-to-subgroups{lanes=4},unroll", 64, 16),
    "nine columns": ("rows-to-subgroups{lanes=8}", 32, 9),
    "33 columns": ("rows-to-subgroups{lanes=32},unroll", 64, 33),
    "loads": ("rows-to-subgroups{lanes=8},share-loads{ahead=true},unroll{factor=2}", 64, 9),
    "several rows": ("rows-to-subgroups{lanes=8},share-loads,coarsen-rows{rows=2}", 32, 33),
    "several rows a thread": ("rows-to-threads,coarsen-rows{rows=4},unroll", 32, None),
}


@pytest.mark.parametrize("blocks", [1, 3, 1000])
@pytest.mark.parametrize("name", PERSISTENT)
def test_a_fixed_number_of_blocks_does_all_rows(name: str, blocks: int, kernel_file: Write) -> None:
    steps, threads, columns = PERSISTENT[name]
    plan = f"{FIRST},{steps},map-blocks{{threads={threads}}},persist-blocks{{blocks={blocks}}}"
    text = matvec(fill=None if blocks == 3 else 1.5) if columns is None else matmul(fill=None if blocks == 3 else 1.5)
    both(kernel_file(text), mixed(), plan, columns)


@pytest.mark.parametrize("steps", ["rows-to-threads", "rows-to-subgroups{lanes=16},coarsen-rows"])
@pytest.mark.parametrize("name", HARD)
def test_a_fixed_number_of_blocks_on_hard_matrices(name: str, steps: str, kernel_file: Write) -> None:
    start = None if len(name) % 2 else -2.5
    plan = f"{FIRST},{steps},map-blocks{{threads=32}},persist-blocks{{blocks=2}}"
    both(kernel_file(matvec(fill=start)), HARD[name](), plan)


@pytest.mark.parametrize("order", ["persist-blocks,bound-launch{registers=64}", "bound-launch{registers=64},persist-blocks"])
def test_no_more_blocks_are_launched_than_there_is_work_for(order: str, kernel_file: Write) -> None:
    plan = f"{FIRST},rows-to-threads,map-blocks{{threads=128}},{order}"
    package = compile_file(kernel_file(matvec()), plan=plan).package
    assert ".maxnreg 64" in package.ptx

    def blocks(rows: int) -> list[int]:
        a = sp.csr_array((np.ones(rows), np.zeros(rows, int), np.arange(rows + 1)), (rows, 1))
        return [launch.grid[0] for launch in resolve(package, prepare(package, bind_package(package, {"A": a})).sizes)]

    assert blocks(300) == [3]
    assert blocks(1056 * 128 + 1) == [1056]
    assert blocks(0) == []


# --- coarsen-rows -------------------------------------------------------------------------------------

COARSE = {  # before, how rows are mapped, after; K
    "threads": ("", "rows-to-threads", "", None),
    "threads, unrolled before": ("unroll{factor=2},", "rows-to-threads", "", None),
    "threads, unrolled after": ("", "rows-to-threads", "unroll{factor=4 tail=clamp},", None),
    "segments": ("segment-rows{length=16},", "rows-to-threads", "", None),
    "bins": ("bin-rows{limit=32 length=1024},", "rows-to-subgroups{lanes=2}", "", None),
    "lanes": ("", "rows-to-subgroups{lanes=8}", "unroll{factor=2},stream-entries,", None),
    "a warp": ("", "rows-to-subgroups{lanes=32}", "", None),
    "one lane": ("", "rows-to-subgroups{lanes=1}", "", None),
    "columns": ("vectorize,", "rows-to-subgroups{lanes=4}", "unroll{factor=2},", 16),
    "tiles": ("jam-columns{factor=3},", "rows-to-subgroups{lanes=8}", "", 33),
    "nine columns": ("", "rows-to-subgroups{lanes=4}", "", 9),
    "groups": ("segment-rows{length=32},vectorize{width=2},", "rows-to-subgroups{lanes=16 groups=4}", "", 16),
    "loads": ("vectorize,", "rows-to-subgroups{lanes=4},share-loads", "unroll,", 16),
    "loads of a warp": ("", "rows-to-subgroups{lanes=32},share-loads{ahead=true}", "", 33),
}


@pytest.mark.parametrize("start", [None, 1.5])
@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("name", COARSE)
def test_several_rows_a_thread(name: str, rows: int, start: float | None, kernel_file: Write) -> None:
    before, mapped, after, columns = COARSE[name]
    plan = f"{FIRST},{before}{mapped},coarsen-rows{{rows={rows}}},{after}map-blocks{{threads=64}}"
    text = matvec("f64", fill=start) if columns is None else matmul("f64", fill=start)
    both(kernel_file(text), mixed(), plan, columns)


@pytest.mark.parametrize("mapped", ["rows-to-threads", "rows-to-subgroups{lanes=8}"])
@pytest.mark.parametrize("name", HARD)
def test_several_rows_of_hard_matrices(name: str, mapped: str, kernel_file: Write) -> None:
    start = None if len(name) % 2 else -2.5
    both(kernel_file(matvec(fill=start)), HARD[name](), f"{FIRST},{mapped},coarsen-rows{{rows=4}},map-blocks{{threads=32}}")


# --- Orders, and the search ---------------------------------------------------------------------------

PIECES = ("stream-entries", "share-loads", "unroll{factor=2}", "coarsen-rows{rows=2}")
MAPPINGS = ("persist-blocks{blocks=2}", "bound-launch{registers=64}")


def legal_orders() -> list[str]:
    """Every order of these passes that a plan may have."""
    found = []
    for pieces in permutations(PIECES):
        for mappings in permutations(MAPPINGS):
            text = ",".join([FIRST, "vectorize,rows-to-subgroups{lanes=4}", *pieces, "map-blocks{threads=32}", *mappings])
            with suppress(PlanError):
                found.append(Plan.parse(text).text())
    return found


@pytest.mark.parametrize("plan", legal_orders())
def test_every_legal_order_is_right(plan: str, kernel_file: Write) -> None:
    both(kernel_file(matmul(fill=None)), mixed(), plan, 16)


def test_loads_are_shared_before_rows_are_coarsened_or_entries_unrolled() -> None:
    orders = legal_orders()
    assert len(orders) == 2 * 8  # of the four, share-loads stands before two
    assert all(plan.index("share-loads") < min(plan.index("coarsen"), plan.index("unroll")) for plan in orders)


@pytest.mark.parametrize(
    ("columns", "names"), [(0, {"persist-blocks", "coarsen-rows"}), (32, {"share-loads", "persist-blocks"})]
)
def test_the_search_reaches_them(columns: int, names: set[str]) -> None:
    task = Task(rows_first=True, choose_format=True, columns=columns, element_bytes=4)
    space = Space(Context(task))
    labels = {move.subject.lstrip("+") for move in space.moves(default_plan(task, None, Target()))}
    assert names <= labels
    assert ("share-loads" in labels) == (columns > 1)
    known, unknown = (Space(Context(task, target=Target.named(chip))).variants(PersistBlocks) for chip in ("sm_80", "sm_89"))
    assert known
    assert not unknown
