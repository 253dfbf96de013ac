"""What is learned from: plans with their times, by task, out of the records of tuning databases.

A task is left out where its kernel is neither SpMV nor SpMM or pins the storage of its matrix; where it ran on the emulator or
with cold caches; where a feature is not known; and where fewer than two plans were right.  A plan that was refused, failed or
was too slow to be measured is left out too: it has no time, and a refusal says nothing of how fast its choices are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

from sparseditto.agent.features import Features, Hardware
from sparseditto.agent.memory.database import Record
from sparseditto.agent.memory.exchange import Entry
from sparseditto.agent.memory.keys import WARM, Gpu, Operator, TaskKey
from sparseditto.agent.memory.trial import samples_of
from sparseditto.agent.prior.subject import OPS, SPMM, SPMV, Subject
from sparseditto.dialects.errors import InputError, PlanError
from sparseditto.passes.plan import Plan

_NAMES = frozenset(field.name for field in fields(Features))


@dataclass(frozen=True)
class Group:
    """A task with the plans that were right, in the order in which they were tried, and their microseconds.

    `family` is that of the matrix; matrices of no known family are one each.  `shape` is the matrix's, as the kernel walks it.
    """

    subject: Subject
    family: str
    matrix: str
    features: Features
    shape: tuple[int, int]
    kernel: str
    plans: tuple[Plan, ...]
    us: tuple[float, ...]

    def slowdowns(self) -> list[float]:
        """Time of each plan over the least."""
        best = min(self.us)
        return [us / best for us in self.us]


@dataclass(frozen=True)
class Data:
    """All groups; `left_out` counts tasks by reason, `unreadable` plans that name passes or options which are gone."""

    gpu: Gpu
    groups: tuple[Group, ...]
    left_out: Mapping[str, int]
    unreadable: int
    versions: Mapping[str, Sequence[str]]
    measured_at: str

    def of(self, op: str) -> list[Group]:
        return [group for group in self.groups if group.subject.op == op]

    @property
    def trials(self) -> int:
        return sum(len(group.plans) for group in self.groups)


def collect(
    entries: Iterable[Entry],
    hardware: Hardware,
    gpu: str | None = None,
    features: Mapping[str, Mapping[str, Any]] | None = None,
) -> Data:
    """The groups of what databases hold; `hardware` is that of the GPU.

    A task that several compilers measured is one; of a plan that several measured, the latest time counts.  `gpu` is the
    name of the one that is meant, which need not be said where there is one only; `features` are those of matrices by name,
    in place of what their records have.  Raises `InputError` where nothing is left, or of several GPUs.
    """
    left_out: Counter[str] = Counter()
    found: list[Entry] = []
    for entry in entries:
        named = (features or {}).get(entry.about.get("case", ""))
        entry = replace(entry, features=named) if named is not None else entry
        reason = _unfit(entry) or ("was measured on another GPU" if gpu not in (None, entry.key.gpu.name) else "")
        left_out.update([reason] if reason else [])
        found += [] if reason else [entry]
    gpus = {entry.key.gpu for entry in found}
    if not gpus:
        told = "; ".join(f"{count} tasks: {reason}" for reason, count in left_out.items())
        raise InputError(f"there is nothing to learn from ({told or 'no tasks'})")
    if len(gpus) > 1:
        raise InputError(f"the tasks were measured on {', '.join(sorted(g.name for g in gpus))}; choose one by --gpu NAME")
    by_task: dict[tuple[Any, ...], list[Entry]] = {}
    for entry in found:
        by_task.setdefault(_same(entry.key), []).append(entry)
    made = [_group(alike, hardware) for alike in by_task.values()]
    groups = tuple(group for group, _ in made if group is not None)
    if len(groups) < len(made):
        left_out["fewer than two plans were right"] = len(made) - len(groups)
    unreadable = sum(count for _, count in made)
    return Data(gpus.pop(), groups, dict(left_out), unreadable, _versions(found), max(map(_measured_at, found)))


def read_features(lines: Iterable[str], where: str) -> dict[str, dict[str, Any]]:
    """Features of matrices by name: JSON lines with `case`, `family` and `features`.  Raises `InputError` for anything else."""
    found = {}
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            found[str(row["case"])] = dict(row["features"])
        except (ValueError, TypeError, KeyError) as e:
            raise InputError("is no JSON object with case and features", where=f"{where}:{number}") from e
    return found


def op_of(operator: Operator, columns: Sequence[int], said: str = "") -> str | None:
    """Whether a kernel is SpMV or SpMM, by its computation, or by what its record says where that is not known."""
    if operator.encoding or len(columns) > 1:
        return None
    op = _product(json.loads(operator.computation)) if operator.computation else said
    fits = op in OPS and (op == SPMM) == bool(columns)
    return (SPMV if columns in ((), (1,)) else SPMM) if fits else None  # one column is no loop


def _product(computation: Mapping[str, Any]) -> str | None:
    """The op of three operands, sparse, dense and output, that share the indices of a product with one sum."""
    operands = [(tuple(dims), sparse) for dims, _, sparse in computation["operands"]]
    if len(operands) != 3 or [sparse for _, sparse in operands] != [True, False, False]:
        return None
    (matrix, _), (dense, _), (output, _) = operands
    if computation["iterators"].count("reduction") != 1 or len(matrix) != 2 or not dense or not output:
        return None
    shared = {dense[0], output[0]} == set(matrix) and dense[1:] == output[1:] and len(dense) <= 2
    return (SPMV if len(dense) == 1 else SPMM) if shared and not set(dense[1:]) & set(matrix) else None


def value_bytes(operator: Operator) -> int:
    """Of the largest value that is read, by the names of the types."""
    if operator.computation:
        names = [dtype for _, dtype, _ in json.loads(operator.computation)["operands"][:-1]]
    else:
        names = operator.dtypes.split(",")
    return max(int(bits[0]) // 8 if (bits := re.search(r"\d+", name)) else 1 for name in names)


def _unfit(entry: Entry) -> str:
    """Why nothing is learned from a task, or nothing."""
    key = entry.key
    if key.gpu.emulated or key.caches != WARM:
        return "was emulated, or measured with cold caches"
    if op_of(key.operator, key.K, str(entry.about.get("op", ""))) is None:
        return "is neither SpMV nor SpMM with free storage"
    if entry.features is None or not entry.features.keys() >= _NAMES:
        return "lacks features, which older releases did not record (--features FILE gives them)"
    return ""


def _same(key: TaskKey) -> tuple[Any, ...]:
    """What tasks share that differ in their compiler only."""
    return key.structure, key.operator, key.K, key.chip


def _measured_at(entry: Entry) -> str:
    return max(map(_tried_at, entry.records), default="")


def _tried_at(record: Record) -> str:
    """When a plan was measured last; empty where that is not known, as for records of earlier releases."""
    return max((m.measured_at for m in record.measurements), default="")


def _group(alike: Sequence[Entry], hardware: Hardware) -> tuple[Group | None, int]:
    """The group of the entries of a task and how many of their plans cannot be read."""
    times: dict[str, tuple[Plan, float]] = {}
    unreadable = 0
    for record in sorted((record for entry in alike for record in entry.records), key=_tried_at):
        if samples := samples_of(record.measurements):
            try:
                plan = record.plan.read()
            except PlanError:
                unreadable += 1
                continue
            times[plan.text()] = plan, median(samples)
    if len(times) < 2 or min(us for _, us in times.values()) <= 0:
        return None, unreadable
    last, structure = alike[-1], alike[-1].key.structure
    assert last.features is not None
    known: dict[str, Any] = {name: last.features[name] for name in _NAMES}
    columns = last.key.K[0] if last.key.K else 1
    plans, us = zip(*times.values(), strict=True)
    group = Group(
        Subject.product(Features(**known), columns, value_bytes(last.key.operator), hardware),
        str(last.about.get("family", structure.pattern)),
        str(last.about.get("case", structure.pattern)),
        Features(**known),
        (structure.rows, structure.columns),
        last.key.operator.kernel,
        plans,
        us,
    )
    return group, unreadable


def _versions(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """What made the kernels, and the versions that the measurements state."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        compiler = entry.key.compiler
        told = [{"project": compiler.project, "mlir": compiler.mlir, "llvm": compiler.llvm, "code": compiler.code}]
        told += [dict(m.versions) for record in entry.records for m in record.measurements]
        for versions in told:
            for name, version in versions.items():
                found.setdefault(name, set()).add(version)
    return {name: sorted(known) for name, known in sorted(found.items())}
