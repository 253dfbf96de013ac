"""One task on a GPU: upload, run every baseline and ours, check each against the reference, and time those that are right."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from benchmarks import cusparse
from benchmarks.bounds import Rates
from benchmarks.operands import Array, Reference, dense, projection_check, quick_check
from benchmarks.prepare import Kernel, Prepared, Ready, seed_of
from benchmarks.timing import Clock, Stream, Timing, Work
from sparseditto.compiler.api import bind_package
from sparseditto.compiler.execute import Layout, lay_out
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.runtimes.cuda import CudaSession
from sparseditto.dialects.errors import CheckFailed, DittoError

CLOSE = 1.3  # a baseline within this factor of the best of its kind is timed in full
OURS, OURS_DEFAULT = "ours", "ours by default"
_PROJECTED = 1 << 24  # elements at a time


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

    `doing` says what runs at the moment, and `baseline` which one when it is one, for whoever must explain a fault.
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
        self._float64: tuple[Any, Any] | None = None

    def measure(
        self, prepared: Prepared, rates: Rates, tuned: Kernel | None = None, skip: Collection[str] = ()
    ) -> dict[str, Any]:
        """The row of one task, without the baselines that `skip` names.

        Raises `GpuFault`; whatever else goes wrong is in the row.
        """
        import cupy as cp

        self.device.doing, self.device.baseline = "making the operands", ""
        try:
            return _Measurement(self, prepared, rates, tuned, skip).row()
        except cp.cuda.memory.OutOfMemoryError as e:
            return {"outcome": "out-of-memory", "why": str(e)}
        except CheckFailed as e:
            raise GpuFault(f"{self.device.doing}: {e}") from e
        except DittoError as e:
            return {"outcome": e.code, "why": f"{self.device.doing}: {e}"}
        except cp.cuda.runtime.CUDARuntimeError as e:
            raise GpuFault(f"{self.device.doing}: {e}") from e
        finally:
            cp.get_default_memory_pool().free_all_blocks()

    def uploaded(self) -> dict[tuple[int, int, str], Any]:
        """What of the matrix is on the GPU, by where it is on the host: a plan that packs CSR as it is uploads nothing."""
        csr = self.ready.matrix
        pairs = [(csr.indptr, self.csr.starts), (csr.indices, self.csr.columns), (csr.data, self.csr.values)]
        return {_place(host): array for host, array in pairs if host.size and str(host.dtype) == str(array.dtype)}

    def float64(self) -> tuple[Any, Any]:
        """A and |A| in float64, made once."""
        if self._float64 is None:
            with np.errstate(over="ignore"):
                exact = self.ready.matrix.astype(self.device.dtype).astype(np.float64)
            self._float64 = exact, abs(exact)
        return self._float64


def _place(array: Array) -> tuple[int, int, str]:
    return array.__array_interface__["data"][0], array.nbytes, str(array.dtype)


class _Measurement:
    """The operands of one task, and what runs on them."""

    def __init__(self, case: DeviceCase, prepared: Prepared, rates: Rates, tuned: Kernel | None, skip: Collection[str]) -> None:
        import cupy as cp

        assert prepared.reference is not None
        assert prepared.kernel is not None
        assert prepared.traffic is not None
        self.case, self.device, self.prepared, self.rates = case, case.device, prepared, rates
        self.reference: Reference = prepared.reference
        self.skip = skip
        self.kernels = {OURS: tuned or prepared.kernel} | ({OURS_DEFAULT: prepared.kernel} if tuned else {})
        self.k = prepared.task.k
        rows, columns = case.ready.matrix.shape
        wide = (self.k,) if self.k else ()
        self.right = dense(cp, (columns, *wide), seed_of(case.ready.case, prepared.task), self.device.dtype)
        self.out = cp.empty((rows, *wide), self.device.dtype)
        where = self.reference.rows
        self.checked_rows = None if where is None else cp.asarray(where)
        self.expected, self.scale = cp.asarray(self.reference.expected), cp.asarray(self.reference.scale)

    def row(self) -> dict[str, Any]:
        ours = self._ours()
        theirs = self._theirs()
        work: dict[str, Work] = {name: entry["work"] for name, entry in (ours | theirs).items() if entry.get("work")}
        self.device.doing = "timing"
        timings = self.device.clock.time(work, self._worth_it)
        for name, entry in (ours | theirs).items():
            entry.pop("work", None)
            entry |= _timed(timings[name]) if name in timings else {}
        for entry in (*ours.values(), *theirs.values()):
            entry.pop("close")()
        mine = ours.pop(OURS)
        traffic = self.prepared.traffic
        assert traffic is not None
        bounds = traffic.times_us(self.rates)
        row = mine | {"baselines": list(theirs.values()), "bounds_us": bounds, "traffic": asdict(traffic)}
        if OURS_DEFAULT in ours:
            row["default_plan"] = ours[OURS_DEFAULT]
        return row

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

    # --- Ours

    def _ours(self) -> dict[str, dict[str, Any]]:
        return {name: self._our_kernel(name, kernel) for name, kernel in self.kernels.items()}

    def _our_kernel(self, name: str, kernel: Kernel) -> dict[str, Any]:
        import cupy as cp

        self.device.doing = f"{name} ({kernel.plan})"
        package, csr = kernel.package, self.case.ready.matrix
        operand = next(o.name for o in package.computation.inputs if not o.sparse)
        output = package.computation.output.name
        laid = _laid_out(package, csr, self.k)
        shapes = {n: (laid.sizes[f"{n}.dim0"], *self.right.shape[1:]) for n in (operand, output)}
        right, out = _padded(self.right, shapes[operand]), self.out
        if out.shape != shapes[output]:
            out = cp.empty(shapes[output], self.device.dtype)
        there = self.case.uploaded()
        arrays: dict[str, Any] = {operand: right, output: out}
        for buffer in package.buffers:
            if buffer.access != "write" and buffer.name not in arrays:
                host = laid.arrays[buffer.name]
                arrays[buffer.name] = there.get(_place(host), host)
        packed = sum(array.nbytes for n, array in laid.arrays.items() if n.startswith("A."))
        session = CudaSession(package, laid.sizes)
        session.upload(arrays)

        def work(stream: Stream) -> None:
            session.launch(stream.pycuda)

        out.fill(np.nan)
        cp.cuda.Device().synchronize()
        work(self.device.stream)
        session.synchronize()
        result = out[: csr.shape[0]]
        entry: dict[str, Any] = {
            "plan": kernel.plan,
            "digest": kernel.digest,
            "seconds": dict(kernel.seconds) | {"pack": laid.seconds},
            "bytes_per_nonzero": packed / max(1, csr.nnz),
            "resources": [asdict(r) for r in session.resources()],
            "close": session.close,
        }
        entry |= self._verdict(result)
        if entry["outcome"] == "right":
            entry["work"] = work
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

    def _theirs(self) -> dict[str, dict[str, Any]]:
        import cupy as cp

        sets = [("row", self.right, self.out)]
        if self.device.col_major and self.k:
            sets.append(("col", cp.ascontiguousarray(self.right.T), cp.empty(self.out.shape[::-1], self.out.dtype)))
        found: dict[str, dict[str, Any]] = {}
        for order, right, out in sets:
            self.device.doing = "making baselines"
            for baseline in cusparse.baselines(self.prepared.task.op, self.case.csr, right, out, order, self.skip):
                found[baseline.name] = self._baseline(baseline, out.T if order == "col" else out)
        self.device.baseline = ""
        return found

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
        worst, wrong = quick_check(cp, part, self.expected, self.scale, self.device.dtype)
        if wrong:
            return entry | {"outcome": "wrong", "worst": worst, "why": f"{wrong} components are wrong"}
        return entry | {"outcome": "right", "worst": worst, "work": baseline.run}


def _laid_out(package: KernelPackage, csr: Any, k: int) -> Layout:
    """The packed matrix and all sizes; dense operands are on the GPU already."""
    problem = bind_package(package, {"A": csr})
    free = [d for d in package.computation.output.dims if d not in package.computation.sparse.dims]
    return lay_out(package, replace(problem, sizes={**problem.sizes, **dict.fromkeys(free, k)}))


def _padded(array: Any, shape: tuple[int, ...]) -> Any:
    """`array`, with zeros up to `shape` (blocked formats read whole blocks)."""
    import cupy as cp

    if array.shape == shape:
        return array
    padded = cp.zeros(shape, array.dtype)
    padded[tuple(slice(n) for n in array.shape)] = array
    return padded


def _timed(timing: Timing | str) -> dict[str, Any]:
    if isinstance(timing, str):
        return {"outcome": "failed", "why": f"timing: {timing}"}
    return {"us": timing.us, "iqr_us": timing.iqr_us, "rounds": timing.rounds, "calls": timing.calls, "method": timing.method}


def machine(rates: Rates) -> dict[str, Any]:
    """What the numbers were measured with."""
    from sparseditto.compiler.runtimes.cuda import versions

    start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"time": start, "gpu": versions(), "cusparse": cusparse.version(), "rates": rates.to_json()}
