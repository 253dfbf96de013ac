"""The text form of pipelines, as MLIR writes it: `a{x=1 y=2},builtin.module(b,func.func(c))`.

Parsing and printing are inverse.  Nothing here knows which passes exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparseditto.dialects.errors import PlanError

_CLOSES = {"{": "}", "(": ")"}


@dataclass(frozen=True)
class Item:
    """One element: a pass with its options as raw text, or an anchor with the pipeline nested in it."""

    name: str
    options: str = ""
    nested: tuple[Item, ...] | None = None

    def __str__(self) -> str:
        if self.nested is not None:
            return f"{self.name}({print_pipeline(self.nested)})"
        return f"{self.name}{{{self.options}}}" if self.options else self.name


def print_pipeline(items: tuple[Item, ...]) -> str:
    return ",".join(map(str, items))


def parse_pipeline(text: str) -> tuple[Item, ...]:
    """Parse a pipeline.  Raises `PlanError` with a caret under the place."""
    items, end = _items(text, 0)
    if end != len(text):
        raise _error(text, end, f"unexpected '{text[end]}'")
    return items


def _items(text: str, at: int) -> tuple[tuple[Item, ...], int]:
    items: list[Item] = []
    while True:
        item, at = _item(text, at)
        items.append(item)
        if at >= len(text) or text[at] != ",":
            return tuple(items), at
        at += 1


def _item(text: str, at: int) -> tuple[Item, int]:
    start = at
    while at < len(text) and text[at] not in "{}(),":
        at += 1
    name = text[start:at].strip()
    if not name:
        raise _error(text, start, "a pass name is missing")
    if at < len(text) and text[at] == "(":
        nested, at = _items(text, at + 1)
        if at >= len(text) or text[at] != ")":
            raise _error(text, at, "')' is missing")
        return Item(name, nested=nested), _skip_space(text, at + 1)
    options = ""
    if at < len(text) and text[at] == "{":
        end = _matching(text, at)
        options, at = text[at + 1 : end].strip(), end + 1
    return Item(name, options), _skip_space(text, at)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _matching(text: str, start: int) -> int:
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise _error(text, start, "this '{' is not closed")


def parse_options(pass_name: str, text: str) -> dict[str, str]:
    """`a=1 b=2` as a dictionary.  Raises `PlanError` on a word without `=` or an option given twice."""
    options: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise PlanError(f"'{word}' is no option; write name=value", where=pass_name)
        if key in options:
            raise PlanError(f"option '{key}' is given twice", where=pass_name)
        options[key] = value
    return options


def _error(text: str, at: int, message: str) -> PlanError:
    return PlanError(f"{message}\n  {text}\n  {' ' * at}^", where="pipeline")
