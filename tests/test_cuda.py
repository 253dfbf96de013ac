"""The GPU runtime: what it refuses and decides without a GPU, and, marked `cuda`, what it does on one."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparseditto.compiler.computation import Computation, Operand
from sparseditto.compiler.package import Buffer, KernelPackage, Launch
from sparseditto.compiler.runtimes import cuda, libcuda, timing
from sparseditto.compiler.runtimes.cuda import CudaSession, available, check_chip, versions
from sparseditto.compiler.runtimes.launches import GRID_LIMITS, resolve
from sparseditto.compiler.runtimes.resources import find_ptxas, ptxas_resources
from sparseditto.dialects.errors import CheckFailed, DeviceError, InputError

F32 = NDArray[np.float32]
BLOCKS = ("ceildiv(n, 128)", "1", "1")

# axpy: y += a x.  twice: z = 2 x.  far: z[i] = i, by way of the last bytes of 64 KiB of shared memory.  fault: writes to 0.
PTX = """.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];

.visible .entry axpy(.param .u64 px, .param .u64 py, .param .u64 pn, .param .u64 pa)
{
  .reg .pred %p; .reg .f32 %x, %y, %a; .reg .b32 %b, %t, %w, %g; .reg .b64 %i, %n, %o, %s, %ax, %ay;
  mov.u32 %b, %ctaid.x; mov.u32 %w, %ntid.x; mov.u32 %t, %tid.x; mad.lo.s32 %g, %b, %w, %t; cvt.u64.u32 %i, %g;
  ld.param.u64 %n, [pn]; setp.ge.s64 %p, %i, %n; @%p bra done;
  ld.param.u64 %ax, [px]; ld.param.u64 %ay, [py]; shl.b64 %o, %i, 2; add.s64 %ax, %ax, %o; add.s64 %ay, %ay, %o;
  ld.param.u64 %s, [pa]; cvt.rn.f32.s64 %a, %s;
  ld.global.f32 %x, [%ax]; ld.global.f32 %y, [%ay]; fma.rn.f32 %y, %a, %x, %y; st.global.f32 [%ay], %y;
done: ret;
}
.visible .entry twice(.param .u64 px, .param .u64 pz, .param .u64 pn) .maxntid 256, 1, 1
{
  .reg .pred %p; .reg .f32 %x; .reg .b32 %b, %t, %w, %g; .reg .b64 %i, %n, %o, %ax, %az;
  mov.u32 %b, %ctaid.x; mov.u32 %w, %ntid.x; mov.u32 %t, %tid.x; mad.lo.s32 %g, %b, %w, %t; cvt.u64.u32 %i, %g;
  ld.param.u64 %n, [pn]; setp.ge.s64 %p, %i, %n; @%p bra done;
  ld.param.u64 %ax, [px]; ld.param.u64 %az, [pz]; shl.b64 %o, %i, 2; add.s64 %ax, %ax, %o; add.s64 %az, %az, %o;
  ld.global.f32 %x, [%ax]; add.f32 %x, %x, %x; st.global.f32 [%az], %x;
done: ret;
}
.visible .entry far(.param .u64 pz)
{
  .reg .f32 %x; .reg .b32 %b, %t, %w, %g, %d, %e; .reg .b64 %o, %az;
  mov.u32 %b, %ctaid.x; mov.u32 %w, %ntid.x; mov.u32 %t, %tid.x; mad.lo.s32 %g, %b, %w, %t; cvt.rn.f32.u32 %x, %g;
  mov.u32 %d, dynamic; shl.b32 %e, %t, 2; add.u32 %d, %d, %e;
  st.shared.f32 [%d+65024], %x; bar.sync 0; ld.shared.f32 %x, [%d+65024];
  ld.param.u64 %az, [pz]; mul.wide.u32 %o, %g, 4; add.s64 %az, %az, %o; st.global.f32 [%az], %x; ret;
}
.visible .entry fault() { .reg .b64 %a; .reg .b32 %v; mov.u64 %a, 0; mov.u32 %v, 1; st.global.u32 [%a], %v; ret; }
"""

# The same for sm_90, where axpy waits for the kernel before it and then lets the next one start.
WAITING = (
    PTX.replace(".version 7.0", ".version 7.8")
    .replace(".target sm_80", ".target sm_90")
    .replace("%ax, %ay;\n", "%ax, %ay;\n  griddepcontrol.wait;\n  griddepcontrol.launch_dependents;\n", 1)
)

X = Buffer("x", "float32", ("n",), "read")
Y = Buffer("y", "float32", ("n",), "readwrite")
Z = Buffer("z", "float32", ("n",), "write")
AXPY = Launch("axpy", BLOCKS, (128, 1, 1), ("x", "y", "n", "a"))
TWICE = Launch("twice", BLOCKS, (128, 1, 1), ("x", "z", "n"))
FAR = Launch("far", BLOCKS, (128, 1, 1), ("z",), shared_bytes=65536)


def package(
    *launches: Launch, buffers: tuple[Buffer, ...] = (X, Y), ptx: str = PTX, chip: str = "sm_80", **sizes: int
) -> KernelPackage:
    vector = Operand("x", 0, "float32", (None,), (0,))
    computation = Computation("axpy", "linalg.generic", ("parallel",), (vector,), replace(vector, name="y"), None, (), 0)
    return KernelPackage(computation, chip, buffers, launches or (AXPY,), sizes, {}, {}, ptx, "")


def vector(n: int) -> F32:
    return np.random.default_rng(n).standard_normal(n, dtype=np.float32)


# Without a GPU


@pytest.mark.skipif(not find_ptxas(), reason="no ptxas: pip install nvidia-cuda-nvcc")
def test_the_kernels_of_these_tests_assemble() -> None:
    for ptx, chip in ((PTX, "sm_80"), (WAITING, "sm_90")):
        kernels, why = ptxas_resources(ptx, chip)
        assert kernels is not None, why
        assert {kernel.kernel for kernel in kernels} == {"axpy", "twice", "far", "fault"}


@pytest.fixture
def no_pycuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)


def test_importing_the_runtime_needs_neither_pycuda_nor_mlir() -> None:
    code = "import sys, sparseditto.compiler.runtimes.cuda; print({'pycuda', 'mlir'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.usefixtures("no_pycuda")
def test_without_pycuda_the_reason_says_how_to_install_it() -> None:
    reason = available()
    assert reason is not None
    assert reason.startswith("pycuda is not installed")
    assert reason.endswith("pip install 'sparseditto[cuda]'")
    for use in (versions, lambda: CudaSession(package(), {"n": 1, "a": 1})):
        with pytest.raises(DeviceError, match="sparseditto\\[cuda\\]"):
            use()


@pytest.mark.parametrize(
    ("chip", "capability"),
    [
        ("sm_80", (8, 0)),
        ("sm_80", (9, 0)),
        ("sm_89", (12, 0)),
        ("sm_90a", (9, 0)),
        ("sm_103", (10, 3)),
        ("sm_100f", (10, 3)),
        ("sm_120", (12, 1)),
    ],
)
def test_a_kernel_runs_on_its_chip_and_later_ones(chip: str, capability: tuple[int, int]) -> None:
    check_chip(chip, capability, "a GPU")


@pytest.mark.parametrize(
    ("chip", "capability"),
    [
        ("sm_90", (8, 9)),
        ("sm_90a", (10, 0)),
        ("sm_90a", (8, 0)),
        ("sm_100f", (12, 0)),
        ("sm_103f", (10, 0)),
        ("sm_120", (10, 3)),
    ],
)
def test_a_kernel_is_refused_on_another_chip(chip: str, capability: tuple[int, int]) -> None:
    with pytest.raises(DeviceError, match=rf"{chip} .*A100 has {capability[0]}\.{capability[1]}; compile it for sm_"):
        check_chip(chip, capability, "A100")


@pytest.mark.parametrize("chip", ["", "sm_9", "gfx942", "sm_90x"])
def test_what_is_no_chip_is_refused(chip: str) -> None:
    with pytest.raises(DeviceError, match="is no PTX target"):
        check_chip(chip, (9, 0), "a GPU")


def test_launches_are_worked_out_from_sizes() -> None:
    (launch,) = resolve(package(), {"n": 1000, "a": 3})
    assert launch.grid == (8, 1, 1)
    assert launch.arguments == ("x", "y", 1000, 3)
    assert launch.format == "PPqq"
    assert launch.threads == 128


def test_an_argument_that_is_a_buffer_and_a_size_is_the_buffer() -> None:
    (launch,) = resolve(package(), {"n": 1, "a": 3, "x": 7})
    assert launch.arguments == ("x", "y", 1, 3)


def test_an_empty_grid_is_skipped() -> None:
    assert resolve(package(), {"n": 0, "a": 3}) == ()


@pytest.mark.parametrize(
    ("grid", "block", "why"),
    [
        (("2147483648", "1", "1"), (1, 1, 1), "grid of"),
        (("1", "65536", "1"), (1, 1, 1), "grid of"),
        (("1", "1", "65536"), (1, 1, 1), "grid of"),
        (("0 - 1", "1", "1"), (1, 1, 1), "grid of"),
        (("0", "65536", "1"), (1, 1, 1), "grid of"),
        (("1", "1", "1"), (1, 1, 65), "block of"),
        (("1", "1", "1"), (0, 1, 1), "block of"),
        (("1", "1", "1"), (1024, 2, 1), "2048 threads"),
    ],
)
def test_what_no_gpu_takes_is_refused(grid: tuple[str, str, str], block: tuple[int, int, int], why: str) -> None:
    with pytest.raises(DeviceError, match=rf"axpy: a .*{why}"):
        resolve(package(replace(AXPY, grid=grid, block=block)), {"n": 1, "a": 1})


def test_the_largest_grid_is_taken() -> None:
    (launch,) = resolve(package(replace(AXPY, grid=("2147483647", "65535", "65535"))), {"n": 1, "a": 1})
    assert launch.grid == GRID_LIMITS


def test_a_missing_size_is_named() -> None:
    with pytest.raises(InputError, match="size 'a' is not known"):
        resolve(package(), {"n": 1})


# With a stand-in for the driver: memory is bytes, kernels are Python, and its clock ticks 10 µs a kernel


class Driver:
    """As much of `pycuda.driver` as the runtime calls."""

    Error = type("Error", (Exception,), {})
    MemoryError = type("MemoryError", (Error,), {})

    def __init__(self, capability: tuple[int, int] = (9, 0), room: int = 1 << 20, tick_us: float = 10.0) -> None:
        self.memory: dict[int, bytearray] = {}
        self.pointers = itertools.count(4096, 4096)
        self.calls: list[tuple[Any, ...]] = []
        self.depth, self.clock_us, self.room, self.tick_us = 0, 0.0, room, tick_us
        self.device_attribute = SimpleNamespace(
            MULTIPROCESSOR_COUNT=132, L2_CACHE_SIZE=1024, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=99 << 10
        )
        self.function_attribute = SimpleNamespace(
            MAX_THREADS_PER_BLOCK=512, NUM_REGS=128, SHARED_SIZE_BYTES=0, MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic"
        )
        self.Context = SimpleNamespace(pop=self.pop, synchronize=lambda: None)
        gpu = SimpleNamespace(
            name=lambda: "Stand-in",
            compute_capability=lambda: capability,
            get_attribute=lambda value: value,
            retain_primary_context=lambda: SimpleNamespace(push=self.push, detach=lambda: None),
        )
        self.Device = Devices(gpu)
        self.Stream = lambda flags: SimpleNamespace(handle=1)

    def init(self) -> None: ...

    def push(self) -> None:
        self.depth += 1

    def pop(self) -> None:
        self.depth -= 1

    def Event(self) -> Any:
        event = SimpleNamespace(at=0.0, synchronize=lambda: None)
        event.record = lambda stream: setattr(event, "at", self.clock_us)
        event.time_since = lambda start: (event.at - start.at) / 1e3
        return event

    def mem_alloc(self, count: int) -> Any:
        if sum(map(len, self.memory.values())) + count > self.room:
            raise self.MemoryError("cuMemAlloc failed: out of memory")
        pointer = next(self.pointers)
        self.memory[pointer] = bytearray(count)
        return Allocation(self, pointer)

    def mem_get_info(self) -> tuple[int, int]:
        return self.room - sum(map(len, self.memory.values())), self.room

    def memcpy_htod(self, pointer: int, array: NDArray[Any]) -> None:
        self.memory[pointer][: array.nbytes] = array.tobytes()

    def memcpy_dtoh(self, array: NDArray[Any], pointer: int) -> None:
        array[...] = np.frombuffer(self.memory[pointer], array.dtype, array.size).reshape(array.shape)

    def memcpy_dtod(self, to: Any, source: Any, count: int) -> None:
        self.memory[int(to)][:count] = self.memory[int(source)][:count]

    def memset_d8(self, pointer: Any, value: int, count: int) -> None:
        self.memory[int(pointer)][:count] = bytes([value]) * count

    def memset_d8_async(self, pointer: Any, value: int, count: int, stream: Any) -> None:
        self.clock_us += 1000
        self.memset_d8(pointer, value, count)

    def module_from_buffer(self, ptx: bytes) -> Any:
        assert ptx.endswith(b"\0")
        if b"rot;" in ptx:
            raise self.Error("cuModuleLoadDataEx failed: a PTX JIT compilation failed - line 19: unknown 'rot'")
        return SimpleNamespace(get_function=lambda name: self.function(name, ptx))

    def function(self, name: str, ptx: bytes) -> Any:
        if f".entry {name}(".encode() not in ptx:
            raise self.Error("cuModuleGetFunction failed: named symbol not found")

        def call(grid: Any, block: Any, stream: Any, *arguments: int, shared_size: int) -> None:
            self.clock_us += self.tick_us
            self.calls.append((name, grid, block, stream, arguments, shared_size))
            if name == "axpy":
                x, y, n, a = arguments
                y_view = np.frombuffer(self.memory[y], np.float32, n)
                y_view += a * np.frombuffer(self.memory[x], np.float32, n)

        return SimpleNamespace(
            prepare=lambda types: self.calls.append(("prepare", types)),
            get_attribute=lambda value: value,
            set_attribute=lambda attribute, value: self.calls.append((attribute, value)),
            prepared_async_call=call,
        )


class Devices:
    def __init__(self, gpu: Any) -> None:
        self.gpu, self.number = gpu, 1

    def __call__(self, ordinal: int) -> Any:
        return self.gpu

    def count(self) -> int:
        return self.number


class Allocation:
    def __init__(self, driver: Driver, pointer: int) -> None:
        self.driver, self.pointer = driver, pointer

    def __int__(self) -> int:
        return self.pointer

    def free(self) -> None:
        assert self.driver.depth, "memory is freed with the context current"
        del self.driver.memory[self.pointer]


Install = Callable[..., Driver]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def _install(**options: Any) -> Driver:
        driver = Driver(**options)
        module = ModuleType("pycuda")
        module.driver = driver  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pycuda", module)
        monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
        return driver

    return _install


@pytest.fixture
def driver(install: Install) -> Iterator[Driver]:
    driver = install()
    yield driver
    assert driver.depth == 0, "the context of the caller is current again"


def test_a_driver_without_gpus_is_a_reason(driver: Driver) -> None:
    driver.Device.number = 0
    assert available() == "the CUDA driver finds no GPU"


def test_a_driver_that_does_not_start_is_a_reason(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def init() -> None:
        raise driver.Error("cuInit failed: no CUDA-capable device is detected")

    monkeypatch.setattr(driver, "init", init)
    assert available() == "the CUDA driver finds no GPU: cuInit failed: no CUDA-capable device is detected"


def test_a_gpu_that_is_not_there_is_refused(driver: Driver) -> None:
    with pytest.raises(DeviceError, match="there is no GPU 1; this machine has 1"):
        CudaSession(package(), {"n": 1, "a": 1}, device=1)


def test_an_older_gpu_is_refused(install: Install) -> None:
    install(capability=(7, 5))
    with pytest.raises(DeviceError, match=r"sm_80 .*Stand-in has 7\.5"):
        CudaSession(package(), {"n": 1, "a": 1})


def test_the_log_of_the_jit_is_in_the_error(driver: Driver) -> None:
    with pytest.raises(DeviceError, match=r"does not take the PTX: .*line 19: unknown 'rot'"):
        CudaSession(package(ptx=PTX.replace("ret;", "rot;")), {"n": 1, "a": 1})


def test_a_kernel_that_the_ptx_lacks_is_named(driver: Driver) -> None:
    with pytest.raises(DeviceError, match="the PTX has no kernel 'gone'"):
        CudaSession(package(replace(AXPY, kernel="gone")), {"n": 1, "a": 1})


def test_a_block_too_large_for_its_registers_is_refused(driver: Driver) -> None:
    with pytest.raises(DeviceError, match="axpy: a block of 1024 threads is too large: at most 512 fit, at 128 registers"):
        CudaSession(package(replace(AXPY, block=(1024, 1, 1))), {"n": 1, "a": 1})


def test_too_much_shared_memory_is_refused(driver: Driver) -> None:
    with pytest.raises(DeviceError, match=r"needs 100\.0 KiB of shared memory a block, and a block can have 99\.0 KiB"):
        CudaSession(package(replace(AXPY, shared_bytes=100 << 10)), {"n": 1, "a": 1})


def test_the_largest_shared_memory_of_a_kernel_is_asked_for(driver: Driver) -> None:
    launches = (replace(AXPY, shared_bytes=96 << 10), replace(AXPY, shared_bytes=64 << 10))
    CudaSession(package(*launches), {"n": 1, "a": 1})
    assert {call[1] for call in driver.calls if call[0] == "dynamic"} == {96 << 10}


def test_a_size_that_contradicts_the_package_is_refused(driver: Driver) -> None:
    with pytest.raises(InputError, match="compiled for a = 2, not 3"):
        CudaSession(package(a=2), {"n": 1, "a": 3})


def test_a_run_passes_pointers_and_sizes_and_poisons_the_output(driver: Driver) -> None:
    x, y = vector(200), vector(200)
    with CudaSession(package(TWICE, AXPY, buffers=(X, Y, Z), a=3), {"n": 200}) as session:
        session.upload({"x": x, "y": y})
        px, py, pz = driver.memory
        assert np.isnan(session.download("z")).all()
        session.launch()
        assert [call for call in driver.calls if call[0] != "prepare"] == [
            ("twice", (2, 1, 1), (128, 1, 1), None, (px, pz, 200), 0),
            ("axpy", (2, 1, 1), (128, 1, 1), None, (px, py, 200, 3), 0),
        ]
        np.testing.assert_array_equal(session.download("y"), y + np.float32(3) * x)
    assert driver.memory == {}
    session.close()
    with pytest.raises(DeviceError, match="the session is closed"):
        session.launch()


def test_a_launch_that_overlaps_says_so_to_the_driver(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `cuLaunchKernelEx`, with the attribute that allows it, on the stream that is given; others stay as they are."""
    told: list[Any] = []

    def launch(config: Any, function: Any, places: Any, extra: Any) -> int:
        c = config._obj
        values = [ctypes.cast(place, ctypes.POINTER(ctypes.c_uint64))[0] for place in places]
        attribute = c.attributes[0]
        told.append((list(c.grid), list(c.block), c.shared_bytes, c.stream, c.count, attribute.id, attribute.value, values))
        return 0

    def fine(name: str) -> Callable[..., int]:
        return lambda *arguments: told.append(name) or 0

    names = ("cuModuleLoadData", "cuModuleGetFunction", "cuModuleUnload")
    library = SimpleNamespace(cuLaunchKernelEx=launch, **{name: fine(name) for name in names})
    monkeypatch.setattr(libcuda, "_libcuda", lambda: library)
    overlapping = replace(AXPY, overlap=True)
    with CudaSession(package(TWICE, overlapping, buffers=(X, Y, Z), a=3), {"n": 200}) as session:
        session.upload({"x": vector(200), "y": vector(200)})
        px, py, _ = driver.memory
        session.launch(SimpleNamespace(handle=7))
    assert [call[0] for call in driver.calls if call[0] != "prepare"] == ["twice"]
    launched = ([2, 1, 1], [128, 1, 1], 0, 7, 1, 6, 1, [px, py, 200, 3])
    assert told == ["cuModuleLoadData", "cuModuleGetFunction", launched, "cuModuleUnload"]
    assert (ctypes.sizeof(libcuda._Attribute), ctypes.sizeof(libcuda._Config)) == (72, 56), "as cuda.h has them"


