"""`Architecture`: the graph of one GPU, which round-trips through JSON and is written as GraphML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparseditto.agent.architecture.quantity import Alternate, Quantity
from sparseditto.agent.architecture.vocabulary import EDGES, MEMORIES, NODES, Relation, ends
from sparseditto.dialects.errors import InputError, Unsupported
from sparseditto.dialects.target import CHIPS, Target

if TYPE_CHECKING:
    import networkx as nx

SCHEMA = 1
_TAGS = {"sort", "text", "relation"}  # attributes of the graph that are no quantities


@dataclass(frozen=True, eq=False)
class Architecture:
    """The resources of one GPU and the paths between them.

    `graph` has the nodes and edges of `vocabulary.py`; every other attribute of theirs is a `Quantity`.  The graph is frozen
    (networkx refuses new nodes and edges); `with_values` gives a changed copy.
    """

    name: str
    graph: nx.DiGraph

    @staticmethod
    def of(name: str, values: Mapping[str, Quantity]) -> Architecture:
        """The graph of a GPU from its values, by place ("l2.capacity", "dram->l2.rate").

        Without asynchronous copies the edge from L2 to shared memory is left out.  A path between memories for which
        nothing is given has an unknown rate.  Raises `InputError` on a place that the graph does not have.
        """
        import networkx as nx  # a tenth of a second, for which a compiler that is told its plan does not wait

        copies = values.get("sm.async_copy")
        graph = nx.DiGraph(name=name)
        for node, (sort, text) in NODES.items():
            graph.add_node(node, sort=sort, text=text)
        for edge, relation in EDGES.items():
            if edge != ("l2", "shared") or (copies is not None and copies.value):
                graph.add_edge(*edge, relation=relation.value)
        for place, quantity in values.items():
            attributes, attribute = _attributes(graph, place)
            attributes[attribute] = quantity
        for source, target, relation in graph.edges.data("relation"):
            if relation == Relation.DATA.value and {source, target} <= MEMORIES:
                graph.edges[source, target].setdefault("rate", Quantity.unknown("GB/s"))
        return Architecture(name, nx.freeze(graph))

    @cached_property
    def values(self) -> Mapping[str, Quantity]:
        """Every quantity by its place, in the order of the graph."""
        return MappingProxyType(dict(self._places()))

    def _places(self) -> Iterator[tuple[str, Quantity]]:
        for where, attributes in self._parts():
            for attribute, quantity in attributes.items():
                if attribute not in _TAGS:
                    yield f"{where}.{attribute}", quantity

    def _parts(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from self.graph.nodes.data()
        for source, target, attributes in self.graph.edges.data():
            yield f"{source}->{target}", attributes

    def get(self, place: str) -> Quantity:
        """The quantity at `place` ("l2.capacity").  Raises `InputError` where the graph has none."""
        found = self.values.get(place)
        if found is None:
            raise InputError(f"the graph of {self.name} has no '{place}'")
        return found

    def number(self, place: str) -> float | None:
        """The number at `place`; None where it is not known or the graph has no such value."""
        found = self.values.get(place)
        return None if found is None else found.number

    def needed(self, place: str) -> float:
        """The number at `place`.  Raises `Unsupported` where it is not known."""
        number = self.number(place)
        if number is None:
            raise Unsupported(f"'{place}' is not known, and this needs it", where=self.name)
        return number

    def with_values(self, values: Mapping[str, Quantity]) -> Architecture:
        """A copy in which these values replace what was there, which is kept as an alternate."""
        held = self.values
        return Architecture.of(self.name, {**held, **{p: superseding(q, held.get(p)) for p, q in values.items()}})

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, (9, 0)."""
        major, _, minor = str(self.get("gpu.compute_capability").value).partition(".")
        return int(major), int(minor)

    def target(self) -> Target:
        """What passes read: the newest chip whose PTX runs here, with this GPU's own limits.

        Raises `Unsupported` for a GPU that is older than every chip that we compile for.
        """
        chips = {tuple(divmod(int(chip.removeprefix("sm_")), 10)): chip for chip in CHIPS if chip[-1].isdigit()}
        fitting = [capability for capability in chips if capability <= self.capability]
        if not fitting:
            raise Unsupported("nothing here compiles for compute capability {}.{}".format(*self.capability), where=self.name)
        target = Target.named(chips[max(fitting)])
        count = self.number("gpu->sm.count")
        return replace(
            target,
            warp_size=int(self.needed("sm.warp_size")),
            threads_per_multiprocessor=int(self.needed("sm.max_threads")),
            multiprocessors=target.multiprocessors if count is None else int(count),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Architecture) and self.name == other.name and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.name)

    def to_json(self) -> dict[str, Any]:
        """`nodes` and `edges` by name, each with what it is and its quantities."""

        def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
            return {key: v.to_json() if isinstance(v, Quantity) else v for key, v in attributes.items()}

        return {
            "schema": SCHEMA,
            "name": self.name,
            "nodes": {node: plain(attributes) for node, attributes in self.graph.nodes.data()},
            "edges": {f"{a}->{b}": plain(attributes) for a, b, attributes in self.graph.edges.data()},
        }

    @staticmethod
    def from_json(data: Any) -> Architecture:
        """Raises `InputError` on other schemas and on nodes, edges or values that the vocabulary does not have."""
        if not isinstance(data, dict) or set(data) != {"schema", "name", "nodes", "edges"}:
            raise InputError("this is no architecture (it has schema, name, nodes and edges)")
        if data["schema"] != SCHEMA:
            raise InputError(f"the architecture is of schema {data['schema']}; this release reads {SCHEMA}")
        values: dict[str, Quantity] = {}
        for where, attributes in {**data["nodes"], **data["edges"]}.items():
            for key, value in attributes.items():
                if key not in _TAGS:
                    values[f"{where}.{key}"] = Quantity.from_json(value)
        made = Architecture.of(str(data["name"]), values)
        if made.to_json() != data:
            raise InputError(f"the graph of {data['name']} is not made of the nodes and edges of this release")
        return made

    def to_graphml(self) -> str:
        """The graph as GraphML.  A quantity `rate` becomes `rate` (left out where it is not known), `rate.unit`, `rate.kind`,
        `rate.source`, `rate.note` and `rate.alternates` (as JSON); lists become text with commas.
        """
        import networkx as nx

        plain = nx.DiGraph(name=self.name)
        for node, attributes in self.graph.nodes.data():
            plain.add_node(node, **_flat(attributes))
        for source, target, attributes in self.graph.edges.data():
            plain.add_edge(source, target, **_flat(attributes))
        return "\n".join(nx.generate_graphml(plain)) + "\n"


