"""Every representation on every matrix: right, refused by packing as its table says, or a fault.

Kernels do not depend on the matrix: they are compiled first, once for each representation, operation and number of dense
columns.  Worker processes then pack, run and compare whole outputs with float64, a matrix at a time.  What is appended to the
results has the kind "representation"; what is right or refused there already is not done again.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.machine import machine_row
from benchmarks.prepare import Task
from benchmarks.representations import REPRESENTATIONS, kernel_text
from benchmarks.run import Results, note, read_rows
from benchmarks.tables import table
from sparseditto.agent.tuner import OK
from sparseditto.compiler.compiling import CompileJob, CompileTask
from sparseditto.compiler.crew import COMPILER, MEASURER, ONE_THREAD
from sparseditto.compiler.kernel import read_kernel
from sparseditto.compiler.measuring import MeasureJob, MeasureTask
from sparseditto.compiler.problem import Problem, bind
from sparseditto.compiler.tuning import package_identity
from sparseditto.compiler.workers import Done, Job, Pool, Shared, gather
from sparseditto.dialects.binding import context
from sparseditto.dialects.errors import InputError
from sparseditto.passes.plan import Plan

KIND = "representation"
RIGHT, REFUSED, WRONG = "right", "refused", "wrong"
CHIP = "sm_90"
COMPILE_LIMIT_S = 60.0
RUN_LIMIT_S = 60.0

Load = Callable[[], Any]
Key = tuple[str, str, int, str, str, str]


@dataclass(frozen=True)
class Kernel:
    """What is compiled once for all matrices."""

    name: str
    task: Task
    dtype: str

    def job(self) -> CompileJob:
        chosen = REPRESENTATIONS[self.name]
        text = kernel_text(self.task.op, self.dtype, chosen.transposed, chosen.pinned)
        sizes = dict(bound(self.task, self.dtype, chosen.transposed).sizes)
        plan = Plan.parse(chosen.plans[self.task.op])
        return CompileJob(CompileTask(text, f"{self.name}.mlir", None, sizes, CHIP), plan.to_json())


@dataclass(frozen=True)
class Batch:
    """The representations of one matrix that are left of a task."""

    matrix: str
    task: Task
    dtype: str
    names: tuple[str, ...]

    def kernels(self) -> list[Kernel]:
        return [Kernel(name, self.task, self.dtype) for name in self.names]


def chosen_names(text: str) -> list[str]:
    """The representations that a comma-separated text names; all where it is empty.  Raises `InputError` on another name."""
    names = text.split(",") if text else list(REPRESENTATIONS)
    for name in names:
        if name not in REPRESENTATIONS:
            raise InputError(f"no representation is named '{name}'; there are {', '.join(REPRESENTATIONS)}")
    return names


def key_of(row: Mapping[str, Any]) -> Key:
    return (row["matrix"], row["op"], row["K"], row["dtype"], row["device"], row["representation"])


def run_each(args: argparse.Namespace, tasks: Sequence[Task], corpus: Mapping[str, Load]) -> int:
    """Do what is left, print the table, and give the exit code: 1 when anything is neither right nor refused."""
    run = _Run(args, tasks, corpus)
    with closing(Results(args.out)) as results:
        results.append(machine_row(args.device))
        for row in run.rows():
            results.append(row)
    rows = [row for key, row in recorded(read_rows(args.out)).items() if key in run.wanted]
    print(summary(rows))
    return 1 if any(map(_is_fault, rows)) else 0


def recorded(rows: Sequence[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
    """The last row of each kernel and matrix."""
    return {key_of(row): row for row in rows if row.get("kind") == KIND}


class _Run:
    def __init__(self, args: argparse.Namespace, tasks: Sequence[Task], corpus: Mapping[str, Load]) -> None:
        self.args, self.corpus = args, corpus
        self.end = time.monotonic() + args.time_limit
        self.jobs = args.jobs or max(1, len(os.sched_getaffinity(0)) - 2)
        self.wanted: set[Key] = set()
        self.batches: list[Batch] = []
        known = recorded(read_rows(args.out))
        settled = {key for key, row in known.items() if not _is_fault(row)}
        for matrix in corpus:
            for dtype in args.dtypes.split(","):
                for task in tasks:
                    self._want(matrix, dtype, task, settled)

    def _want(self, matrix: str, dtype: str, task: Task, settled: set[Key]) -> None:
        names = [name for name in self.args.names if task.op in REPRESENTATIONS[name].plans]
        keys = {name: (matrix, task.op, task.k, dtype, self.args.device, name) for name in names}
        self.wanted |= set(keys.values())
        left = tuple(name for name, key in keys.items() if key not in settled)
        if left:
            self.batches.append(Batch(matrix, task, dtype, left))

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for everything that is left, until the time is up."""
        if not self.batches:
            return
        kernels = compiled({kernel for batch in self.batches for kernel in batch.kernels()}, self.jobs)
        left = sum(len(batch.names) for batch in self.batches)
        with ExitStack() as stack:
            options = {"device": self.args.device}
            counts = {False: max(1, self.jobs - 1), True: 1}  # of A, and of A^T, which has few representations
            pools = {side: stack.enter_context(Pool(MEASURER, count, options, ONE_THREAD)) for side, count in counts.items()}
            for number, batch in enumerate(self.batches, start=1):
                if self._out_of_time():
                    break
                counted: Counter[str] = Counter()
                for row in self._batch(batch, kernels, pools):
                    counted[row["outcome"]] += 1
                    yield row
                left -= counted.total()
                said = ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
                note(f"[{number}/{len(self.batches)}] {batch.matrix} {batch.task} {batch.dtype}: {said}")
        if left:
            note(f"time is up; {left} runs are left: the same command goes on")

    def _out_of_time(self) -> bool:
        return time.monotonic() > self.end

    def _batch(self, batch: Batch, kernels: Mapping[Kernel, Done], pools: Mapping[bool, Pool]) -> Iterator[dict[str, Any]]:
        """Hand the matrix to the workers, and give a row for each representation."""
        csr = leading(self.corpus[batch.matrix](), self.args.limit)
        head = {"kind": KIND, "matrix": batch.matrix, "rows": csr.shape[0], "columns": csr.shape[1], "entries": int(csr.nnz)}
        head |= {"op": batch.task.op, "K": batch.task.k, "dtype": batch.dtype, "device": self.args.device}
        with ExitStack() as shared:
            for transposed, pool in pools.items():
                problem = bound(batch.task, batch.dtype, transposed, csr)
                task = MeasureTask(replace(problem, matrix=None), f"{batch.matrix} {batch.dtype}")
                pool.setup([shared.enter_context(closing(Shared(value))) for value in (problem.matrix, task)])
            for kernel, done in self._outcomes(batch.kernels(), kernels, pools):
                yield head | result(kernel, done)

    def _outcomes(
        self, batch: Sequence[Kernel], kernels: Mapping[Kernel, Done], pools: Mapping[bool, Pool]
    ) -> Iterator[tuple[Kernel, Done]]:
        """What running each kernel gives, or compiling it where that failed."""
        yield from ((kernel, kernels[kernel]) for kernel in batch if kernels[kernel].outcome != OK)
        waiting = [kernel for kernel in batch if kernels[kernel].outcome == OK]
        for kernel in waiting:
            package, _ = kernels[kernel].value
            job = MeasureJob(package, package_identity(package), 0, 0.0, RUN_LIMIT_S)
            pools[REPRESENTATIONS[kernel.name].transposed].submit(Job(kernel, "verify", job, RUN_LIMIT_S))
        while waiting and not self._out_of_time():
            for _, done in gather(pools.values(), self.end - time.monotonic()):
                kernel = next(kernel for kernel in waiting if kernel == done.key)
                waiting.remove(kernel)
                yield kernel, done
        for pool in pools.values():
            pool.cancel()


