"""Do kernels give the same bits in every run?  Those without floating-point atomics must.

    python -m benchmarks.repeat --out FILE                                        # some matrices of the full suite, on a GPU
    python -m benchmarks.repeat --suite smoke --device simt --times 3 --out FILE  # does this work at all, without a GPU

Each task is run with its default plan, and with every `--plan`.  Atomics are read off the PTX: additions of floats meet in any
order, and so does what is exchanged by compare-and-swap; integer ones (tickets, counters) leave the sums alone, and so does an
exchange for 0, which takes what is there and clears it.
Exits 1 when a kernel without such atomics gave different bits, or any gave a wrong result; 2 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.emulated import Emulation
from benchmarks.machine import machine_row
from benchmarks.prepare import Options, Prepared, Ready, prepare_here
from benchmarks.report import name_of
from benchmarks.run import are_widths, no_gpu, note, some_cases, tasks_of
from benchmarks.suite import Case
from benchmarks.tables import table
from sparseditto.dialects.errors import CheckFailed, DittoError

SOME = ("tri2M", "fem27_64", "rmat18_16", "unif256k_16", "web_100k", "circuit_300k", "lp_wide_2k", "dnn_4096_90")
_ATOMIC = re.compile(r"(?<![\w.])(?:atom|red)\.[\w.:]+")  # not bar.red, not redux
_CLEARS = re.compile(r"atom\.[\w.:]*exch\.[\w.:]+\s+%\w+, \[[^\]]*\], 0;")
_ANY_ORDER = re.compile(r"\.(?:cas|exch)\.|\.b?f(?:16|32|64)")

Repeat = Callable[[Prepared, int], tuple[int, bool]]
"""Of so many runs of a task, how many gave other bits than the first, and whether the result is right."""


def atomics(ptx: str) -> list[str]:
    """The different atomic instructions of a kernel, as the PTX spells them."""
    code = "\n".join(line.split("//", 1)[0] for line in ptx.splitlines())
    return sorted(set(_ATOMIC.findall(_CLEARS.sub("", code))))


def must_repeat(instructions: Sequence[str]) -> bool:
    """Whether a kernel with these atomics gives the same bits in every run."""
    return not any(_ANY_ORDER.search(instruction) for instruction in instructions)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeat", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="one JSON line a task and plan is appended there")
    parser.add_argument("--suite", choices=("full", "smoke"), default="full")
    parser.add_argument("--corpus", type=Path, help="folder of the real matrices (default: beside the checkout)")
    parser.add_argument("--cases", help="cases whose name this regular expression finds (default: some of each kind)")
    parser.add_argument("--ops", default="spmv,spmm")
    parser.add_argument("--K", default="8,128", help="dense columns of SpMM, separated by commas")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--device", choices=("cuda", "simt"), default="cuda")
    parser.add_argument("--chip", default="sm_90")
    parser.add_argument("--times", type=int, default=100, help="runs of each kernel")
    parser.add_argument("--plan", action="append", default=[], help="a plan to run beside the default one, as text or file")
    args = parser.parse_args(words)
    if args.times < 2:
        parser.error("--times takes 2 or more: one run has nothing to be compared with")
    if not set(args.ops.split(",")) <= {"spmv", "spmm"} or not are_widths(args.K):
        parser.error("--ops takes spmv and spmm, --K numbers of 1 or more, separated by commas")
    return args


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    if args.device == "cuda" and (missing := no_gpu()):
        note(f"{missing}; --device simt --suite smoke runs without a GPU")
        return 2
    cases = some_cases(args, SOME)
    if not cases:
        note(f"no case of suite {args.suite} is found by '{args.cases}'")
        return 2
    rows = []
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("a") as stream:
        stream.write(json.dumps(machine_row(args.device)) + "\n")
        for row in _rows(args, cases):
            rows.append(row)
            stream.write(json.dumps(row) + "\n")
            stream.flush()
            note(f"{row['case']} {name_of(row)}: {_said(row)}")
    head = ["matrix", "task", "atomics", "runs", "differ", "", "plan"]
    body = [[r["case"], name_of(r), " ".join(r["atomics"]) or "-", str(r["times"]), *_cells(r), r["plan"]] for r in rows]
    print(table(head, body))
    return 1 if any(row["outcome"] != "right" or (row["differing"] and row["must_repeat"]) for row in rows) else 0


def _rows(args: argparse.Namespace, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    tasks = tasks_of(args)
    device = None
    if args.device == "cuda":
        from benchmarks.gpu import Device

        device = Device(1, False, args.dtype, False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for case in cases:
                for plan in (None, *args.plan):
                    ready = prepare_here(case, tasks, Options(args.dtype, args.chip, plan), Path(folder))
                    repeat = device.case(ready).repeated if device is not None else _emulated(ready)
                    for prepared in ready.tasks:
                        yield _row(args, case, prepared, repeat)
    finally:
        if device is not None:
            device.close()


def _row(args: argparse.Namespace, case: Case, prepared: Prepared, repeat: Repeat) -> dict[str, Any]:
    task, kernel = prepared.task, prepared.kernel
    head: dict[str, Any] = {"kind": "repeat", "case": case.name, "op": task.op, "K": task.k, "dtype": args.dtype}
    head |= {"device": args.device, "times": args.times, "plan": "", "atomics": [], "must_repeat": True, "differing": 0}
    if kernel is None:
        return head | {"outcome": prepared.outcome, "why": prepared.why}
    found = atomics(kernel.package.ptx)
    head |= {"plan": kernel.plan, "digest": kernel.digest, "atomics": found, "must_repeat": must_repeat(found)}
    try:
        differing, right = repeat(prepared, args.times)
    except CheckFailed as e:
        if args.device == "cuda":
            raise SystemExit(f"{case.name} {task}, plan {kernel.plan}: {e}; the GPU is lost to this process") from e
        return head | {"outcome": e.code, "why": str(e)}
    except DittoError as e:
        return head | {"outcome": e.code, "why": str(e)}
    return head | {"differing": differing, "outcome": "right" if right else "wrong"}


def _emulated(ready: Ready) -> Repeat:
    def repeat(prepared: Prepared, times: int) -> tuple[int, bool]:
        assert prepared.kernel is not None
        emulation = Emulation(ready, prepared)
        outputs = [emulation.output(prepared.kernel)[1].tobytes() for _ in range(times)]
        _, check = emulation.run(prepared.kernel)
        return sum(output != outputs[0] for output in outputs), check.passed

    return repeat


def _cells(row: dict[str, Any]) -> list[str]:
    return [str(row["differing"]), _said(row)]


def _said(row: dict[str, Any]) -> str:
    if row["outcome"] != "right":
        return f"**{row['outcome']}** {row.get('why', '')}".strip()
    if not row["differing"]:
        return "same bits"
    return "**differs**" if row["must_repeat"] else "differs, as atomics may"


if __name__ == "__main__":
    sys.exit(main())
