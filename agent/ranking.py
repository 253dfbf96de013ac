"""`Ranking`: which plan to take unmeasured, which to measure first, and what each move from a plan promises.

Three sources are weighed.  The rules of `agent.planner` know combinations, and their first plan has an advance; the prior
(`agent.prior`) has learned from measurements which choices are fast on which matrices; the cost model (`agent.cost`) follows
from the architecture of the GPU.  A plan's score is the base-2 logarithm of a time, up to a constant of the task:

    score = energy of the prior + WEIGHT log2(predicted time) + ADVANCE unless it is the rules' first plan

The numbers have the least regret in the records of an H200, families of matrices held out (`python -m benchmarks.ranking`).
What the GPU cannot run is left out.  A source that says nothing of a task is left out too; the rules remain.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import cycle, islice
from math import log, log2

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.table import lookup
from sparseditto.agent.cost import Model, violations
from sparseditto.agent.cost.rates import Rates
from sparseditto.agent.features import Hardware
from sparseditto.agent.planner import ranked
from sparseditto.agent.prior import Prior
from sparseditto.agent.prior.model import Scorer
from sparseditto.agent.space import Move, Space
from sparseditto.dialects.errors import NotApplicable
from sparseditto.passes.base import Bottleneck
from sparseditto.passes.plan import Plan

SEEDS = 48
POOL = 2 * SEEDS  # plans from which the seeds are chosen
WEIGHT = 0.3  # of the cost model beside a prior that has learned from the same GPU
ALONE = 1.0  # the same beside one that has not, or none
ADVANCE = 0.4
TURN = 4  # of so many plans to be measured, one is not chosen by its score


class Ranking:
    """For one task on one GPU; `space` are the plans to choose from."""

    def __init__(self, space: Space, prior: Prior | None = None) -> None:
        """`prior` is the one that ships, where none is given."""
        self.space, self.architecture = space, space.context.gpu
        self.task, self.features = space.context.task, space.context.features
        self._prior = prior or Prior.load()

    # --- What is asked --------------------------------------------------------------------------------

    def first(self) -> Plan:
        """The plan to take when nothing is measured."""
        return self._best_first[0]

    def best_first(self) -> list[Plan]:
        """What the rules suggest, the least score first."""
        return list(self._best_first)

    def seeds(self, limit: int = SEEDS) -> list[Plan]:
        """The plans to measure first: the one to take unmeasured, then the most promising ones.

        Every `TURN`th is not chosen by its score.  Those that hold a pass which the prior has not learned of come first there,
        if it relieves what limits the first plan above all; then those that are unlike the others (`Space.seeds`).  So a pass
        that nobody has measured gets its turn.
        """
        unlike = self.space.seeds(self._limits, self.suggested)
        pool = list(islice((plan for plan in unlike if self.fits(plan)), max(POOL, limit)))
        favourites = iter(sorted(pool, key=self._advanced))
        others = iter(sorted(pool, key=self._unheard))
        turns = cycle((*(favourites,) * (TURN - 1), others))
        found = {self.first().digest(): self.first()}
        while len(found) < min(limit, len(pool)):
            plan = next(plan for plan in next(turns) if plan.digest() not in found)
            found[plan.digest()] = plan
        return list(found.values())

    def moves(self, plan: Plan) -> list[Move]:
        """The moves of the space to plans that the GPU can run; `hope` is the logarithm of the predicted speedup."""
        here = self.score(plan)
        found = [move for move in self.space.moves(plan) if self.fits(move.plan)]
        return [replace(move, hope=log(2) * (here - self.score(move.plan))) for move in found]

    def score(self, plan: Plan) -> float:
        """Powers of two by which the plan is slower than one of the task whose score is 0."""
        energy = self._scorer.judge(plan).energy if self._scorer else 0.0
        weight = WEIGHT if self._scorer and self._at_home else ALONE
        return energy + (weight * log2(self._model.predict(plan).total_us) if self._model else 0.0)

    def fits(self, plan: Plan) -> bool:
        """Whether the GPU can run the plan, as far as is known."""
        return self.features is None or not violations(plan, self.task, self.features, self.architecture)

    # --- What it is made of ---------------------------------------------------------------------------

    @cached_property
    def suggested(self) -> list[Plan]:
        """What the rules suggest and the GPU can run, in their order.  Raises `NotApplicable` where that is nothing."""
        context = self.space.context
        found = [plan for plan in ranked(context.task, context.features, context.target, context.gpu) if self.fits(plan)]
        if not found:
            raise NotApplicable(
                "can run none of the plans that the planner suggests; give one (--plan)", where=self.architecture.name
            )
        return found

    @cached_property
    def _best_first(self) -> list[Plan]:
        return sorted(self.suggested, key=self._advanced)

    @cached_property
    def _model(self) -> Model | None:
        known = self.features is not None and self.task.columns is not None
        return Model.of(self.task, self.features, self.architecture) if known else None

    @cached_property
    def _scorer(self) -> Scorer | None:
        if self.features is None or not self._prior.covers(self.task):
            return None
        return self._prior.at(self.task, self.features, None if self._at_home else _hardware(self.architecture))

    @cached_property
    def _at_home(self) -> bool:
        """Whether the prior has learned from this GPU."""
        entry = lookup(str(self._prior.provenance.get("gpu", "")))
        return entry is not None and entry.name == self.architecture.name

    @cached_property
    def _limits(self) -> frozenset[Bottleneck]:
        """What limits the first plan; empty where nothing is predicted."""
        return frozenset({self._model.predict(self.first()).bottleneck} if self._model else ())

    def _advanced(self, plan: Plan) -> float:
        return self.score(plan) + (0.0 if plan == self.suggested[0] else ADVANCE)

    def _unheard(self, plan: Plan) -> int:
        """0 of a plan with a pass that neither prior nor rules know and that relieves what limits, 1 if it does not, else 2.

        They know no composite pass as such, only its steps.
        """
        new = [*(step for step in plan.steps if step.name not in self._heard_of), *self.space.composites_in(plan)]
        helpful = any(self._limits <= set(step.relieves) for step in new)
        return 0 if helpful else 1 if new else 2

    @cached_property
    def _heard_of(self) -> set[str]:
        learned = self._scorer.model.choices if self._scorer else ()
        return {word.partition(".")[0] for word in learned} | {step.name for plan in self.suggested for step in plan.steps}


def _hardware(architecture: Architecture) -> Hardware:
    """What the features need to know of a GPU."""
    rates = Rates.of(architecture)
    return Hardware(
        name=rates.name,
        sm_count=int(rates.multiprocessors),
        resident_threads=int(rates.max_threads),
        l1_bytes=int(rates.l1_bytes),
        l2_bytes=int(rates.l2_bytes),
        dram_bytes_per_us=rates.dram,
    )
