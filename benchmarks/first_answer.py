"""How long `sparseditto tune` takes from the start of its process to the first right plan that is measured.

    python -m benchmarks.first_answer [--device cuda|simt] [--entries 1000000] [--budget N] [--out FILE] [--check]

A matrix (uniform, 16 entries a row) is written as Matrix Market and as SciPy's .npz; SpMV and SpMM with K = 32 are tuned from
each file in a fresh process, with nothing known from before.  `first_s` is from the start of that process to the first right
plan, `before_s` to the beginning of the tuning: starting Python, imports, beginning to start workers.  Under emulation (simt)
this shows only that it works: a kernel takes the host's time there.  With `--check` it exits 1 where the first answer takes
more than 5 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from benchmarks import generators as g
from benchmarks.machine import machine_row
from benchmarks.prepare import kernel_file
from benchmarks.tables import table

MOST_SECONDS = 5.0
A_ROW = 16
TASKS: dict[str, tuple[str, dict[str, int]]] = {"SpMV": ("spmv", {}), "SpMM K=32": ("spmm", {"K": 32})}
FORMATS = ("npz", "mtx")


def write_matrix(entries: int, folder: Path) -> int:
    """The matrix in both formats; gives its entries."""
    matrix = sp.csr_array(g.uniform(max(1, entries // A_ROW), A_ROW))
    matrix.data = np.random.default_rng(0).uniform(-1, 1, matrix.nnz).astype(np.float32)
    sp.save_npz(folder / "A.npz", matrix)
    scipy.io.mmwrite(folder / "A.mtx", matrix)
    return int(matrix.nnz)


def tune(op: str, sizes: dict[str, int], matrix: Path, device: str, budget: str) -> dict[str, Any]:
    """Tune in a process of its own.  Raises `RuntimeError` with what it said where it fails or finds no plan."""
    with TemporaryDirectory() as folder:
        words = ["tune", str(kernel_file(op, "float32", Path(folder))), "--bind", f"A={matrix}", "--device", device]
        words += [f"--size={name}={n}" for name, n in sizes.items()]
        words += ["--budget", budget, "--db", str(Path(folder) / "t.sqlite3"), "-o", str(Path(folder) / "best.ditto"), "--json"]
        start = time.time()
        done = subprocess.run(
            [sys.executable, "-m", "sparseditto.compiler.cli.main", *words], capture_output=True, text=True, check=False
        )
        wall = time.time() - start
    if done.returncode:
        raise RuntimeError(f"tune ended with {done.returncode}: {done.stderr.strip()}")
    told = json.loads(done.stdout)
    seconds = {name: round(value, 3) for name, value in told["seconds"].items()}
    before = told["began"] - start
    return {
        "first_s": round(before + told["seconds"]["first"], 3),
        "wall_s": round(wall, 3),
        "before_s": round(before, 3),
        "seconds": seconds,
        "measured": sum(trial["outcome"] == "ok" for trial in told["trials"]),
        "us": told["best"]["us"],
    }


def summary(rows: Sequence[dict[str, Any]]) -> str:
    body = []
    for row in rows:
        seconds = (row["first_s"], row["before_s"], row["seconds"]["read"], row["seconds"]["workers"], row["wall_s"])
        body.append([row["task"], row["format"], *(f"{s:.2f}" for s in seconds)])
    return table(["task", "file", "first answer, s", "before tuning", "reading", "waiting for workers", "in all"], body)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_answer", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--device", choices=("cuda", "simt"), default="cuda")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--budget", default="16", help="as `tune` takes it (default %(default)s)")
    parser.add_argument("--out", metavar="FILE", type=Path, help="one JSON line a task and format")
    parser.add_argument("--check", action="store_true", help=f"exit 1 where the first answer takes more than {MOST_SECONDS} s")
    args = parser.parse_args(words)
    rows = []
    with TemporaryDirectory() as folder:
        entries = write_matrix(args.entries, Path(folder))
        for task, (op, sizes) in TASKS.items():
            for suffix in FORMATS:
                about = {"task": task, "format": suffix, "device": args.device, "entries": entries}
                rows.append(about | tune(op, sizes, Path(folder) / f"A.{suffix}", args.device, args.budget))
    if args.out is not None:
        args.out.write_text("".join(json.dumps(line) + "\n" for line in (machine_row(args.device), *rows)))
    print(summary(rows))
    return 1 if args.check and any(row["first_s"] > MOST_SECONDS for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
