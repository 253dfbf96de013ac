"""A GPU that is made up: CuPy is NumPy, kernels run by emulation, and events tell a time that launches add their cost to.

It shows that what runs on a GPU is called in the right order, not how fast anything is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class Clock:
    """Microseconds that have passed on the GPU; a launch also takes `sleep_s` of the host's time."""

    def __init__(self) -> None:
        self.now_us, self.sleep_s, self.capturing = 0.0, 0.0, False
        self.captured_us = 0.0

    def spend(self, us: float) -> None:
        if self.capturing:
            self.captured_us += us
            return
        self.now_us += us
        time.sleep(self.sleep_s)


class Event:
    def __init__(self, clock: Clock) -> None:
        self.clock, self.at_us = clock, 0.0

    def record(self, stream: Any = None) -> None:
        self.at_us = self.clock.now_us

    def synchronize(self) -> None:
        pass


class Stream:
    """What `benchmarks.timing.Stream` is, with CuPy's own stream in it."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.pycuda, self.cupy = clock, None, self

    def begin_capture(self) -> None:
        self.clock.capturing, self.clock.captured_us = True, 0.0

    def end_capture(self) -> Any:
        self.clock.capturing = False
        us = self.clock.captured_us
        return SimpleNamespace(launch=lambda stream: self.clock.spend(us))

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


def cupy(clock: Clock) -> ModuleType:
    """A module that stands for CuPy."""
    module = ModuleType("cupy")
    module.__getattr__ = lambda name: getattr(np, name)  # type: ignore[method-assign]
    errors = SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (Exception,), {}))
    runtime = SimpleNamespace(CUDARuntimeError=type("CUDARuntimeError", (Exception,), {}))
    device = SimpleNamespace(synchronize=lambda: None, attributes={})
    values = {
        "asnumpy": np.asarray,
        "get_default_memory_pool": lambda: SimpleNamespace(free_all_blocks=lambda: None),
        "cuda": SimpleNamespace(
            memory=errors,
            runtime=runtime,
            Device=lambda: device,
            Event=lambda: Event(clock),
            get_elapsed_time=lambda start, end: (end.at_us - start.at_us) / 1e3,
        ),
    }
    for name, value in values.items():
        setattr(module, name, value)
    return module


class Session:
    """`CudaSession` by emulation; a launch costs as `SimtDevice` says, times `factor(package)`."""

    def __init__(self, clock: Clock, factor: Callable[[Any], float], package: Any, sizes: Any) -> None:
        from sparseditto.compiler.runtimes.launches import resolve

        self.clock, self.package = clock, package
        self.launches, self.arrays = resolve(package, sizes), {}  # type: ignore[var-annotated]
        cost = sum(1 + np.prod(launch.grid) * launch.threads / 1000 for launch in self.launches)
        self.cost_us = float(cost) * factor(package)

    def upload(self, arrays: dict[str, Any]) -> None:
        assert set(arrays) == {b.name for b in self.package.buffers}
        self.arrays = arrays

    def launch(self, stream: Any = None) -> None:
        from sparseditto.compiler.runtimes.simt import SimtModule

        out = self.arrays[self.package.computation.output.name]
        if not self.clock.capturing and np.isnan(out).any():
            module = SimtModule(self.package.mlir)
            for launch in self.launches:
                arguments = [self.arrays[a] if isinstance(a, str) else a for a in launch.arguments]
                module.launch(launch.kernel, launch.grid, launch.block, arguments, shared_bytes=launch.shared_bytes)
        self.clock.spend(self.cost_us)

    def synchronize(self) -> None:
        pass

    def resources(self) -> list[Any]:
        return []

    def close(self) -> None:
        self.arrays = {}


def baselines(clock: Clock, sleep_s: float = 0.0) -> Callable[..., Iterator[Any]]:
    """What stands for `cusparse.baselines`: three that are right, one of them by default, and one that fails."""
    from benchmarks.cusparse import COL_MAJOR, Baseline

    def made(op: str, matrix: Any, right: Any, out: Any, order: str = "row", skip: Any = ()) -> Iterator[Any]:
        import scipy.sparse as sp

        ending = COL_MAJOR if order == "col" else ""
        rows, columns = matrix.shape
        nnz = matrix.nnz
        a = sp.csr_array((matrix.values[:nnz], matrix.columns[:nnz], matrix.starts[: rows + 1]), shape=(rows, columns))

        def run(stream: Any) -> None:
            if not clock.capturing:
                out[...] = a @ right if order == "row" else (a @ right.T).T
            clock.spend(50.0)

        for name in ("csr default", "csr csr2", "coo default"):
            time.sleep(sleep_s)
            yield Baseline(name + ending, name[:3] + ending, False, run)
        yield Baseline("coo coo1" + ending, "coo" + ending, False, failure="status 10")

    return made
