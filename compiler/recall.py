"""What the tuning database knows of a task: its best plan makes a kernel that needs no tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparseditto.agent.memory.database import Best, Database, Task
from sparseditto.agent.memory.keys import EMULATOR, Gpu
from sparseditto.compiler.problem import Problem
from sparseditto.compiler.task_keys import compiler_version, gpu_of, operator_of, task_key
from sparseditto.dialects.errors import DeviceError, InputError
from sparseditto.dialects.target import Target
from sparseditto.passes.plan import Plan


@dataclass(frozen=True)
class Recalled:
    """The best plan (None: there is none for exactly this task), where it comes from, and what a person should know."""

    plan: Plan | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def recall(path: Path, problem: Problem, target: Target) -> Recalled:
    """Look for exactly this task: pattern, kernel, dense columns, target, compiler, and the GPU of this machine.

    Where no GPU here runs such kernels, the one GPU counts on which the task was measured; what was emulated never does.
    Raises `InputError` when there is no such database, or it cannot be used.
    """
    if not path.is_file():
        raise InputError("there is no such database (--db)", where=str(path))
    if problem.matrix is None or len(problem.sizes) < len(problem.computation.iterators):
        return Recalled()
    with Database(path) as database:
        if not database.knows(operator_of(problem.computation)):
            return Recalled()
        variants = database.variants(task_key(problem, target.chip, Gpu(EMULATOR, "")))
        measured = [task for task in variants if task.key.compiler == compiler_version() and not task.key.gpu.emulated]
        if not measured:
            return Recalled(notes=_useless(variants))
        here = _gpu_here(target.chip)
        chosen = [task for task in measured if here is None or task.key.gpu == here]
        if len(chosen) != 1:
            return Recalled(notes=_note(f"on {_names(measured)} only"))
        best = database.best(chosen[0].id)
    return Recalled(notes=_note("without a right plan that can be read")) if best is None else _found(best, chosen[0].key.gpu)


def _found(best: Best, gpu: Gpu) -> Recalled:
    told = (
        f"the plan is from the tuning database: {best.us:.2f} us a call on {gpu.name}, the best of {best.rivals} right plans, "
        f"measured {best.measured_at[:10] or 'at an unknown time'}"
    )
    unread = (f"{best.unreadable} faster plans name passes that there are no longer",) if best.unreadable else ()
    numbers = {"us": best.us, "samples": best.samples, "rivals": best.rivals, "measured_at": best.measured_at}
    return Recalled(best.plan, {"plan": "database", "gpu": gpu.name, **numbers}, (told, *unread))


def _useless(variants: Sequence[Task]) -> tuple[str, ...]:
    """Why nothing that is known of the task can be used, where anything is."""
    if not variants:
        return ()
    if all(task.key.gpu.emulated for task in variants):
        return _note("under emulation only, whose costs are no times")
    return _note("from other versions of the compiler only")


def _note(what: str) -> tuple[str, ...]:
    return (f"the tuning database knows this task {what}; the plan is the planner's (`sparseditto tune` measures anew)",)


def _names(tasks: Sequence[Task]) -> str:
    return " and ".join(sorted({task.key.gpu.name for task in tasks}))


def _gpu_here(chip: str) -> Gpu | None:
    """The GPU of this machine, where it runs kernels for `chip`."""
    from sparseditto.compiler.runtimes import cuda

    if cuda.available() is not None:
        return None
    gpu = gpu_of(cuda.versions())
    major, minor = map(int, gpu.capability.split("."))
    try:
        cuda.check_chip(chip, (major, minor), gpu.name)
    except DeviceError:
        return None
    return gpu
