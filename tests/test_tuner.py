"""Tuning: the space of plans, the search on made-up costs, the worker processes, and the whole under emulation."""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import generic, matmul, matvec

from sparseditto.agent import tuner
from sparseditto.agent.features import analyse
from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.exchange import entries_of
from sparseditto.agent.memory.trial import Measurement, StoredPlan, pooled, verdict
from sparseditto.agent.planner import Task, default_plan
from sparseditto.agent.space import Context, Move, Space
from sparseditto.agent.tuner import Answer, Budget, Found, Request, search
from sparseditto.compiler import checking, measuring, task_keys, tuning
from sparseditto.compiler.checking import Checker, sample_lines
from sparseditto.compiler.cli import main as cli
from sparseditto.compiler.crew import Crew
from sparseditto.compiler.matrix_io import from_scipy
from sparseditto.compiler.task_keys import matrix_digests
from sparseditto.compiler.tuning import Progress, Trial, TuningSession, require_best, tune
from sparseditto.compiler.workers import Done, Job, Pool, Shared, gather
from sparseditto.dialects.errors import CheckFailed, DeviceError, InputError, StepFailed, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Kind
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import load_file, registry
from sparseditto.passes.upstream import UpstreamPass

THREADS = "set-encoding,accumulate-registers,rows-to-threads,map-blocks"
LANES = "set-encoding,accumulate-registers,rows-to-subgroups{lanes=4 share=entries},map-blocks"


def small_matrix(seed: int = 0, shape: tuple[int, int] = (120, 90), density: float = 0.05) -> sp.csr_array:
    return sp.random_array(shape, density=density, format="csr", rng=np.random.default_rng(seed))


def skewed() -> sp.csr_array:
    a = small_matrix().tolil()
    a[3, :] = 1.0
    return sp.csr_array(a.tocsr())


def task(columns: int | None = 0, choose_format: bool = True) -> Task:
    return Task(True, choose_format, columns, 4, shape=(120, 90))


def space(columns: int | None = 0, matrix: sp.csr_array | None = None, choose_format: bool = True) -> Space:
    return Space(Context(task(columns, choose_format), None if matrix is None else analyse(matrix)))


def beginning(s: Space, count: int) -> list[Plan]:
    return list(islice(s.seeds(), count))


# --- The space ----------------------------------------------------------------------------------------

SPACES = {
    "spmv": lambda: space(0),
    "spmm": lambda: space(32),
    "any K": lambda: space(None),
    "pinned": lambda: space(8, None, False),
}


@pytest.mark.parametrize("name", SPACES)
def test_every_proposal_is_legal_and_complete(name: str) -> None:
    """A walk far from the seeds never leaves what `Plan` accepts, and no move leads nowhere."""
    s, rng = SPACES[name](), random.Random(0)
    for plan in beginning(s, 6):
        for _ in range(4):
            moves = s.moves(plan)
            for move in moves:
                assert Plan.parse(move.plan.text()) == move.plan
                assert move.plan.digest() != plan.digest()
                assert Form.BLOCKS in {form for step in move.plan.steps for form in step.provides}
            assert len({m.plan.digest() for m in moves}) == len(moves)
            plan = rng.choice(moves).plan


def test_moves_are_one_change() -> None:
    plan = Plan.parse(f"{THREADS[: THREADS.rindex(',')]},unroll{{factor=4}},map-blocks{{threads=128}}")
    labels = {move.label: move.plan for move in space().moves(plan)}
    assert option(labels["unroll.factor=8"], "unroll", "factor", 0) == 8
    assert "unroll.factor=16" not in labels, "an option moves by one choice"
    assert {"unroll.factor=2", "map-blocks.threads=192", "map-blocks.threads=96", "-unroll"} <= labels.keys()
    replaced = next(label for label in labels if label.startswith("rows-to-threads>rows-to-subgroups"))
    assert "rows-to-threads" not in labels[replaced].text()
    assert "set-encoding.format=bsr" in labels
    assert [m.plan for m in space().moves(plan)] == space().neighbours(plan)


def test_columns_are_not_asked_of_a_vector() -> None:
    """What needs a loop over dense columns is not proposed where there is none."""
    needs = {name for name, cls in registry().items() if Form.COLUMNS in cls.requires}
    assert "vectorize" in needs
    for columns, expected in ((0, False), (1, False), (32, True)):
        s = space(columns)
        used = {step.name for plan in beginning(s, 500) for step in plan.steps}
        assert bool(used & needs) is expected


def test_a_pinned_format_is_left_alone() -> None:
    for plan in beginning(space(32, choose_format=False), 500):
        assert not plan.of_kind(Kind.REPRESENTATION)


def test_seeds_begin_with_the_default_and_cover_the_passes() -> None:
    """Every registered pass that some legal plan for SpMV or SpMM can have is in a seed or one move from one.

    All but those of upstream that are there for plans by hand and composite passes, which the search never proposes.
    """
    near: set[str] = set()
    bands = sp.csr_array(sp.diags_array([np.ones(90)] * 3, offsets=[-1, 0, 1], shape=(90, 90)))  # equal values, few diagonals
    blocks = sp.csr_array(sp.kron(small_matrix(1, (15, 22), 0.2), np.tri(8, 4)))
    for columns, matrix in ((0, skewed()), (128, skewed()), (0, bands), (0, small_matrix(2, density=0.002)), (128, blocks)):
        s = space(columns, matrix)
        found = beginning(s, 80)
        assert found[0] == default_plan(s.context.task, s.context.features, Target())
        assert len({p.digest() for p in found}) == len(found)
        near |= {step.name for plan in found for move in s.moves(plan) for step in move.plan.steps}
    wanted = {name for name, cls in registry().items() if cls.kind in (Kind.SCHEDULE, Kind.MAPPING, Kind.REPRESENTATION)}
    silent = {name for name in wanted if issubclass(registry()[name], UpstreamPass) and not registry()[name]().candidates(None)}
    assert wanted - near == silent


def test_skewed_rows_are_balanced_first() -> None:
    balancing = {name for name, cls in registry().items() if Bottleneck.IMBALANCE in cls.relieves}
    first = beginning(space(32, skewed()), 3)
    assert any(step.name in balancing for plan in first for step in plan.steps)


# --- Passes that are plugged in -----------------------------------------------------------------------

