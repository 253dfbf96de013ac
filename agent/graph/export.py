"""The pass graph as JSON, GraphML and Graphviz's DOT."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx

SCHEMA = 1
_SHAPES = {"pass": "box", "form": "ellipse", "bottleneck": "octagon", "resource": "cds", "hardware": "component"}


def to_json(graph: nx.MultiDiGraph) -> dict[str, Any]:
    """`nodes` by name with what they are, and `edges` as objects with `source`, `target` and `relation`."""
    edges = [{"source": a, "target": b, "relation": relation} for a, b, relation in graph.edges.data("relation")]
    return {"schema": SCHEMA, "name": graph.name, "nodes": {n: dict(d) for n, d in graph.nodes.data()}, "edges": edges}


def to_graphml(graph: nx.MultiDiGraph) -> str:
    return "\n".join(nx.generate_graphml(graph)) + "\n"


def to_dot(graph: nx.MultiDiGraph) -> str:
    """For `dot -Tsvg`."""
    lines = [f"digraph {_quoted(graph.name)} {{", "  rankdir=LR;"]
    for node, data in graph.nodes.data():
        lines.append(f"  {_quoted(node)} [label={_quoted(data['name'])}, shape={_SHAPES[data['sort']]}];")
    for a, b, relation in graph.edges.data("relation"):
        lines.append(f"  {_quoted(a)} -> {_quoted(b)} [label={_quoted(relation)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """JSON escapes quotes and backslashes as DOT does."""
    return json.dumps(text, ensure_ascii=False)
