"""`sparseditto db`, and the commands that read and write the database: files in and out, and one message for what is wrong."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matmul
from memories import H200, HEAD, LANES, THREADS, WIDE, keep, key, older, right

from sparseditto.agent.memory import composites, exchange
from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.keys import EMULATOR, Compiler, Gpu
from sparseditto.agent.memory.schema import VERSION
from sparseditto.agent.memory.trial import Measurement
from sparseditto.compiler import recall, task_keys
from sparseditto.compiler.cli import main
from sparseditto.compiler.cli.common import run_and_report
from sparseditto.compiler.kernel import read_kernel
from sparseditto.compiler.problem import bind
from sparseditto.dialects.binding import context
from sparseditto.passes.base import Pass
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `sparseditto` in this process, in a folder of its own, with `t.sqlite3` as the database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARSEDITTO_DB", "t.sqlite3")

    def in_process(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            args = main.parser().parse_args(words)
            code = run_and_report("sparseditto", lambda: int(args.func(args)))
        except SystemExit as e:
            code = int(e.code or 0)
        return code, *capsys.readouterr()

    return in_process


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Two tasks on a GPU and one under emulation."""
    path = tmp_path / "t.sqlite3"
    with Database(path) as database:
        number = keep(database, key(), 2.0, features={"rows": 70.0, "skew": 0.5})
        database.add(number, THREADS, right(4.0, at="2020-11-30T13:00:00.000000+00:00", versions={"driver": "580"}))
        database.add(number, LANES, right(1.0))
        database.add(number, WIDE, Measurement("timeout", why="too long", measured_at="2020-11-30T12:00:00.000000+00:00"))
        keep(database, key("b", compiler=Compiler("0.0.9", "21", "21", "0ld")), 5.0, LANES)
        keep(database, key("b", gpu=Gpu(EMULATOR, "")), 700.0)
    return path


# --- Counting -------------------------------------------------------------------------------------------


def test_stats(run: Run, filled: Path) -> None:
    code, out, _ = run("db", "stats")
    assert code == 0
    assert f"schema {VERSION})" in out
    assert "rows: 3 tasks, 5 trials, 6 measurements, 2 structures, 3 plans, 0 composites" in out
    assert "outcomes: 4 ok, 1 timeout" in out
    assert "GPU: NVIDIA H200 9.0, 2 tasks\nGPU: emulator, 1 tasks" in out
    assert "compiler: 0.0.9 (code 0ld), MLIR 21, LLVM 21, 1 tasks" in out
    code, out, _ = run("db", "stats", "--json", "--db", str(filled))
    data = json.loads(out)
    assert (data["outcomes"], data["schema"]) == ({"ok": 4, "timeout": 1}, VERSION)
    assert data["bytes"] >= filled.stat().st_size
    assert data["gpus"][0] == {"name": "NVIDIA H200", "capability": "9.0", "tasks": 2}


@pytest.mark.parametrize("action", ["stats", "export", "prune --keep-best 1"])
def test_a_database_that_is_not_there_is_not_made(run: Run, tmp_path: Path, action: str) -> None:
    code, _, err = run("db", *action.split())
    assert code == 2
    assert "t.sqlite3: there is no such database; `sparseditto tune` or `db import` makes one" in err
    assert list(tmp_path.iterdir()) == []


# --- Files in and out -----------------------------------------------------------------------------------