PLUGIN = '''
from __future__ import annotations
import os, time
from dataclasses import dataclass
from typing import ClassVar
from mlir import ir
from mlir.dialects import arith
from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import op_name, walk
from sparseditto.passes.base import Form, MappingPass, SchedulePass, option
from sparseditto.passes.registry import register

HOWS = ("abort", "hang", "raise", "wrong", "stray", "endless", "none")


@register
@dataclass(frozen=True)
class Trouble(SchedulePass):
    """Does what goes wrong in real passes."""
    name: ClassVar[str] = "trouble"
    requires = (Form.THREADS,)
    how: str = option("what goes wrong", default="abort", choices=HOWS)

    def run(self, nest, target):
        if self.how == "abort":
            os.abort()
        if self.how == "hang":
            time.sleep(100)
        if self.how == "raise":
            raise RuntimeError("this pass has a fault")
        for op in walk(nest.func):
            if self.how == "wrong" and op_name(op) == "arith.mulf":
                op.operation.operands[1] = op.operands[0]
            if self.how == "stray" and op_name(op) == "memref.store":
                with ir.InsertionPoint(op):
                    op.operation.operands[2] = b.add(op.operands[2], b.index(1 << 36))
            if self.how == "endless" and op_name(op) == "memref.store":
                with ir.InsertionPoint(op):
                    square = lambda i, v: [arith.mulf(v[0], v[0])]
                    op.operation.operands[0] = b.for_loop(b.index(0), b.index(1 << 62), b.index(1), [op.operands[0]], square)[0]

@register
@dataclass(frozen=True)
class OnlyCandidates(MappingPass):
    """Says itself what is worth a try."""
    name: ClassVar[str] = "only-candidates"
    requires = (Form.BLOCKS,)
    size: int = option("a number", default=1)

    @classmethod
    def candidates(cls, context):
        return (cls(context.task.columns), cls(7))

    def run(self, nest, target):
        pass
'''


@pytest.fixture
def plugin(tmp_path: Path, passes_forgotten: None) -> Path:
    """Passes loaded from a file, as `--load` does."""
    path = tmp_path / "tuner_trouble.py"
    path.write_text(PLUGIN)
    load_file(path)
    return path


def test_a_plugged_in_pass_is_proposed(plugin: Path) -> None:
    s = space(32)
    labels = [move.label for move in s.moves(beginning(s, 1)[0])]
    assert "+trouble{how=abort}" in labels
    assert "+trouble{how=none}" in labels
    assert [label for label in labels if "only-candidates" in label] == [
        "+only-candidates{size=32}",
        "+only-candidates{size=7}",
    ]
    with_it = next(move.plan for move in s.moves(beginning(s, 1)[0]) if move.label == "+only-candidates{size=7}")
    assert "only-candidates.size=32" in {move.label for move in s.moves(with_it)}
    assert tuning.plugin_files() == (plugin,)


# --- The search, on made-up costs ---------------------------------------------------------------------


class Costs:
    """Measures by a formula: `cost(plan)` microseconds with noise, or the name of a failure."""

    def __init__(
        self, cost: Callable[[Plan], float | str], noise: float = 0.0, identity: Callable[[Plan], str] = lambda p: ""
    ) -> None:
        self.cost, self.noise, self.identity = cost, noise, identity
        self.random = random.Random(1)
        self.requests: list[Request] = []
        self.clock = 0.0

    def __call__(self, requests: Sequence[Request]) -> Iterator[Answer]:
        for request in requests:
            self.requests.append(request)
            self.clock += 0.1
            cost = self.cost(request.plan)
            if isinstance(cost, str):
                yield Answer(request.plan, cost, why="made up")
                continue
            samples = tuple(cost * (1 + abs(self.random.gauss(0, self.noise))) for _ in range(request.rounds))
            yield Answer(request.plan, "ok", samples, self.identity(request.plan))

    @property
    def measured(self) -> list[str]:
        return list(dict.fromkeys(r.plan.digest() for r in self.requests))


def option(plan: Plan, name: str, key: str, default: int) -> int:
    return next((int(step.options()[key]) for step in plan.steps if step.name == name), default)


def bowl(plan: Plan) -> float | str:
    """Best: 32 lanes, unrolled by 8, 256 threads, coordinates of 16 bits; BSR does not apply."""
    encoding = next(step.options() for step in plan.steps if step.name == "set-encoding")
    if encoding["format"] != "csr":
        return "not-applicable"
    lanes = option(plan, "rows-to-subgroups", "lanes", 1)
    unroll = option(plan, "unroll", "factor", 1)
    threads = option(plan, "map-blocks", "threads", 128)
    off = abs(math.log2(lanes) - 5) + abs(math.log2(unroll) - 3) + abs(math.log2(threads) - 8)
    return 10.0 + 2.0 * off + (1.0 if encoding["coordinates"] != 16 else 0.0)


def fixed(columns: int | None = 0) -> Space:
    """A space that does not grow with the project."""
    names = ("set-encoding", "accumulate-registers", "rows-to-threads", "rows-to-subgroups", "unroll", "map-blocks")
    return Space(Context(task(columns)), {name: registry()[name] for name in names})


def run_search(costs: Costs, budget: Budget, bound_us: float | None = None, columns: int = 0, **more: Any) -> Found:
    s = fixed(columns)
    return search(beginning(s, 8), s.moves, costs, budget, bound_us, clock=lambda: costs.clock, **more)


def test_search_finds_the_optimum() -> None:
    found = run_search(Costs(bowl), Budget(candidates=120))
    assert found.ranking()[0].us == pytest.approx(10.0)


def test_search_finds_a_good_plan_in_noise() -> None:
    """Noise of 3 % must not lead it astray: what it calls best is truly within 10 % of the optimum."""
    costs = Costs(bowl, noise=0.03)
    best = run_search(costs, Budget(candidates=120)).ranking()[0]
    assert bowl(best.plan) < 11.0
    assert len(best.samples_us) > tuner.FIRST_ROUNDS, "the leaders are measured more often"
    slowest = max((r for r in costs.requests), key=lambda r: float(bowl(r.plan)) if not isinstance(bowl(r.plan), str) else 0.0)
    assert sum(r.plan == slowest.plan for r in costs.requests) == 1, "and those that are clearly slower only once"


@pytest.mark.parametrize("count", [1, 3, 16, 33])
def test_search_keeps_to_the_number_of_candidates(count: int) -> None:
    costs = Costs(bowl, noise=0.02)
    found = run_search(costs, Budget(candidates=count))
    assert found.stopped == "candidates"
    assert len([t for t in found.trials if t.outcome == "ok"]) == count
    assert len([t for t in found.trials if t.outcome not in tuner.FREE]) == count


def test_search_keeps_to_the_seconds() -> None:
    costs = Costs(bowl)
    found = run_search(costs, Budget(seconds=5.0))
    assert found.stopped == "time"
    assert 4.0 <= costs.clock <= 5.2


def test_seeds_take_a_share_of_the_budget() -> None:
    costs = Costs(bowl)
    s = fixed()
    run = search(beginning(s, 48), s.moves, costs, Budget(candidates=20))
    assert sum(t.move is not None and t.ok for t in run.trials) == 10


def test_search_stops_at_the_bound() -> None:
    costs = Costs(bowl)
    found = run_search(costs, Budget(candidates=500), bound_us=13.0)
    assert found.stopped == "bound"
    assert found.ranking()[0].us <= 13.0 * 1.05
    assert len(costs.measured) < 100


