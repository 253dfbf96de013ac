"""`Bench`: what a policy is given to choose and to measure with, and how a measured plan reads in a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from sparseditto.agent.cost import LIMITS, Cost, Model
from sparseditto.agent.llm.fencing import clean
from sparseditto.agent.memory.trial import Trial
from sparseditto.agent.space import Context, Space
from sparseditto.agent.tuner import Answer, Request
from sparseditto.passes.composite import Composite
from sparseditto.passes.plan import Plan

_WHY = 500  # characters of a diagnostic


class Bench(Protocol):
    """One task on one device.

    `kernel` is the text that is compiled, `bound_us` a time that no plan can beat; `emulated` says that times are only costs.
    """

    @property
    def kernel(self) -> str: ...

    @property
    def space(self) -> Space: ...

    @property
    def bound_us(self) -> float | None: ...

    @property
    def emulated(self) -> bool: ...

    def evaluate(self, requests: Sequence[Request], limit_s: float) -> Iterable[Answer]:
        """Compile, compare with the reference and measure; what is not done after `limit_s` seconds is left out."""

    def keep(self, composite: Composite) -> None:
        """Make a composite pass known from now on, here and wherever the database is used.

        Raises `PlanError` where its name is another one's.
        """

    def trials(self) -> Sequence[Trial]:
        """Every plan that was tried for this task, with all that was measured of it."""


def fastest(trials: Iterable[Trial]) -> list[Trial]:
    """Those with a time, the fastest first."""
    return sorted((t for t in trials if t.us is not None), key=lambda t: t.us or 0.0)


def cost_of(plan: Plan, context: Context) -> Cost | None:
    """What the cost model predicts; None where the matrix or the number of dense columns is not known."""
    if context.features is None or context.task.columns is None:
        return None
    return Model.of(context.task, context.features, context.gpu).predict(plan)


def told(trial: Trial, bench: Bench) -> str:
    """A trial in a line: time, share of the bound, predicted bottleneck, what its kernels take; or why it failed."""
    if trial.us is None:
        return f"{trial.outcome}: {clean(trial.why, _WHY)}"
    words = [f"{trial.us:.2f} us"]
    if bench.bound_us:
        words.append(f"{bench.bound_us / trial.us:.0%} of the bound")
    if cost := cost_of(trial.plan, bench.space.context):
        words.append(f"predicted {cost.total_us:.2f} us, limited by {cost.bottleneck.value} ({LIMITS[cost.limit][1]})")
    words += [_taken(kernel) for kernel in trial.resources or ()]
    return "; ".join(words)


def _taken(kernel: Mapping[str, Any]) -> str:
    """What the driver says of one kernel; it leaves out what it does not know."""
    words = [f"{kernel['registers']} registers a thread", f"{kernel['shared_bytes']} bytes of shared memory a block"]
    if kernel.get("local_bytes"):
        words.append(f"{kernel['local_bytes']} bytes of stack and spills a thread")
    if kernel.get("occupancy") is not None:
        words.append(f"occupancy {kernel['occupancy']:.0%}")
    return ", ".join(words)


def numbered(plan: Plan) -> str:
    """The steps of a plan, a line each, with the positions that an edit names."""
    return "\n".join(f"{place} {step}" for place, step in enumerate(plan.steps))