def test_what_is_exported_comes_back(run: Run, filled: Path, tmp_path: Path) -> None:
    assert run("db", "export", "-o", "all.jsonl")[0] == 0
    text = Path("all.jsonl").read_text()
    assert run("db", "export")[1] == text, "the order is stable"
    assert len(text.splitlines()) == 8
    Path("all.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    for source in ("all.jsonl", "all.jsonl.xz", "all.jsonl.xz"):
        code, out, _ = run("db", "import", source, "--db", "new.sqlite3")
        assert (code, out.split("added: ")[0]) == (0, "read: 3 tasks, 5 trials; ")
        assert run("db", "export", "--db", "new.sqlite3")[1] == text
    assert "added: 0 measurements" in out
    with Database(filled) as one, Database(tmp_path / "new.sqlite3") as two:
        best = [[database.best(task.id) for task in database.tasks()] for database in (one, two)]
    assert sorted(map(str, best[0])) == sorted(map(str, best[1]))


def changed(line: str, *path: str, to: Any) -> str:
    """A line with one field changed."""
    row = json.loads(line)
    place = row
    for name in path[:-1]:
        place = place[int(name) if name.isdigit() else name]
    place[path[-1]] = to
    return json.dumps(row)


WRONG = [
    (0, ("kind",), "plan", "kind is 'plan'; there are 'composite', 'task' and 'trial'"),
    (0, ("schema",), 3, "schema is 3; this release reads 1 and 2"),
    (0, ("chip",), 90, "'chip' is 90; it has to be text"),
    (0, ("K",), [-1], "'K' is [-1]; it has to be a list of numbers from 0 on"),
    (0, ("structure", "rows"), 1.5, "'rows' is 1.5; it has to be a number from 0 on"),
    (0, ("features",), {"rows": "many"}, "it has to be an object of numbers, or null"),
    (0, ("gpu", "name"), "another", "task is '"),
    (1, ("task",), "0123", "belongs to task '0123', of which no line stands before it"),
    (1, ("digest",), "0123", "digest is '0123', but its plan has"),
    (1, ("plan", "steps"), ["a\nb"], "goes over two lines"),
    (1, ("plan", "schema"), 7, "it has to have schema 1, kernel and steps"),
    (1, ("us",), 0.5, "us is 0.5, but its measurements give"),
    (1, ("outcome",), "wrong", "outcome is 'wrong', but its measurements give 'ok'"),
    (1, ("measurements",), [], "it has to be a list of objects, at least one"),
    (1, ("measurements", "0", "samples_us"), [True], "it has to be a list of numbers from 0 on"),
    (1, ("measurements", "0", "check"), {"passed": False}, "its outcome is 'ok', although its check failed"),
    (1, ("measurements", "0", "outcome"), "crash", "has samples, although its outcome is 'crash'"),
    (1, ("measurements", "0", "resources"), 40, "'resources' is 40; it has to be a list of objects, or null"),
]


@pytest.mark.parametrize(
    ("line", "path", "to", "message"), WRONG, ids=lambda value: ".".join(value) if type(value) is tuple else ""
)
def test_a_wrong_line_is_named_and_nothing_is_kept(
    run: Run, tmp_path: Path, line: int, path: tuple[str, ...], to: Any, message: str
) -> None:
    with Database(tmp_path / "t.sqlite3") as database:
        keep(database, key())
        found = list(exchange.lines(database))
    found[line] = changed(found[line], *path, to=to)
    Path("wrong.jsonl").write_text("\n".join(found) + "\n")
    code, _, err = run("db", "import", "wrong.jsonl", "--db", "new.sqlite3")
    assert code == 2
    assert f"wrong.jsonl:{line + 1}: " in err
    assert message in err
    assert not Path("new.sqlite3").exists()


def test_what_is_no_json_lines_is_refused(run: Run) -> None:
    for content, message in (
        (b'{"schema": 2', "x.jsonl:1: is not JSON"),
        (b"[]", "x.jsonl:1: is no JSON object"),
        (b'{"schema": 2, "kind": "task", "task": NaN}', "x.jsonl:1: is not JSON: NaN"),
        (b'{"schema": 2, "kind": "task"}', "x.jsonl:1: lacks 'task'"),
        (b"\xff", "x.jsonl: is not text"),
        (b"[" * 100_000, "x.jsonl:1: is not JSON"),
    ):
        Path("x.jsonl").write_bytes(content)
        code, _, err = run("db", "import", "x.jsonl")
        assert (code, message in err) == (2, True), err
    Path("x.xz").write_bytes(b"nothing")
    assert "x.xz: is no xz file" in run("db", "import", "x.xz")[2]
    assert "absent: cannot be read: No such file" in run("db", "import", "absent")[2]


def test_records_of_earlier_benchmark_runs(run: Run) -> None:
    """They have no hash of the pattern: they are never hits, but near ones; what was measured stays what it was."""
    source = RESULTS / "suite-h200-csr.tuning.jsonl.xz"
    code, out, err = run("db", "import", str(source))
    assert (code, err) == (0, "")
    assert out == "read: 89 tasks, 2242 trials; added: 2242 measurements\n"
    with lzma.open(source) as file:
        rows = list(map(json.loads, file))
    last = {(row["task"], row["digest"]): row for row in rows if row["kind"] == "trial"}
    with Database(Path("t.sqlite3")) as database:
        tasks = database.tasks()
        us = [row[0] for row in database.rows("SELECT us FROM trials WHERE us IS NOT NULL")]
    assert sorted(us) == pytest.approx(sorted(row["us"] for row in last.values() if row["outcome"] == "ok"))
    one = next(task for task in tasks if task.about["case"] == "bayer10")
    assert one.key.structure.pattern == "name:bayer10 13436x13436 94926"
    assert (one.key.gpu, one.key.K, one.key.operator.kernel) == (H200, (), "f094510c174c")
    assert one.features is not None
    assert one.features["entries"] == 94926
    assert "added: 0 measurements" in run("db", "import", str(source))[1]


def test_earlier_records_that_lack_too_much_are_refused(run: Run) -> None:
    with lzma.open(RESULTS / "suite-h200-csr.tuning.jsonl.xz") as file:
        task, trial = json.loads(file.readline()), json.loads(file.readline())
    bare = {name: task[name] for name in ("schema", "kind", "task", "chip", "versions")}
    for rows, message in (
        ([bare], "x.jsonl:1: is a record of `tune` of schema 1, which lacks the types of the operands"),
        ([task], "x.jsonl:1: which kernel task 'b61c6ac5e920d75a' is of is not known: its plans name none"),
        ([task, trial | {"us": 1.0}], "x.jsonl:2: us is 1.0, which is not the median of its samples"),
        ([trial], "x.jsonl:1: belongs to task"),
        ([task | {"gpu": None}], "'gpu' is None; it has to be an object"),
    ):
        Path("x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        code, _, err = run("db", "import", "x.jsonl")
        assert (code, message in err) == (2, True), err


# --- Merging and pruning --------------------------------------------------------------------------------


def test_merging_is_idempotent_and_changes_no_source(run: Run, filled: Path, tmp_path: Path) -> None:
    with Database(tmp_path / "other.sqlite3") as other:
        number = keep(other, key(), 2.0)  # the very measurement of the first
        other.add(number, LANES, right(9.0, 9.0))
    old = older(tmp_path / "old.sqlite3", 1)
    before = old.read_bytes()
    for added in (3, 0):
        code, out, _ = run("db", "merge", "other.sqlite3", "old.sqlite3")
        assert (code, out) == (0, f"read: 2 tasks, 4 trials; added: {added} measurements\n")
    assert old.read_bytes() == before
    with Database(filled) as database:
        assert database.rows("SELECT us FROM trials WHERE samples = 3 AND us > 8")[0][0] == 9.0, "pooled of 1, 9 and 9"
        assert len(database.tasks()) == 4
    code, _, err = run("db", "merge", "other.sqlite3", "absent.sqlite3")
    assert (code, "absent.sqlite3: there is no such database" in err) == (2, True)
    Path("text").write_text("no database at all, but long enough to be taken for one" * 20)
    assert "text: cannot be read as a tuning database" in run("db", "merge", "text")[2]


def left(path: Path) -> list[tuple[str, str, float | None]]:
    with Database(path) as database:
        found = database.rows(
            "SELECT s.pattern, r.outcome, r.us FROM trials r JOIN tasks t ON t.id = r.task "
            "JOIN structures s ON s.id = t.structure ORDER BY s.pattern, r.us"
        )
        assert database.rows("PRAGMA foreign_key_check") == []
    return list(map(tuple, found))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--keep-best 1", [("a", "ok", 1.0), ("b", "ok", 5.0), ("b", "ok", 700.0)]),
        ("--keep-best 0", []),
        ("--compiler-version 0.0.9", [("a", "timeout", None), ("a", "ok", 1.0), ("a", "ok", 3.0), ("b", "ok", 700.0)]),
        ("--compiler-version c0de", [("b", "ok", 5.0)]),
        ("--older-than 0", []),
        (
            "--older-than 1e9",
            [("a", "timeout", None), ("a", "ok", 1.0), ("a", "ok", 3.0), ("b", "ok", 5.0), ("b", "ok", 700.0)],
        ),
        ("--keep-best 1 --compiler-version 0.0.9", [("a", "ok", 1.0), ("b", "ok", 700.0)]),
    ],
)
def test_prune(run: Run, filled: Path, words: str, kept: list[tuple[str, str, float | None]]) -> None:
    before = left(filled)
    code, would, _ = run("db", "prune", *words.split(), "--dry-run")
    assert (code, left(filled)) == (0, before)
    code, out, _ = run("db", "prune", *words.split())
    assert out.replace("removed", "would remove") == would
    assert f"{len(before) - len(kept)} trials" in out
    assert left(filled) == kept


