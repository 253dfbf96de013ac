"""Composite passes: a named sequence of passes with parameters, as data, that plans name like any pass.

A composite is read, checked and expanded; nothing of it is executed.  Where a plan names one, it holds the steps that this one
stands for, so a plan's digest, its cost and its kernel know nothing of composites.  `docs/composites.md` describes the format.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import keyword
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from sparseditto.dialects.errors import InputError, PlanError
from sparseditto.passes import registry
from sparseditto.passes.base import Form, Kind, Pass, option, spell
from sparseditto.passes.pipeline_text import Item, parse_options, parse_pipeline
from sparseditto.passes.plan import AT_FIRST, check_forms, check_order, make_pass
from sparseditto.passes.upstream import PREFIX, upstream_names

MOST_STEPS = 32
MOST_PARAMETERS = 8
MOST_CHOICES = 32  # of one parameter
MOST_VARIANTS = 512  # choices of all parameters together: each is checked
LONGEST_DOC = 2000  # characters
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME = 64
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,64}")  # a choice that is text

Value = bool | int | str
T = TypeVar("T")


@dataclass(frozen=True)
class Parameter:
    """What a plan may choose: a name as options have, its whole domain `choices`, and what it means."""

    name: str
    default: Value
    choices: tuple[Value, ...]
    help: str

    def __post_init__(self) -> None:
        with _at(f"parameter {self.name[:_LONGEST_NAME]!r}"):
            self._check()

    def _check(self) -> None:
        _check_name(self.name)
        if keyword.iskeyword(self.name) or hasattr(CompositePass, self.field):
            raise PlanError("is called like something that every pass has; give it another name")
        if not 1 <= len(self.choices) <= MOST_CHOICES or len(set(map(spell, self.choices))) < len(self.choices):
            raise PlanError(f"needs 1 to {MOST_CHOICES} choices, each once")
        kinds = {type(value) for value in (self.default, *self.choices)}
        if len(kinds) > 1 or not kinds <= {bool, int, str}:
            raise PlanError("its default and choices have to be all true or false, all whole numbers, or all words")
        if not all(_WORD.fullmatch(spell(value)) for value in self.choices):
            raise PlanError("has a choice that is no word of letters, digits and _.+-")
        if self.default not in self.choices:
            raise PlanError(f"its default {spell(self.default)} is none of its choices")
        _check_text(self.help, "its help")

    @property
    def field(self) -> str:
        """As the field of a pass."""
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Composite:
    """A sequence of passes under a name.

    `steps` are as a plan's text has them; the value of an option may be `$` and the name of a parameter.  Raises `PlanError`
    for what no plan could hold for every choice of the parameters: unknown passes and options, values out of their domains,
    composites among the steps, a wrong order; and for names that are taken.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    steps: tuple[str, ...]

    def __post_init__(self) -> None:
        with _at(f"composite {self.name[:_LONGEST_NAME]!r}"):
            self._check()

    def _check(self) -> None:
        _check_name(self.name)
        if self.name in upstream_names() or self.name.startswith(PREFIX):
            raise PlanError(f"the names of upstream's passes, and those that begin with '{PREFIX}', are upstream's")
        _check_text(self.doc, "its doc")
        if not 1 <= len(self.steps) <= MOST_STEPS:
            raise PlanError(f"has {len(self.steps)} steps; it may have 1 to {MOST_STEPS}")
        for step in self.steps:
            _check_text(step, "a step")
        self._check_parameters()
        for values in self._choices():
            steps = self.expand(values)
            check_order(steps)
            check_forms(steps, _needed(steps))

    def _check_parameters(self) -> None:
        if len(self.parameters) > MOST_PARAMETERS:
            raise PlanError(f"has {len(self.parameters)} parameters; it may have {MOST_PARAMETERS}")
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) < len(names):
            raise PlanError("two of its parameters have one name")
        if math.prod(len(parameter.choices) for parameter in self.parameters) > MOST_VARIANTS:
            raise PlanError(f"its parameters have more than {MOST_VARIANTS} choices together")
        used = {word for step in self.steps for word in _references(step)}
        for name in names:
            if name not in used:
                raise PlanError(f"no step has the value ${name}")

    def _choices(self) -> Iterator[dict[str, Value]]:
        """Every choice of values for the parameters."""
        names = [parameter.name for parameter in self.parameters]
        for values in itertools.product(*(parameter.choices for parameter in self.parameters)):
            yield dict(zip(names, values, strict=True))

    def expand(self, values: Mapping[str, Value]) -> tuple[Pass, ...]:
        """The steps for these values of the parameters."""
        return tuple(self._step(number, text, values) for number, text in enumerate(self.steps, 1))

    def _step(self, number: int, text: str, values: Mapping[str, Value]) -> Pass:
        chosen = " ".join(f"{name}={spell(values[name])}" for name in _references(text) if name in values)
        with _at(f"step {number} ({text})" + (f" with {chosen}" if chosen else "")):
            items = parse_pipeline(text)
            if len(items) != 1:
                raise PlanError("is more than one pass")
            return _made(items[0], values)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "doc": self.doc,
            "parameters": {p.name: {"default": p.default, "choices": list(p.choices), "help": p.help} for p in self.parameters},
            "steps": list(self.steps),
        }


