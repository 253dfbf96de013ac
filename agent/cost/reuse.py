"""How often what entries gather is not in a cache, from features alone.

The exact answer needs the sequence of columns (the footprint theory of Xiang et al., "HOTL", ASPLOS 2013, which
`benchmarks.bounds` follows); this is an estimate of it from a few features, by three reasons for a hit:

- **hot**: the most used columns stay.  Their share of the accesses grows with the share x of the columns as x^a, where a is
  such that the hottest 1 % of the columns have the share that `hot_columns` says (a = 1: uniform).
- **local**: a row reaches over `mean_row_span` columns, and the next one over about the same: of a cache that holds them all
  everything hits, of a smaller one its share of them.
- **near**: a cache that holds two rows hits what the row before has had (`row_overlap`).

The reasons are taken as independent, but local and near, of which the larger counts.  No access is missed less than once for
each unit that is used.
"""

from __future__ import annotations

from math import log

from sparseditto.agent.features import Features

SECTOR = 32  # bytes, the least that a cache takes
LOCAL = 0.5  # of what is used: rows that reach farther have no locality
ROWS = 2.0  # that a cache must hold for reuse between neighbours


def misses(f: Features, unit_bytes: float, near: float, capacity: float) -> float:
    """Bytes that a cache of `capacity` bytes takes in for one walk over all entries.

    An entry reads `unit_bytes` bytes at its column, with those of its neighbours where that is less than a sector; `near` is
    the share that the row before has had.
    """
    if not f.entries or not unit_bytes:
        return 0.0
    together = max(1.0, SECTOR / unit_bytes)  # columns that come at a time
    unit = max(float(unit_bytes), SECTOR)
    used, first = used_units(f, together), sectors_an_entry(f, together)
    room = capacity / unit
    if used <= room:
        return used * unit
    hot = min(max(f.hot_columns, 0.01), 0.99)
    held = (room / used) ** (log(hot) / log(0.01))
    span = max(1.0, f.mean_row_span / together)
    local = min(1.0, room / span) if span < LOCAL * used else 0.0
    beside = near if room > ROWS * f.mean_row * first else 0.0
    missed = first * (1 - held) * (1 - max(local, beside))
    return max(used, f.entries * missed) * unit


def used_units(f: Features, together: float) -> float:
    """Groups of `together` neighbouring columns that hold entries, where those are anywhere."""
    if together == 1 or not f.columns:
        return float(f.used_columns)
    share = min(1.0, f.used_columns / f.columns)
    return f.columns / together * (1 - (1 - share) ** together)


def sectors_an_entry(f: Features, together: float) -> float:
    """Groups of columns that a row reads, over its entries: `sectors` is of groups of 8."""
    return 1.0 if together == 1 else max(1 / together, f.sectors or 1.0)
