"""How sizes are distributed: the lengths of rows, and how often columns are used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Distribution:
    """Different `sizes` in rising order, and how many members have each (`counts`; whole numbers unless they are sampled)."""

    sizes: NDArray[Any]
    counts: NDArray[Any]

    @staticmethod
    def of(sizes: NDArray[Any], weights: NDArray[Any]) -> Distribution:
        """The distribution of members with these sizes, each of which stands for so many."""
        different, place = np.unique(sizes, return_inverse=True)
        return Distribution(different, np.bincount(place, weights=weights, minlength=different.size))

    @property
    def members(self) -> float:
        return self.counts.sum().item()

    @property
    def empty(self) -> float:
        """How many have size 0."""
        return self.counts[self.sizes == 0].sum().item()

    @property
    def total(self) -> float:
        """The sum of all sizes."""
        return float(self.sizes.astype(np.float64) @ self.counts)

    @property
    def smallest(self) -> int:
        return int(self.sizes[0]) if self.sizes.size else 0

    @property
    def largest(self) -> int:
        return int(self.sizes[-1]) if self.sizes.size else 0

    @property
    def mean(self) -> float:
        return self.total / self.members if self.members else 0.0

    @property
    def variation(self) -> float:
        """The standard deviation over the mean, 0 where the mean is."""
        mean = self.mean
        return math.sqrt(((self.sizes - mean) ** 2 @ self.counts).item() / self.members) / mean if mean else 0.0

    def quantile(self, share: float) -> int:
        """The least size that at least this share of the members do not exceed (nearest rank), 0 where there are none."""
        if not self.sizes.size:
            return 0
        return int(self.sizes[np.searchsorted(np.cumsum(self.counts), _rank(share, self.members))])

    def held_by_largest(self, share: float) -> float:
        """The part of the total that the largest members hold: this share of them, rounded up to whole members."""
        wanted = math.ceil(_rank(share, self.members))
        before = np.cumsum(self.counts[::-1]) - self.counts[::-1]
        taken = np.clip(wanted - before, 0, self.counts[::-1])
        return float(self.sizes[::-1].astype(np.float64) @ taken) / self.total if self.total else 0.0

    def gini(self) -> float:
        """Twice the area between the Lorenz curve and the diagonal: 0 where all are equal, near 1 where one holds all."""
        if not self.total:
            return 0.0
        part = self.counts / self.members
        held = np.cumsum(self.sizes * self.counts) / self.total
        return float(1 - part @ (held + np.append(0, held[:-1])))

    def above(self, size: int) -> float:
        """The sum of what members exceed `size` by."""
        return float(np.maximum(self.sizes - size, 0).astype(np.float64) @ self.counts)


def _rank(share: float, members: float) -> float:
    """This share of the members; 0.01 of 700 are 7 and not a little more."""
    return share * members * (1 - 1e-12)
