"""How long compilation and emulation take: one command from cold to PTX, one compilation in a process that is warm, and
SpMV with 100,000 nonzeros under emulation with all checks.

    python -m benchmarks.compile_time [--out FILE]

Medians over several rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from benchmarks.machine import machine_row
from sparseditto.compiler.api import compile_file, run

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def in_process(op: str, sizes: dict[str, int], matrix: Any, rounds: int) -> float:
    """Milliseconds from the file's text to PTX, without writing it."""
    samples = []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        compile_file(EXAMPLES / f"{op}.mlir", {"A": matrix}, sizes)
        samples.append(1e3 * (time.perf_counter() - start))
    return statistics.median(samples[2:])


def cold(op: str, arguments: list[str], matrix_file: Path, rounds: int) -> float:
    """Milliseconds of wall time for `sparseditto compile` in a fresh process."""
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sparseditto.compiler.cli.main", "compile", str(EXAMPLES / f"{op}.mlir"), *arguments]
        command += ["--bind", f"A={matrix_file}", "-o", str(Path(folder) / "out.ditto")]
        for _ in range(rounds):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            samples.append(1e3 * (time.perf_counter() - start))
    return statistics.median(samples)


def emulated(rounds: int) -> float:
    """Milliseconds to compile SpMV for the host and run it once, with checks, on 100,000 nonzeros."""
    matrix = sp.random(10_000, 10_000, 0.001, format="csr", random_state=0)
    package = compile_file(EXAMPLES / "spmv.mlir", {"A": matrix}).package
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        run(package, {"A": matrix}, device="simt")
        samples.append(1e3 * (time.perf_counter() - start))
    return statistics.median(samples)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    matrix = sp.random(4000, 4000, 0.005, format="csr", random_state=0)
    row: dict[str, Any] = {"rounds": args.rounds}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.npz"
        sp.save_npz(file, matrix)
        for op, sizes in (("spmv", {}), ("spmm", {"K": 64})):
            row[f"{op}_in_process_ms"] = in_process(op, sizes, matrix, args.rounds)
            row[f"{op}_cold_ms"] = cold(op, [f"--size={k}={n}" for k, n in sizes.items()], file, max(3, args.rounds // 3))
    row["spmv_100k_simt_ms"] = emulated(max(3, args.rounds // 3))
    text = f"{json.dumps(machine_row('host'))}\n{json.dumps(row)}"
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
