"""The simt back end: run S4 kernels on this machine's processors, and check what they do.

Every GPU thread is a fiber; barriers, shuffles, shared memory and atomics behave as on the GPU.  With `checks`
on, a launch stops at the first access outside of its buffer, data race, divergent barrier or shuffle, read of
shared memory that nothing wrote, misaligned vector access, or write to a read-only buffer, and names it.

The runtime itself is `compiler/native/simt.cpp`; how a kernel gets its calls is `simt_lowering.py`.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from mlir import ir
from mlir.execution_engine import ExecutionEngine

import sparseditto.compiler as package
from sparseditto.compiler.runtimes.simt_kernel import ELEMENTS, Argument, Kernel
from sparseditto.compiler.runtimes.simt_lowering import lower
from sparseditto.dialects.errors import CheckFailed, InputError, StepFailed, did_you_mean

_LIBRARY = "libditto_simt.so"
_VERSION = 1
_MAX_THREADS = 1024  # of a block, as on every NVIDIA GPU
_MAX_BLOCKS = (1 << 30) - 1  # the shadow memory numbers blocks with 30 bits
_MAX_WORKERS = 16  # each maps up to 1024 stacks, and the kernel limits mappings
_POLL_MS = 50  # how long Ctrl-C may have to wait


class SimtModule:
    """S4 text or module, lowered and compiled once, to be launched any number of times.

    `checks=False` leaves the checks of memory accesses out: faster, and as unforgiving as the GPU (a wild store
    ends the process).  `threads` is the number of processors that share the blocks of a launch, 16 at most.
    """

    def __init__(self, s4: str | ir.Module, *, checks: bool = True, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"threads={threads}: at least one is needed")
        library = _library()
        text = s4 if isinstance(s4, str) else s4.operation.get_asm(enable_debug_info=True)
        self.checks = checks
        self._workers = min(threads or len(os.sched_getaffinity(0)), _MAX_WORKERS)
        self._library = library
        module, kernels = lower(text, checks=checks)
        self._engine = _compile(module)
        self._kernels = {kernel.name: _Launcher(kernel, self._engine) for kernel in kernels}

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in the order of the module."""
        return tuple(self._kernels)

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[np.ndarray[Any, Any] | int | float | np.floating[Any]],
        *,
        shared_bytes: int = 0,
    ) -> None:
        """Run `kernel` to its end; arrays are read and written in place.

        `shared_bytes` is the size of dynamic shared memory.  Raises `CheckFailed` at the kernel's first fault
        (arrays then hold what it had written so far), and `InputError` when it cannot be launched like this.
        """
        launcher = self._kernels.get(kernel)
        if launcher is None:
            raise InputError(f"there is no kernel '{kernel}'{did_you_mean(kernel, self._kernels)}", where="simt")
        _check_shape(launcher.kernel, grid, block, shared_bytes)
        bound = _bind(launcher.kernel, arguments)
        if math.prod(grid) == 0:
            return
        try:
            launcher.run(self._library, bound, grid, block, shared_bytes, self._workers, self.checks)
        finally:
            bound.copy_back()


# --- The library ------------------------------------------------------------------------------------


class _Buffer(ctypes.Structure):
    """`DittoBuffer` of simt.cpp."""

    _fields_: ClassVar = [
        ("name", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("unit", ctypes.c_int32),
        ("flags", ctypes.c_int32),
    ]


class _Site(ctypes.Structure):
    """`DittoSite` of simt.cpp."""

    _fields_: ClassVar = [
        ("where", ctypes.c_char_p),
        *((name, ctypes.c_int32) for name in ("kind", "buffer", "bytes", "lanes", "align", "masked")),
    ]


class _Launch(ctypes.Structure):
    """`DittoLaunch` of simt.cpp."""

    _fields_: ClassVar = [
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("argument_count", ctypes.c_int64),
        ("buffers", ctypes.POINTER(_Buffer)),
        ("buffer_count", ctypes.c_int64),
        ("sites", ctypes.POINTER(_Site)),
        ("site_count", ctypes.c_int64),
        ("grid", ctypes.c_int64 * 3),
        ("block", ctypes.c_int64 * 3),
        ("dynamic_bytes", ctypes.c_int64),
        ("stack_bytes", ctypes.c_int64),
        ("workers", ctypes.c_int32),
        ("checks", ctypes.c_int32),
    ]


def _library_path() -> Path:
    """The library beside the package; an editable install keeps it in another folder of the package's path."""
    folders = [Path(__file__).parent.parent, *map(Path, package.__path__)]
    for folder in folders:
        if (folder / "native" / _LIBRARY).is_file():
            return folder / "native" / _LIBRARY
    raise InputError(
        f"{_LIBRARY} is missing from {folders[0] / 'native'}, so there is no emulator; "
        "build it with 'make build', or install the package with 'pip install .'"
    )


@functools.cache
def _library() -> ctypes.CDLL:
    path = _library_path()
    try:
        library = ctypes.CDLL(str(path))
        version = library.ditto_simt_version()
    except (OSError, AttributeError) as e:
        raise InputError(f"{path} is not this emulator's library; build it again with 'make build': {e}") from e
    if version != _VERSION:
        raise InputError(f"{path} is of version {version}, not {_VERSION}; build it again with 'make build'")
    library.ditto_simt_create.restype = ctypes.c_void_p
    library.ditto_simt_create.argtypes = [ctypes.POINTER(_Launch)]
    library.ditto_simt_run.restype = None
    library.ditto_simt_run.argtypes = [ctypes.c_void_p]
    library.ditto_simt_wait.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.ditto_simt_status.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)]
    library.ditto_simt_destroy.restype = None
    library.ditto_simt_destroy.argtypes = [ctypes.c_void_p]
    return library


