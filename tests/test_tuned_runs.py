"""Tuned benchmark runs: the search on the process's own GPU (made up here), its records, and what it waits for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

import fake_gpu  # noqa: E402

from benchmarks import candidates, cusparse, gpu, plain, run  # noqa: E402
from benchmarks.bounds import Rates  # noqa: E402
from benchmarks.candidates import Sample, Subject, Tuner  # noqa: E402
from benchmarks.prepare import Kernel, Options, Ready, Task, prepare_here  # noqa: E402
from benchmarks.suite import suite  # noqa: E402
from sparseditto.agent.memory.database import Database  # noqa: E402
from sparseditto.agent.memory.exchange import lines  # noqa: E402
from sparseditto.agent.tuner import HOPELESS, Budget  # noqa: E402
from sparseditto.dialects.errors import CheckFailed  # noqa: E402
from sparseditto.passes.plan import Plan  # noqa: E402

TUNED = ["--suite", "smoke", "--K", "8", "--plans", "tuned", "--budget", "6,60s"]


def kept_of(out: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of the database beside results."""
    with Database(out.with_suffix(".tuning.sqlite3")) as database:
        return [{**row.get("about", {}), **row} for row in map(json.loads, lines(database)) if row["kind"] == kind]


def rows_of(path: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in run.read_rows(path) if row["kind"] == kind]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> fake_gpu.Clock:
    """A made-up GPU, on which the plans with more threads a block are slower than those with fewer."""
    made = fake_gpu.Clock()

    def factor(package: Any) -> float:
        return 1.0 + sum(len(launch.block) and int(str(launch.block[0])) / 1000 for launch in package.launches)

    def opened(self: run.Run) -> dict[str, Any]:
        self.device = gpu.Device(self.args.rounds, self.args.cold, self.args.dtype, self.args.col_major)
        self.rates = Rates()
        return {}

    monkeypatch.setitem(sys.modules, "cupy", fake_gpu.cupy(made))
    monkeypatch.setattr(gpu, "Stream", lambda: fake_gpu.Stream(made))
    monkeypatch.setattr(gpu, "CudaSession", partial(fake_gpu.Session, made, factor))
    monkeypatch.setattr(cusparse, "baselines", fake_gpu.baselines(made))
    monkeypatch.setattr(run, "no_gpu", lambda: None)
    monkeypatch.setattr(run.Run, "_open_gpu", opened)
    about = {"gpu": "made up", "compute_capability": "9.0"}
    monkeypatch.setattr("sparseditto.compiler.runtimes.cuda.versions", lambda: about)
    return made


def test_a_tuned_run_is_right_and_says_what_it_did(tmp_path: Path, clock: fake_gpu.Clock) -> None:
    out = tmp_path / "tuned.jsonl"
    assert run.main([*TUNED, "--cases", "tiny_rmat|tiny_blocks", "--out", str(out)]) == 0
    rows = rows_of(out, "task")
    assert len(rows) == 4
    for row in rows:
        assert row["outcome"] == "right"
        assert row["tuning"]["measured"] == 6
        assert {"load", "check", "time", "compile", "measure", "total"} <= row["tuning"]["parts"].keys()
        assert {"search", "ours", "baselines", "timing"} == row["wall"].keys()
        assert {"build", "compile", "pack", "space"} <= row["seconds"].keys()
        assert [b["outcome"] for b in row["baselines"]] == ["right", "right", "right", "failed"]
        assert "close" not in row["baselines"][0]
        if "default_plan" in row:
            assert row["us"] <= row["default_plan"]["us"] * 1.001
    described = {(d["case"], d["op"], *d["K"]): d for d in kept_of(out, "task")}
    assert len(described) == 4
    trials = kept_of(out, "trial")
    for row in rows:
        about = described[(row["case"], row["op"], *([row["K"]] if row["K"] else []))]
        assert about["gpu"] == {"name": "made up", "capability": "9.0"}
        assert about["structure"]["entries"] == row["nnz"]
        known = [t for t in trials if t["task"] == about["task"] and t["outcome"] == "ok"]
        assert len({t["digest"] for t in known}) == 6
        assert about["default"] in {t["digest"] for t in known}
        assert row["tuning"]["best_us"] == pytest.approx(min(t["us"] for t in known))


