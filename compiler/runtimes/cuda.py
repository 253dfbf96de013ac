"""The GPU runtime: a kernel package's PTX is loaded by the driver, run on arrays, and timed.

pycuda owns context, memory, module, streams and events; it is imported only when a GPU is asked for.  The driver calls
that it lacks are in `libcuda.py`; how runs are timed, in `timing.py`.  A session belongs to one thread at a time.
"""

from __future__ import annotations

import atexit
import functools
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.compiler.dtypes import as_bits, dtype_of
from sparseditto.compiler.package import Buffer, KernelPackage
from sparseditto.compiler.runtimes import libcuda
from sparseditto.compiler.runtimes.foreign import Foreign, foreign_array
from sparseditto.compiler.runtimes.launches import ResolvedLaunch, resolve
from sparseditto.compiler.runtimes.resources import KernelResources
from sparseditto.compiler.runtimes.timing import LEAST_FLUSH, Clock, Timing, summary, time_warm
from sparseditto.compiler.sizes import evaluate
from sparseditto.dialects.errors import CheckFailed, DeviceError, InputError, did_you_mean

INSTALL = "pip install 'sparseditto[cuda]'"
FREE_SHARED = 48 * 1024  # bytes of shared memory that a block gets without asking
ALIGNMENT = 16  # bytes; kernels load vectors from the start of every buffer
POISON = 0xFF  # in every byte: NaN as a float, -1 as an integer


def available() -> str | None:
    """None when a GPU can be used, else the reason why not."""
    try:
        _driver()
    except DeviceError as e:
        return e.message
    return None


def versions(device: int = 0) -> dict[str, Any]:
    """What measurements depend on: driver, CUDA, pycuda, and which GPU it is.  Raises `DeviceError` without a GPU."""
    driver = _driver()
    gpu = _gpu(driver, device)
    cuda = driver.get_driver_version()
    return {
        "driver": _driver_release(),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "pycuda": _pycuda_version(),
        "gpu": gpu.name(),
        "sm_count": gpu.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT),
        "compute_capability": "{}.{}".format(*gpu.compute_capability()),
    }


def check_chip(chip: str, capability: tuple[int, int], gpu: str) -> None:
    """Raise `DeviceError` when PTX for `chip` does not run on a GPU of this compute capability.

    Plain PTX (sm_90) runs on that capability and every later one; with an `a` (sm_90a) on exactly that one; with an
    `f` (sm_100f) on later ones of the same major number.
    """
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", chip)
    if not match:
        raise DeviceError(f"'{chip}' is no PTX target; targets look like sm_90 or sm_90a")
    needed = (int(match[1]), int(match[2]))
    fits = {
        "": capability >= needed,
        "a": capability == needed,
        "f": capability >= needed and capability[0] == needed[0],
    }[match[3]]
    if not fits:
        word = {"": "or later", "a": "exactly", "f": "or later of the same family"}[match[3]]
        raise DeviceError(
            f"the kernel was compiled for {chip} (compute capability {needed[0]}.{needed[1]} {word}), "
            f"but {gpu} has {capability[0]}.{capability[1]}; compile it for sm_{capability[0]}{capability[1]}"
        )


