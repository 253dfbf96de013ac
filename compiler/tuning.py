"""Tuning: find the fastest plan for one kernel, one matrix and one GPU by compiling and measuring candidates.

with TuningSession(device="cuda") as session:
    result = session.tune("spmm.mlir", matrix, {"K": 64}, budget=Budget(candidates=64))
result.package.save(Path("spmm.ditto"))

What to measure is `agent.tuner`'s decision; here its candidates are compiled in many processes and measured in one.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.agent.architecture.choosing import at_hand, place_of
from sparseditto.agent.features import Features
from sparseditto.agent.memory.composites import keep, know
from sparseditto.agent.memory.database import Database
from sparseditto.agent.memory.keys import TaskKey
from sparseditto.agent.memory.near import nearest
from sparseditto.agent.memory.trial import WRONG, Measurement, Trial, pooled
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Context, Space
from sparseditto.agent.tuner import DUPLICATE, FREE, OK, Answer, Budget, Request, search
from sparseditto.compiler.compiling import CompileJob, CompileTask
from sparseditto.compiler.crew import Crew
from sparseditto.compiler.measuring import Measured, MeasureJob, MeasureTask
from sparseditto.compiler.problem import Problem, bind
from sparseditto.compiler.task_keys import environment, gpu_of, matrix_digests, plugin_files, task_key
from sparseditto.compiler.workers import Done, Job, Pool, Shared, gather
from sparseditto.dialects.errors import CheckFailed, InputError, NotApplicable, PlanError, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.composite import Composite, register
from sparseditto.passes.plan import Plan

if TYPE_CHECKING:
    from sparseditto.compiler.matrix import Matrix
    from sparseditto.compiler.package import KernelPackage

_UNCACHED = 128 << 20  # bytes that no cache holds
_NEAR_TASKS = 3  # whose best plans a search begins with
_BEGIN_LIMIT_S = 60.0  # until a measurement comes to its first stage, which has a limit of its own


@dataclass(frozen=True)
class Progress:
    """How far a tuning is.  `fraction` is the bound over the best time, None where either is not known."""

    best: Trial | None
    measured: int
    failed: int
    refused: int
    elapsed_s: float
    left_s: float | None
    left_candidates: int | None
    fraction: float | None


@dataclass(frozen=True)
class TuningResult:
    """The best candidate with its package, every candidate, seconds by part, and the bound that the search knew.

    `seconds` are those of the parts, `total`, and `first`: until the first candidate was measured and right, where one was;
    they count from `began`, which is in seconds since 1970.
    `stopped` says why it ended, in the words of `agent.tuner.Found`; `notes` what the database had to say.
    """

    best: Trial | None
    trials: tuple[Trial, ...]
    package: KernelPackage | None
    seconds: dict[str, float]
    bound_us: float | None
    began: float
    stopped: str = ""
    features: Features | None = None
    notes: tuple[str, ...] = ()

    @property
    def interrupted(self) -> bool:
        return self.stopped == "interrupted"

    def to_json(self) -> dict[str, Any]:
        return {
            "best": self.best.to_json() if self.best else None,
            "stopped": self.stopped,
            "bound_us": self.bound_us,
            "began": self.began,
            "seconds": self.seconds,
            "features": self.features.to_json() if self.features else None,
            "notes": list(self.notes),
            "trials": [trial.to_json() for trial in self.trials],
        }


def tune(
    kernel_path: str | Path,
    matrix_or_bindings: Any,
    sizes: Mapping[str, int] | None = None,
    *,
    budget: Budget,
    chip: str = "sm_90",
    device: str = "cuda",
    plans: Sequence[Plan] | None = None,
    entry: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    database: Path | None = None,
    workers: int | None = None,
) -> TuningResult:
    """Tune one kernel: `TuningSession.tune` in a session of its own."""
    with TuningSession(device=device, workers=workers) as session:
        return session.tune(
            kernel_path,
            matrix_or_bindings,
            sizes,
            budget=budget,
            chip=chip,
            plans=plans,
            entry=entry,
            progress=progress,
            database=database,
        )


class TuningSession:
    """Worker processes that live over many tasks; use it in a `with` statement.

    They are those of `crew`, or of a new one (`device`, `workers` and `ordinal` as there).  A compilation may take
    `compile_limit_s`, one run of a kernel `run_limit_s`.  Raises `InputError` for a device that there is not.
    """

    def __init__(
        self,
        *,
        device: str = "cuda",
        workers: int | None = None,
        ordinal: int = 0,
        compile_limit_s: float = 20.0,
        run_limit_s: float = 10.0,
        crew: Crew | None = None,
    ) -> None:
        self.crew = crew or Crew(device, workers, ordinal)
        self.compile_limit_s, self.run_limit_s = compile_limit_s, run_limit_s
        self._matrix: tuple[str, Shared] | None = None
        self._bandwidth: float | None = None

    def __enter__(self) -> TuningSession:
        self.crew.pools()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all workers.  The session may be used again; new ones are then started."""
        self.crew.close()
        if self._matrix is not None:
            self._matrix[1].close()
            self._matrix = None

    def tune(
        self,
        kernel_path: str | Path,
        matrix_or_bindings: Any,
        sizes: Mapping[str, int] | None = None,
        *,
        budget: Budget,
        chip: str = "sm_90",
        plans: Sequence[Plan] | None = None,
        entry: str | None = None,
        progress: Callable[[Progress], None] | None = None,
        database: Path | None = None,
        bound_us: float | None = None,
        full_check: bool = True,
        seed: int = 0,
        further: Further | None = None,
    ) -> TuningResult:
        """Find the fastest plan.

        `matrix_or_bindings` is the sparse operand (a path or a SciPy matrix), or bindings as for `problem.bind`.  `plans`
        are all that is measured; without them the plans come from the passes that are registered.  `bound_us` is a time
        that no plan can beat (default, on a GPU: the bytes that must move over its copy bandwidth); near it the search ends,
        unless caches may hold the task, which then may be faster.
        Every candidate is kept in `database` (docs/database.md) as soon as it is measured, failed ones too; those that are
        there already, for the same task, versions and GPU, are not measured again and count as measured, and the best of them
        may win.  The best plans of the nearest tasks there are the first candidates, its composite passes are known from now
        on.  The best candidate's whole output is checked unless `full_check` is false.  `further` goes on from where the search
        has ended, with seconds of its own; the best of all that was measured wins.

        Ctrl-C ends the search and gives what was found.  Raises `InputError`, `Unsupported` and `DeviceError`.
        """
        if budget.candidates is None and budget.seconds is None:
            raise InputError("a budget of candidates or seconds is needed")
        start = time.monotonic()
        task = _Task.read(self, kernel_path, matrix_or_bindings, sizes, chip, entry, seed)
        with Database(database) as kept:
            notes = know(kept)
            return _Run(self, task, budget, kept, progress, bound_us, start, notes).run(plans, full_check, further)

    # --- What a run needs -----------------------------------------------------------------------------

    def _begin(self, task: _Task) -> None:
        """Hand the task to the workers."""
        _, device = self.crew.pools()
        if self._matrix is None or self._matrix[0] != task.matrix_digest:
            if self._matrix is not None:
                self._matrix[1].close()
            self._matrix = task.matrix_digest, Shared(task.matrix)
        measured = Shared(MeasureTask(replace(task.problem, matrix=None), task.matrix_digest, task.seed))
        task.shared.append(measured)
        device.setup([self._matrix[1], measured])

    def _versions(self) -> dict[str, Any]:
        """GPU and driver; waits until the measuring worker is up."""
        _, device = self.crew.pools()
        device.start()
        while device.hello is None:
            for _ in gather([device]):
                pass
        return dict(device.hello)

    def _copy_bandwidth(self) -> float | None:
        """Bytes a second, measured once a session; None under emulation."""
        if self.crew.device == "cuda" and self._bandwidth is None:
            self._bandwidth = self._one(1, Job("bandwidth", "bandwidth", None, 60.0)).value
        return self._bandwidth

    def _one(self, pool: int, job: Job) -> Done:
        """Do one job and wait for it."""
        chosen = self.crew.pools()[pool]
        chosen.submit(job)
        while True:
            for _, done in gather([chosen]):
                if done.key == job.key:
                    return done


