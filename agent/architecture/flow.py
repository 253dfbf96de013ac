"""How long work takes each resource of an architecture, and how fast bytes go from one memory to another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.quantity import Quantity
from sparseditto.agent.architecture.vocabulary import MEMORIES, Relation
from sparseditto.dialects.errors import InputError, Unsupported, did_you_mean

_COPY = 1.5  # what an asynchronous copy counts among edges that count 1
_RATES = ("measured_rate", "rate", "rate_per_clock")  # the first of them that is known counts

# What each kind of demand loads: where its rate stands, and what one unit of the demand is of the rate's.
DEMANDS: dict[str, tuple[str, str]] = {
    "host": ("host->dram", "bytes over the link to the host"),
    "dram": ("dram->l2", "bytes that device memory moves, reads and writes"),
    "l2": ("l2->l1", "bytes that L2 gives to the multiprocessors"),
    "l1": ("l1->registers", "bytes that L1 gives to registers"),
    "shared": ("shared->registers", "bytes that shared memory moves"),
    "fp32": ("fp32", "FLOP in FP32 (a multiply-add is two)"),
    "fp64": ("fp64", "FLOP in FP64"),
    "int32": ("int32", "32-bit integer additions"),
    "sfu": ("sfu", "special functions"),
    "tensor": ("tensor", "FLOP of FP16 tensor cores, sums in FP32"),
    "shuffle": ("shuffle", "lanes that a shuffle serves (a warp's is 32)"),
    "atomics": ("atomics", "FP32 additions in global memory, by lanes"),
    "shared_atomics": ("shared_atomics", "additions in shared memory, by lanes"),
    "launch": ("launch", "kernels that are started from a graph, one after the other"),
}
"""The keys of a demand: the node or edge that serves it, and what is counted."""


@dataclass(frozen=True)
class Step:
    """One edge of a path: its rate in GB/s of the whole GPU (None: not known) and the quantity that says so."""

    source: str
    target: str
    gbs: float | None
    quantity: Quantity


@dataclass(frozen=True)
class Path:
    """The edges that a byte takes, the one that is known to be slowest, and those whose rates are not known."""

    steps: tuple[Step, ...]
    bottleneck: Step | None
    unknown: tuple[Step, ...]


@dataclass(frozen=True)
class Load:
    """Microseconds that a demand keeps each resource busy (None: its rate is not known).

    `largest` is the resource that is busy longest of those with known rates; the kernel takes at least that long.  `unknown`
    are the others: any of them may be what really limits the kernel.
    """

    times_us: Mapping[str, float | None]
    largest: str | None
    unknown: tuple[str, ...]


def path(architecture: Architecture, source: str, target: str) -> Path:
    """The data path from one memory to another with the fewest edges; of two as long, the one without an asynchronous copy.

    What is slowest bounds the rate of a stream of bytes: rate = min over the path's edges.  Raises `InputError` on a node that
    is no memory and where no path is.
    """
    for node in (source, target):
        if node not in MEMORIES:
            raise InputError(f"'{node}' is no memory{did_you_mean(node, MEMORIES)} (there are {', '.join(sorted(MEMORIES))})")
    import networkx as nx

    graph = architecture.graph

    def weight(a: str, b: str, attributes: Mapping[str, object]) -> float | None:
        if attributes["relation"] != Relation.DATA.value or not {a, b} <= MEMORIES:
            return None
        return _COPY if (a, b) == ("l2", "shared") else 1.0

    try:
        nodes = nx.shortest_path(graph, source, target, weight=weight)
    except nx.NetworkXNoPath as e:
        raise InputError(f"no data path leads from {source} to {target}", where=architecture.name) from e
    steps = tuple(_step(architecture, a, b) for a, b in pairwise(nodes))
    slowest = min((s for s in steps if s.gbs is not None), key=lambda s: s.gbs or 0.0, default=None)
    return Path(steps, slowest, tuple(s for s in steps if s.gbs is None))


def _step(architecture: Architecture, source: str, target: str) -> Step:
    quantity = rate_of(architecture, f"{source}->{target}")
    rate = per_second(architecture, quantity, f"{source}->{target}")
    return Step(source, target, None if rate is None else rate / 1e9, quantity)


def bottleneck(architecture: Architecture, demand: Mapping[str, float]) -> Load:
    """How long `demand` (amounts by the keys of `DEMANDS`) keeps each resource busy, all of them working at once.

    time = amount / rate, with the rate of the whole GPU: what is measured where that is known, else what is stated; a rate
    for each clock and multiprocessor is multiplied by the clock and their number.  Launches are multiplied by their period.
    This is the roofline model (Williams, Waterman and Patterson, CACM 2009) over more than two resources.  Raises
    `InputError` on unknown keys and amounts that are negative.
    """
    for key, amount in demand.items():
        if key not in DEMANDS:
            raise InputError(f"'{key}' is no resource{did_you_mean(key, DEMANDS)} (there are {', '.join(DEMANDS)})")
        if not amount >= 0:
            raise InputError(f"{key}: {amount} is no amount")
    times = {key: _busy_us(architecture, key, amount) for key, amount in demand.items()}
    known = {key: time for key, time in times.items() if time is not None}
    largest = max(known, key=lambda key: known[key], default=None)
    return Load(times, largest, tuple(key for key, time in times.items() if time is None))


def _busy_us(architecture: Architecture, key: str, amount: float) -> float | None:
    where, _ = DEMANDS[key]
    if not amount:
        return 0.0
    if key == "launch":
        period = architecture.number("launch.graph_period")
        return None if period is None else amount * period
    rate = per_second(architecture, rate_of(architecture, where), where)
    return None if rate is None else amount / rate * 1e6


def rate_of(architecture: Architecture, where: str) -> Quantity:
    """The rate of a node or an edge: measured, else stated, else for each clock; an unknown one where none is known."""
    found = [architecture.values[f"{where}.{name}"] for name in _RATES if f"{where}.{name}" in architecture.values]
    known = [quantity for quantity in found if quantity.number is not None]
    return next(iter([*known, *found]), Quantity.unknown("GB/s"))


def per_second(architecture: Architecture, rate: Quantity, where: str) -> float | None:
    """A rate as bytes, FLOP, operations or lanes a second of the whole GPU; None where a number for that is not known.

    `where` is the resource; tensor cores have a clock of their own.  Raises `Unsupported` on a unit that is no rate.
    """
    what, *parts = rate.unit.split("/")
    if parts not in (["s"], ["clk"], ["clk", "SM"]):
        raise Unsupported(f"{rate} is no rate", where=where)
    factors = [rate.number, {"GB": 1e9, "FMA": 2.0}.get(what, 1.0)]
    if "clk" in parts:
        own = architecture.number(f"{where}.clock")
        clock = own if own is not None else architecture.number("gpu.clock")
        factors.append(None if clock is None else clock * 1e6)
    if "SM" in parts:
        factors.append(architecture.number("gpu->sm.count"))
    known = [factor for factor in factors if factor is not None]
    return math.prod(known) if len(known) == len(factors) else None
