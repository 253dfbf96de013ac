"""`sparseditto run`: a kernel or a package, on a GPU or under emulation."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.cli.common import (
    CHECK_FAILED,
    OK,
    add_database_arguments,
    add_json_argument,
    add_kernel_arguments,
    emit_json,
    natural,
    note,
)
from sparseditto.compiler.cli.compile import PROGRAM, compile_from, describe, print_notes, resources_of
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.agent.architecture.architecture import Architecture
    from sparseditto.compiler.api import Result
    from sparseditto.compiler.package import KernelPackage


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "run", help="run a kernel or a package", description="Run a compiled package, or compile a kernel and run it."
    )
    parser.add_argument("kernel", type=Path, help="an .mlir file ('-' for standard input) or a package that compile wrote")
    add_kernel_arguments(parser)
    add_database_arguments(parser)
    parser.add_argument(
        "--device", choices=("cuda", "simt"), help="where to run (default: cuda where there is a GPU, else simt)"
    )
    parser.add_argument("--check", action="store_true", help="compare with float64 on the host; exit 1 when it is wrong")
    parser.add_argument("--no-simt-checks", action="store_true", help="emulate without checking memory accesses, faster")
    parser.add_argument("--time", type=natural, metavar="ROUNDS", default=0, help="time that many graph replays (cuda)")
    parser.add_argument("--seed", type=natural, default=0, help="seed of the values of operands that are not bound")
    parser.add_argument("--result", metavar="FILE.npy", type=Path, help="write the output there")
    add_json_argument(parser)
    parser.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    from sparseditto.compiler.api import run
    from sparseditto.compiler.problem import parse_bindings, parse_sizes

    device = _device(args.device)
    package = _package(args, device)
    result = run(
        package,
        parse_bindings(args.bind),
        parse_sizes(args.size),
        device=device,
        seed=args.seed,
        checks=not args.no_simt_checks,
        verify=args.check,
        rounds=args.time,
    )
    print_notes(result.inputs.notes)
    if args.result is not None:
        _save(args.result, result.output)
    _report(args, result)
    return OK if result.check is None or result.check.passed else CHECK_FAILED


def _package(args: argparse.Namespace, device: str) -> KernelPackage:
    from sparseditto.compiler.package import KernelPackage

    if args.kernel.is_dir():
        for name in ("entry", "plan", "load", "print_ir_after", "dump_ir", "db", "no_db"):
            if getattr(args, name):
                raise InputError(f"--{name.replace('_', '-')} is for compiling, and {args.kernel} is compiled")
        return KernelPackage.load(args.kernel)
    compiled = compile_from(args, _at_hand() if device == "cuda" else None)
    if not args.json:
        print(describe(compiled, *resources_of(compiled)))
    return compiled.package


def _at_hand() -> Architecture | None:
    from sparseditto.agent.architecture.choosing import at_hand
    from sparseditto.compiler.runtimes.cuda import versions

    return at_hand(versions()["gpu"])


def _device(wanted: str | None) -> str:
    if wanted is not None:
        return wanted
    from sparseditto.compiler.runtimes.cuda import available

    reason = available()
    if reason is not None:
        note(PROGRAM, f"note: no GPU can be used ({reason}); running under emulation")
    return "cuda" if reason is None else "simt"


def _save(path: Path, output: np.ndarray[Any, Any]) -> None:
    try:
        with path.open("wb") as file:
            np.save(file, output.astype(np.float32) if output.dtype.name == "bfloat16" else output)  # .npy has no bfloat16
    except OSError as e:
        raise InputError(f"cannot write there: {e.strerror}", where=str(path)) from e


def _report(args: argparse.Namespace, result: Result) -> None:
    check, timing = result.check, result.timing
    if args.json:
        emit_json(
            {
                "device": result.device,
                "output": {"shape": list(result.output.shape), "dtype": str(result.output.dtype)},
                "check": check.to_json() if check else None,
                "timing": timing.to_json() if timing else None,
                "pack_seconds": result.inputs.pack_seconds,
                "pack_parts": dict(result.inputs.pack_parts),
            }
        )
        return
    print(f"ran on {result.device}: output {'x'.join(map(str, result.output.shape))} {result.output.dtype}")
    if check is not None:
        word = "passed" if check.passed else "FAILED"
        print(
            f"check {word}: worst error {check.worst:.2e} of |A|·|x| (allowed {check.tolerance:g}), "
            f"{check.wrong} of {check.components} components wrong"
            + (f", first at {check.first_wrong}" if check.first_wrong else "")
            + (f", {check.skipped} beyond the range of the type" if check.skipped else "")
        )
    if timing is not None:
        print(f"time: {timing.median_us:.2f} us a call ({timing.method} replay, median of {len(timing.samples_us)})")
