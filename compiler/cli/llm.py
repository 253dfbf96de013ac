"""`sparseditto llm`: what sessions with language models have brought."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sparseditto.compiler.cli.common import OK, Parser, add_json_argument, emit_json


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "llm", help="sessions with language models", description="Compare sessions of `tune --agent llm` by their transcripts."
    )
    kinds = parser.add_subparsers(metavar="WHAT", required=True, parser_class=Parser)
    report = kinds.add_parser("report", help="compare sessions", description="A line a session: what it took, and who won.")
    report.add_argument("transcripts", metavar="FILE", nargs="+", type=Path, help="what `tune --transcript FILE` has written")
    add_json_argument(report)
    report.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    from sparseditto.agent.llm.report import line, table

    lines = [line(path) for path in args.transcripts]
    if args.json:
        emit_json([one.to_json() for one in lines])
    else:
        print(table(lines))
    return OK
