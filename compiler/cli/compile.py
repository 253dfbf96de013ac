"""`sparseditto compile`: a kernel to a package with PTX."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import (
    OK,
    add_database_arguments,
    add_json_argument,
    add_kernel_arguments,
    database_to_read,
    default_output,
    emit_json,
    note,
)
from sparseditto.dialects.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from sparseditto.agent.architecture.architecture import Architecture
    from sparseditto.compiler.driver import Compiled, Observer

PROGRAM = "sparseditto"
_STAGES = ("S0", "S1", "S2", "S3", "S4", "S5")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compile", help="compile a kernel to PTX", description="Compile the sparse kernel in an .mlir file to PTX."
    )
    parser.add_argument("kernel", type=Path, help="the .mlir file ('-' for standard input)")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="the package to write (default: NAME.ditto here)")
    add_kernel_arguments(parser)
    add_database_arguments(parser)
    add_json_argument(parser)
    parser.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    compiled = compile_from(args)
    output = args.output or default_output(compiled.package.computation.entry)
    compiled.package.save(output)
    resources, reason = resources_of(compiled)
    if args.json:
        emit_json(
            {
                "output": str(output),
                "ptx": str(output / "kernel.ptx"),
                "plan": compiled.plan.text(),
                "digest": compiled.plan.digest(),
                "features": compiled.features.to_json() if compiled.features else None,
                "seconds": dict(compiled.seconds),
                "resources": resources,
                "package": compiled.package.to_json(),
            }
        )
        return OK
    print(describe(compiled, resources, reason))
    print(f"PTX: {output / 'kernel.ptx'}")
    return OK


def compile_from(args: argparse.Namespace, architecture: Architecture | None = None) -> Compiled:
    """Compile as the arguments say, for `architecture` where it is known; prints notes and the IR that was asked for."""
    from sparseditto.compiler.api import compile_file
    from sparseditto.compiler.problem import parse_bindings, parse_sizes
    from sparseditto.passes.registry import load_file

    for path in args.load:
        load_file(path)
    compiled = compile_file(
        args.kernel,
        parse_bindings(args.bind),
        parse_sizes(args.size),
        entry=args.entry,
        chip=args.target,
        plan=args.plan,
        observe=_observer(args),
        database=database_to_read(args),
        architecture=architecture,
    )
    print_notes(compiled.notes)
    return compiled


def _observer(args: argparse.Namespace) -> Observer | None:
    wanted = set(_STAGES) if "all" in args.print_ir_after else set(args.print_ir_after)
    for stage in wanted:
        if stage not in _STAGES:
            raise InputError(
                f"no stage is named '{stage}'{did_you_mean(stage, _STAGES)}; there are {', '.join(_STAGES)} and all"
            )
    folder: Path | None = args.dump_ir
    if not wanted and folder is None:
        return None
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"cannot write there: {e.strerror}", where=str(folder)) from e

    def observe(stage: str, text: str) -> None:
        if stage in wanted:
            print(f"// -----// IR after {stage} //----- //\n{text}", file=sys.stderr)
        if folder is not None:
            try:
                (folder / f"{stage}.{'ptx' if stage == 'S5' else 'mlir'}").write_text(text, encoding="utf-8")
            except OSError as e:
                raise InputError(f"cannot write there: {e.strerror}", where=str(folder)) from e

    return observe


def resources_of(compiled: Compiled) -> tuple[list[dict[str, Any]] | None, str]:
    """Registers, spills and shared memory by `ptxas`, or None and why not."""
    from sparseditto.compiler.runtimes.resources import ptxas_resources

    found, reason = ptxas_resources(compiled.package.ptx, compiled.package.chip)
    return (None, reason) if found is None else ([r.to_json() for r in found], "")


def describe(compiled: Compiled, resources: list[dict[str, Any]] | None, reason: str) -> str:
    """Plan, launches and resources, for people."""
    package = compiled.package
    lines = [f"kernel: {package.computation.entry} ({package.computation.op}) for {package.chip}"]
    if compiled.features is not None:
        f = compiled.features
        lines.append(f"matrix: {f.rows} x {f.columns}, {f.entries} entries, {f.mean_row:.1f} a row (at most {f.max_row})")
    lines.append(f"plan: {compiled.plan.text()}  [{compiled.plan.digest()}]")
    for launch in package.launches:
        lines.append(f"launch: {launch.kernel}, grid {launch.grid[0]}, block {launch.block[0]}")
    if resources is None:
        lines.append(f"resources: not known ({reason})")
    for r in resources or []:
        lines.append(
            f"resources: {r['kernel']}, {r['registers']} registers, {r.get('spill_bytes', 0)} bytes spilled, "
            f"{r.get('shared_bytes', 0)} bytes of shared memory"
        )
    lines.append(f"time: {1e3 * compiled.seconds['compile']:.0f} ms to compile")
    return "\n".join(lines)


def print_notes(notes: Iterable[str]) -> None:
    for text in notes:
        note(PROGRAM, f"note: {text}")
