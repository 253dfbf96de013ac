"""The `sparseditto` program: small subcommands, results on standard output, notes and errors on standard error.

Exit codes: 0 done, 1 a check failed, 2 the input is at fault, 3 an internal fault (with the command that repeats it).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version

from sparseditto.compiler.cli import arch, db, explain, features, inspect, learn, llm, pack, passes, prior, run, tune
from sparseditto.compiler.cli import compile as compile_command
from sparseditto.compiler.cli.common import Parser, guarded

PROGRAM = "sparseditto"


def parser() -> Parser:
    top = Parser(prog=PROGRAM, description="Compile sparse tensor algebra in MLIR to PTX tuned to one matrix and one GPU.")
    top.add_argument("--version", action="version", version=f"{PROGRAM} {version(PROGRAM)}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for module in (compile_command, run, tune, llm, explain, db, learn, prior, inspect, features, pack, passes, arch):
        module.add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    reads_stdin = str(getattr(args, "kernel", "")) == "-"
    return guarded(PROGRAM, lambda: int(args.func(args)), reads_stdin)


if __name__ == "__main__":
    sys.exit(main())
