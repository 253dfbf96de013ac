"""What the committed results say of the agent: each function gives a number, or None where nothing was measured.

They are the metrics of `benchmarks/targets.json` in the group `agent`; `over` is what a target says there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.ablation import speedup
from benchmarks.run import read_rows
from benchmarks.tables import geomean

RESULTS = Path(__file__).resolve().parent / "results"
ABLATION = "ablation-h200.jsonl.xz"  # python -m benchmarks.ablation
FIRST_ANSWER = "first-answer-h200.jsonl"  # python -m benchmarks.first_answer
PLAN_TIME = "plan-time.jsonl"  # python -m benchmarks.plan_time
PRIOR = "prior-h200.json"  # python -m benchmarks.prior
TARGETS = "targets.jsonl.xz"  # python -m benchmarks.targets
KINDS = (("spmv", 0), ("spmm", 8), ("spmm", 128))


def _rows(name: str, kind: str | None = None) -> list[dict[str, Any]]:
    """The rows of a file after its machine line; those of one kind where rows say theirs."""
    return [row for row in read_rows(RESULTS / name) if row.get("kind") == kind]


def _largest(values: list[float]) -> float | None:
    return max(values, default=None)


def prior_five(op: str) -> float | None:
    """Regret of the best of the prior's first five plans for an operator, families held out."""
    rows = json.loads((RESULTS / PRIOR).read_text())["cross_validation"]
    return next((row["prior_five"] for row in rows if row["op"] == op and row["K"] is None), None)


def ablation_matrices(_: str) -> float | None:
    """Matrices of which SpMV and SpMM with K = 8 and 128 were measured at every stage with right results."""
    rows = [row for row in _rows(ABLATION, "task") if row["outcome"] == "right"]
    kinds = {case: {(row["op"], row["K"]) for row in rows if row["case"] == case} for case in {row["case"] for row in rows}}
    return float(sum(found.issuperset(KINDS) for found in kinds.values()))


def ablation_wrong(_: str) -> float | None:
    """Tasks of the ablation where a stage has no right result."""
    rows = _rows(ABLATION, "task")
    return float(sum(row["outcome"] != "right" for row in rows)) if rows else None


def ablation(over: str) -> float | None:
    """`STAGE/OTHER`: how many times faster one stage is than another, geometric mean."""
    stage, other = over.split("/")
    return geomean(ratio for row in _rows(ABLATION, "task") if (ratio := speedup(row, stage, other)) is not None)


def ablation_regret(stage: str) -> float | None:
    """The time of a stage over the least that an exhaustive search found, geometric mean."""
    mean = ablation(f"{stage}/exhaustive")
    return 1 / mean if mean else None


def first_answer(_: str) -> float | None:
    """Most seconds from the start of `tune` to the first right plan."""
    return _largest([row["first_s"] for row in _rows(FIRST_ANSWER)])


def plan_time(part: str) -> float | None:
    """Most milliseconds that a part of planning took."""
    return _largest([row[part] for row in _rows(PLAN_TIME)])


def limits_exceeded(_: str) -> float | None:
    """Kernels that exceed a limit of the GPU for which they were planned."""
    rows = _rows(TARGETS)
    return float(sum(len(row["exceeds"]) for row in rows)) if rows else None


def gpus_assembled(_: str) -> float | None:
    """GPUs of the table whose plans `ptxas` has assembled."""
    return float(len({row["gpu"] for row in _rows(TARGETS)}))


def plans_apart(chips: str) -> float | None:
    """Of chips `A,B,…` the fewest tasks for which two of them get different plans."""
    plans: dict[str, dict[tuple[Any, ...], str]] = {}
    for row in _rows(TARGETS):
        plans.setdefault(row["chip"], {}).setdefault((row["case"], row["K"], row["dtype"]), row["plan"])
    names = chips.split(",")
    if not plans.keys() >= set(names):
        return None
    pairs = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    return float(min(sum(plans[a][task] != plan for task, plan in plans[b].items()) for a, b in pairs))


METRICS: dict[str, Callable[[str], float | None]] = {
    f.__name__: f
    for f in (
        *(prior_five, ablation_matrices, ablation_wrong, ablation, ablation_regret, first_answer, plan_time),
        *(limits_exceeded, gpus_assembled, plans_apart),
    )
}
