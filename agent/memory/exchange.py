"""JSON lines: the form in which records leave a database and come into another one.

A line of kind "composite" is a composite pass.  A line of kind "task" says what was measured on, the lines of kind "trial"
behind it are one plan each, with all measurements.  The order is that of names and digests, so that equal databases give equal
files.  Files of schema 1, the records that earlier releases
wrote, are read by `earlier`.
"""

from __future__ import annotations

import json
import lzma
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparseditto.agent.memory import composites
from sparseditto.agent.memory.composites import Definition
from sparseditto.agent.memory.database import Database, Record
from sparseditto.agent.memory.keys import Compiler, Gpu, Operator, Structure, TaskKey
from sparseditto.agent.memory.trial import Measurement, StoredPlan, samples_of, verdict
from sparseditto.agent.tuner import OK, spread_us
from sparseditto.dialects.errors import InputError

SCHEMA = 2
MOST = sys.float_info.max

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """A task with plans of it, as it goes into a database."""

    key: TaskKey
    features: Mapping[str, float] | None
    about: Mapping[str, Any]
    records: Sequence[Record]


@dataclass(frozen=True)
class Contents:
    """All that a database or a file holds."""

    entries: list[Entry]
    composites: list[Definition]


@dataclass(frozen=True)
class Added:
    """What an import brought: tasks and trials that it had, how many measurements of them and how many composites were new.

    `differing` names composites that it had, and that are other ones here; these stayed.
    """

    tasks: int
    trials: int
    measurements: int
    composites: int
    differing: tuple[str, ...]


# --- Out ------------------------------------------------------------------------------------------------


def entries(database: Database) -> Iterator[Entry]:
    """Everything, in the order of digests."""
    for task in sorted(database.tasks(), key=lambda t: t.key.digest()):
        records = sorted(database.records(task.id), key=lambda r: r.plan.digest())
        yield Entry(task.key, task.features, task.about, records)


def lines(database: Database) -> Iterator[str]:
    """Everything as JSON lines."""
    for definition in composites.definitions(database):
        yield json.dumps({"schema": SCHEMA, "kind": "composite", **definition}, sort_keys=True)
    for entry in entries(database):
        name = {"schema": SCHEMA, "task": entry.key.digest()}
        data = {"kind": "task", **entry.key.to_json(), "features": entry.features, "about": entry.about}
        yield json.dumps({**name, **data}, sort_keys=True)
        for record in entry.records:
            yield json.dumps({**name, "kind": "trial", **_trial(record)}, sort_keys=True)


def _trial(record: Record) -> dict[str, Any]:
    samples, plan = samples_of(record.measurements), record.plan
    return {
        "digest": plan.digest(),
        "text": plan.text(),
        "plan": plan.to_json(),
        "outcome": verdict(record.measurements).outcome,
        "us": statistics.median(samples) if samples else None,
        "iqr_us": spread_us(samples) if samples else None,
        "measurements": [m.to_json() for m in record.measurements],
    }


# --- In -------------------------------------------------------------------------------------------------


def put(database: Database, found: Sequence[Contents]) -> Added:
    """Keep what there is, all or nothing; what is there already is left as it is."""
    tasks = trials = measurements = 0
    with database.transaction():
        for entry in (entry for contents in found for entry in contents.entries):
            task = database.put_task(entry.key, entry.features, entry.about)
            tasks, trials = tasks + 1, trials + len(entry.records)
            measurements += sum(database.put(task, r.plan, r.measurements) for r in entry.records)
        definitions = [definition for contents in found for definition in contents.composites]
        new = [composites.put(database, definition) for definition in definitions]
    differing = dict.fromkeys(str(d["name"]) for d, added in zip(definitions, new, strict=True) if added is None)
    return Added(tasks, trials, measurements, new.count(True), tuple(differing))


def merge(database: Database, paths: Sequence[Path]) -> Added:
    """Take over what other databases have, all or nothing; they may be of an older schema and are not changed.

    Doing it twice adds nothing.  Raises `InputError` for a file that is no database, or of a newer schema.
    """
    return put(database, [contents_of(path) for path in paths])


def contents_of(path: Path) -> Contents:
    """Everything that a database holds, which is not changed.  Raises `InputError` when there is none, or of a newer schema."""
    with Database(None) as copy:
        copy.copy_from(path)
        return Contents(list(entries(copy)), composites.definitions(copy))


