"""Which plans won, where, and what it costs to take the default one: what the planner's rules can be improved by.

    python -m benchmarks.choices FILE.tuning.sqlite3… [--ops spmv] [--K 0,8] [--top 12] [--json]

FILE is the database that a tuned run leaves beside its results, every candidate with its times, or an export of it.  Of each
task the default plan is set against the best one that was measured.  Tables for each op and number of columns: bins of
structure (regret is how many times slower the default plan is than the best), changes to the default plan one at a time, and
plans as a whole, by their passes and in full.  A plan is written without what all have, and with those options that are not
their pass's default.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import name_of
from benchmarks.tables import geomean, number, percent, table
from sparseditto.agent.memory.exchange import Entry, entries_of, read_file
from sparseditto.agent.memory.trial import samples_of
from sparseditto.dialects.errors import PlanError
from sparseditto.passes.pipeline_text import parse_options, parse_pipeline
from sparseditto.passes.registry import registry

AS_GOOD = 1.02  # a plan within this factor of the best has won as well
UNSAID = ("accumulate-registers", "map-blocks")  # passes that are not written where they have their defaults
BINS = {
    "mean row": ("mean_row", (4, 16, 64)),
    "variation": ("variation", (0.3, 1.0)),
    "rows": ("rows", (10_000, 250_000)),
}

Steps = Mapping[str, Mapping[str, str]]
"""Options by pass name, in order."""


@dataclass(frozen=True)
class Choice:
    """What was measured of one task: microseconds by plan text, the default plan among them."""

    case: str
    op: str
    k: int
    about: dict[str, Any]
    default: str
    us: dict[str, float]

    @property
    def best(self) -> str:
        """The fastest; the default plan where that is as good."""
        best = min(self.us, key=lambda text: self.us[text])
        return self.default if self.us[self.default] <= AS_GOOD * self.us[best] else best

    @property
    def regret(self) -> float:
        return self.us[self.default] / min(self.us.values())

    def won(self) -> list[str]:
        least = min(self.us.values())
        return [text for text, us in self.us.items() if us <= AS_GOOD * least]


def read(files: Iterable[Path]) -> tuple[list[Choice], int]:
    """The tasks whose default plan was measured, and the number of others.  Of a task that occurs twice, the latest search.

    Raises `InputError` for a file that holds no records.
    """
    choices: dict[tuple[str, str, int, str], Choice] = {}
    without = 0
    for entry in sorted((entry for path in files for entry in _entries(path)), key=_measured_at):
        about = {**(entry.features or {}), **entry.about, "features": entry.features}
        if not {"case", "op", "default"} <= about.keys():
            continue  # of `tune`, which has no default plan
        records = [(r.plan, samples_of(r.measurements)) for r in entry.records]
        us = {plan.text(): median(samples) for plan, samples in records if samples}
        default = next((plan.text() for plan, samples in records if samples and plan.digest() == about["default"]), None)
        if default is None:
            without += 1
            continue
        k, dtypes = prod(entry.key.K) if entry.key.K else 0, entry.key.operator.dtypes
        choice = Choice(about["case"], about["op"], k, about, default, us)
        choices[choice.case, choice.op, choice.k, dtypes] = choice
    return list(choices.values()), without


def _measured_at(entry: Entry) -> str:
    return max((m.measured_at for record in entry.records for m in record.measurements), default="")


def _entries(path: Path) -> Sequence[Entry]:
    """What a database, an export of one or an earlier run's records hold."""
    return entries_of(path) if path.suffix == ".sqlite3" else read_file(path)


# --- Plans as people read them ----------------------------------------------------------------------------


@cache
def steps_of(text: str) -> Steps:
    return {item.name: parse_options(item.name, item.options) for item in parse_pipeline(text)}


@cache
def _defaults(name: str) -> Mapping[str, str]:
    try:
        made = registry()[name].make({})
    except (KeyError, PlanError):
        return {}
    return parse_options(name, str(made)[len(name) + 1 : -1]) if "{" in str(made) else {}


def _written(name: str, options: Mapping[str, str]) -> str:
    shown = " ".join(f"{key}={value}" for key, value in options.items() if _defaults(name).get(key) != value)
    return f"{name}{{{shown}}}" if shown else name


