"""Why a plan: what the cost model predicts for it, what was measured, and what else there is, here and on other GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.occupancy import Violation
from sparseditto.agent.cost import Cost, Model, check_plan, violations
from sparseditto.agent.features import Features
from sparseditto.agent.graph import Walk, pass_graph, relieving, walks
from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.keys import EMULATOR, Gpu
from sparseditto.agent.memory.trial import samples_of
from sparseditto.agent.planner import Task
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.driver import make_task
from sparseditto.compiler.problem import Problem
from sparseditto.compiler.recall import recall
from sparseditto.compiler.task_keys import compiler_version, operator_of, task_key
from sparseditto.dialects.errors import InputError
from sparseditto.dialects.target import Target
from sparseditto.passes.plan import Plan

MORE = 1.1  # by which a feature is raised, to see what follows
MATTERS = 0.005  # change of the time from which a feature matters
SHOWN = 8  # features
NEXT = 3  # moves


@dataclass(frozen=True)
class Measured:
    """Microseconds of a plan on a GPU, the median of `samples`; `current` says whether today's compiler made the kernel."""

    gpu: str
    us: float
    samples: int
    current: bool


@dataclass(frozen=True)
class Sensitivity:
    """A feature, and by what share the predicted time changes where it is a tenth more and all others are as they are."""

    name: str
    value: float
    change: float


@dataclass(frozen=True)
class Elsewhere:
    """What another GPU would get: the first plan of the ranking, and its cost.

    The plan that is explained is predicted to take `here_us` there; `refused` says why it cannot run there.
    """

    gpu: str
    chip: str
    plan: Plan
    cost: Cost
    here_us: float
    refused: tuple[Violation, ...]


