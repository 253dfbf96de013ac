"""What was measured on a GPU (`sparseditto arch probe`), and its place in the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.quantity import Quantity
from sparseditto.agent.architecture.table import lookup
from sparseditto.agent.architecture.vocabulary import MEASURABLE
from sparseditto.dialects.errors import InputError, did_you_mean

SCHEMA = 1


@dataclass(frozen=True)
class Measurements:
    """The `values` that a probe found on a GPU, by place and in `MEASURABLE`'s units, what it ran on and its raw `samples`."""

    gpu: str
    versions: Mapping[str, Any]
    values: Mapping[str, Quantity]
    samples: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        values = {place: quantity.to_json() for place, quantity in self.values.items()}
        return {
            "schema": SCHEMA,
            "gpu": self.gpu,
            "versions": dict(self.versions),
            "values": values,
            "samples": dict(self.samples),
        }

    @staticmethod
    def from_json(data: Any) -> Measurements:
        """Raises `InputError` on other schemas, places that no probe measures, other units, and what was not measured."""
        if not isinstance(data, dict) or set(data) != {"schema", "gpu", "versions", "values", "samples"}:
            raise InputError("these are no measurements (they have schema, gpu, versions, values and samples)")
        if data["schema"] != SCHEMA:
            raise InputError(f"the measurements are of schema {data['schema']}; this release reads {SCHEMA}")
        if not isinstance(data["values"], dict) or not isinstance(data["versions"], dict):
            raise InputError("the values and versions of measurements are objects")
        values = {place: _value(place, value) for place, value in data["values"].items()}
        return Measurements(str(data["gpu"]), data["versions"], values, data["samples"])


def _value(place: str, data: Any) -> Quantity:
    if place not in MEASURABLE:
        raise InputError(f"'{place}' is nothing that is measured{did_you_mean(place, MEASURABLE)}")
    quantity = Quantity.from_json(data)
    if quantity.kind != "measured" or quantity.unit != MEASURABLE[place] or not (quantity.number or 0) > 0:
        raise InputError(f"'{place}' needs a measured number of {MEASURABLE[place]}, not {quantity} ({quantity.kind})")
    return quantity


def with_measured(architecture: Architecture, measurements: Measurements) -> Architecture:
    """The architecture with what was measured; what was there is kept as alternates.  Raises `InputError` for another GPU."""
    entry = lookup(measurements.gpu)
    if (entry.name if entry else measurements.gpu) != architecture.name:
        raise InputError(f"these were measured on {measurements.gpu}, not on {architecture.name}")
    return architecture.with_values(measurements.values)
