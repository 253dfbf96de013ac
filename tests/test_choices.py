"""What records of tuned runs say of plans: who won, by how much, and what one change brings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

from benchmarks import choices  # noqa: E402
from sparseditto.agent.memory.database import Database  # noqa: E402
from sparseditto.agent.memory.keys import Compiler, Gpu, Operator, Structure, TaskKey  # noqa: E402
from sparseditto.agent.memory.trial import Measurement  # noqa: E402
from sparseditto.passes.plan import Plan  # noqa: E402

HEAD = "set-encoding,accumulate-registers"
DEFAULT = f"{HEAD},rows-to-subgroups{{lanes=8 share=entries}},unroll{{factor=4}},map-blocks"
FOUR_LANES = DEFAULT.replace("lanes=8", "lanes=4")
CUT = DEFAULT.replace("rows-to", "segment-rows{length=64},rows-to")
THREADS = f"{HEAD},rows-to-threads,unroll{{factor=8}},map-blocks"
SQUARE = {"rows": 20_000, "mean_row": 8.0, "variation": 0.2}

Write = Callable[..., Path]


@pytest.fixture
def records(tmp_path: Path) -> Write:
    """Write the records of tasks: (case, op, K, microseconds or an outcome by plan), the first plan being the default."""
    path = tmp_path / "run.tuning.sqlite3"

    def write(*tasks: tuple[str, str, int, dict[str, Any]], code: str = "") -> Path:
        with Database(path) as database:
            for case, op, k, found in tasks:
                plans = [(Plan.parse(text), us) for text, us in found.items()]
                key = TaskKey(
                    Structure(case, 20_000, 20_000, 160_000),
                    Operator(op, "", "float32"),
                    (k,) if k else (),
                    "sm_90",
                    Gpu("a GPU", "9.0"),
                    Compiler("0", "0", "0", code),
                )
                task = database.begin(key, SQUARE, {"case": case, "op": op, "default": plans[0][0].digest()})
                for plan, us in plans:
                    database.add(task, plan, Measurement(us) if isinstance(us, str) else Measurement("ok", (us,)))
        return path

    return write


def test_plans_are_written_by_what_sets_them_apart() -> None:
    full = Plan.parse(DEFAULT).text()
    assert choices.skeleton(full) == "rows-to-subgroups{share=entries} unroll"
    assert choices.skeleton(Plan.parse(FOUR_LANES).text()) == "rows-to-subgroups{lanes=4 share=entries} unroll"
    assert choices.skeleton(Plan.parse(THREADS.replace("set-encoding", "set-encoding{format=bsr block-rows=2}")).text()) == (
        "set-encoding{format=bsr block-rows=2} rows-to-threads unroll{factor=8}"
    )
    assert choices.passes(full) == "rows-to-subgroups unroll"
    assert (
        choices.skeleton("a-pass-that-is-gone{x=1},map-blocks{threads=64}") == "a-pass-that-is-gone{x=1} map-blocks{threads=64}"
    )


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (DEFAULT, ()),
        (FOUR_LANES, ("rows-to-subgroups.lanes 8→4",)),
        (CUT, ("+segment-rows{length=64}",)),
        (THREADS, ("rows-to-subgroups → rows-to-threads", "unroll.factor 4→8")),
        (DEFAULT.replace(",unroll{factor=4}", ""), ("-unroll",)),
    ],
)
def test_changes_lead_from_one_plan_to_another(after: str, expected: tuple[str, ...]) -> None:
    assert choices.changes(Plan.parse(DEFAULT).text(), Plan.parse(after).text()) == expected


def test_the_tables_say_what_was_measured(records: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = records(
        ("a", "spmv", 0, {DEFAULT: 4.0, FOUR_LANES: 2.0, CUT: 8.0}),
        ("b", "spmv", 0, {DEFAULT: 4.0, FOUR_LANES: 3.99, THREADS: 6.0, CUT: "crash"}),
        ("a", "spmm", 8, {DEFAULT: 10.0, CUT: 5.0}),
    )
    assert choices.main([str(path)]) == 0
    text = capsys.readouterr().out
    assert "| SpMV | 2 | 3.0 | 50% | 1.42 | 2.00 a |" in text
    assert "| 4 to 16 | < 0.3 | 10000 to 250000 | 2 | 1 | 1.42 | 2.00 a | `rows-to-subgroups.lanes 8→4` (1) |" in text
    assert "| `rows-to-subgroups.lanes 8→4` | 2 | 1 | 1.42 | 50% | 1.00 to 2.00 |" in text
    assert "| `+segment-rows{length=64}` | 1 | 0 | 0.50 | 0% | 0.50 to 0.50 |" in text
    assert "| `rows-to-subgroups{lanes=4 share=entries} unroll` | 2 | 2 | 0 | 1.00 |" in text
    assert "| `rows-to-subgroups unroll` | 2 | 2 | 2 | 1.00 |" in text
    assert text.index("## SpMV") < text.index("## SpMM K=8")
    assert choices.main([str(path), "--K", "8", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    data = json.loads(line)
    assert (data["case"], data["regret"], data["changes"]) == ("a", 2.0, ["+segment-rows{length=64}"])
    assert data["us"][data["best"]] == 5.0


def test_the_last_search_of_a_task_counts(records: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = records(("a", "spmv", 0, {DEFAULT: 4.0, FOUR_LANES: 1.0}), code="older")
    records(("a", "spmv", 0, {DEFAULT: 4.0, FOUR_LANES: 2.0}), ("b", "spmv", 0, {DEFAULT: "hopeless", CUT: 1.0}), code="newer")
    (choice,), without = choices.read([path])
    assert (choice.regret, without) == (2.0, 1)
    assert choices.main([str(path)]) == 0
    assert "1 tasks are left out" in capsys.readouterr().err


def test_every_matrix_has_a_bin() -> None:
    ranges = choices._all_ranges()
    for mean, variation, rows in ((0.0, 0.0, 0), (4, 0.3, 10_000), (16, 1.0, 250_000), (1e6, 99.0, 10**8)):
        place = choices.bin_of({"mean_row": mean, "variation": variation, "rows": rows})
        assert set(place) <= set(ranges)


def test_files_without_tasks_are_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert choices.main([str(empty)]) == 2
    assert "no tuned task" in capsys.readouterr().err
    assert choices.main([str(tmp_path / "absent")]) == 2
    assert "no such file" in capsys.readouterr().err
