"""`sparseditto db`: what the tuning database holds, and how it leaves one machine and comes to another."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.compiler.cli.common import OK, add_database_argument, add_json_argument, database_of, emit_json, natural, note
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.agent.memory.database import Database
    from sparseditto.agent.memory.exchange import Added
    from sparseditto.agent.memory.upkeep import Stats

PROGRAM = "sparseditto"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "db", help="look after the tuning database", description="Look after the database that keeps what `tune` measured."
    )
    parsers = parser.add_subparsers(metavar="ACTION", required=True, parser_class=type(parser))
    one = _action(parsers, "stats", stats, "count what there is")
    add_json_argument(one)
    one = _action(parsers, "export", export, "write everything as JSON lines")
    one.add_argument("-o", "--output", metavar="FILE", type=Path, help="the file to write (default: standard output)")
    one = _action(parsers, "import", import_, "add JSON lines: an export, or the .tuning.jsonl of earlier benchmark runs")
    one.add_argument("files", metavar="FILE", nargs="+", type=Path, help="the files to read (.xz is decompressed)")
    one = _action(parsers, "merge", merge, "add what other databases hold")
    one.add_argument("others", metavar="OTHER", nargs="+", type=Path, help="the databases to read")
    one = _action(parsers, "prune", prune, "remove what is old or slow")
    one.add_argument("--keep-best", metavar="N", type=natural, help="keep the N fastest right plans of each task only")
    one.add_argument("--older-than", metavar="DAYS", type=_days, help="remove what was measured before, or at an unknown time")
    one.add_argument("--compiler-version", metavar="VERSION", help="remove what this version (or code digest) measured")
    one.add_argument("--composite", metavar="NAME", help="remove this composite pass")
    one.add_argument("--dry-run", action="store_true", help="say what would go, and keep it")


def _action(parsers: Any, name: str, action: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = parsers.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    add_database_argument(parser)
    parser.set_defaults(func=action)
    return parser


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of days from 0 on")
    return days


def _database(args: argparse.Namespace, there: bool = True) -> Database:
    """The database; where it must be `there`, it is not made."""
    from sparseditto.agent.memory.database import Database

    path = database_of(args)
    if there and path is not None and not path.is_file():
        raise InputError("there is no such database; `sparseditto tune` or `db import` makes one", where=str(path))
    return Database(path)


def stats(args: argparse.Namespace) -> int:
    from sparseditto.agent.memory import upkeep

    with _database(args) as database:
        found = upkeep.stats(database)
    if args.json:
        emit_json(found.to_json())
    else:
        print(describe(found))
    return OK


def describe(found: Stats) -> str:
    """What there is, for people."""
    counts = ", ".join(f"{count} {table}" for table, count in found.rows.items())
    lines = [f"file: {found.file} ({found.bytes} bytes, schema {found.schema})", f"rows: {counts}"]
    lines.append("outcomes: " + (", ".join(f"{n} {outcome}" for outcome, n in found.outcomes.items()) or "none"))
    lines += [f"GPU: {' '.join(filter(None, (g['name'], g['capability'])))}, {g['tasks']} tasks" for g in found.gpus]
    for c in found.compilers:
        lines.append(f"compiler: {c['project']} (code {c['code']}), MLIR {c['mlir']}, LLVM {c['llvm']}, {c['tasks']} tasks")
    return "\n".join(lines)


def export(args: argparse.Namespace) -> int:
    from sparseditto.agent.memory import exchange

    with _database(args) as database:
        if args.output is None:
            for line in exchange.lines(database):
                print(line)
            return OK
        try:
            with args.output.open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in exchange.lines(database))
        except OSError as e:
            raise InputError(f"cannot write there: {e.strerror}", where=str(args.output)) from e
    return OK


def import_(args: argparse.Namespace) -> int:
    from sparseditto.agent.memory import exchange

    found = [exchange.read_contents(path) for path in args.files]
    with _database(args, there=False) as database:
        _say(exchange.put(database, found))
    return OK


def merge(args: argparse.Namespace) -> int:
    from sparseditto.agent.memory import exchange

    with _database(args, there=False) as database:
        _say(exchange.merge(database, args.others))
    return OK


def _say(added: Added) -> None:
    composites = f", {added.composites} composite passes" if added.composites else ""
    print(f"read: {added.tasks} tasks, {added.trials} trials; added: {added.measurements} measurements{composites}")
    if added.differing:
        note(PROGRAM, f"note: other composite passes are kept under these names, and stay: {', '.join(added.differing)}")


def prune(args: argparse.Namespace) -> int:
    from sparseditto.agent.memory import upkeep

    what = upkeep.Pruning(args.keep_best, args.older_than, args.compiler_version, args.composite)
    with _database(args) as database:
        gone = upkeep.prune(database, what, args.dry_run)
    word = "would remove" if args.dry_run else "removed"
    print(f"{word}: {', '.join(f'{count} {table}' for table, count in gone.items())}")
    return OK