def entries_of(path: Path) -> list[Entry]:
    """The tasks of `contents_of`."""
    return contents_of(path).entries


def read_file(path: Path) -> list[Entry]:
    """The tasks of `read_contents`."""
    return read_contents(path).entries


def read_contents(path: Path) -> Contents:
    """Read JSON lines (`.xz` is decompressed).  Raises `InputError` that names the first wrong line and says why it is."""
    try:
        raw = path.read_bytes()
        text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", where=str(path)) from e
    except (lzma.LZMAError, EOFError) as e:
        raise InputError(f"is no xz file: {e}", where=str(path)) from e
    except UnicodeDecodeError as e:
        raise InputError(f"is not text: {e.reason} at byte {e.start}", where=str(path)) from e
    return read_lines(text.splitlines(), str(path))


def read_lines(found: Iterable[str], where: str) -> Contents:
    """`read_contents` of lines."""
    from sparseditto.agent.memory import earlier

    reader, old = _Reader(), earlier.Reader()
    for number, line in enumerate(found, 1):
        try:
            row = _row(line)
            (old if row["schema"] == earlier.SCHEMA else reader).take(row, number)
        except Wrong as e:
            raise InputError(str(e), where=f"{where}:{e.line or number}") from e
    try:
        return Contents([*reader.entries(), *old.entries()], reader.composites)
    except Wrong as e:
        raise InputError(str(e), where=f"{where}:{e.line}") from e


class Wrong(Exception):
    """What is wrong with a line; `line` is its number where that is not the present one."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def _row(line: str) -> Row:
    """One line as an object of a schema that is read here."""
    from sparseditto.agent.memory import earlier

    try:
        row = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise Wrong(f"is not JSON: {e}") from e
    if not isinstance(row, dict):
        raise Wrong("is no JSON object")
    if row.get("schema") not in (earlier.SCHEMA, SCHEMA):
        raise Wrong(f"schema is {row.get('schema')!r}; this release reads {earlier.SCHEMA} and {SCHEMA}")
    kinds = ("task", "trial") if row["schema"] == earlier.SCHEMA else ("composite", "task", "trial")
    if row.get("kind") not in kinds:
        raise Wrong(f"kind is {row.get('kind')!r}; there are {', '.join(map(repr, kinds[:-1]))} and {kinds[-1]!r}")
    return row


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


class _Reader:
    """Lines of the present schema."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[Row, TaskKey]] = {}
        self._records: dict[str, list[Record]] = {}
        self.composites: list[Definition] = []

    def take(self, row: Row, number: int) -> None:
        if row["kind"] == "composite":
            self.composites.append(read_composite(row))
            return
        name = field(row, "task", is_text)
        if row["kind"] == "task":
            key = read_key(row)
            if key.digest() != name:
                raise Wrong(f"task is '{name}', but what the line says of it gives '{key.digest()}'")
            field(row, "features", nullable(is_features))
            field(row, "about", is_object)
            self._tasks[name] = row, key
        elif name not in self._tasks:
            raise Wrong(f"belongs to task '{name}', of which no line stands before it")
        else:
            self._records.setdefault(name, []).append(read_record(row))

    def entries(self) -> list[Entry]:
        return [
            Entry(key, row["features"], row["about"], self._records.get(name, ())) for name, (row, key) in self._tasks.items()
        ]


# --- Fields ---------------------------------------------------------------------------------------------

Check = tuple[str, Callable[[Any], bool]]
"""What a field has to be, in words and as a test."""


def field(row: Row, name: str, check: Check) -> Any:
    """A field of a line.  Raises `Wrong` where it is missing or something else."""
    if name not in row:
        raise Wrong(f"lacks '{name}'")
    words, test = check
    if not test(row[name]):
        raise Wrong(f"'{name}' is {shortened(row[name])}; it has to be {words}")
    return row[name]


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MOST


def _all(value: Any, kind: type, test: Callable[[Any], bool]) -> bool:
    parts: Any = value.values() if isinstance(value, dict) else value
    return isinstance(value, kind) and all(map(test, parts))


def nullable(check: Check) -> Check:
    words, test = check
    return f"{words}, or null", lambda value: value is None or test(value)


