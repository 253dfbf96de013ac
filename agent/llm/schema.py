"""What a model is told of the passes, and the JSON schemas of its answers: both made from the registry.

A pass that is registered is in them by itself.  The schemas keep to what OpenAI's strict mode takes: every property is
required, nothing else is allowed, and alternatives are `anyOf`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from sparseditto.passes.base import Bottleneck, Kind, Pass, type_name
from sparseditto.passes.composite import CompositePass
from sparseditto.passes.registry import registry

NEW = "composite"
"""As the pass of a step: the composite pass that the same answer brings, with its defaults."""
_KINDS = (Kind.REPRESENTATION, Kind.SCHEDULE, Kind.MAPPING, Kind.COMPOSITE)
_JSON = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
_NULL = {"type": "null"}
_STEP = {"$ref": "#/$defs/step"}
STEPS = {"type": "array", "items": _STEP}
"""The schema of a plan, in a schema `with_steps`."""


def vocabulary(passes: Mapping[str, type[Pass]] | None = None) -> list[type[Pass]]:
    """The passes that a plan can hold, in the order of kinds and names."""
    found = registry() if passes is None else passes
    usable = (cls for cls in found.values() if cls.kind in _KINDS)
    return sorted(usable, key=lambda cls: (_KINDS.index(cls.kind), cls.name))


# --- For the prompt -----------------------------------------------------------------------------------


def catalogue(passes: Iterable[type[Pass]] | None = None) -> str:
    """A pass a paragraph: what it does, its options with their choices, and what it goes with."""
    return "\n".join(entry(cls) for cls in (vocabulary() if passes is None else passes))


def entry(cls: type[Pass]) -> str:
    summary = " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())
    lines = [f"{cls.name} ({cls.kind.value}): {summary}"]
    lines += [f"  {_option(field)}" for field in dataclasses.fields(cls)]
    relations = (
        ("relieves", [b.value for b in cls.relieves]),
        ("takes", [r.value for r in cls.consumes]),
        ("needs", [f.name.lower() for f in cls.requires]),
        ("makes", [f.name.lower() for f in cls.provides]),
        ("not with", [f.name.lower() for f in cls.excludes]),
    )
    said = "; ".join(f"{name} {', '.join(words)}" for name, words in relations if words)
    lines += [f"  stands for {', '.join(cls.composite.steps)}"] if issubclass(cls, CompositePass) else []
    return "\n".join([*lines, *([f"  {said}"] if said else [])])


def _option(field: dataclasses.Field[Any]) -> str:
    choices = field.metadata.get("choices")
    domain = " | ".join(map(str, choices)) if choices else type_name(field)
    return f"{_spelled(field.name)} = {domain} (default {field.default}): {field.metadata.get('help', '')}"


def _spelled(name: str) -> str:
    return name.replace("_", "-")


# --- For the answer -----------------------------------------------------------------------------------


def analysis() -> dict[str, Any]:
    """The analyst's answer: the bottlenecks, the most important first, why, and what to try."""
    return record(
        limits={"type": "array", "items": {"enum": [b.value for b in Bottleneck]}},
        why={"type": "string"},
        ideas={"type": "array", "items": {"type": "string"}},
    )


def proposal() -> dict[str, Any]:
    """The planner's and the critic's answer: a plan as a list of steps, or as an edit of one that was measured."""
    change = record(
        at={"type": "integer"},
        do={"enum": ["insert", "replace", "remove"]},
        step={"anyOf": [_STEP, _NULL]},
    )
    edit = record(base={"type": "string"}, changes={"type": "array", "items": change})
    return with_steps(
        record(
            reason={"type": "string"},
            composite={"anyOf": [_composite(), _NULL]},
            plan={"anyOf": [STEPS, edit]},
        )
    )


def _composite() -> dict[str, Any]:
    """A new composite pass.  Its parameters are a list here, as the names of properties have to be known."""
    value = {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "string"}]}
    text = {"type": "string"}
    parameter = record(name=text, default=value, choices={"type": "array", "items": value}, help=text)
    return record(name=text, doc=text, parameters={"type": "array", "items": parameter}, steps={"type": "array", "items": text})


def with_steps(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` with the definition of a step, where it mentions one."""
    if "#/$defs/step" not in json.dumps(schema):
        return schema
    steps = [step(cls) for cls in vocabulary()]
    if NEW in schema["properties"]:
        steps.append(record(**{"pass": {"enum": [NEW]}, "options": record()}))
    return {**schema, "$defs": {"step": {"anyOf": steps}}}


def step(cls: type[Pass]) -> dict[str, Any]:
    """One invocation of a pass, all options spelled out."""
    options = {_spelled(field.name): _domain(field) for field in dataclasses.fields(cls)}
    return record(**{"pass": {"enum": [cls.name]}, "options": record(**options)})


def _domain(field: dataclasses.Field[Any]) -> dict[str, Any]:
    choices = field.metadata.get("choices")
    return {"enum": list(choices)} if choices else {"type": _JSON[type_name(field)]}


def record(**properties: Any) -> dict[str, Any]:
    """An object that has these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
