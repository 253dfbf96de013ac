"""The prior: for each operator an additive energy of choices and bins, read from a file and explained term by term.

    E(plan | task)  =  sum over the choices c of the plan  ( bias(c) + sum over features f  weight(c, f, bin of f) )

An energy is the base-2 logarithm of a time, up to a constant of the task: of two plans of one task, the difference says by how
many powers of two the one is slower.  A choice that the prior has no weights for counts 0, and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.agent.features import Features, Hardware
from sparseditto.agent.prior.bins import Edges, in_words, place
from sparseditto.agent.prior.choices import choices
from sparseditto.agent.prior.subject import OPS, Subject, covers
from sparseditto.dialects.errors import InputError
from sparseditto.passes.plan import Plan

if TYPE_CHECKING:
    from sparseditto.agent.planner import Task

SCHEMA = 1
DIGITS = 4  # of a weight in a file
SHIPPED = {"NVIDIA H200": "h200.json"}  # GPUs, by the name that CUDA gives them
DEFAULT = "NVIDIA H200"


@dataclass(frozen=True)
class Choice:
    """The weights of a choice: in any task, and by feature in each bin; `trials` of them were learned from."""

    trials: int
    bias: float
    bins: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Model:
    """The weights for one operator."""

    edges: Edges
    choices: Mapping[str, Choice]

    def energies(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """What each choice counts in a task."""
        places = {name: place(cuts, float(numbers[name])) for name, cuts in self.edges.items()}
        return {
            word: choice.bias + sum(weights[places[name]] for name, weights in choice.bins.items())
            for word, choice in self.choices.items()
        }

    def terms(self) -> list[Contribution]:
        """Every weight."""
        return [term for word in self.choices for term in self.terms_of(word)]

    def terms_of(self, word: str) -> list[Contribution]:
        """Every weight of a choice."""
        choice = self.choices[word]
        found = [Contribution(word, "", "", choice.bias, choice.trials)]
        for name, weights in choice.bins.items():
            told = [in_words(self.edges[name], number) for number in range(len(weights))]
            found += [Contribution(word, name, *pair, choice.trials) for pair in zip(told, weights, strict=True)]
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "edges": {name: list(cuts) for name, cuts in self.edges.items()},
            "choices": {word: _choice_to_json(choice) for word, choice in self.choices.items()},
        }

    @staticmethod
    def from_json(data: Any) -> Model:
        edges = {str(name): tuple(map(float, cuts)) for name, cuts in data["edges"].items()}
        found = {str(word): _choice_from_json(one, edges) for word, one in data["choices"].items()}
        return Model(edges, found)


def _choice_to_json(choice: Choice) -> list[Any]:
    """Trials, bias, and the weights of those features that have any."""
    bins = {name: [round(weight, DIGITS) + 0.0 for weight in weights] for name, weights in choice.bins.items()}
    return [choice.trials, round(choice.bias, DIGITS) + 0.0, {name: weights for name, weights in bins.items() if any(weights)}]


def _choice_from_json(data: Any, edges: Edges) -> Choice:
    trials, bias, bins = data
    found = {str(name): tuple(map(float, weights)) for name, weights in bins.items()}
    if any(len(weights) != len(edges[name]) + 1 for name, weights in found.items()):
        raise ValueError("there are not as many weights as bins")
    return Choice(int(trials), float(bias), found)


@dataclass(frozen=True)
class Contribution:
    """One term of an energy: of a choice in any task (no feature), or where a feature is in a range."""

    choice: str
    feature: str
    range: str
    energy: float
    trials: int


@dataclass(frozen=True)
class Judged:
    """A plan with its energy; `unknown` are those of its choices that the prior has no weights for."""

    plan: Plan
    energy: float
    unknown: tuple[str, ...]


class Scorer:
    """The prior for one task."""

    def __init__(self, model: Model, subject: Subject) -> None:
        self.model, self.subject = model, subject
        self._energies = model.energies(subject.numbers)

    def judge(self, plan: Plan) -> Judged:
        words = choices(plan, self.subject)
        unknown = tuple(word for word in words if word not in self._energies)
        return Judged(plan, sum(self._energies.get(word, 0.0) for word in words), unknown)

    def rank(self, plans: Iterable[Plan]) -> list[Judged]:
        """The least energy first; plans of equal energy stay in their order."""
        return sorted(map(self.judge, plans), key=lambda judged: judged.energy)

    def explain(self, plan: Plan) -> list[Contribution]:
        """The terms of the energy, the largest first."""
        edges, numbers = self.model.edges, self.subject.numbers
        here = {name: in_words(cuts, place(cuts, float(numbers[name]))) for name, cuts in edges.items()} | {"": ""}
        known = [word for word in choices(plan, self.subject) if word in self.model.choices]
        terms = [term for word in known for term in self.model.terms_of(word) if term.range == here[term.feature]]
        return sorted(terms, key=lambda term: -abs(term.energy))


@dataclass(frozen=True)
class Prior:
    """The models by operator, and where they are from: `provenance` names the GPU, versions, counts and how well it does."""

    models: Mapping[str, Model]
    hardware: Hardware
    provenance: Mapping[str, Any]

    @staticmethod
    @cache
    def load(gpu: str = DEFAULT) -> Prior:
        """The one that ships for a GPU, which is read once.  Raises `InputError` where there is none."""
        if gpu not in SHIPPED:
            raise InputError(
                f"no prior ships for the GPU '{gpu}', only for {', '.join(SHIPPED)}; "
                "`sparseditto learn` makes one of a tuning database"
            )
        text = resources.files(__package__).joinpath(SHIPPED[gpu]).read_text(encoding="utf-8")
        return Prior.from_json(json.loads(text), SHIPPED[gpu])

    @staticmethod
    def read(path: Path) -> Prior:
        """What `write` wrote.  Raises `InputError` for a file that cannot be read or is something else."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as e:
            raise InputError(f"cannot be read: {e.strerror}", where=str(path)) from e
        except ValueError as e:
            raise InputError(f"is no JSON: {e}", where=str(path)) from e
        return Prior.from_json(data, str(path))

    def write(self, path: Path) -> None:
        """A line a choice, so that changes can be read.  Raises `InputError` where it cannot be written."""
        try:
            path.write_text(_spell(self.to_json()), encoding="utf-8")
        except OSError as e:
            raise InputError(f"cannot be written: {e.strerror}", where=str(path)) from e

    def to_json(self) -> dict[str, Any]:
        models = {op: model.to_json() for op, model in self.models.items()}
        head = {"kind": "prior", "schema": SCHEMA, "provenance": dict(self.provenance), "hardware": self.hardware.to_json()}
        return {**head, "models": models}

    @staticmethod
    def from_json(data: Any, where: str = "") -> Prior:
        """Read `to_json`'s.  Raises `InputError` on another schema or anything else."""
        if not isinstance(data, dict) or data.get("kind") != "prior":
            raise InputError("is no prior; `sparseditto learn` writes one", where=where)
        if data.get("schema") != SCHEMA:
            raise InputError(f"is a prior of schema {data.get('schema')!r}; this release reads {SCHEMA}", where=where)
        try:
            models = {str(op): Model.from_json(model) for op, model in data["models"].items()}
            return Prior(models, Hardware.from_json(data["hardware"]), dict(data["provenance"]))
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise InputError(f"is a prior with something missing or wrong ({e!r}); make it anew", where=where) from e

    # --- What it says ---------------------------------------------------------------------------------

    def covers(self, task: Task) -> bool:
        """Whether it says anything of a task."""
        return covers(task) and (OPS[0] if (task.columns or 0) <= 1 else OPS[1]) in self.models

    def at(self, task: Task, features: Features, hardware: Hardware | None = None) -> Scorer:
        """For one task, on the GPU that was learned from or another one; `features` are those of the matrix as it is walked.

        Raises `InputError` for a task that it does not cover.
        """
        return self.of(Subject.of(task, features, hardware or self.hardware))

    def of(self, subject: Subject) -> Scorer:
        if subject.op not in self.models:
            raise InputError(f"this prior has learned nothing of {subject.op}, only of {', '.join(self.models)}")
        return Scorer(self.models[subject.op], subject)

    def energy(self, plan: Plan, task: Task, features: Features) -> float:
        """Powers of two by which the plan is slower than another one of the task whose energy is 0 (see `at`)."""
        return self.at(task, features).judge(plan).energy

    def rank(self, plans: Sequence[Plan], task: Task, features: Features) -> list[Plan]:
        """The likely fastest first (see `at`)."""
        return [judged.plan for judged in self.at(task, features).rank(plans)]

    def explain(self, plan: Plan, task: Task, features: Features) -> list[Contribution]:
        """What `energy` is the sum of (see `at`)."""
        return self.at(task, features).explain(plan)


def _spell(data: Mapping[str, Any]) -> str:
    """JSON with a line for each choice."""
    lines = ["{"]
    lines += [f' "{key}": {json.dumps(value)},' for key, value in data.items() if key != "models"]
    lines.append(' "models": {')
    for number, (op, model) in enumerate(data["models"].items(), 1):
        rows = [f"   {json.dumps(word)}: {json.dumps(one)}" for word, one in model["choices"].items()]
        lines += [f'  "{op}": {{', f'   "edges": {json.dumps(model["edges"])},', '   "choices": {', ",\n".join(rows), "   }"]
        lines.append("  }," if number < len(data["models"]) else "  }")
    return "\n".join([*lines, " }", "}"]) + "\n"