def test_a_default_run_measures_on_it_too(tmp_path: Path, clock: fake_gpu.Clock) -> None:
    out = tmp_path / "default.jsonl"
    assert run.main(["--suite", "smoke", "--K", "8", "--cases", "tiny_b|tiny_dnn", "--col-major", "--out", str(out)]) == 0
    assert {row["outcome"] for row in rows_of(out, "task")} == {"right"}


def test_a_run_begins_with_the_plans_of_an_earlier_one(tmp_path: Path, clock: fake_gpu.Clock) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    only = ["--ops", "spmv", "--cases", "tiny_rmat"]
    assert run.main([*TUNED, *only, "--out", str(first)]) == 0
    (row,) = rows_of(first, "task")
    with first.open("a") as stream:
        stream.write(json.dumps(row | {"case": "tiny_road", "plan": "no-such-pass"}) + "\n")
    command = [*TUNED, "--ops", "spmv", "--cases", "tiny_rmat|tiny_road", "--seed-plans", str(first)]
    assert run.main([*command, "--out", str(second)]) == 0
    rows = {r["case"]: r for r in rows_of(second, "task")}
    described = {d["case"]: d["task"] for d in kept_of(second, "task")}
    trials = kept_of(second, "trial")
    texts = list(dict.fromkeys(t["text"] for t in trials if t["task"] == described["tiny_rmat"]))
    default = row.get("default_plan", row)["plan"]
    assert {default, row["plan"]} <= set(texts)
    assert rows["tiny_rmat"]["us"] <= row["us"] * 1.001
    assert "no-such-pass" in rows["tiny_road"]["tuning"]["notes"][0]


def test_a_run_on_csr_alone_reads_no_other_arrays(tmp_path: Path, clock: fake_gpu.Clock) -> None:
    out = tmp_path / "csr.jsonl"
    command = [
        "--suite",
        "smoke",
        "--K",
        "8",
        "--plans",
        "tuned-csr",
        "--budget",
        "6,60s",
        "--cases",
        "tiny_stencil|tiny_blocks",
    ]
    assert run.main([*command, "--out", str(out)]) == 0
    rows = rows_of(out, "task")
    assert len(rows) == 4
    for row in rows:
        assert row["plans"] == "tuned-csr"
        assert 8 <= row["bytes_per_nonzero"] < 16
        assert plain.as_csr(Plan.parse(row["plan"]), row["nnz"]) == Plan.parse(row["plan"])
    trials = [t for t in kept_of(out, "trial") if t["outcome"] == "ok"]
    assert len(trials) > len(rows)
    for text in {t["text"] for t in trials}:
        assert "coordinates=32" in text
        assert not any(map(plain.repacks, Plan.parse(text).steps))