is_text: Check = ("text", lambda value: isinstance(value, str))
is_object: Check = ("an object", lambda value: isinstance(value, dict))
is_size: Check = ("a number from 0 on", lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63)
is_sizes: Check = ("a list of numbers from 0 on", lambda value: _all(value, list, is_size[1]))
is_features: Check = (
    "an object of numbers",
    lambda value: _all(value, dict, lambda v: isinstance(v, bool) or _number(v)),
)
is_samples: Check = ("a list of numbers from 0 on", lambda value: _all(value, list, lambda v: _number(v) and v >= 0))
is_seconds: Check = ("an object of numbers", lambda value: _all(value, dict, _number))
is_texts: Check = ("an object of text", lambda value: _all(value, dict, is_text[1]))
is_rows: Check = ("a list of objects", lambda value: _all(value, list, is_object[1]))
is_verification: Check = ("an object with 'passed'", lambda v: isinstance(v, dict) and isinstance(v.get("passed"), bool))


def read_key(row: Row) -> TaskKey:
    """The key that the fields of a task line give."""
    structure, operator, gpu, compiler = (field(row, name, is_object) for name in ("structure", "operator", "gpu", "compiler"))
    return TaskKey(
        Structure(
            field(structure, "pattern", is_text), *(field(structure, n, is_size) for n in ("rows", "columns", "entries"))
        ),
        Operator(*(field(operator, name, is_text) for name in ("kernel", "encoding", "dtypes", "computation"))),
        tuple(field(row, "K", is_sizes)),
        field(row, "chip", is_text),
        Gpu(*(field(gpu, name, is_text) for name in ("name", "capability"))),
        Compiler(*(field(compiler, name, is_text) for name in ("project", "mlir", "llvm", "code"))),
        field(row, "caches", is_text),
    )


def read_plan(row: Row) -> StoredPlan:
    """The plan of a trial line, whose digest is held to it.  Whether its passes are there is not asked."""
    data, digest = field(row, "plan", is_object), field(row, "digest", is_text)
    steps = field(data, "steps", ("a list of text", lambda value: _all(value, list, is_text[1])))
    if any("\n" in step for step in steps):
        raise Wrong("a step of the plan goes over two lines")
    plan = StoredPlan(field(data, "kernel", is_text), tuple(steps))
    if data != plan.to_json():
        raise Wrong(f"'plan' is {shortened(data)}; it has to have schema {plan.to_json()['schema']}, kernel and steps")
    if plan.digest() != digest:
        raise Wrong(f"digest is '{digest}', but its plan has '{plan.digest()}'")
    return plan


def read_composite(row: Row) -> Definition:
    """The composite pass of a line.  Whether its passes are there is not asked."""
    kinds: dict[str, Check] = {
        "name": is_text,
        "doc": is_text,
        "parameters": is_object,
        "steps": ("a list of text", lambda value: _all(value, list, is_text[1])),
    }
    return {name: field(row, name, kind) for name, kind in kinds.items()}


def read_measurement(row: Row, **known: Any) -> Measurement:
    """A measurement of the fields of `row`; `known` are those that it need not have."""
    kinds: dict[str, Check] = {
        "outcome": ("a word", lambda value: isinstance(value, str) and bool(value)),
        "samples_us": is_samples,
        "why": is_text,
        "identity": is_text,
        "check": nullable(is_verification),
        "resources": nullable(is_rows),
        "seconds": is_seconds,
        "versions": is_texts,
        "measured_at": is_text,
    }
    values = {name: known[name] if name in known else field(row, name, kind) for name, kind in kinds.items()}
    measurement = Measurement(**{**values, "samples_us": tuple(map(float, values["samples_us"]))})
    if measurement.samples_us and measurement.outcome != OK:
        raise Wrong(f"has samples, although its outcome is '{measurement.outcome}'")
    if measurement.outcome == OK and measurement.check is not None and not measurement.check["passed"]:
        raise Wrong("its outcome is 'ok', although its check failed")
    return measurement


def read_record(row: Row) -> Record:
    """A trial line; what it says in sum is held to its measurements."""
    plan = read_plan(row)
    found = field(row, "measurements", ("a list of objects, at least one", lambda value: is_rows[1](value) and bool(value)))
    measurements = sorted(map(read_measurement, found), key=lambda m: (m.measured_at, m.digest()))
    says = {name: row.get(name) for name in ("outcome", "us", "iqr_us")}
    record = Record(plan, tuple(measurements))
    sums = _trial(record)
    for name, value in says.items():
        if value != sums[name]:
            raise Wrong(f"{name} is {value!r}, but its measurements give {sums[name]!r}")
    return record
