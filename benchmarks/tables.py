"""Means and Markdown tables, as the benchmarks print them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

Table = Sequence[Sequence[str]]


def geomean(values: Iterable[float]) -> float | None:
    """The geometric mean of what is above 0."""
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def table(head: Sequence[str], body: Table) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