def test_search_measures_no_plan_and_no_kernel_twice() -> None:
    """Plans that differ in a block size that their format does not have give the same kernel."""

    def kernel(plan: Plan) -> str:
        steps = [step for step in plan.steps if step.name != "set-encoding"]
        encoding = next(step.options() for step in plan.steps if step.name == "set-encoding")
        return f"{encoding['format']}/{encoding['coordinates']}/{encoding['positions']}/{steps}"

    costs = Costs(bowl, identity=kernel)
    found = run_search(costs, Budget(candidates=60))
    ok = [kernel(t.plan) for t in found.trials if t.ok]
    assert len(set(ok)) == len(ok) == 60
    duplicates = [t for t in found.trials if t.outcome == "duplicate"]
    assert duplicates
    assert all("same kernel as" in t.why for t in duplicates)
    assert len({t.plan.digest() for t in found.trials}) == len(found.trials)


def test_search_is_deterministic() -> None:
    runs = [run_search(Costs(bowl, noise=0.05), Budget(candidates=40), seed=3) for _ in range(2)]
    assert [t.plan for t in runs[0].trials] == [t.plan for t in runs[1].trials]
    assert [t.samples_us for t in runs[0].trials] == [t.samples_us for t in runs[1].trials]


def test_search_uses_what_was_seen() -> None:
    first = run_search(Costs(bowl), Budget(candidates=30))
    seen = {t.plan.digest(): Answer(t.plan, t.outcome, tuple(t.samples_us)) for t in first.trials}
    costs = Costs(bowl)
    again = run_search(costs, Budget(candidates=30), seen=seen)
    assert costs.requests == []
    assert again.ranking()[0].plan == first.ranking()[0].plan
    more = run_search(costs, Budget(candidates=40), seen=seen)
    assert sum(t.ok for t in more.trials) == 40
    assert not {r.plan.digest() for r in costs.requests if r.rounds == tuner.FIRST_ROUNDS} & seen.keys()


def test_search_survives_when_everything_fails() -> None:
    found = run_search(Costs(lambda plan: "crash"), Budget(candidates=9))
    assert (found.stopped, found.ranking()) == ("candidates", [])
    assert len(found.trials) == 9


def test_search_gives_up_when_nothing_applies() -> None:
    found = run_search(Costs(lambda plan: "not-applicable"), Budget(candidates=4))
    assert found.stopped == "refused"


def test_search_ends_when_there_is_nothing_left() -> None:
    plans = [Plan.parse(THREADS), Plan.parse(LANES)]
    costs = Costs(lambda plan: 1.0 if "subgroups" in plan.text() else 2.0)
    found = search(plans, lambda plan: (), costs, Budget(candidates=50), seed_share=1.0)
    assert (found.stopped, len(found.trials)) == ("exhausted", 2)
    assert found.ranking()[0].plan == plans[1]


def test_search_keeps_everything_on_ctrl_c() -> None:
    costs = Costs(bowl)

    def interrupted(requests: Sequence[Request]) -> Iterator[Answer]:
        for answer in costs(requests):
            if len(costs.requests) == 13:
                raise KeyboardInterrupt
            yield answer

    s = fixed()
    found = search(beginning(s, 8), s.moves, interrupted, Budget(candidates=100))
    assert found.stopped == "interrupted"
    assert len(found.trials) == len({r.plan.digest() for r in costs.requests[:12]})
    assert found.ranking()


def test_moves_that_never_apply_come_last() -> None:
    """After the search has seen a kind of move fail, it tries others first."""
    failing = Move(Plan.parse(THREADS), "a.x=1", "a.x")
    luck = tuner._Luck()
    parent = tuner.Tried(Plan.parse(LANES), outcome="ok", samples_us=[1.0])
    luck.learn(tuner.Tried(failing.plan, failing, "p", outcome="not-applicable"), parent)
    assert luck.hopeless(failing)
    assert not luck.hopeless(Move(failing.plan, "a.x=2", "a.x"))


def test_intervals_of_leaders_that_differ_are_told_apart() -> None:
    """2 % apart in 2 % of noise: the better one is found by measuring both again."""
    plans = [Plan.parse(THREADS), Plan.parse(LANES)]
    costs = Costs(lambda plan: 100.0 if "subgroups" in plan.text() else 102.0, noise=0.02)
    found = search(plans, lambda plan: (), costs, Budget(candidates=2), seed_share=1.0)
    assert found.ranking()[0].plan == plans[1]
    assert min(len(t.samples_us) for t in found.trials) > 6


@pytest.mark.parametrize(
    ("text", "budget"),
    [("64", Budget(64)), ("20s", Budget(None, 20.0)), ("1.5m", Budget(None, 90.0)), ("16,20s", Budget(16, 20.0))],
)
def test_budget_is_read(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget


@pytest.mark.parametrize("text", ["", "0", "ten", "1.5", "-3", "20h", "5 s s"])
def test_bad_budget_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no budget"):
        Budget.parse(text)


# --- Worker processes ---------------------------------------------------------------------------------

HANDLER = """
import os, time
from sparseditto.dialects.errors import DeviceError, PlanError

class Handler:
    def __init__(self, options):
        self.options, self.data = options, None
        if options.get("broken"):
            raise SystemExit("cannot start")
        if options.get("refuse"):
            raise DeviceError("there is no such device")
    def hello(self):
        return {"pid": os.getpid()}
    def healthy(self):
        return False
    def setup(self, *data):
        self.data = data
    def work(self, payload, stage):
        print("noise that must not disturb the pipe")
        if payload == "abort":
            os.write(2, b"x: y.cpp:1: f(): Assertion `ok' failed.\\n")
            os.abort()
        if payload == "exit":
            os._exit(7)
        if payload == "hang":
            stage("forever", 0.3)
            time.sleep(100)
        if payload == "raise":
            raise ValueError("odd")
        if payload == "ditto":
            raise PlanError("not this one", where="here")
        return payload, os.getpid(), None if self.data is None else float(sum(d.sum() for d in self.data))
"""


@pytest.fixture
def handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "ditto_test_handler.py").write_text(HANDLER)
    monkeypatch.syspath_prepend(tmp_path)
    return "ditto_test_handler:Handler"


def finish(pool: Pool, count: int) -> dict[Any, Done]:
    done: dict[Any, Done] = {}
    limit = time.monotonic() + 30
    while len(done) < count and time.monotonic() < limit:
        done |= {d.key: d for _, d in gather([pool], 1.0)}
    return done


def test_a_job_that_goes_wrong_costs_only_itself(handler: str) -> None:
    """Abort, exit, hang, exceptions: each is reported with its reason, and the other jobs are done."""
    words = ["one", "abort", "two", "exit", "hang", "raise", "ditto", "three"]
    with Pool(handler, 2) as pool:
        for word in words:
            pool.submit(Job(word, "work", word, 20.0))
        done = finish(pool, len(words))
        assert pool.replaced == 5
    assert {word: done[word].outcome for word in words} == {
        "one": "ok", "two": "ok", "three": "ok",
        "abort": "crash", "exit": "crash", "hang": "timeout", "raise": "crash", "ditto": "bad-plan",
    }  # fmt: skip
    assert done["abort"].why == "ended by SIGABRT: x: y.cpp:1: f(): Assertion `ok' failed."
    assert done["exit"].why.startswith("ended with exit code 7")
    assert done["hang"].why == "'forever' did not end within 0.3 s"
    assert done["raise"].why == "ValueError: odd"
    assert done["ditto"].why == "here: not this one"