def test_pruning_what_is_old_sums_up_anew(run: Run, filled: Path) -> None:
    with Database(filled) as database:
        (task, *_) = database.tasks()
        database.add(task.id, THREADS, Measurement("ok", (8.0,), check={"passed": True}))  # now
    assert run("db", "prune", "--older-than", "0.5")[0] == 0
    assert left(filled) == [("a", "ok", 8.0)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say what to remove: --keep-best N, --older-than DAYS, --compiler-version VERSION or --composite NAME"),
        (["--keep-best", "-1"], "no number from 0 on"),
        (["--older-than", "nan"], "no number of days from 0 on"),
    ],
)
def test_pruning_needs_to_know_what(run: Run, filled: Path, words: list[str], message: str) -> None:
    code, _, err = run("db", "prune", *words)
    assert (code, message in err) == (2, True)


# --- The commands that use it ---------------------------------------------------------------------------


@pytest.fixture
def folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "k.mlir").write_text(matmul())
    sp.save_npz(tmp_path / "a.npz", sp.random_array((70, 50), density=0.1, rng=np.random.default_rng(0), format="csr"))
    monkeypatch.setattr(recall, "_gpu_here", lambda chip: None)
    return tmp_path


def know(path: Path, gpu: Gpu = H200) -> None:
    with context():
        computation = read_kernel(matmul()).computation
    problem = bind(computation, {"A": "a.npz"}, {"K": 8})
    with Database(path) as database:
        keep(database, task_keys.task_key(problem, "sm_90", gpu), plan=LANES)