def test_an_empty_array_has_memory_all_the_same(driver: Driver) -> None:
    empty = np.empty(0, np.float32)
    with CudaSession(package(AXPY, TWICE, buffers=(X, Y, Z), a=3), {"n": 0}) as session:
        session.upload({"x": empty, "y": empty})
        assert all(pointer and len(data) >= 16 for pointer, data in driver.memory.items())
        session.launch()
        assert session.download("z").shape == (0,)
        assert session.time().median_us == 0
    assert not [call for call in driver.calls if call[0] != "prepare"]


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"x": np.zeros(4, np.float64)}, "x: is float64, but the kernel was compiled for float32"),
        ({"x": np.zeros(5, np.float32)}, r"x: has shape \(5,\); the kernel needs \(4,\)"),
        ({"x": np.zeros(0, np.float32)}, r"x: has shape \(0,\)"),
        ({"xx": np.zeros(4, np.float32)}, "no buffer 'xx'; did you mean 'x'.*it has x, y, z"),
        ({"z": np.zeros(4, np.float32)}, "z: the kernel only writes it"),
    ],
)
def test_an_array_that_does_not_fit_is_refused_before_anything_changes(
    driver: Driver, arrays: dict[str, Any], why: str
) -> None:
    session = CudaSession(package(buffers=(X, Y, Z), a=3), {"n": 4})
    with pytest.raises(InputError, match=why):
        session.upload({"y": np.zeros(4, np.float32), **arrays})
    assert driver.memory == {}


