"""What each stage of the agent is worth: nothing, + pattern analysis, + architecture-aware planning, + measured refinement.

    python -m benchmarks.ablation --out FILE                                                      # on a GPU
    python -m benchmarks.ablation --suite smoke --device simt --most 6 --budget 3 --out FILE      # does it work, without one

Each task is planned in several ways.  `task`: by the computation alone, as without a matrix.  `pattern`: by the matrix too, for
a GPU of which nothing is known: how it is stored, ordered, cut and shared out; what spends registers to hide latency is left
out (`by_pattern`).  `architecture`: for this GPU, by rules, prior and cost model (`agent.ranking`).
`refined`: the best of `--budget` measured candidates.  Three more are beside them.  `exhaustive` is the best that a search
finds among `--most` candidates, which begins with the plans of all others.  `warm` is what the database then recalls of the
task, with nothing measured.  `earlier` is the best plan that the results of an earlier run hold (`--earlier`).  The winners are
timed again in turn, in one run, which is what the row holds.  One JSON line a task is appended to FILE; tasks that it holds
already are left out.  The candidates are kept in a database beside it.
Exits 1 when a result was wrong, 2 without a GPU, 3 when a kernel brought the GPU down.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.candidates import Bench, Every, Subject, Tuner, best_plans
from benchmarks.emulated import Emulation
from benchmarks.machine import machine_row
from benchmarks.prepare import Kernel, Options, Preparation, Prepared, Ready, Task, compile_task, describe
from benchmarks.run import Results, Setting, are_widths, no_gpu, note, read_rows, some_cases
from benchmarks.suite import Case
from benchmarks.tables import geomean, number, table
from benchmarks.timing import Progress
from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.building import named
from sparseditto.agent.architecture.table import known
from sparseditto.agent.planner import default_plan
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Context, Space
from sparseditto.agent.tuner import OK, Budget, spread_us
from sparseditto.dialects.errors import DittoError
from sparseditto.passes.plan import Plan

SOME = (
    *("tri2M", "wave", "nsjac", "unif10k_10", "unif256k_16", "rmat15_16", "musae_github", "NotreDame_www", "debian_deps"),
    *("circuit_300k", "dnn_4096_90", "gene_go", "cont300_kkt"),
)
STAGES = ("task", "pattern", "architecture", "refined", "earlier", "warm", "exhaustive")
EARLIER = Path(__file__).parent / "results" / "suite-h200.jsonl.xz"
ROUNDS, EACH = 7, 3  # how often the winners are timed in turn, and how many samples at a time
OVER = (
    *(("pattern", "task"), ("architecture", "pattern"), ("architecture", "task"), ("refined", "architecture")),
    *((stage, "exhaustive") for stage in ("architecture", "refined", "earlier", "warm")),
)
"""What the summary divides: times faster the first stage is than the second."""
SPENDING = ("vectorize", "vectorize-entries", "jam-columns", "share-loads", "coarsen-rows", "unroll", "bound-launch")


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="one JSON line a task is appended there")
    parser.add_argument("--suite", choices=("full", "smoke"), default="full")
    parser.add_argument("--corpus", type=Path, help="folder of the real matrices (default: beside the checkout)")
    parser.add_argument("--cases", help="cases whose name this regular expression finds (default: some of each kind)")
    parser.add_argument("--K", default="8,128", help="dense columns of SpMM, separated by commas; SpMV is always measured")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--device", choices=("cuda", "simt"), default="cuda")
    parser.add_argument("--chip", default="sm_90")
    parser.add_argument("--budget", type=int, default=16, help="candidates of the refinement")
    parser.add_argument("--most", type=int, default=200, help="candidates of the exhaustive search")
    parser.add_argument("--earlier", type=Path, default=EARLIER, help="results that `earlier` takes its plans from")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds, after which no other task is begun")
    args = parser.parse_args(words)
    if not are_widths(args.K):
        parser.error("--K takes numbers of 1 or more, separated by commas")
    if not 0 < args.budget <= args.most:
        parser.error("--budget takes 1 or more, and no more than --most")
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
    setting = Setting(args.dtype, args.device, "warm", f"ablation {args.budget},{args.most}")
    results = Results(args.out)
    tasks = [Task("spmv", 0), *(Task("spmm", int(k)) for k in args.K.split(","))]
    work = [(case, [t for t in tasks if setting.key(case.name, t) not in results.done]) for case in cases]
    try:
        lost = _Run(args, setting, results).all([(case, left) for case, left in work if left])
    finally:
        results.close()
    rows = [row for row in read_rows(args.out) if row.get("kind") == "task"]
    rows = [row for row in rows if all(row[key] == value for key, value in asdict(setting).items())]
    print(summary(rows))
    return 3 if lost else 1 if any(row["outcome"] != "right" for row in rows) else 0


def by_pattern(context: Context) -> Plan:
    """What the structure of the matrix says on a GPU of which nothing is known.

    The first plan of the rules for a GPU of usual size (`typical`) whose loads are one value wide, without passes that spend
    registers to hide latency (`SPENDING`): only an architecture says how many there are, and how much there is to hide.
    """
    narrow = replace(context.target, load_bytes=context.task.element_bytes)
    plan = default_plan(context.task, context.features, narrow, typical())
    return replace(plan, steps=tuple(step for step in plan.steps if step.name not in SPENDING))


def typical() -> Architecture:
    """What is assumed where nothing is known of the GPU: the one of the table in the middle, by the threads that it holds."""
    by_threads = sorted(known(), key=lambda name: (_threads(named(name)), name))
    return named(by_threads[len(by_threads) // 2])


def _threads(gpu: Architecture) -> float:
    return gpu.needed("gpu->sm.count") * gpu.needed("sm.max_threads")


class _Run:
    """Measures task after task, with one tuner."""

    def __init__(self, args: argparse.Namespace, setting: Setting, results: Results) -> None:
        self.args, self.setting, self.results = args, setting, results
        self.options = Options(args.dtype, args.chip, tuned=True)
        free = max(1, len(os.sched_getaffinity(0)) - 2)
        self.jobs = 0 if args.suite == "smoke" else max(1, free // 4)
        self.compilers = max(1, free - self.jobs)
        self.earlier = best_plans(read_rows(args.earlier), args.dtype)

    def all(self, work: Sequence[tuple[Case, Sequence[Task]]]) -> bool:
        """Whether the GPU was lost on the way."""
        about, device = machine_row(self.args.device), None
        if self.args.device == "cuda":
            from benchmarks.gpu import Device

            device = Device(ROUNDS, False, self.args.dtype, False)
        self.results.append(about)
        progress = Progress(sum(len(tasks) for _, tasks in work), note)
        kept = self.args.out.with_suffix(".tuning.sqlite3")
        tuner = Tuner(Budget(self.args.budget), self.compilers, self.args.chip, kept, about.get("gpu"))
        try:
            with tuner, Preparation(work, self.options, self.jobs) as preparation:
                for case, _, ready in preparation:
                    if self._case(case, ready, preparation.folder, tuner, device, progress):
                        note("the GPU is lost to this process: the same command goes on from here")
                        return True
                    if progress.elapsed_s() > self.args.time_limit:
                        note("time is up: the same command goes on from here")
                        break
        finally:
            if device is not None:
                device.close()
        return False

    def _case(self, case: Case, ready: Ready | str, folder: Path, tuner: Tuner, device: Any, progress: Progress) -> bool:
        if isinstance(ready, str):
            raise SystemExit(f"{case.name} could not be prepared: {ready}")
        described = describe(ready.matrix, case)
        subject = Subject(case.name, self.args.dtype, folder, ready.matrix, described | {"features": ready.features})
        tuner.compile_ahead(subject, ready.tasks)
        on_gpu = device.case(ready) if device is not None else None
        for prepared in ready.tasks:
            task = prepared.task
            earlier = self.earlier.get((case.name, task.op, task.k), ())
            found = _Stages(self.args, self.options, subject, prepared, tuner, earlier)
            row = described | found.measured(ready, on_gpu)
            head = {"kind": "task", "case": case.name, "op": task.op, "K": task.k}
            self.results.append(head | asdict(self.setting) | row)
            progress.step(f"{case.name} {task} {row['outcome']} {said(row)}")
            if row["outcome"] == "gpu-fault":
                return True
        return False


class _Stages:
    """One task: the plan of each stage, and what they take.  `earlier` are the plans of an earlier run, the best first."""

    def __init__(
        self,
        args: argparse.Namespace,
        options: Options,
        subject: Subject,
        prepared: Prepared,
        tuner: Tuner,
        earlier: Sequence[str],
    ) -> None:
        self.args, self.options, self.subject, self.prepared, self.tuner = args, options, subject, prepared, tuner
        self.earlier = earlier

    def measured(self, ready: Ready, on_gpu: Any) -> dict[str, Any]:
        if self.prepared.kernel is None:
            return {"outcome": self.prepared.outcome, "why": self.prepared.why}
        if on_gpu is None:
            _, about = self.choose(Emulation(ready, self.prepared))
            return about | {"outcome": _outcome(about["stages"])}
        from benchmarks.gpu import GpuFault

        try:
            row = on_gpu.measure(self.prepared, self.options.rates, self.choose, Every())
        except GpuFault as e:
            return {"outcome": "gpu-fault", "why": str(e)}
        kept = {key: row[key] for key in ("bounds_us", "stages", "searches") if key in row}
        return kept | {"outcome": _outcome(row["stages"])}

    def choose(self, bench: Bench) -> tuple[Kernel | None, dict[str, Any]]:
        """The best kernel; the stages side by side."""
        kernels = self._compiled(self._plans())
        task, searches = self.prepared.task, {}
        planned = tuple(kernel.plan for kernel in kernels.values())
        for stage, count, others in (("refined", self.args.budget, ()), ("exhaustive", self.args.most, planned)):
            self.tuner.budget, self.tuner.known = Budget(count), {(self.subject.case, task.op, task.k): others}
            tuned = self.tuner.tune(self.subject, self.prepared, bench)
            if tuned.interrupted:
                raise KeyboardInterrupt
            searches[stage] = tuned.about
            if tuned.kernel is not None:
                kernels[stage] = tuned.kernel
        recalled = self.tuner.recall(self.subject, self.prepared)
        kernels |= self._compiled({"warm": recalled.text()} if recalled is not None else {})
        return kernels.get("exhaustive"), {"stages": _side_by_side(bench, kernels), "searches": searches}

    def _compiled(self, plans: Mapping[str, str]) -> dict[str, Kernel]:
        """The kernels of plans, by stage."""
        found = {}
        for stage, plan in plans.items():
            try:
                found[stage] = compile_task(self.prepared.task, self.subject.matrix, self.options, self.subject.folder, plan)
            except DittoError as e:
                note(f"{self.subject.case} {self.prepared.task} {stage}: {e}")
        return found

    def _plans(self) -> dict[str, str]:
        context = self.prepared.context
        assert context is not None
        plans = {
            "task": default_plan(context.task, None, context.target),
            "pattern": by_pattern(context),
            "architecture": Ranking(Space(context)).first(),
        }
        texts = {stage: plan.text() for stage, plan in plans.items()}
        return texts | ({"earlier": self.earlier[0]} if self.earlier else {})


def _side_by_side(bench: Bench, kernels: dict[str, Kernel]) -> dict[str, Any]:
    """The times of the stages, measured in turn; equal kernels are measured once."""
    by_digest = {kernel.digest: kernel for kernel in kernels.values()}
    samples: dict[str, list[float]] = {digest: [] for digest in by_digest}
    outcomes = dict.fromkeys(by_digest, OK)
    for _ in range(ROUNDS):
        for digest, kernel in by_digest.items():
            if outcomes[digest] == OK:
                sample = bench.candidate(kernel, EACH, None)
                outcomes[digest] = sample.outcome
                samples[digest] += sample.samples_us
    found = {}
    for stage, kernel in kernels.items():
        mine, outcome = samples[kernel.digest], outcomes[kernel.digest]
        row: dict[str, Any] = {"plan": kernel.plan, "digest": kernel.digest, "outcome": "right" if outcome == OK else outcome}
        found[stage] = row | ({"us": statistics.median(mine), "iqr_us": spread_us(mine)} if outcome == OK else {})
    return found


def _outcome(stages: dict[str, Any]) -> str:
    """Whether every stage has a plan that gives a right result."""
    missing = set(STAGES) - {"earlier"} - stages.keys()
    return next((s["outcome"] for s in stages.values() if s["outcome"] != "right"), "missing" if missing else "right")


# --- The table ------------------------------------------------------------------------------------------


def speedup(row: dict[str, Any], stage: str, over: str) -> float | None:
    """How many times faster one stage is than another."""
    mine, other = (row.get("stages", {}).get(name, {}).get("us") for name in (stage, over))
    return other / mine if mine and other else None


def said(row: dict[str, Any]) -> str:
    return ", ".join(f"{stage} {found['us']:.2f}" for stage, found in row.get("stages", {}).items() if "us" in found)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds of each task and stage, then the geometric means of how many times faster a stage is than another."""
    body = [
        [
            row["case"],
            f"{row['op']} {row['K'] or ''}".strip(),
            *(number(row.get("stages", {}).get(s, {}).get("us")) for s in STAGES),
        ]
        for row in rows
    ]
    kinds = sorted({(row["op"], row["K"]) for row in rows}, key=lambda kind: (kind[0] != "spmv", kind))
    means = [
        [
            f"{stage} over {over}",
            *(number(_mean(rows, stage, over, kind), 3) for kind in kinds),
            number(_mean(rows, stage, over), 3),
        ]
        for stage, over in OVER
    ]
    heads = [f"{op} {k or ''}".strip() for op, k in kinds]
    return f"{table(['matrix', 'task', *STAGES], body)}\n\n{table(['geometric mean', *heads, 'all'], means)}"


def _mean(rows: Sequence[dict[str, Any]], stage: str, over: str, kind: tuple[str, int] | None = None) -> float | None:
    chosen = [row for row in rows if kind is None or (row["op"], row["K"]) == kind]
    return geomean(ratio for row in chosen if (ratio := speedup(row, stage, over)) is not None)


if __name__ == "__main__":
    sys.exit(main())
