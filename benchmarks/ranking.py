"""What each source of the ranking is worth, and all of them together, on families of matrices held out (`agent.ranking`).

    python -m benchmarks.ranking                 # prints the table; writes benchmarks/results/ranking-h200.json
    python -m benchmarks.ranking --check         # makes it anew and compares; exits 1 where it differs

The plans are those of the committed records that `benchmarks.prior` learns from; the energies of the prior are those of
cross-validation, so nothing was learned from any matrix of a plan's family.  (The 18 constants of the cost model were fitted to
a part of the records.)  An order is judged by its first plan and by the best of its first five, over the best that was
measured: geometric means, and the largest.  Tasks count where a plan that the rules suggest was measured.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.prior import REGRETS_AWAY, RESULTS, data, differences
from benchmarks.tables import number, table
from sparseditto.agent.architecture.building import named
from sparseditto.agent.architecture.choosing import MEASURED
from sparseditto.agent.cost import Model
from sparseditto.agent.planner import ranked
from sparseditto.agent.prior.crossval import Regret, regret, task_of
from sparseditto.agent.prior.learn import validate_all
from sparseditto.agent.prior.training import Group
from sparseditto.agent.ranking import ADVANCE, WEIGHT

OUT = RESULTS / "ranking-h200.json"
LAST = 10_000  # the place of a plan that the rules do not suggest

Array = NDArray[np.float64]
Score = Callable[[Array, Array, Array], Array]
ORDERS: Mapping[str, Score] = {
    "rules": lambda energy, cost, place: place,
    "prior": lambda energy, cost, place: energy,
    "cost model": lambda energy, cost, place: cost,
    "prior and cost model": lambda energy, cost, place: energy + WEIGHT * cost,
    "prior and rules": lambda energy, cost, place: energy + ADVANCE * (place > place.min()),
    "all": lambda energy, cost, place: energy + WEIGHT * cost + ADVANCE * (place > place.min()),
}
"""By name, what orders the plans of a task: of the energy, log2 of the predicted time, and the place among the rules' plans."""


def measured() -> Iterator[tuple[str, dict[str, Regret]]]:
    """The op of each task, and the regret of each order."""
    found = data()
    architecture, target = named(MEASURED), named(MEASURED).target()
    for one in validate_all(found, lambda line: print(line, file=sys.stderr)):
        for group, energies in zip(one.groups, one.energies, strict=True):
            task = task_of(group)
            places = {plan.text(): n for n, plan in enumerate(ranked(task, group.features, target))}
            place = np.array([places.get(plan.text(), LAST) for plan in group.plans], float)
            if place.min() < LAST:
                model = Model.of(task, group.features, architecture)
                cost = np.log2([model.predict(plan).total_us for plan in group.plans])
                yield one.op, {name: _regret(group, score(energies, cost, place)) for name, score in ORDERS.items()}


def _regret(group: Group, scores: Array) -> Regret:
    return regret(group, [int(n) for n in np.argsort(scores, kind="stable")])


def summary(tasks: Sequence[tuple[str, Mapping[str, Regret]]]) -> list[dict[str, Any]]:
    """A row for each op and order."""
    rows = []
    for op in sorted({op for op, _ in tasks}, reverse=True):
        for name in ORDERS:
            regrets = [found[name] for mine, found in tasks if mine == op]
            first, five = ([getattr(r, kind) for r in regrets] for kind in ("first", "five"))
            told = {
                "first": geometric_mean(first),
                "five": geometric_mean(five),
                "worst_first": max(first),
                "worst_five": max(five),
            }
            rows.append({"op": op, "order": name, "tasks": len(regrets)} | {key: round(v, 4) for key, v in told.items()})
    return rows


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranking", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="compare with what is committed, and write nothing")
    args = parser.parse_args(words)
    rows = summary(list(measured()))
    heads = ["op", "order", "tasks", "first", "five", "worst_first", "worst_five"]
    print(table(heads, [[number(row[h], 3) if isinstance(row[h], float) else str(row[h]) for h in heads] for row in rows]))
    if not args.check:
        OUT.write_text(json.dumps({"advance": ADVANCE, "weight": WEIGHT, "rows": rows}, indent=1) + "\n", encoding="utf-8")
        return 0
    there = json.loads(OUT.read_text(encoding="utf-8"))
    wrong = list(differences(rows, there["rows"], REGRETS_AWAY, OUT.name))
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong or not math.isclose(there["advance"], ADVANCE) or not math.isclose(there["weight"], WEIGHT) else 0


if __name__ == "__main__":
    sys.exit(main())