KERNEL = ["k.mlir", "--bind", "A=a.npz", "--size", "K=8"]


def test_compile_and_run_use_a_hit_and_say_so(run: Run, folder: Path) -> None:
    code, out, err = run("compile", *KERNEL)
    assert (code, err) == (0, ""), "a default database that is not there is no matter"
    assert LANES.digest() not in out
    know(folder / "t.sqlite3")
    code, out, err = run("compile", *KERNEL)
    assert code == 0
    assert f"[{LANES.digest()}]" in out
    assert "sparseditto: note: the plan is from the tuning database: 2.00 us a call on NVIDIA H200" in err
    assert json.loads(Path("spmm.ditto/package.json").read_text())["provenance"]["plan"] == "database"
    code, out, err = run("run", *KERNEL, "--device", "simt", "--check")
    assert (code, f"[{LANES.digest()}]" in out, "from the tuning database" in err) == (0, True, True)
    assert "check passed" in out
    for words in (["--no-db"], ["--plan", THREADS.text()]):
        code, out, err = run("compile", *KERNEL, *words)
        assert (code, LANES.digest() in out, err) == (0, False, "")
    shutil.move("t.sqlite3", "mine.sqlite3")
    assert f"[{LANES.digest()}]" in run("compile", *KERNEL, "--db", "mine.sqlite3")[1]


