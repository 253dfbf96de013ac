"""`sparseditto learn`: make a prior of what a tuning database holds."""

from __future__ import annotations

import argparse
import lzma
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import OK, add_database_argument, database_of, note
from sparseditto.compiler.cli.features import hardware_of
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.agent.memory.exchange import Entry
    from sparseditto.agent.prior.training import Data

PROGRAM = "sparseditto"
_HEAD = ("op", "K", "tasks", "prior: first", "five", "rules: first", "five", "chance: first", "five")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "learn",
        help="learn a prior from measurements",
        description="Fit the prior, which ranks plans, to what was measured on one GPU.",
    )
    add_database_argument(parser)
    parser.add_argument(
        "--data",
        metavar="FILE",
        action="append",
        default=[],
        type=Path,
        help="learn from this export (.jsonl, .jsonl.xz); the database is then read only where --db names one",
    )
    parser.add_argument(
        "--features", metavar="FILE", type=Path, help="features of matrices by name, in place of those that records have"
    )
    parser.add_argument("--gpu", metavar="NAME", help="learn from this GPU, where there are several")
    parser.add_argument("--hardware", metavar="FILE", type=Path, help="that GPU, as JSON (default: an H200)")
    parser.add_argument(
        "--penalty", metavar="X", type=_positive, help="use this penalty, in place of the one that validates best"
    )
    parser.add_argument("--cross-validate", action="store_true", help="print how well it ranks plans of families held out")
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, required=True, help="the file to write")
    parser.set_defaults(func=command)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return value


def command(args: argparse.Namespace) -> int:
    from sparseditto.agent.prior.learn import learn, validate_all
    from sparseditto.agent.prior.training import collect, read_features

    if args.penalty is not None and args.cross_validate:
        raise InputError("--penalty and --cross-validate do not go together: validation chooses the penalty")
    hardware = hardware_of(args)
    features = read_features(_lines(args.features), str(args.features)) if args.features is not None else None
    data = collect(_entries(args), hardware, args.gpu, features)
    note(PROGRAM, _told(data))
    validated = args.penalty or validate_all(data, lambda line: note(PROGRAM, line))
    prior = learn(data, hardware, validated)
    if args.cross_validate:
        print(cross_validation(prior.provenance["cross_validation"]))
    prior.write(args.out)
    note(PROGRAM, f"wrote {args.out}")
    return OK


def _entries(args: argparse.Namespace) -> list[Entry]:
    from sparseditto.agent.memory import exchange

    found = [entry for path in args.data for entry in exchange.read_file(path)]
    path = database_of(args) if args.db is not None or not args.data else None
    return found if path is None else [*found, *exchange.entries_of(path)]


def _lines(path: Path) -> list[str]:
    try:
        raw = path.read_bytes()
        return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode().splitlines()
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as e:
        raise InputError(f"cannot be read: {e}", where=str(path)) from e


def _told(data: Data) -> str:
    """What is learned from, and what is not."""
    families = len({group.family for group in data.groups})
    parts = [f"{data.trials} plans of {len(data.groups)} tasks in {families} families, {data.gpu.name}"]
    parts += [f"{count} tasks are left out: {reason}" for reason, count in data.left_out.items()]
    parts += [f"{data.unreadable} plans are left out, which name what there is no longer"] if data.unreadable else []
    return "; ".join(parts)


def cross_validation(rows: Sequence[dict[str, Any]]) -> str:
    """The table of regrets: times over the best that was measured."""
    body = [_HEAD] + [
        (row["op"], str(row["K"] or "all"), str(row["tasks"]), *(_spell(row[name]) for name in _columns())) for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in body)


def _columns() -> list[str]:
    return [f"{kind}_{place}" for kind in ("prior", "rules", "random") for place in ("first", "five")]


def _spell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
