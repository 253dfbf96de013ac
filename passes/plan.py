"""`Plan`: one way to compile a kernel, as frozen data with a text and a JSON form that both round-trip."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from sparseditto.dialects.errors import PlanError
from sparseditto.passes.base import Form, Kind, Pass
from sparseditto.passes.pipeline_text import Item, parse_options, parse_pipeline
from sparseditto.passes.registry import find, registry
from sparseditto.passes.upstream import PREFIX, upstream_names

SCHEMA = 1
_ORDER = (Kind.REPRESENTATION, Kind.SCHEDULE, Kind.MAPPING)
AT_FIRST = (Form.ROWS, Form.COLUMNS, Form.REGISTER_ACCUMULATION)  # what the nest of S2 may have; the pass itself looks


@dataclass(frozen=True)
class Plan:
    """Pass invocations in the order in which they run: representation, then schedule, then mapping; a part after the other.

    `kernel` is the fingerprint of the computation that the plan is for (empty: any).  What a composite pass among `steps`
    stands for takes its place, so that equal choices are equal plans.
    """

    steps: tuple[Pass, ...]
    kernel: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", expanded(self.steps))
        check_order(self.steps)
        check_forms(self.steps)

    def of_kind(self, *kinds: Kind) -> tuple[Pass, ...]:
        return tuple(step for step in self.steps if step.kind in kinds)

    def text(self) -> str:
        """As `--plan` takes it; every option is spelled out, so that equal choices read equal."""
        return ",".join(map(str, self.steps))

    def digest(self) -> str:
        """Twelve hexadecimal digits that name this plan in caches, logs and files."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "kernel": self.kernel, "steps": [str(step) for step in self.steps]}

    @staticmethod
    def parse(text: str, kernel: str = "") -> Plan:
        """Read the text form.  Raises `PlanError` on unknown passes, options or a wrong order."""
        return Plan(tuple(make_pass(item) for item in parse_pipeline(text)) if text.strip() else (), kernel)

    @staticmethod
    def from_json(data: Any) -> Plan:
        """Read the JSON form.  Raises `PlanError` on other schemas and unknown keys."""
        if not isinstance(data, dict) or set(data) != {"schema", "kernel", "steps"}:
            raise PlanError("this is no plan (it has schema, kernel and steps)")
        if data["schema"] != SCHEMA:
            raise PlanError(f"the plan is of schema {data['schema']}; this release reads {SCHEMA}")
        if not isinstance(data["steps"], list) or not all(isinstance(step, str) for step in data["steps"]):
            raise PlanError("the plan's steps are no list of text")
        return Plan.parse(",".join(data["steps"]), str(data["kernel"]))


def expanded(steps: Iterable[Pass]) -> tuple[Pass, ...]:
    """The steps with composite passes replaced by what they stand for."""
    return tuple(chain.from_iterable(step.expand() for step in steps))


def check_order(steps: tuple[Pass, ...]) -> None:
    """Representation, then schedule, then mapping, and these two again for each part; nothing else."""
    latest = 0
    for step in steps:
        if step.kind not in _ORDER:
            raise PlanError(f"'{step.name}' is a {step.kind.value} pass, which the pipeline runs by itself")
        rank = _ORDER.index(step.kind)
        if rank < latest and not step.starts_part:
            raise PlanError(f"'{step.name}' is a {step.kind.value} pass and stands after a {_ORDER[latest].value} pass")
        latest = rank


def check_forms(steps: tuple[Pass, ...], given: Iterable[Form] = ()) -> frozenset[Form]:
    """What a pass requires must be there from the start or provided by an earlier one, what it excludes must not.

    `given` are there from the start, beside what every nest has.  Gives what is there in the end.
    """
    forms = {*AT_FIRST, *given}
    waiting: list[set[Form]] = []  # what the nests of parts have that come later, the next one last
    for step in steps:
        for form in step.requires:
            if form not in forms:
                makers = [name for name, cls in registry().items() if form in cls.provides]
                advice = f"; put {' or '.join(makers)} before it" if makers else ", which an earlier pass took away"
                raise PlanError(f"needs {form.value}{advice}", where=step.name)
        for form in step.excludes:
            if form in forms:
                raise PlanError(f"does not go with {form.value}", where=step.name)
        if step.starts_part:
            forms = waiting.pop()
            continue
        if Form.PARTS in step.provides:
            waiting.append(set(forms))
        forms.update(step.provides)
        forms.difference_update(step.removes)
    if waiting:
        raise PlanError(f"{len(waiting)} parts wait for a schedule; add next-part and what each needs", where=steps[-1].name)
    return frozenset(forms)


def make_pass(item: Item) -> Pass:
    """The pass that one pipeline element names."""
    if item.nested is not None:
        raise PlanError(f"'{item.name}(…)' may not stand in a plan")
    if item.name in upstream_names() and item.name not in registry():
        known = f"{PREFIX}{item.name}" in registry()
        advice = (
            f"a plan names it '{PREFIX}{item.name}'" if known else "a plan holds only passes that `sparseditto passes` lists"
        )
        raise PlanError(f"'{item.name}' is upstream's; {advice}")
    return find(item.name).make(parse_options(item.name, item.options))