def passes(text: str) -> str:
    """The passes of a plan without their options."""
    return " ".join(name for name in steps_of(text) if name not in (*UNSAID, "set-encoding"))


def skeleton(text: str) -> str:
    """The passes of a plan with the options that matter: CSR with any widths is what all have."""
    words = []
    for name, options in steps_of(text).items():
        if name == "set-encoding":
            if options.get("format", "csr") == "csr":
                continue
            options = {key: value for key, value in options.items() if key not in ("positions", "coordinates")}
        word = _written(name, options)
        if word not in UNSAID:
            words.append(word)
    return " ".join(words)


def changes(before: str, after: str) -> tuple[str, ...]:
    """What leads from one plan to another: a pass for another, passes added and removed, options, another order."""
    old, new = steps_of(before), steps_of(after)
    added = [_written(name, new[name]) for name in new if name not in old]
    removed = [name for name in old if name not in new]
    if len(added) == len(removed) == 1:
        found = [f"{removed[0]} → {added[0]}"]
    else:
        found = [*(f"+{word}" for word in added), *(f"-{name}" for name in removed)]
    for name in (n for n in new if n in old):
        pairs = ((key, old[name].get(key), value) for key, value in new[name].items())
        found += [f"{name}.{key} {a}→{b}" for key, a, b in pairs if a != b]
    common = [[name for name in steps if name in old and name in new] for steps in (old, new)]
    return tuple(found if common[0] == common[1] else [*found, "another order"])


# --- Tables -------------------------------------------------------------------------------------------------


