"""Passes, what they need and what they relieve, and the GPU where that happens, as one graph (docs/cost.md)."""

from sparseditto.agent.graph.building import AT, TAKEN_FROM, Edge, Sort, around, pass_graph
from sparseditto.agent.graph.export import to_dot, to_graphml, to_json
from sparseditto.agent.graph.walks import Walk, consuming, hardware_of, relieving, walks

__all__ = [
    "AT",
    "TAKEN_FROM",
    "Edge",
    "Sort",
    "Walk",
    "around",
    "consuming",
    "hardware_of",
    "pass_graph",
    "relieving",
    "to_dot",
    "to_graphml",
    "to_json",
    "walks",
]
