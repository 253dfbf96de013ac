"""What no document states about a GPU, measured with kernels of our own: `experiments` makes them, `results` reads their times.

Each experiment is a plan on a matrix that keeps one resource busy; docs/architecture.md says what each number means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from sparseditto.agent.architecture.measured import Measurements
from sparseditto.agent.architecture.quantity import Quantity
from sparseditto.agent.architecture.vocabulary import MEASURABLE
from sparseditto.compiler.api import read_plan
from sparseditto.compiler.checking import Checker
from sparseditto.compiler.driver import Compiled, compile_kernel
from sparseditto.compiler.execute import Inputs, prepare
from sparseditto.compiler.kernel import read_kernel
from sparseditto.compiler.problem import bind
from sparseditto.compiler.runtimes import cuda, libcuda
from sparseditto.dialects.binding import context
from sparseditto.dialects.errors import CheckFailed, DeviceError
from sparseditto.dialects.target import Target

_ADDING = """func.func @{name}(%A: tensor<?x?xf32> {{ditto.sparse}}, %x: {x}, %y: {y}) -> {y} {{
  %r = linalg.{op} ins(%A, %x : tensor<?x?xf32>, {x}) outs(%y : {y}) -> {y}
  return %r : {y}
}}"""
_KERNEL = """func.func @{name}(%A: tensor<?x?xf32> {{ditto.sparse}}, %x: {x}) -> {y} {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %A, %c0 : tensor<?x?xf32>
  %empty = tensor.empty(%m) : {y}
  %y = linalg.fill ins(%zero : f32) outs(%empty : {y}) -> {y}
  %r = linalg.{op} ins(%A, %x : tensor<?x?xf32>, {x}) outs(%y : {y}) -> {y}
  return %r : {y}
}}"""
_CSR = "set-encoding{format=csr},accumulate-registers"
_ROUNDS, _BUDGET_S = 15, 0.4
_WORD = 4  # bytes of a value, a coordinate and a position

COPY_COLUMNS = 128
_GATHER_COLUMNS = 32  # of a row that is gathered: 128 bytes, a cache line
_GATHERS = 32  # a row
_SPACING = 64  # columns, 256 bytes, between what is loaded to see its latency
_SEGMENT = 16  # entries, after which `segment-rows` cuts a row here
_SHUFFLED_COLUMNS = 16


@dataclass(frozen=True)
class Sizes:
    """How large the experiments are: bytes that are copied (from the smallest working set to the largest), bytes that are
    gathered from L2 and how many rows gather, rows that wait for a load, rows that are cut, and rows that are shuffled.
    """

    copied: tuple[int, ...]
    gathered: int
    gathering: int
    waiting: int
    cut: int
    shuffled: int

    @staticmethod
    def of(l2_bytes: int) -> Sizes:
        """For a GPU with an L2 cache of so many bytes: the largest copy is eight times as large, and 512 MiB at least."""
        largest = max(8 * l2_bytes, 512 << 20)
        return Sizes((l2_bytes // 4, l2_bytes, 3 * l2_bytes, largest), l2_bytes // 4, 1 << 16, 1 << 11, 1 << 16, 1 << 18)


@dataclass(frozen=True)
class Experiment:
    """A plan on a matrix, times `columns` dense columns (0: a vector).

    `work` is what its time is divided into: bytes, loads, additions or lanes.  `cold` empties L2 before each run, and with
    `adds` the product is added to the output, so that no kernel has to set the output first.
    """

    plan: str
    matrix: sp.csr_array
    columns: int
    work: int
    cold: bool = False
    adds: bool = False

    @property
    def kernel(self) -> str:
        """The kernel as `.mlir` text: y = A x or C = A B, or that added to the old y or C."""
        text = _ADDING if self.adds else _KERNEL
        dense = f"tensor<?x{self.columns}xf32>" if self.columns else "tensor<?xf32>"
        name, op = ("spmm", "matmul") if self.columns else ("spmv", "matvec")
        return text.format(name=name, op=op, x=dense, y=dense)

    def compile(self, chip: str) -> tuple[Compiled, Inputs]:
        """The kernel for `chip`, and arrays for it."""
        rng = np.random.default_rng(0)
        shape = (self.matrix.shape[1], self.columns) if self.columns else (self.matrix.shape[1],)
        with context():
            kernel = read_kernel(self.kernel)
            problem = bind(kernel.computation, {"A": self.matrix, "x": rng.random(shape, dtype=np.float32)})
            compiled = compile_kernel(kernel, problem, Target.named(chip), read_plan(self.plan))
        return compiled, prepare(compiled.package, problem, seed=0)


def experiments(sizes: Sizes) -> Iterator[tuple[str, Experiment]]:
    """All experiments by name, made one at a time since some are large."""
    yield "launch", Experiment(f"{_CSR},rows-to-threads,map-blocks{{threads=32}}", _rows_of(1, 1, 1), 0, 1)
    for count in sizes.copied:
        yield f"copy {count >> 10} KiB", _copy(count)
    yield "gather", _gather(sizes)
    for cold in (False, True):
        for apart in (False, True):
            yield f"wait {'apart' if apart else 'same'} {'cold' if cold else 'warm'}", _wait(sizes.waiting, apart, cold)
    yield "add", _add(sizes.cut, cut=True)
    yield "store", _add(sizes.cut, cut=False)
    yield "add to one", _add_to_one(sizes.cut)
    yield "shuffle", _shuffle(sizes.shuffled, lanes=32)
    yield "no shuffle", _shuffle(sizes.shuffled, lanes=1)


def _copy(count: int) -> Experiment:
    """A diagonal matrix times a wide one: C = D B reads B and writes C, and little else."""
    rows = max(1, count // (2 * COPY_COLUMNS * _WORD))
    diagonal = _csr(np.ones(rows, np.int64), np.arange(rows), rows)
    work = 2 * rows * COPY_COLUMNS * _WORD + 3 * rows * _WORD
    plan = f"{_CSR},vectorize{{width=4}},rows-to-subgroups{{lanes=32}},map-blocks{{threads=256}}"
    return Experiment(plan, diagonal, COPY_COLUMNS, work)


def _gather(sizes: Sizes) -> Experiment:
    """Rows of B at random, a cache line each, out of a B that is too large for L1 and fits into L2."""
    columns = max(1, sizes.gathered // (_GATHER_COLUMNS * _WORD))
    plan = f"{_CSR},vectorize{{width=4}},rows-to-subgroups{{lanes=8}},unroll{{factor=8}},map-blocks{{threads=256}}"
    matrix = _rows_of(sizes.gathering, _GATHERS, columns)
    return Experiment(plan, matrix, _GATHER_COLUMNS, matrix.nnz * _GATHER_COLUMNS * _WORD)


def _wait(loads: int, apart: bool, cold: bool) -> Experiment:
    """One warp takes 32 rows at a time, of which the first has one entry, and stores its product before it takes the next.

    The entries' columns are all the same, or each in a cache line of its own, in no order: nothing else differs.
    """
    lengths = np.zeros(32 * loads, np.int64)
    lengths[::32] = 1
    columns = np.random.default_rng(0).permutation(loads) * _SPACING if apart else np.zeros(loads, np.int64)
    plan = f"{_CSR},rows-to-threads,map-blocks{{threads=32}},persist-blocks{{blocks=1}}"
    return Experiment(plan, _csr(lengths, columns, loads * _SPACING), 0, loads, cold)


def _add(rows: int, cut: bool) -> Experiment:
    """Rows that are cut once, so that both pieces are added to the output; or the same pieces as rows of their own."""
    half = _SEGMENT // 2
    lengths = np.full(rows, _SEGMENT + 1) if cut else np.tile([half, half + 1], rows)
    plan = (
        f"{_CSR},segment-rows{{length={_SEGMENT}}},vectorize{{width=4}},rows-to-subgroups{{lanes=32}},map-blocks{{threads=256}}"
    )
    matrix = _csr(lengths, np.arange(lengths.sum()) % (_SEGMENT + 1), _SEGMENT + 1)
    return Experiment(plan, matrix, COPY_COLUMNS, 2 * rows * COPY_COLUMNS, adds=True)


def _add_to_one(pieces: int) -> Experiment:
    """One row, whose pieces are all added to the same number, a thread each."""
    plan = f"{_CSR},segment-rows{{length={_SEGMENT}}},rows-to-threads,map-blocks{{threads=256}}"
    entries = pieces * _SEGMENT
    return Experiment(plan, _csr(np.array([entries]), np.arange(entries), entries), 0, pieces, adds=True)


def _shuffle(rows: int, lanes: int) -> Experiment:
    """Rows of one entry, whose sums in several columns go through a reduction over a warp; or no reduction."""
    groups = f"{{lanes={lanes} groups={lanes}}}"
    plan = f"{_CSR},vectorize{{width=4}},jam-columns{{factor=4}},rows-to-subgroups{groups},map-blocks{{threads=256}}"
    steps = lanes.bit_length() - 1
    return Experiment(plan, _rows_of(rows, 1, 32), _SHUFFLED_COLUMNS, rows * steps * _SHUFFLED_COLUMNS * lanes)


def _rows_of(rows: int, entries: int, columns: int) -> sp.csr_array:
    """Rows of so many entries in columns at random; entries that meet are one."""
    return _csr(np.full(rows, entries), np.random.default_rng(0).integers(0, columns, rows * entries), columns)


def _csr(lengths: Any, columns: Any, width: int) -> sp.csr_array:
    values = np.random.default_rng(0).uniform(-1, 1, len(columns)).astype(np.float32)  # of both signs: long sums stay accurate
    positions = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sp.csr_array((values, columns.astype(np.int32), positions), (len(lengths), width))
    matrix.sum_duplicates()
    return matrix


# ------------------------------------------------------------------------------------------------------------------- results


def results(times_us: Mapping[str, float], work: Mapping[str, int]) -> dict[str, Quantity]:
    """The numbers that follow from the experiments' times and `work`, by place; one that is not positive is left out.

    A rate is work / time; a latency is the difference of two times / loads.  `MEASURABLE` has the units.
    """

    def rate(name: str) -> float:
        return work[name] / times_us[name] * 1e6

    def latency(where: str) -> float:
        apart, same = f"wait apart {where}", f"wait same {where}"
        return (times_us[apart] - times_us[same]) / work[apart] * 1e3

    largest = max((name for name in work if name.startswith("copy ")), key=lambda name: work[name])
    adds, shuffles = (times_us[a] / times_us[b] for a, b in (("add", "store"), ("shuffle", "no shuffle")))
    found = {
        "launch.graph_period": (times_us["launch"], "SpMV with one row, launched again and again from a graph"),
        "dram->l2.measured_rate": (rate(largest) / 1e9, f"C = D B, D diagonal: {largest}, reads and writes"),
        "l2->l1.measured_rate": (rate("gather") / 1e9, "cache lines gathered at random out of a quarter of L2"),
        "l2.latency_over_l1": (latency("warm"), "a dependent load of one thread that hits L2, less one that hits L1"),
        "dram.latency_over_l1": (latency("cold"), "a dependent load of one thread that misses L2, less one that hits L1"),
        "atomics.measured_rate": (rate("add"), f"both pieces of rows are added; takes {adds:.2f} times as long as stores"),
        "atomics.same_address_rate": (rate("add to one"), "every piece of one row, a thread each, is added to one number"),
        "shuffle.measured_rate": (rate("shuffle"), f"sums over warps; takes {shuffles:.2f} times as long as without shuffles"),
    }
    return {p: Quantity(value, MEASURABLE[p], "measured", source) for p, (value, source) in found.items() if value > 0}


def probe(device: int = 0, tell: Callable[[str], None] = lambda message: None) -> Measurements:
    """Measure the GPU `device`; `tell` hears what is going on.

    Raises `DeviceError` without a GPU, and `CheckFailed` when a kernel's result is wrong.
    """
    reason = cuda.available()
    if reason is not None:
        raise DeviceError(reason)
    versions = cuda.versions(device)
    attributes = libcuda.device_attributes(device)
    chip = "sm_" + versions["compute_capability"].replace(".", "")
    times: dict[str, float] = {}
    work: dict[str, int] = {}
    samples: dict[str, Any] = {}
    start = time.perf_counter()
    for name, experiment in experiments(Sizes.of(attributes["l2_cache_size"])):
        timing = _timed(name, experiment, chip, device)
        times[name], work[name] = timing["median_us"], experiment.work
        samples[name] = {"work": experiment.work, "plan": experiment.plan, **timing}
        tell(f"{name}: {timing['median_us']:.2f} us")
    versions |= {"seconds": round(time.perf_counter() - start, 1), "attributes": attributes}
    return Measurements(versions["gpu"], versions, results(times, work), samples)


def _timed(name: str, experiment: Experiment, chip: str, device: int) -> dict[str, Any]:
    compiled, inputs = experiment.compile(chip)
    package = compiled.package
    output = package.computation.output.name
    with cuda.CudaSession(package, inputs.sizes, device) as session:
        session.upload({b.name: inputs.arrays[b.name] for b in package.buffers if b.access != "write"})
        session.launch()
        result = session.download(output)
        verdict = Checker(package.computation, inputs).check(lambda lines, _: result[lines or slice(None)], full=False)
        if not verdict["passed"]:
            raise CheckFailed(f"the result is wrong: {verdict}", where=f"experiment '{name}'")
        timing = session.time(_ROUNDS, _BUDGET_S, experiment.cold)
    return timing.to_json()
