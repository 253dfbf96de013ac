"""`sparseditto tune`: measure many plans for a kernel and a matrix, and keep the best."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import (
    INTERRUPTED,
    OK,
    add_database_arguments,
    add_json_argument,
    add_load_argument,
    add_operand_arguments,
    database_of,
    default_output,
    emit_json,
    natural,
    note,
)
from sparseditto.compiler.cli.compile import print_notes

if TYPE_CHECKING:
    from sparseditto.compiler.tuning import Progress, Trial, TuningResult

PROGRAM = "sparseditto"
_EVERY_S = 10.0  # a line, where the progress does not stay in one


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "tune",
        help="find the fastest plan by measuring",
        description="Compile and measure many plans of a kernel on a matrix, and write the fastest as a package.",
    )
    parser.add_argument("kernel", type=Path, help="the .mlir file ('-' for standard input)")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, help="the package to write (default: NAME.ditto here)")
    add_operand_arguments(parser)
    parser.add_argument(
        "--budget", metavar="N|Ns", default="64", help="candidates (64), time (20s, 2m) or both (64,20s); default %(default)s"
    )
    parser.add_argument(
        "--plan", metavar="PLAN", action="append", default=[], help="measure these plans only (text, JSON file or package)"
    )
    add_load_argument(parser)
    parser.add_argument(
        "--device", choices=("cuda", "simt"), help="where to measure (default: cuda where there is a GPU, else simt)"
    )
    add_database_arguments(parser)
    parser.add_argument("--workers", metavar="N", type=int, help="processes that compile (default: one a processor)")
    parser.add_argument("--seed", type=natural, default=0, help="seed of the values of operands that are not bound")
    add_json_argument(parser)
    parser.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    from sparseditto.agent.memory.composites import know_those_of
    from sparseditto.agent.tuner import Budget
    from sparseditto.compiler.api import read_plan
    from sparseditto.compiler.problem import parse_bindings, parse_sizes
    from sparseditto.compiler.tuning import TuningSession, require_best
    from sparseditto.passes.registry import load_file

    budget, database = Budget.parse(args.budget), database_of(args)
    for path in args.load:
        load_file(path)
    _keep_composites(args.load, database)
    know_those_of(database)  # those that it leaves out, `tune` tells
    display = _Display()
    with TuningSession(device=args.device or _device(), workers=args.workers) as session:
        try:
            result = session.tune(
                args.kernel,
                parse_bindings(args.bind),
                parse_sizes(args.size),
                budget=budget,
                chip=args.target,
                plans=[read_plan(text) for text in args.plan] or None,
                entry=args.entry,
                progress=display,
                database=database,
                seed=args.seed,
            )
        finally:
            display.end()
    if result.interrupted and result.best is None:
        raise KeyboardInterrupt
    print_notes(result.notes)
    require_best(result)
    _report(args, result)
    return INTERRUPTED if result.interrupted else OK


def _keep_composites(paths: Sequence[Path], database: Path | None) -> None:
    """Keep the composite passes that were loaded: they are known wherever this database is used from now on."""
    from sparseditto.agent.memory.composites import keep
    from sparseditto.agent.memory.database import Database
    from sparseditto.passes.composite import load

    found = [load(path).composite for path in paths if path.suffix == ".json"]
    if found and database is not None:
        with Database(database) as kept:
            for composite in found:
                keep(kept, composite)


def _device() -> str:
    """cuda where there is a GPU, else simt, which the person is told."""
    from sparseditto.compiler.runtimes.cuda import available

    reason = available()
    if reason is None:
        return "cuda"
    note(PROGRAM, f"note: no GPU can be used ({reason}); the emulator's costs stand for times")
    return "simt"


def _report(args: argparse.Namespace, result: TuningResult) -> None:
    output: Path | None = None
    if result.package is not None:
        output = args.output or default_output(result.package.computation.entry)
        output.parent.mkdir(parents=True, exist_ok=True)
        result.package.save(output)
    if result.interrupted:
        note(PROGRAM, "note: interrupted; this is the best so far")
    if args.json:
        emit_json({"output": str(output) if output else None, **result.to_json()})
        return
    print(describe(result))
    print(f"package: {output}")


def describe(result: TuningResult) -> str:
    """The best plan and what was tried, for people."""
    best, first = result.best, next((t for t in result.trials if t.ok), None)
    if best is None or best.us is None:
        return "no plan worked"
    counts: dict[str, int] = {}
    for trial in result.trials:
        counts[trial.outcome] = counts.get(trial.outcome, 0) + 1
    tried = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items(), key=lambda item: -item[1]))
    lines = [
        f"plan: {best.plan.text()}  [{best.plan.digest()}]",
        f"time: {best.us:.2f} us a call (interquartile range {best.iqr_us or 0.0:.2f}, {len(best.samples_us)} samples)"
        + (f", {first.us / best.us:.2f} times faster than the first plan" if first and first.us else "")
        + (f", {result.bound_us / best.us:.0%} of the bound" if result.bound_us else ""),
        f"tried: {len(result.trials)} plans ({tried}), stopped: {result.stopped}",
        f"seconds: {result.seconds['total']:.1f}",
    ]
    return "\n".join(lines)


class _Display:
    """One line on standard error that is written over; where that is no terminal, a line now and then."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last = time.monotonic()
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last < (0.1 if self._live else _EVERY_S):
            return
        self._last, self._shown = now, True
        text = progress_line(progress)
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{text[:width]:<{width}}")
            sys.stderr.flush()
        else:
            note(PROGRAM, text)

    def end(self) -> None:
        if self._live and self._shown:
            sys.stderr.write("\n")


def progress_line(progress: Progress) -> str:
    """What is known so far, in one line."""
    best: Trial | None = progress.best
    words = ["best " + (f"{best.us:.2f} us" if best is not None and best.us is not None else "none yet")]
    if progress.fraction is not None:
        words[0] += f" ({progress.fraction:.0%} of the bound)"
    words.append(f"{progress.measured} measured, {progress.failed} failed, {progress.refused} not applicable or equal")
    if progress.left_candidates is not None:
        words.append(f"{progress.left_candidates} left")
    words.append(f"{progress.elapsed_s:.0f} s" + (f", {progress.left_s:.0f} s left" if progress.left_s is not None else ""))
    return "; ".join(words)
