"""Tasks like one that nobody measured: what their best plans were is where a search begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparseditto.agent.memory.database import Best, Database, Task
from sparseditto.agent.memory.keys import TaskKey


@dataclass(frozen=True)
class Near:
    """A task, how far it is away, and its best plan."""

    distance: float
    task: Task
    best: Best


def nearest(database: Database, key: TaskKey, features: Mapping[str, float], count: int) -> list[Near]:
    """The `count` nearest tasks of the same operator and GPU that have a plan with a right result, the nearest first.

    Compilers, sizes K and chips may differ; of tasks on one pattern with one K the latest counts, and the task itself is not
    among them.  Tasks whose features are not known are left out.
    """
    alike = database.tasks(
        "o.kernel = ? AND o.encoding = ? AND g.name = ? AND g.capability = ? AND s.features IS NOT NULL",
        (key.operator.kernel, key.operator.encoding, key.gpu.name, key.gpu.capability),
    )
    others = [task for task in reversed(alike) if task.key != key]
    away = distances(features, [task.features or {} for task in others])
    away = np.hypot(away, [_octaves(key.K, task.key.K) for task in others])
    found: dict[tuple[str, tuple[int, ...]], Near] = {}
    for place in np.argsort(away, kind="stable"):
        task = others[place]
        name = task.key.structure.pattern, task.key.K
        if len(found) < count and name not in found and (best := database.best(task.id)) is not None:
            found[name] = Near(float(away[place]), task, best)
    return list(found.values())


def distances(features: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
    """How far each of `others` is from `features`: the root mean square over the features that both have.

    A feature counts as `log(1 + |value|)`, in units of its standard deviation over all that are compared; one that is equal
    everywhere tells nothing.  Infinite where no feature is shared.
    """
    if not features or not others:
        return np.full(len(others), math.inf)
    names = sorted(features)
    table = [[_scaled(one.get(name)) for name in names] for one in (features, *others)]
    known = np.ma.masked_invalid(np.array(table).reshape(-1, len(names)))
    deviations = known.std(axis=0).filled(0.0)
    units = np.where(deviations > 1e-12, deviations, math.inf)
    squares = np.square((known[1:] - known[0]) / units)
    return np.ma.sqrt(squares.mean(axis=1)).filled(math.inf)


def _scaled(value: float | None) -> float:
    return math.nan if value is None else math.log1p(abs(float(value)))


def _octaves(k: Sequence[int], other: Sequence[int]) -> float:
    """How often the number of dense columns doubles from one to the other; none counts as one."""
    return abs(math.log2(max(math.prod(k), 1) / max(math.prod(other), 1)))
