"""SpMV and SpMM on every matrix of a corpus: right or wrong on a device, and how fast.

    python -m benchmarks.corpus CORPUS --device cuda --K 1,8,32,33,128 --out results.jsonl

`CORPUS` is a folder with matrices that its own `corpus_io.load` reads.  One JSON line a task is appended to the output, so a
run that is cut short goes on where it stopped.  Exits 1 when a result was wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine_row
from benchmarks.run import read_rows
from sparseditto.compiler.api import compile_file, run
from sparseditto.dialects.errors import DittoError

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def corpus_matrices(folder: Path) -> Iterator[tuple[str, Any]]:
    """Name and SciPy CSR matrix of each matrix in the corpus."""
    spec = importlib.util.spec_from_file_location("corpus_io", folder / "corpus_io.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder} has no corpus_io.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path in sorted(folder.glob("*.npz")):
        yield path.stem, module.load(path)


def task(name: str, matrix: Any, op: str, k: int, dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    """Compile, run, check and time one kernel on one matrix."""
    source = (EXAMPLES / f"{op}.mlir").read_text().replace("f32", {"float32": "f32", "float64": "f64"}[dtype])
    kernel = Path(args.out).with_suffix(f".{op}.{dtype}.mlir")
    kernel.write_text(source)
    sizes = {"K": k} if op == "spmm" else {}
    row: dict[str, Any] = {
        "matrix": name,
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
        "entries": int(matrix.nnz),
        "op": op,
        "K": k,
        "dtype": dtype,
        "device": args.device,
    }
    try:
        compiled = compile_file(kernel, {"A": matrix}, sizes)
        result = run(compiled.package, {"A": matrix}, device=args.device, verify=True, rounds=args.rounds)
        check, timing = result.check, result.timing
        row |= {
            "plan": compiled.plan.text(),
            "seconds": dict(compiled.seconds) | {"pack": result.inputs.pack_seconds},
            "check": check.to_json() if check else None,
            "median_us": timing.median_us if timing else None,
            "iqr_us": timing.iqr_us if timing else None,
            "method": timing.method if timing else None,
            "outcome": "right" if check and check.passed else "wrong",
        }
    except DittoError as e:
        row |= {"outcome": e.code, "why": str(e)}
    finally:
        kernel.unlink()
    return row


def done(path: Path) -> set[tuple[Any, ...]]:
    """Tasks that an earlier run has recorded."""
    return {(r["matrix"], r["op"], r["K"], r["dtype"], r["device"]) for r in read_rows(path) if "matrix" in r}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--device", choices=("simt", "cuda"), default="cuda")
    parser.add_argument("--K", default="1,8,32,33,128", help="dense columns of SpMM, separated by commas")
    parser.add_argument("--dtypes", default="float32", help="float32,float64")
    parser.add_argument("--rounds", type=int, default=7, help="timing rounds (cuda)")
    parser.add_argument("--limit", type=int, help="take at most this many rows of a matrix (for simt)")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.device == "simt":
        args.rounds = 0
    tasks = [("spmv", 0)] + [("spmm", int(k)) for k in args.K.split(",") if k]
    recorded, wrong = done(args.out), 0
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("a") as out:
        out.write(json.dumps(machine_row(args.device)) + "\n")
        for name, matrix in corpus_matrices(args.corpus):
            rows = matrix[: args.limit] if args.limit else matrix
            for dtype in args.dtypes.split(","):
                for op, k in tasks:
                    if (name, op, k, dtype, args.device) in recorded:
                        continue
                    row = task(name, rows, op, k, dtype, args)
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                    wrong += row["outcome"] != "right"
                    print(summary(row), flush=True)
    return 1 if wrong else 0


def summary(row: dict[str, Any]) -> str:
    worst = row["check"]["worst"] if row.get("check") else np.nan
    us = row.get("median_us")
    return (
        f"{row['matrix']:16} {row['op']} K={row['K']:<4} {row['dtype']} {row['outcome']:8} worst {worst:.1e}"
        + (f"  {us:10.2f} us" if us else "")
        + (f"  {row['why']}" if "why" in row else "")
    )


if __name__ == "__main__":
    sys.exit(main())