class CudaSession:
    """One package on one GPU: `upload`, `launch`, `download`, or `time`; use it in a `with` statement.

    The context is the device's primary one, which torch and CuPy use too; it is retained for the life of the process.
    Raises `InputError` when sizes or scalars are missing or sizes contradict the package, and `DeviceError` when there is
    no such GPU, the GPU is too old for the kernel, the driver refuses the PTX (with its log), or a launch exceeds what the
    GPU has.
    """

    def __init__(
        self, package: KernelPackage, sizes: Mapping[str, int], device: int = 0, scalars: Mapping[str, float] | None = None
    ) -> None:
        self.package = package
        self.sizes = _merged(package.sizes, sizes)
        self.launches = resolve(package, self.sizes, scalars)
        self._shapes = {buffer.name: _shape(buffer, self.sizes) for buffer in package.buffers}
        self._places: dict[str, _Place] = {}
        self._pycuda = _driver()
        self._gpu = _gpu(self._pycuda, device)
        self._ordinal = device
        check_chip(package.chip, self._gpu.compute_capability(), self._gpu.name())
        self._context = _primary_context(self._pycuda, device)
        self._open = True
        with self._current():
            self._module = self._loaded()
            self._calls = [(launch, self._function(launch)) for launch in self.launches]
            overlapping = [launch for launch in self.launches if launch.overlap]
            self._beside = libcuda.Module(package.ptx) if overlapping else None
            self._overlapping = {launch: self._beside.function(launch) for launch in overlapping} if self._beside else {}

    def __enter__(self) -> CudaSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Free the device memory and unload the module.  Closing twice is allowed."""
        if not self._open:
            return
        with self._current():
            for place in self._places.values():
                place.free()
            self._places.clear()
            self._calls.clear()
            self._module = None
            if self._beside is not None:
                self._beside.close()
        self._open = False

    def upload(self, arrays: Mapping[str, Any]) -> None:
        """Place `arrays`, by buffer name, on the GPU, and poison each buffer that the kernel only writes.

        NumPy arrays are copied.  An object with `__cuda_array_interface__` (a torch or CuPy array) is used in place,
        without a copy and unpoisoned: that is also the way to choose where an output goes.  What was uploaded before
        and is not named stays.  Raises `InputError` when a name, dtype or shape is wrong, before anything is changed.
        """
        names = [buffer.name for buffer in self.package.buffers]
        for name in arrays:
            if name not in names:
                raise InputError(f"the kernel has no buffer '{name}'{did_you_mean(name, names)}; it has {', '.join(names)}")
        with self._current():
            checked = [(b, self._checked(b, arrays[b.name])) for b in self.package.buffers if b.name in arrays]
            for buffer, value in checked:
                self._place(buffer, value)
            for buffer in self.package.buffers:
                if buffer.access == "write":
                    self._poison(buffer)
            self._finish()  # for any stream to launch on: poisoning, and work on another library's arrays, are under way

    def launch(self, stream: Any = None) -> None:
        """Start all of the package's launches, in order, on `stream` (a pycuda stream; None is the default stream).

        Returns before they have finished; `download` and `synchronize` wait.  A buffer that the kernel reads and writes
        (C in C = A·B + C) is changed by every launch: upload it afresh before a launch whose result is to be checked.
        """
        with self._current():
            self._need_all()
            self._enqueue(stream)

    def synchronize(self) -> None:
        """Wait for the GPU.  Raises `CheckFailed` when a kernel faulted; the process cannot use the GPU afterwards."""
        with self._current():
            self._finish()

    def download(self, name: str) -> NDArray[Any]:
        """A copy of buffer `name`, once the GPU has finished.  Raises as `synchronize` does, and `InputError`."""
        with self._current():
            buffer = self._buffer(name)
            self._finish()
            result: NDArray[Any] = np.empty(self._shapes[name], dtype=dtype_of(buffer.dtype))
            if result.size:
                with self._refusals(f"copying '{name}' from the GPU"):
                    self._pycuda.memcpy_dtoh(as_bits(result), self._places[name].pointer)
        return result

    def resources(self) -> list[KernelResources]:
        """What each kernel takes, as the driver compiled it, and how many of its blocks one multiprocessor holds."""
        distinct = {(launch.kernel, launch.block, launch.shared_bytes): (launch, function) for launch, function in self._calls}
        with self._current(), self._refusals("asking for resources"):
            blocks = libcuda.blocks_per_sm(self.package.ptx, [launch for launch, _ in distinct.values()])
            return [self._resources(*call, count) for call, count in zip(distinct.values(), blocks, strict=True)]

    def time(self, rounds: int = 7, budget_s: float = 0.5, cold: bool = False) -> Timing:
        """Time the whole package on what was uploaded, warmed up, `rounds` times or as often as `budget_s` allows.

        Warm (the default) leaves the caches as the run before left them.  `cold` overwrites the L2 cache before every
        run and times each run alone; such a time includes about a microsecond of the events' own.
        The many runs change what the kernel reads and writes, so those buffers are restored afterwards, from a copy on
        the GPU.  Raises `InputError`, `DeviceError` when memory is short, and `CheckFailed` when the kernel faults.
        """
        if rounds < 1 or not budget_s > 0:
            raise InputError(f"timing needs rounds of at least 1 and a budget above 0 s, not {rounds} and {budget_s}")
        with self._current():
            self._need_all()
            return self._timing(rounds, budget_s, cold)

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make this session's context the current one; what was current before is so again afterwards."""
        if not self._open:
            raise DeviceError("the session is closed")
        self._context.push()
        try:
            yield
        finally:
            self._pycuda.Context.pop()

    @contextmanager
    def _refusals(self, doing: str) -> Iterator[None]:
        """Turn the driver's errors into `DeviceError`."""
        try:
            yield
        except self._pycuda.Error as e:
            raise DeviceError(f"{doing}: {e}", where=self._gpu.name()) from e

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn the driver's errors into `CheckFailed`, where they can only come from a kernel that ran."""
        try:
            yield
        except self._pycuda.Error as e:
            kernels = ", ".join(sorted({launch.kernel for launch in self.launches}))
            hint = "the emulator shows where, and this process cannot use the GPU again"
            raise CheckFailed(f"the GPU stopped with a fault: {e}; {hint}", where=kernels) from e

    def _loaded(self) -> Any:
        with self._refusals("the driver does not take the PTX"):
            return self._pycuda.module_from_buffer(self.package.ptx.encode() + b"\0")

    def _function(self, launch: ResolvedLaunch) -> Any:
        """The kernel of `launch`, ready to be called; its limits are checked here so that a launch cannot exceed them."""
        attribute = self._pycuda.function_attribute
        with self._refusals(f"the PTX has no kernel '{launch.kernel}'"):
            function = self._module.get_function(launch.kernel)
        function.prepare(launch.format)
        most = function.get_attribute(attribute.MAX_THREADS_PER_BLOCK)
        if launch.threads > most:
            registers = function.get_attribute(attribute.NUM_REGS)
            message = f"a block of {launch.threads} threads is too large: at most {most} fit, at {registers} registers each"
            raise DeviceError(message, where=launch.kernel)
        dynamic = max(other.shared_bytes for other in self.launches if other.kernel == launch.kernel)
        shared = dynamic + function.get_attribute(attribute.SHARED_SIZE_BYTES)
        limit = self._gpu.get_attribute(self._pycuda.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        if shared > limit:
            need = f"it needs {_bytes(shared)} of shared memory a block, and a block can have {_bytes(limit)}"
            raise DeviceError(need, where=launch.kernel)
        if shared > FREE_SHARED:
            with self._refusals(f"asking for {_bytes(shared)} of shared memory"):
                function.set_attribute(attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic)
        return function

    def _buffer(self, name: str) -> Buffer:
        """The buffer of that name, which must hold something."""
        if name not in self._shapes:
            raise InputError(f"the kernel has no buffer '{name}'{did_you_mean(name, self._shapes)}")
        if name not in self._places:
            raise InputError(f"nothing was uploaded for '{name}'")
        return self.package.buffer(name)

    def _need_all(self) -> None:
        missing = [buffer.name for buffer in self.package.buffers if buffer.name not in self._places]
        if missing:
            raise InputError(f"nothing was uploaded for {', '.join(missing)}")

    def _checked(self, buffer: Buffer, value: Any) -> NDArray[Any] | Foreign:
        """`value` as it can be placed.  Raises `InputError` when it does not fit the buffer."""
        foreign = foreign_array(buffer, value)
        if foreign is None and buffer.access == "write":
            message = "the kernel only writes it: leave it out, or give a GPU array to have it written there"
            raise InputError(message, where=buffer.name)
        array = np.asarray(value) if foreign is None else foreign
        shape = self._shapes[buffer.name]
        if array.dtype != dtype_of(buffer.dtype):
            raise InputError(f"is {array.dtype}, but the kernel was compiled for {buffer.dtype}", where=buffer.name)
        if _count(array.shape) != _count(shape) or _conflict(array.shape, shape):
            raise InputError(f"has shape {array.shape}; the kernel needs {shape}", where=buffer.name)
        if isinstance(array, Foreign):
            self._check_pointer(buffer, array)
            return array
        return np.ascontiguousarray(array)

    def _check_pointer(self, buffer: Buffer, array: Foreign) -> None:
        if not _count(array.shape):
            return
        if array.pointer % ALIGNMENT:
            raise InputError(f"does not start at a multiple of {ALIGNMENT} bytes; copy it first", where=buffer.name)
        ordinal = libcuda.pointer_device(array.pointer)
        if ordinal != self._ordinal:
            raise InputError(f"is on GPU {ordinal}, but the kernel runs on GPU {self._ordinal}", where=buffer.name)

    def _place(self, buffer: Buffer, value: NDArray[Any] | Foreign) -> None:
        if isinstance(value, Foreign) and _count(value.shape):
            self._replace(buffer.name, _Place(value.pointer, value.owner, ours=False))
            return
        place = self._own(buffer)
        if isinstance(value, np.ndarray) and value.size:
            with self._refusals(f"copying '{buffer.name}' to the GPU"):
                self._pycuda.memcpy_htod(place.pointer, as_bits(value))

    def _poison(self, buffer: Buffer) -> None:
        place = self._places.get(buffer.name) or self._own(buffer)
        count = self._buffer_bytes(buffer)
        if place.ours and count:
            with self._refusals(f"clearing '{buffer.name}'"):
                self._pycuda.memset_d8(place.pointer, POISON, count)

    def _own(self, buffer: Buffer) -> _Place:
        """Device memory of the session's own for `buffer`: what it has, or new."""
        place = self._places.get(buffer.name)
        if place is None or not place.ours:
            memory = self._allocate(f"'{buffer.name}'", self._buffer_bytes(buffer))
            place = self._replace(buffer.name, _Place(int(memory), memory, ours=True))
        return place

    def _replace(self, name: str, place: _Place) -> _Place:
        if name in self._places:
            self._places[name].free()
        self._places[name] = place
        return place

    def _buffer_bytes(self, buffer: Buffer) -> int:
        return _count(self._shapes[buffer.name]) * dtype_of(buffer.dtype).itemsize

    def _allocate(self, what: str, count: int) -> Any:
        """`count` bytes of device memory; a pointer that is not null even when count is 0."""
        try:
            return self._pycuda.mem_alloc(max(count, ALIGNMENT))
        except self._pycuda.MemoryError as e:
            free, total = self._pycuda.mem_get_info()
            need = f"{what} needs {_bytes(count)}, and {_bytes(free)} of {_bytes(total)} are free"
            raise DeviceError(f"the GPU's memory is too small: {need}", where=self._gpu.name()) from e

    def _enqueue(self, stream: Any) -> None:
        for launch, function in self._calls:
            arguments = [self._places[a].pointer if isinstance(a, str) else a for a in launch.arguments]
            if (overlapping := self._overlapping.get(launch)) is not None:
                handle = 0 if stream is None else int(stream.handle)
                libcuda.launch_overlapping(overlapping, launch, handle, arguments)
                continue
            with self._refusals(f"launching {launch.kernel}"):
                function.prepared_async_call(launch.grid, launch.block, stream, *arguments, shared_size=launch.shared_bytes)

    def _finish(self) -> None:
        with self._faults():
            self._pycuda.Context.synchronize()

    def _resources(self, launch: ResolvedLaunch, function: Any, blocks: int) -> KernelResources:
        attribute = self._pycuda.function_attribute
        threads = self._gpu.get_attribute(self._pycuda.device_attribute.MAX_THREADS_PER_MULTIPROCESSOR)
        return KernelResources(
            kernel=launch.kernel,
            registers=function.get_attribute(attribute.NUM_REGS),
            local_bytes=function.get_attribute(attribute.LOCAL_SIZE_BYTES),
            shared_bytes=function.get_attribute(attribute.SHARED_SIZE_BYTES) + launch.shared_bytes,
            max_threads=function.get_attribute(attribute.MAX_THREADS_PER_BLOCK),
            blocks_per_sm=blocks,
            occupancy=blocks * launch.threads / threads,
        )

    def _timing(self, rounds: int, budget_s: float, cold: bool) -> Timing:
        if not self._calls:
            return summary([0.0], 1, "graph", cold, "nothing is launched at these sizes")
        with self._faults(), self._preserved():
            clock = Clock(self._pycuda)
            if cold:
                timing = self._cold(clock, rounds, budget_s)
            else:
                timing = time_warm(clock, lambda: self._enqueue(clock.stream), rounds, budget_s)
            self._finish()
        return timing

    @contextmanager
    def _preserved(self) -> Iterator[None]:
        """Put what the kernel reads and writes back as it was."""
        changed = [b for b in self.package.buffers if b.access == "readwrite" and self._buffer_bytes(b)]
        copies: list[Any] = []
        try:
            for buffer in changed:
                copies.append(self._allocate(f"a copy of '{buffer.name}'", self._buffer_bytes(buffer)))
                self._pycuda.memcpy_dtod(copies[-1], self._places[buffer.name].pointer, self._buffer_bytes(buffer))
            self._finish()  # copies on the GPU are not waited for, and the timing stream does not wait for them either
            yield
            for buffer, copy in zip(changed, copies, strict=True):
                self._pycuda.memcpy_dtod(self._places[buffer.name].pointer, copy, self._buffer_bytes(buffer))
            self._finish()
        finally:
            for copy in copies:
                copy.free()

    def _cold(self, clock: Clock, rounds: int, budget_s: float) -> Timing:
        count = max(2 * self._gpu.get_attribute(self._pycuda.device_attribute.L2_CACHE_SIZE), LEAST_FLUSH)
        memory = self._allocate("the buffer that flushes L2", count)

        def flush() -> None:
            self._pycuda.memset_d8_async(memory, 0, count, clock.stream)

        try:
            samples = clock.samples(lambda: self._enqueue(clock.stream), rounds, budget_s, before=flush)
        finally:
            memory.free()
        return summary(samples, 1, "events", cold=True, note=f"{_bytes(count)} are written before each run, to flush L2")


@dataclass(frozen=True)
class _Place:
    """Where a buffer is.  `owner` keeps the memory alive: our allocation, or the array of someone else."""

    pointer: int
    owner: Any
    ours: bool

    def free(self) -> None:
        if self.ours:
            self.owner.free()


def _driver() -> Any:
    """pycuda's driver module, initialised.  Raises `DeviceError` with the reason when no GPU can be used."""
    try:
        import pycuda.driver as driver
    except ModuleNotFoundError as e:
        raise DeviceError(f"pycuda is not installed ({e}): {INSTALL}") from e
    except ImportError as e:
        raise DeviceError(f"pycuda does not load; is there a CUDA driver on this machine? {e}") from e
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as e:
        raise DeviceError(f"the CUDA driver finds no GPU: {e}") from e
    if count == 0:
        raise DeviceError("the CUDA driver finds no GPU")
    return driver


def _gpu(driver: Any, device: int) -> Any:
    count = driver.Device.count()
    if not 0 <= device < count:
        raise DeviceError(f"there is no GPU {device}; this machine has {count}, counted from 0")
    return driver.Device(device)


@functools.cache
def _primary_context(driver: Any, device: int) -> Any:
    """The device's primary context, retained once: making one anew takes a tenth of a second and more."""
    try:
        context = driver.Device(device).retain_primary_context()
    except driver.Error as e:
        raise DeviceError(f"the driver gives no context on GPU {device}: {e}") from e
    atexit.register(context.detach)  # left to its destructor, pycuda makes a call that is wrong for a primary context
    return context


def _driver_release() -> str:
    """The kernel driver's version (580.95.05), or "unknown" where the system does not tell."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return "unknown"


def _pycuda_version() -> str:
    import pycuda

    return str(pycuda.VERSION_TEXT)


def _merged(fixed: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
    for name in fixed.keys() & given.keys():
        if fixed[name] != given[name]:
            raise InputError(f"the kernel was compiled for {name} = {fixed[name]}, not {given[name]}; compile it again")
    return {**fixed, **given}


def _shape(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(evaluate(extent, sizes) for extent in buffer.shape)
    if any(extent < 0 for extent in shape):
        raise InputError(f"would have shape {shape}", where=buffer.name)
    return shape


def _count(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def _conflict(shape: tuple[int, ...], needed: tuple[int, ...]) -> bool:
    """Whether both are truly of several dimensions and differ; a flat array of the right length always does."""
    given, wanted = ([extent for extent in s if extent != 1] for s in (shape, needed))
    return len(given) > 1 and len(wanted) > 1 and given != wanted


def _bytes(count: int) -> str:
    """`count` bytes for people: 512 bytes, 1.5 KiB, 3.2 GiB."""
    if count < 1024:
        return f"{count} bytes"
    power = min(4, int(math.log2(count)) // 10)
    return f"{count / 1024**power:.1f} {'KMGT'[power - 1]}iB"
