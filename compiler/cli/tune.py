"""`sparseditto tune`: measure many plans for a kernel and a matrix, and keep the best."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
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
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.agent.llm import Abilities, Limits, Model
    from sparseditto.agent.tuner import Budget
    from sparseditto.compiler.asking import Asked
    from sparseditto.compiler.crew import Crew
    from sparseditto.compiler.tuning import Progress, Trial, TuningResult, TuningSession

PROGRAM = "sparseditto"
PLANNER, LLM = "planner", "llm"
ABILITIES = ("tools", "schema", "none")
_LLM_OPTIONS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "model": ("PROVIDER/NAME", str, "the model, as litellm names it; its key is in the environment"),
    "api-base": ("URL", str, "a server that speaks the provider's protocol"),
    "model-can": ("WHAT", str, "tools, schema, both as tools,schema, or none (default: what litellm knows of the model)"),
    "rounds": ("N", natural, "plans that are asked for (default 8)"),
    "max-tokens": ("N", natural, "tokens of all prompts and answers (default 200000)"),
    "max-cost": ("USD", float, "US dollars (default: no limit)"),
    "max-seconds": ("S", float, "seconds from the first call on, with what is measured (default 300; with --replay no limit)"),
    "transcript": ("FILE", Path, "write what was asked, answered and measured, as JSON lines without secrets"),
    "replay": ("FILE", Path, "take the answers of a transcript instead of a model's"),
}
"""What goes with `--agent llm`."""
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
    _add_llm_arguments(parser)
    parser.set_defaults(func=command)


def _add_llm_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a language model (docs/llm.md)")
    group.add_argument(
        "--agent",
        choices=(PLANNER, LLM),
        default=PLANNER,
        help="who proposes plans: the offline planner (default), or a language model after it",
    )
    for option, (metavar, kind, text) in _LLM_OPTIONS.items():
        group.add_argument(f"--{option}", metavar=metavar, type=kind, help=text)


def command(args: argparse.Namespace) -> int:
    from sparseditto.agent.tuner import Budget
    from sparseditto.compiler.crew import Crew

    _check_llm_options(args)
    budget = Budget.parse(args.budget)
    with closing(Crew(args.device or _device(), args.workers)) as crew:
        crew.pools()  # they start while this process imports what it needs itself
        result, asked = _tuned(args, budget, crew)
    if result.interrupted and result.best is None:
        raise KeyboardInterrupt
    from sparseditto.compiler.tuning import require_best

    print_notes(result.notes)
    require_best(result)
    _report(args, result, asked)
    return INTERRUPTED if result.interrupted else OK


def _tuned(args: argparse.Namespace, budget: Budget, crew: Crew) -> tuple[TuningResult, Asked | None]:
    from sparseditto.agent.memory.composites import know_those_of
    from sparseditto.compiler.api import read_plan
    from sparseditto.compiler.problem import parse_bindings, parse_sizes
    from sparseditto.compiler.tuning import TuningSession
    from sparseditto.passes.registry import load_file

    database = database_of(args)
    for path in args.load:
        load_file(path)
    _keep_composites(args.load, database)
    know_those_of(database)  # those that it leaves out, `tune` tells
    display = _Display()
    task = (args.kernel, parse_bindings(args.bind), parse_sizes(args.size))
    tuning: dict[str, Any] = {
        "budget": budget,
        "chip": args.target,
        "plans": [read_plan(text) for text in args.plan] or None,
        "entry": args.entry,
        "progress": display,
        "database": database,
        "seed": args.seed,
    }
    with TuningSession(crew=crew) as session:
        try:
            if args.agent == LLM:
                asked = _ask(args, session, task, tuning, display)
                return asked.result, asked
            return session.tune(*task, **tuning), None
        finally:
            display.end()


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


# --- With a language model ------------------------------------------------------------------------------


def _check_llm_options(args: argparse.Namespace) -> None:
    """Raises `InputError` where options do not go together."""
    given = [name for name in _LLM_OPTIONS if _llm_option(args, name) is not None]
    if args.agent != LLM and given:
        raise InputError(f"--{given[0]} is for --agent llm")
    if args.agent == LLM and (args.model is None) == (args.replay is None):
        raise InputError("--agent llm needs --model PROVIDER/NAME, or --replay FILE instead")
    if args.replay is not None and (useless := [name for name in ("api-base", "model-can") if name in given]):
        raise InputError(f"--{useless[0]} says nothing of a replay")
    if args.replay is not None and args.transcript is not None and args.replay.resolve() == args.transcript.resolve():
        raise InputError("the transcript would overwrite what is replayed; name another file", where=str(args.transcript))


def _llm_option(args: argparse.Namespace, name: str) -> Any:
    return getattr(args, name.replace("-", "_"))


def _ask(
    args: argparse.Namespace, session: TuningSession, task: tuple[Any, ...], tuning: Mapping[str, Any], display: _Display
) -> Asked:

    from sparseditto.agent.llm import Transcript
    from sparseditto.agent.llm.masking import Mask
    from sparseditto.compiler.asking import ask

    limits = _limits(args)
    with _model(args) as model, Transcript(args.transcript, Mask.of(os.environ)) as transcript:
        return ask(session, model, *task, limits=limits, transcript=transcript, tell=display.tell, **tuning)


def _limits(args: argparse.Namespace) -> Limits:
    from sparseditto.agent.llm import Limits

    named = {"rounds": args.rounds, "tokens": args.max_tokens, "cost": args.max_cost, "seconds": args.max_seconds}
    unlimited = {"tokens": None, "seconds": None} if args.replay is not None else {}
    return Limits(**{**unlimited, **{name: value for name, value in named.items() if value is not None}})


@contextmanager
def _model(args: argparse.Namespace) -> Iterator[Model]:
    """The model that is named, or the answers that are replayed."""
    from sparseditto.agent.llm import Recorded
    from sparseditto.compiler.asking import Served

    if args.replay is not None:
        yield Recorded.load(args.replay)
        return
    with Served(args.model, args.api_base, _abilities(args.model_can)) as served:
        yield served


def _abilities(text: str | None) -> Abilities | None:
    from sparseditto.agent.llm import Abilities

    if text is None:
        return None
    words = text.split(",")
    wrong = next((word for word in words if word not in ABILITIES), None)
    if wrong is not None or ("none" in words and len(words) > 1):
        raise InputError(f"'{text}' says nothing that a model can (--model-can); write tools, schema, tools,schema or none")
    return Abilities(tools="tools" in words, schema="schema" in words)


def _device() -> str:
    """cuda where there is a GPU, else simt, which the person is told."""
    from sparseditto.compiler.runtimes.cuda import available

    reason = available()
    if reason is None:
        return "cuda"
    note(PROGRAM, f"note: no GPU can be used ({reason}); the emulator's costs stand for times")
    return "simt"


def _report(args: argparse.Namespace, result: TuningResult, asked: Asked | None) -> None:
    output: Path | None = None
    if result.package is not None:
        output = args.output or default_output(result.package.computation.entry)
        output.parent.mkdir(parents=True, exist_ok=True)
        result.package.save(output)
    if result.interrupted:
        note(PROGRAM, "note: interrupted; this is the best so far")
    if args.json:
        emit_json({"output": str(output) if output else None, **(asked or result).to_json()})
        return
    print(describe(result))
    if asked is not None:
        print(describe_asked(asked))
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


def describe_asked(asked: Asked) -> str:
    """Whose plan it is, and what the session with the model took."""
    lines = [f"found by: the {asked.verdict.who}; {asked.verdict.why}"]
    if (o := asked.outcome) is not None:
        taken = f"{o.rounds} rounds, {o.calls} calls, {o.tokens} tokens" + (f", {o.cost:.4f} dollars" if o.cost else "")
        lines.append(f"model: {o.model}, {taken}, {o.seconds:.1f} s, stopped: {o.stopped}")
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

    def tell(self, text: str) -> None:
        """A line that stays."""
        self.end()
        self._shown = False
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
