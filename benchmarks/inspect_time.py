"""How long it takes to inspect matrices: the numbers, and the plots in characters.

    python -m benchmarks.inspect_time [--entries 10000000] [--out FILE]

Medians over several rounds, in seconds, of matrices that are in memory: random ones, square and wide, and a band.  What reading
the same matrix from an uncompressed `.npz` takes is beside it, and the features that the planner reads as well, which are part
of the inspection.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.machine import machine_row
from sparseditto.agent.features import analyse
from sparseditto.compiler.inspect_pattern import inspect_matrix
from sparseditto.compiler.inspect_plots import histogram_text, spy_text
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.matrix_io import load_matrix


def random_matrix(rows: int, columns: int, entries: int) -> Any:
    rng = np.random.default_rng(0)
    row, column = (rng.integers(0, size, entries, dtype=np.int32) for size in (rows, columns))
    csr = sp.coo_array((rng.random(entries, np.float32), (row, column)), shape=(rows, columns)).tocsr()
    csr.sort_indices()
    return csr


def band(size: int, width: int) -> Any:
    diagonals = [np.ones(size, np.float32)] * width
    return sp.csr_array(sp.dia_array((diagonals, np.arange(width) - width // 2), shape=(size, size)))


def seconds(work: Callable[[], Any], rounds: int) -> float:
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def measure(name: str, csr: Any, rounds: int) -> dict[str, Any]:
    matrix = Matrix(csr)
    found = inspect_matrix(matrix)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.npz"
        sp.save_npz(file, csr, compressed=False)
        reading = seconds(lambda: load_matrix(file), rounds)
    return {
        "matrix": name,
        "rows": csr.shape[0],
        "columns": csr.shape[1],
        "entries": int(csr.nnz),
        "read_seconds": reading,
        "features_seconds": seconds(lambda: analyse(csr), rounds),
        "inspect_seconds": seconds(lambda: inspect_matrix(matrix), rounds),
        "plot_seconds": seconds(lambda: (histogram_text(found.histogram, 80), spy_text(csr, 80)), rounds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    n = args.entries
    matrices = {
        "random": lambda: random_matrix(n // 10, n // 10, n),
        "random, wide": lambda: random_matrix(n // 1000, n // 10, n),
        "random, dense rows": lambda: random_matrix(n // 100, n // 100, n),
        "band": lambda: band(n // 9, 9),
    }
    lines = [json.dumps(machine_row("host") | {"rounds": args.rounds})]
    print(lines[0])
    for name, make in matrices.items():
        lines.append(json.dumps(measure(name, make(), args.rounds)))
        print(lines[-1], flush=True)
    if args.out is not None:
        args.out.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
