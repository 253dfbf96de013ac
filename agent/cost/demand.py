"""`Demand`: what the work of a plan asks of each resource of a GPU, in counts that no calibration changes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from math import ceil, log2
from typing import Any

from sparseditto.agent.cost.rates import Rates
from sparseditto.agent.cost.reuse import misses, sectors_an_entry
from sparseditto.passes.work import WARP, Work

LINE = 128  # bytes that one access to L1 serves
L1_SHARE = 0.75  # of L1 that holds what is gathered; the matrix streams through the rest
L2_SHARE = 0.75  # the same of L2
WARM = (0.6, 1.4)  # of L2: data up to the first is all there when a kernel runs again, from the second on none of it is
SPARE = 18  # registers that a thread takes beside sums and loads
LEAST = 32  # registers with which all threads of a multiprocessor are resident
MOST = 255
NEIGHBOURS = 2.5  # units that walk side by side gather neighbouring elements that often as they gather the same
NEAREST = 0.95
HOT_FIRST = (
    0.77  # of what is gathered, where what is often gathered is side by side: SpMV with R-MAT on an H200, with and without
)
FIRST_LOADS = 3.0  # loads after one another, before and after a walk: positions, the sum's start, the store


@dataclass(frozen=True)
class Demand:
    """Counts for one call, of numbers or of arrays of them (`benchmarks.cost_model` takes many plans at once).

    `launches` are kernels, `dram`, `l2` and `shared` bytes, `lines` those that L1 looks up.  Of warps: `steps` over entries,
    `useful_steps` without those in which lanes wait for others, `loads` of entries, `vectors` that entries gather, `sums`
    (multiply-adds), `decodes` of coordinates beyond a load, `units` begun and ended, `shuffles`, and `scans` over rows in
    parts.  `batches` are loads in flight together, those of all warps; `chain` those of the longest unit, one after the other;
    `warps` run side by side, `latency` is microseconds a batch, and `busy` the share of the schedulers that have a warp.
    `atomics` are additions by lanes in global memory, `same_address` the most of them to one number.
    """

    launches: Any
    dram: Any
    l2: Any
    lines: Any
    shared: Any
    steps: Any
    useful_steps: Any
    loads: Any
    vectors: Any
    sums: Any
    decodes: Any
    units: Any
    shuffles: Any
    scans: Any
    batches: Any
    chain: Any
    warps: Any
    latency: Any
    busy: Any
    atomics: Any
    same_address: Any


NAMES = tuple(field.name for field in fields(Demand))


def demand(work: Work, rates: Rates) -> Demand:
    """What one part asks for."""
    repeats, mean = work.repeats, work.entries / max(work.units, 1.0)
    a_unit = work.lanes / WARP  # warps
    idle = 1 + (work.uneven - 1) * max(0.0, log2(WARP / work.lanes)) / 5 if work.lanes < WARP else 1.0
    rounding = (work.groups - 1) / (2 * work.groups) if mean else 0.0
    each = max(mean / work.groups + rounding, min(mean, 1.0))  # steps of a unit
    useful = work.units * a_unit * each * repeats
    steps = useful * idle
    gathers = work.block_columns * (1 if work.block_jam else work.block_rows) if work.gathers else 0
    vectors = steps * work.jam * gathers
    shared = min(work.lanes, WARP) if work.shared_loads else 1
    loads = steps / max(work.entry_vector, shared)
    starts = work.units * a_unit * repeats
    reduced = starts * log2(work.groups) * work.sums if work.groups > 1 else 0.0
    flight, resident = _resident(work, rates)
    warps = max(1.0, min(work.units * a_unit, resident))
    traffic = _traffic(work, rates)
    longest = max(work.longest / work.groups, each)
    return Demand(
        launches=float(work.launches),
        dram=traffic.dram,
        l2=traffic.l2,
        lines=2 * loads * _entry_lines(work, mean) + vectors * _gather_lines(work),
        shared=2 * work.staged_bytes * work.entries,
        steps=steps,
        useful_steps=useful,
        loads=loads,
        vectors=vectors,
        sums=steps * work.jam * work.width * work.block_rows * work.block_columns,
        decodes=steps * work.decode,
        units=starts,
        shuffles=reduced + (steps * 2 if work.shared_loads else 0.0),
        scans=steps * log2(WARP) / work.entry_vector if work.scanned and work.groups > 1 else steps * work.scanned,
        batches=work.units * a_unit * repeats * idle * _batches(each, work, flight),
        chain=repeats * _batches(longest, work, flight) + FIRST_LOADS * work.launches,
        warps=warps,
        latency=traffic.latency,
        busy=min(1.0, max(1.0, work.units * a_unit) / (rates.multiprocessors * rates.schedulers)),
        atomics=work.cut * work.columns,
        same_address=work.most_cut if work.cut else 0.0,
    )


def _resident(work: Work, rates: Rates) -> tuple[float, float]:
    """Steps whose loads are in flight together, and warps that the GPU holds: both as registers and shared memory allow."""
    threads = work.threads or WARP
    bound = rates.registers / (work.blocks * threads) if work.blocks else work.registers or max(LEAST, 24 + 2 * work.sums)
    registers = max(16.0, min(wanted_registers(work), bound, MOST))
    flight = min(float(work.unroll), max(1.0, (registers - SPARE - work.sums) / _step_registers(work)))
    blocks = min(rates.max_threads / threads, rates.registers / (registers * threads), rates.max_blocks)
    if work.shared_bytes:
        blocks = min(blocks, rates.shared_bytes / work.shared_bytes)
    return flight, max(1.0, float(int(blocks))) * threads / WARP * rates.multiprocessors


def wanted_registers(work: Work) -> float:
    """Registers that a thread takes with all of its loads in flight: an estimate."""
    return SPARE + work.sums + work.unroll * _step_registers(work)


def _step_registers(work: Work) -> int:
    """Registers for what one step loads: an entry, and what it gathers."""
    return work.jam * work.width * work.block_columns + 1


def _batches(steps: float, work: Work, flight: float) -> float:
    """Batches of loads, one after the other, that so many steps of a lane take: whole ones, and what is left over."""
    if work.unroll == 1 or steps <= 0:
        return steps
    whole = steps // work.unroll
    rest = steps - whole * work.unroll
    left = {"loop": rest, "halves": log2(rest + 1), "clamp": min(rest, 1.0)}[work.tail]
    return whole * work.unroll / flight + left


def _entry_lines(work: Work, mean: float) -> float:
    """Lines of L1 that a warp reads to load a coordinate or a value for each of its lanes."""
    if work.side_by_side or work.lanes >= WARP:
        return 1.0
    apart = WARP / work.lanes
    return max(1.0, min(apart, apart * mean * work.entry_bytes / 2 / LINE))


def _gather_lines(work: Work) -> float:
    """Lines that a warp reads to gather a vector for each of its lanes."""
    entries = WARP / work.column_lanes if work.lanes < WARP or work.groups > 1 else 1.0
    size = work.column_lanes * work.width * work.value_bytes
    if size >= LINE:
        return max(1.0, entries * size / LINE)
    together = max(1.0, 32 / (work.value_bytes * max(work.columns, 1)))
    apart = sectors_an_entry(work.pattern, together) if work.groups > 1 else 1 - min(NEAREST, NEIGHBOURS * work.near)
    return max(1.0, entries * max(apart, size / LINE))


@dataclass(frozen=True)
class _Traffic:
    dram: float
    l2: float
    latency: float


def _traffic(work: Work, rates: Rates) -> _Traffic:
    """Bytes from DRAM and out of L2, and the latency of a load of a coordinate and of what it points to."""
    f, size = work.pattern, work.value_bytes
    tile = work.tile or work.columns
    walks = ceil(work.columns / tile)
    matrix = work.entries * work.entry_bytes + work.rows * work.row_bytes
    output = f.rows * work.columns * size + 2 * work.cut * work.columns * size
    operand = f.used_columns * work.columns * size if work.gathers else 0.0
    share = min(1.0, work.entries * work.block_columns / max(f.entries, 1)) * (HOT_FIRST if work.hot_first else 1.0)
    near = work.near
    unit = tile * size if work.gathers else 0
    l1, l2 = (walks * share * _misses(f, unit, near, room) for room in (L1_SHARE * rates.l1_bytes, L2_SHARE * rates.l2_bytes))
    l2 = max(min(l2, l1), min(operand, l1))
    used = (matrix + operand + output) / rates.l2_bytes
    cold = min(1.0, max(0.0, (used - WARM[0]) / (WARM[1] - WARM[0])))
    again = walks if matrix > L2_SHARE * rates.l2_bytes else 1
    read = max(f.entries * max(unit, 32.0), 1.0) * walks
    missed, far = min(1.0, l1 / read), min(1.0, cold * l2 / read)
    latency = rates.l1_latency + missed * rates.l2_latency + far * rates.dram_latency
    stream = rates.l2_latency + cold * (rates.dram_latency - rates.l2_latency)
    return _Traffic(cold * (again * matrix + l2 + output), walks * matrix + l1 + output, latency + 0.5 * stream)


_misses = lru_cache(maxsize=256)(misses)


def added(parts: list[Demand]) -> Demand:
    """What parts ask for that run one after the other: sums; of what is no amount, the means by batches."""
    if len(parts) == 1:
        return parts[0]
    total = {name: sum(getattr(part, name) for part in parts) for name in NAMES}
    weights = [part.batches + 1e-9 for part in parts]
    for name in ("warps", "latency", "busy"):
        total[name] = sum(w * getattr(part, name) for w, part in zip(weights, parts, strict=True)) / sum(weights)
    return Demand(**total)
