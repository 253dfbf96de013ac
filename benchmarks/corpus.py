"""SpMV and SpMM on every matrix of a corpus: right or wrong on a device, and how fast.

    python -m benchmarks.corpus CORPUS --device cuda --K 1,8,32,33,128 --out results.jsonl
    python -m benchmarks.corpus CORPUS --device cuda --K 33 --representations --out representations.jsonl

`CORPUS` is a folder with matrices that its own `corpus_io.load` reads.  One JSON line a task is appended to the output, so a
run that is cut short goes on where it stopped.  With `--representations` each matrix is stored in every way of
`benchmarks.representations`, or in those that are named, and nothing is timed; what cannot be stored so is refused, which is
no fault.  Exits 1 when a result was wrong, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.each_representation import chosen_names, run_each
from benchmarks.machine import machine_row
from benchmarks.prepare import Task
from benchmarks.run import note, read_rows
from sparseditto.compiler.api import compile_file, run
from sparseditto.compiler.runtimes.cuda import available
from sparseditto.dialects.errors import DittoError, InputError

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def corpus(folder: Path) -> dict[str, Callable[[], Any]]:
    """What loads each matrix of the corpus, as SciPy's CSR, by name."""
    spec = importlib.util.spec_from_file_location("corpus_io", folder / "corpus_io.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder} has no corpus_io.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {path.stem: partial(module.load, path) for path in sorted(folder.glob("*.npz"))}


def measured(name: str, matrix: Any, task: Task, dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    """Compile, run, check and time one kernel on one matrix."""
    source = (EXAMPLES / f"{task.op}.mlir").read_text().replace("f32", {"float32": "f32", "float64": "f64"}[dtype])
    kernel = Path(args.out).with_suffix(f".{task.op}.{dtype}.mlir")
    kernel.write_text(source)
    row: dict[str, Any] = {
        "matrix": name,
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
        "entries": int(matrix.nnz),
        "op": task.op,
        "K": task.k,
        "dtype": dtype,
        "device": args.device,
    }
    try:
        compiled = compile_file(kernel, {"A": matrix}, task.sizes)
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
    rows = [row for row in read_rows(path) if "matrix" in row and "representation" not in row]
    return {(r["matrix"], r["op"], r["K"], r["dtype"], r["device"]) for r in rows}


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--device", choices=("simt", "cuda"), default="cuda")
    parser.add_argument("--K", default="1,8,32,33,128", help="dense columns of SpMM, separated by commas")
    parser.add_argument("--dtypes", default="float32", help="float32,float64")
    parser.add_argument("--rounds", type=int, default=7, help="timing rounds (cuda)")
    parser.add_argument("--limit", type=int, help="take at most this many rows of a matrix (for simt)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--representations", nargs="?", const="", metavar="NAMES", help="check these, or all, instead of the default plans"
    )
    parser.add_argument("--jobs", type=int, help="processes for --representations (default: two fewer than processors)")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which --representations stops")
    args = parser.parse_args(words)
    if args.jobs is not None and args.jobs < 1:
        parser.error("--jobs takes 1 or more")
    if args.device == "simt":
        args.rounds = 0
    try:
        args.names = None if args.representations is None else chosen_names(args.representations)
    except InputError as e:
        parser.error(e.message)
    return args


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    if args.device == "cuda" and (missing := available()):
        note(f"{missing}; --device simt --limit 300 runs without a GPU")
        return 2
    tasks = [Task("spmv", 0), *(Task("spmm", int(k)) for k in args.K.split(",") if k)]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    matrices = corpus(args.corpus)
    if args.names is not None:
        return run_each(args, tasks, matrices)
    recorded, wrong = done(args.out), 0
    with args.out.open("a") as out:
        out.write(json.dumps(machine_row(args.device)) + "\n")
        for name, load in matrices.items():
            matrix = load()
            rows = matrix[: args.limit] if args.limit else matrix
            for dtype in args.dtypes.split(","):
                for task in tasks:
                    if (name, task.op, task.k, dtype, args.device) in recorded:
                        continue
                    row = measured(name, rows, task, dtype, args)
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
