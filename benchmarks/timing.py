"""One clock for everything that is timed: ours and theirs, in the same run, in turns.

What is timed is a callable that enqueues its work on a stream.  It is captured `calls` times into a CUDA graph whose replay
lasts about two milliseconds; the rounds go through all candidates in turn, so that a drift of the clocks meets all of them.
Needs CuPy; ours also pycuda, on the same primary context.
"""

from __future__ import annotations

import atexit
import functools
import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

REPLAY_US = 2000.0
QUICK_US = 1000.0  # the same, for a candidate that is only compared with others
LONG_US = 3000.0  # from which a run says as much as a replay
LAUNCH_US = 100.0  # that a run takes longer when it is launched alone, at most (20 to 50 beside busy compilers)
MOST_CALLS = 200
LEAST_FLUSH = 32 << 20


@functools.cache
def _primary_context(driver: Any, device: int) -> Any:
    """pycuda's view of the context that CuPy uses, retained once; its own clean-up is wrong for a primary context."""
    driver.init()
    context = driver.Device(device).retain_primary_context()
    atexit.register(context.detach)
    return context


class Stream:
    """One stream under three names: its handle, CuPy's object and pycuda's (None without pycuda)."""

    def __init__(self, device: int = 0) -> None:
        import cupy as cp

        cp.cuda.Device(device).use()
        cp.zeros(1)  # makes the primary context
        self.pycuda: Any = None
        try:
            import pycuda.driver as driver
        except ImportError:
            self.cupy = cp.cuda.Stream(non_blocking=True)
        else:
            _primary_context(driver, device).push()
            try:
                self.pycuda = driver.Stream(1)  # CU_STREAM_NON_BLOCKING
            finally:
                driver.Context.pop()
            cp.cuda.Device(device).use()
            with warnings.catch_warnings():  # CuPy 14.2 has another way, which CuPy 13 lacks
                warnings.simplefilter("ignore", DeprecationWarning)
                self.cupy = cp.cuda.ExternalStream(int(self.pycuda.handle), device)
        self.handle = int(self.cupy.ptr)

    def synchronize(self) -> None:
        self.cupy.synchronize()

    def close(self) -> None:
        """Give the stream back; it must be gone before the interpreter ends."""
        self.synchronize()
        self.pycuda = None


