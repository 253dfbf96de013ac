"""`predict`: the cost of a plan.  The formulas stand in `times`, their constants in `calibration.json`.

A kernel keeps every resource busy for a time, all of them at once.  The total is smoothed between the longest of these times,
as in the roofline model (Williams, Waterman and Patterson, CACM 2009), and their sum:

    total = launches + (sum over the others of time^p)^(1/p)

with p from the calibration.  What the longest unit takes by itself (`imbalance`) is one of them: a parallel run takes no less
than its longest chain (Brent 1974; Graham 1966).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.cost.demand import Demand, added, demand
from sparseditto.agent.cost.rates import Rates
from sparseditto.agent.features import Features
from sparseditto.agent.planner import Task
from sparseditto.dialects.errors import InputError
from sparseditto.passes.base import Bottleneck
from sparseditto.passes.plan import Plan
from sparseditto.passes.work import Work

SCHEMA = 1
LIMITS: dict[str, tuple[Bottleneck, str]] = {
    "launch": (Bottleneck.LAUNCH, "starting kernels"),
    "dram": (Bottleneck.BANDWIDTH, "bytes of device memory"),
    "l2": (Bottleneck.BANDWIDTH, "bytes that L2 gives to L1"),
    "l1": (Bottleneck.COALESCING, "lines that L1 looks up"),
    "shared": (Bottleneck.ISSUE, "bytes of shared memory"),
    "issue": (Bottleneck.ISSUE, "instructions"),
    "divergence": (Bottleneck.DIVERGENCE, "instructions of warps of which some lanes are done"),
    "latency": (Bottleneck.LATENCY, "loads that threads wait for"),
    "imbalance": (Bottleneck.IMBALANCE, "the longest unit by itself"),
    "atomics": (Bottleneck.ATOMICS, "additions in global memory"),
}
"""The resources of a cost, what a pass that relieves each declares, and what it is."""


@dataclass(frozen=True)
class Constants:
    """What the calibration finds.  All are factors without a unit, but `power`.

    Of rates and latencies: how much longer than the architecture says (`launch`, `dram`, `l2`, `lines`, `shared`, `batches`,
    `chain`).  Instructions of a warp: for each of the counts of `Demand`.  `atomics` and `same_address`: clocks, of one
    multiprocessor's lane and of one address.
    """

    launch: float = 1.0
    dram: float = 1.0
    l2: float = 1.0
    lines: float = 1.0
    shared: float = 1.0
    steps: float = 4.0
    loads: float = 2.0
    vectors: float = 2.0
    sums: float = 1.0
    decodes: float = 1.0
    units: float = 30.0
    shuffles: float = 2.0
    scans: float = 2.0
    batches: float = 1.0
    chain: float = 1.0
    atomics: float = 1.0
    same_address: float = 4.0
    power: float = 2.0

    @staticmethod
    def from_json(data: Any) -> Constants:
        """Raises `InputError` unless these are all constants, and numbers above 0."""
        names = {field.name for field in fields(Constants)}
        if not isinstance(data, dict) or data.keys() != names or not all(isinstance(v, float) and v > 0 for v in data.values()):
            raise InputError(f"the constants of a cost model are {', '.join(sorted(names))}, each above 0")
        return Constants(**data)


@cache
def calibrated() -> Constants:
    """The constants that ship with the project."""
    return Constants.from_json(calibration()["constants"])


def calibration() -> dict[str, Any]:
    """The file of constants: also `gpu`, `source` and `command` that they come from."""
    data = json.loads(resources.files(__package__).joinpath("calibration.json").read_text(encoding="utf-8"))
    if data["schema"] != SCHEMA:
        raise InputError(f"the calibration is of schema {data['schema']}; this release reads {SCHEMA}")
    return dict(data)


@dataclass(frozen=True)
class Cost:
    """Microseconds of one call: `total_us`, and `times_us` for which each resource of `LIMITS` is busy.

    `limit` is the resource that is busy longest.  `assumed` names what is not known of the GPU and was taken from another.
    """

    total_us: float
    times_us: Mapping[str, float]
    gpu: str
    assumed: tuple[str, ...] = ()

    @property
    def limit(self) -> str:
        return max(self.times_us, key=lambda name: self.times_us[name])

    @property
    def bottleneck(self) -> Bottleneck:
        """What a pass must relieve."""
        return LIMITS[self.limit][0]

    def to_json(self) -> dict[str, Any]:
        told = {"limit": self.limit, "bottleneck": self.bottleneck.value}
        return {**asdict(self), "times_us": dict(self.times_us), "assumed": list(self.assumed), **told}


def times(d: Demand, rates: Rates, c: Constants) -> dict[str, Any]:
    """Microseconds that each resource is busy; arrays where the demand is of arrays."""
    issued = rates.multiprocessors * rates.schedulers * rates.clock * d.busy
    instructions = (
        c.steps * d.steps
        + c.loads * d.loads
        + c.vectors * d.vectors
        + c.sums * d.sums
        + c.decodes * d.decodes
        + c.units * d.units
        + c.shuffles * d.shuffles
        + c.scans * d.scans
    )
    useful = (d.useful_steps + 1e-9) / (d.steps + 1e-9)
    chips = rates.multiprocessors * rates.clock
    return {
        "launch": c.launch * d.launches * rates.launch,
        "dram": c.dram * d.dram / rates.dram,
        "l2": c.l2 * d.l2 / rates.l2,
        "l1": c.lines * d.lines / chips,
        "shared": c.shared * d.shared / rates.shared,
        "issue": instructions * useful / issued,
        "divergence": instructions * (1 - useful) / issued,
        "latency": c.batches * d.batches * d.latency / d.warps,
        "imbalance": c.chain * d.chain * d.latency,
        "atomics": c.atomics * d.atomics / chips + c.same_address * d.same_address / rates.clock,
    }


def total(found: Mapping[str, Any], c: Constants) -> Any:
    """Microseconds in all; see the module."""
    together = {**found, "issue": found["issue"] + found["divergence"]}
    busy = sum(time**c.power for name, time in together.items() if name not in ("launch", "divergence"))
    return found["launch"] + busy ** (1 / c.power)


@dataclass(frozen=True)
class Model:
    """The cost of plans for one task on one GPU."""

    task: Task
    features: Features
    rates: Rates
    constants: Constants

    @staticmethod
    def of(task: Task, features: Features | None, architecture: Architecture, constants: Constants | None = None) -> Model:
        """Raises `InputError` where no matrix is known, or the number of dense columns is not."""
        if features is None:
            raise InputError("no matrix is known; a cost needs its features (--bind A=FILE)")
        if task.columns is None:
            raise InputError("the number of dense columns is not known; a cost needs it (--size K=64)")
        return Model(task, features, Rates.of(architecture), constants or calibrated())

    def demand(self, plan: Plan) -> Demand:
        return added([demand(work, self.rates) for work in works(plan, self.task, self.features)])

    def predict(self, plan: Plan) -> Cost:
        found = times(self.demand(plan), self.rates, self.constants)
        return Cost(float(total(found, self.constants)), found, self.rates.name, self.rates.assumed)


def works(plan: Plan, task: Task, f: Features) -> list[Work]:
    """The work of each part of the matrix, after all passes have had their effect."""
    work, done = start(task, f), []
    for step in plan.steps:
        if step.starts_part:
            done.append(work)
            work = work.rest or work
        else:
            work = step.effect(work)
    return [*done, work]


def start(task: Task, f: Features) -> Work:
    """The work before any pass: rows of CSR with 32-bit indices, a thread a row."""
    return Work(
        pattern=f,
        columns=max(1, task.columns or 1),
        value_bytes=task.element_bytes,
        gathers=task.gathers,
        rows=float(f.rows),
        entries=float(f.entries),
        entry_bytes=task.element_bytes + 4.0,
        units=float(f.rows),
        longest=float(f.max_row),
        uneven=max(1.0, f.padding),
        near=f.row_overlap,
    )


def predict(plan: Plan, task: Task, features: Features, architecture: Architecture) -> Cost:
    """The cost of one call.  Raises as `Model.of` and `Rates.of` do."""
    return Model.of(task, features, architecture).predict(plan)


def rank(plans: Iterable[Plan], task: Task, features: Features, architecture: Architecture) -> list[tuple[Plan, Cost]]:
    """The plans with their costs, the cheapest first; of equal ones, in the order in which they came."""
    model = Model.of(task, features, architecture)
    found: Sequence[tuple[Plan, Cost]] = [(plan, model.predict(plan)) for plan in plans]
    return sorted(found, key=lambda one: one[1].total_us)
