"""The benchmarks: matrices, bounds, references, the runner under emulation, and what a report makes of results."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

ROOT = Path(__file__).resolve().parents[1]

from benchmarks import generators, operands, pack_time, report, run  # noqa: E402
from benchmarks.bounds import SECTOR, Model, Rates, Reuse  # noqa: E402
from benchmarks.machine import machine_row  # noqa: E402
from benchmarks.prepare import KERNELS, Options, Preparation, Task  # noqa: E402
from benchmarks.suite import Case, corpus_cases, corpus_folder, matrix, suite  # noqa: E402
from sparseditto.compiler.api import compile_file  # noqa: E402

Array = np.ndarray[Any, Any]


# --- Suites and generators --------------------------------------------------------------------------------


def test_the_full_suite_has_enough_of_everything() -> None:
    cases = suite("full")
    assert len(cases) >= 60
    assert len({case.name for case in cases}) == len(cases)
    families = {case.family for case in cases}
    wanted = "stencil elasticity rmat road web circuit lp uniform banded block-diagonal kronecker dnn hypersparse"
    assert set(wanted.split()) <= families
    sizes = [case.nnz for case in cases]
    assert min(n for n in sizes if n >= 1000) < 2000
    assert 90e6 < max(sizes) < 110e6
    assert all(case.source for case in cases)


def test_the_measured_matrices_of_the_peers_are_in_the_suite() -> None:
    there = {case.name for case in suite("full")}
    named = set(json.loads((ROOT / "benchmarks" / "peers.json").read_text())["us"]["spmv"])
    assert len(named) == 16
    if not corpus_cases(corpus_folder()):
        named = {name for name in named if name.startswith(("fem27", "tri", "rmat", "unif"))}
    assert named <= there


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(ValueError, match="full and smoke"):
        suite("huge")


SMALL: dict[str, Callable[[], Any]] = {
    "stencil5": lambda: generators.star((7, 5)),
    "stencil27": lambda: generators.stencil27(4),
    "banded": lambda: generators.banded(50, 4, 0.5),
    "elasticity": lambda: generators.elasticity(3),
    "rmat": lambda: generators.rmat(8, 8),
    "uniform": lambda: generators.uniform(200, 5),
    "road": lambda: generators.road(30),
    "web": lambda: generators.web(2000, 10.0),
    "circuit": lambda: generators.circuit(500),
    "wide": lambda: generators.linear_program(30, 900, 4),
    "tall": lambda: generators.tall_program(900, 30, 4),
    "blocks": lambda: generators.block_diagonal(30, 1, 9),
    "kronecker": lambda: generators.kronecker(((0, 0), (0, 1), (1, 1)), 6),
    "dnn": lambda: generators.pruned_layer(64, 128, 0.9),
    "hypersparse": lambda: generators.hypersparse(5000, 60, 3),
}


@pytest.mark.parametrize("name", SMALL)
def test_generated_patterns_are_canonical_and_repeatable(name: str) -> None:
    a, again = SMALL[name](), SMALL[name]()
    assert a.nnz > 0
    assert a.indices.dtype == a.indptr.dtype == np.int32
    assert 0 <= a.indices.min() <= a.indices.max() < a.shape[1]
    fresh = sp.csr_array((a.data, a.indices, a.indptr), shape=a.shape)
    assert fresh.has_canonical_format
    assert np.array_equal(a.indices, again.indices)
    assert np.array_equal(a.indptr, again.indptr)


def test_stencils_are_kronecker_products() -> None:
    t = sp.diags_array([np.ones(4), np.ones(5), np.ones(4)], offsets=[-1, 0, 1]).tocsr()
    expected = sp.kron(sp.kron(t, t), t).tocsr()
    expected.eliminate_zeros()
    expected.sort_indices()
    found = generators.stencil27(5)
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert generators.star((5, 5)).nnz == 5 * 25 - 4 * 5
    assert generators.elasticity(5).nnz == 9 * expected.nnz


def test_families_have_the_shape_that_they_are_named_after() -> None:
    def lengths(a: Any) -> Array:
        return np.diff(a.indptr)

    road = generators.road(60)
    assert (abs(road - road.T)).nnz == 0
    assert 2 < lengths(road).mean() < 3
    circuit = generators.circuit(1000)
    assert lengths(circuit).max() > 10 * np.median(lengths(circuit))
    assert (lengths(generators.hypersparse(5000, 60, 3)) == 0).mean() > 0.9
    layer = generators.pruned_layer(200, 400, 0.9)
    assert layer.nnz == pytest.approx(0.1 * 200 * 400, rel=0.1)
    web = generators.web(3000, 10.0)
    near = np.abs(web.indices - np.repeat(np.arange(3000), lengths(web))) < 100
    assert near.mean() > 0.5
    assert set(lengths(generators.block_diagonal(20, 4, 4))) == {4}
    rmat = lengths(generators.rmat(10, 16))
    assert rmat.std() > rmat.mean()
    assert np.bincount(generators.tall_program(900, 30, 4).indices).max() > 100


def test_a_pattern_gets_values_and_the_cache_keeps_them(tmp_path: Path) -> None:
    case = suite("smoke")[0]
    a = matrix(case, tmp_path)
    assert a.data.dtype == np.float32
    assert np.ptp(a.data) > 1
    broken = Case(case.name, case.family, lambda: pytest.fail("was built again"), case.nnz, case.source)
    again = matrix(broken, tmp_path)
    assert np.array_equal(a.data, again.data)
    assert np.array_equal(a.indices, again.indices)


# --- Bounds -----------------------------------------------------------------------------------------------


def lru_misses(units: Array, capacity: int) -> int:
    held: dict[int, None] = {}
    misses = 0
    for unit in units.tolist():
        misses += unit not in held
        held.pop(unit, None)
        held[unit] = None
        if len(held) > capacity:
            del held[next(iter(held))]
    return misses


@pytest.mark.parametrize("capacity", [20, 100, 400])
@pytest.mark.parametrize("name", ["random", "diagonal", "banded", "rmat"])
def test_misses_are_those_of_an_lru_cache(name: str, capacity: int) -> None:
    units = {
        "random": lambda: np.random.default_rng(0).integers(0, 1000, 20_000),
        "diagonal": lambda: np.arange(3000),
        "banded": lambda: generators.banded(1500, 6).indices,
        "rmat": lambda: generators.rmat(11, 8).indices,
    }[name]()
    expected = lru_misses(units, capacity)
    assert Reuse(units).misses(capacity) == pytest.approx(expected, rel=0.02)
    if name != "banded":  # the sample is too small to see its sharp edge
        assert Reuse(units, sample=units.size // 3).misses(capacity) == pytest.approx(expected, rel=0.15)


def test_nothing_is_missed_of_an_empty_matrix() -> None:
    assert Reuse(np.zeros(0, np.int32)).misses(10) == 0
    traffic = Model(sp.csr_array((10, 10), dtype=np.float32)).traffic(8)
    assert traffic.l2 == 0
    assert traffic.compulsory == 4 * 11 + 10 * 8 * 4


def test_the_compulsory_bound_counts_each_array_once() -> None:
    a = generators.tridiagonal(1 << 12)
    model = Model(a)
    assert model.traffic(0).compulsory == 8 * a.nnz + 4 * (a.shape[0] + 1) + 4 * 2 * a.shape[0]
    assert model.traffic(32).compulsory == 8 * a.nnz + 4 * (a.shape[0] + 1) + 4 * 2 * 32 * a.shape[0]
    assert Model(a, itemsize=8).traffic(0).compulsory == 12 * a.nnz + 4 * (a.shape[0] + 1) + 8 * 2 * a.shape[0]
    times = model.traffic(0).times_us(Rates())
    assert times["cache_aware"] == times["compulsory"] > 0


def test_random_columns_meet_the_gather_wall_and_then_memory() -> None:
    a = generators.uniform(1 << 16, 16)
    small_l2 = Model(a, rates=Rates(l2_bytes=1 << 20))
    spmv = small_l2.traffic(0)
    assert spmv.unit_bytes == SECTOR
    assert spmv.l2 <= a.nnz * SECTOR
    wide = small_l2.traffic(128)
    assert 0.9 * a.nnz * 512 < wide.dram < a.nnz * 512 + 2 * wide.compulsory
    assert wide.times_us(Rates())["cache_aware"] > 2 * wide.times_us(Rates())["compulsory"]
    roomy = Model(a, rates=Rates(l2_bytes=1 << 30)).traffic(128)
    assert roomy.dram == pytest.approx(roomy.compulsory, rel=1e-6)


# --- Operands and references ------------------------------------------------------------------------------


def test_any_part_of_an_operand_is_the_same_as_of_the_whole() -> None:
    whole = operands.dense(np, (300, 7), 5)
    rows = np.array([0, 17, 299])
    assert np.array_equal(operands.dense_rows(rows, 7, 5), whole[rows])
    assert -1 <= whole.min() < -0.9
    assert 0.9 < whole.max() < 1
    assert abs(whole.mean()) < 0.05
    assert not np.array_equal(whole, operands.dense(np, (300, 7), 6))
    assert np.array_equal(operands.dense(np, (300, 7), 5, "float64"), whole)


def test_a_large_product_is_checked_in_rows_and_by_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    a = matrix(next(c for c in suite("smoke") if c.name == "tiny_rmat"))
    computation = compile_file(KERNELS / "spmm.mlir", {"A": a}, {"K": 16}).package.computation
    monkeypatch.setattr(operands, "FULL", 1000)
    found = operands.reference(computation, a, 16, "float32", 3)
    assert found.rows is not None
    assert found.rows.size < a.shape[0]
    assert int(np.argmax(np.diff(a.indptr))) in found.rows
    right = operands.dense(np, (a.shape[1], 16), 3)
    result = (a.astype("f8") @ right.astype("f8")).astype("f4")
    assert found.check(lambda rows: result[rows]).passed
    r = operands.dense(np, (16,), 77).astype("f8")
    a64 = a.astype("f8")
    parts = (a64, abs(a64), right.astype("f8") @ r, np.abs(right.astype("f8")) @ np.abs(r))
    assert operands.projection_check(*parts, result.astype("f8") @ r, "float32").passed
    full = np.flatnonzero(np.diff(a.indptr))
    result[full[-1], 3] += 0.5
    assert not operands.projection_check(*parts, result.astype("f8") @ r, "float32").passed
    result[found.rows[0]] = np.nan
    assert not found.check(lambda rows: result[rows]).passed


def test_the_quick_check_agrees_with_the_full_one() -> None:
    expected = np.array([1.0, np.inf, np.nan, 0.0, 3e38, 2.0])
    scale = np.array([1.0, np.inf, np.nan, 0.0, 4e38, 2.0])
    good = np.array([1.0, np.inf, np.nan, 0.0, np.inf, 2.0], np.float32)
    found = operands.quick_check(np, good, expected, scale, "float32")
    assert (found.worst, found.wrong, found.passed) == (0.0, 0, True)
    bad = np.array([1.1, np.inf, 5.0, 0.0, 1.0, np.nan], np.float32)
    found = operands.quick_check(np, bad, expected, scale, "float32")
    assert found.wrong == 3
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["passed"] is False


# --- The runner -------------------------------------------------------------------------------------------


def tasks(path: Path) -> list[dict[str, Any]]:
    return [row for row in run.read_rows(path) if row["kind"] == "task"]


def test_results_say_what_they_were_measured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/here/run.py", "--out", "/opt/here/a.jsonl", "--cache=/opt/b", "--shard", "1/2"])
    row = machine_row("simt")
    assert list(row) == ["kind", "versions", "time", "argv"]
    assert row["kind"] == "machine"
    assert row["argv"] == ["--out", "a.jsonl", "--cache=b", "--shard", "1/2"]
    assert {"python", "numpy"} <= row["versions"].keys()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["time"])
    monkeypatch.setattr("sparseditto.compiler.runtimes.cuda.versions", lambda: {"gpu": "made up"})
    assert machine_row("cuda")["gpu"] == {"gpu": "made up"}


def test_the_smoke_suite_is_right_under_emulation(tmp_path: Path) -> None:
    out = tmp_path / "smoke.jsonl"
    assert run.main(["--suite", "smoke", "--device", "simt", "--K", "8", "--out", str(out)]) == 0
    begin, *_ = run.read_rows(out)
    assert (begin["kind"], begin["schema"]) == ("machine", run.SCHEMA)
    rows = tasks(out)
    assert len(rows) == 2 * len(suite("smoke")) >= 16
    assert {row["outcome"] for row in rows} == {"right"}
    for row in rows:
        assert row["check"]["worst"] <= row["check"]["tolerance"]
        assert {"plan", "digest", "features", "nnz", "seconds", "source"} <= row.keys()
        assert {"build", "compile", "reference"} <= row["seconds"].keys()


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "cut.jsonl"
    command = ["--suite", "smoke", "--device", "simt", "--cases", "tiny_r", "--K", "8", "--out", str(out)]
    work, calls = run.Run._task, iter(range(100))

    def interrupted(self: run.Run, *arguments: Any) -> dict[str, Any]:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return work(self, *arguments)

    monkeypatch.setattr(run.Run, "_task", interrupted)
    assert run.main(command) == 130
    assert len(tasks(out)) == 2
    with out.open("a") as stream:
        stream.write('{"kind": "task", "case": "tiny_')  # as a crash leaves it
    assert run.main(command) == 0
    keys = [run.key_of(row) for row in tasks(out)]
    assert len(keys) == len(set(keys)) == 4
    size = out.stat().st_size
    assert run.main(command) == 0
    assert out.stat().st_size == size


def test_no_task_is_begun_when_time_is_up(tmp_path: Path) -> None:
    out = tmp_path / "none.jsonl"
    command = ["--suite", "smoke", "--device", "simt", "--cases", "tiny_r", "--K", "8", "--out", str(out)]
    assert run.main([*command, "--time-limit", "0"]) == 0
    assert tasks(out) == []


def test_shards_hold_every_case_once_and_as_many_entries() -> None:
    cases = suite("full", Path("absent"))
    shards = [run.sharded(cases, (i, 3)) for i in (1, 2, 3)]
    assert sorted(case.name for shard in shards for case in shard) == sorted(case.name for case in cases)
    assert [case.name for case in shards[0]] == [case.name for case in cases if case in shards[0]], "in the same order"
    entries = [sum(case.nnz for case in shard) for shard in shards]
    assert max(entries) < 1.5 * min(entries)
    assert run.sharded(cases, (1, 1)) == cases


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/2/3"])
def test_a_shard_is_one_of_n(shard: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--out", str(tmp_path / "none.jsonl"), "--shard", shard])
    assert "I/N" in capsys.readouterr().err


def test_cases_are_prepared_in_processes(tmp_path: Path) -> None:
    cases = [case for case in suite("smoke") if case.name in ("tiny_road", "tiny_hyper")]
    work = [(case, [Task("spmv", 0), Task("spmm", 4)]) for case in cases]
    with Preparation(work, Options(), jobs=2) as preparation:
        found = {case.name: ready for case, _, ready in preparation}
    for case in cases:
        ready = found[case.name]
        assert not isinstance(ready, str)
        assert [p.task for p in ready.tasks] == [Task("spmv", 0), Task("spmm", 4)]
        assert all(p.kernel and p.reference and p.traffic for p in ready.tasks)
        assert np.array_equal(ready.matrix.indices, matrix(case).indices)
    assert not preparation.folder.exists()


def _dies() -> Any:
    import os

    os._exit(7)


def test_a_preparation_that_dies_costs_its_case_only() -> None:
    dies = Case("dies", "stencil", _dies, 10, "here")
    fine = suite("smoke")[0]
    with Preparation([(dies, [Task("spmv", 0)]), (fine, [Task("spmv", 0)])], Options(), jobs=2) as preparation:
        found = {case.name: ready for case, _, ready in preparation}
    assert "ended with 7" in str(found["dies"])
    assert not isinstance(found[fine.name], str)


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "--out is needed"), (["--out", "x", "--ops", "sddmm"], "spmv and spmm"), (["--out", "x", "--K", "0"], "1 or more")],
)
def test_wrong_arguments_are_explained(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.arguments(words)
    assert message in capsys.readouterr().err


# --- Reports ----------------------------------------------------------------------------------------------


def task_row(case: Case, op: str, k: int, us: float = 1.0, outcome: str = "right") -> dict[str, Any]:
    baselines = [
        {"name": "csr default", "family": "csr", "preprocess": False, "outcome": "right", "us": 4.0 * us},
        {"name": "csr csr2+p", "family": "csr", "preprocess": True, "outcome": "right", "us": 3.5 * us},
        {"name": "coo coo1", "family": "coo", "preprocess": False, "outcome": "right", "us": 3.0 * us},
        {
            "name": "coo coo2",
            "family": "coo",
            "preprocess": False,
            "outcome": "wrong",
            "us": 0.1,
            "why": "7 components are wrong",
        },
        {"name": "sell sell1/2", "family": "sell", "preprocess": False, "outcome": "failed", "why": "status 10"},
    ]
    head = {"kind": "task", "case": case.name, "op": op, "K": k, "dtype": "float32", "device": "cuda", "caches": "warm"}
    about = {"plans": "default", "family": case.family, "nnz": case.nnz, "row_variation": 0.5, "plan": "p", "digest": "d"}
    times = {
        "us": us,
        "bounds_us": {"compulsory": 0.9 * us, "cache_aware": 0.95 * us},
        "traffic": {"compulsory": 8.0 * case.nnz + 1},
    }
    seconds = {"seconds": {"plan": 0.1, "compile": 0.1, "pack": 0.1}}
    return head | about | times | seconds | {"outcome": outcome, "baselines": baselines}


@pytest.fixture
def results(tmp_path: Path) -> Callable[..., Path]:
    def write(change: Callable[[dict[str, Any]], None] = lambda row: None) -> Path:
        path = tmp_path / "results.jsonl"
        rows = [{"kind": "machine", "time": "2026-12-01", "gpu": {"gpu": "a GPU"}, "rates": Rates().to_json()}]
        rows += [task_row(case, "spmv", 0) for case in suite("full")]
        rows += [task_row(case, "spmm", k) for case in suite("full") for k in (8, 32, 128, 256)]
        for row in rows[1:]:
            change(row)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_a_report_says_what_results_say(results: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(results())]) == 0
    text = capsys.readouterr().out
    assert "| SpMV | " in text
    assert "| 4.00 | 3.50 | 3.00 | 100% | 0% | 3.50 |" in text
    assert "cuSPARSE coo coo2: wrong" in text
    assert "cuSPARSE sell sell1/2: failed" in text
    assert "| fem27_64 | 1.00 |" in text
    assert "missed" not in text
    assert "nan" not in text.lower()


def test_met_targets_exit_0(results: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(results()), "--check"]) == 0
    assert "targets are met" in capsys.readouterr().out


def test_representations_are_held_to_csr_alone(results: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    def of_csr(gain: float) -> str:
        rows = [task_row(case, "spmv", 0, gain) | {"plans": "tuned-csr", "bytes_per_nonzero": 8.0} for case in suite("full")]
        return "".join(json.dumps(row) + "\n" for row in rows)

    path = results(lambda row: row.update(bytes_per_nonzero=4.0))
    plain = path.read_text()
    command = [str(path), "--check", "--ops", "representations"]
    assert report.main(command) == 1
    assert "CSR alone: at least 1.15; not measured" in capsys.readouterr().out
    path.write_text(plain + of_csr(1.2))
    assert report.main(command) == 1
    assert "bands and blocks: at least 1.3; 1.2, off by 0.1" in capsys.readouterr().out
    path.write_text(plain + of_csr(1.35))
    assert report.main(command) == 0
    assert report.main([str(path), "--ops", "representations"]) == 0
    counted = sum(case.nnz >= report.LEAST_NNZ for case in suite("full"))
    assert f"| all | {counted} | 1.35 | 4.00 | 8.00 |" in capsys.readouterr().out


def test_missed_targets_are_named_and_exit_1(results: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(row: dict[str, Any]) -> None:
        if (row["case"], row["op"], row["K"]) == ("fem27_64", "spmm", 8):
            row["outcome"] = "wrong"

    path = results(wrong)
    assert report.main([str(path), "--check"]) == 1
    text = capsys.readouterr().out
    assert "SpMM results that are wrong: at most 0; 1, off by 1" in text
    assert "SpMM at worst over cuSPARSE best CSR: at least 0.9; 0, off by 0.9" in text
    assert "SpMV" not in text
    assert report.main([str(path), "--check", "--ops", "spmv"]) == 0


def test_what_was_not_measured_counts_as_missed(results: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = results()
    few = [line for line in path.read_text().splitlines() if '"spmm"' not in line][:30]
    path.write_text("\n".join(few) + "\n")
    assert report.main([str(path), "--check"]) == 1
    text = capsys.readouterr().out
    assert "SpMM, K = 8, over cuSPARSE best CSR: at least 2.6; not measured" in text
    assert "SpMV matrices measured: at least 60" in text


def test_failed_baselines_are_no_wins() -> None:
    row = task_row(suite("smoke")[0], "spmv", 0)
    row["baselines"] = [b for b in row["baselines"] if b["outcome"] != "right"]
    assert report.speedups(row) == {"default": None, "best_csr": None, "best_any": None}
    assert report.ratios([row], "default") == []
    lost = task_row(suite("smoke")[0], "spmv", 0, outcome="bad-plan")
    assert report.speedups(lost)["best_csr"] == 0


def test_the_last_row_of_a_task_counts(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    case = suite("smoke")[0]
    path.write_text("".join(json.dumps(task_row(case, "spmv", 0, us)) + "\n" for us in (5.0, 2.0)))
    (row,) = report.Results([path]).rows
    assert row["us"] == 2.0


def tuned(row: dict[str, Any], gain: float) -> dict[str, Any]:
    """The row of a tuned run that found a plan `gain` times faster; by 1 it kept the default one."""
    about = {"plans": "tuned", "tuning": {"seconds": 1.5, "measured": 12}}
    if gain == 1:
        return row | about
    default = {"plan": "p", "digest": "d", "us": row["us"], "outcome": "right"}
    return row | about | {"us": row["us"] / gain, "default_plan": default}


def test_tuned_plans_are_the_headline_and_stand_apart(
    tmp_path: Path, results: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where only some tasks are tuned, targets are about these and the others by default; tables of means mix nothing."""
    path, more = results(), tmp_path / "tuned.jsonl"
    rows = [tuned(task_row(case, "spmv", 0), gain) for case, gain in zip(suite("full")[30:33], (1, 2, 4), strict=True)]
    more.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = report.Results([more, path])
    assert found.settings() == [("float32", "warm", "tuned"), ("float32", "warm", "default")]
    headline = {(r["case"], r["op"], r["K"]): r for r in found.headline()}
    assert len(headline) == 5 * len(suite("full"))
    assert all(headline[r["case"], "spmv", 0]["plans"] == "tuned" for r in rows)
    assert report.main([str(more), str(path)]) == 0
    text = capsys.readouterr().out
    assert "| SpMV | 3 | 2.00 | 4.00 | 33% | 12 | 1.50 | 4 |" in text
    assert f"Of 3 tasks with tuned plans and {len(headline) - 3} tasks with default plans" in text
    assert text.index("plans: tuned") < text.index("### Targets") < text.index("plans: default")
    assert text.count("### Targets") == 1
    assert report.main([str(path), str(more), "--check"]) == 0
    only = report.Results([path])
    assert [r["plans"] for r in only.headline()] == ["default"] * len(headline)