def superseding(new: Quantity, old: Quantity | None) -> Quantity:
    """`new`, with what `old` said as alternates."""
    if old is None or old.value is None or old == new:
        return replace(new, alternates=new.alternates + (old.alternates if old and old != new else ()))
    unit = f" (in {old.unit})" if old.unit != new.unit else ""
    return replace(new, alternates=(*new.alternates, Alternate(old.value, old.source + unit, old.note), *old.alternates))


def _attributes(graph: nx.DiGraph, place: str) -> tuple[dict[str, Any], str]:
    """The attributes of the node or edge that `place` names, and the name of the one that it means."""
    where, _, attribute = place.rpartition(".")
    edge = ends(where)
    has = graph.has_edge(*edge) if edge else graph.has_node(where)
    if not has or not attribute or attribute in _TAGS:
        raise InputError(f"an architecture has no place '{place}'")
    return (graph.edges[edge] if edge else graph.nodes[where]), attribute


def _flat(attributes: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in attributes.items():
        if not isinstance(value, Quantity):
            flat[key] = value
            continue
        if value.value is not None:
            flat[key] = ", ".join(map(str, value.value)) if isinstance(value.value, tuple) else value.value
        parts = {"unit": value.unit, "kind": value.kind, "source": value.source, "note": value.note}
        if value.alternates:
            parts["alternates"] = json.dumps([a.to_json() for a in value.alternates])
        flat |= {f"{key}.{part}": text for part, text in parts.items() if text}
    return flat
