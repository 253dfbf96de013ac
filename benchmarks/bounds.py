"""Least times: how many bytes must move, over the rates at which this GPU moves them.

**Compulsory**: every array is read once and the output is written once, at the rate of a large device copy (bytes read plus
bytes written).  A is counted as CSR with 32-bit indices; of x or B only what some entry refers to.  A plan that stores A in
fewer bytes may beat this bound.

**Cache-aware**: A and the output as before, but x or B as often as the caches make it travel.  The entries of A in row
order are a sequence of accesses to units: sectors of 32 bytes of x, or rows of B.  How many of them miss a cache that holds
`c` units follows from the sequence alone, by the footprint theory of Xiang et al. ("HOTL: a higher order theory of locality",
ASPLOS 2013).  With `g` the gap between two accesses of one unit (for its first access: the distance from the start, for its
last: to the end), a window of `w` of the `n` accesses holds on average

    fp(w) = units - sum(max(0, g - w)) / (n - w + 1)

different units.  The cache holds what the last `w` accesses touched, with `w` the largest window for which fp(w) <= c; an
access misses when it is the unit's first or when its gap is above `w`.  Then

    DRAM time   = (A + output + misses(L2) * unit bytes) / copy rate
    L2 time     = misses(L1) * unit bytes / rate out of L2
    cache-aware = max(compulsory, DRAM time, L2 time)

L2 holds `L2_SHARE` of its size for x or B, the rest passes A and the output through; L1 holds `L1_BYTES`, and one
multiprocessor is taken to run consecutive rows (a plan that reorders rows or columns may do better).  Units of at most one
sector leave L2 no faster than the gather wall, wider ones at the rate of coalesced reads.  Gaps are those of a sample of
units, each weighted by the inverse of its chance.  A matrix that L2 holds whole is charged as if it came from DRAM: the two
rates are close, and this is how the bound is commonly stated.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SECTOR = 32  # bytes
L1_BYTES = 192 << 10  # of the 256 KiB of a multiprocessor of Hopper: A streams through the rest
L2_SHARE = 0.75
SAMPLE = 1 << 20  # accesses


@dataclass(frozen=True)
class Rates:
    """Bytes a second, and bytes: of a large copy (read plus written), of gathers and of coalesced reads out of L2; L2's size.

    The defaults were measured on an H200, and `measured` says whether these were, in the run that they are printed with.
    """

    copy: float = 4.3e12
    gather: float = 134e9 * SECTOR
    l2_read: float = 7.0e12
    l2_bytes: int = 60 << 20
    measured: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Traffic:
    """Bytes that one task moves: `compulsory` in all, `dram` with what L2 misses, `l2` what L1 misses of x or B."""

    compulsory: float
    dram: float
    l2: float
    unit_bytes: int

    def times_us(self, rates: Rates) -> dict[str, float]:
        """Both bounds in microseconds, and the two parts of the cache-aware one."""
        compulsory = self.compulsory / rates.copy
        dram = self.dram / rates.copy
        l2 = self.l2 / (rates.gather if self.unit_bytes <= SECTOR else rates.l2_read)
        times = {"compulsory": compulsory, "dram": dram, "l2": l2, "cache_aware": max(compulsory, dram, l2)}
        return {name: 1e6 * seconds for name, seconds in times.items()}


class Reuse:
    """The gaps between accesses of the same unit, in a sequence of accesses."""

    def __init__(self, units: NDArray[Any], *, sample: int = SAMPLE, seed: int = 0) -> None:
        self.accesses = int(units.size)
        counts = np.bincount(units) if units.size else np.zeros(1, np.int64)
        self.units = int(np.count_nonzero(counts))
        weight = _weights(counts, self.accesses, sample, seed)
        if units.size:
            places = np.flatnonzero(weight[units] > 0) if self.accesses > sample else np.arange(units.size)
            order = places[np.argsort(units[places], kind="stable")]
        else:
            order = np.zeros(0, np.int64)
        unit = units[order]
        last = np.append(unit[1:] != unit[:-1], True) if unit.size else np.zeros(0, bool)
        first = np.append(True, last[:-1]) if unit.size else last
        inner = (order[1:] - order[:-1])[~last[:-1]] if unit.size else order
        self._reuse, self._reuse_weight = _ascending(inner, weight[unit[~first]])
        ends = np.concatenate((inner, order[first] + 1, self.accesses - order[last]))
        of = np.concatenate((unit[~first], unit[first], unit[last]))
        self._present = float(weight[unit[first]].sum())
        self._gaps, gap_weight = _ascending(ends, weight[of])
        self._weight_above = _sums_above(gap_weight)
        self._length_above = _sums_above(gap_weight * self._gaps)
        self._reuses_above = _sums_above(self._reuse_weight)

    def footprint(self, window: int) -> float:
        """How many different units a window of so many accesses holds on average."""
        place = int(np.searchsorted(self._gaps, window, side="right"))
        outside = self._length_above[place] - window * self._weight_above[place]
        return self._present - outside / (self.accesses - window + 1)  # both of the same sample: their errors cancel

    def misses(self, capacity: float) -> float:
        """Accesses that miss a cache of so many units which keeps what was used last."""
        if self.units <= capacity:
            return float(self.units)
        low, high = 0, self.accesses  # fp(low) <= capacity < fp(high)
        while high - low > 1:
            middle = (low + high) // 2
            if self.footprint(middle) <= capacity:
                low = middle
            else:
                high = middle
        above = self._reuses_above[int(np.searchsorted(self._reuse, low, side="right"))]
        return float(np.clip(self.units + above, self.units, self.accesses))


def _weights(counts: NDArray[Any], accesses: int, sample: int, seed: int) -> NDArray[np.float64]:
    """For each unit the inverse of its chance to be looked at, 0 when it is not.

    Half of the sample goes to the units that are used most, which are always looked at.
    """
    if accesses <= sample:
        return np.ones(counts.size)
    falling = np.argsort(counts)[::-1]
    often = falling[: int(np.searchsorted(np.cumsum(counts[falling]), sample // 2))]
    chance = min(1.0, (sample - sample // 2) / max(accesses - int(counts[often].sum()), 1))
    weight = np.where(np.random.default_rng(seed).random(counts.size) < chance, 1 / chance, 0.0)
    weight[often] = 1.0
    return weight


def _ascending(values: NDArray[Any], weights: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    order = np.argsort(values)
    return values[order], weights[order]


def _sums_above(values: NDArray[Any]) -> NDArray[np.float64]:
    """At place i the sum of `values[i:]`; one longer than `values`."""
    return np.append(np.cumsum(values[::-1], dtype=np.float64)[::-1], 0.0)


class Model:
    """The traffic of products with one matrix; what it costs to find out is paid once for every number of columns."""

    def __init__(self, matrix: Any, itemsize: int = 4, rates: Rates | None = None) -> None:
        self.rows, self.columns = matrix.shape
        self._matrix, self._itemsize = matrix, itemsize
        self._l2_bytes = (rates or Rates()).l2_bytes
        self._used = int(np.count_nonzero(np.bincount(matrix.indices, minlength=1)))
        self._by_width: dict[int, Reuse] = {}

    def traffic(self, k: int = 0) -> Traffic:
        """Of SpMV (`k` 0), or of SpMM with `k` dense columns."""
        width = max(k, 1) * self._itemsize
        a = self._matrix.nnz * (4 + self._itemsize) + 4 * (self.rows + 1)
        output = self.rows * width
        unit = max(width, SECTOR)
        reuse = self._reuse(unit // width)
        dram = reuse.misses(L2_SHARE * self._l2_bytes / unit) * unit
        l2 = reuse.misses(L1_BYTES / unit) * unit
        return Traffic(a + output + self._used * width, a + output + dram, l2, unit)

    def _reuse(self, together: int) -> Reuse:
        """Accesses to units of that many neighbouring columns."""
        if together not in self._by_width:
            columns = self._matrix.indices
            self._by_width[together] = Reuse(columns // together if together > 1 else columns)
        return self._by_width[together]


def measure_rates() -> Rates:
    """Measure them on the current GPU, in well under a second.  Needs CuPy."""
    import cupy as cp

    from benchmarks.timing import best_us

    def copied(size: int) -> float:
        source, target = cp.ones(size, cp.uint8), cp.empty(size, cp.uint8)
        return 2 * size / best_us(lambda: cp.copyto(target, source), 7) * 1e6

    copy = copied(2 << 30)
    module = cp.RawModule(code=_KERNELS, options=("-std=c++17",))
    blocks, threads, repeats = 132 * 8, 512, 24
    out = cp.zeros(blocks * threads, cp.float32)
    count = (24 << 20) // 16
    data = cp.zeros(count * 4, cp.float32)
    read = module.get_function("read_all")
    us = best_us(lambda: read((blocks,), (threads,), (data, np.int32(count), np.int32(repeats), out)), 7)
    l2_read = count * 16 * repeats / us * 1e6
    gather = module.get_function("gather")
    us = best_us(lambda: gather((blocks,), (threads,), (data, np.int32((4 << 20) // 4 - 1), np.int32(repeats), out)), 7)
    gathered = blocks * threads * repeats * 8 * SECTOR / us * 1e6
    l2_bytes = int(cp.cuda.Device().attributes.get("L2CacheSize", Rates.l2_bytes))
    cp.get_default_memory_pool().free_all_blocks()
    return Rates(float(copy), float(gathered), float(l2_read), l2_bytes, measured=True)


# read_all: all blocks read the same 24 MiB again and again, each starting elsewhere; gather: loads of 4 bytes anywhere in 4.
_KERNELS = r"""
extern "C" __global__ void read_all(const float4* data, int count, int repeats, float* out) {
  float sum = 0;
  int stride = gridDim.x * blockDim.x, start = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = 0; r < repeats; ++r) {
    int shift = (int)(((long long)r * 7919 * blockDim.x) % count);
    for (int i = start; i < count; i += stride) {
      int at = i + shift;
      float4 v = __ldcg(&data[at < count ? at : at - count]);
      sum += v.x + v.y + v.z + v.w;
    }
  }
  out[start] = sum;
}
extern "C" __global__ void gather(const float* data, int mask, int repeats, float* out) {
  float sum = 0;
  int start = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned state = start * 2654435761u + 12345u;
  for (int r = 0; r < repeats; ++r) {
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      unsigned x = state + (r * 8 + j) * 0x9E3779B9u;
      x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15;
      sum += __ldcg(&data[x & mask]);
    }
  }
  out[start] = sum;
}
"""
