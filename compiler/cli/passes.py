"""`sparseditto passes`: what a plan can be made of, and how it hangs together."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import (
    OK,
    add_database_arguments,
    add_json_argument,
    add_load_argument,
    database_to_read,
    emit_json,
)
from sparseditto.compiler.cli.compile import print_notes
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    import networkx as nx

    from sparseditto.passes.base import Pass

GPU = "H200 SXM"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "passes", help="list passes", description="List passes, describe one, or show what they need and what they relieve."
    )
    parser.add_argument("name", nargs="?", help="the pass to describe")
    add_load_argument(parser)
    add_database_arguments(parser)
    parser.add_argument("--graph", action="store_true", help="the graph of passes and a GPU, or what is around one pass")
    parser.add_argument("--gpu", metavar="NAME", help=f"the GPU of the graph (default {GPU})")
    shape = parser.add_mutually_exclusive_group()
    add_json_argument(shape)
    shape.add_argument("--graphml", action="store_true", help="print the graph as GraphML")
    shape.add_argument("--dot", action="store_true", help="print the graph for Graphviz")
    parser.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    from sparseditto.agent.memory.composites import know_those_of
    from sparseditto.passes.registry import find, load_file, registry

    for path in args.load:
        load_file(path)
    print_notes(know_those_of(database_to_read(args)))
    chosen = [find(args.name)] if args.name else sorted(registry().values(), key=lambda c: (c.kind.value, c.name))
    if args.graph:
        _show_graph(args)
        return OK
    for option in ("gpu", "graphml", "dot"):
        if getattr(args, option):
            raise InputError(f"--{option} is for --graph")
    if args.json:
        emit_json([declaration(c) for c in chosen])
    elif args.name:
        print(describe(chosen[0]))
    else:
        width = max(len(c.name) for c in chosen)
        for c in chosen:
            print(f"{c.name:{width}}  {c.kind.value:14}  {summary(c)}")
    return OK


def _show_graph(args: argparse.Namespace) -> None:
    from sparseditto.agent.architecture.building import named
    from sparseditto.agent.graph import around, pass_graph, to_dot, to_graphml, to_json

    graph = pass_graph(named(args.gpu or GPU))
    if args.name:
        graph = around(graph, args.name)
    if args.json:
        emit_json(to_json(graph))
    elif args.graphml or args.dot:
        print(to_graphml(graph) if args.graphml else to_dot(graph), end="")
    else:
        print("\n".join(describe_graph(graph)))


def describe_graph(graph: nx.MultiDiGraph) -> list[str]:
    """What is said of each bottleneck, resource and form, for people: where it is, and the passes that name it."""
    lines = [graph.name]
    for node, data in graph.nodes.data():
        if data["sort"] not in ("bottleneck", "resource", "form"):
            continue
        named: dict[str, list[str]] = {}
        for _, place in graph.out_edges(node):
            named.setdefault("at", []).append(graph.nodes[place]["name"])
        for source, _, relation in graph.in_edges(node, keys=True):
            named.setdefault(_SAID[relation], []).append(graph.nodes[source]["name"])
        if named:
            text = f": {data['text']}" if data["text"] != data["name"] else ""
            lines += ["", f"{data['sort']} {data['name']}{text}"]
            lines += [f"  {said} {', '.join(names)}" for said, names in named.items()]
    return lines


_SAID = {
    "relieves": "relieved by",
    "consumes": "taken by",
    "requires": "needed by",
    "provides": "made by",
    "removes": "taken away by",
    "excludes": "refused by",
}
"""How the relation of a pass to a word reads from the word."""


def docstring(c: type[Pass]) -> str:
    """A pass's documentation, without indentation."""
    return inspect.getdoc(c) or ""


def summary(c: type[Pass]) -> str:
    """The first line of a pass's documentation."""
    return docstring(c).split("\n", 1)[0]


def declaration(c: type[Pass]) -> dict[str, Any]:
    """Everything that a pass declares, as data."""
    from sparseditto.passes.base import type_name

    return {
        "name": c.name,
        "kind": c.kind.value,
        "summary": summary(c),
        "options": [
            {
                "name": f.name.replace("_", "-"),
                "type": type_name(f),
                "default": f.default,
                "choices": f.metadata.get("choices"),
                "help": f.metadata.get("help", ""),
            }
            for f in dataclasses.fields(c)
        ],
        "relieves": [b.value for b in c.relieves],
        "consumes": [r.value for r in c.consumes],
        "requires": [f.name.lower() for f in c.requires],
        "provides": [f.name.lower() for f in c.provides],
        "removes": [f.name.lower() for f in c.removes],
        "excludes": [f.name.lower() for f in c.excludes],
    }


def describe(c: type[Pass]) -> str:
    """A pass's documentation with its options, for people and for the documentation's pages."""
    d = declaration(c)
    lines = [f"{c.name} ({c.kind.value} pass)", "", docstring(c)]
    if d["options"]:
        lines += ["", "Options:"]
    for o in d["options"]:
        domain = f", one of {', '.join(map(str, o['choices']))}" if o["choices"] else ""
        lines.append(f"  {o['name']} ({o['type']}, default {o['default']}{domain}): {o['help']}")
    for key in ("relieves", "consumes", "requires", "provides", "removes", "excludes"):
        if d[key]:
            lines.append(f"{key.capitalize()}: {', '.join(d[key])}")
    return "\n".join(lines)
