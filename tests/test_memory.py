"""The tuning database: what counts of what was measured, what is near, and what outlives a kill, a crowd and a release."""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matmul, matvec, transposed_matvec
from memories import COMPILER, H200, LANES, RIGHT, THREADS, WIDE, keep, key, older, right

from sparseditto.agent.memory import composites, near, schema
from sparseditto.agent.memory import database as database_module
from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.exchange import lines
from sparseditto.agent.memory.keys import EMULATOR, Compiler, Gpu, TaskKey
from sparseditto.agent.memory.trial import Measurement, StoredPlan, pooled, verdict
from sparseditto.compiler import recall as recalling
from sparseditto.compiler import task_keys
from sparseditto.compiler.api import compile_file
from sparseditto.compiler.kernel import read_kernel
from sparseditto.compiler.problem import Problem, bind
from sparseditto.compiler.runtimes import cuda
from sparseditto.dialects.binding import context
from sparseditto.dialects.errors import InputError
from sparseditto.passes.plan import Plan


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "deep" / "tuning.sqlite3") as made:
        yield made


# --- What counts ----------------------------------------------------------------------------------------


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    measurement = Measurement(
        "ok", (2.5, 1.5), "", "kernel", RIGHT, [{"kernel": "k", "registers": 40}], {"compile": 0.1}, {"driver": "580"}
    )
    task = dataclasses.replace(key(k=(4, 8)), caches="cold")
    with Database(tmp_path / "t.sqlite3") as database:
        number = database.begin(task, {"rows": 70, "equal_values": False}, {"case": "a"})
        database.add(number, THREADS, measurement)
    with Database(tmp_path / "t.sqlite3") as database:
        (kept,) = database.tasks()
        (record,) = database.records(kept.id)
    assert (kept.key, kept.features, kept.about) == (task, {"rows": 70, "equal_values": False}, {"case": "a"})
    assert kept.key.digest() == task.digest()
    assert (record.plan.read(), record.measurements) == (THREADS, (measurement,))
    assert record.plan.digest() == THREADS.digest()
    assert record.plan.text() == THREADS.text()


def test_measurements_of_a_plan_are_pooled(database: Database) -> None:
    number = database.begin(key())
    for second, samples in enumerate(((4.0, 6.0), (1.0,), ())):
        database.add(number, THREADS, right(*samples, at=f"2020-11-30T12:00:0{second}", seconds={"time": 0.5}))
    (row,) = database.rows("SELECT outcome, verified, us, samples FROM trials")
    assert tuple(row) == ("ok", 1, 4.0, 3)
    (record,) = database.records(number)
    trial = pooled(THREADS, record.measurements)
    assert (trial.us, trial.samples_us, trial.seconds, trial.check) == (4.0, (4.0, 6.0, 1.0), {"time": 1.5}, RIGHT)


@pytest.mark.parametrize(
    ("outcomes", "counts"),
    [
        (("ok", "ok"), "ok"),
        (("ok", "timeout"), "timeout"),
        (("timeout", "ok"), "ok"),
        (("wrong", "ok"), "wrong"),
        (("check-failed", "ok", "timeout"), "check-failed"),
        (("ok", "duplicate"), "ok"),
        (("hopeless", "duplicate"), "duplicate"),
    ],
)
def test_which_outcome_counts(database: Database, outcomes: tuple[str, ...], counts: str) -> None:
    """A wrong result counts for ever, a refusal only where nothing ran."""
    number = database.begin(key())
    for second, outcome in enumerate(outcomes):
        measured = right(2.0) if outcome == "ok" else Measurement(outcome)
        database.add(number, THREADS, dataclasses.replace(measured, measured_at=f"2020-11-30T12:00:0{second}"))
    (row,) = database.rows("SELECT outcome, us FROM trials")
    assert tuple(row) == (counts, 2.0 if counts == "ok" else None)
    assert verdict(database.records(number)[0].measurements).outcome == counts
    assert (database.best(number) is not None) is (counts == "ok")


def test_the_best_plan_is_right_and_can_be_read(database: Database) -> None:
    number = database.begin(key())
    assert database.best(number) is None
    database.add(number, THREADS, right(3.0))
    database.add(number, LANES, Measurement("ok", (1.0,)))  # nobody compared its result
    database.add(number, WIDE, Measurement("wrong"))
    with database.transaction():
        database.put(number, StoredPlan("", ("a-pass-that-is-gone",)), (right(2.0),))
    best = database.best(number)
    assert best is not None
    assert (best.plan, best.us, best.samples, best.rivals, best.unreadable) == (THREADS, 3.0, 1, 2, 1)


def test_the_same_measurement_is_kept_once(database: Database) -> None:
    number = database.begin(key())
    for _ in range(2):
        database.add(number, THREADS, right(2.0))
    assert len(database.records(number)[0].measurements) == 1
    database.add(number, THREADS, right(2.0, at="2020-11-30T13:00:00"))
    assert len(database.records(number)[0].measurements) == 2


