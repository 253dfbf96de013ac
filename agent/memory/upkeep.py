"""What is in a database, and how it is kept small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.schema import VERSION
from sparseditto.dialects.errors import InputError

_COUNTED = ("tasks", "trials", "measurements", "structures", "plans", "composites")
_UNUSED = {  # what nothing refers to any more, in an order in which it can go
    "tasks": "id NOT IN (SELECT task FROM trials)",
    "plans": "id NOT IN (SELECT plan FROM trials)",
    "environments": "id NOT IN (SELECT environment FROM measurements)",
    "structures": "id NOT IN (SELECT structure FROM tasks)",
    "operators": "id NOT IN (SELECT operator FROM tasks)",
    "gpus": "id NOT IN (SELECT gpu FROM tasks)",
    "compilers": "id NOT IN (SELECT compiler FROM tasks)",
}


@dataclass(frozen=True)
class Stats:
    """`rows` are counts by table; `bytes` is the size of the file with its log; `gpus` and `compilers` have their tasks."""

    file: str
    schema: int
    bytes: int
    rows: Mapping[str, int]
    outcomes: Mapping[str, int]
    gpus: tuple[Mapping[str, Any], ...]
    compilers: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def stats(database: Database) -> Stats:
    path = database.path
    files = [] if path is None else [path, path.with_name(path.name + "-wal")]
    outcomes = database.rows("SELECT outcome, count(*) FROM trials GROUP BY outcome ORDER BY count(*) DESC, outcome")
    gpus = database.rows(
        "SELECT g.name, g.capability, count(*) AS tasks FROM tasks t JOIN gpus g ON g.id = t.gpu GROUP BY g.id ORDER BY g.name"
    )
    compilers = database.rows(
        "SELECT c.project, c.mlir, c.llvm, c.code, count(*) AS tasks FROM tasks t JOIN compilers c ON c.id = t.compiler "
        "GROUP BY c.id ORDER BY c.project, c.mlir, c.llvm, c.code"
    )
    return Stats(
        file=database.where,
        schema=VERSION,
        bytes=sum(file.stat().st_size for file in files if file.exists()),
        rows=_counts(database),
        outcomes={row[0]: row[1] for row in outcomes},
        gpus=tuple(map(dict, gpus)),
        compilers=tuple(map(dict, compilers)),
    )


def _counts(database: Database) -> dict[str, int]:
    return {table: database.rows(f"SELECT count(*) FROM {table}")[0][0] for table in _COUNTED}


@dataclass(frozen=True)
class Pruning:
    """What goes: of each task all but the `keep_best` fastest right plans; what was measured more than `older_than` days ago,
    or nobody knows when; what was measured with the version `compiler` of the project, or with the code of that digest; the
    composite pass of the name `composite` (plans that hold its steps stay).
    """

    keep_best: int | None = None
    older_than: float | None = None
    compiler: str | None = None
    composite: str | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in (self.keep_best, self.older_than, self.compiler, self.composite)):
            raise InputError(
                "say what to remove: --keep-best N, --older-than DAYS, --compiler-version VERSION or --composite NAME"
            )


def prune(database: Database, what: Pruning, dry_run: bool = False) -> dict[str, int]:
    """Remove it, and give the space back; how many rows of each table went, or would go in a `dry_run`."""
    before = _counts(database)
    with database.transaction(keep=not dry_run):
        if what.compiler is not None:
            alike = "SELECT id FROM compilers WHERE project = ? OR code = ?"
            database.change(f"DELETE FROM tasks WHERE compiler IN ({alike})", (what.compiler, what.compiler))
        if what.older_than is not None:
            _forget_older(database, what.older_than)
        if what.keep_best is not None:
            _keep_best(database, what.keep_best)
        if what.composite is not None and not database.change("DELETE FROM composites WHERE name = ?", (what.composite,)):
            raise InputError(f"keeps no composite pass '{what.composite}'", where=database.where)
        for table, unused in _UNUSED.items():
            database.change(f"DELETE FROM {table} WHERE {unused}")
        after = _counts(database)
    if not dry_run:
        database.compact()
    return {table: before[table] - after[table] for table in _COUNTED}


def _forget_older(database: Database, days: float) -> None:
    try:
        limit = (datetime.now(timezone.utc) - timedelta(days=days)).isoformat(timespec="microseconds")
    except OverflowError:
        limit = ""  # before all times
    touched = database.rows("SELECT DISTINCT trial FROM measurements WHERE measured_at < ?", (limit,))
    database.change("DELETE FROM measurements WHERE measured_at < ?", (limit,))
    database.change("DELETE FROM trials WHERE id NOT IN (SELECT trial FROM measurements)")
    for (trial,) in touched:
        if database.rows("SELECT 1 FROM trials WHERE id = ?", (trial,)):
            database.summarise(trial)


def _keep_best(database: Database, count: int) -> None:
    ranked = (
        "SELECT id, verified, us, row_number() OVER (PARTITION BY task ORDER BY verified DESC, us IS NULL, us, plan) AS place "
        "FROM trials"
    )
    database.change(
        f"DELETE FROM trials WHERE id NOT IN (SELECT id FROM ({ranked}) WHERE verified AND us IS NOT NULL AND place <= ?)",
        (count,),
    )
