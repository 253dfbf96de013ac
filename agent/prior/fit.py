"""The fit: ridge regression on the logarithms of times, each task about its own mean.

    minimise over w:  sum over tasks t, plans p of t  ( y(p, t) - <w, x(p, t)> )^2  +  penalty |w|^2

where `y` is the base-2 logarithm of the time over the best time of the task, no more than `CAP`, and `x(p, t)` the outer
product of the choices of the plan (0 or 1 each) and the steps of the task's bins (`bins.steps`), both less their means over the
plans of the task: what makes a task slow whatever the plan is not asked.  The normal equations are solved by conjugate
gradients (Hestenes and Stiefel, 1952), with the outer products never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from sparseditto.agent.prior.bins import Edges, edges_of, steps
from sparseditto.agent.prior.choices import choices
from sparseditto.agent.prior.model import Choice, Model
from sparseditto.agent.prior.subject import FEATURES
from sparseditto.agent.prior.training import Group

CAP = 1.0  # log2 of a slowdown, beyond which a plan is as bad as any: those that could be the best are told apart
LEAST_TRIALS = 5  # of a choice, for it to have weights
TOLERANCE = 1e-4
MOST_STEPS = 2000

Array = NDArray[np.float64]


class Table:
    """The plans of groups as numbers: what is fitted, for any penalty and any choice of groups."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        words = [[choices(plan, group.subject) for plan in group.plans] for group in groups]
        total = sum(map(len, words))
        self.trials = {word: n for word, n in _apart(words).items() if LEAST_TRIALS <= n < total}
        self.edges = _edges(groups)
        self.steps: Array = steps(self.edges, [group.subject.numbers for group in groups])
        numbers = {word: number for number, word in enumerate(self.trials)}
        self.group = np.repeat(np.arange(len(groups)), list(map(len, words)))
        flat = [[numbers[word] for word in plan if word in numbers] for group in words for plan in group]
        self.plan = np.repeat(np.arange(total), list(map(len, flat)))
        self.choice = np.array([number for plan in flat for number in plan], np.int64)
        slow = np.log2([ratio for group in groups for ratio in group.slowdowns()])
        self.target: Array = np.minimum(slow, CAP)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.trials), self.steps.shape[1]

    def solve(self, penalty: float, chosen: NDArray[np.bool_] | None = None, start: Array | None = None) -> Array:
        """The weights, a row a choice and a column a step, that fit the chosen groups (default: all)."""
        among = np.ones(len(self.groups), bool) if chosen is None else chosen
        system = _System(self, among)
        matrix = LinearOperator(
            (system.size, system.size), matvec=lambda w: system.adjoint(system.apply(w)) + penalty * w, dtype=np.float64
        )
        at_first = None if start is None else start.ravel()
        found, _ = cg(matrix, system.adjoint(system.target), x0=at_first, rtol=TOLERANCE, maxiter=MOST_STEPS)
        return np.asarray(found).reshape(self.shape)

    def predict(self, weights: Array) -> Array:
        """The energy of every plan."""
        by_group = weights @ self.steps.T
        return _sums(self.plan, by_group[self.choice, self.group[self.plan]], self.target.size)

    def centred(self, values: Array) -> Array:
        """Less their mean over the plans of each group."""
        counts = np.bincount(self.group, minlength=len(self.groups))
        means = _sums(self.group, values, len(self.groups)) / counts
        centred: Array = values - means[self.group]
        return centred

    def model(self, weights: Array) -> Model:
        """The weights by bin, so that those of the groups' bins are 0 on average for each feature."""
        return Model(
            self.edges, {word: self._choice(row, n) for row, (word, n) in zip(weights, self.trials.items(), strict=True)}
        )

    def _choice(self, row: Array, trials: int) -> Choice:
        bias, at, of_bins = float(row[0]), 1, {}
        for name, cuts in self.edges.items():
            values = np.concatenate([[0.0], np.cumsum(row[at : at + len(cuts)])])
            share = np.bincount(self.steps[:, at : at + len(cuts)].sum(axis=1).astype(np.int64), minlength=len(cuts) + 1)
            mean = float(values @ share / share.sum())
            bias, of_bins[name] = bias + mean, tuple(float(v) for v in values - mean)
            at += len(cuts)
        return Choice(trials, bias, of_bins)


class _System:
    """The matrix of some groups' plans, each group about its mean, as two functions."""

    def __init__(self, table: Table, among: NDArray[np.bool_]) -> None:
        self.table = table
        self.rows = among[table.group]
        inside = self.rows[table.plan]
        self.plan, self.choice = table.plan[inside], table.choice[inside]
        self.groups = table.group[self.plan]
        self.size = table.shape[0] * table.shape[1]
        self.target = self._centred(table.target)

    def _centred(self, values: Array) -> Array:
        return np.where(self.rows, self.table.centred(values), 0.0)

    def apply(self, weights: Array) -> Array:
        by_group = weights.reshape(self.table.shape) @ self.table.steps.T
        return self._centred(_sums(self.plan, by_group[self.choice, self.groups], self.rows.size))

    def adjoint(self, values: Array) -> Array:
        count = len(self.table.groups)
        centred = self._centred(values)
        places = self.choice * count + self.groups
        by_group = _sums(places, centred[self.plan], self.table.shape[0] * count).reshape(-1, count)
        product: Array = by_group @ self.table.steps
        return product.ravel()


def _apart(words: Sequence[Sequence[Sequence[str]]]) -> dict[str, int]:
    """The words by how many plans have each; of words that the same plans have, the shortest only."""
    having: dict[str, list[int]] = {}
    for number, word in ((n, word) for n, plan in enumerate(chain.from_iterable(words)) for word in plan):
        having.setdefault(word, []).append(number)
    alike: dict[tuple[int, ...], str] = {}
    for word in sorted(having, key=lambda w: (len(w), w)):
        alike.setdefault(tuple(having[word]), word)
    return {word: len(plans) for plans, word in sorted(alike.items(), key=lambda pair: pair[1])}


def _sums(places: NDArray[np.int64], values: Array, count: int) -> Array:
    """What falls on each place, added up."""
    return np.bincount(places, values, count).astype(np.float64)


def _edges(groups: Sequence[Group]) -> Edges:
    """Of each feature that is not the same in all groups."""
    found = {}
    for name in FEATURES:
        cuts = edges_of([float(group.subject.numbers[name]) for group in groups])
        if cuts:
            found[name] = cuts
    return found


def fit(groups: Sequence[Group], penalty: float) -> Model:
    """The model of the plans of one op."""
    table = Table(groups)
    return table.model(table.solve(penalty))