def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    number = database.begin(key())

    def interrupted() -> None:
        with database.transaction():
            database.put(number, StoredPlan.of(THREADS), (right(2.0),))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert database.records(number) == []
    with pytest.raises(sqlite3.IntegrityError), database.transaction():
        database.put(number + 1, StoredPlan.of(THREADS), (right(2.0),))  # of no task
    keep(database, key())
    assert len(database.records(number)) == 1


# --- Near tasks -----------------------------------------------------------------------------------------


def features(rows: float, **more: float) -> dict[str, float]:
    return {"rows": rows, "mean_row": 8.0, **more}


def patterns(database: Database, task: TaskKey, of: dict[str, float], count: int = 9) -> list[str]:
    return [n.task.key.structure.pattern for n in near.nearest(database, task, of, count)]


def test_the_nearest_come_first(database: Database) -> None:
    for pattern, rows in (("far", 1e6), ("near", 1200.0), ("nearer", 900.0)):
        keep(database, key(pattern), features=features(rows))
    keep(database, key("unknown"))
    database.add(database.begin(key("failed"), features(1000.0)), THREADS, Measurement("wrong"))
    assert patterns(database, key("new"), features(1000.0)) == ["nearer", "near", "far"]
    assert patterns(database, key("new"), features(1000.0), 1) == ["nearer"]
    assert patterns(database, key("near"), features(1200.0)) == ["nearer", "far"], "a task is not near itself"
    assert patterns(database, key("new"), {}) == ["nearer", "near", "far"], "the latest first where nothing tells"


def test_only_the_same_operator_and_gpu_are_near(database: Database) -> None:
    keep(database, key("operator", kernel="other"), features=features(1000.0))
    keep(database, key("gpu", gpu=Gpu("NVIDIA A100", "8.0")), features=features(1000.0))
    keep(database, key("new", compiler=Compiler("0.0.9", "1", "1", "x")), features=features(1000.0))
    keep(database, key("wide", k=(64,)), features=features(1000.0))
    keep(database, key("close", k=(16,)), features=features(1000.0))
    found = near.nearest(database, key("new"), features(1000.0), 9)
    assert [(n.task.key.structure.pattern, n.distance) for n in found] == [("new", 0.0), ("close", 1.0), ("wide", 3.0)]


def test_distances_are_those_of_the_definition() -> None:
    mine, others = {"rows": 9.0, "skew": 0.0}, [{"rows": 99.0, "skew": 1.0}, {"rows": 9.0, "more": 3.0}, {"more": 3.0}]
    logs = np.log1p([9.0, 99.0, 9.0])
    expected = math.hypot((logs[1] - logs[0]) / logs.std(), 2.0) / math.sqrt(2)  # two values are two deviations apart
    assert near.distances(mine, others) == pytest.approx([expected, 0.0, math.inf])
    assert near.distances(mine, []).shape == (0,)


def test_features_are_not_lost_to_fewer(database: Database) -> None:
    for known in (None, {"rows": 70.0}, {"rows": 70.0, "skew": 1.0}, {"rows": 70.0}, None):
        database.begin(key(), known)
    assert database.tasks()[0].features == {"rows": 70.0, "skew": 1.0}