def test_workers_get_their_data_before_a_job_even_new_ones(handler: str) -> None:
    arrays = [np.arange(100_000.0), np.ones(3)]
    shared = [Shared(array) for array in arrays]
    with Pool(handler, 1) as pool:
        pool.setup(shared)
        for word in ("a", "abort", "b"):
            pool.submit(Job(word, "work", word, 20.0))
        done = finish(pool, 3)
        assert done["a"].value[2] == done["b"].value[2] == sum(a.sum() for a in arrays)
        assert done["a"].value[1] != done["b"].value[1]
        pool.setup(shared[:1])
        pool.submit(Job("c", "work", "c", 20.0))
        assert finish(pool, 1)["c"].value[2] == arrays[0].sum()
    for s in shared:
        s.close()


def test_cancelled_jobs_are_forgotten(handler: str) -> None:
    with Pool(handler, 1) as pool:
        for word in ("hang", "b", "c"):
            pool.submit(Job(word, "work", word, 20.0))
        while pool.deadline() == math.inf or not any(w.job for w in pool._workers):
            list(gather([pool], 1.0))
        pool.cancel()
        pool.submit(Job("d", "work", "d", 20.0))
        assert finish(pool, 1).keys() == {"d"}


def test_workers_end_with_the_pool_and_with_their_parent(handler: str, tmp_path: Path) -> None:
    with Pool(handler, 2) as pool:
        pool.submit(Job("a", "work", "a", 20.0))
        finish(pool, 1)
        processes = [w.process for w in pool._workers]
    assert all(p.poll() is not None for p in processes)
    code = f"""
        import os, sys
        sys.path.insert(0, {str(tmp_path)!r})
        from sparseditto.compiler.workers import Pool, gather
        pool = Pool({handler!r}, 1)
        pool.start()
        while pool.hello is None:
            list(gather([pool]))
        print(pool.hello["pid"], pool._folder.name, flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )
    pid, folder = int(done.stdout.split()[0]), Path(done.stdout.split()[1])
    limit = time.monotonic() + 10
    while time.monotonic() < limit and _alive(pid):
        time.sleep(0.02)
    assert not _alive(pid)
    assert not folder.exists()


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def test_what_runs_beside_the_import_of_a_handler_may_fail(handler: str, tmp_path: Path) -> None:
    (tmp_path / "ditto_test_beside.py").write_text(
        "from pathlib import Path\n"
        "def leave(options):\n"
        "    Path(options['path']).write_text('was here')\n"
        "    raise OSError('nothing to see')\n"
    )
    path = tmp_path / "left"
    with Pool(handler, 1, {"path": str(path)}, beside="ditto_test_beside:leave") as pool:
        pool.submit(Job("a", "work", "a", 20.0))
        assert finish(pool, 1)["a"].outcome == "ok"
        limit = time.monotonic() + 10
        while time.monotonic() < limit and not path.exists():
            time.sleep(0.02)
    assert path.read_text() == "was here"


@pytest.mark.parametrize("words", [["--bind", "A=nothing.npz"], ["--bind", "A=x.mtx", "--load", "nothing.py"]])
def test_a_file_that_cannot_be_read_ends_the_workers(
    words: list[str], spmv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They start before the files are read."""
    crews: list[tuple[Pool, Pool]] = []
    pools = Crew.pools

    def noted(crew: Crew) -> tuple[Pool, Pool]:
        crews.append(pools(crew))
        return crews[-1]

    monkeypatch.setattr(Crew, "pools", noted)
    monkeypatch.chdir(tmp_path)
    args = cli.parser().parse_args(["tune", str(spmv), *words, "--device", "simt", "--no-db"])
    with pytest.raises(InputError, match="nothing"):
        args.func(args)
    assert crews
    assert not any(pool.connections() for pool in crews[0])


def test_workers_that_cannot_start_say_so(handler: str) -> None:
    for options, error, message in (
        ({"refuse": True}, DeviceError, "there is no such device"),
        ({"broken": True}, StepFailed, "workers cannot start: ended with exit code 1: cannot start"),
    ):
        with Pool(handler, 1, options) as pool:
            pool.submit(Job("a", "work", "a", 20.0))
            with pytest.raises(error, match=message):
                finish(pool, 1)


# --- Checking -----------------------------------------------------------------------------------------


def test_sampled_lines_hold_the_odd_ones() -> None:
    lengths = np.full(100_000, 5)
    lengths[[777, 45_678]] = 3_000, 9_000
    lengths[31_234] = 0
    windows = sample_lines(lengths, most=20_000)
    lines = {line for start, end in windows for line in range(start, end)}
    assert {0, 99_999, 777, 45_678, 31_234} <= lines
    assert len(lines) < 2_000
    assert all(end < start for (_, end), (start, _) in pairwise(windows))
    assert sample_lines(np.zeros(0, np.int64), 10) == []
    assert sample_lines(np.full(20, 3), 10) == [(0, 20)]


class Held:
    """An output that a device holds."""

    def __init__(self, array: Any) -> None:
        self.array, self.lines = array, 0

    def __call__(self, lines: slice | None, axis: int) -> Any:
        part = self.array if lines is None else np.take(self.array, range(lines.start, lines.stop), axis)
        self.lines += part.shape[axis]
        return part


def checker_for(text: str, matrix: sp.csr_array, sizes: dict[str, int], tmp_path: Path) -> tuple[Checker, Any]:
    from sparseditto.compiler.api import bind_package, compile_file
    from sparseditto.compiler.execute import prepare
    from sparseditto.compiler.reference import evaluate

    path = tmp_path / "k.mlir"
    path.write_text(text)
    package = compile_file(path, {"A": matrix}, sizes).package
    inputs = prepare(package, bind_package(package, {"A": matrix}, sizes))
    expected, _ = evaluate(package.computation, inputs.matrix, inputs.dense, inputs.initial)
    return Checker(package.computation, inputs), expected.astype(np.float32)


TRANSPOSED = generic(
    "affine_map<(i, k, j) -> (j, i)>, affine_map<(i, k, j) -> (j, k)>, affine_map<(i, k, j) -> (k, i)>",
    "parallel parallel reduction",
    "%t = arith.mulf %a, %b : f32\n    %r = arith.addf %c, %t : f32",
    types="tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>",
)