def test_wrong_databases_are_refused(run: Run, folder: Path) -> None:
    for words, message in (
        (["--db", "absent"], "absent: there is no such database"),
        (["--db", "k.mlir"], "k.mlir: cannot be used as a tuning database (file is not a database)"),
        (["--db", "x", "--no-db"], "not allowed with argument"),
    ):
        Path("k.mlir").write_text(matmul())
        code, _, err = run("compile", *KERNEL, *words)
        assert (code, message in err) == (2, True), err
    assert run("compile", *KERNEL)[0] == 0
    code, _, err = run("run", "spmm.ditto", "--bind", "A=a.npz", "--db", "x")
    assert (code, "--db is for compiling" in err) == (2, True)


def test_tune_keeps_and_the_next_search_begins_there(run: Run, folder: Path) -> None:
    tune = ["tune", *KERNEL, "--device", "simt", "--workers", "1", "--budget", "1", "--plan", THREADS.text()]
    assert run(*tune, "--no-db")[0] == 0
    assert not Path("t.sqlite3").exists()
    assert run(*tune)[0] == 0
    assert "outcomes: 1 ok" in run("db", "stats")[1]
    code, _, err = run("compile", *KERNEL)
    assert "knows this task under emulation only, whose costs are no times" in err
    other = [
        "tune",
        "k.mlir",
        "--bind",
        "A=a.npz",
        "--size",
        "K=4",
        "--device",
        "simt",
        "--workers",
        "1",
        "--budget",
        "1",
        "--json",
    ]
    code, out, err = run(*other)
    assert code == 0
    assert "note: the search begins with 1 plans of the 1 nearest tasks in the database (distance 1.00 to 1.00)" in err
    assert json.loads(out)["trials"][0]["text"] == THREADS.text()


