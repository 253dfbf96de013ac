"""What a task needs before a GPU is wanted: the matrix, the reference, the bounds' traffic and the compiled kernel.

Each case is prepared by a process of its own, many at a time, so that the GPU does not wait and a compiler that aborts
costs one case.  What is ready lies in a folder: the arrays of the matrix, and one pickle a task.
"""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import signal
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import plain
from benchmarks.bounds import Model, Rates, Traffic
from benchmarks.operands import Reference, reference
from benchmarks.suite import Case, matrix
from sparseditto.agent.features import analyse
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.api import compile_file
from sparseditto.compiler.driver import planning_context
from sparseditto.compiler.kernel import read_kernel_file
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.problem import bind
from sparseditto.dialects import binding
from sparseditto.dialects.errors import DittoError
from sparseditto.dialects.target import Target
from sparseditto.passes.plan import Plan

KERNELS = Path(__file__).resolve().parent / "kernels"
BIG = 20_000_000  # entries; building such a case takes seconds, so it is begun early
MOST_IN_WORK = 300_000_000  # entries of all cases that are being prepared at a time: they need some 40 bytes each
_PARTS = ("data", "indices", "indptr")


@dataclass(frozen=True)
class Task:
    """One product to measure: "spmv" (k 0) or "spmm"."""

    op: str
    k: int

    def __str__(self) -> str:
        return f"{self.op}-{self.k}" if self.k else self.op

    @property
    def sizes(self) -> dict[str, int]:
        return {"K": self.k} if self.k else {}


@dataclass(frozen=True)
class Options:
    """What holds for all cases of a run."""

    dtype: str = "float32"
    chip: str = "sm_90"
    plan: str | None = None
    cache: Path | None = None
    rates: Rates = field(default_factory=Rates)
    tuned: bool = False
    csr: bool = False  # plans read CSR as it is


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel with what led to it."""

    package: KernelPackage
    plan: str
    digest: str
    seconds: dict[str, float]


@dataclass(frozen=True)
class Prepared:
    """A task that is ready to run.  Without a `kernel`, `outcome` and `why` say what stopped it.

    `context` and `first` are for tuning: what plans are chosen from, and those to begin with.
    """

    task: Task
    reference: Reference | None = None
    traffic: Traffic | None = None
    kernel: Kernel | None = None
    outcome: str = ""
    why: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    context: Context | None = None
    first: tuple[Plan, ...] = ()


@dataclass(frozen=True)
class Ready:
    """A case whose matrix is built, with its tasks."""

    case: Case
    matrix: Any
    features: dict[str, Any]
    seconds: dict[str, float]
    tasks: tuple[Prepared, ...]


def kernel_file(op: str, dtype: str, folder: Path) -> Path:
    """The kernel's text for values of this type."""
    if dtype == "float32":
        return KERNELS / f"{op}.mlir"
    path = folder / f"{op}.{dtype}.mlir"
    if not path.exists():
        path.write_text((KERNELS / f"{op}.mlir").read_text().replace("f32", "f64"))
    return path


def compile_task(task: Task, csr: Any, options: Options, folder: Path, plan: str | None) -> Kernel:
    """Compile for this matrix.  Raises `DittoError`."""
    path = kernel_file(task.op, options.dtype, folder)
    compiled = compile_file(path, {"A": csr}, task.sizes, chip=options.chip, plan=plan)
    return Kernel(compiled.package, compiled.plan.text(), compiled.plan.digest(), dict(compiled.seconds))


def seed_of(case: Case, task: Task) -> int:
    """The seed of the dense operand."""
    return zlib.crc32(f"{case.name}/{task}".encode())


def prepare_task(case: Case, task: Task, csr: Any, model: Model, options: Options, folder: Path) -> Prepared:
    """Compile; then the reference, the traffic and, to be tuned, the first plans."""
    begin = time.perf_counter()
    context, first = _first_plans(task, csr, options, folder) if options.tuned else (None, ())
    space = time.perf_counter() - begin
    try:
        kernel = compile_task(task, csr, options, folder, first[0].text() if options.csr else options.plan)
    except DittoError as e:
        return Prepared(task, outcome=e.code, why=str(e))
    start = time.perf_counter()
    expected = reference(kernel.package.computation, csr, task.k, options.dtype, seed_of(case, task))
    middle = time.perf_counter()
    traffic = model.traffic(task.k)
    end = time.perf_counter()
    seconds = {"reference": middle - start, "bounds": end - middle}
    if options.tuned:
        seconds["space"] = space
    return Prepared(task, expected, traffic, kernel, seconds=seconds, context=context, first=first)


def _first_plans(task: Task, csr: Any, options: Options, folder: Path) -> tuple[Context, tuple[Plan, ...]]:
    """What plans are chosen from, and those to begin with."""
    with binding.context():
        computation = read_kernel_file(kernel_file(task.op, options.dtype, folder)).computation
    context = planning_context(bind(computation, {"A": csr}, task.sizes), Target.named(options.chip))
    ranking = Ranking(Space(context))
    if options.csr:  # the rules' plans first: where another encoding was meant, what is left may not apply
        plans = (plain.as_csr(plan, csr.nnz) for plan in (*ranking.best_first(), *ranking.seeds()))
        return context, tuple(dict.fromkeys(plan for plan in plans if plan is not None))
    return context, tuple(ranking.seeds())


