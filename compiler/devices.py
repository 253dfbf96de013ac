"""What candidates are measured on: a GPU on which data stays between them, or a stand-in for one.

A device loads a package with what `Laid` holds for it and gives a run; a run launches, fetches the output, and is timed.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparseditto.compiler.execute import Inputs, run_simt
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.runtimes import cuda, libcuda
from sparseditto.compiler.runtimes.launches import resolve
from sparseditto.dialects.errors import DeviceError, DittoError


@dataclass(frozen=True)
class Laid:
    """Arrays and sizes for one package, with a key for each array that says what it holds, whichever package it is for."""

    inputs: Inputs
    arrays: dict[str, np.ndarray[Any, Any]]
    sizes: dict[str, int]
    keys: dict[str, Hashable]

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


class SimtDevice:
    """A stand-in for a GPU: results by emulation, and a cost instead of a time.

    The cost depends on the launches alone: a microsecond for each, and one for each thousand threads.
    """

    def versions(self) -> dict[str, Any]:
        return {}

    def healthy(self) -> bool:
        return True

    def forget(self, matrix: str) -> None:
        pass

    def bandwidth(self) -> None:
        return None

    def load(self, package: KernelPackage, identity: str, laid: Laid) -> SimtRun:
        return SimtRun(package, laid)


class SimtRun:
    def __init__(self, package: KernelPackage, laid: Laid) -> None:
        self._package, self._inputs = package, replace(laid.inputs, arrays=laid.arrays, sizes=laid.sizes)
        self._output: Any = None

    def launch(self) -> float:
        """Run, where that was not done before; gives the cost."""
        if self._output is None:
            self._output = run_simt(self._package, self._inputs)
        return self._cost()

    def fetch(self, lines: slice | None, axis: int) -> Any:
        return _part(self._output, lines, axis)

    def time(self, rounds: int, budget_s: float) -> tuple[float, ...]:
        return (self._cost(),) * rounds

    def _cost(self) -> float:
        launches = resolve(self._package, self._inputs.sizes, self._inputs.scalars)
        return sum(1 + math.prod(launch.grid) * launch.threads / 1000 for launch in launches)

    def resources(self) -> None:
        return None


@dataclass(eq=False)
class _Array:
    """Memory on the GPU that sessions use in place; freed when nobody has it any more."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pointer: int = field(init=False)

    def __post_init__(self) -> None:
        pointer = ctypes.c_ulonglong()
        libcuda.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(self.nbytes, 16)))
        self.pointer = pointer.value

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False), "strides": None, "version": 3}

    def __del__(self) -> None:
        with suppress(DeviceError, AttributeError):
            libcuda.call("cuMemFree_v2", ctypes.c_ulonglong(self.pointer))

    def upload(self, array: np.ndarray[Any, Any]) -> None:
        self._fill("cuMemcpyHtoD_v2", ctypes.c_void_p(array.ctypes.data))

    def copy_from(self, other: _Array) -> None:
        self._fill("cuMemcpyDtoD_v2", ctypes.c_ulonglong(other.pointer))

    def poison(self) -> None:
        """Every byte 0xFF: NaN as a float."""
        self._fill("cuMemsetD8_v2", ctypes.c_ubyte(0xFF))

    def _fill(self, name: str, source: Any) -> None:
        if self.nbytes:
            libcuda.call(name, ctypes.c_ulonglong(self.pointer), source, ctypes.c_size_t(self.nbytes))

    def download(self, lines: slice | None, axis: int) -> Any:
        """All of it, or some lines of the first axis; lines of another axis are taken from all of it."""
        if lines is None or axis:
            whole = np.empty(self.shape, self.dtype)
            self._download(whole, 0)
            return _part(whole, lines, axis)
        part = np.empty((lines.stop - lines.start, *self.shape[1:]), self.dtype)
        self._download(part, lines.start * math.prod(self.shape[1:]) * self.dtype.itemsize)
        return part

    def _download(self, array: np.ndarray[Any, Any], offset: int) -> None:
        if array.nbytes:
            target, source = ctypes.c_void_p(array.ctypes.data), ctypes.c_ulonglong(self.pointer + offset)
            libcuda.call("cuMemcpyDtoH_v2", target, source, ctypes.c_size_t(array.nbytes))


def _part(whole: Any, lines: slice | None, axis: int) -> Any:
    return whole if lines is None else whole[tuple(lines if k == axis else slice(None) for k in range(axis + 1))]


