"""`Database`: the file that keeps what was measured, for many processes at a time.

Each measurement is a transaction of its own in SQLite's write-ahead log: what was committed outlives a process that is
killed, and readers never wait for a writer.  The tables are in `schema`, docs/database.md describes them.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from sparseditto.agent.memory.keys import Compiler, Gpu, Operator, Structure, TaskKey, canonical
from sparseditto.agent.memory.schema import migrate
from sparseditto.agent.memory.trial import Measurement, StoredPlan, samples_of, verdict
from sparseditto.agent.tuner import OK, spread_us
from sparseditto.dialects.errors import InputError, PlanError
from sparseditto.passes.plan import Plan

BUSY_S = 30.0  # that a process waits for others that write

_KEY = """SELECT t.id, t.K, t.chip, t.caches, t.about, s.pattern, s.rows, s.columns, s.entries, s.features,
    o.kernel, o.encoding, o.dtypes, o.computation, g.name, g.capability, c.project, c.mlir, c.llvm, c.code
    FROM tasks t JOIN structures s ON s.id = t.structure JOIN operators o ON o.id = t.operator
    JOIN gpus g ON g.id = t.gpu JOIN compilers c ON c.id = t.compiler"""


@dataclass(frozen=True)
class Task:
    """A task that is kept.  `features` are None where nobody analysed the matrix; `about` is what whoever measured says."""

    id: int
    key: TaskKey
    features: Mapping[str, float] | None
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """A plan with all of its measurements, in the order of time."""

    plan: StoredPlan
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class Best:
    """The fastest plan of a task whose result was right.

    `us` is the median of `samples` samples, `rivals` the number of plans that it was set against, itself included, and
    `unreadable` that of faster plans which the passes of today cannot read.
    """

    plan: Plan
    us: float
    samples: int
    measured_at: str
    rivals: int
    unreadable: int


class Database:
    """See the module.  Use it in a `with` statement; one process and thread has one of its own.

    Opens the file `path` and makes it and its folder where they are not there; `None` is a database in memory.  Raises
    `InputError` when the file cannot be used, is something else, or is of a newer schema.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.where = str(path) if path is not None else "the database in memory"
        with self._told():
            self._db = self._connect()
        try:
            with self._told():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        if self.path is None:
            return sqlite3.connect(":memory:", isolation_level=None)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"its folder cannot be made: {e.strerror}", where=self.where) from e
        return sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)

    def _prepare(self) -> None:
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA foreign_keys = ON")
        migrate(self._db, self.where)
        _until_free(lambda: self._db.execute("PRAGMA journal_mode = WAL"))
        self._db.execute("PRAGMA synchronous = NORMAL")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What SQLite says of the file, as an error that says what to do."""
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError):
            raise  # a mistake of ours
        except sqlite3.DatabaseError as e:
            raise InputError(
                f"cannot be used as a tuning database ({e}); choose another file (--db FILE), or none (--no-db)",
                where=self.where,
            ) from e

    @contextmanager
    def transaction(self, keep: bool = True) -> Iterator[None]:
        """All changes or none; with `keep` false none, so that what they would do can be counted."""
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT" if keep else "ROLLBACK")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._told():
            return self._db.execute(statement, values).fetchall()

    def change(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute within a transaction; how many rows it changed."""
        assert self._db.in_transaction
        with self._told():
            return self._db.execute(statement, values).rowcount

    def compact(self) -> None:
        """Give the space of removed rows back."""
        with self._told():
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def copy_from(self, path: Path) -> None:
        """Take over another file as it is, to leave that one alone while its copy is brought up to date."""
        with self._told(), _opened(path) as other:
            other.backup(self._db)
            migrate(self._db, str(path))

    # --- Writing --------------------------------------------------------------------------------------

    def begin(self, key: TaskKey, features: Mapping[str, float] | None = None, about: Mapping[str, Any] | None = None) -> int:
        """The number of a task, which is made where it is not there; `about` takes the place of what was said before."""
        with self.transaction():
            task = self.put_task(key, features, {})
            if about is not None:
                self.change("UPDATE tasks SET about = ? WHERE id = ?", (canonical(dict(about)), task))
            return task

    def add(self, task: int, plan: Plan, measurement: Measurement) -> None:
        """Keep one measurement."""
        with self.transaction():
            self.put(task, StoredPlan.of(plan), (measurement,))

    def put_task(self, key: TaskKey, features: Mapping[str, float] | None, about: Mapping[str, Any]) -> int:
        """`begin` within a transaction, without changing what is there."""
        s, o = key.structure, key.operator
        parts = [
            self._id("structures", {"pattern": s.pattern}, {"rows": s.rows, "columns": s.columns, "entries": s.entries}),
            self._id("operators", {"kernel": o.kernel, "encoding": o.encoding}, {"dtypes": o.dtypes, "computation": ""}),
            self._id("gpus", {"name": key.gpu.name, "capability": key.gpu.capability}),
            self._id("compilers", {name: getattr(key.compiler, name) for name in ("project", "mlir", "llvm", "code")}),
        ]
        self._note_features(parts[0], features)
        if o.computation:
            self.change("UPDATE operators SET computation = ? WHERE id = ?", (o.computation, parts[1]))
        names = ("structure", "operator", "gpu", "compiler")
        unique = dict(zip(names, parts, strict=True)) | {"K": _k_text(key.K), "chip": key.chip, "caches": key.caches}
        task = self._id("tasks", unique)
        if about:
            self.change("UPDATE tasks SET about = ? WHERE id = ? AND about = '{}'", (canonical(dict(about)), task))
        return task

    def _note_features(self, structure: int, features: Mapping[str, float] | None) -> None:
        """Features that are there stay, unless there are more of them now."""
        if features is not None:
            known = _json(self.rows("SELECT features FROM structures WHERE id = ?", (structure,))[0][0])
            if known is None or len(known) < len(features):
                self.change("UPDATE structures SET features = ? WHERE id = ?", (canonical(dict(features)), structure))

    def put(self, task: int, plan: StoredPlan, measurements: Sequence[Measurement]) -> int:
        """Keep measurements within a transaction; how many were new."""
        about_plan = {"kernel": plan.kernel, "steps": "\n".join(plan.steps)}
        plan_id = self._id("plans", {"digest": plan.digest()}, about_plan)
        trial = self._id("trials", {"task": task, "plan": plan_id}, {"outcome": "", "verified": 0, "samples": 0})
        new = sum(self._put_measurement(trial, m) for m in measurements)
        if new:
            self.summarise(trial)
        return new

    def _put_measurement(self, trial: int, m: Measurement) -> int:
        environment = self._id("environments", {"versions": canonical(dict(m.versions))})
        verification, resources = (None if x is None else canonical(x) for x in (m.check, m.resources))
        values = {
            "trial": trial,
            "environment": environment,
            "digest": m.digest(),
            "measured_at": m.measured_at,
            "outcome": m.outcome,
            "why": m.why,
            "identity": m.identity,
            "samples_us": canonical(m.samples_us),
            "verification": verification,
            "resources": resources,
            "seconds": canonical(dict(m.seconds)),
        }
        return self._insert("measurements", values)

    def summarise(self, trial: int) -> None:
        """Let the row of a trial say what its measurements say together."""
        measurements = self.measurements(trial)
        outcome, samples = verdict(measurements).outcome, samples_of(measurements)
        verified = outcome == OK and any(m.verified for m in measurements)
        us, iqr_us = (median(samples), spread_us(samples)) if samples else (None, None)
        self.change(
            "UPDATE trials SET outcome = ?, verified = ?, us = ?, iqr_us = ?, samples = ? WHERE id = ?",
            (outcome, int(verified), us, iqr_us, len(samples), trial),
        )

    def _id(self, table: str, unique: Mapping[str, Any], others: Mapping[str, Any] | None = None) -> int:
        """The number of the row with these values; it is made, with `others` beside them, where it is not there."""
        values = {**unique, **(others or {})}
        self._insert(table, values)
        alike = " AND ".join(f"{name} = ?" for name in unique)
        return int(self.rows(f"SELECT id FROM {table} WHERE {alike}", tuple(unique.values()))[0][0])

    def _insert(self, table: str, values: Mapping[str, Any]) -> int:
        """Make a row, unless there is one like it; how many rows it made."""
        names, places = ", ".join(values), ", ".join("?" * len(values))
        return self.change(f"INSERT INTO {table} ({names}) VALUES ({places}) ON CONFLICT DO NOTHING", tuple(values.values()))

    # --- Reading --------------------------------------------------------------------------------------

    def tasks(self, condition: str = "1", values: Sequence[Any] = ()) -> list[Task]:
        """The tasks that an SQL condition chooses, in the order in which they were begun."""
        return [_task(row) for row in self.rows(f"{_KEY} WHERE {condition} ORDER BY t.id", values)]

    def variants(self, key: TaskKey) -> list[Task]:
        """What is kept of the task, on whatever GPU and by whatever compiler."""
        return self.tasks(
            "s.pattern = ? AND o.kernel = ? AND o.encoding = ? AND t.K = ? AND t.chip = ? AND t.caches = ?",
            (key.structure.pattern, key.operator.kernel, key.operator.encoding, _k_text(key.K), key.chip, key.caches),
        )

    def knows(self, operator: Operator) -> bool:
        """Whether anything is kept of the operator."""
        found = "SELECT 1 FROM tasks t JOIN operators o ON o.id = t.operator WHERE o.kernel = ? AND o.encoding = ? LIMIT 1"
        return bool(self.rows(found, (operator.kernel, operator.encoding)))

    def records(self, task: int) -> list[Record]:
        """All that is kept of a task, in the order in which plans were first tried."""
        found = self.rows(
            "SELECT r.id, p.kernel, p.steps FROM trials r JOIN plans p ON p.id = r.plan WHERE r.task = ? ORDER BY r.id", (task,)
        )
        return [Record(_plan(row), self.measurements(row["id"])) for row in found]

    def measurements(self, trial: int) -> tuple[Measurement, ...]:
        """Those of a trial, in the order of time."""
        found = self.rows(
            "SELECT m.*, e.versions FROM measurements m JOIN environments e ON e.id = m.environment WHERE m.trial = ? "
            "ORDER BY m.measured_at, m.digest",
            (trial,),
        )
        return tuple(map(_measurement, found))

    def best(self, task: int) -> Best | None:
        """The fastest plan with a right result that the passes of today can read; of equal ones, the first that was tried."""
        found = self.rows(
            "SELECT p.kernel, p.steps, r.us, r.samples, "
            "(SELECT max(m.measured_at) FROM measurements m WHERE m.trial = r.id) AS measured_at FROM trials r "
            "JOIN plans p ON p.id = r.plan WHERE r.task = ? AND r.verified AND r.us IS NOT NULL ORDER BY r.us, r.id",
            (task,),
        )
        for unreadable, row in enumerate(found):
            try:
                plan = _plan(row).read()
            except PlanError:
                continue
            return Best(plan, row["us"], row["samples"], row["measured_at"], len(found), unreadable)
        return None


