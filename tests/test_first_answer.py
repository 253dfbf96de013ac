"""The benchmark of the time to the first answer, under emulation: that it runs, and that it can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import first_answer


def test_the_first_answer_comes_before_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_answer, "TASKS", {"SpMV": ("spmv", {})})
    out = tmp_path / "rows.jsonl"
    words = ["--device", "simt", "--entries", "2000", "--budget", "3", "--out", str(out)]
    assert first_answer.main(words) == 0
    machine, *rows = map(json.loads, out.read_text().splitlines())
    assert machine["kind"] == "machine"
    assert [(row["task"], row["format"], row["device"]) for row in rows] == [("SpMV", "npz", "simt"), ("SpMV", "mtx", "simt")]
    for row in rows:
        assert 1500 < row["entries"] <= 2000
        assert 0 < row["before_s"] < row["first_s"] < row["wall_s"]
        assert 0 < row["seconds"]["first"] < row["seconds"]["total"]
        assert row["measured"] >= 1
        assert row["us"] > 0
    assert "| SpMV | npz |" in capsys.readouterr().out


def test_the_check_and_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"first_s": 5.1, "wall_s": 6.0, "before_s": 1.0, "seconds": {"read": 0.1, "workers": 0.1}, "measured": 1, "us": 1.0}
    monkeypatch.setattr(first_answer, "tune", lambda *arguments: row)
    assert first_answer.main(["--entries", "160"]) == 0
    assert first_answer.main(["--entries", "160", "--check"]) == 1
    row["first_s"] = 4.9
    assert first_answer.main(["--entries", "160", "--check"]) == 0


def test_a_tuning_that_fails_is_no_row(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"tune ended with 2: .*nothing\.npz"):
        first_answer.tune("spmv", {}, tmp_path / "nothing.npz", "simt", "1")