def _references(step: str) -> list[str]:
    return re.findall(r"=\$([^\s,}]*)", step)


def _made(item: Item, values: Mapping[str, Value]) -> Pass:
    """The pass that a step names, with the values of parameters in its options."""
    options = {key: _value(key, text, values) for key, text in parse_options(item.name, item.options).items()}
    step = make_pass(Item(item.name, " ".join(f"{key}={text}" for key, text in options.items()), item.nested))
    if step.kind is Kind.COMPOSITE:
        raise PlanError("is a composite itself; give the steps that it stands for")
    return step


def _value(key: str, text: str, values: Mapping[str, Value]) -> str:
    if not text.startswith("$"):
        return text
    if text[1:] not in values:
        raise PlanError(f"{key}={text}: there is no such parameter" + (f"; there are {', '.join(values)}" if values else ""))
    return spell(values[text[1:]])


def _needed(steps: tuple[Pass, ...]) -> set[Form]:
    """What the steps require of those before them.  Parts have to be made and scheduled by one composite."""
    there, needed = set(AT_FIRST), set[Form]()
    for step in steps:
        needed |= set(step.requires) - there
        there |= {*step.requires, *step.provides}
    return needed - {Form.PARTS}


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise PlanError("needs a name of words in small letters and digits with - between them")


