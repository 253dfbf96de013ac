"""What the report says of the agent, from results that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import agent_results, report

STAGES = {"task": 8.0, "pattern": 4.0, "architecture": 2.0, "refined": 1.0, "warm": 1.0, "exhaustive": 1.0}


def task(case: str, op: str, k: int, outcome: str = "right", **us: float) -> dict[str, Any]:
    stages = {stage: {"us": time} for stage, time in {**STAGES, **us}.items()}
    return {"kind": "task", "case": case, "op": op, "K": k, "outcome": outcome, "stages": stages}


def made_up(cases: int = 12, **us: float) -> dict[str, list[dict[str, Any]]]:
    """The rows of each file, by which all targets are met."""
    kinds = agent_results.KINDS
    apart = [(f"GPU {n}", f"sm_{n}", f"plan {n}") for n in (80, 89, 90, 100, 120, *range(200, 211))]
    return {
        agent_results.ABLATION: [task(f"case {n}", op, k, **us) for n in range(cases) for op, k in kinds],
        agent_results.FIRST_ANSWER: [{"first_s": 4.0}, {"first_s": 4.5}],
        agent_results.PLAN_TIME: [{"first": 5.0, "seeds": 30.0}, {"first": 4.0, "seeds": 40.0}],
        agent_results.TARGETS: [
            {"gpu": gpu, "chip": chip, "case": "a", "K": 0, "dtype": "float32", "plan": plan, "exceeds": []}
            for gpu, chip, plan in apart
        ],
    }


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(agent_results, "RESULTS", tmp_path)
    monkeypatch.setattr(agent_results, "ABLATION", "ablation.jsonl")
    monkeypatch.setattr(agent_results, "TARGETS", "targets.jsonl")
    cross_validation = [{"op": op, "K": None, "prior_five": 1.03} for op in ("spmv", "spmm")]
    (tmp_path / agent_results.PRIOR).write_text(json.dumps({"cross_validation": cross_validation}))
    return tmp_path


def write(folder: Path, files: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in files.items():
        lines = ({"kind": "machine"}, *rows)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in lines))


def missed() -> list[str]:
    return [line.removeprefix("issue 5: ") for line in report.missed([], ["agent"])]


def test_all_targets_can_be_met(results: Path) -> None:
    write(results, made_up(architecture=1.3))
    assert missed() == []


def test_nothing_measured_is_missed(results: Path) -> None:
    lines = missed()
    assert len(lines) == len(report.targets(["agent"])) - 2  # those of the prior, whose file is there
    assert all("not measured" in line or line.endswith("(100%)") for line in lines)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"refined": 1.06}, "the best of 16 measured plans over an exhaustive search: at most 1.05; 1.06, off by 0.01 (1%)"),
        ({"architecture": 1.4}, "the plan without measurement over an exhaustive search: at most 1.35; 1.4, off by"),
        ({"warm": 1.1}, "the plan of a warm database over an exhaustive search: at most 1.03; 1.1, off by"),
        ({"pattern": 9.0}, "pattern analysis over nothing: at least 1.01; 0.889, off by"),
        ({"pattern": 1.0}, "architecture-aware planning over pattern analysis: at least 1.01; 0.769, off by"),
        ({"task": 1.3}, "architecture-aware planning over the task alone: at least 1.3; 1, off by"),
        ({"cases": 11}, "matrices of the ablation, SpMV and SpMM with K = 8 and 128: at least 12; 11, off by 1"),
    ],
)
def test_what_the_ablation_misses_is_said(results: Path, change: dict[str, Any], message: str) -> None:
    write(results, made_up(**{"architecture": 1.3, **change}))
    assert any(line.startswith(message) for line in missed()), missed()


def test_what_other_results_miss_is_said(results: Path) -> None:
    files = made_up(architecture=1.3)
    files[agent_results.ABLATION][0]["outcome"] = "wrong"
    files[agent_results.FIRST_ANSWER][0]["first_s"] = 5.5
    files[agent_results.PLAN_TIME][1]["first"] = 51.0
    files[agent_results.TARGETS][0] |= {"plan": "plan 90", "exceeds": ["registers"]}
    write(results, files)
    lines = missed()
    assert [line.split(":")[0] for line in lines] == [
        "matrices of the ablation, SpMV and SpMM with K = 8 and 128",
        "tasks of the ablation without a right result",
        "tasks for which two of sm_80, sm_89, sm_90, sm_100 and sm_120 get different plans, at least",
        "kernels beyond a limit of their GPU",
        "seconds from tune to the first answer",
        "milliseconds of the first plan",
    ]
