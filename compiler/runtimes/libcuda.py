"""Calls of the CUDA driver's own library, for what pycuda lacks: graphs, launches that overlap, occupancy, whose a pointer is.

All act on the context that is current in this thread.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from sparseditto.compiler.runtimes.launches import ResolvedLaunch
from sparseditto.dialects.errors import DeviceError, InputError


def call(name: str, *arguments: Any) -> None:
    """Call libcuda's function `name`.  Raises `DeviceError` when it is absent or fails."""
    library = _libcuda()
    function = getattr(library, name, None)
    if function is None:
        raise DeviceError(f"the CUDA driver is too old: it has no {name}")
    code = function(*arguments)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorString(code, ctypes.byref(text))
        raise DeviceError(f"{name} failed: {(text.value or b'error %d' % code).decode()}")


@functools.cache
def _libcuda() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise DeviceError(f"the CUDA driver library does not load: {e}") from e


# CU_DEVICE_ATTRIBUTE_… of cuda.h, in lower case.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "max_shared_memory_per_block": 8,
    "warp_size": 10,
    "max_registers_per_block": 12,
    "clock_rate": 13,
    "multiprocessor_count": 16,
    "memory_clock_rate": 36,
    "global_memory_bus_width": 37,
    "l2_cache_size": 38,
    "max_threads_per_multiprocessor": 39,
    "max_shared_memory_per_multiprocessor": 81,
    "max_registers_per_multiprocessor": 82,
    "max_shared_memory_per_block_optin": 97,
    "max_blocks_per_multiprocessor": 106,
    "max_persisting_l2_cache_size": 108,
    "reserved_shared_memory_per_block": 111,
}


def device_attributes(ordinal: int) -> dict[str, int]:
    """What the driver tells of GPU `ordinal`, in its units (kHz, bytes); 0 stands for what it does not know.

    The driver must be initialised.  Raises `DeviceError` where there is no such GPU.
    """
    device, value = ctypes.c_int(), ctypes.c_int()
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    told = {}
    for name, code in _ATTRIBUTES.items():
        call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(code), device)
        told[name] = value.value
    return told


class Graph:
    """`calls` runs of `once`, captured from `stream` into a CUDA graph that `launch` replays there."""

    _RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: memory that Python frees meanwhile does not spoil the capture

    def __init__(self, stream: Any, once: Callable[[], object], calls: int) -> None:
        self._stream = ctypes.c_void_p(stream.handle)
        self._executable = ctypes.c_void_p()
        graph = ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", self._stream, ctypes.c_int(self._RELAXED))
        try:
            try:
                for _ in range(calls):
                    once()
            finally:
                call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
            call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), graph, ctypes.c_ulonglong(0))
        finally:
            if graph:
                call("cuGraphDestroy", graph)

    def launch(self) -> None:
        call("cuGraphLaunch", self._executable, self._stream)

    def close(self) -> None:
        call("cuGraphExecDestroy", self._executable)


class Module:
    """PTX that is loaded beside pycuda's, which does not give out its function handles.  `close` unloads it."""

    def __init__(self, ptx: str) -> None:
        self._module = ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self._module), ctypes.c_char_p(ptx.encode()))

    def close(self) -> None:
        call("cuModuleUnload", self._module)

    def function(self, launch: ResolvedLaunch) -> ctypes.c_void_p:
        """The kernel of a launch, allowed the shared memory that it asks for."""
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), self._module, ctypes.c_char_p(launch.kernel.encode()))
        if launch.shared_bytes:  # 8: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuFuncSetAttribute", function, ctypes.c_int(8), ctypes.c_int(launch.shared_bytes))
        return function


def blocks_per_sm(ptx: str, launches: list[ResolvedLaunch]) -> list[int]:
    """For each launch, how many of its blocks one multiprocessor of the current context's GPU holds at a time."""

    def blocks(launch: ResolvedLaunch) -> int:
        count, threads, shared = ctypes.c_int(), ctypes.c_int(launch.threads), ctypes.c_size_t(launch.shared_bytes)
        function = module.function(launch)
        call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), function, threads, shared)
        return count.value

    module = Module(ptx)
    try:
        return [blocks(launch) for launch in launches]
    finally:
        module.close()


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h: the value is a union of 64 bytes, of which the first four are set here."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_int * 15))


class _Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_OVERLAPS = _Attribute(id=6, value=1)  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


def launch_overlapping(function: ctypes.c_void_p, launch: ResolvedLaunch, stream: int, arguments: list[Any]) -> None:
    """Start a kernel that waits by itself for what comes before it in the stream, and may start while that ends.

    `arguments` are the launch's, with pointers in place of the names of buffers.
    """
    values = [np.asarray(a) if isinstance(a, np.floating) else np.array(int(a), np.uint64) for a in arguments]
    places = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
    sizes = (ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block), launch.shared_bytes
    config = _Config(*sizes, stream, ctypes.pointer(_OVERLAPS), 1)
    call("cuLaunchKernelEx", ctypes.byref(config), function, places, None)


def pointer_device(pointer: int) -> int:
    """Which GPU the memory at `pointer` is on.  Raises `InputError` when it is no GPU memory."""
    ordinal = ctypes.c_int(-1)
    try:  # 9: CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        call("cuPointerGetAttribute", ctypes.byref(ordinal), ctypes.c_int(9), ctypes.c_ulonglong(pointer))
    except DeviceError as e:
        raise InputError(f"0x{pointer:x} is no GPU memory: {e}") from e
    return ordinal.value
