"""How well the cost model tells times: its constants are fitted to what was measured, and judged on other matrices.

    python -m benchmarks.cost_model [FILE.tuning.jsonl.xz…] [--features FILE] [--out FILE] [--fit]

The features of the matrices are those that `python -m benchmarks.prior --features` writes.  Every right candidate of a search
is a point: its plan, its matrix's features and its microseconds.  `--fit` looks for the constants that make the squared errors
of log(predicted / measured) least, those within a task counted `WITHIN` times, since a search needs the order; a task counts as
much as any other.  It writes them where the model reads them.  Then it reports, by op and K: the rank correlation (Spearman)
within a task, the geometric mean of the factor by which a prediction is off, and how many times slower than the best candidate
the first, and the best of the first five, by predicted cost are, beside the plan that the planner took first then.  "held out"
is the same with the constants of the other half of the matrices, which are halved by a hash of their names.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from benchmarks.prior import FEATURES
from benchmarks.tables import table
from sparseditto.agent.architecture.building import named
from sparseditto.agent.cost.demand import NAMES, Demand
from sparseditto.agent.cost.model import SCHEMA, Constants, Model, calibrated, times, total
from sparseditto.agent.cost.rates import CALIBRATED, Rates
from sparseditto.agent.features import Features
from sparseditto.agent.memory.exchange import Entry, read_file
from sparseditto.agent.memory.trial import samples_of
from sparseditto.agent.planner import Task
from sparseditto.agent.prior import training
from sparseditto.dialects.errors import InputError, PlanError

RESULTS = Path(__file__).parent / "results"
MEASURED = RESULTS / "suite-h200.tuning.jsonl.xz"
REPORT = RESULTS / "cost-model-h200.json"
CALIBRATION = Path(__file__).parents[1] / "agent" / "cost" / "calibration.json"
COMMAND = "python -m benchmarks.cost_model --fit"
LEAST = 5  # candidates of a task that is judged
WITHIN = 2.0
LIMITS = (0.1, 100.0)  # of a constant
BOUNDS = {  # no byte moves faster than was measured, and no step or load takes less than an instruction
    **dict.fromkeys(("dram", "l2", "shared", "steps", "loads", "vectors"), (1.0, 10.0)),
    **dict.fromkeys(("decodes", "shuffles", "scans", "sums"), (0.5, 30.0)),
    "power": (1.0, 8.0),
}

Array = NDArray[np.float64]
NAMED = tuple(field.name for field in fields(Constants))


@dataclass(frozen=True, eq=False)
class Points:
    """Candidates: what each demands and how long it took, and the number of its task.

    `tasks` are (case, op, K), `defaults` the microseconds of the planner's first plan, NaN where it was not measured.
    """

    demand: Demand
    us: Array
    task: NDArray[np.int64]
    tasks: Sequence[tuple[str, str, int]]
    defaults: Sequence[float]

    def of(self, chosen: NDArray[np.bool_]) -> Points:
        picked = Demand(**{name: getattr(self.demand, name)[chosen] for name in NAMES})
        return replace(self, demand=picked, us=self.us[chosen], task=self.task[chosen])

    def predicted(self, constants: Constants) -> Array:
        rates = Rates.of(named(CALIBRATED))
        return np.asarray(total(times(self.demand, rates, constants), constants))


# --- Reading ----------------------------------------------------------------------------------------------


def read_features(path: Path) -> dict[str, Features]:
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    return {case: Features.from_json(found) for case, found in training.read_features(lines, path.name).items()}


def read_points(files: Iterable[Path], features: dict[str, Features]) -> Points:
    """Every candidate with a right result, of tasks with `LEAST` of them whose matrix's features are known."""
    architecture = named(CALIBRATED)
    demands: list[list[float]] = []
    us: list[float] = []
    number: list[int] = []
    tasks: list[tuple[str, str, int]] = []
    defaults: list[float] = []
    for entry in (entry for path in files for entry in read_file(path)):
        case, found = entry.about.get("case"), _measured(entry)
        if case not in features or len(found) < LEAST:
            continue
        k = prod(entry.key.K) if entry.key.K else 0
        f = features[case]
        model = Model.of(Task(True, True, k, 4, kernel="", shape=(f.rows, f.columns)), f, architecture)
        for plan, microseconds in found:
            demand = model.demand(plan)
            demands.append([getattr(demand, name) for name in NAMES])
            us.append(microseconds)
            number.append(len(tasks))
        tasks.append((str(case), str(entry.about["op"]), k))
        defaults.append(next((us for plan, us in found if plan.digest() == entry.about.get("default")), math.nan))
    columns = np.array(demands, float).T
    return Points(Demand(**dict(zip(NAMES, columns, strict=True))), np.array(us), np.array(number), tasks, defaults)


def _measured(entry: Entry) -> list[tuple[Any, float]]:
    """Plans that today's passes read, with the medians of their samples."""
    found = []
    for record in entry.records:
        samples = samples_of(record.measurements)
        try:
            plan = record.plan.read() if samples else None
        except PlanError:
            continue
        if plan is not None:
            found.append((plan, median(samples)))
    return found


