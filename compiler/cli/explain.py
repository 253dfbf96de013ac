"""`sparseditto explain`: why a plan, what limits it, and what another GPU would get."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import (
    OK,
    add_database_arguments,
    add_json_argument,
    add_load_argument,
    add_operand_arguments,
    database_to_read,
    emit_json,
)
from sparseditto.compiler.cli.compile import print_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparseditto.agent.cost import Cost
    from sparseditto.compiler.explaining import Elsewhere, Explanation

BAR = 40  # characters of the longest bar
LEAST_US = 0.005  # that are shown


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="explain a plan",
        description="Say what a plan is predicted to cost on each resource of a GPU, what limits it, and why not another plan. "
        "Nothing is compiled.",
    )
    parser.add_argument("kernel", type=Path, help="the .mlir file ('-' for standard input)")
    add_operand_arguments(parser)
    parser.add_argument("--plan", metavar="PLAN", help="a plan: its text, a JSON file, or a package that has it")
    add_load_argument(parser)
    add_database_arguments(parser)
    parser.add_argument(
        "--gpu", metavar="NAME", action="append", default=[], help="what this GPU would get (sparseditto arch lists them)"
    )
    add_json_argument(parser)
    parser.set_defaults(func=command)


def command(args: argparse.Namespace) -> int:
    from sparseditto.agent.architecture.building import named
    from sparseditto.agent.architecture.choosing import place_of
    from sparseditto.agent.memory.composites import know_those_of
    from sparseditto.compiler.api import read_plan
    from sparseditto.compiler.explaining import explain
    from sparseditto.compiler.kernel import read_kernel_file
    from sparseditto.compiler.problem import bind, parse_bindings, parse_sizes
    from sparseditto.dialects.binding import context
    from sparseditto.passes.registry import load_file

    for path in args.load:
        load_file(path)
    database = database_to_read(args)
    left_out = know_those_of(database)
    target, architecture, notes = place_of(args.target)
    others = [named(name) for name in args.gpu]
    plan = None if args.plan is None else read_plan(args.plan)
    with context():
        computation = read_kernel_file(args.kernel, args.entry).computation
    problem = bind(computation, parse_bindings(args.bind), parse_sizes(args.size))
    found = explain(problem, target, architecture, plan, database, others)
    print_notes((*left_out, *problem.notes, *notes, *found.notes))
    if args.json:
        emit_json({"entry": computation.entry, "op": computation.op, **found.to_json()})
        return OK
    print(f"kernel: {computation.entry} ({computation.op}) for {target.chip}")
    print("\n".join(describe(found)))
    return OK


def describe(found: Explanation) -> Iterator[str]:
    """All of it, for people."""
    f, cost = found.features, found.cost
    yield f"matrix: {f.rows} x {f.columns}, {f.entries} entries, {f.mean_row:.1f} a row (at most {f.max_row})"
    yield f"plan: {found.plan.text()}  [{found.plan.digest()}]"
    yield f"from: {_FROM[found.origin]}"
    yield ""
    yield f"predicted: {cost.total_us:.2f} us a call on {_gpu(cost)}"
    yield from bars(cost)
    for m in found.measured:
        yield (
            f"measured: {m.us:.2f} us on {m.gpu}, the median of {m.samples}, {cost.total_us / m.us:.2f} times as long predicted"
            + ("" if m.current else "; by another version of the compiler")
        )
    yield from _limit(found)
    yield ""
    yield "features that matter, and the change of the time where one is a tenth more:"
    yield from (f"  {s.name:18} {s.value:>12.6g}  {s.change:+7.1%}" for s in found.sensitivities)
    yield from _runner_up(found)
    for other in found.elsewhere:
        yield from _elsewhere(other)


_FROM = {
    "given": "the command line",
    "database": "the tuning database",
    "planner": "the planner, by structure alone",
}


def _gpu(cost: Cost) -> str:
    if not cost.assumed:
        return cost.gpu
    return f"{cost.gpu} (not known of it, and taken from the calibrated GPU: {', '.join(cost.assumed)})"


def bars(cost: Cost) -> Iterator[str]:
    """The time that each resource is busy, the longest as a full bar; those that do nothing are left out."""
    from sparseditto.agent.cost import LIMITS

    most = max(cost.times_us.values())
    for name, us in cost.times_us.items():
        if us > 0:
            yield f"  {name:10} {us:>10.2f} us  {'#' * max(1, round(BAR * us / most)):{BAR}}  {LIMITS[name][1]}"


def _limit(found: Explanation) -> Iterator[str]:
    cost = found.cost
    where = f" at {', '.join(found.hardware)}" if found.hardware else ""
    yield f"limit: {cost.limit}, a bottleneck of {cost.bottleneck.value}{where}"
    yield f"relieved by: {', '.join(found.relieving)}"
    faster = [walk for walk in found.walks if not walk.refused and walk.cost.total_us < cost.total_us - LEAST_US]
    for walk in faster:
        yield f"  {walk.move.label}: {walk.cost.total_us:.2f} us predicted"
    if not faster:
        yield "  no step by one of them is predicted to make it faster"


def _runner_up(found: Explanation) -> Iterator[str]:
    yield ""
    if found.runner_up is None:
        yield "runner-up: the planner suggests no other plan"
        return
    plan, cost = found.runner_up
    yield f"runner-up: {plan.text()}  [{plan.digest()}]"
    less = cost.total_us - found.cost.total_us
    yield f"predicted: {cost.total_us:.2f} us, {abs(less):.2f} us {'more' if less >= 0 else 'less'}; of each resource:"
    changed = sorted(found.difference().items(), key=lambda one: -abs(one[1]))
    yield from (f"  {name:10} {us:>+10.2f} us" for name, us in changed if abs(us) >= LEAST_US)


def _elsewhere(other: Elsewhere) -> Iterator[str]:
    yield ""
    yield f"{other.gpu} ({other.chip}): {other.plan.text()}  [{other.plan.digest()}]"
    yield f"predicted: {other.cost.total_us:.2f} us a call on {_gpu(other.cost)}; limit: {other.cost.limit}"
    yield from bars(other.cost)
    if other.refused:
        yield f"the plan above cannot run there: {'; '.join(map(str, other.refused))}"
    else:
        yield f"the plan above: {other.here_us:.2f} us predicted there"
