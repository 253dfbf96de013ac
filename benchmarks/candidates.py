"""The tuned runs: a measured search over the plans of each task, on the GPU of the process that runs the benchmark.

Matrix, operands and reference lie on that GPU already, so a candidate costs loading, a quick check and a few replays.
Packages are compiled in worker processes, the first ones of all tasks of a matrix ahead of time, and once for all matrices:
a package depends on the plan and the dense columns alone.  While a compiler is waited for, the GPU does baselines.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from benchmarks import plain
from benchmarks.bounds import Rates
from benchmarks.prepare import Kernel, Prepared, Task, kernel_file
from sparseditto.agent.features import Features
from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.keys import WARM, TaskKey
from sparseditto.agent.memory.trial import Measurement, Trial, pooled
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Space
from sparseditto.agent.tuner import DUPLICATE, HOPELESS, OK, Answer, Budget, Found, Request, search
from sparseditto.compiler.compiling import CompileJob, CompileTask
from sparseditto.compiler.crew import COMPILER, ONE_THREAD
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.problem import Problem
from sparseditto.compiler.task_keys import environment, gpu_of, plugin_files, task_key
from sparseditto.compiler.tuning import package_identity
from sparseditto.compiler.workers import Done, Job, Pool, gather
from sparseditto.dialects.errors import PlanError
from sparseditto.passes.base import Bottleneck, Form, Pass
from sparseditto.passes.plan import Plan

COMPILE_LIMIT_S = 20.0
BATCH = 8  # candidates of one generation, at most
ROUNDS = 6  # for those that may be the best; the final timing, beside the baselines, has rounds of its own
SPARE = 8  # plans that are compiled ahead beyond those that the budget measures first: about half are refused
SORTED_NS = 60.0  # an entry, to sort a matrix into another format …
SLICED_NS = 25.0  # … or to store its rows side by side …
ORDERED_NS = 20.0  # … or to put rows or columns in another order …
GRAPH_NS = 500.0  # … that the graph of the matrix gives …
PARTED_NS = 20.0  # … or to take two parts …
PACK_S = 3.0  # … and the most that a candidate may take for it
STEP_NS = 30.0  # a multiply-add of a lane that walks a long row alone …
WALK_S = 0.5  # … and the most that a candidate may take for that
UNCACHED = 128 << 20  # bytes that no cache holds: only then the compulsory bound holds


@dataclass(frozen=True)
class Sample:
    """What measuring a candidate gave: "ok" with microseconds, "wrong", or the code of an error; seconds by part."""

    outcome: str
    samples_us: tuple[float, ...] = ()
    check: dict[str, Any] | None = None
    why: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


class Bench(Protocol):
    """What candidates of one task are measured on."""

    def candidate(self, kernel: Kernel, rounds: int, cutoff_us: float | None) -> Sample:
        """Load and check it the first time; time it, but not well when it is slower than `cutoff_us`."""

    def meanwhile(self) -> bool:
        """Do a little of the rest of the task; False when nothing is left."""


class Every(Collection[str]):
    """All names, of baselines for example that are not to be run."""

    def __contains__(self, _: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Compilers:
    """Processes that compile ahead.  What they made is kept by kernel, sizes and plan, for all matrices."""

    def __init__(self, workers: int) -> None:
        self._pool = Pool(COMPILER, workers, environment=ONE_THREAD)
        self._asked: set[Hashable] = set()
        self.known: dict[Hashable, Done] = {}

    def ask(self, task: CompileTask, plans: Sequence[Plan], first: bool = False) -> None:
        """Have plans compiled that were not asked for yet; `first` before all that were."""
        for plan in reversed(plans) if first else plans:
            key = self.key(task, plan)
            if key not in self._asked:
                self._asked.add(key)
                self._pool.submit(Job(key, "compile", CompileJob(task, plan.to_json()), COMPILE_LIMIT_S), first)

    def put(self, task: CompileTask, plan: Plan, kernel: Kernel) -> None:
        """Keep what was compiled elsewhere."""
        key = self.key(task, plan)
        if key not in self._asked:
            self._asked.add(key)
            self.known[key] = Done(key, OK, (kernel.package, kernel.seconds.get("compile", 0.0)))

    def collect(self, timeout_s: float) -> None:
        """Take what is finished; wait for something at most `timeout_s`."""
        for _, done in gather([self._pool], timeout_s):
            self.known[done.key] = done

    @staticmethod
    def key(task: CompileTask, plan: Plan) -> Hashable:
        return (task.filename, tuple(sorted(task.sizes.items())), task.chip, plan.digest())

    def close(self) -> None:
        self._pool.close()


@dataclass(frozen=True)
class Subject:
    """The matrix (CSR) whose tasks are tuned, and what results say of it; `folder` is for kernels of other types."""

    case: str
    dtype: str
    folder: Path
    matrix: Any
    described: Mapping[str, Any]


class Tuner:
    """Finds the best plan of one task after another.

    `database` keeps what is measured, on the GPU that `gpu` describes (empty: under emulation), with `caches` "warm" or "cold";
    `rates` are those of the GPU (None: the bound is not known);
    `known` are plans of earlier results by (case, op, K), the best first; with `csr` all plans read CSR as it is.
    """

    def __init__(
        self,
        budget: Budget,
        workers: int,
        chip: str,
        database: Path | None = None,
        gpu: Mapping[str, Any] | None = None,
        caches: str = WARM,
        rates: Rates | None = None,
        known: Mapping[tuple[str, str, int], Sequence[str]] | None = None,
        csr: bool = False,
    ) -> None:
        self.budget, self.chip, self.rates, self.known = budget, chip, rates, known or {}
        self.gpu, self.caches, self.csr = dict(gpu or {}), caches, csr
        self.database = Database(database)
        self.compilers = Compilers(workers)

    def __enter__(self) -> Tuner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.compilers.close()
        self.database.close()

    def compile_ahead(self, subject: Subject, tasks: Sequence[Prepared]) -> None:
        """Have the first candidates of all tasks of a matrix compiled, the first task's first."""
        for prepared in tasks:
            if prepared.kernel is not None:
                one = Search(self, subject, prepared)
                self.compilers.put(one.task, one.first[0], prepared.kernel)
                self.compilers.ask(one.task, one.first[: one.share() + SPARE])

    def tune(self, subject: Subject, prepared: Prepared, bench: Bench, skip: Collection[str] = ()) -> Tuned:
        """Search, on what `bench` measures.  `skip` are the digests of plans that may not be run."""
        return Search(self, subject, prepared).run(bench, skip)

    def recall(self, subject: Subject, prepared: Prepared) -> Plan | None:
        """The best plan that the database knows of a task."""
        best = self.database.best(Search(self, subject, prepared).begin())
        return best.plan if best is not None else None


