"""The order of plans: rules, prior and cost model weighed together, and a share for plans that nobody favours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

from sparseditto.agent import ranking
from sparseditto.agent.architecture.building import named
from sparseditto.agent.cost import predict, violations
from sparseditto.agent.cost.rates import Rates
from sparseditto.agent.features import Features, Hardware, analyse
from sparseditto.agent.planner import Task, ranked
from sparseditto.agent.prior import Prior
from sparseditto.agent.ranking import ADVANCE, ALONE, TURN, WEIGHT, Ranking
from sparseditto.agent.space import Context, Space
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import CHIPS, Target
from sparseditto.passes import registry as registry_module
from sparseditto.passes.base import Bottleneck, Form, SchedulePass, option
from sparseditto.passes.registry import register


def matrix(rows: int = 3000, columns: int = 2000, density: float = 0.004, skewed: bool = False) -> sp.csr_array:
    random = np.random.default_rng(7)
    a = sp.random_array((rows, columns), density=density, rng=random, dtype=np.float32).tolil()
    if skewed:
        a[5, :] = 1.0
    return sp.csr_array(a.tocsr())


def context(columns: int | None = 0, features: Features | None = None, gpu: str = "h200") -> Context:
    architecture = named(gpu)
    task = Task(True, True, columns, 4, shape=(3000, 2000))
    return Context(task, features, architecture.target(), architecture)


def made(columns: int | None = 0, skewed: bool = False, gpu: str = "h200") -> Ranking:
    return Ranking(Space(context(columns, analyse(matrix(skewed=skewed)), gpu)))


@pytest.mark.parametrize("columns", [0, 8, 128])
@pytest.mark.parametrize("skewed", [False, True])
def test_seeds_begin_with_the_first_plan_and_take_turns(columns: int, skewed: bool) -> None:
    found = made(columns, skewed)
    seeds = found.seeds(24)
    assert seeds[0] == found.first() == found.best_first()[0]
    assert len({plan.digest() for plan in seeds}) == len(seeds) == 24
    scores = [found.score(plan) + (0 if plan == found.suggested[0] else ADVANCE) for plan in seeds]
    favourites = [score for number, score in enumerate(scores[1:]) if number % TURN != TURN - 1]
    assert favourites == sorted(favourites), "in the order of their scores"
    assert all(not violations(plan, found.task, found.features, found.architecture) for plan in seeds if found.features)


def test_the_rules_first_plan_has_an_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "ADVANCE", math.inf)
    found = made(32)
    assert found.first() == found.suggested[0]
    monkeypatch.setattr(ranking, "ADVANCE", 0.0)
    found = made(32)
    assert found.score(found.first()) == min(map(found.score, found.suggested))


def test_scores_weigh_prior_and_cost() -> None:
    found = made(32)
    assert found.features is not None
    one, two, *_ = found.suggested
    prior = Prior.load().at(found.task, found.features)
    expected = [
        prior.judge(plan).energy + WEIGHT * math.log2(predict(plan, found.task, found.features, found.architecture).total_us)
        for plan in (one, two)
    ]
    assert [found.score(one), found.score(two)] == pytest.approx(expected)


def test_on_another_gpu_the_cost_model_counts_in_full() -> None:
    found = made(32, gpu="a100-80gb")
    assert found.features is not None
    plan = found.first()
    there = Hardware("A100-80GB", 108, 2048, 192 << 10, 40 << 20, Rates.of(found.architecture).dram)
    energy = Prior.load().at(found.task, found.features, there).judge(plan).energy
    cost = predict(plan, found.task, found.features, found.architecture)
    assert found.score(plan) == pytest.approx(energy + ALONE * math.log2(cost.total_us))


def test_a_chip_means_a_gpu() -> None:
    gpus = {chip: replace(context(), target=Target.named(chip), architecture=None).gpu for chip in CHIPS}
    assert {chip: gpu.target().chip for chip, gpu in gpus.items()} == {chip: chip.rstrip("a") for chip in CHIPS}
    assert gpus["sm_90"].name == "H200 SXM"


def test_moves_say_what_they_promise() -> None:
    found = made(128)
    plan = found.first()
    moves = found.moves(plan)
    assert moves
    for move in moves[:20]:
        assert move.hope == pytest.approx(math.log(2) * (found.score(plan) - found.score(move.plan)))
    assert len({move.hope for move in moves}) > len(moves) / 3


def test_without_features_the_rules_remain() -> None:
    known = context(32)
    found = Ranking(Space(known))
    plans = ranked(known.task, None, known.target)
    assert found.best_first() == plans
    assert found.seeds(4)[0] == plans[0]
    assert all(move.hope == 0 for move in found.moves(plans[0]))
    unknown = Ranking(Space(context(None, analyse(matrix()))))
    assert unknown.first() == ranked(unknown.task, unknown.features, Target())[0]


def test_a_task_that_the_prior_does_not_cover_is_ranked_by_cost() -> None:
    known = context(32, analyse(matrix()))
    found = Ranking(Space(replace(known, task=replace(known.task, choose_format=False))))
    assert not Prior.load().covers(found.task)
    scores = [found.score(plan) for plan in found.best_first()[1:]]
    assert scores == sorted(scores)
    assert scores[0] < scores[-1]


def test_what_the_gpu_cannot_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(0)
    large = {plan.digest() for plan in found.suggested if any(s.options().get("threads") == 256 for s in plan.steps)}
    assert large
    monkeypatch.setattr(ranking, "violations", lambda plan, *rest: ["too many threads"] if plan.digest() in large else [])
    left = made(0)
    assert left.suggested
    assert not large & {plan.digest() for plan in [*left.suggested, *left.seeds()]}
    monkeypatch.setattr(ranking, "violations", lambda *rest: ["everything"])
    with pytest.raises(NotApplicable, match="H200 SXM: can run none"):
        made(0).first()


@pytest.fixture
def plugged() -> Iterator[type[SchedulePass]]:
    """A pass that someone adds and nobody has measured."""

    @register
    @dataclass(frozen=True)
    class Unheard(SchedulePass):
        """Do something new."""

        name: ClassVar[str] = "unheard"
        relieves = tuple(Bottleneck)
        requires = (Form.ROWS,)
        size: int = option("of it", default=1, choices=(1, 2))

    yield Unheard
    del registry_module._passes["unheard"]


def test_a_pass_that_nobody_has_measured_gets_its_turn(plugged: type[SchedulePass]) -> None:
    seeds = made(32).seeds(4 * TURN)
    assert any(step.name == plugged.name for plan in seeds for step in plan.steps)
