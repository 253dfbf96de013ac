"""What a worker does to measure candidates: lay out their operands, run them, have the results checked, and time them.

`Measurer` is the handler of the process that measures.  Packed operands stay between candidates, on the host and on the GPU.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.checking import Checker
from sparseditto.compiler.devices import CudaDevice, CudaRun, Laid, SimtDevice, SimtRun
from sparseditto.compiler.execute import Inputs, Recipes, auxiliary, prepare
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.problem import Problem
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.compiler.matrix import Matrix
    from sparseditto.compiler.workers import Stage

_PLAIN_US = 100.0  # that a run takes longer when it is launched alone and waited for, at most


@dataclass(frozen=True)
class MeasureTask:
    """What all candidates of a task run on.  The matrix comes apart from `problem`, as it may be that of many tasks;
    `matrix` names its contents, so that they may stay on the GPU.  Dense operands that are not bound are random from `seed`.
    """

    problem: Problem
    matrix: str
    seed: int = 0


@dataclass(frozen=True)
class MeasureJob:
    """Run a package; check it unless it was checked before; time it `rounds` times or as often as `budget_s` allows.

    A candidate whose plain run takes longer than `cutoff_us` is not timed any better than that.  `limit_s` is for one run.
    """

    package: KernelPackage
    identity: str
    rounds: int
    budget_s: float
    limit_s: float
    check: bool = True
    cutoff_us: float | None = None


@dataclass(frozen=True)
class Measured:
    """Times in microseconds (none when the result is wrong), the check, what the kernels take, and seconds by part."""

    samples_us: tuple[float, ...]
    check: dict[str, Any] | None
    resources: list[dict[str, Any]] | None
    seconds: dict[str, float]


class Measurer:
    """Runs packages on data that stays resident.  Options: `device` ("cuda" or "simt") and `ordinal`, which GPU."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        on_gpu = options["device"] == "cuda"
        self._device: CudaDevice | SimtDevice = CudaDevice(int(options.get("ordinal", 0))) if on_gpu else SimtDevice()
        self._data: _Data | None = None

    def hello(self) -> dict[str, Any]:
        """What the times depend on."""
        return self._device.versions()

    def healthy(self) -> bool:
        return self._device.healthy()

    def setup(self, matrix: Matrix, task: MeasureTask) -> None:
        self._data = _Data(replace(task, problem=replace(task.problem, matrix=matrix)))
        self._device.forget(task.matrix)

    def bandwidth(self, _: None, stage: Stage) -> float | None:
        """Bytes a second that the device copies, reads and writes counted; None where that has no meaning."""
        return self._device.bandwidth()

    def measure(self, job: MeasureJob, stage: Stage) -> Measured:
        seconds: dict[str, float] = {}
        with _timed(seconds, "pack"):
            laid = self._lay(job.package, stage)
        check: dict[str, Any] | None = None
        samples: tuple[float, ...] = ()
        stage("load", 60.0 + laid.bytes / 1e9)
        with _timed(seconds, "load"):
            run = self._device.load(job.package, job.identity, laid)
        stage("run", job.limit_s)
        with _timed(seconds, "run"):
            plain_us = run.launch()
        if job.check:
            stage("check", 120.0 + laid.inputs.matrix.nnz / 1e6)
            with _timed(seconds, "check"):
                check = self._checker(job.package, laid).check(run.fetch, full=False)
        if check is None or check["passed"]:
            stage("time", 3 * job.limit_s + 2 * job.budget_s)
            with _timed(seconds, "time"):
                samples = _times(run, job, plain_us)
        return Measured(samples, check, run.resources() if job.check else None, seconds)

    def verify(self, job: MeasureJob, stage: Stage) -> dict[str, Any]:
        """Run once more and compare the whole output."""
        laid = self._lay(job.package, stage)
        stage("load", 60.0 + laid.bytes / 1e9)
        run = self._device.load(job.package, job.identity, laid)
        stage("run", job.limit_s)
        run.launch()
        stage("verify", 3600.0)
        return self._checker(job.package, laid).check(run.fetch, full=True)

    def _lay(self, package: KernelPackage, stage: Stage) -> Laid:
        assert self._data is not None
        stage("pack", 120.0 + self._data.entries / 1e5)
        return self._data.lay(package)

    def _checker(self, package: KernelPackage, laid: Laid) -> Checker:
        assert self._data is not None
        if self._data.checker is None:
            self._data.checker = Checker(package.computation, laid.inputs)
        return self._data.checker