def _check_text(text: Any, what: str) -> None:
    """Text that is shown to people: not empty, no control characters, not endless."""
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_DOC:
        raise PlanError(f"{what} has to be text of 1 to {LONGEST_DOC} characters")
    if not all(line.isprintable() for line in text.split("\n")):
        raise PlanError(f"{what} has characters that cannot be printed")


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Say of an error where it is."""
    try:
        yield
    except PlanError as e:
        raise PlanError(e.message, where=f"{place}: {e.where}" if e.where else place) from e


# --- As a pass ------------------------------------------------------------------------------------------


class CompositePass(Pass):
    """What the registry has of a composite: its parameters are the options.  In a plan its steps take its place."""

    kind = Kind.COMPOSITE
    composite: ClassVar[Composite]

    def expand(self) -> tuple[Pass, ...]:
        return self._steps

    @cached_property
    def _steps(self) -> tuple[Pass, ...]:
        return self.composite.expand(self.options())


def register(composite: Composite) -> type[CompositePass]:
    """Make a composite known under its name; once more changes nothing.  Raises `PlanError` when the name is taken."""
    known = registry.registry().get(composite.name)
    if known is not None and issubclass(known, CompositePass) and known.composite == composite:
        return known
    if known is not None:
        raise PlanError("its name is taken by another pass; give it another one", where=f"composite '{composite.name}'")
    return registry.register(_pass_of(composite))


@contextmanager
def registered_meanwhile(composite: Composite) -> Iterator[None]:
    """Make a composite known for a while, unless it is known anyway.  Raises `PlanError` when the name is taken."""
    before = registry.registry().get(composite.name)
    made = register(composite)
    try:
        yield
    finally:
        if before is None:
            registry.forget(made)


def registered() -> list[Composite]:
    """All composites that are known, by name."""
    found = (cls.composite for cls in registry.registry().values() if issubclass(cls, CompositePass))
    return sorted(found, key=lambda composite: composite.name)


def _pass_of(composite: Composite) -> type[CompositePass]:
    """A class whose fields are the parameters, and which declares what the steps do together."""
    steps = composite.expand({p.name: p.default for p in composite.parameters})
    needed = _needed(steps)
    before, after = {*AT_FIRST, *needed}, check_forms(steps, needed)
    removed = {form for step in steps for form in step.removes}
    declared = {
        "name": composite.name,
        "composite": composite,
        "relieves": _each(step.relieves for step in steps),
        "consumes": _each(step.consumes for step in steps),
        "requires": tuple(form for form in _each(step.requires for step in steps) if form in needed),
        "provides": tuple(form for form in _each(step.provides for step in steps) if form in after - before),
        "removes": tuple(form for form in _each(step.removes for step in steps) if form not in after),
        "excludes": tuple(form for form in _each(step.excludes for step in steps) if form not in removed),
        "__doc__": "\n".join([composite.doc, "", "Steps::", "", *(f"    {step}" for step in composite.steps)]),
        "__module__": __name__,
    }
    fields = [(p.field, type(p.default), option(p.help, default=p.default, choices=p.choices)) for p in composite.parameters]
    return dataclasses.make_dataclass(composite.name, fields, bases=(CompositePass,), namespace=declared, frozen=True)


def _each(words: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    """All of them, each once."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(words)))


# --- From JSON ------------------------------------------------------------------------------------------


def read(data: Any) -> Composite:
    """A composite from the JSON of `to_json` (`parameters` may be left out).

    Raises `PlanError` that says what is wrong and where; see `Composite`.
    """
    _check_keys(data, {"name", "doc", "steps"}, {"parameters"}, "a composite")
    name, steps, parameters = data["name"], data["steps"], data.get("parameters", {})
    if not isinstance(name, str):
        raise PlanError(f"the name of a composite is text, not {_shortened(name)}")
    with _at(f"composite {name[:_LONGEST_NAME]!r}"):
        if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
            raise PlanError("its steps are no list of text")
        if not isinstance(parameters, dict):
            raise PlanError("its parameters are no object")
        found = tuple(_parameter(key, value) for key, value in parameters.items())
    return Composite(name, data["doc"], found, tuple(steps))


def _parameter(name: str, data: Any) -> Parameter:
    with _at(f"parameter {name[:_LONGEST_NAME]!r}"):
        _check_keys(data, {"default", "choices", "help"}, set(), "a parameter")
        if not isinstance(data["choices"], list):
            raise PlanError("its choices are no list")
    return Parameter(name, data["default"], tuple(data["choices"]), data["help"])


def _check_keys(data: Any, wanted: set[str], optional: set[str], what: str) -> None:
    if not isinstance(data, dict) or not wanted <= set(data) <= wanted | optional:
        raise PlanError(f"{what} is an object with {', '.join(sorted(wanted | optional))}, not {_shortened(data)}")


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def load(path: Path) -> type[CompositePass]:
    """Register the composite of a JSON file.  Raises `InputError` when it cannot be read, `PlanError` for what is in it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", where=str(path)) from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"is no JSON: {e}", where=str(path)) from e
    with _at(str(path)):
        return register(read(data))
