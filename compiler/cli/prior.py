"""`sparseditto prior`: what the learned prior says, in words."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import OK, add_json_argument, emit_json, natural
from sparseditto.dialects.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from sparseditto.agent.prior import Contribution, Prior

SHOWN = 20  # weights, unless --top says otherwise


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "prior", help="say what the learned prior says", description="Say what was learned of plans from measurements."
    )
    parsers = parser.add_subparsers(metavar="ACTION", required=True, parser_class=type(parser))
    one = parsers.add_parser(
        "show", help="the strongest weights", description="List the strongest weights of a prior, in words."
    )
    one.add_argument("file", nargs="?", type=Path, help="what `sparseditto learn` wrote (default: what ships for the H200)")
    one.add_argument("--op", choices=("spmv", "spmm"), help="the weights for this operator only")
    one.add_argument("--pass", dest="of_pass", metavar="NAME", help="those of this pass and its options only")
    one.add_argument("--feature", metavar="NAME", help="those where this feature is in a range only")
    one.add_argument("--top", metavar="N", type=natural, default=SHOWN, help="so many of them (default %(default)s)")
    add_json_argument(one)
    one.set_defaults(func=show)


def show(args: argparse.Namespace) -> int:
    from sparseditto.agent.prior import Prior

    prior = Prior.read(args.file) if args.file is not None else Prior.load()
    _refuse_unknown(args, prior)
    found = [(op, term) for op in prior.models if args.op in (None, op) for term in _terms(prior, op, args)]
    strongest = sorted(found, key=lambda pair: -abs(pair[1].energy))[: args.top]
    if args.json:
        emit_json({"provenance": prior.provenance, "weights": [{"op": op, **vars(term)} for op, term in strongest]})
        return OK
    about = prior.provenance
    print(f"learned from {about['trials']} plans of {about['tasks']} tasks on {about['matrices']} matrices, {about['gpu']}")
    for line in _table([_row(op, term) for op, term in strongest]):
        print(line)
    print(f"{len(strongest)} of {len(found)} weights; a plan's energy is their sum, and says how fast it is beside other plans")
    return OK


def _terms(prior: Prior, op: str, args: argparse.Namespace) -> list[Contribution]:
    from sparseditto.agent.prior.choices import pass_of

    return [
        term
        for term in prior.models[op].terms()
        if args.of_pass in (None, pass_of(term.choice)) and args.feature in (None, term.feature)
    ]


def _refuse_unknown(args: argparse.Namespace, prior: Prior) -> None:
    """Raises `InputError` for an operator, a pass or a feature that the prior has no weights for."""
    from sparseditto.agent.prior.choices import pass_of

    models = prior.models.values()
    known = {
        "op": list(prior.models),
        "of_pass": sorted({pass_of(word) for model in models for word in model.choices} - {""}),
        "feature": sorted({name for model in models for name in model.edges}),
    }
    for option, names in known.items():
        if (said := getattr(args, option)) is not None and said not in names:
            word = option.removeprefix("of_")
            raise InputError(f"no {word} '{said}' has weights{did_you_mean(said, names)}; there are {', '.join(names)}")


def _row(op: str, term: Contribution) -> tuple[str, ...]:
    where = f"{term.feature} {term.range}" if term.feature else "anywhere"
    return op, term.choice, where, _in_words(term.energy), f"{term.energy:+.3f}", f"{term.trials} plans"


def _in_words(energy: float) -> str:
    """What adding a term does to a time: `slower by 10 %`."""
    ratio = 2 ** abs(energy)
    return f"{'slower' if energy > 0 else 'faster'} by {100 * (ratio - 1):.1f} %"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns, each as wide as it has to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