def _times(run: SimtRun | CudaRun, job: MeasureJob, plain_us: float) -> tuple[float, ...]:
    """Microseconds by graph replay; of single runs where these are long, or slower than anyone cares about."""
    if job.cutoff_us is not None and plain_us > job.cutoff_us + _PLAIN_US:
        again = run.launch()  # the first run of a kernel also loads it
        if again > job.cutoff_us + _PLAIN_US:
            return (again,)
    if plain_us > job.budget_s * 2e5:
        return tuple(run.launch() for _ in range(min(job.rounds, 3)))
    return run.time(job.rounds, job.budget_s)


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[part] = time.perf_counter() - start


class _Data:
    """A task's operands on the host: packed once for each encoding, recipes run once for each encoding and text."""

    _KEPT = 4  # encodings

    def __init__(self, task: MeasureTask) -> None:
        self.task = task
        self.checker: Checker | None = None
        self._problem = task.problem
        self._packed: OrderedDict[str, Inputs | InputError] = OrderedDict()
        self._recipes: OrderedDict[str, Recipes] = OrderedDict()

    @property
    def entries(self) -> int:
        return 0 if self._problem.matrix is None else int(self._problem.matrix.csr.nnz)

    def lay(self, package: KernelPackage) -> Laid:
        """Raises `InputError` when the matrix cannot be stored so."""
        sparse = package.computation.sparse
        encoding = "" if sparse.encoding is None else sparse.encoding.text()
        inputs = self._inputs(package, encoding)
        made = self._made(package, encoding, inputs)
        keys: dict[str, Hashable] = {}
        for name, array in inputs.arrays.items():
            packed = name.startswith(f"{sparse.name}.")
            where = ("packed", self.task.matrix, encoding) if packed else ("dense", array.shape)
            keys[name] = (*where, name, array.dtype.str)
        keys |= {b.name: ("packed", self.task.matrix, encoding, b.name, b.dtype, b.recipe) for b in package.buffers if b.recipe}
        sizes = inputs.sizes | {f"{name}.dim0": len(array) for name, array in made.items()}
        return Laid(inputs, inputs.arrays | made, sizes, keys)

    def _made(self, package: KernelPackage, encoding: str, inputs: Inputs) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of recipes; the results of the latest recipes are kept."""
        made = auxiliary(package, inputs.arrays, inputs.sizes, self._recipes.setdefault(encoding, {}))
        self._recipes.move_to_end(encoding)
        while sum(map(len, self._recipes.values())) > 4 * self._KEPT:
            oldest = next(cache for cache in self._recipes.values() if cache)
            del oldest[next(iter(oldest))]
        return made

    def _inputs(self, package: KernelPackage, encoding: str) -> Inputs:
        if encoding not in self._packed:
            plain = replace(package, buffers=tuple(b for b in package.buffers if not b.recipe))
            try:
                self._packed[encoding] = self._without_copies(prepare(plain, self._problem, self.task.seed))
            except InputError as e:
                self._packed[encoding] = e
            if len(self._packed) > self._KEPT:
                self._packed.popitem(last=False)
        self._packed.move_to_end(encoding)
        found = self._packed[encoding]
        if isinstance(found, InputError):
            raise found
        return found

    def _without_copies(self, inputs: Inputs) -> Inputs:
        """Operands that nobody bound are now bound, so that all encodings get the same; what is equal is one array."""
        dense = dict(inputs.dense)
        if inputs.initial is not None:
            dense[self._problem.computation.output.name] = inputs.initial
        self._problem = replace(self._problem, dense=dense)
        arrays = {
            name: dense[name] if name in dense and dense[name].shape == array.shape else array
            for name, array in inputs.arrays.items()
        }
        first = next((i for i in self._packed.values() if not isinstance(i, InputError)), inputs)
        return replace(inputs, arrays=arrays, matrix=first.matrix)
