"""`pass_graph`: the graph of what passes declare, joined to the graph of a GPU; a pass that is registered is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

import networkx as nx

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.dialects.errors import InputError, did_you_mean
from sparseditto.passes.base import Bottleneck, Form, Kind, Pass, Resource
from sparseditto.passes.registry import registry


class Sort(Enum):
    """What a node is."""

    PASS = "pass"
    FORM = "form"
    BOTTLENECK = "bottleneck"
    RESOURCE = "resource"
    HARDWARE = "hardware"


class Edge(Enum):
    """What an edge means: from a pass to what it declares, or from a bottleneck or resource to where in a GPU it is."""

    REQUIRES = "requires"
    PROVIDES = "provides"
    REMOVES = "removes"
    EXCLUDES = "excludes"
    RELIEVES = "relieves"
    CONSUMES = "consumes"
    LIMITS = "limits"


AT: Mapping[Bottleneck, tuple[str, ...]] = {
    Bottleneck.LAUNCH: ("launch",),
    Bottleneck.BANDWIDTH: ("dram", "l2"),
    Bottleneck.COALESCING: ("l1",),
    Bottleneck.DIVERGENCE: ("scheduler",),
    Bottleneck.IMBALANCE: ("sm",),
    Bottleneck.LATENCY: ("dram", "l2", "l1"),
    Bottleneck.ISSUE: ("scheduler",),
    Bottleneck.ATOMICS: ("atomics",),
    Bottleneck.ROUNDING: ("fp32", "fp64"),
}
"""The nodes of an architecture that limit a kernel with each bottleneck."""

TAKEN_FROM: Mapping[Resource, tuple[str, ...]] = {
    Resource.REGISTERS: ("registers",),
    Resource.SHARED: ("shared",),
    Resource.SHUFFLE: ("shuffle",),
    Resource.ATOMICS: ("atomics",),
    Resource.CODE: ("scheduler",),
    Resource.PREPROCESSING: ("host",),
}
"""The nodes that each resource is taken from."""


def pass_graph(architecture: Architecture, passes: Mapping[str, type[Pass]] | None = None) -> nx.MultiDiGraph:
    """The graph of `passes` (default: all that are registered and may stand in a plan) on one GPU, frozen.

    Nodes are named `pass:unroll`, `form:rows`, `bottleneck:latency`, `resource:registers` and `hardware:l2`, with `sort`,
    `name` and `text`; edges have a `relation`, which is their key.  Hardware nodes are those of the architecture, with
    its own edges among them.
    """
    graph = nx.MultiDiGraph(name=architecture.name)
    for node, attributes in architecture.graph.nodes.data():
        _add(graph, Sort.HARDWARE, node, attributes["text"])
    for a, b, relation in architecture.graph.edges.data("relation"):
        graph.add_edge(f"hardware:{a}", f"hardware:{b}", key=relation, relation=relation)
    _add_words(graph)
    found = registry() if passes is None else passes
    for cls in sorted((c for c in found.values() if c.kind is not Kind.LOWERING), key=lambda c: c.name):
        here = _add(graph, Sort.PASS, cls.name, (cls.__doc__ or "").strip().split("\n", 1)[0])
        graph.nodes[here]["kind"] = cls.kind.value
        for relation, there in declared(cls):
            graph.add_edge(here, there, key=relation.value, relation=relation.value)
    return nx.freeze(graph)


def around(graph: nx.MultiDiGraph, name: str) -> nx.MultiDiGraph:
    """What a pass declares, and where in the GPU that is.  Raises `InputError` for a pass that is not in the graph."""
    here = f"{Sort.PASS.value}:{name}"
    if here not in graph:
        raise InputError(f"'{name}' is no pass of a plan{did_you_mean(name, (d['name'] for _, d in graph.nodes.data()))}")
    words = set(graph.successors(here))
    places = {place for word in words for place in graph.successors(word)}
    found = nx.MultiDiGraph(name=graph.name)
    found.add_nodes_from((node, data) for node, data in graph.nodes.data() if node in {here, *words, *places})
    for a, b, key, data in graph.edges(keys=True, data=True):
        if a == here or (a in words and b in places):
            found.add_edge(a, b, key=key, **data)
    return nx.freeze(found)


def declared(cls: type[Pass]) -> Iterator[tuple[Edge, str]]:
    """The edges of a pass: what each means, and the node that it leads to."""
    forms = ((Edge.REQUIRES, cls.requires), (Edge.PROVIDES, cls.provides), (Edge.REMOVES, cls.removes))
    for relation, these in (*forms, (Edge.EXCLUDES, cls.excludes)):
        yield from ((relation, node_of(form)) for form in these)
    yield from ((Edge.RELIEVES, node_of(bottleneck)) for bottleneck in cls.relieves)
    yield from ((Edge.CONSUMES, node_of(resource)) for resource in cls.consumes)


def node_of(word: Form | Bottleneck | Resource) -> str:
    """The node of what a pass declares."""
    if isinstance(word, Form):
        return f"{Sort.FORM.value}:{word.name.lower()}"
    sort = Sort.BOTTLENECK if isinstance(word, Bottleneck) else Sort.RESOURCE
    return f"{sort.value}:{word.value}"


def _add(graph: nx.MultiDiGraph, sort: Sort, name: str, text: str) -> str:
    node = f"{sort.value}:{name}"
    graph.add_node(node, sort=sort.value, name=name, text=text)
    return node


def _add_words(graph: nx.MultiDiGraph) -> None:
    """Forms, bottlenecks and resources, and where in the GPU these are."""
    for form in Form:
        _add(graph, Sort.FORM, form.name.lower(), form.value)
    where: list[tuple[Bottleneck | Resource, tuple[str, ...]]] = [*AT.items(), *TAKEN_FROM.items()]
    for word, places in where:
        node = node_of(word)
        graph.add_node(node, sort=node.partition(":")[0], name=word.value, text=word.value)
        for place in places:
            graph.add_edge(node, f"hardware:{place}", key=Edge.LIMITS.value, relation=Edge.LIMITS.value)
