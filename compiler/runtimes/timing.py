"""How runs on a GPU are timed: the clock, what a sample is, how many there are, and their summary."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np

from sparseditto.compiler.runtimes import libcuda
from sparseditto.dialects.errors import DeviceError

LEAST_FLUSH = 32 << 20  # bytes that are written, at least, to flush the L2 cache

_REPLAY_US = 2000.0  # a replay should last this long, so that the clock's grain does not show …
_MOST_CALLS = 200  # … but holds no more calls than this
_WARM_SHARE = 0.2  # of the time budget: clocks rise only under load


@dataclass(frozen=True)
class Timing:
    """Microseconds that one run of the whole package takes on the GPU: median, least, and interquartile range.

    Each of `samples_us` is the mean of `calls` runs, one after the other.  `method` is "graph" (the runs were replayed
    from a CUDA graph, so the host's cost of launching is not in them) or "events" (launched one by one; `note` says why).
    """

    median_us: float
    min_us: float
    iqr_us: float
    samples_us: tuple[float, ...]
    calls: int
    method: str
    cold: bool
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Clock:
    """Times what is put on its stream with the GPU's own clock (events; its grain is half a microsecond)."""

    def __init__(self, pycuda: Any) -> None:
        self._pycuda = pycuda
        self._started = perf_counter()
        self.stream = pycuda.Stream(1)  # CU_STREAM_NON_BLOCKING: what runs on the default stream is not waited for

    def span_us(self, work: Callable[[], object]) -> float:
        """Microseconds of one `work`, waited for."""
        start, end = self._mark(work)
        end.synchronize()
        return float(end.time_since(start)) * 1e3

    def samples(
        self, work: Callable[[], object], rounds: int, budget_s: float, before: Callable[[], object] = lambda: None
    ) -> list[float]:
        """Microseconds of each of up to `rounds` runs of `work`, in order, with an untimed `before` ahead of each.

        All are queued at once, behind one run that is not counted, so that the GPU does not wait for the host in between.
        """

        def both() -> None:
            before()
            work()

        each_us = self.span_us(both)
        while perf_counter() - self._started < _WARM_SHARE * budget_s:
            each_us = min(each_us, self.span_us(both))
        affordable = int(budget_s * (1 - _WARM_SHARE) * 1e6 / max(each_us, 1.0)) - 1
        if affordable > 0:
            both()
        marks = []
        for _ in range(max(1, min(rounds, affordable))):
            before()
            marks.append(self._mark(work))
        marks[-1][1].synchronize()
        return [float(end.time_since(start)) * 1e3 for start, end in marks]

    def _mark(self, work: Callable[[], object]) -> tuple[Any, Any]:
        start, end = self._pycuda.Event(), self._pycuda.Event()
        start.record(self.stream)
        work()
        end.record(self.stream)
        return start, end


def time_warm(clock: Clock, once: Callable[[], object], rounds: int, budget_s: float) -> Timing:
    """Time `once`, which puts one run on the clock's stream, with the caches as the run before left them."""

    def repeat() -> None:
        for _ in range(calls):
            once()

    clock.span_us(once)  # the first run of a kernel also loads it
    calls = max(1, min(_MOST_CALLS, math.ceil(_REPLAY_US / max(clock.span_us(once), 1.0))))
    try:
        graph = libcuda.Graph(clock.stream, once, calls)
    except DeviceError as e:
        samples = clock.samples(repeat, rounds, budget_s)
        note = f"no graph ({e}): times below that of a launch, about 5 µs, are not seen"
        return summary([us / calls for us in samples], calls, "events", cold=False, note=note)
    try:
        samples = clock.samples(graph.launch, rounds, budget_s)
    finally:
        graph.close()
    return summary([us / calls for us in samples], calls, "graph", cold=False)


def summary(samples: list[float], calls: int, method: str, cold: bool, note: str = "") -> Timing:
    low, median, high = (float(value) for value in np.percentile(samples, [25, 50, 75]))
    return Timing(median, min(samples), high - low, tuple(samples), calls, method, cold, note)
