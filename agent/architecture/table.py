"""The table of known GPUs, `gpus.json`: each fact with its source, and the names that a GPU goes by."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from sparseditto.agent.architecture.quantity import Alternate, Quantity, Value
from sparseditto.agent.architecture.vocabulary import FIELDS, REQUIRED, Place
from sparseditto.dialects.errors import InputError, did_you_mean

SCHEMA = 1
_NOISE = {"nvidia", "tesla", "geforce", "gpu"}  # words that drivers put into names


@dataclass(frozen=True)
class Entry:
    """One GPU of the table: its name, other names that a driver or a person gives it, and its facts by field."""

    name: str
    aliases: tuple[str, ...]
    facts: Mapping[str, Quantity]


@functools.cache
def known() -> dict[str, Entry]:
    """The entries that ship with the project, by name."""
    path = resources.files(__package__).joinpath("gpus.json")
    return parse_table(path.read_text(encoding="utf-8"), "gpus.json")


def parse_table(text: str, where: str) -> dict[str, Entry]:
    """Read a table.  Raises `InputError`, with the GPU and the field, on everything that breaks its schema."""
    try:
        data = json.loads(text)
    except ValueError as e:
        raise InputError(f"is not JSON: {e}", where=where) from e
    if not isinstance(data, dict) or set(data) != {"schema", "gpus"} or not isinstance(data["gpus"], dict):
        raise InputError("is no table of GPUs (it has schema and gpus)", where=where)
    if data["schema"] != SCHEMA:
        raise InputError(f"is of schema {data['schema']}; this release reads {SCHEMA}", where=where)
    entries = {name: _entry(name, entry, where) for name, entry in data["gpus"].items()}
    _check_names(entries, where)
    return entries


def _entry(name: str, data: Any, where: str) -> Entry:
    place = f"{where}: {name}"
    if not isinstance(data, dict) or set(data) != {"aliases", "facts"} or not isinstance(data["facts"], dict):
        raise InputError("needs aliases and facts", where=place)
    aliases = data["aliases"]
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise InputError("aliases are a list of text", where=place)
    missing, extra = FIELDS.keys() - data["facts"].keys(), data["facts"].keys() - FIELDS.keys()
    if missing:
        raise InputError(f"lacks {', '.join(sorted(missing))}", where=place)
    if extra:
        unknown = min(extra)
        raise InputError(f"has a field '{unknown}'{did_you_mean(unknown, FIELDS)}", where=place)
    facts = {field: _fact(cell, FIELDS[field], f"{place}: {field}") for field, cell in data["facts"].items()}
    for field, fact in facts.items():
        expected = bool if field.startswith("has_") else str
        if not FIELDS[field].unit and not all(type(part) is expected for part in _parts(fact.value)):
            raise InputError(f"{fact.value!r} is no {expected.__name__}", where=f"{place}: {field}")
        if field in REQUIRED and fact.value is None:
            raise InputError("must be known", where=f"{place}: {field}")
    return Entry(name, tuple(aliases), facts)


def _fact(data: Any, place: Place, where: str) -> Quantity:
    """A cell of the table as a quantity in the graph's unit."""
    if not isinstance(data, dict) or "unit" in data:
        raise InputError("a fact is an object with value, kind and source; its unit is the field's", where=where)
    try:
        fact = Quantity.from_json(data | {"unit": place.unit})
    except InputError as e:
        raise InputError(e.message, where=where) from e
    if fact.kind == "derived" and not fact.source.startswith("derived:"):
        raise InputError("the source of a derived value is 'derived: ' and its formula", where=where)
    if fact.value is not None and any(a.measured_on for a in fact.alternates):
        raise InputError("a figure of another GPU stands beside a value of its own", where=where)
    if place.unit and not all(map(_is_number, _parts(fact.value))):
        raise InputError(f"{fact.value!r} is no number of {place.unit}", where=where)
    return scaled(fact, place.scale)


def _parts(value: Value) -> tuple[bool | int | float | str, ...]:
    """What a value is made of; nothing where it is not known."""
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _is_number(part: bool | int | float | str) -> bool:
    return isinstance(part, (int, float)) and not isinstance(part, bool) and part >= 0


def scaled(fact: Quantity, factor: int) -> Quantity:
    """The same fact in a unit that is smaller by `factor`."""
    if factor == 1:
        return fact
    alternates = tuple(Alternate(_times(a.value, factor), a.source, a.note, a.measured_on) for a in fact.alternates)
    return replace(fact, value=_times(fact.value, factor), alternates=alternates)


def _times(value: Value, factor: int) -> Value:
    if isinstance(value, tuple):
        return tuple(v if isinstance(v, str) else v * factor for v in value)
    return value * factor if isinstance(value, (int, float)) else value


def _check_names(entries: Mapping[str, Entry], where: str) -> None:
    """Every name stands for one GPU."""
    seen: dict[str, str] = {}
    for entry in entries.values():
        for key in {folded(name) for name in (entry.name, *entry.aliases)}:
            if key in seen:
                raise InputError(f"'{key}' stands for {seen[key]} and for {entry.name}", where=where)
            seen[key] = entry.name


def folded(name: str) -> str:
    """A name without case, punctuation and the words that only some drivers use."""
    return "".join(word for word in re.findall(r"[a-z0-9]+", name.casefold()) if word not in _NOISE)


def lookup(name: str) -> Entry | None:
    """The GPU that goes by `name`, whatever its case, punctuation and vendor's words; None where there is none."""
    return _by_folded_name().get(folded(name))


@functools.cache
def _by_folded_name() -> dict[str, Entry]:
    return {folded(name): entry for entry in known().values() for name in (entry.name, *entry.aliases)}


def find(name: str) -> Entry:
    """The GPU that goes by `name`.  Raises `InputError` with suggestions where there is none."""
    entry = lookup(name)
    if entry is None:
        raise InputError(f"'{name}' is no known GPU{_suggestion(name)} (there are {', '.join(known())})")
    return entry


def _suggestion(name: str) -> str:
    """GPUs whose name begins so, else the nearest one."""
    key = folded(name)
    near = [entry for entry in known() if key and folded(entry).startswith(key)]
    if near:
        return "; did you mean " + " or ".join(f"'{entry}'" for entry in near) + "?"
    return did_you_mean(name.casefold(), [n.casefold() for e in known().values() for n in (e.name, *e.aliases)])