# --- The task -------------------------------------------------------------------------------------------


@dataclass
class _Task:
    """One kernel with one matrix: what workers get, and what the planner needs."""

    text: str
    filename: str
    entry: str | None
    problem: Problem
    matrix: Matrix
    target: Target
    context: Context
    matrix_digest: str
    seed: int
    shared: list[Shared] = field(default_factory=list)

    @staticmethod
    def read(
        session: TuningSession,
        path: str | Path,
        bound: Any,
        sizes: Mapping[str, int] | None,
        chip: str,
        entry: str | None,
        seed: int,
    ) -> _Task:
        from sparseditto.compiler.driver import planning_context
        from sparseditto.compiler.kernel import read_kernel, read_text
        from sparseditto.dialects.binding import context

        (target, meant, _), text = place_of(chip), read_text(Path(path))
        with context():
            computation = read_kernel(text, str(path), entry).computation
        bindings = bound if isinstance(bound, Mapping) else {computation.sparse.name: bound}
        problem = bind(computation, bindings, sizes)
        for scalar in computation.scalars:
            problem.scalar(scalar)  # refuses first: no candidate could run
        for operand in computation.operands:
            problem.shape(operand)
        if problem.matrix is None:
            raise InputError(f"bind a matrix to '{computation.sparse.name}' (--bind {computation.sparse.name}=matrix.mtx)")
        context_ = planning_context(problem, target, meant)
        return _Task(text, str(path), entry, problem, problem.matrix, target, context_, matrix_digests(problem.matrix)[1], seed)

    def for_compilers(self) -> CompileTask:
        sizes = dict(self.problem.sizes)
        return CompileTask(self.text, self.filename, self.entry, sizes, self.target.chip, plugin_files())

    def close(self) -> None:
        for shared in self.shared:
            shared.close()

    def key(self, versions: Mapping[str, Any]) -> TaskKey:
        """What measurements of this task depend on, on the device of these versions."""
        return task_key(self.problem, self.target.chip, gpu_of(versions))