@dataclass(frozen=True)
class Explanation:
    """A plan for a task on a GPU.  `origin` is "given", "database" or "planner"; `runner_up` the next one of the ranking."""

    task: Task
    features: Features
    target: Target
    architecture: Architecture
    plan: Plan
    origin: str
    cost: Cost
    measured: tuple[Measured, ...]
    sensitivities: tuple[Sensitivity, ...]
    relieving: tuple[str, ...]
    hardware: tuple[str, ...]
    runner_up: tuple[Plan, Cost] | None
    walks: tuple[Walk, ...]
    elsewhere: tuple[Elsewhere, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        runner_up = None
        if self.runner_up is not None:
            plan, cost = self.runner_up
            runner_up = {
                "plan": plan.text(),
                "digest": plan.digest(),
                "cost": cost.to_json(),
                "difference_us": self.difference(),
            }
        return {
            "gpu": self.architecture.name,
            "chip": self.target.chip,
            "plan": self.plan.text(),
            "digest": self.plan.digest(),
            "origin": self.origin,
            "cost": self.cost.to_json(),
            "measured": [vars(m) for m in self.measured],
            "features": self.features.to_json(),
            "sensitivities": [vars(s) for s in self.sensitivities],
            "hardware": list(self.hardware),
            "relieving": list(self.relieving),
            "runner_up": runner_up,
            "walks": [walk.to_json() for walk in self.walks],
            "elsewhere": [_elsewhere_json(e) for e in self.elsewhere],
        }

    def difference(self) -> Mapping[str, float]:
        """Microseconds by which each resource is busy longer with the runner-up; empty where there is none."""
        if self.runner_up is None:
            return {}
        other = self.runner_up[1].times_us
        return {name: other[name] - us for name, us in self.cost.times_us.items()}


def _elsewhere_json(e: Elsewhere) -> dict[str, Any]:
    told = {"gpu": e.gpu, "chip": e.chip, "plan": e.plan.text(), "digest": e.plan.digest(), "cost": e.cost.to_json()}
    return {**told, "here_us": e.here_us, "refused": [str(v) for v in e.refused]}


def explain(
    problem: Problem,
    target: Target,
    architecture: Architecture,
    plan: Plan | None = None,
    database: Path | None = None,
    others: Sequence[Architecture] = (),
) -> Explanation:
    """Explain `plan`; without one the best that `database` knows of the task, else the planner's.

    Raises `InputError` where no matrix is bound or sizes are not known, `NotApplicable` for a plan that the GPU cannot run.
    """
    task, known = make_task(problem)
    model = Model.of(task, known, architecture)
    features = model.features
    ranking = Ranking(Space(Context(task, features, target, architecture)))
    origin = "given"
    notes: tuple[str, ...] = ()
    if plan is None:
        plan, origin, notes = _chosen(problem, target, database, ranking)
    check_plan(plan, task, features, architecture)
    cost = model.predict(plan)
    graph = pass_graph(architecture)
    found = walks(graph, plan, ranking.space, architecture)
    rival = next((p for p in ranking.best_first() if p.steps != plan.steps), None)
    return Explanation(
        task=task,
        features=features,
        target=target,
        architecture=architecture,
        plan=plan,
        origin=origin,
        cost=cost,
        measured=measured(database, problem, target, plan) if database is not None else (),
        sensitivities=sensitivities(model, plan),
        relieving=relieving(graph, cost.bottleneck),
        hardware=found[0].hardware if found else (),
        runner_up=None if rival is None else (rival, model.predict(rival)),
        walks=tuple(found[:NEXT]),
        elsewhere=tuple(_elsewhere(other, plan, task, features) for other in others),
        notes=notes,
    )


def _chosen(problem: Problem, target: Target, database: Path | None, ranking: Ranking) -> tuple[Plan, str, tuple[str, ...]]:
    recalled = recall(database, problem, target) if database is not None else None
    if recalled is not None and recalled.plan is not None:
        return recalled.plan, "database", recalled.notes
    return ranking.first(), "planner", recalled.notes if recalled is not None else ()


def measured(database: Path, problem: Problem, target: Target, plan: Plan) -> tuple[Measured, ...]:
    """What the database knows of a plan for exactly this task, on every GPU, emulated ones left out.

    Raises `InputError` when there is no such database.
    """
    if not database.is_file():
        raise InputError("there is no such database (--db)", where=str(database))
    steps = [str(step) for step in plan.steps]
    found = []
    with Database(database) as memory:
        if not memory.knows(operator_of(problem.computation)):
            return ()
        for task in memory.variants(task_key(problem, target.chip, Gpu(EMULATOR, ""))):
            records = memory.records(task.id) if not task.key.gpu.emulated else []
            samples = [us for r in records if list(r.plan.steps) == steps for us in samples_of(r.measurements)]
            if samples:
                current = task.key.compiler == compiler_version()
                found.append(Measured(task.key.gpu.name, median(samples), len(samples), current))
    return tuple(found)


def sensitivities(model: Model, plan: Plan) -> tuple[Sensitivity, ...]:
    """The features that matter most, each raised by itself, those by which the predicted time changes most first."""
    base = model.predict(plan).total_us
    found = []
    for field in fields(Features):
        value = getattr(model.features, field.name)
        if isinstance(value, bool) or not value:
            continue
        raised: Any = value * MORE if isinstance(value, float) else value + max(1, round(value * (MORE - 1)))
        other = replace(model, features=replace(model.features, **{field.name: raised}))
        change = other.predict(plan).total_us / base - 1
        if abs(change) >= MATTERS:
            found.append(Sensitivity(field.name, float(value), change))
    return tuple(sorted(found, key=lambda s: -abs(s.change))[:SHOWN])


def _elsewhere(architecture: Architecture, here: Plan, task: Task, features: Features) -> Elsewhere:
    target = architecture.target()
    model = Model.of(task, features, architecture)
    plan = Ranking(Space(Context(task, features, target, architecture))).first()
    refused = tuple(violations(here, task, features, architecture))
    return Elsewhere(architecture.name, target.chip, plan, model.predict(plan), model.predict(here).total_us, refused)
