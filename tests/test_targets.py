"""Plans for every GPU of the table: they assemble for its chip, keep to its limits, and follow what it has."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import matmul, of_lengths

from benchmarks import targets
from benchmarks.cost_model import read_features
from benchmarks.prior import FEATURES
from benchmarks.targets import Case, Row, alike, cases, examine, planned
from sparseditto.agent.architecture.building import named
from sparseditto.agent.architecture.choosing import MEASURED
from sparseditto.agent.architecture.table import known
from sparseditto.agent.features import Features
from sparseditto.agent.machine import Machine
from sparseditto.agent.planner import Task, ranked
from sparseditto.compiler.api import compile_file
from sparseditto.compiler.runtimes.resources import find_ptxas
from sparseditto.dialects.errors import InputError
from sparseditto.passes.plan import Plan

needs_ptxas = pytest.mark.skipif(not find_ptxas(), reason="no ptxas: pip install nvidia-cuda-nvcc")

CHIPS = {"sm_80": "A100-80GB", "sm_89": "L40S", "sm_90": "H200 SXM", "sm_100": "B200", "sm_120": "RTX 5090"}
RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "targets.jsonl.xz"
RULES = "298b04139ee51967"
"""What the rules suggest on the H200, whose measurements they come from.  Another GPU's numbers must not change it."""


@cache
def by_name() -> dict[tuple[str, int, str], Case]:
    return {(case.name, case.columns, case.dtype): case for case in cases()}


@cache
def suite() -> dict[str, Features]:
    return read_features(FEATURES)


def first(gpu: str, f: Features, columns: int, size: int = 4) -> Plan:
    """What the rules suggest first."""
    architecture = named(gpu)
    return ranked(Task(True, True, columns, size, shape=(f.rows, f.columns)), f, architecture.target(), architecture)[0]


def suggested(gpu: str, f: Features, columns: int) -> set[str]:
    """Every pass of every plan that the rules suggest, with its options."""
    architecture = named(gpu)
    task = Task(True, True, columns, 4, shape=(f.rows, f.columns))
    return {str(step) for plan in ranked(task, f, architecture.target(), architecture) for step in plan.steps}


# --- Assembled for the chip, within the limits ------------------------------------------------------------


def held_to_limits(gpu: str, case: Case) -> Row:
    """The row, after every number of `ptxas` is compared with what a block may have there."""
    architecture = named(gpu)
    row = examine(case, architecture)
    assert row.kernels
    assert row.exceeds == ()
    assert row.assembled_for == row.chip or row.chip == "sm_70"  # which CUDA 13 no longer knows
    for kernel in row.kernels:
        r, needed = kernel.resources, architecture.needed
        assert 0 < kernel.threads <= needed("sm.max_threads_per_block")
        assert 0 < r.registers <= needed("registers.max_per_thread")
        assert r.registers * kernel.threads <= needed("registers.max_per_block")
        assert r.shared_bytes <= min(needed("shared.max_per_block"), needed("shared.max_static"))
        assert kernel.occupancy > 0
    return row


@needs_ptxas
@pytest.mark.parametrize("gpu", known())
def test_a_plan_for_each_gpu_assembles_for_it_and_fits_it(gpu: str) -> None:
    for key in (("web_1M", 0, "float64"), ("elasticity_12", 32, "float32"), ("rmat18_16", 128, "float32")):
        held_to_limits(gpu, by_name()[key])


@needs_ptxas
def test_the_chips_differ_in_the_kernels_that_they_get() -> None:
    assert {chip: named(gpu).target().chip for chip, gpu in CHIPS.items()} == {chip: chip for chip in CHIPS}
    rows = [held_to_limits(gpu, by_name()["dnn_4096_90", 32, "float32"]) for gpu in CHIPS.values()]
    assert {row.assembled_for for row in rows} == set(CHIPS)
    assert len({row.plan.digest() for row in rows}) > 1


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("gpu", known())
def test_more_plans_for_each_gpu_assemble_for_it_and_fits_it(gpu: str) -> None:
    for case in cases("^(cholesky_mc|dnn_4096_90|elasticity_12|fem27_64|kron4_8|lp_wide_2k|rmat20_16|web_1M)$"):
        held_to_limits(gpu, case)