# --- Files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_older_databases_are_brought_up_to_date(tmp_path: Path, version: int) -> None:
    path = older(tmp_path / "old.sqlite3", version)
    for _ in range(2):
        with Database(path) as database:
            assert database.rows("PRAGMA user_version")[0][0] == schema.VERSION
            (task,) = database.tasks()
            best = database.best(task.id)
            assert best is not None
            assert (best.us, best.rivals, best.plan.steps[-1].options()["threads"]) == (2.25, 2, 128)
            assert (task.key.gpu, task.about) == (H200, {})
            assert composites.definitions(database) == []
    with Database(path) as database, Database(None) as new:
        tables = "SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
        assert list(map(tuple, database.rows(tables))) == list(map(tuple, new.rows(tables)))


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = older(tmp_path / "old.sqlite3", 1)
    before = path.read_bytes()
    broken = (schema.MIGRATIONS[0], (schema.MIGRATIONS[1][0], "CREATE TABLE tasks (id)"))
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    with pytest.raises(InputError, match="table tasks already exists"):
        Database(path)
    assert path.read_bytes() == before


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite3"
    Database(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    db.close()
    with pytest.raises(InputError, match=rf"is of schema {schema.VERSION + 1}, .*sparseditto db export"):
        Database(path)


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.sqlite3"
    text.write_text("these are notes, and long enough for the header of a database " * 20)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    (tmp_path / "file").write_text("")
    for path, message in (
        (text, "file is not a database"),
        (other, "is no tuning database"),
        (tmp_path, "unable to open"),
        (tmp_path / "file" / "t.sqlite3", "its folder cannot be made"),
    ):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(InputError, match=message):
            Database(path)
        assert (path.read_bytes() if path.is_file() else b"") == before


def test_who_waits_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_S", 0.05)
    with Database(tmp_path / "t.sqlite3") as one, Database(tmp_path / "t.sqlite3") as two, one.transaction():
        assert two.tasks() == [], "readers do not wait"
        with pytest.raises(InputError, match="database is locked"):
            two.begin(key())


WRITER = """
import sys
from pathlib import Path
from memories import key, right
from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.trial import StoredPlan

with Database(Path(sys.argv[1])) as database:
    number = database.begin(key())
    for count in range(1_000_000):
        with database.transaction():
            database.put(number, StoredPlan("", (f"{sys.argv[2]}-{count}",)), (right(2.0),))
        print(count, flush=True)
"""


def test_many_writers_are_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    """They make the file, write at once and die at any moment; what they said they had committed is there."""
    path = tmp_path / "t.sqlite3"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) for n in range(3)
    ]
    said = []
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
    time.sleep(0.3)
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
    for writer in writers:
        rest, _ = writer.communicate(timeout=20)
        assert writer.returncode == -signal.SIGKILL
        said.append(len([line for line in rest.splitlines(keepends=True) if line.endswith("\n")]))
    assert sum(said) > 10
    with Database(path) as database:
        assert database.rows("PRAGMA integrity_check")[0][0] == "ok"
        assert database.rows("PRAGMA foreign_key_check") == []
        (task,) = database.tasks()
        kept = {record.plan.text() for record in database.records(task.id)}
        assert database.rows("SELECT count(*) FROM trials WHERE outcome = ''")[0][0] == 0, "no trial without a measurement"
    for n, count in enumerate(said):
        assert {f"{n}-{i}" for i in range(count + 1)} <= kept


# --- Keys -----------------------------------------------------------------------------------------------


def problem(text: str, a: sp.csr_array, sizes: dict[str, int] | None = None) -> Problem:
    with context():
        computation = read_kernel(text).computation
    return bind(computation, {"A": a}, sizes)


def small(seed: int = 0, shape: tuple[int, int] = (70, 50)) -> sp.csr_array:
    return sp.random_array(shape, density=0.1, rng=np.random.default_rng(seed), format="csr", dtype=np.float32)


def of(text: str, a: sp.csr_array, **sizes: int) -> TaskKey:
    return task_keys.task_key(problem(text, a, sizes), "sm_90", H200)


def test_keys_see_what_times_depend_on() -> None:
    a = small()
    base = of(matmul(), a, K=8)
    values = sp.csr_array((a.data * 3 + 1, a.indices, a.indptr), shape=a.shape)
    assert of(matmul(), values, K=8) == base, "values are not part of a pattern"
    assert of(matmul().replace("@spmm", "@other").replace("%B", "%X"), a, K=8) == base, "nor are names of a kernel"
    equal = sp.csr_array((np.full(a.nnz, 2, np.float32), a.indices, a.indptr), shape=a.shape)
    other = [
        of(matmul(), small(1), K=8),
        of(matmul(), equal, K=8),  # which uniform-values would store
        of(matmul(), sp.csr_array((a.data, a.indices, a.indptr), shape=(70, 51)), K=8),
        of(matmul(), a, K=16),
        of(matmul("f64"), a, K=8),
        of(matmul(fill=None), a, K=8),
        of(matvec(), a),
        of(transposed_matvec(), a),
        of(matvec(a="tensor<?x?xf32, #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>>"), a),
        dataclasses.replace(base, caches="cold"),
        dataclasses.replace(base, gpu=Gpu("NVIDIA H200", "9.1")),
        dataclasses.replace(base, compiler=dataclasses.replace(base.compiler, code="")),
    ]
    assert len({one.digest() for one in (base, *other)}) == len({base, *other}) == len(other) + 1
    assert of(transposed_matvec(), a).structure.rows == 50, "a kernel that walks columns"


def test_keys_see_symmetric_values() -> None:
    """`lower-triangle` applies to a matrix that equals its transpose; another one of the same pattern is another task."""
    a = sp.csr_array(sp.diags_array([np.arange(1.0, 40), np.full(40, 2.0), np.arange(1.0, 40)], offsets=[-1, 0, 1]))
    other, nan = a.copy(), a.copy()
    other.data[1] += 1
    nan.data[[1, 2]] = np.nan
    assert of(matvec(), a) == of(matvec(), nan) != of(matvec(), other)
    assert of(matvec(), a) == of(matvec(), sp.csr_array(a.T * 2))
    assert of(matvec(), sp.csr_array((4, 4))) != of(matvec(), sp.csr_array((4, 5)))


