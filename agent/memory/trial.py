"""What became of a plan: single measurements, and what all of them together say."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from sparseditto.agent.memory.keys import canonical
from sparseditto.agent.tuner import FREE, OK, spread_us
from sparseditto.passes.plan import SCHEMA, Plan

WRONG = "wrong"
FATAL = frozenset({WRONG, "check-failed"})
"""Outcomes that no other measurement outweighs."""


def now() -> str:
    """The time as records have it: UTC, in ISO 8601 with microseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


@dataclass(frozen=True)
class StoredPlan:
    """A plan as it was recorded, whether or not the passes of today can read it."""

    kernel: str
    steps: tuple[str, ...]

    @staticmethod
    def of(plan: Plan) -> StoredPlan:
        return StoredPlan(plan.kernel, tuple(map(str, plan.steps)))

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "kernel": self.kernel, "steps": list(self.steps)}

    def digest(self) -> str:
        """`Plan.digest` of it."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    def text(self) -> str:
        return ",".join(self.steps)

    def read(self) -> Plan:
        """Raises `PlanError` where it names passes or options that there are no longer."""
        return Plan.from_json(self.to_json())


@dataclass(frozen=True)
class Measurement:
    """One time that a plan was tried.

    `outcome` is "ok", "wrong" (a result), "timeout", "crash", "duplicate" (gives the kernel of another one), or the code of the
    `DittoError` that refused it; `why` says more.  `samples_us` are microseconds a call (under emulation a cost that stands
    for them).  `check` is `reference.Check` as JSON, with whether it was `sampled`; `resources` is what the driver says
    of each kernel (registers, spills, shared memory); `seconds` are by part.  `identity` is equal for plans that give the
    same kernel.  `versions` are those of the host and the driver; `measured_at` is empty where it is not known.
    """

    outcome: str
    samples_us: tuple[float, ...] = ()
    why: str = ""
    identity: str = ""
    check: Mapping[str, Any] | None = None
    resources: Sequence[Mapping[str, Any]] | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    measured_at: str = field(default_factory=now)

    @property
    def verified(self) -> bool:
        """Whether the result was compared with the reference, and right."""
        return self.outcome == OK and self.check is not None and bool(self.check["passed"])

    def digest(self) -> str:
        """Equal for the same measurement in two databases."""
        return hashlib.sha256(canonical(self.to_json()).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "samples_us": list(self.samples_us)}


@dataclass(frozen=True)
class Trial:
    """A plan with what all of its measurements say together; `us` is the median of `samples_us`, `iqr_us` their spread."""

    plan: Plan
    outcome: str
    us: float | None = None
    iqr_us: float | None = None
    check: Mapping[str, Any] | None = None
    resources: Sequence[Mapping[str, Any]] | None = None
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


def verdict(measurements: Sequence[Measurement]) -> Measurement:
    """The measurement whose outcome counts, of one or more in the order of time.

    A wrong result counts for ever; else the latest that got as far as a device; else the latest.
    """
    fatal = [m for m in measurements if m.outcome in FATAL]
    ran = [m for m in measurements if m.outcome not in FREE]
    return (fatal or ran or list(measurements))[-1]


def samples_of(measurements: Sequence[Measurement]) -> tuple[float, ...]:
    """The samples that count: those of all measurements with a right result, where the verdict is that."""
    if verdict(measurements).outcome != OK:
        return ()
    return tuple(us for m in measurements if m.outcome == OK for us in m.samples_us)


def pooled(plan: Plan, measurements: Sequence[Measurement]) -> Trial:
    """What one or more measurements, in the order of time, say together."""
    last, samples = verdict(measurements), samples_of(measurements)
    seconds: dict[str, float] = {}
    for m in measurements:
        for part, spent in m.seconds.items():
            seconds[part] = seconds.get(part, 0.0) + spent
    return Trial(
        plan=plan,
        outcome=last.outcome,
        us=statistics.median(samples) if samples else None,
        iqr_us=spread_us(samples) if samples else None,
        check=last.check or next((m.check for m in reversed(measurements) if m.check), None),
        resources=next((m.resources for m in reversed(measurements) if m.resources), None),
        why=last.why,
        seconds=seconds,
        samples_us=samples,
        identity=next((m.identity for m in measurements if m.identity), ""),
    )