def bin_of(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The place of a matrix in `BINS`, in words that sort."""
    return tuple(_range(float(about[key]), edges) for key, edges in BINS.values())


def _range(value: float, edges: Sequence[float]) -> str:
    below = [edge for edge in edges if edge <= value]
    above = [edge for edge in edges if edge > value]
    if not below:
        return f"< {above[0]:g}"
    return f"{below[-1]:g} to {above[0]:g}" if above else f"≥ {below[-1]:g}"


def by_structure(choices: Sequence[Choice]) -> str:
    """For each bin: how far the default plan is behind, where most, and what the winners changed."""
    bins: dict[tuple[str, ...], list[Choice]] = defaultdict(list)
    for choice in choices:
        bins[bin_of(choice.about)].append(choice)
    ranks = {name: i for i, name in enumerate(_all_ranges())}
    body = []
    for place, part in sorted(bins.items(), key=lambda item: [ranks[name] for name in item[0]]):
        worst = max(part, key=lambda c: c.regret)
        counts = Counter(change for c in part for change in changes(c.default, c.best))
        told = ", ".join(f"`{change}` ({n})" for change, n in counts.most_common(3))
        kept = sum(c.best == c.default for c in part)
        regret = number(geomean(c.regret for c in part))
        body.append([*place, str(len(part)), str(kept), regret, f"{worst.regret:.2f} {worst.case}", told])
    return table([*BINS, "tasks", "default won", "regret", "most", "what the winners changed"], body)


def _all_ranges() -> list[str]:
    """Every word that `bin_of` uses, in order."""
    return [_range(value, edges) for _, edges in BINS.values() for value in (edges[0] - 1e-9, *edges)]


def single_changes(choices: Sequence[Choice], top: int) -> str:
    """What one change to the default plan brings, over all tasks where it was measured."""
    gains: dict[str, list[float]] = defaultdict(list)
    wins: Counter[str] = Counter()
    for choice in choices:
        won = choice.won()
        for text, us in choice.us.items():
            found = changes(choice.default, text)
            if len(found) == 1:
                gains[found[0]].append(choice.us[choice.default] / us)
                wins[found[0]] += text in won and choice.best != choice.default
    body = []
    for change, found in sorted(gains.items(), key=lambda item: (-wins[item[0]], -len(item[1]), item[0]))[:top]:
        better = sum(gain > AS_GOOD for gain in found) / len(found)
        cells = [number(geomean(found)), percent(better), f"{min(found):.2f} to {max(found):.2f}"]
        body.append([f"`{change}`", str(len(found)), str(wins[change]), *cells])
    return table(["one change", "measured", "wins", "gain", "better", "range"], body)


def whole_plans(choices: Sequence[Choice], top: int, write: Callable[[str], str]) -> str:
    """Which plans, as `write` has them, won how often, and how far behind they are where they do not."""
    wins: Counter[str] = Counter()
    defaults: Counter[str] = Counter()
    behind: dict[str, list[float]] = defaultdict(list)
    for choice in choices:
        least = min(choice.us.values())
        wins.update({write(text) for text in choice.won()})
        defaults[write(choice.default)] += 1
        ratios: dict[str, float] = {}
        for text, us in choice.us.items():
            ratios[write(text)] = min(ratios.get(write(text), math.inf), us / least)
        for name, ratio in ratios.items():
            behind[name].append(ratio)
    body = [
        [f"`{name}`", str(len(behind[name])), str(wins[name]), str(defaults[name]), number(geomean(behind[name]))]
        for name in sorted(behind, key=lambda n: (-wins[n], geomean(behind[n]) or 0.0, n))[:top]
    ]
    return table(["plan", "measured", "wins", "default of", "behind the best"], body)


def summary(choices: Sequence[Choice]) -> str:
    body = []
    for (op, k), part in _groups(choices):
        worst = max(part, key=lambda c: c.regret)
        kept = sum(c.best == c.default for c in part)
        plans = sum(len(c.us) for c in part) / len(part)
        cells = [number(geomean(c.regret for c in part)), f"{worst.regret:.2f} {worst.case}"]
        body.append([name_of({"op": op, "K": k}), str(len(part)), number(plans, 1), percent(kept / len(part)), *cells])
    return table(["", "tasks", "plans a task", "default won", "regret", "most"], body)


def _groups(choices: Sequence[Choice]) -> list[tuple[tuple[str, int], list[Choice]]]:
    found: dict[tuple[str, int], list[Choice]] = defaultdict(list)
    for choice in choices:
        found[choice.op, choice.k].append(choice)
    return sorted(found.items(), key=lambda item: (item[0][0] != "spmv", item[0][1]))


def tables(choices: Sequence[Choice], top: int) -> str:
    """Everything, as Markdown."""
    parts = ["# Which plans won", summary(choices)]
    for (op, k), part in _groups(choices):
        parts += [f"## {name_of({'op': op, 'K': k})}", "### By structure", by_structure(part)]
        parts += ["### One change to the default plan", single_changes(part, top)]
        parts += ["### Passes", whole_plans(part, top, passes), "### Plans", whole_plans(part, top, skeleton)]
    return "\n\n".join(parts) + "\n"


def as_json(choice: Choice) -> dict[str, Any]:
    """A task for scripts."""
    data = asdict(replace(choice, about={}))
    del data["about"]
    named = {"best": choice.best, "regret": choice.regret, "changes": changes(choice.default, choice.best)}
    return data | named | {"features": choice.about.get("features"), "bin": bin_of(choice.about)}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choices", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "files", nargs="+", type=Path, help="records of tuned runs (.tuning.sqlite3, or as JSON lines: .jsonl, .jsonl.xz)"
    )
    parser.add_argument("--ops", default="spmv,spmm")
    parser.add_argument("--K", help="numbers of dense columns, separated by commas; 0 is SpMV (default: all)")
    parser.add_argument("--top", type=int, default=12, help="lines of a table of changes or plans")
    parser.add_argument("--json", action="store_true", help="one JSON line a task instead of tables")
    args = parser.parse_args(words)
    absent = [str(path) for path in args.files if not path.exists()]
    choices, without = ([], 0) if absent else read(args.files)
    widths = None if args.K is None else {int(k) for k in args.K.split(",")}
    chosen = [c for c in choices if c.op in args.ops.split(",") and (widths is None or c.k in widths)]
    if not chosen:
        reason = f"no such file: {', '.join(absent)}" if absent else "these files hold no tuned task that is asked for"
        print(reason, file=sys.stderr)
        return 2
    if without:
        print(f"note: {without} tasks are left out, whose default plan was not measured", file=sys.stderr)
    if args.json:
        for choice in chosen:
            print(json.dumps(as_json(choice)))
    else:
        print(tables(chosen, args.top), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