# --- Fitting ----------------------------------------------------------------------------------------------


def fit(points: Points) -> Constants:
    """The constants with the least squares, from the defaults of `Constants`, which those of what no candidate does keep."""
    weight = 1 / np.sqrt(np.bincount(points.task)[points.task])
    count = np.maximum(np.bincount(points.task), 1)
    logs = np.log(points.us)
    free = [name for name in NAMED if name not in NAMES or getattr(points.demand, name).any()]

    def constants(x: Array) -> Constants:
        return replace(Constants(), **dict(zip(free, map(float, np.exp(x)), strict=True)))

    def errors(x: Array) -> Array:
        error = np.log(points.predicted(constants(x))) - logs
        mean = np.bincount(points.task, error, count.size) / count
        return np.concatenate((error * weight, WITHIN * (error - mean[points.task]) * weight))

    low, high = (np.log([BOUNDS.get(name, LIMITS)[i] for name in free]) for i in (0, 1))
    start = np.clip(np.log([getattr(Constants(), name) for name in free]), low + 1e-6, high - 1e-6)
    found = least_squares(errors, start, bounds=(low, high), loss="soft_l1", f_scale=0.1, max_nfev=60)
    return Constants(**{name: float(f"{value:.4g}") for name, value in asdict(constants(found.x)).items()})


def half(case: str) -> int:
    """Which half of the matrices a case is in."""
    return zlib.crc32(case.encode()) & 1


# --- Judging ----------------------------------------------------------------------------------------------


def judge(points: Points, predicted: Array) -> list[dict[str, Any]]:
    """What the predictions are worth, one record a task."""
    rows = []
    for number, (case, op, k) in enumerate(points.tasks):
        mine = points.task == number
        if not mine.any():
            continue
        us, cost = points.us[mine], predicted[mine]
        order = np.argsort(cost, kind="stable")
        varied = np.ptp(us) > 0 and np.ptp(cost) > 0
        rows.append(
            {
                "case": case,
                "op": op,
                "K": k,
                "candidates": int(us.size),
                "spearman": float(spearmanr(us, cost).statistic) if varied else 0.0,
                "error": float(np.exp(np.abs(np.log(cost / us)).mean())),
                "top1": float(us[order[0]] / us.min()),
                "top5": float(us[order[:5]].min() / us.min()),
                "planner": None if math.isnan(points.defaults[number]) else float(points.defaults[number] / us.min()),
            }
        )
    return rows


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of many tasks: the median correlation, and geometric means of the others."""

    def mean(name: str) -> float:
        return float(np.exp(np.mean([np.log(row[name]) for row in rows if row[name] is not None])))

    correlation = float(median(row["spearman"] for row in rows))
    return {"tasks": len(rows), "spearman": correlation, **{name: mean(name) for name in ("error", "top1", "top5", "planner")}}


def by_kind(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    kinds = sorted({(row["op"], row["K"]) for row in rows}, key=lambda kind: kind[1])
    found = {f"{op} {k}".removesuffix(" 0"): summarise([r for r in rows if (r["op"], r["K"]) == (op, k)]) for op, k in kinds}
    return {**found, "all": summarise(rows)}


def held_out(points: Points) -> list[dict[str, Any]]:
    """The judgement of each half of the matrices with the constants of the other."""
    halves = np.array([half(case) for case, _, _ in points.tasks])[points.task]
    predicted = np.zeros(points.us.size)
    for number in (0, 1):
        predicted[halves == number] = points.of(halves == number).predicted(fit(points.of(halves != number)))
    return judge(points, predicted)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, default=[MEASURED])
    parser.add_argument("--features", type=Path, default=FEATURES)
    parser.add_argument("--fit", action="store_true", help="find the constants anew")
    parser.add_argument("--out", type=Path, default=REPORT)
    args = parser.parse_args(argv)
    points = read_points(args.files, read_features(args.features))
    if not points.us.size:
        raise InputError("there is no candidate of a matrix whose features are known")
    constants = fit(points) if args.fit else calibrated()
    if args.fit:
        source = {"gpu": CALIBRATED, "source": [path.name for path in args.files], "command": COMMAND}
        told = {"schema": SCHEMA, **source, "candidates": int(points.us.size), "constants": asdict(constants)}
        CALIBRATION.write_text(json.dumps(told, indent=1) + "\n")
    fitted, unseen = judge(points, points.predicted(constants)), held_out(points)
    report = {"constants": asdict(constants), "fitted": by_kind(fitted), "held_out": by_kind(unseen), "tasks": unseen}
    args.out.write_text(json.dumps(report) + "\n")
    for name, rows in (("fitted", report["fitted"]), ("held out", report["held_out"])):
        print(f"\n{name}")
        head = ["", "tasks", "Spearman", "error", "first", "first five", "planner's"]
        body = [[kind, *(f"{v:.3g}" for v in summary.values())] for kind, summary in rows.items()]
        print(table(head, body))
    return 0


if __name__ == "__main__":
    sys.exit(main())