@dataclass(frozen=True)
class Tuned:
    """The best kernel (None: none was right), whether the search was interrupted, and what a row says of it."""

    kernel: Kernel | None
    interrupted: bool
    about: dict[str, Any]


class Search:
    """The search of one task."""

    def __init__(self, tuner: Tuner, subject: Subject, prepared: Prepared) -> None:
        assert prepared.kernel is not None
        assert prepared.context is not None
        self.tuner, self.subject, self.prepared = tuner, subject, prepared
        self.kernel, self.context = prepared.kernel, prepared.context
        path = kernel_file(prepared.task.op, subject.dtype, subject.folder)
        sizes = {int(name[1:]): n for name, n in self.kernel.package.sizes.items()}
        self.task = CompileTask(path.read_text(), path.name, None, sizes, tuner.chip, plugin_files())
        self.notes: list[str] = []
        self.seconds: dict[str, float] = {}
        self.measurements: dict[str, list[Measurement]] = {}
        self.trials: dict[str, Trial] = {}
        self.identities: dict[str, str] = {}
        self.skip: Collection[str] = ()
        self.base = Plan.from_json(self.kernel.package.plan)
        others = {plan.digest(): plan for plan in (*self._recorded(), *prepared.first)}
        self.first = [self.base, *(p for d, p in others.items() if d != self.kernel.digest and not self.refusal(p))]

    def share(self) -> int:
        """How many of the first plans are measured, at most, before their neighbours are."""
        return len(self.first) if self.tuner.budget.candidates is None else -(-self.tuner.budget.candidates // 2)

    def _recorded(self) -> list[Plan]:
        """The plans that earlier results hold of this task and that can be read still."""
        plans = []
        task = self.prepared.task
        for text in self.tuner.known.get((self.subject.case, task.op, task.k), ()):
            try:
                plans.append(Plan.parse(text, self.context.task.kernel))
            except PlanError as e:
                self.notes.append(f"not used, {e}: {text}")
        return plans

    def run(self, bench: Bench, skip: Collection[str]) -> Tuned:
        start = time.perf_counter()
        self.bench, self.skip = bench, skip
        ranking = Ranking(Space(self.context, plain.passes() if self.tuner.csr else None))
        seen = self._begin()
        try:
            found = search(
                self.first,
                ranking.moves,
                self._evaluate,
                self.tuner.budget,
                self._goal_us(),
                seen=seen,
                batch=BATCH,
                most_rounds=ROUNDS,
            )
        finally:
            self.seconds["total"] = time.perf_counter() - start
        return Tuned(self._best(found), found.stopped == "interrupted", self._about(found))

    def _goal_us(self) -> float | None:
        """Near the bound the search ends, unless caches may hold the task."""
        traffic, rates = self.prepared.traffic, self.tuner.rates
        if traffic is None or rates is None or traffic.compulsory <= UNCACHED:
            return None
        return traffic.times_us(rates)["compulsory"]

    def begin(self) -> int:
        """The number of the task in the database, where it is put if it is new."""
        features = self.context.features
        return self.tuner.database.begin(self._key_of_task(), features.to_json() if features else None, self._described())

    def _begin(self) -> dict[str, Answer]:
        """What is kept of this very task, by plan digest."""
        self.number = self.begin()
        for record in self.tuner.database.records(self.number):
            try:
                plan = record.plan.read()
            except PlanError as e:
                self.notes.append(f"not used, {e}: {record.plan.text()}")
                continue
            trial = self.trials[plan.digest()] = pooled(plan, record.measurements)
            self.measurements[plan.digest()] = list(record.measurements)
            if trial.identity:
                self.identities.setdefault(trial.identity, plan.digest())
        return {d: Answer(t.plan, t.outcome, t.samples_us, t.identity, t.why) for d, t in self.trials.items()}

    def _key_of_task(self) -> TaskKey:
        package, csr = self.kernel.package, self.subject.matrix
        row, column = package.computation.sparse.dims
        sizes = {int(name[1:]): n for name, n in package.sizes.items()} | {row: csr.shape[0], column: csr.shape[1]}
        problem = Problem(package.computation, Matrix(csr), {}, sizes)
        return task_key(problem, self.tuner.chip, gpu_of(self.tuner.gpu), self.tuner.caches)

    def _described(self) -> dict[str, Any]:
        """What `choices` reads of a task."""
        task, subject = self.prepared.task, self.subject
        named = {"case": subject.case, "op": task.op, "K": task.k, "dtype": subject.dtype, "default": self.kernel.digest}
        return named | {name: subject.described[name] for name in ("family", "source") if name in subject.described}

    def _best(self, found: Found) -> Kernel | None:
        """The kernel of the fastest."""
        for tried in found.ranking():
            done = self._compiled(tried.plan)
            if done.outcome == OK:
                package, seconds = done.value
                return Kernel(package, tried.plan.text(), tried.plan.digest(), {"compile": seconds})
        return None

    def _about(self, found: Found) -> dict[str, Any]:
        """What the row says of the search; `seconds` are of wall time without what was done meanwhile."""
        ranking = found.ranking()
        parts = {name: round(spent, 6) for name, spent in self.seconds.items()}
        return {
            "seconds": parts["total"] - parts.get("meanwhile", 0.0),
            "stopped": found.stopped,
            "trials": len(found.trials),
            "measured": len(ranking),
            "wrong": sum(t.outcome == "wrong" for t in found.trials),
            "best_us": ranking[0].us if ranking else None,
            "parts": parts,
            **({"notes": self.notes} if self.notes else {}),
        }

    # --- Evaluating -----------------------------------------------------------------------------------

    def _evaluate(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Measure what is compiled; while nothing is, do what else there is to do."""
        waiting = {request.plan.digest(): request for request in requests}
        for digest, request in list(waiting.items()):
            why = self.refusal(request.plan)
            if why:
                del waiting[digest]
                yield self._answer(request.plan, HOPELESS, why=why)
        self.tuner.compilers.ask(self.task, [request.plan for request in waiting.values()], first=True)
        while waiting:
            self.tuner.compilers.collect(0.0)
            ready = [request for request in waiting.values() if self._key(request.plan) in self.tuner.compilers.known]
            if not ready:
                self._idle()
            for request in ready:
                del waiting[request.plan.digest()]
                yield self._measured(request, self._compiled(request.plan))

    def _key(self, plan: Plan) -> Hashable:
        return Compilers.key(self.task, plan)

    def _idle(self) -> None:
        with self._part("meanwhile"):
            busy = self.bench.meanwhile()
        if not busy:
            with self._part("wait"):
                self.tuner.compilers.collect(1.0)

    def _compiled(self, plan: Plan) -> Done:
        """What came of compiling; waits for it."""
        self.tuner.compilers.ask(self.task, [plan], first=True)
        while self._key(plan) not in self.tuner.compilers.known:
            self._idle()
        return self.tuner.compilers.known[self._key(plan)]

    def _part(self, name: str) -> Part:
        return Part(self.seconds, name)

    def refusal(self, plan: Plan) -> str:
        """Why a plan is not worth a run, or nothing."""
        if plan.digest() in self.skip:
            return "it brought the GPU down"
        if plan != self.base and (why := worse_by_design(plan, self.base)):
            return why
        features = self.context.features
        if features is None:
            return ""
        if self.tuner.csr and plain.as_csr(plan, features.entries) != plan:
            return "it does not read CSR as it is"
        pack_s = pack_seconds(plan, features)
        if pack_s > PACK_S:
            return f"storing {features.entries} entries in another order takes about {pack_s:.0f} s"
        walk_s = walk_seconds(plan, features, self.prepared.task)
        return f"one lane walks the longest row for about {walk_s:.1f} s" if walk_s > WALK_S else ""

    def _measured(self, request: Request, done: Done) -> Answer:
        digest = request.plan.digest()
        if done.outcome != OK:
            return self._answer(request.plan, done.outcome, why=done.why, seconds={"compile": done.seconds})
        package, compile_s = done.value
        identity = package_identity(package)
        first = self.identities.setdefault(identity, digest)
        if first != digest:
            why, made = f"gives the same kernel as {first}", {"compile": compile_s}
            return self._answer(request.plan, DUPLICATE, why=why, seconds=made, identity=identity)
        kernel = Kernel(package, request.plan.text(), digest, {"compile": compile_s})
        with self._part("measure"):
            sample = self.bench.candidate(kernel, request.rounds, request.cutoff_us)
        spent = {} if digest in self.trials else {"compile": compile_s}
        spent |= {part: round(seconds, 6) for part, seconds in sample.seconds.items()}
        for part, seconds in spent.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        return self._answer(
            request.plan,
            sample.outcome,
            samples_us=sample.samples_us if sample.outcome == OK else (),
            why=sample.why,
            identity=identity,
            check=sample.check,
            seconds=spent,
        )

    def _answer(self, plan: Plan, outcome: str, **values: Any) -> Answer:
        """Keep a measurement; the search gets the samples that are new."""
        measurement = Measurement(outcome, versions=environment(self.tuner.gpu), **values)
        known = self.measurements.setdefault(plan.digest(), [])
        known.append(measurement)
        self.trials[plan.digest()] = pooled(plan, known)
        self.tuner.database.add(self.number, plan, measurement)
        return Answer(plan, outcome, measurement.samples_us, measurement.identity, measurement.why)


def best_plans(rows: Sequence[Mapping[str, Any]], dtype: str, most: int = 1) -> dict[tuple[str, str, int], tuple[str, ...]]:
    """The right plans that results hold of each task, the fastest first, `most` at most."""
    found: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row.get("kind") == "task" and row.get("dtype") == dtype:
            for entry in (row, row.get("default_plan") or {}):
                if entry.get("outcome") == "right" and entry.get("us") and entry.get("plan"):
                    times = found[row["case"], row["op"], row["K"]]
                    times[entry["plan"]] = min(times.get(entry["plan"], math.inf), entry["us"])
    return {key: tuple(sorted(times, key=lambda plan: times[plan])[:most]) for key, times in found.items()}


def worse_by_design(plan: Plan, base: Plan) -> str:
    """Why a plan can only be slower than it would be with what `base` has, or nothing."""
    options, at_base = ({step.name: step.options() for step in p.steps} for p in (plan, base))
    if "accumulate-registers" in at_base and "accumulate-registers" not in options:
        return "sums are kept in memory"
    mine, needed = (found.get("set-encoding", {}) for found in (options, at_base))
    wider = [key for key in ("positions", "coordinates") if int(mine.get(key, 0)) > int(needed.get(key, 64))]
    return f"{' and '.join(wider)} are wider than they need to be" if wider else ""


def pack_seconds(plan: Plan, features: Features) -> float:
    """About what it takes to store the entries in another order than CSR has them; 0 where the plan does not."""
    sorted_anew = any(step.options().get("format", "csr") != "csr" for step in plan.steps)
    nanoseconds = sum(map(_pack_ns, plan.steps)) + (SORTED_NS if sorted_anew else 0.0)
    return features.entries * nanoseconds * 1e-9


def _pack_ns(step: Pass) -> float:
    """What the recipe of a step takes an entry."""
    if step.name == "reorder":
        return GRAPH_NS if step.options()["rows"] == "rcm" else ORDERED_NS
    if step.name == "partition":
        return PARTED_NS
    return SLICED_NS if Form.SLICES in step.provides else 0.0


def walk_seconds(plan: Plan, features: Features, task: Task) -> float:
    """How long one lane is busy with the longest row, where the plan does nothing about such rows."""
    if any(Bottleneck.IMBALANCE in step.relieves for step in plan.steps):
        return 0.0
    lanes = max((int(step.options().get("lanes", 1)) for step in plan.steps), default=1)
    return features.max_row * max(task.k, 1) / lanes * STEP_NS * 1e-9


class Part:
    """Adds the seconds of a `with` block to a dictionary."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + time.perf_counter() - self._start
