"""What the cost model reads of an architecture, in one record; what is not known is taken from the GPU of the calibration.

A rate of the whole GPU is scaled with its multiprocessors and clock, a latency in cycles and a time are taken as they are.
`Rates.assumed` says for which places that was done.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.building import named
from sparseditto.agent.architecture.flow import per_second, rate_of

CALIBRATED = "H200 SXM"
_CYCLES = {"l1.latency": 40.0, "l2.latency": 281.0, "dram.latency": 690.0}  # those of the GH200 of the table: the same chip


@dataclass(frozen=True)
class Rates:
    """One GPU.  Rates are bytes a microsecond of the whole GPU, clocks a microsecond, latencies microseconds, sizes bytes."""

    name: str
    clock: float
    multiprocessors: float
    schedulers: float
    max_threads: float
    max_blocks: float
    registers: float
    launch: float
    dram: float
    l2: float
    shared: float
    l1_latency: float
    l2_latency: float
    dram_latency: float
    l1_bytes: float
    l2_bytes: float
    shared_bytes: float
    assumed: tuple[str, ...]

    @staticmethod
    def of(architecture: Architecture) -> Rates:
        """Raises `Unsupported` where the graph lacks the clock, a capacity or a limit of a multiprocessor."""
        return _rates(architecture)


@cache
def _rates(architecture: Architecture) -> Rates:
    base = named(CALIBRATED)
    assumed: list[str] = []
    clock, count = architecture.needed("gpu.clock"), architecture.needed("gpu->sm.count")
    scale = clock * count / (base.needed("gpu.clock") * base.needed("gpu->sm.count"))

    def rate(where: str) -> float:
        found = per_second(architecture, rate_of(architecture, where), where)
        if found is not None:
            return found / 1e6
        assumed.append(f"{where}.rate")
        known = per_second(base, rate_of(base, where), where)
        assert known is not None, f"{CALIBRATED}: {where} is not known"
        return known / 1e6 * scale

    def latency(place: str) -> float:
        cycles = architecture.number(place)
        if cycles is None and architecture.name != CALIBRATED:
            assumed.append(place)
        return (_CYCLES[place] if cycles is None else cycles) / clock

    def period() -> float:
        found = architecture.number("launch.graph_period")
        if found is None:
            assumed.append("launch.graph_period")
        return base.needed("launch.graph_period") if found is None else found

    return Rates(
        name=architecture.name,
        clock=clock,
        multiprocessors=count,
        schedulers=architecture.needed("sm->scheduler.count"),
        max_threads=architecture.needed("sm.max_threads"),
        max_blocks=architecture.needed("sm.max_blocks"),
        registers=architecture.needed("registers.capacity"),
        launch=period(),
        dram=rate("dram->l2"),
        l2=rate("l2->l1"),
        shared=rate("shared->registers"),
        l1_latency=latency("l1.latency"),
        l2_latency=latency("l2.latency"),
        dram_latency=latency("dram.latency"),
        l1_bytes=architecture.needed("l1.capacity"),
        l2_bytes=architecture.needed("l2.capacity"),
        shared_bytes=architecture.needed("shared.capacity"),
        assumed=tuple(assumed),
    )