Work = Callable[[Stream], None]


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: median and interquartile range of `rounds`, each the mean of `calls` calls."""

    us: float
    iqr_us: float
    least_us: float
    rounds: int
    calls: int
    method: str


class Clock:
    """Times candidates on one stream.  `cold` overwrites twice the L2 cache before each call and times each call alone."""

    def __init__(self, stream: Stream, rounds: int = 7, cold: bool = False) -> None:
        self.stream, self.rounds, self.cold = stream, rounds, cold

    def time(
        self, candidates: Mapping[str, Work], keep: Callable[[dict[str, float]], set[str]] | None = None
    ) -> dict[str, Timing | str]:
        """Time each candidate, or say why that failed.

        A first look is two short rounds; `keep(first looks in microseconds)` names those that go on to the full rounds.
        The others keep the figure of their first look (`rounds` says so).
        """
        results: dict[str, Timing | str] = {}
        looked: dict[str, _Replay] = {}
        for name, work in candidates.items():
            try:
                looked[name] = _Replay(self.stream, work, self.cold)
            except Exception as e:  # whatever a library raises on capture or launch: it is recorded, and a fault shows below
                results[name] = f"{type(e).__name__}: {e}"
        self._rounds(list(looked.values()), 2)
        first = {name: replay.timing() for name, replay in looked.items()}
        kept = keep({name: timing.us for name, timing in first.items()}) if keep else set(first)
        going_on = [looked[name] for name in first if name in kept]
        self._rounds(going_on, self.rounds)
        for name, replay in looked.items():
            results[name] = replay.timing() if name in kept else first[name]
        return results

    def quick(self, work: Work, rounds: int, cutoff_us: float | None = None) -> tuple[float, ...]:
        """Microseconds of one candidate alone: some short replays, or two runs where these are long or above `cutoff_us`."""
        plain_us = LONG_US if cutoff_us is None else min(LONG_US, cutoff_us + LAUNCH_US)
        replay = _Replay(self.stream, work, self.cold, QUICK_US, plain_us)
        if replay.plain and not self.cold:
            return replay.spans
        self._rounds([replay], rounds)
        return replay.samples()

    def _rounds(self, replays: Sequence[_Replay], rounds: int) -> None:
        for replay in replays:
            replay.marks.clear()
        flush = self._flush() if self.cold else None
        for _ in range(rounds):
            for replay in replays:
                replay.mark(flush)
        self.stream.synchronize()

    def _flush(self) -> Callable[[], None]:
        import cupy as cp

        size = max(2 * int(cp.cuda.Device().attributes.get("L2CacheSize", 0)), LEAST_FLUSH)
        memory = cp.empty(size, cp.uint8)

        def flush() -> None:
            memory.data.memset_async(1, size, self.stream.cupy)

        return flush


class _Replay:
    """One candidate, ready to be replayed; `plain` when a run takes longer than `plain_us`, which is not captured."""

    def __init__(
        self, stream: Stream, work: Work, cold: bool, replay_us: float = REPLAY_US, plain_us: float = math.inf
    ) -> None:
        self._stream, self._work = stream, work
        self.marks: list[tuple[Any, Any]] = []
        work(stream)  # loads the kernel
        stream.synchronize()
        self.spans = tuple(self._span_us(lambda: work(stream)) for _ in range(2))
        self._once_us = min(self.spans)
        self.plain = self._once_us > plain_us
        self.calls, self.method, self._graph = 1, "events", None
        if cold or self.plain:
            return
        self.calls = max(1, min(MOST_CALLS, math.ceil(replay_us / max(self._once_us, 1.0))))
        self._graph = self._captured()
        if self._graph is not None:
            self.method = "graph"

    def _captured(self) -> Any:
        """The graph, or None where the library does something that cannot be captured."""
        stream = self._stream.cupy
        stream.begin_capture()
        failed = False
        try:
            for _ in range(self.calls):
                self._work(self._stream)
        except Exception:  # some calls are refused while capturing; launched one by one they work
            failed = True
        try:
            graph = stream.end_capture()
        except Exception:
            return None
        return None if failed else graph

    def _run(self) -> None:
        if self._graph is not None:
            self._graph.launch(self._stream.cupy)
        else:
            for _ in range(self.calls):
                self._work(self._stream)

    def mark(self, flush: Callable[[], None] | None) -> None:
        """Enqueue one round between two events.  In the warm way a short call runs once before, untimed, to fill the caches."""
        import cupy as cp

        if flush is not None:
            flush()
        elif self._once_us < REPLAY_US / 4:
            self._work(self._stream)
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record(self._stream.cupy)
        self._run()
        end.record(self._stream.cupy)
        self.marks.append((start, end))

    def _span_us(self, work: Callable[[], None]) -> float:
        import cupy as cp

        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record(self._stream.cupy)
        work()
        end.record(self._stream.cupy)
        end.synchronize()
        return float(cp.cuda.get_elapsed_time(start, end)) * 1e3

    def timing(self) -> Timing:
        """What the marks say, once they have been waited for."""
        return summary(self.samples(), self.calls, self.method)

    def samples(self) -> tuple[float, ...]:
        import cupy as cp

        return tuple(float(cp.cuda.get_elapsed_time(*mark)) * 1e3 / self.calls for mark in self.marks)


def summary(samples: Sequence[float], calls: int, method: str) -> Timing:
    low, median, high = (float(x) for x in np.percentile(samples, [25, 50, 75]))
    return Timing(median, high - low, min(samples), len(samples), calls, method)


def best_us(work: Callable[[], object], rounds: int) -> float:
    """Microseconds of `work` on CuPy's current stream: the median of some rounds after one that warms up."""
    import cupy as cp

    work()
    spans = []
    for _ in range(rounds):
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        spans.append(float(cp.cuda.get_elapsed_time(start, end)) * 1e3)
    return statistics.median(spans)


class Progress:
    """A line for each task: how many are done, and when the rest will be."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self.total, self.done, self.started, self._say = total, 0, time.perf_counter(), say

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.started

    def step(self, text: str) -> None:
        self.done += 1
        passed = self.elapsed_s()
        left = passed / self.done * (self.total - self.done)
        self._say(f"[{self.done}/{self.total} {passed:.0f} s, {left:.0f} s left] {text}")