def compulsory_bytes(problem: Problem) -> int:
    """Bytes that must move at least once: every entry, the dense rows and columns that entries touch, and the output.

    Coordinates count 2 bytes where that is enough, else 4.
    """
    assert problem.matrix is not None
    computation, csr = problem.computation, problem.matrix.csr
    sparse, entries = computation.sparse, int(csr.nnz)
    coordinate = 2 if max(csr.shape[1], 1) <= 1 << 16 else 4
    total = entries * (np.dtype(sparse.dtype).itemsize + coordinate) + 4 * min(csr.shape[0] + 1, 2 * entries + 1)
    for operand in computation.operands:
        if not operand.sparse:
            extents = [min(problem.sizes[d], entries) if d in sparse.dims else problem.sizes[d] for d in operand.dims]
            if operand is computation.output:
                extents = list(problem.shape(operand))
            times = 2 if operand is computation.output and computation.initial is None else 1
            total += times * math.prod(extents) * np.dtype(operand.dtype).itemsize
    return total


# --- One run --------------------------------------------------------------------------------------------


class _Run:
    """The tuning of one task."""

    def __init__(
        self,
        session: TuningSession,
        task: _Task,
        budget: Budget,
        database: Database,
        progress: Callable[[Progress], None] | None,
        bound_us: float | None,
        start: float,
        notes: Sequence[str],
    ) -> None:
        self.session, self.task, self.budget, self.database, self.progress = session, task, budget, database, progress
        self.start, self.bound_us = start, bound_us
        self.began = time.time() - (time.monotonic() - start)
        self.seconds = {"read": time.monotonic() - start}
        self.notes = list(notes)
        self.measurements: dict[str, list[Measurement]] = {}
        self.trials: dict[str, Trial] = {}
        self.packages: dict[str, KernelPackage] = {}
        self.identities: dict[str, str] = {}
        self.compiled: dict[str, float] = {}
        self.fresh: list[str] = []

    def run(self, plans: Sequence[Plan] | None, full_check: bool, further: Further | None) -> TuningResult:
        try:
            return self._run(plans, full_check, further)
        finally:
            self.task.close()

    def _run(self, plans: Sequence[Plan] | None, full_check: bool, further: Further | None) -> TuningResult:
        with self._part("workers"):
            self.session._begin(self.task)
            seen = self._recorded(self.session._versions())
            goal_us = self._goal_us()
        here = at_hand(self.key.gpu.name) or self.task.context.architecture
        ranking = Ranking(Space(replace(self.task.context, architecture=here)))
        known = list(self.trials) if plans is None else []
        with self._part("search"):
            found = search(
                plans if plans is not None else [*self._near(), *ranking.seeds()],
                ranking.moves if plans is None else lambda plan: (),
                self.evaluate,
                self._left(),
                goal_us,
                seen=seen,
                batch=max(4, self.session.crew.workers),
                seed_share=0.5 if plans is None else 1.0,
            )
        stopped = found.stopped
        if further is not None and stopped != "interrupted":
            with self._part("further"):
                stopped = self._go_on(further, ranking.space, stopped)
        digests = list(dict.fromkeys([*(t.plan.digest() for t in found.trials), *self.fresh, *known]))
        if stopped == "interrupted":
            self.session.close()  # a message may have been cut in two
        try:
            best = self._winner(digests, full_check and stopped != "interrupted")
        except KeyboardInterrupt:
            self.session.close()
            stopped, best = "interrupted", next((d for d in self._ranking(digests) if d in self.packages), None)
        self.seconds["total"] = time.monotonic() - self.start
        return TuningResult(
            best=self.trials[best] if best else None,
            trials=tuple(self.trials[d] for d in digests if d in self.trials),
            package=self._package(best) if best else None,
            seconds=self.seconds,
            bound_us=self.bound_us,
            began=self.began,
            stopped=stopped,
            features=self.task.context.features,
            notes=tuple(self.notes),
        )

    def _go_on(self, further: Further, space: Space, stopped: str) -> str:
        """Let `further` measure what it likes; why the tuning stopped."""
        try:
            further(Bench(self, space))
        except KeyboardInterrupt:
            return "interrupted"
        return stopped

    def _package(self, best: str) -> KernelPackage | None:
        """The package of the best plan, which says what the plan's time was."""
        trial, package = self.trials[best], self.packages.get(best)
        if package is None:
            return None
        numbers = {"us": trial.us, "samples": len(trial.samples_us), "gpu": self.key.gpu.name}
        return replace(package, provenance={"plan": "tuning", **numbers})

    def _goal_us(self) -> float | None:
        """The bound, where the search may end near it: what the caches hold is read faster than any copy."""
        moved = compulsory_bytes(self.task.problem)
        if self.bound_us is None:
            rate = self.session._copy_bandwidth()
            self.bound_us = moved / rate * 1e6 if rate else None
        return self.bound_us if moved > _UNCACHED else None

    def _ranking(self, digests: Sequence[str]) -> list[str]:
        """Those that were measured, the fastest first; of equal ones the first that was, as in the database."""
        wanted = set(digests)
        return sorted((d for d, t in self.trials.items() if d in wanted and t.ok), key=lambda d: self.trials[d].us or 0.0)

    def _part(self, name: str) -> _Part:
        return _Part(self.seconds, name)

    def _left_s(self) -> float:
        """Seconds count from the call."""
        return math.inf if self.budget.seconds is None else self.start + self.budget.seconds - time.monotonic()

    def _left(self) -> Budget:
        """What is left of the budget."""
        return self.budget if self.budget.seconds is None else replace(self.budget, seconds=max(0.0, self._left_s()))

    # --- The database ---------------------------------------------------------------------------------

    def _recorded(self, versions: Mapping[str, Any]) -> dict[str, Answer]:
        """What is kept of this very task, by plan digest."""
        features = self.task.context.features
        self.versions, self.key = environment(versions), self.task.key(versions)
        self.number = self.database.begin(self.key, features.to_json() if features else None)
        unreadable = 0
        for record in self.database.records(self.number):
            try:
                plan = record.plan.read()
            except PlanError:
                unreadable += 1
                continue
            trial = self.trials[plan.digest()] = pooled(plan, record.measurements)
            self.measurements[plan.digest()] = list(record.measurements)
            if trial.identity:
                self.identities.setdefault(trial.identity, plan.digest())
        if unreadable:
            self.notes.append(f"{unreadable} plans of the database name passes that there are no longer")
        return {d: Answer(t.plan, t.outcome, t.samples_us, t.identity, t.why) for d, t in self.trials.items()}

    def _near(self) -> list[Plan]:
        """The best plans of the nearest tasks, as plans of this kernel."""
        features = self.task.context.features
        found = nearest(self.database, self.key, features.to_json(), _NEAR_TASKS) if features else []
        plans = {plan.digest(): plan for plan in (replace(n.best.plan, kernel=self.key.operator.kernel) for n in found)}
        if plans:
            self.notes.append(
                f"the search begins with {len(plans)} plans of the {len(found)} nearest tasks in the database "
                f"(distance {found[0].distance:.2f} to {found[-1].distance:.2f})"
            )
        return list(plans.values())

    # --- Evaluating -----------------------------------------------------------------------------------

    def evaluate(self, requests: Sequence[Request]) -> Iterator[Answer]:
        return self.evaluate_until(requests, self._left_s)

    def evaluate_until(self, requests: Sequence[Request], left_s: Callable[[], float]) -> Iterator[Answer]:
        """Compile what is not compiled, in parallel, and measure one after the other, while seconds are left."""
        pools = compilers, device = self.session.crew.pools()
        open_ = {request.plan.digest(): request for request in requests}
        try:
            for digest, request in open_.items():
                if digest in self.packages:
                    self._submit(device, digest, request)
                else:
                    compilers.submit(self._compilation(digest, request.plan))
            while open_ and (left := left_s()) > 0:
                for pool, done in gather(pools, left):
                    digest = str(done.key)
                    if digest not in open_:
                        continue
                    measurement = self._compiled(done, digest) if pool is compilers else self._measured(done, digest)
                    if measurement is None:
                        self._submit(device, digest, open_[digest])
                        continue
                    yield self._answer(open_.pop(digest).plan, measurement)
        finally:
            compilers.cancel()
            device.cancel()

    def _compilation(self, key: Hashable, plan: Plan) -> Job:
        return Job(key, "compile", CompileJob(self.task.for_compilers(), plan.to_json()), self.session.compile_limit_s)

    def _submit(self, device: Pool, digest: str, request: Request) -> None:
        known = self.trials.get(digest)
        job = MeasureJob(
            package=self.packages[digest],
            identity=package_identity(self.packages[digest]),
            rounds=request.rounds,
            budget_s=max(0.06, 0.02 * request.rounds),
            limit_s=self.session.run_limit_s,
            check=known is None or known.check is None,
            cutoff_us=request.cutoff_us,
        )
        device.submit(Job(digest, "measure", job, _BEGIN_LIMIT_S))

    def _compiled(self, done: Done, digest: str) -> Measurement | None:
        """What is known after compilation; None when it has to be measured."""
        if done.outcome != OK:
            return self._measurement(done.outcome, why=done.why, seconds={"compile": done.seconds})
        package, seconds = done.value
        self.compiled[digest] = seconds
        identity = package_identity(package)
        first = self.identities.setdefault(identity, digest)
        if first != digest:
            why = f"gives the same kernel as {first}"
            return self._measurement(DUPLICATE, why=why, seconds={"compile": seconds}, identity=identity)
        self.packages[digest] = package
        return None

    def _measured(self, done: Done, digest: str) -> Measurement:
        identity = package_identity(self.packages[digest])
        seconds = {"compile": self.compiled.pop(digest, 0.0), "measure": done.seconds}
        if done.outcome != OK:
            return self._measurement(done.outcome, why=done.why, seconds=seconds, identity=identity)
        measured: Measured = done.value
        wrong = measured.check is not None and not measured.check["passed"]
        return self._measurement(
            WRONG if wrong else OK,
            samples_us=() if wrong else measured.samples_us,
            why=_wrong(measured.check) if wrong else "",
            identity=identity,
            check=measured.check,
            resources=measured.resources,
            seconds=seconds | measured.seconds,
        )

    def _measurement(self, outcome: str, **values: Any) -> Measurement:
        return Measurement(outcome, versions=self.versions, **values)

    def _answer(self, plan: Plan, measurement: Measurement) -> Answer:
        """Keep and report a measurement; the search gets the samples that are new."""
        self.fresh.append(plan.digest())
        if self._keep(plan, measurement).ok:
            self.seconds.setdefault("first", time.monotonic() - self.start)
        self._report()
        return Answer(plan, measurement.outcome, measurement.samples_us, measurement.identity, measurement.why)

    def _keep(self, plan: Plan, measurement: Measurement) -> Trial:
        known = self.measurements.setdefault(plan.digest(), [])
        known.append(measurement)
        self.database.add(self.number, plan, measurement)
        trial = self.trials[plan.digest()] = pooled(plan, known)
        return trial

    def _report(self) -> None:
        if self.progress is None:
            return
        trials = self.trials.values()
        best = min((t for t in trials if t.us is not None), key=lambda t: t.us or 0.0, default=None)
        measured = sum(t.outcome not in FREE for t in trials)
        candidates = self.budget.candidates
        self.progress(
            Progress(
                best=best,
                measured=measured,
                failed=sum(t.outcome not in FREE and not t.ok for t in trials),
                refused=len(trials) - measured,
                elapsed_s=time.monotonic() - self.start,
                left_s=None if self.budget.seconds is None else max(0.0, self._left_s()),
                left_candidates=None if candidates is None else max(0, candidates - measured),
                fraction=self.bound_us / best.us if self.bound_us and best and best.us else None,
            )
        )

    # --- The winner -----------------------------------------------------------------------------------

    def _winner(self, digests: Sequence[str], full_check: bool) -> str | None:
        """The fastest whose whole output is right; its package is made where only a record knew it."""
        with self._part("verify"):
            for digest in self._ranking(digests):
                if digest not in self.packages:
                    self._compile_again(digest)
                if digest in self.packages and (not full_check or self._verified(digest)):
                    return digest
        return None

    def _compile_again(self, digest: str) -> None:
        if not self.session.crew.started:
            self.session._begin(self.task)
        done = self.session._one(0, self._compilation(("again", digest), self.trials[digest].plan))
        if done.outcome == OK:
            self.packages[digest] = done.value[0]

    def _verified(self, digest: str) -> bool:
        trial = self.trials[digest]
        if trial.check is not None and not trial.check["sampled"]:
            return True
        package = self.packages[digest]
        job = MeasureJob(package, package_identity(package), 0, 0.0, self.session.run_limit_s)
        done = self.session._one(1, Job(("verify", digest), "verify", job, _BEGIN_LIMIT_S))
        if done.outcome == OK:
            outcome, why = (OK, "") if done.value["passed"] else (WRONG, _wrong(done.value))
            return self._keep(trial.plan, self._measurement(outcome, why=why, check=done.value)).ok
        return self._keep(trial.plan, self._measurement(done.outcome, why=done.why)).ok