def describe(csr: Any, case: Case) -> dict[str, Any]:
    """The sizes and row lengths that a report groups by."""
    lengths = np.diff(csr.indptr)
    mean = float(lengths.mean()) if lengths.size else 0.0
    return {
        "family": case.family,
        "source": case.source,
        "rows": int(csr.shape[0]),
        "columns": int(csr.shape[1]),
        "nnz": int(csr.nnz),
        "mean_row": mean,
        "max_row": int(lengths.max(initial=0)),
        "row_variation": float(lengths.std() / mean) if mean else 0.0,
    }


def prepare_here(case: Case, tasks: Sequence[Task], options: Options, folder: Path) -> Ready:
    """All of a case, in this process."""
    start = time.perf_counter()
    csr = matrix(case, options.cache)
    seconds = {"build": time.perf_counter() - start}
    model = Model(csr, np.dtype(options.dtype).itemsize, options.rates)
    prepared = tuple(prepare_task(case, task, csr, model, options, folder) for task in tasks)
    return Ready(case, csr, analyse(csr).to_json(), seconds, prepared)


# --- One process a case ---------------------------------------------------------------------------------


def _work(case: Case, tasks: Sequence[Task], options: Options, folder: Path) -> None:
    """What the process of a case does; each file appears whole or not at all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run stops its workers itself
    start = time.perf_counter()
    csr = matrix(case, options.cache)
    for part in _PARTS:
        np.save(folder / f"{part}.npy", getattr(csr, part))
    about = {"shape": csr.shape, "features": analyse(csr).to_json(), "seconds": {"build": time.perf_counter() - start}}
    _dump(about, folder / "about.pickle")
    model = Model(csr, np.dtype(options.dtype).itemsize, options.rates)
    for task in tasks:
        _dump(prepare_task(case, task, csr, model, options, folder), folder / f"{task}.pickle")


def _dump(value: Any, path: Path) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(value))
    part.replace(path)


def _load(case: Case, tasks: Sequence[Task], folder: Path, code: int | None) -> Ready | str:
    """What a process left behind, or why there is nothing."""
    died = f"the process that prepared it ended with {code}"
    if not (folder / "about.pickle").exists():
        return died
    about = pickle.loads((folder / "about.pickle").read_bytes())
    parts = (np.asarray(np.load(folder / f"{part}.npy", mmap_mode="r")) for part in _PARTS)
    csr = sp.csr_array(tuple(parts), shape=about["shape"])
    prepared = []
    for task in tasks:
        file = folder / f"{task}.pickle"
        prepared.append(pickle.loads(file.read_bytes()) if file.exists() else Prepared(task, outcome="died", why=died))
    return Ready(case, csr, about["features"], about["seconds"], tuple(prepared))


class Preparation:
    """Prepares cases in `jobs` processes (0: here), and gives them out as they become ready."""

    def __init__(self, work: Sequence[tuple[Case, Sequence[Task]]], options: Options, jobs: int) -> None:
        self._options, self._jobs = options, jobs
        small = sorted((w for w in work if w[0].nnz < BIG), key=lambda w: w[0].nnz)
        self._big, self._small = sorted((w for w in work if w[0].nnz >= BIG), key=lambda w: -w[0].nnz), small
        self._running: dict[Any, tuple[Any, Case, Sequence[Task], Path]] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="benchmarks-"))

    def __enter__(self) -> Preparation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop what is running and remove the files."""
        for process, *_ in self._running.values():
            process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __iter__(self) -> Iterator[tuple[Case, Sequence[Task], Ready | str]]:
        """Each case with its tasks and what became of it.  Its files are gone once the next one is asked for."""
        if not self._jobs:
            for case, tasks in [*self._small, *self._big]:
                yield case, tasks, prepare_here(case, tasks, self._options, self.folder)
            return
        self._start()
        while self._running:
            for sentinel in wait(list(self._running)):
                process, case, tasks, folder = self._running.pop(sentinel)
                process.join()
                self._start()
                yield case, tasks, _load(case, tasks, folder, process.exitcode)
                shutil.rmtree(folder, ignore_errors=True)
            self._start()

    def _start(self) -> None:
        """Fill the free places: a third of them with big cases while there are any, the others with small ones first."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["benchmarks.prepare"])
        while len(self._running) < self._jobs and (self._big or self._small):
            running = [case.nnz for _, case, _, _ in self._running.values()]
            bigs = sum(nnz >= BIG for nnz in running)
            take_big = bool(self._big) and (not self._small or bigs < max(1, self._jobs // 3))
            queue = self._big if take_big else self._small
            if running and sum(running) + queue[0][0].nnz > MOST_IN_WORK:
                return
            case, tasks = queue.pop(0)
            folder = self.folder / case.name
            folder.mkdir()
            process = context.Process(target=_work, args=(case, tasks, self._options, folder), daemon=True)
            process.start()
            self._running[process.sentinel] = (process, case, tasks, folder)