@needs_ptxas
def test_what_exceeds_a_gpu_is_told() -> None:
    gpu, case = named("t4"), by_name()["rmat18_16", 128, "float32"]
    few = {"registers.max_per_block": replace(gpu.get("registers.max_per_block"), value=1024)}
    row = examine(case, gpu.with_values(few))
    assert row.exceeds
    assert all("registers a block are needed, 1024 are there" in text for text in row.exceeds)
    assert targets.wrong([row])[0].startswith("T4: rmat18_16, K=128: spmm: registers")


# --- Plans follow the GPU ---------------------------------------------------------------------------------


def test_the_numbers_of_the_rules_are_those_of_the_h200() -> None:
    assert Machine.of(named(MEASURED)) == Machine()
    assert {f.name for f in fields(Machine) if not f.metadata} == {"registers", "threads"}


def test_the_rules_suggest_on_the_h200_what_was_chosen_there() -> None:
    gpu = named(MEASURED)
    found = hashlib.sha256()
    for name, f in sorted(suite().items()):
        for columns in (0, 8, 32, 128, 256):
            for size in (4, 8):
                task = Task(True, True, columns, size, shape=(f.rows, f.columns))
                plans = ranked(task, f, gpu.target(), gpu)
                found.update("\n".join([name, *(plan.text() for plan in plans)]).encode())
    assert plans == ranked(task, f, gpu.target()), "what the chip means is the same GPU"
    assert found.hexdigest()[:16] == RULES, "a rule has changed; where that is meant, so is this digest"


def test_numbers_grow_with_what_a_gpu_has() -> None:
    t4, a100, h200, b200 = (Machine.of(named(name)) for name in ("t4", "a100-80gb", "h200", "b200"))
    for name in (f.name for f in fields(Machine) if f.metadata):
        sizes = [getattr(machine, name) for machine in (t4, a100, h200, b200)]
        assert sizes == sorted(sizes), name
        assert sizes[0] < sizes[2], name
    assert (t4.threads, t4.registers) == (1024, 1 << 16)


def test_blocks_leave_registers_and_fit() -> None:
    t4, l40s, h200 = (Machine.of(named(name)) for name in ("t4", "l40s", "h200"))
    assert [machine.blocks(256, 64) for machine in (t4, l40s, h200)] == [4, 4, 4]
    assert [machine.blocks(256, 48) for machine in (t4, l40s, h200)] == [4, 5, 5]  # 1280 threads are more than a T4 holds
    assert h200.blocks(512, 64) == 2


def test_fewer_rows_fill_a_smaller_gpu() -> None:
    """38,415 rows are too few for a thread each on an H200, which holds 270,336, but enough for an L4, which holds 89,088."""
    f = suite()["kim1"]
    assert f.rows == 38_415
    assert "rows-to-subgroups" in first("h200", f, 0).text()
    assert "rows-to-threads" in first("l4", f, 0).text()


def test_a_small_l2_is_told_what_to_keep() -> None:
    """8 columns of 262,144 rows are 8 MiB: more than an A10 should hold beside its entries, less than an L40S does."""
    f = suite()["unif256k_16"]
    kept = {gpu: "keep-gathered" in suggested(gpu, f, 8) for gpu in ("a10", "a100-80gb", "l40s", "h200")}
    assert kept == {"a10": True, "a100-80gb": False, "l40s": False, "h200": False}


def test_tiles_of_columns_are_as_wide_as_l1_allows() -> None:
    """Eight columns of 4,096 floats are 128 KiB: the L1 cache of an H200 has 256 KiB, that of an L40S 128 KiB."""
    f = suite()["dnn_4096_90"]
    tiles = {gpu: "tile-columns{width=8}" in suggested(gpu, f, 32) for gpu in ("h200", "b200", "l40s", "rtx 5090")}
    assert tiles == {"h200": True, "b200": True, "l40s": False, "rtx 5090": False}


def test_parts_of_the_entries_are_as_many_as_the_gpu_holds_threads() -> None:
    f = suite()["rmat18_16"]
    lengths = {gpu: {s for s in suggested(gpu, f, 32) if s.startswith("split-entries")} for gpu in ("l4", "h200")}
    assert all("{length=64 " in step for step in lengths["l4"])
    assert all("{length=32 " in step for step in lengths["h200"])
    assert lengths["l4"]
    assert lengths["h200"]