class _Part:
    """Adds the seconds of a `with` block to a dictionary."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + time.monotonic() - self._start


@dataclass(frozen=True)
class Bench:
    """What goes on after a search has to choose and to measure with: the `agent.llm.Bench` of a run."""

    run: _Run
    space: Space

    @property
    def kernel(self) -> str:
        return self.run.task.text

    @property
    def bound_us(self) -> float | None:
        return self.run.bound_us

    @property
    def emulated(self) -> bool:
        return self.run.key.gpu.emulated

    def evaluate(self, requests: Sequence[Request], limit_s: float) -> Iterator[Answer]:
        end = time.monotonic() + limit_s
        return self.run.evaluate_until(requests, lambda: end - time.monotonic())

    def keep(self, composite: Composite) -> None:
        keep(self.run.database, composite)
        register(composite)

    def trials(self) -> list[Trial]:
        return list(self.run.trials.values())


Further = Callable[[Bench], None]
"""Measures more plans when the search has ended."""


def package_identity(package: KernelPackage) -> str:
    """Equal for packages that run the same code on the same data."""
    data = [asdict(b) for b in package.buffers], [asdict(launch) for launch in package.launches], package.sizes
    encoding = package.computation.sparse.encoding
    text = json.dumps([package.ptx, *data, encoding.text() if encoding else ""], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _wrong(check: dict[str, Any] | None) -> str:
    if check is None:
        return ""
    where = f", the first at {tuple(check['first_wrong'])}" if check.get("first_wrong") else ""
    return f"{check['wrong']} of {check['components']} components are wrong{where}"


def require_best(result: TuningResult) -> Trial:
    """The best trial.

    Raises `Unsupported` when nothing here compiles the kernel, `NotApplicable` when no plan that was asked for applies, and
    `CheckFailed` with the reasons when no candidate worked.
    """
    if result.best is not None:
        return result.best
    refused = (PlanError.code, NotApplicable.code)
    if result.trials and all(t.outcome in refused for t in result.trials):
        raise NotApplicable(result.trials[0].why)
    if result.trials and all(t.outcome == Unsupported.code for t in result.trials):
        raise Unsupported(result.trials[0].why)
    reasons = list(dict.fromkeys(f"{t.outcome}: {t.why}" for t in result.trials if t.outcome != DUPLICATE))[:3]
    raise CheckFailed(f"none of {len(result.trials)} candidates gave a right result ({'; '.join(reasons) or 'none was tried'})")


__all__ = [
    "Budget",
    "Progress",
    "Trial",
    "TuningResult",
    "TuningSession",
    "compulsory_bytes",
    "require_best",
    "tune",
]