class CudaDevice:
    """One GPU of this process.  What candidates read stays there under its key; sessions of the latest ones stay loaded."""

    _SESSIONS = 12

    def __init__(self, ordinal: int) -> None:
        reason = cuda.available()
        if reason is not None:
            raise DeviceError(reason)
        self._ordinal = ordinal
        self._versions = cuda.versions(ordinal)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        libcuda.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        libcuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        libcuda.call("cuCtxSetCurrent", context)
        self._resident: dict[Hashable, _Array] = {}
        self._working: dict[str, _Array] = {}
        self._runs: OrderedDict[str, CudaRun] = OrderedDict()

    def versions(self) -> dict[str, Any]:
        return self._versions

    def healthy(self) -> bool:
        """Whether the context survived."""
        try:
            libcuda.call("cuCtxSynchronize")
        except DeviceError:
            return False
        return True

    def forget(self, matrix: str) -> None:
        """Keep of the last task only what the matrix of that name was packed into."""
        self._close_runs()
        self._working.clear()
        self._resident = {k: v for k, v in self._resident.items() if isinstance(k, tuple) and k[:2] == ("packed", matrix)}

    def bandwidth(self) -> float:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        libcuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        count = min(1 << 30, free.value // 4)
        source, target = (_Array((count,), np.dtype(np.uint8)) for _ in range(2))
        source.poison()
        best, repeats = math.inf, 5
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(repeats):
                target.copy_from(source)
            libcuda.call("cuCtxSynchronize")
            best = min(best, time.perf_counter() - start)
        return 2.0 * count * repeats / best

    def load(self, package: KernelPackage, identity: str, laid: Laid) -> CudaRun:
        """The package on the GPU with all that it reads.  When memory is short, what can be made again is freed first."""
        if identity in self._runs:
            self._runs.move_to_end(identity)
            return self._runs[identity]
        try:
            run = self._load(package, laid)
        except DeviceError as e:
            if "memory" not in e.message or not self.healthy():
                raise
            self._close_runs()
            self._working.clear()
            self._resident.clear()
            run = self._load(package, laid)
        self._runs[identity] = run
        while len(self._runs) > self._SESSIONS:
            self._runs.popitem(last=False)[1].close()
        return run

    def _load(self, package: KernelPackage, laid: Laid) -> CudaRun:
        output = package.computation.output.name
        arrays: dict[str, Any] = {}
        for buffer in package.buffers:
            if buffer.access == "read":
                arrays[buffer.name] = self._on_gpu(laid, buffer.name)
            elif buffer.access == "readwrite" and buffer.name != output:
                arrays[buffer.name] = laid.arrays[buffer.name]
        array = laid.arrays[output]
        working = self._working.get(output)
        if working is None or (working.shape, working.dtype) != (array.shape, array.dtype):
            working = self._working[output] = _Array(array.shape, array.dtype)
        start = self._on_gpu(laid, output) if laid.inputs.initial is not None else None
        return CudaRun(package, laid, {**arrays, output: working}, working, start, self._ordinal)

    def _on_gpu(self, laid: Laid, name: str) -> _Array:
        key, array = laid.keys[name], laid.arrays[name]
        if key not in self._resident:
            made = _Array(array.shape, array.dtype)
            made.upload(array)
            self._resident[key] = made
        return self._resident[key]

    def _close_runs(self) -> None:
        while self._runs:
            self._runs.popitem()[1].close()


class CudaRun:
    """One package loaded.  All runs of a task write to the same output, which each launch starts afresh."""

    def __init__(
        self,
        package: KernelPackage,
        laid: Laid,
        arrays: Mapping[str, Any],
        output: _Array,
        start: _Array | None,
        ordinal: int,
    ) -> None:
        self._output, self._start = output, start
        self._session = cuda.CudaSession(package, laid.sizes, ordinal, laid.inputs.scalars)
        try:
            self._session.upload(arrays)
        except DittoError:
            self._session.close()
            raise

    def launch(self) -> float:
        """Run once from the initial output; gives the microseconds until it was waited for."""
        if self._start is None:
            self._output.poison()
        else:
            self._output.copy_from(self._start)
        self._session.synchronize()
        start = time.perf_counter()
        self._session.launch()
        self._session.synchronize()
        return (time.perf_counter() - start) * 1e6

    def fetch(self, lines: slice | None, axis: int) -> Any:
        return self._output.download(lines, axis)

    def time(self, rounds: int, budget_s: float) -> tuple[float, ...]:
        return self._session.time(rounds, budget_s).samples_us

    def resources(self) -> list[dict[str, Any]]:
        return [r.to_json() for r in self._session.resources()]

    def close(self) -> None:
        with suppress(DittoError):
            self._session.close()
