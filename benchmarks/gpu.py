"""One task on a GPU: upload, run every baseline and ours, check each against the reference, and time those that are right.

A tuned run measures its candidates here too (`benchmarks.candidates` says which), before ours is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks import cusparse
from benchmarks.bounds import Rates
from benchmarks.candidates import Bench, Part, Sample
from benchmarks.operands import Array, Reference, dense, projection_check, quick_check
from benchmarks.packed import Packed, Place, place
from benchmarks.prepare import Kernel, Prepared, Ready, seed_of
from benchmarks.timing import Clock, Stream, Timing, Work
from sparseditto.agent.tuner import OK
from sparseditto.compiler.runtimes.cuda import CudaSession
from sparseditto.dialects.errors import CheckFailed, DittoError

CLOSE = 1.3  # a baseline within this factor of the best of its kind is timed in full
OURS, OURS_DEFAULT = "ours", "ours by default"
PLAN = "plan "  # before a plan's digest, where a fault is recorded of a candidate
_PROJECTED = 1 << 24  # elements at a time

Choose = Callable[[Bench], tuple[Kernel | None, dict[str, Any]]]
"""Searches for a better kernel than the default plan's; gives that, or None, and what the row says of the search."""


class GpuFault(Exception):
    """A kernel faulted: this process cannot use the GPU any more."""


def alive() -> bool:
    """Whether the GPU can still be used; an error that was no fault is cleared by asking."""
    import cupy as cp

    try:
        cp.zeros(1)
        cp.cuda.Device().synchronize()
    except cp.cuda.runtime.CUDARuntimeError:
        return False
    return True


class Device:
    """One GPU for the whole run.

    `doing` says what runs at the moment, and `baseline` which one when it is one (or a candidate: `plan DIGEST`), for
    whoever must explain a fault.
    """

    def __init__(self, rounds: int, cold: bool, dtype: str, col_major: bool) -> None:
        self.stream = Stream()
        self.clock = Clock(self.stream, rounds, cold)
        self.dtype, self.col_major = dtype, col_major
        self.doing, self.baseline = "", ""

    def close(self) -> None:
        self.stream.close()

    def case(self, ready: Ready) -> DeviceCase:
        return DeviceCase(self, ready)


class DeviceCase:
    """A matrix on the GPU."""

    def __init__(self, device: Device, ready: Ready) -> None:
        self.device, self.ready = device, ready
        self.csr = cusparse.DeviceCsr(ready.matrix, device.dtype)
        self.packed = Packed(ready.matrix, self._uploaded())
        self._float64: tuple[Any, Any] | None = None

    def measure(
        self, prepared: Prepared, rates: Rates, choose: Choose | None = None, skip: Collection[str] = ()
    ) -> dict[str, Any]:
        """The row of one task, without the baselines that `skip` names; with `choose`, its kernel beside the default one.

        Raises `GpuFault`; whatever else goes wrong is in the row.
        """
        import cupy as cp

        self.device.doing, self.device.baseline = "making the operands", ""
        measurement: _Measurement | None = None
        try:
            measurement = _Measurement(self, prepared, rates, skip)
            return measurement.row(choose)
        except cp.cuda.memory.OutOfMemoryError as e:
            return {"outcome": "out-of-memory", "why": str(e)}
        except CheckFailed as e:
            raise GpuFault(f"{self.device.doing}: {e}") from e
        except DittoError as e:
            return {"outcome": e.code, "why": f"{self.device.doing}: {e}"}
        except cp.cuda.runtime.CUDARuntimeError as e:
            raise GpuFault(f"{self.device.doing}: {e}") from e
        finally:
            if measurement is not None:
                measurement.close()
            cp.get_default_memory_pool().free_all_blocks()

    def repeated(self, prepared: Prepared, times: int) -> tuple[int, bool]:
        """How many of `times` runs of the task's kernel gave other bits than the first, and whether the last one is right.

        Raises `CheckFailed` when the kernel faults.
        """
        measurement = _Measurement(self, prepared, Rates(), ())
        try:
            return measurement.repeated(times)
        finally:
            measurement.close()

    def _uploaded(self) -> dict[Place, Any]:
        """What of the matrix is on the GPU, by where it is on the host: a plan that packs CSR as it is uploads nothing."""
        csr = self.ready.matrix
        pairs = [(csr.indptr, self.csr.starts), (csr.indices, self.csr.columns), (csr.data, self.csr.values)]
        return {place(host): array for host, array in pairs if host.size and str(host.dtype) == str(array.dtype)}

    def float64(self) -> tuple[Any, Any]:
        """A and |A| in float64, made once."""
        if self._float64 is None:
            with np.errstate(over="ignore"):
                exact = self.ready.matrix.astype(self.device.dtype).astype(np.float64)
            self._float64 = exact, abs(exact)
        return self._float64


