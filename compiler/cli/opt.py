"""`ditto-opt`: any mixture of our passes and upstream's on an `.mlir` file, as `mlir-opt` users expect."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparseditto.compiler.cli.common import BAD_INPUT, OK, Parser, add_load_argument, guarded, run_and_report
from sparseditto.dialects.errors import DittoError, InputError

if TYPE_CHECKING:
    import argparse

    from sparseditto.dialects.target import Target
    from sparseditto.passes.pipeline_text import Item

PROGRAM = "ditto-opt"
SEPARATOR = "// -----"


def parser() -> Parser:
    p = Parser(prog=PROGRAM, description="Run passes, ours and upstream's, on MLIR.")
    p.add_argument("file", nargs="?", default="-", type=Path, help="the input ('-', the default, is standard input)")
    p.add_argument("-p", "--pipeline", default="", help="the passes, as 'a{x=1},func.func(b),c'")
    p.add_argument("-o", "--output", metavar="FILE", type=Path, help="write there instead of to standard output")
    p.add_argument("--split-input-file", action="store_true", help=f"process each part between '{SEPARATOR}' lines by itself")
    p.add_argument(
        "--verify-diagnostics", action="store_true", help="check diagnostics against expected-error comments; print nothing"
    )
    p.add_argument("--target", metavar="CHIP", default="sm_90", help="the GPU that passes are told (default %(default)s)")
    add_load_argument(p)
    p.add_argument("--mlir-print-debuginfo", action="store_true", help="print locations")
    p.add_argument("--mlir-print-op-generic", action="store_true", help="print the generic form")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    return guarded(PROGRAM, lambda: command(args), str(args.file) == "-")


def command(args: argparse.Namespace) -> int:
    from sparseditto.compiler.kernel import read_text
    from sparseditto.dialects.target import Target
    from sparseditto.passes.pipeline_text import parse_pipeline
    from sparseditto.passes.registry import load_file

    for path in args.load:
        load_file(path)
    items = parse_pipeline(args.pipeline) if args.pipeline.strip() else ()
    target = Target.named(args.target)
    chunks = split(read_text(args.file)) if args.split_input_file else [(0, read_text(args.file))]
    outputs: list[str] = []
    worst = OK
    for first_line, text in chunks:
        if args.verify_diagnostics:
            worst = max(worst, _verify(text, str(args.file), first_line, items, target))
        else:
            code = run_and_report(PROGRAM, lambda t=text, n=first_line: _process(args, t, n, items, target, outputs))  # type: ignore[misc]
            worst = max(worst, code)
    if not args.verify_diagnostics and outputs:
        _write(args.output, f"\n{SEPARATOR}\n".join(outputs))
    return worst


def split(text: str) -> list[tuple[int, str]]:
    """The parts of a file between separator lines, each with the number of lines before it."""
    parts: list[tuple[int, str]] = []
    current: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if line.strip() == SEPARATOR:
            parts.append((start, "".join(current)))
            current, start = [], number
        else:
            current.append(line)
    return [*parts, (start, "".join(current))]


def _process(
    args: argparse.Namespace, text: str, first_line: int, items: Sequence[Item], target: Target, outputs: list[str]
) -> int:
    from sparseditto.compiler.pipeline import run_items
    from sparseditto.dialects.binding import context, parse_module

    with context():
        module = parse_module("\n" * first_line + text, str(args.file))
        with module.context:
            run_items(module, items, target)
            outputs.append(
                module.operation.get_asm(
                    enable_debug_info=args.mlir_print_debuginfo, print_generic_op_form=args.mlir_print_op_generic
                )
            )
    return OK


def _verify(text: str, filename: str, first_line: int, items: Sequence[Item], target: Target) -> int:
    """Run and compare what was diagnosed with what the comments expect."""
    from sparseditto.compiler.cli.verify import Diagnostic, expectations, mismatches
    from sparseditto.compiler.pipeline import run_items
    from sparseditto.dialects.binding import context, diagnostics_to, parse_module

    padded = "\n" * first_line + text
    found: list[Diagnostic] = []
    with context(), diagnostics_to(lambda severity, message, where: found.append(Diagnostic.at(severity, message, where))):
        try:
            run_items(parse_module(padded, filename), items, target)
        except DittoError as e:
            found.append(Diagnostic.at("error", e.message, e.where or ""))
    problems = mismatches(expectations(padded), found)
    for problem in problems:
        print(f"{filename}:{problem}", file=sys.stderr)
    return BAD_INPUT if problems else OK


def _write(path: Path | None, text: str) -> None:
    if path is None:
        print(text, end="" if text.endswith("\n") else "\n")
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise InputError(f"cannot write there: {e.strerror}", where=str(path)) from e


if __name__ == "__main__":
    sys.exit(main())
