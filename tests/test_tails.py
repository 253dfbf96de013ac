"""Numbers of dense columns that neither vectors nor lanes divide: right with every schedule, and without a cliff in the plans.

Kernels run under emulation with all checks: an access beyond a row's end, or of an output that another lane stores, is found.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import Array, agrees, matmul

from sparseditto.agent.planner import Task, default_plan
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.api import compile_file, run
from sparseditto.dialects.target import Target
from sparseditto.passes.plan import Plan

ROOT = Path(__file__).resolve().parents[1]

from benchmarks import tails  # noqa: E402

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]
Case = dict[str, Any]

WIDTHS = (*range(1, 21), 33, 34, 63, 65, 143)
FACTORS: dict[str, tuple[Any, ...]] = {
    "dtype": ("f32", "f64"),
    "start": (None, 0.0, 1.5),
    "balance": ("", "segment-rows{length=16}"),
    "vector": (1, 2, 4),
    "jam": tuple(range(1, 10)),
    "lanes": (1, 2, 4, 8, 16, 32),
    "groups": (1, 2, 4, 8, 32),
    "unroll": ("", "unroll{factor=2}", "unroll{factor=4}", "unroll{factor=4 tail=clamp}"),
}


@cache
def uneven() -> sp.csr_array:
    """Rows of 0 to 9, 16, 17 and 40 entries in 45 columns, empty ones first, last and between."""
    rng = np.random.default_rng(5)
    lengths = [0, *range(10), 0, 40, 16, 17, 0]
    rows = [np.sort(rng.choice(45, size=n, replace=False)) for n in lengths]
    return sp.csr_array((rng.uniform(-1, 1, sum(lengths)), np.concatenate(rows), np.cumsum([0, *lengths])), (len(lengths), 45))


def legal(columns: int) -> Iterator[Case]:
    """Every schedule of so many columns that has no empty tile, and whose groups have a lane each."""
    for values in itertools.product(*FACTORS.values()):
        case: Case = dict(zip(FACTORS, values, strict=True))
        steps, rest = divmod(columns, case["vector"])
        tile = -(-steps // case["jam"])
        if not rest and (case["jam"] - 1) * tile < steps and case["groups"] <= case["lanes"]:
            yield {"columns": columns, **case}


def plan_of(case: Case) -> str:
    steps = [
        "set-encoding",
        "accumulate-registers",
        case["balance"],
        f"vectorize{{width={case['vector']}}}" if case["vector"] > 1 else "",
        f"jam-columns{{factor={case['jam']}}}" if case["jam"] > 1 else "",
        f"rows-to-subgroups{{lanes={case['lanes']} groups={case['groups']} share=columns}}",
        case["unroll"],
        "map-blocks{threads=64}",
    ]
    return ",".join(filter(None, steps))


def case_id(case: Case) -> str:
    return " ".join(str(value) for value in case.values())


def computed(text: Path, a: sp.csr_array, b: Array, plan: str | None, start: Array | None = None) -> Array:
    """The product under emulation."""
    package = compile_file(text, {"A": a}, {"K": b.shape[1]}, plan=plan).package
    return run(package, {"A": a, "B": b} | ({} if start is None else {"C": start.copy()})).output


def check(case: Case, write: Write) -> None:
    a, rng = uneven(), np.random.default_rng(6)
    dtype = {"f32": "float32", "f64": "float64"}[case["dtype"]]
    b = rng.uniform(-1, 1, (a.shape[1], case["columns"])).astype(dtype)
    start = rng.uniform(-1, 1, (a.shape[0], case["columns"])).astype(dtype) if case["start"] is None else None
    result = computed(write(matmul(case["dtype"], fill=case["start"])), a.astype(dtype), b, plan_of(case), start)
    assert agrees(result, a, b, case["start"] if start is None else start), plan_of(case)


# --- Right ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    # a loop over one column folds away, so that there is none to share
    [case for n in WIDTHS[1:] for case in random.Random(n).sample(sorted(legal(n), key=case_id), 3)],
    ids=case_id,
)
def test_schedules_are_right(case: Case, kernel_file: Write) -> None:
    check(case, kernel_file)


@pytest.mark.slow
@pytest.mark.parametrize("columns", WIDTHS[1:])
def test_sweep(columns: int, kernel_file: Write) -> None:
    for case in random.Random(f"sweep {columns}").sample(sorted(legal(columns), key=case_id), 60):
        check(case, kernel_file)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("columns", WIDTHS)
def test_the_default_plan_is_right(columns: int, dtype: str, kernel_file: Write) -> None:
    a, numpy_type = uneven(), {"f32": "float32", "f64": "float64"}[dtype]
    b = np.random.default_rng(7).uniform(-1, 1, (a.shape[1], columns)).astype(numpy_type)
    assert agrees(computed(kernel_file(matmul(dtype)), a.astype(numpy_type), b, None), a, b)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("jam", "lanes", "groups"), [(1, 16, 1), (2, 8, 1), (2, 32, 4), (3, 4, 2), (5, 2, 1), (3, 16, 4)])
@pytest.mark.parametrize("balance", FACTORS["balance"])
def test_a_column_that_is_not_finite_stays_alone(
    balance: str, jam: int, lanes: int, groups: int, value: float, kernel_file: Write
) -> None:
    a = uneven().astype("float32")
    case = {"balance": balance, "vector": 1, "jam": jam, "lanes": lanes, "groups": groups, "unroll": "unroll{tail=clamp}"}
    text = kernel_file(matmul())
    package = compile_file(text, {"A": a}, {"K": 9}, plan=plan_of(case)).package
    for column in (0, 4, 7):
        b = np.random.default_rng(8).uniform(0.5, 1, (a.shape[1], 9)).astype("float32")
        b[:, column] = value
        result = run(package, {"A": a, "B": b}).output
        assert agrees(result, a, b)
        assert np.isfinite(np.delete(result, column, axis=1)).all()
        assert not np.isfinite(result[np.diff(a.indptr) > 0, column]).any()


def test_the_columns_of_a_lane_are_constant_offsets_of_one_address(kernel_file: Write) -> None:
    plan = "set-encoding,accumulate-registers,jam-columns{factor=2},rows-to-subgroups{lanes=8},map-blocks"
    ptx = compile_file(kernel_file(matmul()), sizes={"K": 9}, plan=plan).package.ptx
    assert re.search(r"\[(%rd\d+)\];\s+ld\.global\.nc\.b32\s+%r\d+, \[\1\+16\];", ptx)


# --- Plans ----------------------------------------------------------------------------------------------


def task(columns: int) -> Task:
    return Task(rows_first=True, choose_format=True, columns=columns, element_bytes=4)


def shape(plan: Plan) -> tuple[int, int, int]:
    """Width of a vector, tiles, and lanes of a group."""
    options = {step.name: step.options() for step in plan.steps}
    share = options["rows-to-subgroups"]
    width, jam = options.get("vectorize", {}).get("width", 1), options.get("jam-columns", {}).get("factor", 1)
    return width, jam, share["lanes"] // share["groups"]


def test_few_lanes_are_idle() -> None:
    for columns in range(2, 400):
        width, jam, lanes = shape(default_plan(task(columns), None, Target()))
        tile = -(-columns // width // jam)
        assert (jam - 1) * tile * width < columns, f"an empty tile of {columns}"
        assert -(-tile // lanes) * lanes * jam * width <= 1.6 * columns, columns


@pytest.mark.parametrize("columns", [8, 16, 32, 64, 128])
def test_one_column_more_costs_few_rows_a_warp(columns: int) -> None:
    (*_, lanes), (*_, more) = (shape(default_plan(task(n), None, Target())) for n in (columns, columns + 1))
    assert more <= 2 * lanes


def test_other_tiles_are_one_move_away() -> None:
    space = Space(Context(task(9)))
    moves = {move.label: move.plan for move in space.moves(default_plan(task(9), None, Target()))}
    assert shape(moves["rows-to-subgroups.lanes=8 jam-columns.factor=2"]) == (1, 2, 8)
    assert "rows-to-subgroups.lanes=8 unroll.factor=2" not in moves, "only what shares out the columns is traded"


# --- The benchmark --------------------------------------------------------------------------------------


def test_every_number_of_tiles_is_a_plan() -> None:
    plan = default_plan(task(33), None, Target())
    found = [shape(other) for other in tails.tilings(plan, 33)]
    assert shape(plan) not in found
    assert {(1, 1, 32), (1, 2, 32), (1, 3, 16), (1, 9, 4)} <= set(found)


def test_the_benchmark_compares_with_the_power_of_two_beside() -> None:
    assert [tails.round_width(k, (7, 8, 9, 12, 16, 143, 128)) for k in (7, 8, 9, 12, 143)] == [8, None, 8, 16, 128]
    rows = [{"case": "m", "K": k, "outcome": "right", "us": us} for k, us in ((8, 2.0), (9, 4.0), (7, 1.0))]
    assert tails.summary(rows).splitlines()[-1] == "| m | 0.50 | **2.00** |"


def test_the_benchmark_runs_under_emulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tails.jsonl"
    words = ["--suite", "smoke", "--cases", "tiny_road", "--device", "simt", "--out", str(out)]
    assert tails.main([*words, "--K", "8", "--tiles"]) == 0
    assert tails.main([*words, "--K", "8,9"]) == 0
    begin, eight, again, nine = (json.loads(line) for line in out.read_text().splitlines())
    assert begin["kind"] == again["kind"] == "machine"
    assert (eight["K"], nine["K"]) == (8, 9)
    assert all(other["outcome"] == "ok" for other in eight["tiles"])
    assert "| tiny_road | " in capsys.readouterr().out