def compiled(kernels: set[Kernel], jobs: int) -> dict[Kernel, Done]:
    """What compiling each kernel gives, in `jobs` processes."""
    found: dict[Any, Done] = {}
    with Pool(COMPILER, jobs, environment=ONE_THREAD) as pool:
        for kernel in kernels:
            pool.submit(Job(kernel, "compile", kernel.job(), COMPILE_LIMIT_S))
        while len(found) < len(kernels):
            found |= {done.key: done for _, done in gather([pool])}
    return found


def bound(task: Task, dtype: str, transposed: bool, csr: Any = None) -> Problem:
    """The product with A (or A^T), bound to a matrix where there is one."""
    with context():
        computation = read_kernel(kernel_text(task.op, dtype, transposed)).computation
    return bind(computation, {} if csr is None else {"A": csr}, task.sizes)


def leading(csr: Any, limit: int | None) -> Any:
    """The first `limit` rows; of a square matrix the leading block, which is symmetric where the matrix is."""
    if limit is None:
        return csr
    return csr[:limit, :limit].tocsr() if csr.shape[0] == csr.shape[1] else csr[:limit]


def result(kernel: Kernel, done: Done) -> dict[str, Any]:
    """What a row says of one kernel on one matrix."""
    chosen = REPRESENTATIONS[kernel.name]
    row = {"representation": kernel.name, "plan": chosen.plans[kernel.task.op], "seconds": done.seconds}
    if done.outcome == OK:
        return row | {"outcome": RIGHT if done.value["passed"] else WRONG, "check": done.value}
    announced = done.outcome == InputError.code and any(re.search(why, done.why) for why in chosen.refusals)
    return row | {"outcome": REFUSED if announced else done.outcome, "why": done.why}


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Right, refused and wrong ones of each representation, with the first fault."""
    body = []
    for name in sorted({row["representation"] for row in rows}, key=list(REPRESENTATIONS).index):
        mine = [row for row in rows if row["representation"] == name]
        counted = Counter(WRONG if _is_fault(row) else row["outcome"] for row in mine)
        faults = [f"{r['matrix']} {r['op']} K={r['K']}: {r['outcome']} {r.get('why', '')}" for r in mine if _is_fault(r)]
        body.append([name, *(str(counted[outcome]) for outcome in (RIGHT, REFUSED, WRONG)), *(faults[:1] or [""])])
    return table(["representation", RIGHT, REFUSED, WRONG, "the first fault"], body)


def _is_fault(row: Mapping[str, Any]) -> bool:
    return row["outcome"] not in (RIGHT, REFUSED)
