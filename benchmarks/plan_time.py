"""How long the planner takes, once the features of a matrix are there.

    python -m benchmarks.plan_time [--gpu NAME] [--rounds N] [--out FILE] [--check]

For every matrix of the suite (its features are in benchmarks/results), SpMV and SpMM with K = 8, 32, 128 and 256, float32 and
float64: milliseconds for the first plan, on which `compile` waits; for the 48 plans that `tune` measures first; and for the
walks from the first plan over the graph of passes and GPU, which `explain` shows, the graph made anew each time.  Of each the
best of some rounds by `timeit`, in a process that has planned before; a round takes all tasks in turn, so that what else the
machine does for a while spoils one round of a task at most.  With `--check` it exits 1 if one takes more than 50 ms.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from timeit import Timer
from typing import Any

import numpy as np

from benchmarks.cost_model import read_features
from benchmarks.machine import machine_row
from benchmarks.prior import FEATURES
from benchmarks.tables import table
from sparseditto.agent.architecture.building import named
from sparseditto.agent.architecture.choosing import MEASURED
from sparseditto.agent.features import Features
from sparseditto.agent.graph import pass_graph, walks
from sparseditto.agent.planner import Task
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Context, Space

MOST_MS = 50.0
WIDTHS = (0, 8, 32, 128, 256)  # dense columns; 0: SpMV
BYTES = (4, 8)  # of a value


def _first(ranking: Ranking) -> None:
    ranking.first()


def _seeds(ranking: Ranking) -> None:
    ranking.seeds()


def _walks(ranking: Ranking) -> None:
    walks(pass_graph(ranking.architecture), ranking.first(), ranking.space, ranking.architecture)


PARTS: dict[str, Callable[[Ranking], None]] = {"first": _first, "seeds": _seeds, "walks": _walks}


def measure(context: Context) -> dict[str, float]:
    """Milliseconds of each part, from a task and features on."""
    return {name: 1e3 * Timer(lambda part=part: part(Ranking(Space(context)))).timeit(1) for name, part in PARTS.items()}


def best(contexts: Sequence[Context], rounds: int) -> list[dict[str, float]]:
    """`measure` of each context, the best of some rounds."""
    samples = [[measure(context) for context in contexts] for _ in range(rounds)]
    return [{name: round(min(sample[name] for sample in of_one), 3) for name in PARTS} for of_one in zip(*samples, strict=True)]


def contexts(features: dict[str, Features], gpu: str) -> list[tuple[dict[str, Any], Context]]:
    """What is planned, and how its row begins."""
    architecture = named(gpu)
    target, found = architecture.target(), []
    for case, f in sorted(features.items()):
        for columns in WIDTHS:
            for size in BYTES:
                task = Task(True, True, columns, size, shape=(f.rows, f.columns))
                about = {"case": case, "K": columns, "value_bytes": size}
                found.append((about, Context(task, f, target, architecture)))
    return found


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Median, 95th percentile and largest of each part, and which task takes longest."""
    body = []
    for part in PARTS:
        samples = [row[part] for row in rows]
        worst = max(rows, key=lambda row: row[part])
        numbers = [f"{value:.1f}" for value in (*np.quantile(samples, (0.5, 0.95)), max(samples))]
        body.append([part, str(len(samples)), *numbers, f"{worst['case']}, K={worst['K']}"])
    return table(["ms", "tasks", "median", "95 %", "largest", "of"], body)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_time", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--gpu", default=MEASURED, help="the GPU that is planned for (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", metavar="FILE", type=Path, help="one JSON line a task")
    parser.add_argument("--check", action="store_true", help=f"exit 1 where one takes more than {MOST_MS:.0f} ms")
    args = parser.parse_args(words)
    planned = contexts(read_features(FEATURES), args.gpu)
    measure(planned[0][1])  # reads the prior and imports the passes
    found = best([context for _, context in planned], args.rounds)
    rows = [about | times for (about, _), times in zip(planned, found, strict=True)]
    if args.out is not None:
        lines = [machine_row("host") | {"planned_for": args.gpu, "rounds": args.rounds}, *rows]
        args.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(summary(rows))
    return 1 if args.check and any(row[part] > MOST_MS for row in rows for part in PARTS) else 0


if __name__ == "__main__":
    sys.exit(main())
