"""`Machine`: the numbers of the planner's rules that the size of a GPU sets, derived from its graph once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.building import named
from sparseditto.agent.architecture.choosing import MEASURED

_MEASURES: dict[str, Callable[[Architecture], float]] = {
    "threads": lambda gpu: gpu.needed("gpu->sm.count") * gpu.needed("sm.max_threads"),
    "bandwidth": lambda gpu: gpu.needed("dram->l2.rate"),
    "l1": lambda gpu: gpu.needed("l1.capacity"),
    "l2": lambda gpu: gpu.needed("l2.capacity"),
}


def _scaled(measure: str, value: float) -> Any:
    """A number of the H200, which is another one on a GPU on which the measure is."""
    return field(default=value, metadata={"measure": measure})


@dataclass(frozen=True)
class Machine:
    """Where the rules draw their lines on one GPU.

    The defaults were chosen on the GPU of the table that `MEASURED` names.  Lines that threads, device memory or a cache draw
    are proportional to what another GPU has of it; `registers` and `threads` are those of its multiprocessors.
    """

    resident: float = _scaled("threads", 1 << 18)  # threads that the GPU holds at a time: fewer leave it idle
    busy: float = _scaled("threads", 50_000)  # threads that hide most of the latency
    sliced_rows: float = _scaled("threads", 40_000)  # fewer threads, one a row, leave too much of the GPU idle
    sliced_ratio: float = _scaled("threads", 4000)  # rows over entries a row: one thread takes too long for longer ones
    ordered_rows: float = _scaled("threads", 2048)  # rows that keep the GPU busy with a warp for each
    scattered: float = _scaled("threads", 250_000)  # entries, from which parts of them may beat segments of short rows
    hubs: float = _scaled("threads", 1_000_000)  # entries, from which their parts beat rows in shared memory if many are long
    large: float = _scaled("threads", 2_000_000)  # entries that keep the GPU busy for long
    many: float = _scaled("threads", 8_000_000)  # entries of which even large parts are enough for all threads
    small: float = _scaled("bandwidth", 500_000)  # entries, fewer of which take little longer than a launch
    bytes_per_us: float = _scaled("bandwidth", 3e6)  # that a kernel moves
    tile_bytes: float = _scaled("l1", 160 << 10)  # of the L1 cache that a tile of dense columns may fill
    slab_bytes: float = _scaled("l2", 36 << 20)  # the same of the dense operand, which stays in the L2 cache
    kept_bytes: float = _scaled("l2", 24 << 20)  # of the dense operand, from which the L2 cache is told to keep it
    registers: int = 1 << 16  # of a multiprocessor
    threads: int = 2048  # that a multiprocessor holds

    @staticmethod
    @cache
    def of(gpu: Architecture) -> Machine:
        """Raises `Unsupported` where the graph lacks a number that is read."""
        here = named(MEASURED)
        factors = {name: measure(gpu) / measure(here) for name, measure in _MEASURES.items()}
        lines = {f.name: getattr(Machine, f.name) * factors[f.metadata["measure"]] for f in fields(Machine) if f.metadata}
        limits = Machine(registers=int(gpu.needed("registers.capacity")), threads=int(gpu.needed("sm.max_threads")))
        return replace(limits, **lines)

    def blocks(self, threads: int, registers: int) -> int:
        """Blocks of so many threads that fit on a multiprocessor when each thread has so many registers."""
        return min(self.registers // (threads * registers), self.threads // threads)
