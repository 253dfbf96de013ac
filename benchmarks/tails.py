"""Is there a cliff beside round numbers of dense columns?  SpMM for K around the powers of two, against the nearest of them.

    python -m benchmarks.tails --out FILE                                       # some matrices of the full suite, on a GPU
    python -m benchmarks.tails --suite smoke --device simt --K 8,9 --out FILE   # without a GPU: costs of the emulation

One JSON line a task is appended to FILE; tasks that it holds already are left out.  With `--tiles` each task is measured
with every way to cut its columns into tiles as well (in the line's `tiles`), with `--then PASSES` with these after its plan:
that is what the rules of the default plan are set by.  Baselines are not run: that is `benchmarks.run`.
Exits 1 when a result was wrong, 2 without a GPU, 3 when a kernel brought the GPU down.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.candidates import Bench, Every
from benchmarks.emulated import Emulation
from benchmarks.machine import machine_row
from benchmarks.prepare import Kernel, Options, Preparation, Prepared, Ready, Task, compile_task, describe
from benchmarks.run import Results, Setting, are_widths, no_gpu, note, read_rows, some_cases
from benchmarks.suite import Case
from benchmarks.tables import table
from benchmarks.timing import Progress
from sparseditto.agent.planner import MOST_TILES
from sparseditto.agent.tuner import OK
from sparseditto.dialects.errors import DittoError
from sparseditto.passes.base import Pass
from sparseditto.passes.plan import Plan
from sparseditto.passes.schedule.jam_columns import JamColumns
from sparseditto.passes.schedule.rows_to_subgroups import RowsToSubgroups
from sparseditto.passes.schedule.vectorize import Vectorize

SHORT = ("tri2M", "stencil5_1024", "road_1000")
MEDIUM = ("fem27_64", "unif256k_16", "unif60k_64")
SKEWED = ("rmat18_16",)
SMALL = ("stencil5_256", "stencil7_30", "unif10k_10")
WIDTHS = "7,8,9,12,15,16,17,31,32,33,63,64,65,127,128,129,143"
CLIFF = 1.5  # one column more than a power of two may cost so much more
ROUNDS = 5  # of what is measured beside the default plan


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tails", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="one JSON line a task is appended there")
    parser.add_argument("--suite", choices=("full", "smoke"), default="full")
    parser.add_argument("--corpus", type=Path, help="folder of the real matrices (default: beside the checkout)")
    parser.add_argument("--cases", help="cases whose name this regular expression finds (default: some of each kind)")
    parser.add_argument("--K", default=WIDTHS, help="dense columns, separated by commas")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--device", choices=("cuda", "simt"), default="cuda")
    parser.add_argument("--chip", default="sm_90")
    parser.add_argument("--rounds", type=int, default=7, help="timing rounds")
    parser.add_argument("--jobs", type=int, help="processes that prepare cases (default: two fewer than processors; 0: none)")
    parser.add_argument("--tiles", action="store_true", help="measure every way to cut the columns into tiles as well")
    parser.add_argument("--then", action="append", default=[], metavar="PASSES", help="and each plan followed by these passes")
    args = parser.parse_args(words)
    if not are_widths(args.K):
        parser.error("--K takes numbers of 1 or more, separated by commas")
    if args.rounds < 1:
        parser.error("--rounds takes 1 or more")
    return args


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    if args.device == "cuda" and (missing := no_gpu()):
        note(f"{missing}; --device simt --suite smoke runs without a GPU")
        return 2
    cases = some_cases(args, (*SHORT, *MEDIUM, *SKEWED, *SMALL))
    if not cases:
        note(f"no case of suite {args.suite} is found by '{args.cases}'")
        return 2
    setting = Setting(args.dtype, args.device, "warm", "default")
    results = Results(args.out)
    tasks = [Task("spmm", int(k)) for k in args.K.split(",")]
    work = [(case, [t for t in tasks if setting.key(case.name, t) not in results.done]) for case in cases]
    try:
        lost = _measure(args, setting, results, [(case, left) for case, left in work if left])
    finally:
        results.close()
    names = {case.name for case in cases}
    rows = [row for row in read_rows(args.out) if row.get("kind") == "task" and row["case"] in names]
    rows = [row for row in rows if all(row[key] == value for key, value in asdict(setting).items())]
    print(summary(rows))
    return 3 if lost else 1 if any(row["outcome"] != "right" for row in rows) else 0


def _measure(args: argparse.Namespace, setting: Setting, results: Results, work: Sequence[tuple[Case, Sequence[Task]]]) -> bool:
    """Measure what is left, line by line; whether the GPU was lost on the way."""
    results.append(machine_row(args.device))
    progress = Progress(sum(len(tasks) for _, tasks in work), note)
    options = Options(args.dtype, args.chip)
    device: Any = None
    if args.device == "cuda":
        from benchmarks.gpu import Device

        device = Device(args.rounds, False, args.dtype, False)
    jobs = args.jobs if args.jobs is not None else 0 if args.suite == "smoke" else max(1, len(os.sched_getaffinity(0)) - 2)
    try:
        with Preparation(work, options, jobs) as preparation:
            for case, tasks, ready in preparation:
                for row in _rows(args, options, case, tasks, ready, device, preparation.folder):
                    results.append({"kind": "task", "case": case.name, "op": "spmm"} | asdict(setting) | row)
                    us = f" {row['us']:.2f}" if row.get("us") is not None else f" ({row.get('why', '')})"
                    progress.step(f"{case.name} K={row['K']} {row['outcome']}{us} {row.get('plan', '')}")
                    if row["outcome"] == "gpu-fault":
                        note("the GPU is lost to this process: the same command goes on from here")
                        return True
    finally:
        if device is not None:
            device.close()
    return False


def _rows(
    args: argparse.Namespace,
    options: Options,
    case: Case,
    tasks: Sequence[Task],
    ready: Ready | str,
    device: Any,
    folder: Path,
) -> Iterator[dict[str, Any]]:
    if isinstance(ready, str):
        yield from ({"K": task.k, "outcome": "died", "why": ready} for task in tasks)
        return
    on_gpu = device.case(ready) if device is not None else None
    for prepared in ready.tasks:
        head = {"K": prepared.task.k} | describe(ready.matrix, case)
        if prepared.kernel is None:
            yield head | {"outcome": prepared.outcome, "why": prepared.why}
            continue
        others = list(_others(args, options, ready, prepared, prepared.kernel, folder))
        yield head | (_emulated(ready, prepared, others) if on_gpu is None else _on_gpu(on_gpu, options, prepared, others))


# --- One task -------------------------------------------------------------------------------------------


def tilings(plan: Plan, columns: int) -> list[Plan]:
    """The plan with every other number of tiles, each shared by the fewest lanes that hold it."""
    width = next((step.width for step in plan.steps if isinstance(step, Vectorize)), 1)
    plans = []
    for jam in range(1, MOST_TILES + 1):
        tile = -(-columns // width // jam)
        if tile * (jam - 1) * width < columns:
            lanes = min(32, 1 << (tile - 1).bit_length())
            steps = (_tiled(step, jam, lanes) for step in plan.steps if not isinstance(step, JamColumns))
            plans.append(Plan(tuple(chain.from_iterable(steps)), plan.kernel))
    return [other for other in plans if other != plan]


def _tiled(step: Pass, jam: int, lanes: int) -> list[Pass]:
    """A step of a plan for so many tiles and lanes a tile; groups of lanes are kept busy in all."""
    if not isinstance(step, RowsToSubgroups):
        return [step]
    every = lanes if step.groups == 1 else max(lanes, step.lanes)
    share = replace(step, lanes=every, groups=every // lanes)
    return [JamColumns(factor=jam), share] if jam > 1 else [share]


def _others(
    args: argparse.Namespace, options: Options, ready: Ready, prepared: Prepared, kernel: Kernel, folder: Path
) -> Iterator[Kernel]:
    """What is measured beside the default plan; what does not compile is said, and left out."""
    plan = Plan.parse(kernel.plan)
    texts = [other.text() for other in tilings(plan, prepared.task.k)] if args.tiles else []
    texts += [f"{text},{then}" for then in args.then for text in (kernel.plan, *texts)]
    for text in texts:
        try:
            yield compile_task(prepared.task, ready.matrix, options, folder, text)
        except DittoError as e:
            note(f"{ready.case.name} K={prepared.task.k} {text}: {e}")


def _tiles(bench: Bench, others: Sequence[Kernel]) -> dict[str, Any]:
    samples = [(kernel, bench.candidate(kernel, ROUNDS, None)) for kernel in others]
    found = [
        {"plan": kernel.plan, "outcome": s.outcome, "us": statistics.median(s.samples_us) if s.samples_us else None}
        for kernel, s in samples
    ]
    return {"tiles": found} if found else {}


def _emulated(ready: Ready, prepared: Prepared, others: Sequence[Kernel]) -> dict[str, Any]:
    """Right or wrong, and the cost of the emulation for the time."""
    assert prepared.kernel is not None
    bench = Emulation(ready, prepared)
    sample = bench.candidate(prepared.kernel, 1, None)
    outcome = "right" if sample.outcome == OK else sample.outcome
    row = {"outcome": outcome, "plan": prepared.kernel.plan, "digest": prepared.kernel.digest, "why": sample.why}
    return row | {"us": sample.samples_us[0] if sample.samples_us else None} | _tiles(bench, others)


def _on_gpu(on_gpu: Any, options: Options, prepared: Prepared, others: Sequence[Kernel]) -> dict[str, Any]:
    from benchmarks.gpu import GpuFault

    def choose(bench: Bench) -> tuple[Kernel | None, dict[str, Any]]:
        return None, _tiles(bench, others)

    try:
        row: dict[str, Any] = on_gpu.measure(prepared, options.rates, choose, Every())
    except GpuFault as e:
        return {"outcome": "gpu-fault", "why": str(e)}
    return {key: value for key, value in row.items() if key != "baselines"}


# --- The table ------------------------------------------------------------------------------------------


def round_width(k: int, among: Collection[int]) -> int | None:
    """The power of two that is nearest to `k` (by ratio) of those that were measured; None for one of them."""
    powers = [n for n in among if n & (n - 1) == 0]
    return None if k in powers or not powers else min(powers, key=lambda n: abs(math.log(n / k)))


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds of each K over those of the power of two beside it, a line a matrix; what exceeds `CLIFF` is bold."""
    times = {(row["case"], row["K"]): row["us"] for row in rows if row["outcome"] == "right" and row.get("us")}
    widths = sorted({row["K"] for row in rows})
    pairs = [(k, beside) for k in widths if (beside := round_width(k, widths)) is not None]
    body = []
    for case in dict.fromkeys(row["case"] for row in rows):
        ratios = [times[case, k] / times[case, n] if (case, k) in times and (case, n) in times else None for k, n in pairs]
        body.append([case, *("-" if r is None else f"**{r:.2f}**" if r > CLIFF else f"{r:.2f}" for r in ratios)])
    return table(["matrix", *(f"{k} / {n}" for k, n in pairs)], body)


if __name__ == "__main__":
    sys.exit(main())
