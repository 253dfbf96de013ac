"""What a plan asks for that a GPU does not have, before anything is compiled: threads, shared memory, registers."""

from __future__ import annotations

from functools import lru_cache

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.occupancy import Violation, check
from sparseditto.agent.cost.demand import wanted_registers
from sparseditto.agent.cost.model import works
from sparseditto.agent.features import Features
from sparseditto.agent.planner import Task
from sparseditto.dialects.errors import NotApplicable
from sparseditto.passes.plan import Plan
from sparseditto.passes.work import Work


def violations(plan: Plan, task: Task, features: Features, architecture: Architecture) -> list[Violation]:
    """What stops the kernels of a plan from running, part by part, as far as its options say: empty where nothing is known.

    Threads of a block, shared memory, and the blocks that must fit on a multiprocessor follow from options.  Registers stop a
    kernel only where the plan bounds them for each thread (else `ptxas` keeps to what fits the block): it is then taken to
    need as many as its loads and sums do, up to the bound.  Raises as `occupancy` does.
    """
    parts = works(plan, task, features)
    return list(dict.fromkeys(v for work in parts if work.threads for v in _of_part(work, architecture)))


def _of_part(work: Work, architecture: Architecture) -> list[Violation]:
    registers = int(min(work.registers, wanted_registers(work)))
    return _check(architecture, registers, work.shared_bytes, work.threads, max(1, work.blocks))


_check = lru_cache(maxsize=1024)(check)  # most plans of a task differ in other things


def check_plan(plan: Plan, task: Task, features: Features, architecture: Architecture) -> None:
    """Raises `NotApplicable` with the numbers where the GPU cannot run the plan."""
    found = violations(plan, task, features, architecture)
    if found:
        raise NotApplicable(f"{'; '.join(map(str, found))}; choose smaller options", where=architecture.name)
