"""`Work`: what a kernel has to do for a matrix, in numbers that each pass of a plan changes in turn (`Pass.effect`).

It is how a pass tells a cost model what it does without the model knowing the pass.  All numbers are what a kernel does in one
call, expected or estimated; nothing here is a time or knows a GPU.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log, log2
from typing import Any, NamedTuple

WARP = 32
INDEX_BYTES = 4


class Work(NamedTuple):
    """The work of one part of a matrix, and how threads share it out.

    Every part has `units`: rows at first, then whatever a pass makes of them, each of which `lanes` threads share.  Groups of
    those lanes take the entries of a unit in turn, and the lanes of a group share its dense columns.
    """

    pattern: Any  # the agent's `Features` of the matrix as the kernel walks it
    columns: int  # of the dense operand, at least 1
    value_bytes: int  # of an element of the dense operands
    gathers: bool = True  # whether an entry reads the dense operand at its column

    # What is stored
    rows: float = 0.0  # whose positions are read and whose sums are stored (rows of blocks)
    entries: float = 0.0  # that are walked: stored entries with padding, or blocks
    entry_bytes: float = 0.0  # of one of those: value and coordinate
    row_bytes: float = INDEX_BYTES
    block_rows: int = 1
    block_columns: int = 1
    decode: float = 0.0  # instructions beyond a load that an entry's coordinate takes

    # The units
    units: float = 0.0
    longest: float = 0.0  # entries of the longest unit
    uneven: float = 1.0  # entries that a warp waits for over entries, where each of its 32 lanes has a unit
    side_by_side: bool = False  # whether neighbouring units have their entries next to each other
    near: float = 0.0  # share of what a unit gathers that the one before it does too
    cut: float = 0.0  # pieces of rows that are added to the output beside whole rows
    most_cut: float = 0.0  # pieces of one row
    scanned: bool = False  # whether lanes tell rows apart by themselves

    # The threads
    lanes: int = 1
    groups: int = 1
    width: int = 1  # columns of a vector of them
    tile: int = 0  # columns that one walk over all rows computes; 0: all
    jam: int = 1  # vectors of columns a lane computes in one walk over its entries
    block_jam: bool = False  # whether all rows of a block share what its columns gather
    unroll: int = 1
    tail: str = "loop"
    entry_vector: int = 1  # entries a load
    shared_loads: bool = False  # whether the lanes of a unit load its entries together
    threads: int = 0  # a block; 0: not mapped yet
    blocks: int = 0  # that must fit on a multiprocessor; 0: nothing is said
    registers: int = 0  # that a thread may have; 0: nothing is said
    shared_bytes: int = 0  # of shared memory that a block takes
    staged_bytes: float = 0.0  # an entry that go into shared memory and out of it
    launches: int = 1  # kernels
    hot_first: bool = False  # whether what is gathered often is side by side

    rest: Work | None = None  # of the part that comes next

    @property
    def repeats(self) -> float:
        """How often a unit walks over its entries: once for each share of the columns that its lanes cannot hold."""
        tile = self.tile or self.columns
        at_once = self.width * self.jam * self.column_lanes
        return -(-self.columns // tile) * -(-tile // at_once)

    @property
    def column_lanes(self) -> int:
        return max(1, self.lanes // self.groups)

    @property
    def sums(self) -> int:
        """Sums that a thread keeps."""
        return self.width * self.jam * (self.block_rows if self.block_jam else 1)

    def in_blocks(self, height: int, width: int) -> Work:
        """The work with blocks for entries: as many as hold any, by the nearest share of filled places that is known."""
        f = self.pattern
        known = {4: f.fill_2, 9: f.fill_3, 16: f.fill_4, 32: f.fill_8}
        places = min(known, key=lambda places: abs(log2(places / (height * width))))
        fill = min(1.0, known[places] or 1 / places)
        rows = ceil(self.rows / height)
        return self._replace(
            rows=rows,
            units=rows,
            entries=self.entries / (height * width * fill),
            longest=min(self.longest, self.longest / width / fill),
            block_rows=height,
            block_columns=width,
        )

    def cut_at(self, length: float) -> Work:
        """The work with units of at most `length` entries, which pieces of cut rows are among."""
        if self.longest <= length:
            return self
        more = self.entries * share_beyond(self.pattern, length) / length
        mean = self.entries / max(self.units, 1.0)
        even = min(self.uneven, max(1.0, length / max(mean, 1.0)))
        return self._replace(
            units=self.units + more,
            longest=float(length),
            uneven=even,
            cut=2 * more,
            most_cut=self.pattern.max_row / length,
        )


def share_beyond(pattern: Any, length: float) -> float:
    """About the share of the entries that are in rows longer than `length`.

    It is 1 beyond one entry, `long_rows` beyond the length that 99 % of the rows do not exceed, and 0 beyond the longest row;
    of q of the rows, none longer than n, at most q n / mean_row are shorter.  In between, linear in the logarithm.
    """
    mean, top = max(pattern.mean_row, 1e-9), pattern.long_rows
    known = (
        (1, 1.0),
        (pattern.median_row, max(top, 1 - 0.5 * pattern.median_row / mean)),
        (pattern.row_q90, max(top, 1 - 0.9 * pattern.row_q90 / mean)),
        (pattern.row_q99, top),
        (pattern.max_row, 0.0),
    )
    for (less, above), (more, below) in pairwise(known):
        if length < more:
            return above - (above - below) * max(0.0, log(length / max(less, 1)) / log(more / max(less, 1)))
    return 0.0
