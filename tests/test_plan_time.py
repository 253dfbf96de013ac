"""The benchmark of the planner's time, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plan_time
from benchmarks.cost_model import read_features
from benchmarks.plan_time import MOST_MS, PARTS, contexts
from benchmarks.prior import FEATURES
from sparseditto.agent.ranking import Ranking

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "plan-time.jsonl"


def test_the_committed_result_keeps_the_promise() -> None:
    machine, *rows = map(json.loads, RESULT.read_text().splitlines())
    assert machine["kind"] == "machine"
    tasks = [about for about, _ in contexts(read_features(FEATURES), "h200")]
    assert [{key: row[key] for key in ("case", "K", "value_bytes")} for row in rows] == tasks
    for part in PARTS:
        assert 0 < max(row[part] for row in rows) <= MOST_MS, part


def test_the_benchmark_times_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    few = {name: f for name, f in read_features(FEATURES).items() if name in ("rmat14_8", "tri2M")}
    monkeypatch.setattr(plan_time, "read_features", lambda path: few)
    done: list[str] = []
    counted = {name: lambda ranking, name=name: done.append(name) for name in PARTS}
    monkeypatch.setattr(plan_time, "PARTS", counted)
    out = tmp_path / "rows.jsonl"
    assert plan_time.main(["--gpu", "l4", "--rounds", "2", "--out", str(out), "--check"]) == 0
    machine, *rows = map(json.loads, out.read_text().splitlines())
    assert machine["planned_for"] == "l4"
    assert len(rows) == 2 * 5 * 2
    assert {name: done.count(name) for name in PARTS} == dict.fromkeys(PARTS, 2 * len(rows) + 1)
    assert capsys.readouterr().out.splitlines()[2].startswith("| first | 20 |")


def test_the_check_fails_where_planning_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"tri2M": read_features(FEATURES)["tri2M"]}
    monkeypatch.setattr(plan_time, "read_features", lambda path: few)
    monkeypatch.setattr(plan_time, "MOST_MS", 0.0)
    assert plan_time.main(["--rounds", "1"]) == 0
    assert plan_time.main(["--rounds", "1", "--check"]) == 1


def test_what_is_timed_is_done_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round plans from the beginning: nothing is taken from an earlier one."""
    (_, context), *_ = contexts({"rmat14_8": read_features(FEATURES)["rmat14_8"]}, "h200")
    planned: list[Ranking] = []
    suggested = Ranking.__dict__["suggested"]
    monkeypatch.setattr(suggested, "func", lambda self, made=suggested.func: (planned.append(self), made(self))[1])
    plan_time.best([context], 2)
    assert len(planned) == 2 * len(PARTS)
