"""How long the host takes to find the features of a matrix, on which every plan waits.

    python -m benchmarks.features_time [--entries 50000000] [--out FILE] [--check]

Seconds from canonical CSR in memory to `Features`, the best of some rounds, and the seconds of all processors meanwhile, for
patterns that cost most in one way each: columns anywhere, few columns that hold much, diagonals that all have to be looked at,
rows so short that there are many, one row that holds much.  With `--check` it exits 1 where one takes more than 0.3 s.  Two
processors are meant, as many as CI has, with nothing else running.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.machine import machine_row
from sparseditto.agent.features import analyse

MOST_SECONDS = 0.3


def _of_lengths(lengths: NDArray[np.int64], columns: int, skew: float = 1.0) -> Any:
    """Rows of these lengths, each with a column of each of as many parts, the first ones small where `skew` is above 1."""
    positions = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=positions[1:])
    number = np.arange(positions[-1]) - np.repeat(positions[:-1], lengths)
    place = number + np.random.default_rng(0).random(number.size, dtype=np.float32)
    length = np.repeat(lengths, lengths)
    place /= length
    if skew != 1:
        place **= skew
    place *= columns - length
    indices = (place.astype(np.int64) + number).astype(np.int32)
    values = np.arange(indices.size, dtype=np.float32)
    return sp.csr_array((values, indices, positions.astype(np.int32)), shape=(lengths.size, columns))


def uniform(entries: int) -> Any:
    rows = max(entries // 10, 10)
    return _of_lengths(np.full(rows, 10), rows)


def power_law(entries: int) -> Any:
    """Row lengths by a power law, columns too."""
    rows = max(entries // 16, 16)
    lengths = np.minimum(np.random.default_rng(1).zipf(1.9, rows), rows // 8)
    return _of_lengths((lengths * (entries / lengths.sum())).astype(np.int64) + 1, rows, 3.0)


def banded(entries: int) -> Any:
    """Fifteen diagonals, values all alike."""
    rows = max(entries // 15, 15)
    columns = np.arange(rows, dtype=np.int32)[:, np.newaxis] + np.arange(-7, 8, dtype=np.int32)
    inside = (columns >= 0) & (columns < rows)
    positions = np.append(0, np.cumsum(inside.sum(axis=1))).astype(np.int32)
    return sp.csr_array((np.ones(positions[-1], np.float32), columns[inside], positions), shape=(rows, rows))


def short_rows(entries: int) -> Any:
    """Rows of 0 to 4 entries, half as many rows as entries."""
    rows = max(entries // 2, 2)
    return _of_lengths(np.random.default_rng(2).integers(0, 5, rows), rows)


def giant_row(entries: int) -> Any:
    """A first row with half of all entries, others of five."""
    lengths = np.full(max(entries // 10, 1), 5)
    lengths[0] = max(entries // 2, 1)
    return _of_lengths(lengths, max(entries // 2, 1))


PATTERNS: dict[str, Callable[[int], Any]] = {
    "uniform": uniform,
    "power law": power_law,
    "banded": banded,
    "short rows": short_rows,
    "giant row": giant_row,
}


def measure(name: str, csr: Any, rounds: int) -> dict[str, Any]:
    wall, busy = [], []
    for _ in range(rounds):
        start, used = time.perf_counter(), time.process_time()
        found = analyse(csr)
        wall.append(time.perf_counter() - start)
        busy.append(time.process_time() - used)
    return {
        "pattern": name,
        "rows": int(csr.shape[0]),
        "entries": int(csr.nnz),
        "sampled": found.sampled,
        "seconds": min(wall),
        "processor_seconds": min(busy),
    }


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.features_time", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--entries", type=int, default=50_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help=f"exit 1 where one takes more than {MOST_SECONDS} s")
    args = parser.parse_args(words)
    lines = [json.dumps(machine_row("host") | {"rounds": args.rounds})]
    slow = 0
    for name, make in PATTERNS.items():
        row = measure(name, make(args.entries), args.rounds)
        lines.append(json.dumps(row))
        late = row["seconds"] > MOST_SECONDS
        slow += late
        print(
            f"{name:12} {row['rows']:>10} rows {row['entries']:>10} entries  {row['seconds']:.3f} s "
            f"({row['processor_seconds']:.3f} s of processors), {row['sampled']:.1%} looked at whole"
            f"{f'   slow: {MOST_SECONDS} s wanted' if late else ''}",
            flush=True,
        )
    if args.out is not None:
        args.out.write_text("\n".join(lines) + "\n")
    return 1 if args.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