def test_a_transposed_matrix_is_refused_and_a_flat_one_is_not(driver: Driver) -> None:
    matrix = replace(X, shape=("n", "3"))
    session = CudaSession(package(buffers=(matrix, Y), a=3), {"n": 4})
    with pytest.raises(InputError, match=r"has shape \(3, 4\); the kernel needs \(4, 3\)"):
        session.upload({"x": np.zeros((3, 4), np.float32)})
    session.upload({"x": np.arange(12, dtype=np.float32)})
    assert session.download("x")[1, 0] == 3


def test_a_strided_array_is_made_contiguous(driver: Driver) -> None:
    session = CudaSession(package(a=3), {"n": 4})
    session.upload({"x": np.arange(8, dtype=np.float32)[::2]})
    np.testing.assert_array_equal(session.download("x"), [0, 2, 4, 6])


def test_running_before_everything_is_uploaded_is_refused(driver: Driver) -> None:
    session = CudaSession(package(a=3), {"n": 4})
    session.upload({"y": vector(4)})
    for use in (session.launch, session.time, lambda: session.download("x")):
        with pytest.raises(InputError, match=r"nothing was uploaded for '?x"):
            use()
    with pytest.raises(InputError, match="the kernel has no buffer 'w'"):
        session.download("w")


def test_memory_that_is_short_is_named_with_its_sizes(install: Install) -> None:
    install(room=3 << 10)
    session = CudaSession(package(a=3), {"n": 512})
    with pytest.raises(DeviceError, match=r"Stand-in: .*'y' needs 2\.0 KiB, and 1\.0 KiB of 3\.0 KiB are free"):
        session.upload({"x": vector(512), "y": vector(512)})