@pytest.mark.parametrize(
    ("text", "sizes"), [(matmul(), {"K": 7}), (matmul(fill=None), {"K": 7}), (matvec(), {}), (TRANSPOSED, {"K": 7})]
)
def test_windows_and_whole_agree(text: str, sizes: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampled and full checks pass a right output and find a wrong component, whichever dimension the lines are."""
    monkeypatch.setattr(checking, "FULL_BYTES", 64)
    monkeypatch.setattr(Checker, "_CHUNK", 500)
    monkeypatch.setattr(checking, "SAMPLE_PRODUCTS", 3000)
    matrix = small_matrix(3, (2000, 1500), 0.002)
    checker, right = checker_for(text, matrix, sizes, tmp_path)
    held = Held(right)
    sampled = checker.check(held, full=False)
    assert (sampled["passed"], sampled["sampled"]) == (True, True)
    assert held.lines < right.shape[checker.axis]
    full = checker.check(Held(right), full=True)
    assert (full["passed"], full["sampled"], full["components"]) == (True, False, right.size)
    place = [0] * right.ndim
    place[checker.axis] = right.shape[checker.axis] - 1
    wrong = right.copy()
    wrong[tuple(place)] = np.nan
    for whole in (False, True):
        found = checker.check(Held(wrong), full=whole)
        assert (found["wrong"], found["first_wrong"]) == (1, tuple(place))


# --- Tuning under emulation ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session() -> Iterator[TuningSession]:
    with TuningSession(device="simt", workers=2) as made:
        yield made


@pytest.fixture
def spmv(kernel_file: Callable[[str], Path]) -> Path:
    return kernel_file(matvec())


@pytest.fixture
def spmm(kernel_file: Callable[[str], Path]) -> Path:
    return kernel_file(matmul())


def test_tune_finds_a_plan_and_its_package(session: TuningSession, spmm: Path, tmp_path: Path) -> None:
    from sparseditto.compiler.api import run

    seen: list[Progress] = []
    a, database = small_matrix(), tmp_path / "deep/tuning.sqlite3"
    result = session.tune(spmm, a, {"K": 8}, budget=Budget(8), database=database, progress=seen.append)
    best = require_best(result)
    assert (result.stopped, result.bound_us) == ("candidates", None)
    assert sum(t.ok for t in result.trials) == 8
    assert best.us == min(t.us for t in result.trials if t.us is not None)
    assert best.check is not None
    assert best.check["passed"]
    assert {"compile", "pack", "run", "check", "measure"} <= best.seconds.keys()
    assert (seen[-1].measured, seen[-1].left_candidates) == (8, 0)
    assert result.package is not None
    assert Plan.from_json(result.package.plan) == best.plan
    verified = run(result.package, {"A": a}, {"K": 8}, verify=True)
    assert verified.check is not None
    assert verified.check.passed

    (entry,) = entries_of(database)
    kept = {r.plan.digest(): r for r in entry.records}
    assert entry.records[0].measurements[0].versions["numpy"] == np.__version__
    assert entry.key.structure.entries == a.nnz
    assert kept.keys() == {t.plan.digest() for t in result.trials}
    for trial in result.trials:
        assert pooled(trial.plan, kept[trial.plan.digest()].measurements) == trial

    start = time.monotonic()
    again = session.tune(spmm, a, {"K": 8}, budget=Budget(8), database=database)
    assert time.monotonic() - start < 2.0
    assert require_best(again).plan == best.plan
    assert again.package is not None, "compiled anew"
    assert entries_of(database) == [entry], "nothing was measured"
    other = session.tune(spmm, small_matrix(5), {"K": 8}, budget=Budget(1), database=database)
    assert [t.plan for t in other.trials] == [best.plan], "the best plan of another matrix is tried first"
    assert "begins with 1 plans of the 1 nearest tasks" in other.notes[0]


def test_the_best_that_is_known_wins(session: TuningSession, spmv: Path, tmp_path: Path) -> None:
    """A short search after a long one gives no worse plan; plans of passes that are gone are said to be so."""
    database, plans = tmp_path / "t.sqlite3", [Plan.parse(THREADS), Plan.parse(LANES)]
    known = require_best(session.tune(spmv, small_matrix(), budget=Budget(2), plans=plans, database=database))
    with Database(database) as kept:
        (task,) = kept.tasks()
        with kept.transaction():
            kept.put(task.id, StoredPlan("", ("no-such-pass",)), (Measurement("ok", (0.1,), check={"passed": True}),))
    result = session.tune(spmv, small_matrix(), budget=Budget(1), database=database)
    assert require_best(result).us == min(t.us for t in result.trials if t.us is not None) <= (known.us or 0)
    assert {p.digest() for p in plans} <= {t.plan.digest() for t in result.trials}
    assert result.notes == ("1 plans of the database name passes that there are no longer",)
    assert result.package is not None
    assert result.package.provenance["plan"] == "tuning"
    only = session.tune(spmv, small_matrix(), budget=Budget(2), plans=plans[:1], database=database)
    assert [t.plan for t in only.trials] == plans[:1], "plans that were not asked for do not win"


DEVICES = ["simt", pytest.param("cuda", marks=pytest.mark.cuda)]


def need(device: str) -> None:
    from sparseditto.compiler.runtimes.cuda import available

    if device == "cuda" and (reason := available()) is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("device", DEVICES)
def test_faults_are_recorded_and_the_session_survives(device: str, plugin: Path, spmv: Path, tmp_path: Path) -> None:
    """The drill: a compiler that aborts, hangs or raises, a kernel that strays, never ends or is wrong; the right one wins."""
    need(device)
    hows = ("abort", "hang", "raise", "wrong", "stray", "endless", "none")
    plans = [Plan.parse(THREADS.replace("rows-to-threads", f"rows-to-threads,trouble{{how={how}}}")) for how in hows]
    database = tmp_path / "t.sqlite3"
    with TuningSession(device=device, workers=2, compile_limit_s=2.5, run_limit_s=1.5) as session:
        result = session.tune(spmv, small_matrix(), budget=Budget(20), plans=plans, database=database)
        assert session.crew.started
        compilers, measurer = session.crew.pools()
        assert compilers.replaced == 2
        assert measurer.replaced == (2 if device == "cuda" else 1)
        after = session.tune(spmv, small_matrix(1), budget=Budget(1), plans=[Plan.parse(LANES)])
    trials = {how: next(t for t in result.trials if t.plan == plan) for how, plan in zip(hows, plans, strict=True)}
    assert {how: t.outcome for how, t in trials.items()} == {
        "abort": "crash", "hang": "timeout", "raise": "step-failed", "wrong": "wrong", "stray": "check-failed",
        "endless": "timeout", "none": "ok",
    }  # fmt: skip
    assert "SIGABRT" in trials["abort"].why
    assert trials["hang"].why == "'compile' did not end within 2.5 s"
    assert trials["endless"].why == "'run' did not end within 1.5 s"
    assert "this pass has a fault" in trials["raise"].why
    assert "components are wrong" in trials["wrong"].why
    assert trials["wrong"].us is None
    assert result.best == trials["none"]
    assert require_best(after).ok
    (entry,) = entries_of(database)
    kept = {r.plan.digest(): verdict(r.measurements) for r in entry.records}
    assert {d: (m.outcome, m.why) for d, m in kept.items()} == {t.plan.digest(): (t.outcome, t.why) for t in result.trials}


@pytest.mark.cuda
def test_tuning_on_a_gpu(spmm: Path) -> None:
    """Times, resources and a bound come; K after K finds the matrix on the GPU."""
    need("cuda")
    a = small_matrix(0, (200_000, 150_000), 1e-4)
    with TuningSession() as session:
        for columns in (8, 32, 128):
            result = session.tune(spmm, a, {"K": columns}, budget=Budget(8))
            best = require_best(result)
            assert best.us is not None
            assert best.us > 1.0
            assert best.resources
            assert best.check is not None
            assert best.check["passed"]
            assert not best.check["sampled"]
            assert result.bound_us is not None
            assert result.bound_us < best.us


def test_no_winner_says_why(session: TuningSession, plugin: Path, spmv: Path) -> None:
    plan = Plan.parse(THREADS.replace("rows-to-threads", "rows-to-threads,trouble{how=wrong}"))
    result = session.tune(spmv, small_matrix(), budget=Budget(2), plans=[plan])
    assert (result.best, result.package) == (None, None)
    with pytest.raises(CheckFailed, match=r"none of 1 candidates gave a right result \(wrong: "):
        require_best(result)


def test_the_winner_is_checked_as_a_whole(session: TuningSession, spmv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A winner whose whole output is wrong is not the winner."""
    plans = [Plan.parse(THREADS), Plan.parse(LANES)]
    calls = []

    def verify(self: Any, pool: int, job: Job) -> Done:
        calls.append(job.key[1])  # type: ignore[index]
        passed = len(calls) > 1
        return Done(
            job.key, "ok", {"passed": passed, "wrong": int(not passed), "components": 5, "first_wrong": [3], "sampled": False}
        )

    def sampled(self: Any, done: Done, digest: str) -> Measurement:
        measurement = measured(self, done, digest)
        return replace(measurement, check={**(measurement.check or {}), "sampled": True})

    measured = tuning._Run._measured
    monkeypatch.setattr(tuning._Run, "_measured", sampled)
    monkeypatch.setattr(TuningSession, "_one", verify)
    result = session.tune(spmv, small_matrix(), budget=Budget(2), plans=plans)
    assert len(calls) == 2
    assert require_best(result).plan.digest() == calls[1]
    loser = next(t for t in result.trials if t.plan.digest() == calls[0])
    assert (loser.outcome, loser.us, loser.why) == ("wrong", None, "1 of 5 components are wrong, the first at (3,)")


def test_ctrl_c_keeps_what_was_measured(session: TuningSession, spmv: Path, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.measured == 3:
            raise KeyboardInterrupt

    database = tmp_path / "t.sqlite3"
    result = session.tune(spmv, small_matrix(), budget=Budget(50), database=database, progress=stop)
    assert result.interrupted
    assert require_best(result).ok
    assert result.package is not None
    (entry,) = entries_of(database)
    assert sum(verdict(r.measurements).outcome == "ok" for r in entry.records) == 3 == sum(t.ok for t in result.trials)
    again = session.tune(spmv, small_matrix(), budget=Budget(1), plans=[Plan.parse(LANES)])
    assert again.best is not None


def test_ctrl_c_while_the_winner_is_checked_keeps_it(
    session: TuningSession, spmv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Any, digest: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning._Run, "_verified", stop)
    result = session.tune(spmv, small_matrix(), budget=Budget(1), plans=[Plan.parse(THREADS)])
    assert result.interrupted
    assert require_best(result).ok
    assert result.package is not None


def test_a_hang_does_not_outlast_the_seconds(session: TuningSession, plugin: Path, spmv: Path) -> None:
    plans = [Plan.parse(THREADS), Plan.parse(THREADS.replace("rows-to-threads", "rows-to-threads,trouble{how=hang}"))]
    session.tune(spmv, small_matrix(), budget=Budget(1), plans=plans[:1])  # the workers are up
    start = time.monotonic()
    result = session.tune(spmv, small_matrix(), budget=Budget(seconds=3.0), plans=plans)
    assert time.monotonic() - start < 6.0
    assert (result.stopped, require_best(result).plan) == ("time", plans[0])
    session.close()


def test_seconds_end_the_search(session: TuningSession, spmv: Path) -> None:
    session.tune(spmv, small_matrix(), budget=Budget(1), plans=[Plan.parse(THREADS)])  # the workers are up
    start = time.monotonic()
    result = session.tune(spmv, small_matrix(), budget=Budget(seconds=2.0))
    assert result.stopped == "time"
    assert time.monotonic() - start < 5.0
    assert result.best is not None


def test_formats_that_the_matrix_does_not_fit_are_refused(session: TuningSession, spmv: Path) -> None:
    """70 000 columns have no 16-bit coordinates: the worker says so, and it does not count."""
    a = sp.csr_array(([1.0, 2.0], ([0, 1], [69_999, 5])), shape=(2, 70_000))
    plans = [Plan.parse(THREADS.replace("set-encoding", f"set-encoding{{coordinates={w}}}")) for w in (16, 32)]
    result = session.tune(spmv, a, budget=Budget(1), plans=plans)
    assert [t.outcome for t in result.trials] == ["bad-input", "ok"]
    assert "does not fit in 16 bits" in result.trials[0].why


def test_plans_for_symmetric_matrices_are_refused_for_others(session: TuningSession, spmv: Path) -> None:
    """Before anything is measured, with the place where the matrix is not symmetric."""
    plans = [Plan.parse(THREADS), Plan.parse(THREADS.replace("rows-to", "lower-triangle,rows-to"))]
    a = sp.csr_array(([1.0, 2.0, 3.0], ([0, 1, 2], [1, 0, 2])), shape=(3, 3))
    result = session.tune(spmv, a, budget=Budget(2), plans=plans)
    assert [(t.outcome, t.samples_us) for t in result.trials if "triangle" in t.plan.text()] == [("bad-input", ())]
    assert "(0, 1) is 1.0, and (1, 0) is 2.0" in "".join(t.why for t in result.trials)
    a.data[:2] = 1.0
    assert [t.outcome for t in session.tune(spmv, a, budget=Budget(2), plans=plans).trials] == ["ok", "ok"]


def test_odd_matrices_tune(session: TuningSession, spmv: Path, spmm: Path) -> None:
    plans = [Plan.parse(THREADS)]
    for a in (sp.csr_array((7, 6)), sp.csr_array((0, 5)), skewed()):
        assert require_best(session.tune(spmv, a, budget=Budget(2), plans=plans)).ok
        assert require_best(session.tune(spmm, a, {"K": 9}, budget=Budget(2), plans=plans)).ok


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"budget": Budget()}, InputError, "a budget of candidates or seconds is needed"),
        ({"sizes": {}}, InputError, "the size of dimension 1 of 'B' is not known"),
        ({"chip": "sm_1"}, InputError, "is no known target"),
        ({"matrix_or_bindings": {}}, InputError, "bind"),
    ],
)
def test_bad_requests_are_refused(
    session: TuningSession, spmm: Path, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {"matrix_or_bindings": small_matrix(), "sizes": {"K": 4}, "budget": Budget(1), **change}
    with pytest.raises(error, match=message):
        session.tune(spmm, **arguments)


def test_what_cannot_be_compiled_says_so(session: TuningSession, kernel_file: Callable[[str], Path]) -> None:
    total = generic(
        "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> ()>",
        "reduction reduction",
        "%t = arith.mulf %a, %b : f32\n    %r = arith.addf %c, %t : f32",
        types="tensor<?x?xf32>, tensor<?xf32>, tensor<f32>",
    )
    result = session.tune(kernel_file(total), small_matrix(), budget=Budget(2))
    with pytest.raises(Unsupported):
        require_best(result)


def test_a_device_that_there_is_not() -> None:
    with pytest.raises(InputError, match="no device is named 'tpu'"):
        TuningSession(device="tpu")
    with pytest.raises(InputError, match="workers=0"):
        TuningSession(device="simt", workers=0)


def test_without_a_gpu_tuning_on_one_says_so(spmv: Path) -> None:
    from sparseditto.compiler.runtimes.cuda import available

    if available() is None:
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError):
        tune(spmv, small_matrix(), budget=Budget(1), workers=1)


