"""`sparseditto passes`: what a plan can be made of."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import OK, add_json_argument, add_load_argument, emit_json

if TYPE_CHECKING:
    from sparseditto.passes.base import Pass


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("passes", help="list passes", description="List passes, or describe one.")
    parser.add_argument("name", nargs="?", help="the pass to describe")
    add_load_argument(parser)
    add_json_argument(parser)
    parser.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    from sparseditto.passes.registry import find, load_file, registry

    for path in args.load:
        load_file(path)
    chosen = [find(args.name)] if args.name else sorted(registry().values(), key=lambda c: (c.kind.value, c.name))
    if args.json:
        emit_json([declaration(c) for c in chosen])
    elif args.name:
        print(describe(chosen[0]))
    else:
        width = max(len(c.name) for c in chosen)
        for c in chosen:
            print(f"{c.name:{width}}  {c.kind.value:14}  {summary(c)}")
    return OK


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