def test_nothing_of_the_matrix_but_numbers_is_kept(database: Database) -> None:
    a = small()
    database.begin(of(matvec(), a), {"rows": 70.0})
    (line,) = map(json.loads, lines(database))
    assert len(line["structure"].pop("pattern")) == 32
    assert line["structure"] == {"rows": 70, "columns": 50, "entries": a.nnz}


# --- Compiling with what is known -----------------------------------------------------------------------


@pytest.fixture
def spmm(kernel_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recalling, "_gpu_here", lambda chip: None)
    return kernel_file(matmul())


def known(path: Path, gpu: Gpu = H200, compiler: Compiler | None = None, plan: Plan = LANES) -> Path:
    """A database that knows the task of `spmm`."""
    task = dataclasses.replace(of(matmul(), small(), K=8), gpu=gpu)
    with Database(path) as database:
        keep(database, task if compiler is None else dataclasses.replace(task, compiler=compiler), plan=plan)
    return path


def test_a_hit_compiles_without_tuning(spmm: Path, tmp_path: Path) -> None:
    path = known(tmp_path / "t.sqlite3")
    compiled = compile_file(spmm, {"A": small()}, {"K": 8}, database=path)
    assert compiled.plan == LANES
    assert compiled.notes == (
        "the plan is from the tuning database: 2.00 us a call on NVIDIA H200, the best of 1 right plans, measured 2020-11-30",
    )
    about = compiled.package.provenance
    assert (about["plan"], about["us"], about["gpu"], about["samples"]) == ("database", 2.0, "NVIDIA H200", 1)
    given = compile_file(spmm, {"A": small()}, {"K": 8}, database=path, plan=THREADS.text())
    assert (given.plan, given.notes, given.package.provenance) == (THREADS, (), {"plan": "given"})


@pytest.mark.parametrize(
    ("matrix", "sizes"), [(small(1), {"K": 8}), (small(), {"K": 16}), (small(), {})], ids=["matrix", "K", "no K"]
)
def test_what_is_not_exactly_this_task_is_no_hit(
    spmm: Path, tmp_path: Path, matrix: sp.csr_array, sizes: dict[str, int]
) -> None:
    compiled = compile_file(spmm, {"A": matrix}, sizes, database=known(tmp_path / "t.sqlite3"))
    assert (compiled.notes, compiled.package.provenance) == ((), {"plan": "planner"})


def test_what_cannot_be_trusted_is_said(spmm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def note(path: Path) -> str:
        compiled = compile_file(spmm, {"A": small()}, {"K": 8}, database=path)
        assert compiled.package.provenance == {"plan": "planner"}
        (told,) = compiled.notes
        return told

    assert "under emulation only" in note(known(tmp_path / "a", gpu=Gpu(EMULATOR, "")))
    assert "from other versions of the compiler only" in note(known(tmp_path / "b", compiler=COMPILER))
    two = known(known(tmp_path / "c"), gpu=Gpu("NVIDIA GH200", "9.0"))
    assert "on NVIDIA GH200 and NVIDIA H200 only" in note(two)
    monkeypatch.setattr(recalling, "_gpu_here", lambda chip: Gpu("NVIDIA H100", "9.0"))
    assert "on NVIDIA H200 only" in note(known(tmp_path / "d"))
    monkeypatch.setattr(recalling, "_gpu_here", lambda chip: H200)
    assert compile_file(spmm, {"A": small()}, {"K": 8}, database=two).plan == LANES, "this machine's GPU decides"
    with pytest.raises(InputError, match="no such database"):
        compile_file(spmm, {"A": small()}, {"K": 8}, database=tmp_path / "absent")


@pytest.mark.parametrize(
    ("missing", "chip", "found"),
    [(None, "sm_90", H200), (None, "sm_80", H200), (None, "sm_100", None), ("no GPU", "sm_90", None)],
)
def test_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch, missing: str | None, chip: str, found: Gpu | None) -> None:
    """One that cannot run the target is none."""
    monkeypatch.setattr(cuda, "available", lambda: missing)
    monkeypatch.setattr(cuda, "versions", lambda: {"gpu": "NVIDIA H200", "compute_capability": "9.0", "driver": "580"})
    assert recalling._gpu_here(chip) == found


def test_a_plan_of_passes_that_are_gone_is_passed_over(spmm: Path, tmp_path: Path) -> None:
    path = known(tmp_path / "t.sqlite3")
    with Database(path) as database:
        (task,) = database.tasks()
        with database.transaction():
            database.put(task.id, StoredPlan("", ("a-pass-that-is-gone",)), (right(1.0),))
    compiled = compile_file(spmm, {"A": small()}, {"K": 8}, database=path)
    assert compiled.plan == LANES
    assert compiled.notes[1] == "1 faster plans name passes that there are no longer"