def _compile(module: ir.Module) -> ExecutionEngine:
    try:
        return ExecutionEngine(module, opt_level=2, shared_libs=[str(_library_path())])
    except RuntimeError as e:
        raise StepFailed(f"the kernel does not compile to host code: {e}", where="simt") from e


# --- One launch -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bound:
    """Checked arguments: `values[i]` is what the kernel gets, an array or a number; `copies` are (array, its aligned copy)."""

    values: list[Any]
    copies: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = field(default_factory=list)

    def copy_back(self) -> None:
        for array, copy in self.copies:
            array[...] = copy


class _Launcher:
    """A compiled kernel, and the tables of it that do not change between launches."""

    def __init__(self, kernel: Kernel, engine: ExecutionEngine) -> None:
        self.kernel = kernel
        try:
            self._entry = engine.raw_lookup(kernel.symbol)
        except RuntimeError as e:
            raise StepFailed(f"the kernel needs a function that this machine lacks: {e}", where=kernel.name) from e
        if not self._entry:
            raise StepFailed("the compiled kernel cannot be found", where=kernel.name)
        sites = (_Site(s.where.encode(), s.kind, s.buffer, s.bytes, s.lanes, s.align, s.masked) for s in kernel.sites)
        self._sites = (_Site * len(kernel.sites))(*sites)

    def run(
        self,
        library: ctypes.CDLL,
        bound: _Bound,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        workers: int,
        checks: bool,
    ) -> None:
        cells = [_cell(a, v) for a, v in zip(self.kernel.arguments, bound.values, strict=True)]
        config = _Launch(
            entry=self._entry,
            arguments=(ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells)),
            argument_count=len(cells),
            buffers=self._buffers(bound, shared_bytes),
            buffer_count=len(self.kernel.buffers),
            sites=self._sites,
            site_count=len(self._sites),
            grid=tuple(map(int, grid)),
            block=tuple(map(int, block)),
            dynamic_bytes=shared_bytes,
            stack_bytes=self.kernel.stack_bytes,
            workers=workers,
            checks=checks,
        )
        self._finish(library, config)

    def _buffers(self, bound: _Bound, shared_bytes: int) -> ctypes.Array[_Buffer]:
        table = (_Buffer * len(self.kernel.buffers))()
        for row, buffer in zip(table, self.kernel.buffers, strict=True):
            row.name, row.unit, row.flags = buffer.name.encode(), buffer.unit, buffer.flags
            if buffer.argument is None:
                row.count = shared_bytes if buffer.count < 0 else buffer.count
            else:
                array = bound.values[buffer.argument]
                row.base, row.count = array.ctypes.data, array.size
        return table

    def _finish(self, library: ctypes.CDLL, config: _Launch) -> None:
        """Wait in short steps, so that Ctrl-C gets through; whatever happens, nothing runs on afterwards."""
        handle = library.ditto_simt_create(ctypes.byref(config))
        if not handle:
            raise InputError("not enough memory for this launch; checks=False needs less", where=self.kernel.name)
        try:
            library.ditto_simt_run(handle)
            while not library.ditto_simt_wait(handle, _POLL_MS):
                pass
            message = ctypes.c_char_p()
            status = library.ditto_simt_status(handle, ctypes.byref(message))
            text = (message.value or b"").decode()
        finally:
            library.ditto_simt_destroy(handle)
        if status == 1:
            raise CheckFailed(text, where=self.kernel.name)
        if status != 0:
            raise InputError(f"this machine cannot run the launch: {text}", where=self.kernel.name)


