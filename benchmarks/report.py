"""What results say: geometric means over cuSPARSE, win rates, worst tasks, shares of the bounds, targets; as Markdown.

    python -m benchmarks.report [FILE…] [--plots DIR]      # without FILE: the newest file in benchmarks/results
    python -m benchmarks.report --check [--ops spmv]       # exits 1 when a target of targets.json is missed
    python -m benchmarks.report --check --ops representations              # what other storage than CSR gains
    python -m benchmarks.report --check --ops agent                        # how well the agent chooses

Only right results count.  A baseline that failed or is wrong is left out of the best, and a task without any is left out of the
means; a task without a right result of ours counts as slower, by a ratio of 0.  Matrices of fewer than 1000 nonzeros are
outside of the suite's range: they are run and checked, and are not in the means.

Types, caches and kinds of plans are not mixed in a table of means.  Targets, families, peers and plots are about the
headline: tuned plans where a task has them, else the default plan.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import agent_results
from benchmarks.cusparse import COL_MAJOR, DEFAULT
from benchmarks.run import Key, key_of, read_rows
from benchmarks.tables import geomean, number, percent, table

HERE = Path(__file__).resolve().parent
LEAST_NNZ = 1000
GROUPS = {"representations": ("spmv",), "agent": ("spmv", "spmm")}  # targets that --ops may name, and the operations
OVER = {"default": "cuSPARSE default", "best_csr": "best CSR", "best_any": "best of any format"}

Row = dict[str, Any]


# --- Reading --------------------------------------------------------------------------------------------


def newest() -> list[Path]:
    """The newest file of benchmarks/results that holds measured tasks, by the time that its machine line states."""

    def measured(path: Path) -> str:
        rows = read_rows(path)
        times = [str(row.get("time", "")) for row in rows if row.get("kind") == "machine"]
        return max(times, default="") if any(row.get("kind") == "task" and "us" in row for row in rows) else ""

    files = [(measured(path), path) for path in sorted((HERE / "results").glob("*.jsonl*"))]
    files = [(when, path) for when, path in files if when]
    return [max(files)[1]] if files else []


class Results:
    """The tasks of some files; of a task that occurs twice, the last row."""

    def __init__(self, files: Iterable[Path]) -> None:
        by_key: dict[Key, Row] = {}
        self.machines: list[Row] = []
        for path in files:
            for row in read_rows(path):
                if row.get("kind") == "task":
                    by_key[key_of(row)] = row
                elif row.get("kind") == "machine":
                    self.machines.append(row)
        self.rows = list(by_key.values())

    def settings(self) -> list[tuple[str, str, str]]:
        """Type, caches and plans of the groups that may not be mixed, float32 warm first, tuned plans before others."""
        found = {(row["dtype"], row["caches"], row["plans"]) for row in self.rows if row["device"] == "cuda"}
        return sorted(found, key=lambda s: (s[0] != "float32", s[1] != "warm", s[2] != "tuned", s[2]))

    def headline(self) -> list[Row]:
        """Of the first type and caches: the tuned row of each task where there is one, else the one by default."""
        if not self.settings():
            return []
        dtype, caches, plans = self.settings()[0]
        if plans not in ("tuned", "default"):
            return self.of((dtype, caches, plans))
        found = {_task(r): r for kind in ("default", "tuned") for r in self.of((dtype, caches, kind))}
        plain = {_task(r): {"us": ours(r), "bytes": r.get("bytes_per_nonzero")} for r in self.of((dtype, caches, "tuned-csr"))}
        return [row | ({"csr_alone": plain[task]} if task in plain else {}) for task, row in found.items()]

    def of(self, setting: tuple[str, str, str]) -> list[Row]:
        dtype, caches, plans = setting
        return [
            row
            for row in self.rows
            if row["device"] == "cuda" and (row["dtype"], row["caches"], row["plans"]) == (dtype, caches, plans)
        ]


def _task(row: Row) -> tuple[str, str, int]:
    return row["case"], row["op"], row["K"]


# --- Numbers of one task ----------------------------------------------------------------------------------


def ours(row: Row) -> float | None:
    """Our microseconds, where the result was right."""
    us = row.get("us")
    return float(us) if row["outcome"] == "right" and us else None


def baseline_us(row: Row) -> dict[str, float | None]:
    """Microseconds of cuSPARSE: by default, its best on CSR, its best of any format.  None where all of these failed."""
    good = {b["name"]: b for b in row.get("baselines", []) if b["outcome"] == "right" and b.get("us")}
    csr = [b["us"] for b in good.values() if b["family"] == "csr"]
    every = [b["us"] for b in good.values() if not b["family"].endswith(COL_MAJOR)]
    default = good.get(DEFAULT)
    return {
        "default": default["us"] if default else None,
        "best_csr": min(csr, default=None),
        "best_any": min(every, default=None),
    }


def speedups(row: Row) -> dict[str, float | None]:
    """How many times faster we are; 0 where we have no right result, None where cuSPARSE has none."""
    mine = ours(row)
    return {over: (us / mine if mine else 0.0) if us else None for over, us in baseline_us(row).items()}


def share(row: Row, bound: str) -> float:
    """Which part of our time the bound is."""
    mine = ours(row)
    return float(row["bounds_us"][bound]) / mine if mine else 0.0


def ratios(rows: Iterable[Row], over: str) -> list[float]:
    return [ratio for row in rows for ratio in [speedups(row)[over]] if ratio is not None]


def over_csr_alone(rows: Iterable[Row]) -> list[float]:
    """How many times faster than the best plan that reads CSR as it is, where that was measured."""
    return [alone / mine for row in rows if (alone := row.get("csr_alone", {}).get("us")) and (mine := ours(row))]


def peer_ratios(rows: Iterable[Row], peers: Sequence[str] | None = None) -> list[float]:
    """Over published kernels on the matrices that they were measured on: the named ones, or the best exact one."""
    data = json.loads((HERE / "peers.json").read_text())
    found = []
    for row in rows:
        times = data["us"].get(row["op"] if row["op"] == "spmv" else f"spmm-{row['K']}", {}).get(row["case"], {})
        known = [times[p] for p in (peers or data["exact"][row["op"]]) if p in times]
        if known:
            mine = ours(row)
            found.append(min(known) / mine if mine else 0.0)
    return found


# --- Targets ----------------------------------------------------------------------------------------------


def _slower(rows: list[Row], over: str) -> float | None:
    found = ratios(rows, over)
    return sum(r < 1 for r in found) / len(found) if found else None


def _least(values: list[float]) -> float | None:
    return min(values, default=None)


METRICS: dict[str, Callable[[list[Row], str], float | None]] = {
    "geomean": lambda rows, over: geomean(ratios(rows, over)),
    "slower_share": _slower,
    "least": lambda rows, over: _least(ratios(rows, over)),
    "bound_share": lambda rows, over: geomean(share(row, "cache_aware") for row in rows if ours(row)),
    "compulsory_share_least": lambda rows, over: _least([share(row, "compulsory") for row in rows]),
    "peer_geomean": lambda rows, over: geomean(peer_ratios(rows, [over])),
    "peer_least": lambda rows, over: _least(peer_ratios(rows)),
    "over_csr_alone": lambda rows, over: geomean(over_csr_alone(rows)),
    "csr_alone_matrices": lambda rows, over: float(len(over_csr_alone(rows))),
    "matrices": lambda rows, over: float(len({row["case"] for row in rows if ours(row)})),
    "wrong": lambda rows, over: (
        float(sum(row["outcome"] in ("wrong", "gpu-fault", "check-failed") for row in rows)) if rows else None
    ),
    **{name: lambda rows, over, metric=metric: metric(over) for name, metric in agent_results.METRICS.items()},
}


def selected(rows: Iterable[Row], target: dict[str, Any]) -> list[Row]:
    """The tasks that a target speaks of."""
    where = target.get("where", {})
    return [
        row
        for row in rows
        if target.get("op") in (None, row["op"])
        and target.get("K") in (None, row["K"])
        and row.get("nnz", 0) > where.get("nnz_over", 0 if target["metric"] == "wrong" else LEAST_NNZ - 1)
        and ("families" not in where or row.get("family") in where["families"])
        and re.search(where.get("cases", ""), row["case"])
    ]


def targets(ops: Sequence[str]) -> list[dict[str, Any]]:
    data = json.loads((HERE / "targets.json").read_text())
    return [{"issue": n, **t} for n, listed in data["issues"].items() for t in listed if (t.get("group") or t["op"]) in ops]


def verdict(rows: Iterable[Row], target: dict[str, Any]) -> tuple[float | None, bool]:
    """What was reached (None: nothing was measured, which counts as missed), and whether that meets the target."""
    value = METRICS[target["metric"]](selected(rows, target), target.get("over", ""))
    if value is None:
        return None, False
    return value, value >= target["at_least"] if "at_least" in target else value <= target["at_most"]


def missed(rows: list[Row], ops: Sequence[str]) -> list[str]:
    """A line for each target that is missed."""
    lines = []
    for target in targets(ops):
        value, met = verdict(rows, target)
        if not met:
            limit = float(target.get("at_least", target.get("at_most", 0)))
            word = "at least" if "at_least" in target else "at most"
            by = "not measured" if value is None else f"{value:.3g}, off by {abs(value - limit):.3g}" + _relative(value, limit)
            lines.append(f"issue {target['issue']}: {target['name']}: {word} {limit:g}; {by}")
    return lines


def _relative(value: float, limit: float) -> str:
    return f" ({abs(value - limit) / limit:.0%})" if limit else ""


# --- Markdown ---------------------------------------------------------------------------------------------


def groups(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """SpMV, SpMM for each K, and SpMM in all."""
    found = [("SpMV", [r for r in rows if r["op"] == "spmv"])]
    found += [
        (f"SpMM K={k}", [r for r in rows if r["K"] == k and r["op"] == "spmm"]) for k in sorted({r["K"] for r in rows} - {0})
    ]
    found.append(("SpMM, all K", [r for r in rows if r["op"] == "spmm"]))
    return [(name, part) for name, part in found if part]


def means(parts: Iterable[tuple[str, list[Row]]]) -> str:
    body = []
    for name, rows in parts:
        csr = ratios(rows, "best_csr")
        large = [r for r in rows if r.get("nnz", 0) > 1e6 and ours(r)]
        body.append(
            [
                name,
                str(len(rows)),
                *(number(geomean(ratios(rows, over))) for over in OVER),
                percent(sum(r >= 1 for r in csr) / len(csr) if csr else None),
                percent(_slower(rows, "best_csr")),
                number(min(csr, default=None)),
                percent(geomean(share(r, "compulsory") for r in large)),
                percent(geomean(share(r, "cache_aware") for r in large)),
                str(sum(r["outcome"] != "right" for r in rows)),
            ]
        )
    head = [
        "",
        "tasks",
        *(f"over {text}" for text in OVER.values()),
        "wins",
        "slower",
        "worst",
        "compulsory",
        "cache-aware",
        "not right",
    ]
    return table(head, body)


def worst(rows: Sequence[Row], count: int = 10) -> str:
    """The tasks where we gain least over the best CSR algorithm."""
    known = [(ratio, row) for row in rows for ratio in [speedups(row)["best_csr"]] if ratio is not None]
    body = []
    for ratio, row in sorted(known, key=lambda pair: pair[0])[:count]:
        them = baseline_us(row)["best_csr"]
        what = row.get("plan") or row.get("why", "")
        body.append([row["case"], name_of(row), number(row.get("us")), number(them), number(ratio), f"`{what}`"])
    return table(["matrix", "task", "ours, us", "best CSR, us", "ratio", "plan"], body)


def name_of(row: Row) -> str:
    return "SpMV" if row["op"] == "spmv" else f"SpMM K={row['K']}"


def by_family(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.get("family", "")].append(row)
    return sorted(found.items())


def representations(rows: Sequence[Row]) -> str:
    """What other storage than CSR gains, by family, and the bytes that an entry takes; empty if it was not measured."""
    known = [row for row in rows if row.get("csr_alone", {}).get("us") and ours(row)]
    body = []
    for name, part in [*by_family(known), ("all", known)] if known else []:
        cells = [median([r["bytes_per_nonzero"] for r in part]), median([r["csr_alone"]["bytes"] for r in part])]
        body.append([name, str(len(part)), number(geomean(over_csr_alone(part))), *map(number, cells)])
    head = ["family", "tasks", "over CSR alone", "bytes a nonzero (median)", "of CSR (median)"]
    return table(head, body) if body else ""


def families(rows: Sequence[Row]) -> str:
    body = []
    for family, part in by_family(rows):
        cells = [[r for r in part if r["op"] == op] for op in ("spmv", "spmm")]
        counts = str(len({r["case"] for r in part}))
        body.append([family, counts, *(number(geomean(ratios(c, over))) for c in cells for over in OVER)])
    return table(["family", "matrices", *(f"{op} over {text}" for op in ("SpMV", "SpMM") for text in OVER.values())], body)


def peers(rows: Sequence[Row]) -> str:
    """Ours beside published kernels, microseconds."""
    data = json.loads((HERE / "peers.json").read_text())
    parts = []
    for task, matrices in data["us"].items():
        op, _, k = task.partition("-")
        mine = {r["case"]: ours(r) for r in rows if r["op"] == op and r["K"] == int(k or 0)}
        names = [n for n in next(iter(matrices.values())) if not n.startswith("cusparse")]
        names = list(
            dict.fromkeys([*names, *(n for times in matrices.values() for n in times if not n.startswith("cusparse"))])
        )
        body = []
        for matrix, times in matrices.items():
            best = min((times[n] for n in data["exact"][op] if n in times), default=None)
            us = mine.get(matrix)
            body.append(
                [matrix, number(us), *(number(times.get(n), 1) for n in names), number(best / us if us and best else None)]
            )
        if any(mine.get(matrix) for matrix in matrices):
            parts += [f"**{task}**", table(["matrix", "ours", *names, "best exact peer over ours"], body)]
    return "\n\n".join([data["source"], *parts]) if parts else ""


def costs(rows: Sequence[Row]) -> str:
    """Seconds before the first call, and the number of calls after which they have paid off against the best CSR."""
    body = []
    for name, part in groups(rows):
        done = [r for r in part if ours(r)]
        cells = [number(median([r["seconds"].get(key, 0.0) for r in done]), 3) for key in ("plan", "compile", "pack")]
        tuning = median([r["tuning"]["seconds"] for r in done if "tuning" in r])
        calls = []
        for row in done:
            them, mine = baseline_us(row)["best_csr"], ours(row)
            if them and mine and them > mine:
                spent = sum(row["seconds"].get(key, 0.0) for key in ("plan", "compile", "pack"))
                calls.append((spent + row.get("tuning", {}).get("seconds", 0.0)) / (them - mine) * 1e6)
        body.append([name, *cells, number(tuning, 1), number(median(calls), 0)])
    return table(["", "plan, s", "compile, s", "pack, s", "tune, s", "calls to pay off"], body)


def median(values: Sequence[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None


def failures(rows: Sequence[Row]) -> str:
    """What is not right, of ours and of theirs."""
    mine = [f"- ours: {r['case']} {name_of(r)}: {r['outcome']} {r.get('why', '')}" for r in rows if r["outcome"] != "right"]
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in rows:
        for b in row.get("baselines", []):
            if b["outcome"] != "right":
                reason = re.sub(r"\d+", "N", b.get("why", ""))[:120]
                counts[b["name"], b["outcome"], reason] += 1
    theirs = [f"- cuSPARSE {name}: {outcome} on {n} tasks: {why}" for (name, outcome, why), n in sorted(counts.items())]
    return "\n".join([*mine, *theirs])


def target_table(rows: list[Row], ops: Sequence[str]) -> str:
    body = []
    for target in targets(ops):
        value, met = verdict(rows, target)
        word = "≥" if "at_least" in target else "≤"
        limit = target.get("at_least", target.get("at_most"))
        body.append([target["issue"], target["name"], f"{word} {limit:g}", number(value), "met" if met else "**missed**"])
    return table(["issue", "target", "", "reached", ""], body)


def report(results: Results, ops: Sequence[str]) -> str:
    """The whole report."""
    parts, shown = ["# Benchmark results"], {one for op in ops for one in GROUPS.get(op, (op,))}
    for about in results.machines[-1:]:
        gpu, rates = about.get("gpu", {}), about.get("rates", {})
        parts.append(
            f"{gpu.get('gpu', 'no GPU')}, driver {gpu.get('driver', '?')}, CUDA {gpu.get('cuda', '?')}, "
            f"cuSPARSE {about.get('cusparse', '?')}, {about.get('time', '')}; copy {rates.get('copy', 0) / 1e12:.2f} TB/s, "
            f"gathers {rates.get('gather', 0) / 1e12:.2f} TB/s, reads out of L2 {rates.get('l2_read', 0) / 1e12:.2f} TB/s."
        )
    for number_of, setting in enumerate(results.settings()):
        every = [row for row in results.of(setting) if row["op"] in shown]
        rows = [row for row in every if row.get("nnz", 0) >= LEAST_NNZ]
        dtype, caches, plans = setting
        matrices = len({row["case"] for row in rows})
        parts.append(f"## {dtype}, {caches} caches, plans: {plans}")
        parts.append(
            f"{len(rows)} tasks on {matrices} matrices; times are medians.  Geometric means of how many times faster we are; "
            "wins, slower and worst are against the best CSR algorithm; bounds are shares of our time, over 1 M nonzeros."
        )
        parts.append(means(groups(rows)))
        if any("tuning" in row for row in rows):
            parts += ["### Tuned over default", gains(rows)]
        if number_of == 0:
            parts += _headline([row for row in results.headline() if row["op"] in shown], ops)
        parts += ["### Worst ten", worst(rows), "### Costs before the first call (medians)", costs(rows)]
        parts += ["### Not right or failed", failures(every) or "Nothing."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(every: list[Row], ops: Sequence[str]) -> list[str]:
    """Targets, families and peers."""
    rows = [row for row in every if row.get("nnz", 0) >= LEAST_NNZ]
    kinds = [f"{sum(r['plans'] == kind for r in every)} tasks with {kind} plans" for kind in ("tuned", "default")]
    mixed = len({row["plans"] for row in every}) > 1
    parts = ["### Targets", f"Of {' and '.join(kinds)}, also by family and beside peers." if mixed else ""]
    parts += [target_table(every, ops), "### By family", families(rows), "### What is left", floors(every)]
    stored = representations(rows)
    parts += ["### Representations", stored] if stored else []
    beside = peers(rows)
    return [*parts, *(["### Beside published kernels (microseconds)", beside] if beside else [])]


def floors(every: Sequence[Row]) -> str:
    """What would be reached if each task took its cache-aware bound and, beside it, what the shortest task of all takes.

    The shortest has next to nothing to do: it is what starting a kernel takes.
    """
    start = min((us for row in every if (us := ours(row))), default=0.0)
    body = []
    for name, part in groups([row for row in every if row.get("nnz", 0) >= LEAST_NNZ]):
        least = [{**row, "us": row["bounds_us"]["cache_aware"] + start} for row in part if ours(row)]
        cells = [(geomean(ratios(found, over))) for over in ("default", "best_csr", "best_any") for found in (part, least)]
        shares = [found["us"] / mine for found, row in zip(least, filter(ours, part), strict=True) if (mine := ours(row))]
        body.append([name, *map(number, cells), percent(geomean(shares))])
    heads = [
        f"{words} {kind}"
        for words in ("over default,", "over best CSR,", "over best of any,")
        for kind in ("reached", "at the floor")
    ]
    note = f"A floor: the cache-aware bound, and {start:.2f} us as the shortest task takes; the share is that of our times."
    return f"{note}\n\n{table(['', *heads, 'share'], body)}"


def gains(rows: Sequence[Row]) -> str:
    """How many times faster the tuned plan is than the default one, and what finding it took."""
    body = []
    for name, part in groups(rows):
        pairs = [(row, default_us(row), ours(row)) for row in part if "tuning" in row]
        found = [before / after for _, before, after in pairs if before and after]
        seconds = [row["tuning"]["seconds"] for row, _, _ in pairs]
        counts = [row["tuning"].get("measured", 0) for row, _, _ in pairs]
        kept = sum(ratio <= 1.01 for ratio in found)
        cells = [number(geomean(found)), number(max(found, default=None)), percent(kept / len(found) if found else None)]
        body.append(
            [name, str(len(pairs)), *cells, number(median(counts), 0), number(median(seconds), 2), number(sum(seconds), 0)]
        )
    head = ["", "tasks", "geomean", "most", "default as good", "measured (median)", "seconds (median)", "seconds in all"]
    return table(head, body)


def default_us(row: Row) -> float | None:
    """Microseconds of the default plan in a tuned run; ours where the search kept that plan."""
    return ours(row["default_plan"]) if row.get("default_plan") else ours(row)


# --- Plots ------------------------------------------------------------------------------------------------


def plots(rows: list[Row], machines: list[Row], folder: Path) -> list[Path]:
    """Speed-up against nonzeros and against the variation of row lengths, and a roofline; as PNG.  Needs matplotlib."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, key, label in (
        ("speedup-nnz", "nnz", "nonzeros"),
        ("speedup-variation", "row_variation", "standard deviation of row lengths over their mean"),
    ):
        figure, axes = plt.subplots(figsize=(7, 4.5))
        for title, part in groups(rows)[: -1 if len(groups(rows)) > 2 else None]:
            known = [(max(row[key], 1e-3), r) for row in part for r in [speedups(row)["best_csr"]] if r]
            if known:
                axes.scatter(*zip(*known, strict=True), s=14, label=title, alpha=0.7)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel=label, ylabel="times faster than cuSPARSE's best CSR")
        axes.legend()
        written.append(_saved(figure, folder / f"{name}.png"))
        plt.close(figure)
    figure, axes = plt.subplots(figsize=(7, 4.5))
    points: list[float] = []
    for title, part in groups(rows)[: -1 if len(groups(rows)) > 2 else None]:
        known = [
            (_flops(r) / r["traffic"]["compulsory"], _flops(r) / us / 1e3) for r in part for us in [ours(r)] if us and r["nnz"]
        ]
        if known:
            points += [x for x, _ in known]
            axes.scatter(*zip(*known, strict=True), s=14, label=title, alpha=0.7)
    copy = next((m["rates"]["copy"] for m in reversed(machines) if "rates" in m), 4.3e12)
    if points:
        ends = [min(points), max(points)]
        axes.plot(ends, [x * copy / 1e9 for x in ends], color="black", linewidth=0.8, label=f"{copy / 1e12:.2f} TB/s")
    axes.set(xscale="log", yscale="log", xlabel="operations a compulsory byte", ylabel="GFLOP/s")
    axes.legend()
    written.append(_saved(figure, folder / "roofline.png"))
    plt.close(figure)
    return written


def _flops(row: Row) -> float:
    return 2.0 * row["nnz"] * max(row["K"], 1)


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=150, bbox_inches="tight")
    return path


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--ops", default="spmv,spmm")
    parser.add_argument("--check", action="store_true", help="compare with the targets; exit 1 when one is missed")
    parser.add_argument("--plots", type=Path, help="write PNG plots into this folder")
    args = parser.parse_args(words)
    files = args.files or newest()
    absent = [str(path) for path in files if not path.exists()]
    if absent or not files:
        print(f"no results: {', '.join(absent) or 'benchmarks/results holds none'}", file=sys.stderr)
        return 2
    results, ops = Results(files), args.ops.split(",")
    headline = results.headline()
    if args.check:
        lines = missed(headline, ops)
        print("\n".join(lines) if lines else f"all {len(targets(ops))} targets are met")
        return 1 if lines else 0
    print(report(results, ops), end="")
    if args.plots:
        for path in plots(
            [r for r in headline if r["op"] in ops and r.get("nnz", 0) >= LEAST_NNZ], results.machines, args.plots
        ):
            print(f"wrote {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
