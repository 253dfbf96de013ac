"""Questions to the pass graph, and walks on it: from what limits a plan to legal plans that have less of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import networkx as nx

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.occupancy import Violation
from sparseditto.agent.cost import Cost, Model, violations
from sparseditto.agent.graph.building import Edge, Sort, node_of
from sparseditto.agent.space import Move, Space
from sparseditto.passes.base import Bottleneck, Resource
from sparseditto.passes.plan import Plan


@dataclass(frozen=True)
class Walk:
    """One way on from a plan: the `bottleneck` that limits it, the `hardware` where that is, the `passes` that relieve it and
    that the `move` brings or changes, and what the plan then costs.  `refused` says why the GPU cannot run it.
    """

    bottleneck: Bottleneck
    hardware: tuple[str, ...]
    passes: tuple[str, ...]
    move: Move
    cost: Cost
    refused: tuple[Violation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "bottleneck": self.bottleneck.value,
            "hardware": list(self.hardware),
            "passes": list(self.passes),
            "move": self.move.label,
            "plan": self.move.plan.text(),
            "us": self.cost.total_us,
            "refused": [str(v) for v in self.refused],
        }


def relieving(graph: nx.MultiDiGraph, bottleneck: Bottleneck) -> tuple[str, ...]:
    """The names of the passes that relieve a bottleneck."""
    return _passes_to(graph, node_of(bottleneck), Edge.RELIEVES)


def consuming(graph: nx.MultiDiGraph, resource: Resource) -> tuple[str, ...]:
    """The names of the passes that take more of a resource."""
    return _passes_to(graph, node_of(resource), Edge.CONSUMES)


def hardware_of(graph: nx.MultiDiGraph, word: Bottleneck | Resource) -> tuple[str, ...]:
    """The nodes of the GPU where a bottleneck is, or that a resource is taken from."""
    found = (b for _, b, key in graph.out_edges(node_of(word), keys=True) if key == Edge.LIMITS.value)
    return tuple(node.removeprefix(f"{Sort.HARDWARE.value}:") for node in found)


def walks(graph: nx.MultiDiGraph, plan: Plan, space: Space, architecture: Architecture) -> list[Walk]:
    """The moves of `space` that relieve what limits `plan`: those that the GPU can run first, the cheapest of them first.

    A move relieves it where a step that it brings, or brings with other options, says so.  Raises `InputError` where the
    features of the matrix or its number of dense columns are not known.
    """
    model = Model.of(space.context.task, space.context.features, architecture)
    bottleneck = model.predict(plan).bottleneck
    helpful, where = set(relieving(graph, bottleneck)), hardware_of(graph, bottleneck)
    found = []
    for move in space.moves(plan):
        new = tuple(dict.fromkeys(step.name for step in move.plan.steps if step not in plan.steps and step.name in helpful))
        if new:
            refused = tuple(violations(move.plan, model.task, model.features, architecture))
            found.append(Walk(bottleneck, where, new, move, model.predict(move.plan), refused))
    return sorted(found, key=lambda walk: (bool(walk.refused), walk.cost.total_us))


def _passes_to(graph: nx.MultiDiGraph, node: str, relation: Edge) -> tuple[str, ...]:
    found = (a for a, _, key in graph.in_edges(node, keys=True) if key == relation.value)
    return tuple(graph.nodes[a]["name"] for a in found)
