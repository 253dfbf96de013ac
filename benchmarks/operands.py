"""Dense operands that host and GPU make alike, and what a product with them should be.

Element i of an operand is a hash of i, so that either side makes any part of it without the other.  The reference is
float64.  It covers every component of SpMV and of small SpMM; of a large SpMM some rows (the longest, the first, the last,
and random ones) in full, and then every row through a projection: C·r against A·(B·r) for a random vector r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.compiler.computation import Computation
from sparseditto.compiler.reference import TOLERANCE, Check, compare, evaluate

Array = NDArray[Any]
FULL = 1 << 21  # components up to which all are compared one by one
_PART = 1 << 26


def noise(xp: Any, index: Any, seed: int, dtype: str) -> Any:
    """Numbers in [-1, 1), exact in float32, for an array of uint32 (which is used up).  `xp` is numpy or cupy."""
    index ^= xp.uint32(seed * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        index ^= index >> xp.uint32(shift)
        index *= xp.uint32(factor)
    index >>= xp.uint32(8)
    return index.astype(dtype) * xp.asarray(2.0**-23, dtype=dtype) - xp.asarray(1, dtype=dtype)


def dense(xp: Any, shape: tuple[int, ...], seed: int, dtype: str = "float32") -> Any:
    """A whole operand."""
    size = int(np.prod(shape, dtype=np.int64))
    out = xp.empty(size, dtype=dtype)
    for first in range(0, size, _PART):
        count = min(_PART, size - first)
        out[first : first + count] = noise(xp, xp.arange(first, first + count, dtype=xp.uint64).astype(xp.uint32), seed, dtype)
    return out.reshape(shape)


def dense_rows(rows: Array, columns: int, seed: int, dtype: str = "float32") -> Array:
    """Some rows of an operand with so many columns."""
    index = rows.astype(np.uint64)[:, None] * np.uint64(columns) + np.arange(columns, dtype=np.uint64)
    result: Array = noise(np, index.astype(np.uint32), seed, dtype)
    return result


@dataclass(frozen=True)
class Reference:
    """What the output should be: float64, with the scale of each component's error.  `rows` None: all of them.

    `seed` is the right operand's.
    """

    rows: Array | None
    expected: Array
    scale: Array
    seed: int

    def check(self, fetch: Callable[[Array | None], Array]) -> Check:
        """Compare; `fetch(rows)` gives those rows of the result (None: all)."""
        return compare(fetch(self.rows), self.expected, self.scale)

    def describe(self) -> str:
        """What was compared."""
        if self.rows is None:
            return "every component"
        return f"every component of {self.rows.size} rows (the longest, first, last, and random ones), every row by projection"


def reference(computation: Computation, matrix: Any, k: int, dtype: str, seed: int) -> Reference:
    """The reference of SpMV (`k` 0) or SpMM, for the right operand that `dense(…, seed)` makes."""
    name = next(o.name for o in computation.inputs if not o.sparse)
    with np.errstate(over="ignore"):
        matrix = matrix.astype(dtype)
    rows = None if matrix.shape[0] * max(k, 1) <= FULL or k == 0 else _some_rows(matrix, max(64, FULL // (2 * k)))
    if rows is None:
        right = dense(np, (matrix.shape[1], k) if k else (matrix.shape[1],), seed, dtype)
        return Reference(None, *evaluate(computation, matrix, {name: right}, None), seed)
    part = matrix[rows]
    used, place = np.unique(part.indices, return_inverse=True)
    narrow = type(part)((part.data, place.astype(np.int32), part.indptr), shape=(rows.size, max(used.size, 1)))
    right = dense_rows(used if used.size else np.zeros(1, np.int64), k, seed, dtype)
    return Reference(rows, *evaluate(computation, narrow, {name: right}, None), seed)


def _some_rows(matrix: Any, count: int, seed: int = 0) -> Array:
    """Row numbers, ascending: half random, the longest, the first and the last; fewer when they hold very many entries."""
    lengths = np.diff(matrix.indptr)
    longest = np.argpartition(lengths, -count // 4)[-count // 4 :] if count < lengths.size else np.arange(lengths.size)
    longest = longest[np.argsort(lengths[longest])[::-1]]
    longest = longest[: max(1, int(np.searchsorted(np.cumsum(lengths[longest]), FULL)))]
    random = np.random.default_rng(seed).integers(0, lengths.size, count // 2)
    random = random[: max(1, int(np.searchsorted(np.cumsum(lengths[random]), FULL)))]
    ends = np.concatenate((np.arange(8), lengths.size - 1 - np.arange(8)))
    return np.unique(np.concatenate((longest, random, ends[(ends >= 0) & (ends < lengths.size)])))


def projection_check(a: Any, absolute: Any, right: Array, right_scale: Array, result: Array, dtype: str) -> Check:
    """Compare `result`, C·r, with A·(B·r).

    `a` and `absolute` are A and |A|, `right` is B·r and `right_scale` |B|·|r|; all float64.
    """
    with np.errstate(all="ignore"):
        expected, scale = a @ right, absolute @ right_scale
    verdict = compare(np.asarray(result), expected, scale * _slack(dtype))
    return replace(verdict, worst=verdict.worst * _slack(dtype), tolerance=verdict.tolerance * _slack(dtype))


def _slack(dtype: str) -> float:
    """`compare` holds float64 to its own tolerance; the projection of a float32 result is held to that of float32."""
    return TOLERANCE[dtype] / TOLERANCE["float64"]


def quick_check(xp: Any, result: Any, expected: Any, scale: Any, dtype: str) -> Check:
    """Every component by the rules of `compare`, on host or GPU."""
    tiny, most, tolerance = 4 * float(np.finfo(dtype).tiny), float(np.finfo(dtype).max) / 2, TOLERANCE[dtype]
    with np.errstate(all="ignore"):
        value = result.astype("float64")
        same = (value == expected) | (xp.isnan(value) & xp.isnan(expected))
        error = xp.where(same, 0.0, xp.abs(value - expected))
        beyond = (scale > most) & xp.isfinite(scale)
        wrong = ~(error <= tolerance * scale + tiny) & ~beyond & ~same
        relative = xp.where(beyond | (error <= tiny), 0.0, error / scale)
    worst = float(xp.max(relative)) if relative.size else 0.0
    return Check(worst, tolerance, int(wrong.sum()), int(value.size), int(beyond.sum()))
