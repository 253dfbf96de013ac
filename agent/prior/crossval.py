"""How well a prior ranks plans of families that it has not learned from.

Matrices of one family are alike, so a family is never divided: its tasks are all learned from or all held out.  (The bins are
those of all matrices; they follow from features, not from times.)  The penalty has the least error on held-out plans of three.
The regret of an order is the time of its first plan, or of the best of its first five, over the best that was measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.agent.planner import Task, ranked
from sparseditto.agent.prior.fit import Array, Table
from sparseditto.agent.prior.subject import OPS
from sparseditto.agent.prior.training import Group
from sparseditto.dialects.errors import InputError
from sparseditto.dialects.target import Target

FOLDS = 10
PENALTIES = (300.0, 100.0, 30.0)
FEW = 5  # plans that a search can afford to measure


@dataclass(frozen=True)
class Regret:
    """Of one group: the first plan of an order, and the best of its first five, over the best."""

    first: float
    five: float


@dataclass(frozen=True)
class Validated:
    """What cross-validation found of one op: the penalty, the error for each, and each group's regret and energies, held out.

    The energies are those of the plans of a group, in their order.
    """

    op: str
    penalty: float
    errors: Mapping[float, float]
    groups: Sequence[Group]
    regrets: Sequence[Regret]
    energies: Sequence[Array]


def folds(families: Sequence[str], count: int = FOLDS) -> list[NDArray[np.bool_]]:
    """Which groups each fold holds out: whole families, the largest first into the fold that has fewest groups."""
    sizes = Counter(families)
    held: list[list[str]] = [[] for _ in range(min(count, len(sizes)))]
    for family in sorted(sizes, key=lambda name: (-sizes[name], name)):
        min(held, key=lambda names: sum(sizes[name] for name in names)).append(family)
    return [np.isin(np.array(families), names) for names in held]


def validate(op: str, groups: Sequence[Group], say: Callable[[str], None] = lambda line: None) -> Validated:
    """Choose the penalty and find what it leads to.  Raises `InputError` where there is one family only."""
    table = Table(groups)
    held_out = folds([group.family for group in groups])
    if len(held_out) < 2:
        raise InputError(f"{op}: all tasks are of one family; nothing can be held out")
    found = {penalty: np.zeros(table.target.size) for penalty in PENALTIES}
    for number, held in enumerate(held_out, 1):
        weights = None
        for penalty in PENALTIES:
            weights = table.solve(penalty, ~held, weights)
            rows = held[table.group]
            found[penalty][rows] = table.predict(weights)[rows]
        say(f"{op}: fold {number} of {len(held_out)}")
    errors = {penalty: _error(table, energies) for penalty, energies in found.items()}
    best = min(PENALTIES, key=lambda penalty: errors[penalty])
    energies = [found[best][table.group == number] for number in range(len(groups))]
    return Validated(op, best, errors, groups, [_regret(*pair) for pair in zip(groups, energies, strict=True)], energies)


def _error(table: Table, energies: Array) -> float:
    """Root mean square, each group about its mean."""
    return float(np.sqrt(np.mean(np.square(table.centred(energies - table.target)))))


def _regret(group: Group, energies: Array) -> Regret:
    return regret(group, [int(n) for n in np.argsort(energies, kind="stable")])


def regret(group: Group, order: Sequence[int]) -> Regret:
    """Of an order of the plans of a group, or of some of them."""
    slow = group.slowdowns()
    return Regret(slow[order[0]], min(slow[number] for number in order[:FEW]))


# --- What it is held against ------------------------------------------------------------------------------


def by_rules(group: Group) -> list[int]:
    """The measured plans in the order of the planner's rules of today, which propose some of them only."""
    task = task_of(group)
    places = {plan.text(): number for number, plan in enumerate(group.plans)}
    proposed = (plan.text() for plan in ranked(task, group.features, Target()))
    return [places[text] for text in proposed if text in places]


def task_of(group: Group) -> Task:
    """What a planner reads of a group's computation."""
    subject = group.subject
    columns = 0 if subject.op == OPS[0] else subject.columns
    return Task(True, True, columns, int(subject.numbers["value_bytes"]), kernel=group.kernel, shape=group.shape)


def at_random(group: Group) -> Regret:
    """The geometric mean over all orders."""
    logs = sorted(map(math.log, group.slowdowns()))
    few, count = min(FEW, len(logs)), len(logs)
    ways = [math.comb(count - 1 - best, few - 1) for best in range(count)]
    five = sum(w * log for w, log in zip(ways, logs, strict=True)) / math.comb(count, few)
    return Regret(math.exp(sum(logs) / count), math.exp(five))


def summary(validated: Sequence[Validated]) -> list[dict[str, Any]]:
    """A row for each op and K, and one for each op: the regret of the prior, of the rules and of chance.

    `rules_tasks` are those where the rules propose a plan that was measured; the others do not count in theirs.
    """
    rows = []
    for one in validated:
        widths = sorted({group.subject.columns for group in one.groups})
        for columns in [*(widths if len(widths) > 1 else []), None]:
            chosen = [n for n, group in enumerate(one.groups) if columns in (None, group.subject.columns)]
            rows.append({"op": one.op, "K": columns, **_row(one, chosen)})
    return rows


def _row(one: Validated, chosen: Sequence[int]) -> dict[str, Any]:
    groups = [one.groups[n] for n in chosen]
    orders = [(group, order) for group in groups if (order := by_rules(group))]
    kinds = {
        "prior": [one.regrets[n] for n in chosen],
        "rules": [regret(group, order) for group, order in orders],
        "random": [at_random(group) for group in groups],
    }
    found: dict[str, Any] = {"tasks": len(groups), "plans": sum(len(group.plans) for group in groups)}
    for name, regrets in kinds.items():
        found |= {f"{name}_first": _mean(r.first for r in regrets), f"{name}_five": _mean(r.five for r in regrets)}
    return found | {"rules_tasks": len(orders), "prior_five_worst": round(max(r.five for r in kinds["prior"]), 4)}


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return round(geometric_mean(known), 4) if known else None
