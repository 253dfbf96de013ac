"""Bins of features: ranges between edges, each holding about as many of the matrices that were learned from as any other.

Weights of neighbouring bins are learned together.  Column k of `steps` says whether a value is above edge k, and a ridge on
the weights of these columns is one on the differences of neighbouring bins (the fused ridge of Land and Friedman, 1997): a bin
that few tasks are in does as its neighbours do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

BINS = 6

Edges = Mapping[str, tuple[float, ...]]
"""Of each feature, rising; a value that equals an edge is below it."""


def edges_of(values: Sequence[float]) -> tuple[float, ...]:
    """The quantiles that cut the values in `BINS` parts, each once; where no more values differ, each of them but the last."""
    different = np.unique(np.asarray(values, np.float64))
    if different.size <= BINS:
        return tuple(map(float, different[:-1]))
    cuts = np.unique(np.quantile(np.asarray(values), np.arange(1, BINS) / BINS))
    return tuple(float(f"{cut:.5g}") for cut in cuts if different[0] <= cut < different[-1])


def place(edges: Sequence[float], value: float) -> int:
    """The number of the bin of a value, from 0 on."""
    return int(np.searchsorted(np.asarray(edges, np.float64), value, side="left"))


def steps(edges: Edges, numbers: Sequence[Mapping[str, float]]) -> NDArray[np.float64]:
    """A row for each of `numbers`: 1, then for each edge of each feature whether the value is above it."""
    columns = [np.ones(len(numbers))]
    for name, cuts in edges.items():
        values = np.array([float(one[name]) for one in numbers])
        columns += [(values > cut).astype(np.float64) for cut in cuts]
    return np.stack(columns, axis=1)


def in_words(edges: Sequence[float], number: int) -> str:
    """`<= 8`, `8 to 64`, `> 64`."""
    if number == 0:
        return f"<= {edges[0]:g}"
    return f"> {edges[-1]:g}" if number == len(edges) else f"{edges[number - 1]:g} to {edges[number]:g}"