def test_a_run_that_was_stopped_does_not_measure_again(
    tmp_path: Path, clock: fake_gpu.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "cut.jsonl"
    command = [*TUNED, "--ops", "spmv", "--cases", "tiny_r", "--out", str(out)]
    real, calls = gpu._Measurement.candidate, []

    def interrupted(self: Any, kernel: Kernel, rounds: int, cutoff_us: float | None) -> Sample:
        calls.append(kernel.digest)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(self, kernel, rounds, cutoff_us)

    monkeypatch.setattr(gpu._Measurement, "candidate", interrupted)
    assert run.main(command) == 130
    before = set(calls[:3])
    (begun,) = (d["task"] for d in kept_of(out, "task"))
    calls.clear()
    calls += ["", "", "", ""]
    assert run.main(command) == 0
    assert len(rows_of(out, "task")) == 2
    assert len(kept_of(out, "task")) == 2, "the task is found again"
    trials = {t["digest"]: t["measurements"] for t in kept_of(out, "trial") if t["task"] == begun}
    for digest in before:
        assert [bool(m["seconds"].get("compile")) for m in trials[digest]][1:] == [False] * (len(trials[digest]) - 1)


def test_a_candidate_that_faults_is_left_out_the_next_time(
    tmp_path: Path, clock: fake_gpu.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, lost, loaded = tmp_path / "fault.jsonl", [], []
    command = [*TUNED, "--ops", "spmv", "--cases", "tiny_rmat", "--out", str(out)]
    real = fake_gpu.Session.launch

    def faulty(self: Any, stream: Any = None) -> None:
        if self.package.plan not in loaded:
            loaded.append(self.package.plan)
        if loaded.index(self.package.plan) in (2, 4):
            raise CheckFailed("the GPU stopped with a fault")
        real(self, stream)

    def restarted(self: run.Run) -> None:
        lost.append(self.device.baseline)
        raise KeyboardInterrupt

    monkeypatch.setattr(fake_gpu.Session, "launch", faulty)
    monkeypatch.setattr(run.Run, "_restart", restarted)
    assert [run.main(command) for _ in range(3)] == [130, 130, 0]
    assert all(name.startswith("plan ") for name in lost)
    assert len(set(lost)) == len(lost), "none is run twice"
    (row,) = rows_of(out, "task")
    assert row["outcome"] == "right"
    trials = {t["digest"]: t for t in kept_of(out, "trial")}
    assert {trials[name.removeprefix("plan ")]["outcome"] for name in lost} == {HOPELESS}


# --- What is waited for -----------------------------------------------------------------------------------


class Sleeping:
    """Measures by sleeping; `meanwhile` is work in steps."""

    def __init__(self, steps: int = 0, measure_s: float = 0.01) -> None:
        self.steps, self.measure_s = steps, measure_s
        self.log: list[str] = []

    def candidate(self, kernel: Kernel, rounds: int, cutoff_us: float | None) -> Sample:
        self.log.append(kernel.digest)
        time.sleep(self.measure_s)
        return Sample("ok", (10.0 + len(self.log),) * rounds, seconds={"time": self.measure_s})

    def meanwhile(self) -> bool:
        if not self.steps:
            return False
        self.steps -= 1
        self.log.append("step")
        time.sleep(0.005)
        return True


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    case = next(c for c in suite("smoke") if c.name == "tiny_rmat")
    tasks = [Task("spmv", 0), Task("spmm", 8)]
    return prepare_here(case, tasks, Options(tuned=True), tmp_path_factory.mktemp("kernels"))


def tuner_of(**more: Any) -> Tuner:
    return Tuner(Budget(candidates=6), 2, "sm_90", **more)


def subject_of(ready: Ready, folder: Path) -> Subject:
    return Subject(ready.case.name, "float32", folder, ready.matrix, {})


def test_baselines_fill_the_time_of_compilers(ready: Ready, tmp_path: Path) -> None:
    bench = Sleeping(steps=10_000)
    with tuner_of() as tuner:
        found = tuner.tune(subject_of(ready, tmp_path), ready.tasks[0], bench)
    assert found.about["measured"] == 6
    assert bench.log[0] == "step", "the compilers start while something else is done"
    assert found.about["parts"].get("wait", 0.0) == 0.0
    assert found.about["seconds"] < found.about["parts"]["total"]


def test_first_plans_of_all_tasks_are_compiled_ahead(ready: Ready, tmp_path: Path) -> None:
    with tuner_of() as tuner:
        subject = subject_of(ready, tmp_path)
        tuner.compile_ahead(subject, ready.tasks)
        limit = time.monotonic() + 60
        while len(tuner.compilers.known) < len(tuner.compilers._asked) and time.monotonic() < limit:
            tuner.compilers.collect(1.0)
        ahead = len(tuner.compilers.known)
        assert ahead == 2 * (3 + candidates.SPARE)
        bench = Sleeping(steps=10_000)
        for prepared in ready.tasks:
            bench.log.clear()
            tuner.tune(subject, prepared, bench)
            assert "step" not in bench.log[:2], "nothing is waited for at first"
        again = Sleeping(steps=10_000)
        asked = len(tuner.compilers._asked)
        tuner.tune(Subject("another matrix", "float32", tmp_path, ready.matrix[::-1], {}), ready.tasks[0], again)
        assert again.log[0] != "step", "what was compiled for one matrix serves another"
        assert len(tuner.compilers._asked) - asked < 6


PLAIN = "accumulate-registers,rows-to-threads,map-blocks"


@pytest.mark.parametrize(
    ("plan", "entries", "longest", "why"),
    [
        (f"set-encoding{{coordinates=16}},{PLAIN}", 10**7, 10**5, ""),
        (f"set-encoding{{coordinates=16}},{PLAIN}", 10**7, 10**8, "one lane walks the longest row for about 3.0 s"),
        (
            f"set-encoding{{coordinates=16}},{PLAIN}".replace("rows-to-threads", "segment-rows,rows-to-threads"),
            10**7,
            10**8,
            "",
        ),
        (f"set-encoding{{coordinates=16}},{PLAIN}".replace("threads", "subgroups{lanes=32 share=entries}"), 10**7, 10**8, ""),
        (f"set-encoding{{format=bsr coordinates=16}},{PLAIN}", 10**8, 10, "another order takes about 6 s"),
        (f"set-encoding{{format=bsr coordinates=16}},{PLAIN}", 10**7, 10, ""),
        (f"set-encoding{{coordinates=64}},{PLAIN}", 10**7, 10, "coordinates are wider than they need to be"),
        (f"set-encoding{{coordinates=16}},{PLAIN}", 10**7, 10, ""),
        ("set-encoding,rows-to-threads,map-blocks", 10**7, 10, "sums are kept in memory"),
    ],
)
def test_what_would_take_too_long_is_not_run(
    ready: Ready, tmp_path: Path, plan: str, entries: int, longest: int, why: str
) -> None:
    prepared = ready.tasks[0]
    assert prepared.context is not None
    assert prepared.context.features is not None
    features = replace(prepared.context.features, entries=entries, max_row=longest)
    prepared = replace(prepared, context=replace(prepared.context, features=features))
    with tuner_of() as tuner:
        search = candidates.Search(tuner, subject_of(ready, tmp_path), prepared)
        assert (why in search.refusal(Plan.parse(plan))) is True
        assert bool(search.refusal(Plan.parse(plan))) is bool(why)


def best(rows: Sequence[dict[str, Any]], dtype: str = "float32") -> dict[Any, Any]:
    return candidates.best_plans(rows, dtype)


def test_the_best_plan_of_earlier_results() -> None:
    def row(us: float | None, plan: str, **more: Any) -> dict[str, Any]:
        base = {"kind": "task", "case": "a", "op": "spmv", "K": 0, "dtype": "float32", "outcome": "right"}
        return base | {"us": us, "plan": plan} | more

    assert best([]) == {}
    key = ("a", "spmv", 0)
    assert best([row(3.0, "slow"), row(2.0, "fast"), row(1.0, "wrong", outcome="wrong"), {"kind": "machine"}]) == {
        key: ("fast",)
    }
    assert best([row(3.0, "tuned", default_plan={"outcome": "right", "us": 2.5, "plan": "d"})]) == {key: ("d",)}
    assert best([row(None, "emulated")]) == {}
    several = [row(3.0, "c"), row(4.0, "b"), row(2.0, "b"), row(1.0, "a"), row(2.5, "a")]
    assert candidates.best_plans(several, "float32", 2) == {key: ("a", "b")}
    assert best([row(3.0, "slow")], "float64") == {}


@pytest.mark.parametrize("words", [["--seed-plans", "absent"], ["--plans", "tuned", "--seed-plans", "absent"]])
def test_seed_plans_need_a_tuned_run_and_a_file(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.arguments(["--out", "x", *words])
    assert "--seed-plans" in capsys.readouterr().err
