"""Passes and composite passes of a user win a tuning: the agent, which knows nothing of them, tries and keeps them.

Under emulation a launch costs a microsecond, and a thousand threads one more: what gives many rows to each thread is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matvec

from sparseditto.agent.memory import composites
from sparseditto.agent.memory.database import Database
from sparseditto.agent.tuner import Budget
from sparseditto.compiler.tuning import Trial, TuningSession, require_best
from sparseditto.passes.composite import read
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import load_file

pytestmark = pytest.mark.usefixtures("passes_forgotten")

Write = Callable[[str], Path]

PLUGIN = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparseditto.passes.base import Bottleneck, option
from sparseditto.passes.registry import register
from sparseditto.passes.schedule.coarsen_rows import CoarsenRows


@register
@dataclass(frozen=True)
class CoarsenFar(CoarsenRows):
    """Give very many rows to each thread or subgroup."""

    name: ClassVar[str] = "coarsen-far"
    relieves = (Bottleneck.LAUNCH,)
    rows: int = option("rows of a thread or subgroup", default=64, choices=(64, 128))
'''
FEW_THREADS = {
    "name": "few-threads",
    "doc": "Few threads, with many rows each.",
    "parameters": {"rows": {"default": 16, "choices": [8, 16], "help": "rows of a thread"}},
    "steps": ["rows-to-threads", "coarsen-rows{rows=$rows}", "unroll{factor=2}"],
}
BUDGET = Budget(candidates=18)


@pytest.fixture(scope="module")
def session() -> Iterator[TuningSession]:
    with TuningSession(device="simt", workers=2) as session:
        yield session


def best_of(session: TuningSession, kernel: Path, database: Path | None = None) -> Trial:
    a = sp.random_array((4000, 300), density=0.01, format="csr", rng=np.random.default_rng(0))
    best = require_best(session.tune(kernel, a, budget=BUDGET, database=database))
    assert best.check is not None
    assert best.check["passed"]
    assert best.us is not None
    return best


def test_a_pass_that_a_user_loads_wins(session: TuningSession, kernel_file: Write, tmp_path: Path) -> None:
    path = tmp_path / "coarsen_far.py"
    path.write_text(PLUGIN)
    load_file(path)
    assert "coarsen-far" in {step.name for step in best_of(session, kernel_file(matvec())).plan.steps}


def test_a_composite_of_the_database_wins(session: TuningSession, kernel_file: Write, tmp_path: Path) -> None:
    kernel = kernel_file(matvec())
    without = best_of(session, kernel)
    path = tmp_path / "t.sqlite3"
    with Database(path) as database:
        assert composites.keep(database, read(FEW_THREADS))
        assert not composites.keep(database, read(FEW_THREADS)), "it is there"
    best = best_of(session, kernel, path)
    assert best.us is not None
    assert without.us is not None
    assert 2 * best.us < without.us
    few = Plan.parse("accumulate-registers,few-threads,map-blocks").steps[1:4]
    assert set(few) <= set(best.plan.steps)
