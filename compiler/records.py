"""What became of candidates, and the file that keeps it: JSON lines, appended one by one, readable after a kill.

A line of kind "task" says what trials were measured on, one of kind "trial" is one candidate.  `task`, in both, is a digest of
that description: only what was measured under equal circumstances is used again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparseditto.agent.tuner import OK
from sparseditto.dialects.errors import InputError
from sparseditto.passes.plan import Plan

SCHEMA = 1


@dataclass(frozen=True)
class Trial:
    """One candidate.

    `outcome` is "ok", "wrong" (a result), "timeout", "crash", "duplicate" (gives the kernel of another one), or the code
    of the `DittoError` that refused it; `why` says more.  `us` is the median of `samples_us` and `iqr_us` their
    interquartile range, microseconds (under emulation a cost that stands for them).  `check` is `reference.Check` as JSON, with
    whether it was `sampled`; `resources` is what the driver says of each kernel; `seconds` are by part.
    """

    plan: Plan
    outcome: str
    us: float | None = None
    iqr_us: float | None = None
    check: dict[str, Any] | None = None
    resources: list[dict[str, Any]] | None = None
    why: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    samples_us: tuple[float, ...] = ()
    identity: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == OK

    def to_json(self) -> dict[str, Any]:
        data = {key: getattr(self, key) for key in self.__dataclass_fields__ if key != "plan"}
        data["samples_us"] = list(self.samples_us)
        return {"digest": self.plan.digest(), "text": self.plan.text(), "plan": self.plan.to_json(), **data}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trial:
        """Read `to_json`'s.  Raises `PlanError` when the plan names what is not there any more, and KeyError."""
        values = {key: data[key] for key in Trial.__dataclass_fields__ if key != "plan"}
        return Trial(**{**values, "plan": Plan.from_json(data["plan"]), "samples_us": tuple(data["samples_us"])})


class Records:
    """A file of JSON lines: one of kind "task" for each task that is begun, and one of kind "trial" for each measurement.

    A candidate that was measured several times has several lines; the last one holds all samples.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.task = ""
        self._file: int | None = None

    def open(self, description: dict[str, Any]) -> dict[str, Trial]:
        """Begin a task; gives what is recorded of it by plan digest.  Raises `InputError` when the file cannot be used."""
        self.close()
        text = json.dumps(description, sort_keys=True)
        self.task = hashlib.sha256(text.encode()).hexdigest()[:16]
        if self.path is None:
            return {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_file() and self.path.stat().st_size:
                with self.path.open("rb") as file:
                    if file.read(1) != b"{":
                        raise InputError("exists and holds no records; choose another file", where=str(self.path))
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            known, complete = self._known()
        except OSError as e:
            raise InputError(f"cannot be used for records: {e.strerror}", where=str(self.path)) from e
        if not complete:
            os.write(self._file, b"\n")
        self._write({"kind": "task", **description})
        return known

    def _known(self) -> tuple[dict[str, Trial], bool]:
        """Trials of this task, and whether the last line is whole (it is not when a process was killed)."""
        assert self.path is not None
        known: dict[str, Trial] = {}
        line = b"\n"
        with self.path.open("rb") as file:
            for line in file:
                if self.task.encode() not in line:
                    continue
                try:
                    row = json.loads(line)
                    if row.get("kind") == "trial" and row.get("task") == self.task and row.get("schema") == SCHEMA:
                        trial = Trial.from_json(row)
                        known[trial.plan.digest()] = trial
                except (ValueError, KeyError, TypeError, InputError):
                    continue  # half a line, or a plan of passes that are not loaded now
        return known, line.endswith(b"\n")

    def add(self, trial: Trial) -> None:
        self._write({"kind": "trial", **trial.to_json()})

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            os.write(self._file, (json.dumps({"schema": SCHEMA, "task": self.task, **row}) + "\n").encode())

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
