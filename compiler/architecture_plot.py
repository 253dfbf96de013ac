"""The graph of an architecture as a picture: resources by their distance from the pipes, with rates along the edges."""

from __future__ import annotations

from pathlib import Path

import networkx as nx

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.flow import rate_of
from sparseditto.agent.architecture.vocabulary import NODES, PIPES, Relation
from sparseditto.dialects.errors import InputError

_PLACES = {  # across, down
    "host": (0, 0),
    "launch": (2, 0),
    "gpu": (4, 0),
    "dram": (0, 1),
    "sm": (4, 1),
    "l2": (0, 2),
    "atomics": (2, 2),
    "l1": (0, 3),
    "shared": (2, 3),
    "shared_atomics": (4, 3),
    "registers": (1, 4),
    "scheduler": (4, 4),
    **{pipe: (k, 5) for k, pipe in enumerate(PIPES)},
}
_COLOURS = {"memory": "#9ecae1", "pipe": "#a1d99b", "unit": "#fdae6b", "control": "#bcbddc", "group": "#d9d9d9"}
_LINES = {
    Relation.DATA: ("#08519c", "solid"),
    Relation.CONTAINS: ("#bbbbbb", "dotted"),
    Relation.CONTROL: ("#756bb1", "dashed"),
}
_SHOWN = ("capacity", "rate", "latency")


def write_png(architecture: Architecture, path: Path) -> None:
    """Write the picture.  Raises `InputError` without matplotlib, or when it cannot write."""
    try:
        import matplotlib
    except ModuleNotFoundError as e:
        raise InputError(f"PNGs need matplotlib ({e}): pip install 'sparseditto[plot]'") from e
    matplotlib.use("agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 11), layout="constrained")
    axes = figure.subplots()
    axes.set_title(architecture.name)
    axes.set_axis_off()
    graph, places = architecture.graph, {node: (x, -y) for node, (x, y) in _PLACES.items()}
    nx.draw_networkx_nodes(
        graph, places, ax=axes, node_size=5200, node_shape="s", node_color=[_COLOURS[NODES[n][0]] for n in graph]
    )
    nx.draw_networkx_labels(graph, places, {node: _label(architecture, node) for node in graph}, ax=axes, font_size=7)
    for relation, (colour, style) in _LINES.items():
        edges = [(a, b) for a, b, r in graph.edges.data("relation") if r == relation.value]
        nx.draw_networkx_edges(graph, places, edges, ax=axes, edge_color=colour, style=style, node_size=5200, node_shape="s")
    rates = {edge: _rate(architecture, edge) for edge in graph.edges}
    nx.draw_networkx_edge_labels(graph, places, {edge: r for edge, r in rates.items() if r}, ax=axes, font_size=7)
    try:
        figure.savefig(path, dpi=120, format="png")
    except OSError as e:
        raise InputError(f"cannot write there: {e.strerror or e}", where=str(path)) from e


def _label(architecture: Architecture, node: str) -> str:
    known = (architecture.values.get(f"{node}.{name}") for name in _SHOWN)
    return "\n".join([node, *(str(quantity) for quantity in known if quantity is not None and quantity.value is not None)])


def _rate(architecture: Architecture, edge: tuple[str, str]) -> str:
    rate = rate_of(architecture, "->".join(edge))
    return "" if rate.value is None else str(rate)
