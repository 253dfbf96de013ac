"""What came of a session with a model: its proposals, why it ended, and whose plan is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparseditto.agent.memory.trial import Trial
from sparseditto.agent.tuner import half_us
from sparseditto.passes.plan import Plan

MODEL, OFFLINE = "model", "planner"  # who a plan is found by


@dataclass(frozen=True)
class Proposed:
    """A plan that a model proposed (None: its answer held no legal one), what came of it, and the reason."""

    round: int
    role: str
    plan: Plan | None
    outcome: str
    why: str
    us: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a session did, and why it stopped: "rounds", "seconds", "tokens", "cost", "model" or "interrupted"; `why` says more.

    `planner` is the digest of the offline planner's best plan when the session began (empty: it had none), `planner_us` its
    time then.  `composites` are the names of the composite passes that are known from now on.
    """

    model: str
    stopped: str
    why: str
    rounds: int
    calls: int
    tokens: int
    cost: float
    seconds: float
    planner: str
    planner_us: float | None
    proposals: tuple[Proposed, ...]
    composites: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        proposals = [{**asdict(p), "plan": p.plan.text() if p.plan else None} for p in self.proposals]
        return {**asdict(self), "proposals": proposals}


@dataclass(frozen=True)
class Verdict:
    """Who found the plan that is kept, "model" or "planner" (empty: there is none), and why it is kept."""

    who: str
    why: str


def line(proposed: Proposed) -> str:
    """A proposal and what came of it, in a line."""
    what = "an answer" if proposed.plan is None else proposed.plan.digest()
    return f"{what}: {proposed.outcome}: {proposed.why}" if proposed.us is None else f"{what}: {proposed.why}"


def verdict(outcome: Outcome | None, best: Trial | None, trials: Sequence[Trial]) -> Verdict:
    """Whose the best plan of a tuning with these trials is; without an outcome the session never began."""
    if best is None or best.us is None:
        return Verdict("", "no plan worked")
    if outcome is None:
        return Verdict(OFFLINE, "the model was not asked")
    times = {p.plan.digest(): p.us for p in outcome.proposals if p.plan is not None and p.us is not None}
    if best.plan.digest() in times:
        return Verdict(MODEL, _lead(best, next((t for t in trials if t.plan.digest() == outcome.planner), None)))
    if times:
        return Verdict(OFFLINE, f"{best.us:.2f} us; the model's best plan took {min(times.values()):.2f} us")
    ended = f" ({outcome.why})" if outcome.why else ""
    return Verdict(OFFLINE, f"{best.us:.2f} us; the model gave no plan that works{ended}")


def _lead(best: Trial, planner: Trial | None) -> str:
    """How much faster the model's plan is than the offline planner's, and whether that is sure."""
    if planner is None or planner.us is None or best.us is None:
        return f"{best.us:.2f} us, and the offline planner had no plan that works"
    said = f"{best.us:.2f} us, {planner.us / best.us:.2f} times as fast as the offline planner's {planner.us:.2f} us"
    sure = best.us + half_us(best.samples_us, 0.0) < planner.us - half_us(planner.samples_us, 0.0)
    return said if sure else f"{said}, which is within the spread of the measurements"