def test_a_bound_ends_the_search_unless_caches_may_beat_it(
    session: TuningSession, spmv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [Plan.parse(THREADS), Plan.parse(LANES)]
    small = session.tune(spmv, small_matrix(), budget=Budget(2), plans=plans, bound_us=1e9)
    assert (small.stopped, small.bound_us, len(small.trials)) == ("candidates", 1e9, 2)
    monkeypatch.setattr(tuning, "_UNCACHED", 0)
    assert session.tune(spmv, small_matrix(), budget=Budget(9), bound_us=1e9).stopped == "bound"


CSC = "tensor<?x?xf32, #sparse_tensor.encoding<{map = (d0, d1) -> (d1 : dense, d0 : compressed)}>>"


@pytest.mark.parametrize("text", [matvec(), matmul(), TRANSPOSED, matvec(a=CSC)])
def test_a_search_begins_where_the_compiler_would(
    session: TuningSession, kernel_file: Callable[[str], Path], text: str
) -> None:
    """The planner is told the same of a task, whether it is tuned or compiled at once."""
    from sparseditto.compiler import driver
    from sparseditto.compiler.kernel import read_kernel
    from sparseditto.compiler.problem import bind
    from sparseditto.dialects.binding import context

    with context():
        computation = read_kernel(text).computation
    sizes = {"K": 8} if len(computation.iterators) > 2 else {}
    problem = bind(computation, {"A": small_matrix()}, sizes)
    found = session.tune(kernel_file(text), {"A": small_matrix()}, sizes, budget=Budget(1))
    assert found.trials[0].plan == driver.make_plan(problem, Target())[0]


def test_matrix_digests_see_pattern_and_values() -> None:
    a = small_matrix()
    other_values = sp.csr_array((a.data * 2, a.indices, a.indptr), shape=a.shape)
    one, two, three = (matrix_digests(from_scipy(m)) for m in (a, other_values, small_matrix(1)))
    assert one == matrix_digests(from_scipy(a.copy()))
    assert one[0] == two[0] != three[0]
    assert one[1] != two[1]
    big = np.arange(3 * task_keys._BLOCK, dtype=np.uint8)
    assert task_keys._array_digest(big) != task_keys._array_digest(np.concatenate((big[1:], big[:1])))


def test_compulsory_bytes() -> None:
    """Worked out by hand for a tridiagonal matrix: entries of 8 bytes, positions, x, y."""
    from sparseditto.compiler.kernel import read_kernel
    from sparseditto.compiler.problem import bind
    from sparseditto.dialects.binding import context

    n = 100_000
    a = sp.csr_array(sp.diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]))
    with context():
        problem = bind(read_kernel(matvec(fill=0.0)).computation, {"A": a})
    assert tuning.compulsory_bytes(problem) == 8 * a.nnz + 4 * (n + 1) + 4 * n + 4 * n


