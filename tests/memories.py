"""What the tests of the tuning database share: tasks and measurements that are made up."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.keys import Compiler, Gpu, Operator, Structure, TaskKey
from sparseditto.agent.memory.schema import APPLICATION
from sparseditto.agent.memory.trial import Measurement
from sparseditto.passes.plan import Plan

DATABASES = Path(__file__).parent / "databases"
H200 = Gpu("NVIDIA H200", "9.0")
COMPILER = Compiler("0.1.0", "22.1", "22.1", "c0de")
RIGHT = {"passed": True, "wrong": 0, "components": 5}
HEAD = "set-encoding,accumulate-registers"
THREADS, LANES, WIDE = (
    Plan.parse(f"{HEAD},{rows}")
    for rows in (
        "rows-to-threads,map-blocks",
        "rows-to-subgroups{lanes=8 share=entries},map-blocks",
        "rows-to-threads,map-blocks{threads=512}",
    )
)


def key(
    pattern: str = "a", k: tuple[int, ...] = (8,), gpu: Gpu = H200, compiler: Compiler = COMPILER, kernel: str = "k"
) -> TaskKey:
    return TaskKey(Structure(pattern, 70, 50, 350), Operator(kernel, "", "float32"), k, "sm_90", gpu, compiler)


def right(*samples: float, at: str = "2020-11-30T12:00:00.000000+00:00", **more: Any) -> Measurement:
    return Measurement("ok", samples, check=RIGHT, measured_at=at, **more)


def keep(
    database: Database, task: TaskKey, us: float = 2.0, plan: Plan = THREADS, features: Mapping[str, float] | None = None
) -> int:
    """A task with one plan that was right."""
    number = database.begin(task, features)
    database.add(number, plan, right(us))
    return number


def older(path: Path, version: int) -> Path:
    """A database as a release with that schema left it."""
    with sqlite3.connect(path) as db:
        db.executescript((DATABASES / f"version{version}.sql").read_text())
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    return path