def _cell(argument: Argument, value: Any) -> Any:
    """A C variable that holds what the kernel gets."""
    if argument.pointer:
        return ctypes.c_void_p(value.ctypes.data)
    if argument.element in ("f32", "f64"):
        return (ctypes.c_float if argument.element == "f32" else ctypes.c_double)(float(value))
    return {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}[ELEMENTS[argument.element][0]](value)


# --- Checking what the caller gives ------------------------------------------------------------------


def _check_shape(kernel: Kernel, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int) -> None:
    """Raise `InputError` unless this kernel can be launched in this shape."""
    where = kernel.name
    for name, shape, least in (("grid", grid, 0), ("block", block, 1)):
        if len(shape) != 3 or not all(isinstance(n, (int, np.integer)) and n >= least for n in shape):
            raise InputError(f"{name} {shape} is not three integers of at least {least}", where=where)
    if math.prod(block) > _MAX_THREADS:
        raise InputError(f"a block of {math.prod(block)} threads; a GPU takes {_MAX_THREADS}", where=where)
    if math.prod(grid) > _MAX_BLOCKS:
        raise InputError(f"a grid of {math.prod(grid)} blocks; the emulator takes {_MAX_BLOCKS}", where=where)
    if kernel.block is not None and tuple(block) != kernel.block:
        raise InputError(f"block {tuple(block)}, but the kernel was compiled for {kernel.block}", where=where)
    if shared_bytes < 0:
        raise InputError(f"shared_bytes={shared_bytes} is negative", where=where)


def _bind(kernel: Kernel, arguments: Sequence[Any]) -> _Bound:
    """Check the arguments, and copy arrays that lie where no GPU allocation would (a slice, say)."""
    if len(arguments) != len(kernel.arguments):
        names = ", ".join(argument.name for argument in kernel.arguments)
        raise InputError(f"{len(arguments)} arguments given, {len(kernel.arguments)} needed: {names}", where=kernel.name)
    for argument, value in zip(kernel.arguments, arguments, strict=True):
        (_check_array if argument.pointer else _check_scalar)(kernel, argument, value)
    _check_overlap(kernel, arguments)
    bound = _Bound([])
    for argument, value in zip(kernel.arguments, arguments, strict=True):
        if argument.pointer and value.ctypes.data % argument.align:
            copy = _aligned_copy(value, argument.align)
            if not argument.read_only:
                bound.copies.append((value, copy))
            value = copy
        bound.values.append(value)
    return bound


def _check_scalar(kernel: Kernel, argument: Argument, value: Any) -> None:
    element = argument.element
    if element in ("f32", "f64"):
        if not isinstance(value, (int, float, np.integer, np.floating)):
            raise InputError(f"{argument.name} must be a number, not {_describe(value)}", where=kernel.name)
        return
    if not isinstance(value, (int, np.integer)):
        raise InputError(f"{argument.name} must be an integer, not {_describe(value)}", where=kernel.name)
    bits = ELEMENTS[element][0] * 8
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise InputError(f"{argument.name}={value} does not fit into {element}", where=kernel.name)


def _check_array(kernel: Kernel, argument: Argument, value: Any) -> None:
    def refuse(why: str) -> InputError:
        return InputError(f"{argument.name} {why}", where=kernel.name)

    if not isinstance(value, np.ndarray):
        raise refuse(f"must be a NumPy array, not {_describe(value)}")
    names = ELEMENTS[argument.element][1]
    if value.dtype.name not in names or not value.dtype.isnative:
        raise refuse(f"must be an array of {names[0]} ({argument.element} in the kernel), not of {value.dtype}")
    if not value.flags.c_contiguous:
        raise refuse("is not contiguous; pass np.ascontiguousarray of it")
    if not argument.read_only and not value.flags.writeable:
        raise refuse("is read-only, but the kernel may write to it")


def _check_overlap(kernel: Kernel, arguments: Sequence[Any]) -> None:
    """Memory that a kernel writes has one name in it: compilers rely on that, and so does the race check."""
    spans = [
        (argument, value.ctypes.data, value.ctypes.data + value.nbytes)
        for argument, value in zip(kernel.arguments, arguments, strict=True)
        if argument.pointer
    ]
    for i, (one, start, end) in enumerate(spans):
        for other, other_start, other_end in spans[:i]:
            if max(start, other_start) < min(end, other_end) and not (one.read_only and other.read_only):
                raise InputError(
                    f"{other.name} and {one.name} overlap in memory, and the kernel may write to them", where=kernel.name
                )


def _aligned_copy(array: np.ndarray[Any, Any], align: int) -> np.ndarray[Any, Any]:
    room = np.empty(array.nbytes + align, np.uint8)
    start = -room.ctypes.data % align
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _describe(value: Any) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{type(value).__name__} {value!r}"