def test_every_target_can_be_computed() -> None:
    for target in report.targets(["spmv", "spmm"]):
        assert target["metric"] in report.METRICS
        assert ("at_least" in target) != ("at_most" in target)
        assert set(target.get("where", {})) <= {"nnz_over", "families", "cases"}
        assert target.get("over", "default") in {*report.OVER, "rode"}


def test_no_results_are_said_to_be_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(tmp_path / "nothing.jsonl")]) == 2
    assert "no results" in capsys.readouterr().err


def test_plots_are_drawn(results: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    assert report.main([str(results()), "--plots", str(tmp_path / "plots")]) == 0
    drawn = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert drawn == ["roofline.png", "speedup-nnz.png", "speedup-variation.png"]


# --- On a GPU ---------------------------------------------------------------------------------------------


@pytest.mark.cuda
def test_every_baseline_that_runs_is_right() -> None:
    pytest.importorskip("cupy", reason="the baselines need CuPy")
    from benchmarks import cusparse

    assert cusparse.self_test() == 0


# --- Packing ----------------------------------------------------------------------------------------------


def test_packing_is_measured_for_every_storage(tmp_path: Path) -> None:
    out = tmp_path / "pack.jsonl"
    assert pack_time.main(["--entries", "3000", "--rounds", "1", "--out", str(out)]) == 0
    rows = {row["storage"]: row for row in map(json.loads, out.read_text().splitlines()[1:])}
    assert set(rows) == {storage.name for storage in pack_time.STORAGES}
    assert rows["csr"]["bytes_per_nonzero"] == pytest.approx(8.4, abs=0.1)
    assert rows["diagonals"]["bytes_per_nonzero"] == pytest.approx(4.0, abs=0.4)
    assert all(row["entries"] > 500 and row["entries_per_second"] > 0 for row in rows.values())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, []),
        ({"entries_per_second": 49e6}, ["49.0 M nonzeros/s, 50 M wanted"]),
        ({"entries_per_second": 16e6, "like_csr": False}, []),
        ({"peak_over_matrix": 4.5}, ["4.5 times the matrix in memory, at most 4 wanted"]),
    ],
)
def test_slow_or_large_packing_is_named(change: dict[str, Any], why: list[str]) -> None:
    row = {"entries_per_second": 51e6, "peak_over_matrix": 3.9, "like_csr": True}
    assert pack_time.missed(row | change) == why