@dataclass(frozen=True)
class _Loaded:
    """A kernel on the GPU with what it reads; `out` is what it writes, without padding."""

    session: CudaSession
    work: Work
    whole: Any
    out: Any
    pack_s: float
    packed_bytes: int


class _Measurement:
    """The operands of one task, and what runs on them."""

    def __init__(self, case: DeviceCase, prepared: Prepared, rates: Rates, skip: Collection[str]) -> None:
        import cupy as cp

        assert prepared.reference is not None
        assert prepared.kernel is not None
        assert prepared.traffic is not None
        self.case, self.device, self.prepared, self.rates = case, case.device, prepared, rates
        self.reference: Reference = prepared.reference
        self.skip = skip
        self.kernel = prepared.kernel
        self.loaded: dict[str, _Loaded] = {}
        self.padded: dict[tuple[int, tuple[int, ...]], Any] = {}
        self.theirs: dict[str, dict[str, Any]] = {}
        self.steps = self._baselines()
        self.k = prepared.task.k
        rows, columns = case.ready.matrix.shape
        wide = (self.k,) if self.k else ()
        self.right = dense(cp, (columns, *wide), seed_of(case.ready.case, prepared.task), self.device.dtype)
        self.out = cp.empty((rows, *wide), self.device.dtype)
        where = self.reference.rows
        self.checked_rows = None if where is None else cp.asarray(where)
        self.expected, self.scale = cp.asarray(self.reference.expected), cp.asarray(self.reference.scale)

    def row(self, choose: Choose | None) -> dict[str, Any]:
        wall: dict[str, float] = {}
        kernels, about = {OURS: self.kernel}, {}
        if choose is not None:
            with Part(wall, "search"):
                tuned, about = choose(self)
            if tuned is not None and tuned.digest != self.kernel.digest:
                kernels = {OURS: tuned, OURS_DEFAULT: self.kernel}
        with Part(wall, "ours"):
            ours = {name: self._our_kernel(name, kernel) for name, kernel in kernels.items()}
        with Part(wall, "baselines"):
            while self.meanwhile():
                pass
        with Part(wall, "timing"):
            self._time(ours)
        traffic = self.prepared.traffic
        assert traffic is not None
        beside = {
            "baselines": list(self.theirs.values()),
            "bounds_us": traffic.times_us(self.rates),
            "traffic": asdict(traffic),
        }
        return _chosen(ours) | beside | about | {"wall": wall}

    def _time(self, ours: dict[str, dict[str, Any]]) -> None:
        """Time what is right, ours and theirs in turns."""
        every = ours | self.theirs
        work: dict[str, Work] = {name: entry["work"] for name, entry in every.items() if entry.get("work")}
        self.device.doing, self.device.baseline = "timing", ""
        timings = self.device.clock.time(work, self._worth_it)
        for name, entry in every.items():
            entry.pop("work", None)
            entry |= _timed(timings[name]) if name in timings else {}

    def close(self) -> None:
        """Give back what is on the GPU."""
        self.steps.close()
        for entry in self.theirs.values():
            if "close" in entry:
                entry.pop("close")()
        for loaded in self.loaded.values():
            loaded.session.close()
        self.loaded.clear()

    def _worth_it(self, first: dict[str, float]) -> set[str]:
        """After a first look: ours, what people call, and whatever may be the best of CSR or of any format."""
        kept = {OURS, OURS_DEFAULT, cusparse.DEFAULT}
        theirs = {name: us for name, us in first.items() if name not in (OURS, OURS_DEFAULT)}
        col_major = {name: us for name, us in theirs.items() if name.endswith(cusparse.COL_MAJOR)}
        row_major = {name: us for name, us in theirs.items() if name not in col_major}
        csr = {name: us for name, us in row_major.items() if name.startswith("csr")}
        for rivals in (csr, row_major, col_major):
            kept |= {name for name, us in rivals.items() if us <= CLOSE * min(rivals.values())}
        return kept

    def repeated(self, times: int) -> tuple[int, bool]:
        loaded, first, differing = self._load(self.kernel), None, 0
        for _ in range(times):
            self._run_once(loaded)
            bits = loaded.out.view(f"u{loaded.out.dtype.itemsize}")
            if first is None:
                first = bits.copy()
            differing += bool((bits != first).any())
        return differing, self._verdict(loaded.out)["outcome"] == "right"

    # --- Candidates

    def candidate(self, kernel: Kernel, rounds: int, cutoff_us: float | None) -> Sample:
        """See `Bench`."""
        import cupy as cp

        self.device.doing, self.device.baseline = f"a candidate ({kernel.plan})", PLAN + kernel.digest
        seconds: dict[str, float] = {}
        try:
            sample = self._sample(kernel, rounds, cutoff_us, seconds)
        except cp.cuda.memory.OutOfMemoryError as e:
            sample = Sample("out-of-memory", why=str(e), seconds=seconds)
        except CheckFailed:
            raise  # the GPU is lost: what runs is in the record
        except DittoError as e:
            sample = Sample(e.code, why=e.message, seconds=seconds)
        self.device.doing, self.device.baseline = "between candidates", ""
        return sample

    def _sample(self, kernel: Kernel, rounds: int, cutoff_us: float | None, seconds: dict[str, float]) -> Sample:
        import cupy as cp

        check = None
        if kernel.digest not in self.loaded:
            with Part(seconds, "load"):
                loaded = self._load(kernel)
            with Part(seconds, "check"):
                self._run_once(loaded)
                part = loaded.out if self.checked_rows is None else loaded.out[self.checked_rows]
                found = quick_check(cp, part, self.expected, self.scale, self.device.dtype)
            check = found.to_json()
            if not found.passed:
                return Sample("wrong", (), check, f"{found.wrong} of {found.components} components are wrong", seconds)
        with Part(seconds, "time"):
            samples = self.device.clock.quick(self.loaded[kernel.digest].work, rounds, cutoff_us)
        return Sample(OK, samples, check, seconds=seconds)

    def meanwhile(self) -> bool:
        """Make, run and check one more baseline; False when all are."""
        return next(self.steps, False)

    # --- Ours

    def _load(self, kernel: Kernel) -> _Loaded:
        """The kernel on the GPU with what it reads, once for this task."""
        if kernel.digest in self.loaded:
            return self.loaded[kernel.digest]
        package = kernel.package
        operand = next(o.name for o in package.computation.inputs if not o.sparse)
        output = package.computation.output.name
        laid = self.case.packed.lay(package, self.k)
        shapes = {n: (laid.sizes[f"{n}.dim0"], *self.right.shape[1:]) for n in (operand, output)}
        right, whole = self._padded(self.right, shapes[operand]), self._padded(self.out, shapes[output])
        arrays: dict[str, Any] = {operand: right, output: whole}
        arrays |= {b.name: laid.arrays[b.name] for b in package.buffers if b.access != "write" and b.name not in arrays}
        session = CudaSession(package, laid.sizes)
        try:
            session.upload(arrays)
        except DittoError:
            session.close()
            raise

        def work(stream: Stream) -> None:
            session.launch(stream.pycuda)

        out = whole[: self.case.csr.shape[0]]
        self.loaded[kernel.digest] = _Loaded(session, work, whole, out, laid.seconds, laid.bytes)
        return self.loaded[kernel.digest]

    def _padded(self, array: Any, shape: tuple[int, ...]) -> Any:
        """`array`, or one with zeros up to `shape` (blocked formats read whole blocks), made once."""
        import cupy as cp

        if array.shape == shape:
            return array
        key = (id(array), shape)
        if key not in self.padded:
            self.padded[key] = cp.zeros(shape, array.dtype)
            self.padded[key][tuple(slice(n) for n in array.shape)] = array
        return self.padded[key]

    def _run_once(self, loaded: _Loaded) -> None:
        """Run on a poisoned output, and wait.  Raises `CheckFailed` when the kernel faults."""
        import cupy as cp

        loaded.whole.fill(np.nan)
        cp.cuda.Device().synchronize()
        loaded.work(self.device.stream)
        loaded.session.synchronize()

    def _our_kernel(self, name: str, kernel: Kernel) -> dict[str, Any]:
        self.device.doing, self.device.baseline = f"{name} ({kernel.plan})", ""
        loaded = self._load(kernel)
        self._run_once(loaded)
        entry: dict[str, Any] = {
            "plan": kernel.plan,
            "digest": kernel.digest,
            "seconds": dict(kernel.seconds) | {"pack": loaded.pack_s},
            "bytes_per_nonzero": loaded.packed_bytes / max(1, self.case.csr.nnz),
            "resources": [asdict(r) for r in loaded.session.resources()],
        }
        entry |= self._verdict(loaded.out)
        if entry["outcome"] == "right":
            entry["work"] = loaded.work
        return entry

    def _verdict(self, result: Any) -> dict[str, Any]:
        import cupy as cp

        def fetch(rows: Array | None) -> Array:
            part = result if rows is None else result[self.checked_rows]
            return np.asarray(cp.asnumpy(part))

        check = self.reference.check(fetch)
        entry: dict[str, Any] = {"check": check.to_json() | {"what": self.reference.describe()}, "outcome": "right"}
        good = check.passed
        if self.reference.rows is not None:
            projected = self._project(result)
            entry["projection"] = projected.to_json()
            good = good and projected.passed
        return entry | ({} if good else {"outcome": "wrong"})

    def _project(self, result: Any) -> Any:
        import cupy as cp

        r = cp.asarray(dense(np, (self.k,), 77, "float32").astype(np.float64))
        step = max(1, _PROJECTED // self.k)

        def times(matrix: Any, absolute: bool) -> Array:
            out = cp.empty(matrix.shape[0], cp.float64)
            for first in range(0, matrix.shape[0], step):
                part = matrix[first : first + step].astype(cp.float64)
                out[first : first + step] = cp.abs(part) @ cp.abs(r) if absolute else part @ r
            return np.asarray(cp.asnumpy(out))

        right, scale = times(self.right, False), times(self.right, True)
        return projection_check(*self.case.float64(), right, scale, times(result, False), self.device.dtype)

    # --- Theirs

    def _baselines(self) -> Generator[bool, None, None]:
        """Make, run and check all of them, one at a time, into `theirs`."""
        import cupy as cp

        sets = [("row", self.right, self.out)]
        if self.device.col_major and self.k:
            sets.append(("col", cp.ascontiguousarray(self.right.T), cp.empty(self.out.shape[::-1], self.out.dtype)))
        for order, right, out in sets:
            made = cusparse.baselines(self.prepared.task.op, self.case.csr, right, out, order, self.skip)
            while True:
                self.device.doing, self.device.baseline = "making baselines", ""
                baseline = next(made, None)
                if baseline is None:
                    break
                self.theirs[baseline.name] = self._baseline(baseline, out.T if order == "col" else out)
                self.device.doing, self.device.baseline = "between baselines", ""
                yield True

    def _baseline(self, baseline: cusparse.Baseline, out: Any) -> dict[str, Any]:
        """Run one and check it."""
        import cupy as cp

        self.device.doing, self.device.baseline = f"cuSPARSE {baseline.name}", baseline.name
        entry: dict[str, Any] = {
            "name": baseline.name,
            "family": baseline.family,
            "preprocess": baseline.preprocess,
            "seconds": baseline.seconds,
            "close": baseline.close,
        }
        if baseline.run is None:
            return entry | {"outcome": "failed", "why": baseline.failure}
        out.fill(np.nan)
        cp.cuda.Device().synchronize()
        try:
            baseline.run(self.device.stream)
            self.device.stream.synchronize()
        except cusparse.CusparseError as e:
            return entry | {"outcome": "failed", "why": str(e)}
        except cp.cuda.runtime.CUDARuntimeError as e:
            if not alive():
                raise
            return entry | {"outcome": "failed", "why": str(e)}
        part = out if self.checked_rows is None else out[self.checked_rows]
        check = quick_check(cp, part, self.expected, self.scale, self.device.dtype)
        worst = check.to_json()["worst"]
        if not check.passed:
            return entry | {"outcome": "wrong", "worst": worst, "why": f"{check.wrong} components are wrong"}
        return entry | {"outcome": "right", "worst": worst, "work": baseline.run}


def _chosen(ours: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Ours as a row has it: the tuned kernel with the default one beside it, in this order unless the default is faster."""
    mine, default = ours[OURS], ours.get(OURS_DEFAULT)
    if default is None:
        return mine
    if mine["outcome"] == default["outcome"] == "right" and default.get("us", 0.0) < mine.get("us", 0.0):
        return default | {"default_plan": default, "not_kept": mine}
    return mine | {"default_plan": default}


def _timed(timing: Timing | str) -> dict[str, Any]:
    if isinstance(timing, str):
        return {"outcome": "failed", "why": f"timing: {timing}"}
    return {"us": timing.us, "iqr_us": timing.iqr_us, "rounds": timing.rounds, "calls": timing.calls, "method": timing.method}
