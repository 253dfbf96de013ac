"""Recipes that cut the stored entries, not the rows, into equal parts: what `split-entries` makes the host compute.

All are linear in the rows and in a 32nd of the entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.dialects.errors import InputError

Arrays = dict[str, NDArray[Any]]
Numbers = NDArray[np.int64]
WORD = 32  # bits of a word of flags
SLACK = 4  # a boundary moves by a length / SLACK at most
FEW = 32  # parts of a cut row that one thread still adds up by itself


@dataclass(frozen=True)
class Parts:
    """`starts[p]` to `starts[p + 1]` are the entries of part p; `carry[p]` is the row that starts[p] cuts, or -1.

    `rows` are the rows that have entries, `ends` their last entries, `empty` the rows without.
    """

    starts: Numbers
    carry: Numbers
    rows: Numbers
    ends: Numbers
    empty: Numbers

    @property
    def count(self) -> int:
        return self.starts.size - 1


def cut_entries(positions: NDArray[np.integer], length: int) -> Parts:
    """Parts of about `length` entries, and at least one for each `length` rows without entries.

    A part starts at a multiple of `length`, or with a row whose start lies within a quarter of `length` of that.
    """
    bounds = np.asarray(positions).astype(np.int64, copy=False)
    total, count = int(bounds[-1]), np.diff(bounds)
    if max(total, count.size) > np.iinfo(np.int32).max:
        raise InputError("more than 2^31 rows or entries cannot be cut into parts")
    rows, empty = np.flatnonzero(count), np.flatnonzero(count == 0)
    ends = bounds[1:][rows] - 1
    target = np.arange(length, total, length)
    owner = np.searchsorted(ends, target)
    before, after = target - bounds[rows[owner]], ends[owner] + 1 - target
    snapped = np.where(before <= after, target - before, target + after)
    near = np.minimum(before, after) <= length // SLACK
    parts = max(target.size + (total > 0), -(-empty.size // length))
    starts, carry = np.full(parts + 1, total), np.full(parts + 1, -1)
    starts[0] = 0
    starts[1 : target.size + 1] = np.where(near, snapped, target)
    carry[1 : target.size + 1] = np.where(near, -1, rows[owner])
    return Parts(starts, carry, rows, ends, empty)


def entry_parts(positions: NDArray[np.integer], length: int, items: int) -> Arrays:
    """Parts of about `length` entries, and where rows end.

    `starts`, `carry`, `rows` and `empty` are those of `Parts`; `cut` lists the rows that some boundary cuts.  Bit e % 32 of
    `flags[e / 32]` says whether entry e is the last of its row, and `ranks[w]` counts the rows that end before entry
    32 w: an entry's row is the one in `rows` whose number is the count of rows that end before it.  Bit g % 32 of
    `lanes[g / 32]` says whether a row ends among the `items` entries of group g.
    """
    parts = cut_entries(positions, length)
    total = int(positions[-1])
    words = total // WORD + 1
    groups = parts.ends // items
    groups = groups[np.diff(groups, prepend=-1) > 0]
    return {
        "starts": parts.starts.astype(np.int32),
        "carry": parts.carry.astype(np.int32),
        "rows": parts.rows.astype(np.int32),
        "empty": parts.empty.astype(np.int32),
        "cut": np.unique(parts.carry[parts.carry >= 0]).astype(np.int32),
        "flags": _bits(parts.ends, words),
        "ranks": np.searchsorted(parts.ends, np.arange(words) * WORD).astype(np.int32),
        "lanes": _bits(groups, total // (WORD * items) + 2),
    }


def entry_carries(positions: NDArray[np.integer], length: int, columns: int) -> Arrays:
    """The rows that parts of about `length` entries cut: those of at most 32 boundaries in `few`, the others in `many`.

    Row r has pieces in the parts from `few_first` to `few_last`.  `sums` is a workspace of two places a part for each of
    `columns` numbers: the sum with which its first row ends, and the one that goes on in the next part.
    """
    parts = cut_entries(positions, length)
    crossed = np.flatnonzero(parts.carry >= 0)
    rows, where, pieces = np.unique(parts.carry[crossed], return_index=True, return_counts=True)
    first = crossed[where] - 1
    made: Arrays = {"sums": np.zeros(2 * parts.count * columns, np.int32)}
    for name, chosen in (("few", pieces <= FEW), ("many", pieces > FEW)):
        made[name] = rows[chosen].astype(np.int32)
        made[f"{name}_first"] = first[chosen].astype(np.int32)
        made[f"{name}_last"] = (first + pieces)[chosen].astype(np.int32)
    return made


def _bits(numbers: Numbers, words: int) -> NDArray[np.int32]:
    """Words in which the bits with these distinct numbers are set."""
    weights = np.ldexp(1.0, (numbers % WORD).astype(np.int32))
    return np.bincount(numbers // WORD, weights=weights, minlength=words).astype(np.uint32).view(np.int32)
