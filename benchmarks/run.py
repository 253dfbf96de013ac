"""Measure a suite: ours, every cuSPARSE algorithm and the bounds, one JSON line a task.

    python -m benchmarks.run --suite full --ops spmv,spmm --K 8,32,128,256 --out FILE
    python -m benchmarks.run --suite smoke --device simt --K 8 --out FILE      # right or wrong, without a GPU
    python -m benchmarks.run --self-test                                       # does everything here work on this GPU?

With `--plans tuned` each task is tuned first; what was measured is kept in the tuning database `.tuning.sqlite3` beside
FILE, which `choices` reads.
With `--plans tuned-csr` it is tuned among the plans that read CSR as it is, which other representations are compared with.

Tasks that FILE holds already are left out, so a run that was cut short goes on where it stopped.  The `kind` of a line is
task; machine, at the start of each run; or fault, a baseline that brought the GPU down and is not tried again on that task.
Exits 1 when a result was wrong, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.bounds import Rates
from benchmarks.candidates import Bench, Subject, Tuner, best_plans
from benchmarks.emulated import Emulation, emulated_row
from benchmarks.machine import machine_row
from benchmarks.prepare import Kernel, Options, Preparation, Prepared, Ready, Task, describe
from benchmarks.suite import Case, corpus_cases, corpus_folder, suite
from benchmarks.timing import Progress
from sparseditto.agent.tuner import Budget

SCHEMA = 1
TUNED = ("tuned", "tuned-csr")  # the second: only plans that read CSR as it is
SEED_PLANS = 2  # of earlier results, with which the search of a task begins
HANG_S = 120.0  # a task that takes longer on the GPU is given up
SETTLED = ("right", "wrong", "unsupported", "not-applicable", "bad-plan", "gpu-fault", "timeout")  # not tried again

Key = tuple[str, str, int, str, str, str, str]


@dataclass(frozen=True)
class Setting:
    """What tasks of different runs must share to be the same task."""

    dtype: str
    device: str
    caches: str  # "warm" or "cold"
    plans: str  # "default", "tuned", "tuned-csr", or the text of the plan

    def key(self, case: str, task: Task) -> Key:
        return (case, task.op, task.k, self.dtype, self.device, self.caches, self.plans)


def key_of(row: dict[str, Any]) -> Key:
    return (row["case"], row["op"], row["K"], row["dtype"], row["device"], row["caches"], row["plans"])


class Results:
    """The file: append only, flushed line by line.  A line that was cut short by a crash is ignored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        rows = read_rows(path)
        self.done = {key_of(row) for row in rows if row.get("kind") == "task" and row["outcome"] in SETTLED}
        self.faults: dict[Key, set[str]] = {}  # the baselines that brought the GPU down, by task
        for row in rows:
            if row.get("kind") == "fault":
                self.faults.setdefault(key_of(row), set()).add(row["baseline"])
        path.parent.mkdir(parents=True, exist_ok=True)
        cut = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        self._stream = path.open("a")
        if cut:
            self._stream.write("\n")

    def append(self, row: dict[str, Any]) -> None:
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a results file (committed ones are compressed: .xz), without a last one that was cut short."""
    if not path.exists():
        return []
    text = lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text()
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--suite", choices=("full", "smoke"), default="smoke")
    parser.add_argument("--corpus", type=Path, help="folder of the real matrices (default: beside the checkout)")
    parser.add_argument("--cases", default="", help="only cases whose name this regular expression finds")
    parser.add_argument("--shard", default="1/1", help="I/N: every N-th case by size from the I-th on, for one of N GPUs")
    parser.add_argument("--most-nnz", type=float, default=float("inf"), help="leave out larger matrices")
    parser.add_argument("--ops", default="spmv,spmm")
    parser.add_argument("--K", default="8,32,128,256", help="dense columns of SpMM, separated by commas")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--out", type=Path, default=None, help="results file, one JSON line a task; needed but for --self-test")
    parser.add_argument("--plans", choices=("default", *TUNED), default="default")
    parser.add_argument("--budget", default="12,20s", help="of tuning a task: candidates, seconds, or both (12,20s)")
    parser.add_argument(
        "--seed-plans", type=Path, help=f"begin tuning with the {SEED_PLANS} best plans of each task in this results file"
    )
    parser.add_argument("--plan", help="one plan for every task, as text or file, instead of --plans")
    parser.add_argument("--chip", default="sm_90")
    parser.add_argument("--device", choices=("cuda", "simt"), default="cuda")
    parser.add_argument("--cold", action="store_true", help="overwrite the L2 cache before every call")
    parser.add_argument("--col-major", action="store_true", help="time cuSPARSE with column-major B and C as well")
    parser.add_argument("--rounds", type=int, default=7, help="timing rounds, at least 7 for what is published")
    parser.add_argument("--jobs", type=int, help="processes that prepare cases (default: two fewer than processors; 0: none)")
    parser.add_argument("--cache", type=Path, help="keep built matrices in this folder")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which no task is begun")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args(words)
    if args.out is None and not args.self_test:
        parser.error("--out is needed")
    if not set(args.ops.split(",")) <= {"spmv", "spmm"}:
        parser.error("--ops takes spmv and spmm")
    if args.seed_plans is not None and (args.plans not in TUNED or args.plan):
        parser.error("--seed-plans goes with --plans tuned")
    if args.seed_plans is not None and not args.seed_plans.exists():
        parser.error(f"--seed-plans: there is no file {args.seed_plans}")
    if args.rounds < 1:
        parser.error("--rounds takes 1 or more")
    if not are_widths(args.K):
        parser.error("--K takes numbers of 1 or more, separated by commas")
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", args.shard)
    if found is None or int(found[1]) > int(found[2]):
        parser.error("--shard takes I/N, with I from 1 to N")
    args.shard = int(found[1]), int(found[2])
    return args


def sharded(cases: Sequence[Case], shard: tuple[int, int]) -> list[Case]:
    """Every n-th of the cases, by falling size, from the i-th on; in the order that they had."""
    by_size = sorted(cases, key=lambda case: -case.nnz)
    names = {case.name for case in by_size[shard[0] - 1 :: shard[1]]}
    return [case for case in cases if case.name in names]


def are_widths(text: str) -> bool:
    """Whether a text is numbers of dense columns, separated by commas."""
    return re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text) is not None


def some_cases(args: argparse.Namespace, names: Sequence[str]) -> list[Case]:
    """The cases that `--cases` finds; without it these of the full suite, or all of the smoke suite."""
    chosen = args.cases or ("" if args.suite == "smoke" else f"^({'|'.join(names)})$")
    return [case for case in suite(args.suite, args.corpus) if re.search(chosen, case.name)]


def tasks_of(args: argparse.Namespace) -> list[Task]:
    widths = [int(k) for k in args.K.split(",")] if "spmm" in args.ops else []
    return [*([Task("spmv", 0)] if "spmv" in args.ops else []), *(Task("spmm", k) for k in widths)]


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    if args.device == "cuda" and (missing := no_gpu()):
        note(f"{missing}; --device simt runs the smoke suite without a GPU")
        return 2
    if args.self_test:
        return self_test()
    setting = Setting(args.dtype, args.device, "cold" if args.cold else "warm", args.plan or args.plans)
    results = Results(args.out)
    if args.suite == "full" and not corpus_cases(args.corpus or corpus_folder()):
        note("the real matrices are missing: give their folder with --corpus")
    cases = [c for c in suite(args.suite, args.corpus) if re.search(args.cases, c.name) and c.nnz <= args.most_nnz]
    cases = sharded(cases, args.shard)
    work = [(c, [t for t in tasks_of(args) if setting.key(c.name, t) not in results.done]) for c in cases]
    work = [(c, tasks) for c, tasks in work if tasks]
    try:
        return Run(args, setting, results, sys.argv[1:] if words is None else None).all(work)
    except KeyboardInterrupt:
        note("stopped; the same command goes on from here")
        return 130
    finally:
        results.close()


def no_gpu() -> str | None:
    """Why nothing can be measured here, or None."""
    from sparseditto.compiler.runtimes.cuda import available

    try:
        import cupy  # noqa: F401
    except ImportError as e:
        return f"the baselines need CuPy ({e}): pip install 'sparseditto[bench]'"
    return available()


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Run:
    """One run over the tasks that are left.  `command` is what starts it anew after a fault (None: it may not be)."""

    def __init__(self, args: argparse.Namespace, setting: Setting, results: Results, command: Sequence[str] | None) -> None:
        self.args, self.setting, self.results, self.command = args, setting, results, command
        self.started, self.wrong = time.monotonic(), 0
        self.rates = Rates()
        self.device: Any = None
        self.tuner: Any = None
        self.preparation: Preparation | None = None

    def all(self, work: list[tuple[Case, list[Task]]]) -> int:
        total = sum(len(tasks) for _, tasks in work)
        note(f"{total} tasks on {len(work)} matrices are left")
        if not total:
            return 0
        about = machine_row(self.args.device) | {"schema": SCHEMA}
        if self.args.device == "cuda":
            about |= self._open_gpu()
        self.results.append(about)
        progress = Progress(total, note)
        tuned, csr = self.setting.plans in TUNED, self.setting.plans == TUNED[1]
        options = Options(self.args.dtype, self.args.chip, self.args.plan, self.args.cache, self.rates, tuned, csr)
        jobs, compilers = self._processes(tuned)
        try:
            with (
                self._tuner(compilers, about) if tuned else nullcontext() as self.tuner,
                Preparation(work, options, jobs) as self.preparation,
            ):
                for case, tasks, ready in self.preparation:
                    self._case(case, tasks, ready, self.preparation.folder, progress)
                    if self._out_of_time():
                        note(f"time is up; {progress.total - progress.done} tasks are left: the same command goes on")
                        break
        finally:
            if self.device is not None:
                self.device.close()
        return 1 if self.wrong else 0

    def _open_gpu(self) -> dict[str, Any]:
        from benchmarks import cusparse
        from benchmarks.bounds import measure_rates
        from benchmarks.gpu import Device

        self.device = Device(self.args.rounds, self.args.cold, self.args.dtype, self.args.col_major)
        self.rates = measure_rates()
        return {"cusparse": cusparse.version(), "rates": self.rates.to_json()}

    def _processes(self, tuned: bool) -> tuple[int, int]:
        """How many prepare cases, and how many compile candidates."""
        free = max(1, len(os.sched_getaffinity(0)) - 2)
        jobs = 0 if self.args.suite == "smoke" else max(1, free // 2 if tuned else free)
        if self.args.jobs is not None:
            jobs = int(self.args.jobs)
        return jobs, max(1, free - jobs)

    def _tuner(self, compilers: int, about: dict[str, Any]) -> Tuner:
        rows = read_rows(self.args.seed_plans) if self.args.seed_plans else []
        known = best_plans(rows, self.args.dtype, SEED_PLANS)
        return Tuner(
            Budget.parse(self.args.budget),
            compilers,
            self.args.chip,
            self.args.out.with_suffix(".tuning.sqlite3"),
            about.get("gpu"),
            self.setting.caches,
            self.rates if self.device is not None else None,
            known,
            self.setting.plans == TUNED[1],
        )

    def _out_of_time(self) -> bool:
        return time.monotonic() - self.started > self.args.time_limit

    def _case(self, case: Case, tasks: Sequence[Task], ready: Ready | str, folder: Path, progress: Progress) -> None:
        if isinstance(ready, str):
            for task in tasks:
                self._record(case, task, {"family": case.family, "nnz": case.nnz, "outcome": "died", "why": ready}, progress)
            return
        on_gpu = self.device.case(ready) if self.device is not None else None
        described = describe(ready.matrix, case) | {"features": ready.features}
        subject = Subject(case.name, self.args.dtype, folder, ready.matrix, described)
        if self.tuner is not None:
            self.tuner.compile_ahead(subject, ready.tasks)
        for prepared in ready.tasks:
            if self._out_of_time():
                return
            row = dict(described)
            try:
                row |= self._task(ready, prepared, on_gpu, subject)
            except _Restart as e:
                self._lost(case, prepared.task, row | {"outcome": "gpu-fault", "why": str(e)})
            row["seconds"] = ready.seconds | prepared.seconds | row.get("seconds", {})
            self._record(case, prepared.task, row, progress)

    def _task(self, ready: Ready, prepared: Prepared, on_gpu: Any, subject: Subject) -> dict[str, Any]:
        if prepared.kernel is None:
            return {"outcome": prepared.outcome, "why": prepared.why}
        skip = self.results.faults.get(self.setting.key(ready.case.name, prepared.task), set())

        def choose(bench: Bench) -> tuple[Kernel | None, dict[str, Any]]:
            tuned = self.tuner.tune(subject, prepared, bench, {name.removeprefix("plan ") for name in skip})
            if tuned.interrupted:
                raise KeyboardInterrupt
            return tuned.kernel, {"tuning": tuned.about}

        if on_gpu is None:
            emulation = Emulation(ready, prepared)
            kernel, about = choose(emulation) if self.tuner is not None else (None, {})
            return emulated_row(emulation, kernel or prepared.kernel) | about
        from benchmarks.gpu import GpuFault

        with self._watched(ready.case, prepared.task, on_gpu.device):
            try:
                return on_gpu.measure(prepared, self.rates, choose if self.tuner is not None else None, skip)
            except GpuFault as e:
                raise _Restart(str(e)) from e

    def _watched(self, case: Case, task: Task, device: Any) -> AbstractContextManager[None]:
        """A timer that gives the task up, with the process, when the GPU hangs."""

        def give_up() -> None:
            row = {"outcome": "timeout", "why": f"the task took more than {HANG_S:.0f} s, last: {device.doing}"}
            self._lost(case, task, {"family": case.family, "nnz": case.nnz} | row)

        return _Timer(HANG_S, give_up)

    def _lost(self, case: Case, task: Task, row: dict[str, Any]) -> NoReturn:
        """The GPU is lost in a task: when a baseline did that, the task is done again without it."""
        if self.device is not None and self.device.baseline:
            head = {"kind": "fault", "case": case.name, "op": task.op, "K": task.k, "baseline": self.device.baseline}
            self.results.append(head | asdict(self.setting) | {"why": row["why"]})
        else:
            self._record(case, task, row, None)
        self._restart()

    def _restart(self) -> NoReturn:
        """Run the same command anew: after a fault this process cannot use the GPU."""
        self.results.close()
        if self.preparation is not None:
            self.preparation.close()
        if self.tuner is not None:
            with suppress(Exception):  # its workers see their parent go in any case
                self.tuner.close()
        if self.command is None:
            note("the GPU context is lost")
            os._exit(3)
        note("the GPU context is lost: starting over, without the tasks that are done")
        left = self.args.time_limit - (time.monotonic() - self.started)
        words = [*self.command, *(["--time-limit", f"{max(left, 1):.0f}"] if left != float("inf") else [])]
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.run", *words])

    def _record(self, case: Case, task: Task, row: dict[str, Any], progress: Progress | None) -> None:
        head = {"kind": "task", "case": case.name, "op": task.op, "K": task.k}
        self.results.append(head | asdict(self.setting) | row)
        self.wrong += row["outcome"] in ("wrong", "gpu-fault", "check-failed")
        if progress is not None:
            progress.step(f"{case.name} {task} {summary(row)}")


class _Restart(Exception):
    """The GPU is lost to this process."""


class _Timer:
    """Call a function unless the `with` block ends in time."""

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        self._timer = threading.Timer(seconds, function)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def summary(row: dict[str, Any]) -> str:
    """A task in a few words: the time, and how much faster than cuSPARSE by default, its best CSR and its best of all."""
    from benchmarks.report import speedups

    text = str(row["outcome"])
    if row.get("us") is not None:
        ratios = speedups(row)
        against = " ".join(f"{ratios[name]:.2f}" if ratios[name] else "-" for name in ("default", "best_csr", "best_any"))
        share = row["bounds_us"]["cache_aware"] / row["us"] if row["us"] else 0.0
        text += f" {row['us']:.2f} us, over cuSPARSE {against}, bound {share:.0%}"
    return text + (f" ({row['why'][:200]})" if row.get("why") else "")


def self_test() -> int:
    """Every baseline, the rates, and the smoke suite on the GPU; each line says right or wrong."""
    from benchmarks import cusparse
    from benchmarks.bounds import measure_rates

    wrong = cusparse.self_test()
    print(f"rates: {measure_rates()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for extra in ([], ["--cold"], ["--dtype", "float64"], ["--plans", "tuned", "--budget", "6,20s"]):
            out = Path(folder) / "self-test.jsonl"
            code = main(["--suite", "smoke", "--out", str(out), "--K", "8,33", "--col-major", *extra])
            bad = [row for row in read_rows(out) if row["kind"] == "task" and row["outcome"] != "right"]
            wrong += len(bad) + (code not in (0, 1))
            for row in bad:
                print(f"{row['case']} {row['op']} {row['outcome']} {row.get('why', '')}", flush=True)
        for row in read_rows(out)[-1:]:
            for baseline in row.pop("baselines", []):
                print(f"{baseline['name']:24} {baseline['outcome']} {baseline.get('us', baseline.get('why'))}")
            print(json.dumps(row))
    print("self-test:", "all right" if not wrong else f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
