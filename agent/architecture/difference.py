"""What differs between two architectures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.quantity import Quantity


@dataclass(frozen=True)
class Difference:
    """A place with two values (None: the graph lacks it), and the second over the first where both are numbers in one unit."""

    place: str
    first: Quantity | None
    second: Quantity | None
    ratio: float | None

    def to_json(self) -> dict[str, Any]:
        values = {"first": self.first, "second": self.second}
        return {"place": self.place, "ratio": self.ratio} | {k: None if q is None else q.to_json() for k, q in values.items()}


def difference(a: Architecture, b: Architecture) -> list[Difference]:
    """Every place where the values of `a` and `b` differ, in the order of the graph."""
    places = dict.fromkeys([*a.values, *b.values])
    pairs = ((place, a.values.get(place), b.values.get(place)) for place in places)
    return [Difference(place, x, y, _ratio(x, y)) for place, x, y in pairs if _stated(x) != _stated(y)]


def _stated(quantity: Quantity | None) -> object:
    return None if quantity is None else (quantity.value, quantity.unit)


def _ratio(a: Quantity | None, b: Quantity | None) -> float | None:
    if a is None or b is None or a.unit != b.unit or a.number is None or b.number is None or not a.number:
        return None
    return b.number / a.number