def test_the_longest_row_holds_up_a_fast_memory_sooner() -> None:
    """It takes as long everywhere, all others fifteen times as long on a T4: there the rows stay whole."""
    f = suite()["gene_go"]
    assert "segment-rows" in first("h200", f, 128).text()
    assert "segment-rows" not in first("t4", f, 128).text()


# --- Who says which GPU -----------------------------------------------------------------------------------


def test_a_gpu_may_be_named_where_a_chip_may(kernel_file: Callable[[str], Path]) -> None:
    path, matrix = kernel_file(matmul()), of_lengths([3] * 9000 + [700] * 40, 1000)
    by_gpu = {name: compile_file(path, {"A": matrix}, {"K": 32}, chip=name) for name in ("t4", "sm_75", "h200", "sm_90")}
    assert {name: compiled.package.chip for name, compiled in by_gpu.items()} == {
        "t4": "sm_75",
        "sm_75": "sm_75",
        "h200": "sm_90",
        "sm_90": "sm_90",
    }
    assert by_gpu["t4"].plan == by_gpu["sm_75"].plan != by_gpu["h200"].plan == by_gpu["sm_90"].plan
    here = compile_file(path, {"A": matrix}, {"K": 32}, chip="sm_75", architecture=named("l4"))
    assert here.package.chip == "sm_75", "the GPU at hand decides on the plan, not on the PTX"
    with pytest.raises(InputError, match="'h210' is no known GPU"):
        compile_file(path, chip="h210")


# --- The benchmark ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def committed() -> list[dict[str, Any]]:
    lines = lzma.decompress(RESULT.read_bytes()).decode().splitlines()
    machine, *rows = map(json.loads, lines)
    assert machine["kind"] == "machine"
    return rows


def test_the_committed_result_has_every_gpu_and_exceeds_nothing(committed: list[dict[str, Any]]) -> None:
    tasks = {(case.name, case.columns, case.dtype) for case in cases()}
    for gpu in known():
        mine = {(row["case"], row["K"], row["dtype"]): row for row in committed if row["gpu"] == gpu}
        assert mine.keys() == tasks
        assert all(row["exceeds"] == [] and row["kernels"] and row["us"] > 0 for row in mine.values())
    assert {row["chip"] for row in committed} >= CHIPS.keys()


def test_the_committed_plans_differ_where_gpus_do(committed: list[dict[str, Any]]) -> None:
    def plans(gpu: str) -> dict[Any, str]:
        return {(row["case"], row["K"], row["dtype"]): row["plan"] for row in committed if row["gpu"] == gpu}

    found = {gpu: plans(gpu) for gpu in known()}
    for gpu in known():
        if Machine.of(named(gpu)) != Machine() or gpu == "GH200":
            assert (found[gpu] != found[MEASURED]) == (gpu != MEASURED), gpu
    five = [found[gpu] for gpu in CHIPS.values()]
    assert all(a != b for k, a in enumerate(five) for b in five[k + 1 :]), "no two of the five chips get the same plans"


@needs_ptxas
def test_the_benchmark_writes_rows_and_tells_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    assert targets.main(["--gpus", "H200 SXM,T4", "--cases", "^rmat15_16$", "--out", str(out), "--check"]) == 0
    machine, *rows = map(json.loads, out.read_text().splitlines())
    assert machine["kind"] == "machine"
    assert len(rows) == 2 * 4 * 2
    assert {"gpu", "chip", "case", "K", "dtype", "plan", "digest", "us", "limit", "kernels", "exceeds"} <= rows[0].keys()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| H200 SXM | sm_90 | 8 | 0 |")
    assert lines[3].startswith("| T4 | sm_75 | 8 |")


@needs_ptxas
def test_the_benchmark_objects_to_plans_of_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "planned", lambda case, gpu: planned(case, named(MEASURED)))
    rows = [examine(by_name()["rmat15_16", 8, "float32"], named(gpu)) for gpu in (MEASURED, "RTX 4090")]
    assert alike(rows, "RTX 4090") == 1
    assert targets.wrong(rows) == ["RTX 4090: all plans are those of the H200 SXM"]
