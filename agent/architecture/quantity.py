"""One number of a GPU with its unit and where it comes from; what is not known stays None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from sparseditto.dialects.errors import InputError

Value: TypeAlias = bool | int | float | str | tuple[int | float | str, ...] | None

KINDS = {
    "vendor": "stated by NVIDIA",
    "device": "told by a driver",
    "measured": "a microbenchmark's result",
    "secondary": "quoted by someone else",
    "derived": "computed from other values; the source is the formula",
    "assumed": "that of the nearest GPU of the same compute capability",
    "none": "not known",
}


@dataclass(frozen=True)
class Alternate:
    """What another source says.  With `measured_on` it is another GPU's figure, which is not taken for this one's."""

    value: Value
    source: str
    note: str = ""
    measured_on: str = ""

    @staticmethod
    def from_json(data: Any) -> Alternate:
        """Raises `InputError` when `data` is not what `to_json` makes."""
        _check_keys(data, {"value", "source"}, {field.name for field in fields(Alternate)}, "alternate")
        if data["value"] is None:
            raise InputError("an alternate needs a value")
        return Alternate(**{**data, "value": _frozen(data["value"])})

    def to_json(self) -> dict[str, Any]:
        return _without_defaults({field.name: getattr(self, field.name) for field in fields(self)}, {"value", "source"})


@dataclass(frozen=True)
class Quantity:
    """A `value` in `unit` (empty where it has none), its `kind` (one of `KINDS`) and its `source`.

    The value is None exactly where the kind is "none"; the source then says what was looked for.
    """

    value: Value
    unit: str
    kind: str
    source: str
    note: str = ""
    alternates: tuple[Alternate, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"'{self.kind}' is no kind of value; there are {', '.join(KINDS)}")
        if (self.value is None) != (self.kind == "none"):
            raise InputError(f"a value of {self.value} does not go with kind '{self.kind}'")
        if not self.source:
            raise InputError("a value needs a source")

    @staticmethod
    def unknown(unit: str, source: str = "no figure was found") -> Quantity:
        return Quantity(None, unit, "none", source)

    @property
    def number(self) -> float | None:
        """The value where it is a number, else None."""
        return float(self.value) if isinstance(self.value, (int, float)) and not isinstance(self.value, bool) else None

    @staticmethod
    def from_json(data: Any) -> Quantity:
        """Raises `InputError` when `data` is not what `to_json` makes."""
        needed = {"value", "unit", "kind", "source"}
        _check_keys(data, needed, {field.name for field in fields(Quantity)}, "value")
        if not all(isinstance(data[key], str) for key in ("unit", "kind", "source")):
            raise InputError("unit, kind and source are text")
        alternates = data.get("alternates", [])
        if not isinstance(alternates, list):
            raise InputError("alternates are a list")
        return Quantity(
            _frozen(data["value"]),
            data["unit"],
            data["kind"],
            data["source"],
            str(data.get("note", "")),
            tuple(map(Alternate.from_json, alternates)),
        )

    def to_json(self) -> dict[str, Any]:
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        data["alternates"] = [a.to_json() for a in self.alternates]
        return _without_defaults(data, {"value", "unit", "kind", "source"})

    def __str__(self) -> str:
        return f"{text(self.value)} {self.unit}".rstrip() if self.value not in (None, ()) else text(self.value)


def text(value: Value) -> str:
    """For people: numbers with at most five digits behind each other's point, lists with commas, `?` for what is not known."""
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(text, value)) or "none"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _frozen(value: Any) -> Value:
    """`value` with tuples for lists.  Raises `InputError` on anything else that is not a plain value."""
    if isinstance(value, list) and all(isinstance(v, (int, float, str)) for v in value):
        return tuple(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InputError(f"a value is a number, text, a list of those or null, not {value!r}")


def _check_keys(data: Any, needed: set[str], allowed: set[str], what: str) -> None:
    if not isinstance(data, dict):
        raise InputError(f"this {what} is no object: {data!r}")
    if needed - set(data) or set(data) - allowed:
        raise InputError(f"this {what} has {', '.join(sorted(data))}; it needs {', '.join(sorted(needed))}")


def _without_defaults(data: Mapping[str, Any], always: set[str]) -> dict[str, Any]:
    """JSON of a record: tuples as lists, and optional fields only where they say something."""
    return {key: list(v) if isinstance(v, tuple) else v for key, v in data.items() if v or key in always}
