"""All features in one mapping, and the one table of what they mean."""

from __future__ import annotations

from typing import Any

from sparseditto.agent.features.definition import Definition, Kind, definitions_of
from sparseditto.agent.features.hardware import Fit, Hardware, fit
from sparseditto.agent.features.operation import Operation, Product
from sparseditto.agent.features.pattern import Features
from sparseditto.agent.features.storage import Storage, storage

DECLARED = (Features, Storage, Operation, Product, Fit)


def definitions() -> tuple[Definition, ...]:
    """Every feature that there is, each name once, by kind."""
    declared = (d for cls in DECLARED for d in definitions_of(cls))
    return tuple(sorted(declared, key=lambda d: list(Kind).index(d.kind)))


def describe(
    f: Features,
    value_bytes: int = 4,
    operation: Operation | None = None,
    product: Product | None = None,
    gpu: Hardware | None = None,
) -> dict[str, Any]:
    """Every feature that follows from these, by name; those of a GPU need an operation.  Values have `value_bytes`."""
    assert gpu is None or operation is not None
    found = f.to_json() | storage(f, value_bytes).to_json()
    for known in (operation, product, fit(f, operation, gpu) if operation and gpu else None):
        found |= known.to_json() if known is not None else {}
    return found


def estimates(f: Features, product: Product | None = None) -> frozenset[str]:
    """The names of the features in `describe` that are estimates."""
    sampled = f.sampled < 1 or (product is not None and product.product_sampled < 1)
    exact = {d.name for d in definitions_of(Features) + definitions_of(Storage)} if f.sampled == 1 else set[str]()
    return frozenset(d.name for d in definitions() if d.estimated and d.name not in exact) if sampled else frozenset()