def _until_free(work: Any) -> None:
    """The change to the write-ahead log does not wait for others by itself."""
    limit = time.monotonic() + BUSY_S
    while True:
        try:
            work()
            return
        except sqlite3.OperationalError as e:
            if "locked" not in str(e) or time.monotonic() > limit:
                raise
        time.sleep(0.01)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A file that is there already, to be read."""
    if not path.is_file():
        raise InputError("there is no such database", where=str(path))
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        db.execute("PRAGMA query_only = ON")
        yield db
    except sqlite3.DatabaseError as e:
        raise InputError(f"cannot be read as a tuning database: {e}", where=str(path)) from e
    finally:
        db.close()


def _k_text(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _plan(row: sqlite3.Row) -> StoredPlan:
    return StoredPlan(row["kernel"], tuple(row["steps"].split("\n")) if row["steps"] else ())


def _task(row: sqlite3.Row) -> Task:
    key = TaskKey(
        Structure(row["pattern"], row["rows"], row["columns"], row["entries"]),
        Operator(row["kernel"], row["encoding"], row["dtypes"], row["computation"]),
        tuple(map(int, row["K"].split("x"))) if row["K"] else (),
        row["chip"],
        Gpu(row["name"], row["capability"]),
        Compiler(row["project"], row["mlir"], row["llvm"], row["code"]),
        row["caches"],
    )
    return Task(row["id"], key, _json(row["features"]), json.loads(row["about"]))


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _measurement(row: sqlite3.Row) -> Measurement:
    return Measurement(
        outcome=row["outcome"],
        samples_us=tuple(json.loads(row["samples_us"])),
        why=row["why"],
        identity=row["identity"],
        check=_json(row["verification"]),
        resources=_json(row["resources"]),
        seconds=json.loads(row["seconds"]),
        versions=json.loads(row["versions"]),
        measured_at=row["measured_at"],
    )
