"""The prior that ships for the H200, made of the committed results, and how well it ranks plans of families held out.

    python -m benchmarks.prior                   # writes agent/prior/h200.json and benchmarks/results/prior-h200.json
    python -m benchmarks.prior --check           # makes both anew and compares; exits 1 where they or the target are missed
    python -m benchmarks.prior --features        # writes benchmarks/results/features.jsonl.xz: builds the suite (some minutes)

The records of the tuned runs hold the features of their day; those of today are in a file of their own.  The target is the
regret of the best of the first five plans, at most `MOST`, for each op: `prior_five` in the results (docs/prior.md).
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.run import read_rows
from benchmarks.suite import matrix, suite
from sparseditto.agent.features import Hardware, analyse
from sparseditto.agent.memory.exchange import Entry, read_file
from sparseditto.agent.memory.keys import TaskKey
from sparseditto.agent.memory.trial import Measurement
from sparseditto.agent.prior import Prior
from sparseditto.agent.prior.learn import learn, validate_all
from sparseditto.agent.prior.training import Data, collect, read_features
from sparseditto.compiler.cli.learn import cross_validation

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SHIPPED = HERE.parent / "agent" / "prior" / "h200.json"
NUMBERS = RESULTS / "prior-h200.json"
FEATURES = RESULTS / "features.jsonl.xz"
RECORDS = tuple(f"{name}.tuning.jsonl.xz" for name in ("suite-h200-csr", "suite-h200", "later-h200", "ablation-h200"))
MOST = 1.08
ALONE_US = 200.0  # that the launch of one kernel may take, and what is timed around it
WEIGHTS_AWAY, REGRETS_AWAY = 0.001, 0.01  # what they may differ by where they are computed on another machine


def data() -> Data:
    """What the committed results hold, with the day on which they were measured."""
    entries = merged(entry for name in RECORDS for entry in read_file(RESULTS / name))
    features = read_features(lzma.decompress(FEATURES.read_bytes()).decode().splitlines(), FEATURES.name)
    machines = [row["time"] for row in read_rows(RESULTS / "suite-h200.jsonl.xz") if row.get("kind") == "machine"]
    return replace(collect(entries, Hardware(), features=features), measured_at=max(machines))


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """The entries, of which those of one case and kernel are one task: early records name a matrix where later ones hash it."""
    first: dict[tuple[Any, ...], TaskKey] = {}
    found = []
    for entry in entries:
        key = first.setdefault((entry.about["case"], entry.about["op"], entry.key.K, entry.key.operator.dtypes), entry.key)
        records = [replace(r, measurements=tuple(m for m in r.measurements if not _launched_alone(m))) for r in entry.records]
        records = [record for record in records if record.measurements]
        found.append(replace(entry, key=replace(entry.key, structure=key.structure, operator=key.operator), records=records))
    return found


def _launched_alone(measurement: Measurement) -> bool:
    """Whether a kernel was given up after two launches, each of which took as long as launching does: early runs did that."""
    return len(measurement.samples_us) == 2 and min(measurement.samples_us) < ALONE_US


def make() -> Prior:
    """The prior of the committed results."""
    found = data()
    return learn(found, Hardware(), validate_all(found, lambda line: print(line, file=sys.stderr)))


def numbers(prior: Prior) -> dict[str, Any]:
    """What is known of a prior beside its weights."""
    return {"hardware": prior.hardware.to_json(), **prior.provenance}


def missed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each op whose regret is above the target."""
    return [
        f"{row['op']}: the best of the first five is {row['prior_five']:.3f} times the best; at most {MOST} is wanted"
        for row in rows
        if row["K"] is None and not row["prior_five"] <= MOST
    ]


def differences(made: Any, there: Any, away: float, where: str) -> Iterator[str]:
    """Where two JSON values differ, numbers by more than `away`."""
    if isinstance(made, dict) and isinstance(there, dict):
        for key in sorted(made.keys() | there.keys()):
            yield from differences(made.get(key), there.get(key), away, f"{where}/{key}")
    elif isinstance(made, list) and isinstance(there, list) and len(made) == len(there):
        for number, pair in enumerate(zip(made, there, strict=True)):
            yield from differences(*pair, away, f"{where}/{number}")
    elif isinstance(made, float) and isinstance(there, (int, float)):
        if abs(made - there) > away:
            yield f"{where}: {there} is there, {made} is made"
    elif made != there:
        yield f"{where}: {json.dumps(there)[:80]} is there, {json.dumps(made)[:80]} is made"


def check(prior: Prior) -> list[str]:
    """What is wrong with the committed files."""
    made, there = json.loads(json.dumps(prior.to_json())), json.loads(SHIPPED.read_text())
    models, told = made.pop("models"), there.pop("models")
    found = [*differences(models, told, WEIGHTS_AWAY, "models"), *differences(made, there, REGRETS_AWAY, "prior")]
    if numbers(Prior.read(SHIPPED)) != json.loads(NUMBERS.read_text()):
        found.append(f"{NUMBERS.name} is not what {SHIPPED.name} says")
    return [*found, *missed(prior.provenance["cross_validation"])]


def write_features() -> None:
    """The features of every matrix of the suite, the smallest first."""
    lines = []
    for case in sorted(suite("full"), key=lambda case: case.nnz):
        print(case.name, file=sys.stderr)
        lines.append({"case": case.name, "family": case.family, "features": analyse(matrix(case)).to_json()})
    text = "".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: str(line["case"])))
    FEATURES.write_bytes(lzma.compress(text.encode()))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prior", description=(__doc__ or "").split("\n", 1)[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="compare with what is committed; exit 1 where it or the target is missed"
    )
    what.add_argument("--features", action="store_true", help="build the matrices and write their features")
    args = parser.parse_args(words)
    if args.features:
        write_features()
        return 0
    prior = make()
    print(cross_validation(prior.provenance["cross_validation"]))
    if not args.check:
        prior.write(SHIPPED)
        NUMBERS.write_text(json.dumps(numbers(prior), indent=1) + "\n")
    wrong = check(prior)
    print("\n".join(wrong) or f"the committed files are what is made, and the best of the first five is within {MOST}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