# --- On a GPU that is made up -------------------------------------------------------------------------


class Gpu:
    """A CUDA driver whose device memory is the host's, and sessions that run by emulation on it."""

    def __init__(self, memory: int = 1 << 30) -> None:
        self.free, self.blocks, self.uploads = memory, {}, 0  # type: ignore[var-annotated]

    def call(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)

    def cuMemAlloc_v2(self, pointer: Any, count: Any) -> None:
        if count.value > self.free:
            raise DeviceError("cuMemAlloc_v2 failed: out of memory")
        block = ctypes.create_string_buffer(count.value + 256)
        address = -(-ctypes.addressof(block) // 256) * 256
        pointer._obj.value = address
        self.blocks[address] = (block, count.value)
        self.free -= count.value

    def cuMemFree_v2(self, pointer: Any) -> None:
        self.free += self.blocks.pop(pointer.value)[1]

    def cuMemcpyHtoD_v2(self, target: Any, source: Any, count: Any) -> None:
        self.uploads += count.value
        ctypes.memmove(target.value, source.value, count.value)

    def cuMemcpyDtoH_v2(self, target: Any, source: Any, count: Any) -> None:
        ctypes.memmove(target.value, source.value, count.value)

    def cuMemcpyDtoD_v2(self, target: Any, source: Any, count: Any) -> None:
        ctypes.memmove(target.value, source.value, count.value)

    def cuMemsetD8_v2(self, target: Any, byte: Any, count: Any) -> None:
        ctypes.memset(target.value, byte.value, count.value)

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> None:
        free._obj.value = total._obj.value = 1 << 22

    def cuDeviceGet(self, *_: Any) -> None:
        pass

    cuDevicePrimaryCtxRetain = cuCtxSetCurrent = cuCtxSynchronize = cuDeviceGet


class Session:
    """`CudaSession` by emulation."""

    launches = 0
    closed = 0

    def __init__(self, package: Any, sizes: Any, device: int = 0, scalars: Any = None) -> None:
        self.package, self.sizes, self.arrays = package, sizes, {}  # type: ignore[var-annotated]
        self.scalars = scalars

    def upload(self, arrays: Any) -> None:
        for name, value in arrays.items():
            face = value.__cuda_array_interface__
            dtype, count = np.dtype(face["typestr"]), math.prod(face["shape"])
            raw = (ctypes.c_char * max(1, count * dtype.itemsize)).from_address(face["data"][0])
            self.arrays[name] = np.frombuffer(raw, dtype, count).reshape(face["shape"])

    def launch(self) -> None:
        from sparseditto.compiler.runtimes.launches import resolve
        from sparseditto.compiler.runtimes.simt import SimtModule

        Session.launches += 1
        module = SimtModule(self.package.mlir)
        for launch in resolve(self.package, self.sizes, self.scalars):
            arguments = [self.arrays[a] if isinstance(a, str) else a for a in launch.arguments]
            module.launch(launch.kernel, launch.grid, launch.block, arguments)

    def synchronize(self) -> None:
        pass

    def time(self, rounds: int, budget_s: float) -> Any:
        class Timing:
            samples_us = (5.0,) * rounds

        return Timing

    def resources(self) -> list[Any]:
        return []

    def close(self) -> None:
        Session.closed += 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    from sparseditto.compiler.runtimes import cuda, libcuda

    made = Gpu()
    monkeypatch.setattr(libcuda, "call", made.call)
    monkeypatch.setattr(cuda, "available", lambda: None)
    monkeypatch.setattr(cuda, "versions", lambda ordinal: {"gpu": "made up"})
    monkeypatch.setattr(cuda, "CudaSession", Session)
    return made


def measure_on(
    measurer: measuring.Measurer, path: Path, matrix: sp.csr_array, plan: str, sizes: dict[str, int], **more: Any
) -> measuring.Measured:
    from sparseditto.compiler.api import compile_file

    package = compile_file(path, {"A": matrix}, sizes, plan=plan).package
    job = measuring.MeasureJob(package, tuning.package_identity(package), 3, 100.0, 10.0, **more)
    return measurer.measure(job, lambda name, limit_s: None)


def begin(measurer: measuring.Measurer, path: Path, matrix: sp.csr_array, sizes: dict[str, int], name: str = "m") -> None:
    from sparseditto.compiler.kernel import read_kernel_file
    from sparseditto.compiler.problem import bind
    from sparseditto.dialects.binding import context

    with context():
        problem = bind(read_kernel_file(path).computation, {"A": matrix}, sizes)
    measurer.setup(problem.matrix, measuring.MeasureTask(problem, name))


def test_what_is_read_is_uploaded_once(gpu: Gpu, kernel_file: Callable[[str], Path]) -> None:
    """Candidates share device buffers; a task with the same matrix finds it there; another one does not."""
    path, a, sizes = kernel_file(matmul(fill=None)), small_matrix(), {"K": 8}
    measurer = measuring.Measurer({"device": "cuda"})
    assert measurer.hello() == {"gpu": "made up"}
    begin(measurer, path, a, sizes)
    first = measure_on(measurer, path, a, THREADS, sizes)
    assert first.check is not None
    assert first.check["passed"]
    assert first.samples_us == (5.0,) * 3
    uploads = gpu.uploads
    second = measure_on(measurer, path, a, LANES.replace("entries", "columns"), sizes)
    assert second.check is not None
    assert second.check["passed"], "C of C = A B + C starts afresh"
    assert gpu.uploads == uploads
    segmented = THREADS.replace("rows-to-threads", "segment-rows{length=16},rows-to-threads")
    third = measure_on(measurer, path, a, segmented, sizes)
    assert third.check is not None
    assert third.check["passed"]
    assert uploads < gpu.uploads < uploads + 2000, "only what the recipe makes is new"
    uploads = gpu.uploads
    begin(measurer, path, a, {"K": 4})
    measure_on(measurer, path, a, THREADS, {"K": 4})
    assert gpu.uploads - uploads == 4 * 4 * (90 + 120), "B and C; the matrix is there"
    uploads = gpu.uploads
    begin(measurer, path, small_matrix(1), {"K": 4}, "other")
    measure_on(measurer, path, small_matrix(1), THREADS, {"K": 4})
    assert gpu.uploads - uploads > 4 * 4 * (90 + 120)


def test_values_of_another_type_are_other_values(gpu: Gpu, kernel_file: Callable[[str], Path]) -> None:
    """The matrix stays where its pattern is the same; its values come anew for a kernel in another type."""
    a, measurer = small_matrix(), measuring.Measurer({"device": "cuda"})
    for dtype in ("f32", "f64", "f16", "f32"):
        path = kernel_file(matvec(dtype))
        begin(measurer, path, a, {})
        found = measure_on(measurer, path, a, THREADS, {})
        assert found.check is not None
        assert found.check["passed"], dtype


def test_slow_candidates_are_not_timed_well(
    gpu: Gpu, kernel_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, a = kernel_file(matvec()), small_matrix()
    measurer = measuring.Measurer({"device": "cuda"})
    begin(measurer, path, a, {})
    slow = measure_on(measurer, path, a, THREADS, {}, cutoff_us=1.0)
    assert len(slow.samples_us) == 1
    assert slow.samples_us[0] > 1000
    assert measurer.bandwidth(None, lambda name, limit_s: None) > 1e6  # type: ignore[operator]


def test_short_memory_is_freed_first(gpu: Gpu, kernel_file: Callable[[str], Path]) -> None:
    """What no longer fits makes the cache go, not the candidate; what never fits is refused."""
    path, a = kernel_file(matvec()), small_matrix()
    measurer = measuring.Measurer({"device": "cuda"})
    begin(measurer, path, a, {})
    before = gpu.free
    measure_on(measurer, path, a, THREADS, {})
    used = before - gpu.free
    gpu.free = used // 2
    wide = measure_on(measurer, path, a, THREADS.replace("set-encoding", "set-encoding{positions=64}"), {})
    assert wide.check is not None
    assert wide.check["passed"]
    measurer._device.forget("none")
    gpu.free = 100
    with pytest.raises(DeviceError, match="out of memory"):
        measure_on(measurer, path, a, THREADS, {})


# --- The command --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "spmm.mlir").write_text(matmul())
    sp.save_npz(tmp_path / "a.npz", small_matrix())
    monkeypatch.chdir(tmp_path)
    return tmp_path


TUNE = ["tune", "spmm.mlir", "--bind", "A=a.npz", "--size", "K=8", "--device", "simt", "--workers", "2", "--db", "t.sqlite3"]


def test_tune_command_prints_json_and_writes_the_package(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from sparseditto.compiler.package import KernelPackage

    plans = ["--plan", THREADS, "--plan", LANES.replace("entries", "columns")]
    code = cli.main([*TUNE, "--budget", "4", "--json", "-o", "out/best", *plans])
    out, err = capfd.readouterr()
    assert code == 0, err
    data = json.loads(out)
    assert data["output"] == "out/best"
    assert data["best"]["outcome"] == "ok"
    assert len(data["trials"]) == 2
    assert KernelPackage.load(folder / "out/best").plan == data["best"]["plan"]
    assert len(entries_of(folder / "t.sqlite3")[0].records) == 2


def test_tune_command_is_read_by_people(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*TUNE, "--budget", "2"]) == 0
    out, _ = capfd.readouterr()
    assert "package: spmm.ditto" in out
    assert "tried:" in out
    assert cli.main([*TUNE, "--budget", "soon"]) == 2
    assert "is no budget" in capfd.readouterr().err


def test_progress_line_says_what_is_known() -> None:
    from sparseditto.compiler.cli.tune import progress_line

    best = Trial(Plan.parse(THREADS), "ok", 20.0)
    progress = Progress(best, 5, 1, 7, 3.2, 16.8, None, 0.5)
    assert progress_line(progress) == (
        "best 20.00 us (50% of the bound); 5 measured, 1 failed, 7 not applicable or equal; 3 s, 17 s left"
    )
    assert progress_line(Progress(None, 0, 0, 0, 0.0, None, 64, None)).startswith("best none yet; 0 measured")


def outcomes(path: Path) -> set[str]:
    return {verdict(r.measurements).outcome for entry in entries_of(path) for r in entry.records}


def test_ctrl_c_on_the_command_keeps_the_best(folder: Path) -> None:
    """The signal goes to the whole group, as from a terminal: the package is written, the exit code is 130."""
    command = [sys.executable, "-m", "sparseditto.compiler.cli.main", *TUNE, "--budget", "60s"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    database, limit = folder / "t.sqlite3", time.monotonic() + 30
    while time.monotonic() < limit and (not database.is_file() or "ok" not in outcomes(database)):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "this is the best so far" in err
    assert "package: spmm.ditto" in out
    assert (folder / "spmm.ditto/kernel.ptx").is_file()