def test_where_the_database_is(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--db, then the environment, then the user's data folder (XDG base directories: a relative one counts as none)."""

    def place(*words: str) -> str:
        return run("db", "stats", *words)[2].partition(": there is")[0].rpartition(": ")[2]

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert place("--db", "mine") == "mine"
    assert place() == "t.sqlite3"
    monkeypatch.delenv("SPARSEDITTO_DB")
    assert place() == str(tmp_path / "data/sparseditto/tuning.sqlite3")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", value)
        assert place() == str(tmp_path / "home/.local/share/sparseditto/tuning.sqlite3")


# --- Composite passes -----------------------------------------------------------------------------------


BLOCKS = {
    "name": "wide-blocks",
    "doc": "Large blocks.",
    "parameters": {"threads": {"default": 512, "choices": [256, 512], "help": "threads of a block"}},
    "steps": ["map-blocks{threads=$threads}", "bound-launch{blocks=2}"],
}
GONE = {"name": "gone", "doc": "Holds a pass that there is no longer.", "parameters": {}, "steps": ["fly"]}


def forget(before: dict[str, type[Pass]]) -> None:
    registry().clear()
    registry().update(before)


def with_composites(path: Path, *definitions: dict[str, Any]) -> Path:
    with Database(path) as database, database.transaction():
        assert all(composites.put(database, definition) for definition in definitions)
    return path


def test_composites_are_counted_exported_imported_and_pruned(run: Run, filled: Path) -> None:
    with_composites(filled, BLOCKS, GONE)
    assert "3 plans, 2 composites" in run("db", "stats")[1]
    text = run("db", "export")[1]
    first, second, *rest = map(json.loads, text.splitlines())
    assert [first["name"], second["name"]] == ["gone", "wide-blocks"]
    assert {row["kind"] for row in rest} == {"task", "trial"}
    Path("all.jsonl").write_text(text)
    code, out, err = run("db", "import", "all.jsonl", "--db", "new.sqlite3")
    assert (code, out, err) == (0, "read: 3 tasks, 5 trials; added: 6 measurements, 2 composite passes\n", "")
    assert run("db", "export", "--db", "new.sqlite3")[1] == text
    assert run("db", "import", "all.jsonl", "--db", "new.sqlite3")[1].endswith("added: 0 measurements\n")
    assert "1 composites" in run("db", "prune", "--composite", "gone")[1]
    code, _, err = run("db", "prune", "--composite", "gone")
    assert (code, "keeps no composite pass 'gone'" in err) == (2, True)
    assert "1 composites" in run("db", "stats")[1]
    Path("wrong.jsonl").write_text(text.splitlines()[0].replace('["fly"]', '"fly"'))
    code, _, err = run("db", "import", "wrong.jsonl")
    assert (code, "wrong.jsonl:1: 'steps' is 'fly'; it has to be a list of text" in err) == (2, True)


def test_merging_keeps_the_composite_that_is_there(run: Run, filled: Path, tmp_path: Path) -> None:
    with_composites(filled, BLOCKS)
    with_composites(tmp_path / "other.sqlite3", {**BLOCKS, "doc": "Other ones."}, GONE)
    for added in (", 1 composite passes", ""):
        code, out, err = run("db", "merge", "other.sqlite3")
        assert (code, out) == (0, f"read: 0 tasks, 0 trials; added: 0 measurements{added}\n")
        assert "note: other composite passes are kept under these names, and stay: wide-blocks" in err
    with Database(filled) as database:
        assert composites.definitions(database) == [GONE, BLOCKS]


@pytest.mark.usefixtures("passes_forgotten")
def test_commands_know_the_composites_of_their_database(run: Run, folder: Path) -> None:
    before = dict(registry())
    Path("wide.json").write_text(json.dumps(BLOCKS))
    plan = f"{HEAD},rows-to-threads,wide-blocks{{threads=256}}"
    steps = f"{HEAD},rows-to-threads,map-blocks{{threads=256}},bound-launch{{blocks=2}}"
    code, _, err = run("compile", *KERNEL, "--plan", plan)
    assert (code, "no pass is named 'wide-blocks'" in err) == (2, True)
    simt = ("--device", "simt", "--workers", "1", "--budget", "1", "--plan", plan)
    code, _, err = run("tune", *KERNEL, *simt, "--load", "wide.json")
    assert code == 0, err
    for words in (("compile", *KERNEL, "--plan", plan), ("run", *KERNEL, "--device", "simt", "--check", "--plan", plan)):
        forget(before)
        code, out, _ = run(*words)
        assert (code, f"[{Plan.parse(steps).digest()}]" in out) == (0, True)
    forget(before)
    code, _, err = run("compile", *KERNEL, "--plan", plan, "--no-db")
    assert (code, "no pass is named 'wide-blocks'" in err) == (2, True)
    assert run("tune", *KERNEL, *simt)[0] == 0, "known without --load"
    forget(before)
    code, out, _ = run("passes", "wide-blocks")
    assert code == 0
    assert out.startswith("wide-blocks (composite pass)\n\nLarge blocks.\n\nSteps::\n\n    map-blocks{threads=$threads}\n")
    assert "threads (int, default 512, one of 256, 512): threads of a block" in out
    assert run("passes")[1].split()[:2] == ["wide-blocks", "composite"]
    forget(before)
    assert "wide-blocks" not in run("passes", "--no-db")[1]


@pytest.mark.usefixtures("passes_forgotten")
def test_composites_that_cannot_be_known_are_told(run: Run, folder: Path) -> None:
    with_composites(folder / "t.sqlite3", GONE, {**BLOCKS, "name": "unroll"})
    wanted = (
        "note: a composite pass of the database is left out: composite 'gone': step 1 (fly): no pass is named 'fly'",
        "note: a composite pass of the database is left out: composite 'unroll': its name is taken by another pass",
    )
    for words in (("passes",), ("compile", *KERNEL), ("tune", *KERNEL, "--device", "simt", "--workers", "1", "--budget", "1")):
        code, _, err = run(*words)
        assert code == 0
        assert all(err.count(text) == 1 for text in wanted), err


@pytest.mark.usefixtures("passes_forgotten")
def test_two_composites_of_one_name_are_refused(run: Run, folder: Path) -> None:
    with_composites(folder / "t.sqlite3", {**BLOCKS, "doc": "Other ones."})
    Path("wide.json").write_text(json.dumps(BLOCKS))
    code, _, err = run("tune", *KERNEL, "--device", "simt", "--load", "wide.json")
    assert code == 2
    assert "composite 'wide-blocks': another one is kept under its name in t.sqlite3" in err
    assert "`sparseditto db prune --composite wide-blocks`" in err
