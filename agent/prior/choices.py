"""What a plan chooses, as words: its passes, their options, and how the layout that these give meets the task.

- `unroll`: the pass is there.  `unroll.tail=halves`: the option has this value; a number above 16 is rounded to the nearest
  power of two.
- `entries a lane ~ 8`: a number of the plan and the task together, rounded to a power of two (`relations`).

The first two kinds are made of any pass that is registered; a word that the prior has not seen counts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from sparseditto.agent.prior.subject import SPMV, Subject
from sparseditto.passes.base import Pass
from sparseditto.passes.plan import Plan

EXACT = 16  # numbers up to which an option's value is taken as it is
FINEST, COARSEST = -6, 14  # powers of two, the least and the most that a relation is rounded to
QUARTERS = (-8, 16)  # the same for bytes, in quarters of a power of two
PLACES = {4: "fill_2", 9: "fill_3", 16: "fill_4", 32: "fill_8"}  # of a block, and the feature that says how full it is

Options = Mapping[str, Any]


def choices(plan: Plan, subject: Subject) -> tuple[str, ...]:
    """The words of a plan for a task, each once."""
    words = [word for step in plan.steps for word in _of_step(step)]
    words += (f"{name} ~ {value}" for name, value in relations(plan, subject))
    return tuple(dict.fromkeys(words))


def pass_of(choice: str) -> str:
    """The pass that a word names; nothing for a relation."""
    return "" if " ~ " in choice else choice.partition(".")[0]


@lru_cache(maxsize=4096)
def _options(step: Pass) -> Options:
    return step.options()


@lru_cache(maxsize=4096)
def _of_step(step: Pass) -> tuple[str, ...]:
    options = _options(step)
    told = (key for key in options if not (key.startswith("block-") and options.get("format", "bsr") != "bsr"))
    return (step.name, *(f"{step.name}.{key}={_spell(options[key])}" for key in told))


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    number = isinstance(value, (int, float)) and value > EXACT
    return str(2 ** round(math.log2(value))) if number else str(value)


# --- Relations --------------------------------------------------------------------------------------------


def relations(plan: Plan, subject: Subject) -> Iterator[tuple[str, str]]:
    """How the layout that a plan's options give meets the sizes of the task; none for a matrix in parts.

    - entries a lane, longest row a lane: of the mean row, and of the longest piece of a row, shared out to its lanes.
    - waves: threads over what the GPU holds at a time.
    - parts a multiprocessor, rows a part: where the entries are cut whatever their rows.
    - tiles: K over the columns that the lanes of a row hold together.
    - loads: elements that a lane has in flight together.
    - bytes over CSR: what an entry takes, coordinates and padding included, over 32-bit CSR.
    """
    if any(step.starts_part for step in plan.steps):
        return
    options = {step.name: _options(step) for step in plan.steps}
    layout = _Layout(options, subject)
    walk = _parts(options, subject) if layout.cut else _walk(options, subject, layout)
    for name, number in (*walk, *_in_flight(options, subject, layout)):
        yield name, _power(number)
    yield "bytes over CSR", _quarter(_bytes(options, subject) / max(subject.numbers["csr_bytes"], 1e-3))


class _Layout:
    """How lanes share the columns and the entries of one row."""

    def __init__(self, options: Mapping[str, Options], subject: Subject) -> None:
        self.cut = "split-entries" in options or "stage-entries" in options
        mapper = options.get("rows-to-subgroups", options.get("split-entries", {}))
        lanes, groups = int(mapper.get("lanes", 1)), int(mapper.get("groups", 1))
        by_columns = subject.op != SPMV and mapper.get("share") == "columns"
        self.columns = int(options.get("vectorize", {}).get("width", 1)) * int(options.get("jam-columns", {}).get("factor", 1))
        self.covered = self.columns * (lanes if by_columns else 1)
        self.sharing = groups if by_columns else lanes  # lanes that share the entries of a row
        self.threads = lanes * groups if by_columns else lanes  # for a tile of a row
        encoding = options.get("set-encoding", {})
        blocks = encoding.get("format") == "bsr"
        self.height, self.width = (int(encoding[f"block-{side}"]) if blocks else 1 for side in ("rows", "columns"))


def _walk(options: Mapping[str, Options], subject: Subject, layout: _Layout) -> Iterator[tuple[str, float]]:
    """Of rows that lanes walk."""
    f = subject.numbers
    pieces, longest = f["rows"] / layout.height, f["max_row"]
    if "segment-rows" in options:
        length = options["segment-rows"]["length"]
        longest, pieces = min(longest, length), max(pieces, f["entries"] / length)
    if "bin-rows" in options:
        longest = min(longest, options["bin-rows"]["limit"])
    yield "entries a lane", f["mean_row"] / layout.width / _fill(layout.height * layout.width, subject) / layout.sharing
    yield "longest row a lane", longest / layout.sharing
    tiles = max(subject.columns / layout.covered, 1.0)
    yield "waves", f["thread_waves"] / max(f["rows"], 1) * pieces * tiles * layout.threads


def _parts(options: Mapping[str, Options], subject: Subject) -> Iterator[tuple[str, float]]:
    """Of entries that are cut evenly."""
    f = subject.numbers
    length = options["split-entries"]["length"] if "split-entries" in options else options["stage-entries"]["entries"]
    yield "parts a multiprocessor", f["max_row"] / f["longest_over_share"] / length if f["longest_over_share"] else 0.0
    yield "rows a part", length / f["mean_row"] if f["mean_row"] else 0.0


def _in_flight(options: Mapping[str, Options], subject: Subject, layout: _Layout) -> Iterator[tuple[str, float]]:
    together = int(options.get("unroll", {}).get("factor", 1)) * layout.width
    if subject.op == SPMV:
        yield "loads", together * int(options.get("vectorize-entries", {}).get("width", 1))
    else:
        yield "loads", together * layout.columns
        yield "tiles", subject.columns / layout.covered


def _fill(places: int, subject: Subject) -> float:
    """Which share of the places of a block holds entries, about: that of the blocks of nearest size."""
    if places == 1:
        return 1.0
    nearest = min(PLACES, key=lambda known: abs(math.log2(known / places)))
    return max(float(subject.numbers[PLACES[nearest]]), 1.0 / places)


def _bytes(options: Mapping[str, Options], subject: Subject) -> float:
    """Of a stored entry, with its coordinate and padding."""
    f, encoding = subject.numbers, options.get("set-encoding", {})
    value, coordinate = f["value_bytes"], int(encoding.get("coordinates", 32)) / 8
    if "slice-rows" in options:
        ordered = options["slice-rows"]["window"] > 1
        return (f["padding_sorted"] if ordered else f["padding"]) * (value + options["slice-rows"]["offsets"] / 8)
    if "ell-rows" in options:
        return f["ell_padding"] * (value + options["ell-rows"]["offsets"] / 8)
    if "diagonals" in options:
        return f["diagonal_padding"] * value
    if encoding.get("format") == "bsr":
        places = int(encoding["block-rows"]) * int(encoding["block-columns"])
        return (value + coordinate / places) / _fill(places, subject)
    return value + coordinate + f["csr_bytes"] - (4 + value)


def _power(number: float) -> str:
    """The nearest power of two, as a word."""
    if number <= 0:
        return "0"
    power = min(max(round(math.log2(number)), FINEST), COARSEST)
    return str(1 << power) if power >= 0 else f"1/{1 << -power}"


def _quarter(ratio: float) -> str:
    """The nearest quarter of a power of two, as a word."""
    least, most = QUARTERS
    return f"{2 ** (min(max(round(4 * math.log2(ratio)), least), most) / 4):.2f}" if ratio > 0 else "0"