def array_on_gpu(pointer: int, n: int = 4, **interface: Any) -> Any:
    fields = {"shape": (n,), "typestr": "<f4", "data": (pointer, False), "version": 3, **interface}
    return SimpleNamespace(__cuda_array_interface__=fields)


def test_a_gpu_array_is_used_in_place(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libcuda, "pointer_device", lambda pointer: 0)
    session = CudaSession(package(TWICE, buffers=(X, Z)), {"n": 4})
    driver.memory[512] = bytearray(b"\1" * 16)
    session.upload({"x": vector(4), "z": array_on_gpu(512)})
    session.upload({"x": array_on_gpu(256)})
    session.launch()
    assert driver.calls[-1][4] == (256, 512, 4)
    assert list(driver.memory) == [512]
    assert driver.memory[512] == b"\1" * 16
    session.close()
    assert list(driver.memory) == [512]


@pytest.mark.parametrize(
    ("name", "array", "why"),
    [
        ("x", array_on_gpu(256, typestr="<f8"), "is float64"),
        ("x", array_on_gpu(256, n=3), r"has shape \(3,\)"),
        ("x", array_on_gpu(256, strides=(8,)), "is not contiguous"),
        ("x", array_on_gpu(264), "does not start at a multiple of 16 bytes"),
        ("x", array_on_gpu(256, mask=array_on_gpu(512)), "has a mask"),
        ("z", array_on_gpu(256, data=(256, True)), "is read-only, and the kernel writes to it"),
        ("x", array_on_gpu(1024), "is on GPU 1, but the kernel runs on GPU 0"),
    ],
)
def test_a_gpu_array_that_does_not_fit_is_refused(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, name: str, array: Any, why: str
) -> None:
    monkeypatch.setattr(libcuda, "pointer_device", lambda pointer: pointer // 1024)
    session = CudaSession(package(TWICE, buffers=(X, Z)), {"n": 4})
    with pytest.raises(InputError, match=f"{name}: {why}"):
        session.upload({name: array})


def test_timing_without_graphs_says_so_and_restores_what_it_changed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise DeviceError("the CUDA driver library does not load")

    monkeypatch.setattr(libcuda, "_libcuda", none)
    x, y = vector(200), vector(200)
    with CudaSession(package(a=3), {"n": 200}) as session:
        session.upload({"x": x, "y": y})
        timing = session.time(rounds=5, budget_s=0.05)
        np.testing.assert_array_equal(session.download("y"), y)
        assert len(driver.memory) == 2
    assert timing.method == "events"
    assert "does not load" in timing.note
    assert timing.calls == 200
    assert timing.samples_us == pytest.approx([10.0] * 5)
    assert (timing.median_us, timing.min_us, timing.iqr_us) == pytest.approx((10.0, 10.0, 0.0))
    assert timing.to_json()["method"] == "events"


def test_cold_timing_leaves_the_flush_out(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "LEAST_FLUSH", 4096)
    with CudaSession(package(a=3), {"n": 200}) as session:
        session.upload({"x": vector(200), "y": vector(200)})
        timing = session.time(rounds=3, budget_s=0.05, cold=True)
        assert len(driver.memory) == 2
    assert timing.cold
    assert timing.calls == 1
    assert timing.samples_us == pytest.approx([10.0] * 3)
    assert timing.note == "4.0 KiB are written before each run, to flush L2"


def test_a_slow_kernel_is_timed_within_the_budget(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(tick_us=1e6)
    monkeypatch.setattr(timing, "_WARM_SHARE", 0.0)
    monkeypatch.setattr(cuda, "LEAST_FLUSH", 4096)
    with CudaSession(package(a=3), {"n": 200}) as session:
        session.upload({"x": vector(200), "y": vector(200)})
        assert len(session.time(budget_s=0.5, cold=True).samples_us) == 1
        assert len(session.time(budget_s=4.5, cold=True).samples_us) == 3
    assert driver.depth == 0


@pytest.mark.parametrize(("rounds", "budget_s"), [(0, 0.5), (7, 0.0), (7, float("nan"))])
def test_timing_for_nothing_is_refused(driver: Driver, rounds: int, budget_s: float) -> None:
    with pytest.raises(InputError, match="timing needs rounds"):
        CudaSession(package(a=3), {"n": 200}).time(rounds, budget_s)


# On a GPU


reason = available()
on_gpu = pytest.mark.skipif(reason is not None, reason=reason or "")


def gpu(test: Any) -> Any:
    return pytest.mark.cuda(on_gpu(test))


@pytest.fixture
def primary() -> Iterator[Any]:
    """pycuda's driver module, with the primary context current, as in a program that uses it beside the runtime."""
    import pycuda.driver as driver

    driver.init()
    cuda._primary_context(driver, 0).push()
    yield driver
    driver.Context.pop()


@gpu
@pytest.mark.parametrize("n", [1, 127, 128, 129, 100_000])
def test_a_kernel_computes(n: int) -> None:
    x, y = vector(n), vector(n)
    with CudaSession(package(), {"n": n, "a": 3}) as session:
        session.upload({"x": x, "y": y})
        session.launch()
        np.testing.assert_allclose(session.download("y"), y + 3 * x, rtol=1e-6, atol=1e-6)
        session.launch()
        np.testing.assert_allclose(session.download("y"), y + 6 * x, rtol=1e-5, atol=1e-5)
        session.upload({"y": y})
        np.testing.assert_array_equal(session.download("y"), y)


@gpu
def test_launches_run_in_order() -> None:
    z, y = replace(Z, access="write"), vector(1000)
    launches = (TWICE, replace(AXPY, arguments=("z", "y", "n", "a")))
    with CudaSession(package(*launches, buffers=(X, z, Y)), {"n": 1000, "a": 5}) as session:
        session.upload({"x": np.ones(1000, np.float32), "y": y})
        session.launch()
        np.testing.assert_allclose(session.download("y"), y + 10, rtol=1e-6)


@gpu
@pytest.mark.parametrize("n", [100, 200_000])
def test_launches_that_overlap_are_as_if_one_followed_the_other(n: int) -> None:
    """Each reads what the one before it wrote, on a stream and in a graph; one that does not overlap waits for them."""
    if cuda.versions()["compute_capability"] < "9.0":
        pytest.skip("kernels that wait for each other need compute capability 9.0")
    x, overlapping = vector(n), replace(AXPY, overlap=True)
    with CudaSession(package(overlapping, ptx=WAITING, chip="sm_90"), {"n": n, "a": 1}) as session:
        session.upload({"x": x, "y": np.zeros(n, np.float32)})
        for _ in range(500):
            session.launch()
        y = session.download("y")
        np.testing.assert_allclose(y, 500 * x, rtol=1e-4)
        timing = session.time(rounds=3)
        assert timing.method == "graph"
        np.testing.assert_array_equal(session.download("y"), y)
    last = replace(TWICE, arguments=("y", "z", "n"))
    many = package(*[overlapping] * 20, last, buffers=(X, Y, Z), ptx=WAITING, chip="sm_90")
    with CudaSession(many, {"n": n, "a": 1}) as session:
        session.upload({"x": x, "y": np.zeros(n, np.float32)})
        session.launch()
        np.testing.assert_allclose(session.download("z"), 40 * x, rtol=1e-4)


@gpu
def test_what_is_not_written_stays_poisoned() -> None:
    half = replace(TWICE, grid=("ceildiv(n, 256)", "1", "1"))
    with CudaSession(package(half, buffers=(X, Z)), {"n": 256}) as session:
        session.upload({"x": vector(256)})
        session.launch()
        z = session.download("z")
        assert np.isfinite(z[:128]).all()
        assert np.isnan(z[128:]).all()


@gpu
def test_no_elements_launch_nothing() -> None:
    empty = np.empty(0, np.float32)
    with CudaSession(package(AXPY, TWICE, buffers=(X, Y, Z)), {"n": 0, "a": 3}) as session:
        session.upload({"x": empty, "y": empty})
        session.launch()
        assert session.download("z").shape == (0,)
        assert session.resources() == []


@gpu
def test_more_than_48_kib_of_shared_memory() -> None:
    with CudaSession(package(FAR, buffers=(Z,)), {"n": 256}) as session:
        session.upload({})
        session.launch()
        np.testing.assert_array_equal(session.download("z"), np.arange(256))
        (kernel,) = session.resources()
        assert kernel.shared_bytes >= 65536
        assert kernel.blocks_per_sm is not None
        assert 1 <= kernel.blocks_per_sm <= 3


@gpu
def test_timing_replays_a_graph_and_restores_what_it_changed() -> None:
    x, y = vector(1000), vector(1000)
    with CudaSession(package(), {"n": 1000, "a": 3}) as session:
        session.upload({"x": x, "y": y})
        timing = session.time(budget_s=0.2)
        np.testing.assert_array_equal(session.download("y"), y)
    assert timing.method == "graph", timing.note
    assert len(timing.samples_us) == 7
    assert timing.calls > 50
    assert 0.3 < timing.min_us <= timing.median_us < 50
    assert timing.iqr_us < timing.median_us


@gpu
def test_graph_and_event_timing_agree_on_a_kernel_that_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 1 << 25
    with CudaSession(package(), {"n": n, "a": 3}) as session:
        session.upload({"x": np.ones(n, np.float32), "y": np.ones(n, np.float32)})
        graph = session.time()

        def none(*_: Any) -> Any:
            raise DeviceError("no graphs")

        monkeypatch.setattr(libcuda, "Graph", none)
        events = session.time()
    assert (graph.method, events.method) == ("graph", "events")
    assert events.median_us == pytest.approx(graph.median_us, rel=0.1)


@gpu
def test_cold_timing_is_slower_for_data_that_fits_the_cache() -> None:
    n = 1 << 20
    with CudaSession(package(), {"n": n, "a": 3}) as session:
        y = vector(n)
        session.upload({"x": vector(n), "y": y})
        warm, cold = session.time(), session.time(rounds=21, cold=True)
        np.testing.assert_array_equal(session.download("y"), y)
    assert cold.cold
    assert cold.calls == 1
    assert cold.median_us > warm.median_us


@gpu
def test_the_driver_says_what_a_kernel_takes() -> None:
    with CudaSession(package(AXPY, TWICE, AXPY, buffers=(X, Y, Z)), {"n": 10, "a": 3}) as session:
        axpy, twice = session.resources()
    assert (axpy.kernel, twice.kernel) == ("axpy", "twice")
    assert 0 < axpy.registers < 64
    assert axpy.local_bytes == axpy.shared_bytes == 0
    assert twice.max_threads == 256
    assert axpy.max_threads == 1024
    assert axpy.blocks_per_sm is not None
    assert axpy.blocks_per_sm >= 8
    assert axpy.occupancy is not None
    assert 0.5 <= axpy.occupancy <= 1


@gpu
def test_a_block_larger_than_the_kernel_allows_is_refused_on_a_gpu() -> None:
    with pytest.raises(DeviceError, match="a block of 512 threads is too large: at most 256 fit"):
        CudaSession(package(replace(TWICE, block=(512, 1, 1)), buffers=(X, Z)), {"n": 10})


@gpu
def test_ptx_that_does_not_compile_is_refused_with_the_log() -> None:
    with pytest.raises(DeviceError, match=r"(?s)does not take the PTX: .*line \d+.*'rot'"):
        CudaSession(package(ptx=PTX.replace("ret;", "rot;")), {"n": 10, "a": 3})


@gpu
def test_more_memory_than_the_gpu_has_is_refused() -> None:
    huge = replace(Z, shape=("n * 1000000",))
    with (
        CudaSession(package(TWICE, buffers=(X, huge)), {"n": 1_000_000}) as session,
        pytest.raises(DeviceError, match=r"'z' needs 3\.6 TiB, and .* are free"),
    ):
        session.upload({"x": vector(1_000_000)})


@gpu
def test_two_sessions_share_the_context() -> None:
    with CudaSession(package(), {"n": 10, "a": 3}) as first, CudaSession(package(), {"n": 20, "a": 5}) as second:
        for session, n in ((first, 10), (second, 20)):
            session.upload({"x": np.ones(n, np.float32), "y": np.zeros(n, np.float32)})
        first.launch()
        second.launch()
        assert set(second.download("y")) == {5}
        assert set(first.download("y")) == {3}


@gpu
def test_memory_of_the_primary_context_is_used_in_place(primary: Any) -> None:
    memory = primary.mem_alloc(4 * 256)
    primary.memcpy_htod(memory, vector(256))
    with CudaSession(package(TWICE, buffers=(X, Z)), {"n": 256}) as session:
        session.upload({"x": array_on_gpu(int(memory), 256)})
        session.launch()
        np.testing.assert_array_equal(session.download("z"), 2 * vector(256))
        with pytest.raises(InputError, match="is no GPU memory"):
            session.upload({"x": array_on_gpu(4096, 256)})
    result = np.empty(256, np.float32)
    primary.memcpy_dtoh(result, memory)
    np.testing.assert_array_equal(result, vector(256))
    memory.free()


@gpu
def test_a_launch_runs_on_the_stream_that_is_given(primary: Any) -> None:
    stream = primary.Stream()
    with CudaSession(package(), {"n": 1000, "a": 3}) as session:
        session.upload({"x": np.ones(1000, np.float32), "y": np.zeros(1000, np.float32)})
        session.launch(stream)
        stream.synchronize()
        assert set(session.download("y")) == {3}


def run_a_fault() -> None:
    """In a process of its own: what a fault does to the session, as text."""
    with CudaSession(package(Launch("fault", ("1", "1", "1"), (1, 1, 1), ()), buffers=()), {}) as session:
        session.launch()
        try:
            session.synchronize()
        except CheckFailed as e:
            print(e)


@gpu
def test_a_kernel_that_faults_fails_the_check() -> None:
    code = "from test_cuda import run_a_fault; run_a_fault()"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert "fault: the GPU stopped with a fault: " in done.stdout, done.stderr
    assert "this process cannot use the GPU again" in done.stdout


@gpu
def test_versions_describe_the_gpu() -> None:
    found = versions()
    assert found.keys() == {"driver", "cuda", "pycuda", "gpu", "sm_count", "compute_capability"}
    assert found["sm_count"] > 0
    assert float(found["compute_capability"]) >= 5
    assert found["cuda"].count(".") == 1
