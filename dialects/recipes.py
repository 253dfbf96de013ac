"""Recipes: auxiliary arrays that the host computes from a packed pattern, and that become kernel operands.

A pass names a recipe with its parameters, as `row-segments{level=1 length=64}`; the runtime runs it when it packs the
matrix.  Every recipe is vectorised: its cost is linear in the rows, not a loop over entries.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparseditto.dialects.entry_parts import entry_carries, entry_parts
from sparseditto.dialects.errors import InputError, PlanError

Arrays = dict[str, NDArray[np.int32]]
RowPositions = NDArray[np.integer]


@dataclass(frozen=True)
class Recipe:
    """A recipe's name and parameters; `str` gives the text that `parse` reads."""

    name: str
    parameters: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{{{' '.join(f'{key}={value}' for key, value in self.parameters)}}}"

    @staticmethod
    def parse(text: str) -> Recipe:
        """Read the text form.  Raises `PlanError` on anything else, and on names that do not exist."""
        found = re.fullmatch(r"([a-z-]+)\{([a-z_]+=\d+(?: [a-z_]+=\d+)*)\}", text)
        if found is None or found[1] not in RECIPES:
            raise PlanError(f"'{text}' is no recipe; there are {', '.join(RECIPES)}")
        words = [word.split("=") for word in found[2].split()]
        parameters = {key: int(value) for key, value in words}
        wanted = {"level", *list(inspect.signature(RECIPES[found[1]]).parameters)[1:]}
        if len(words) != len(wanted) or set(parameters) != wanted:
            raise PlanError(f"'{text}': {found[1]} has the parameters {', '.join(sorted(wanted))}")
        if parameters["length"] < 1:
            raise PlanError(f"'{text}': a segment has at least one entry")
        return Recipe(found[1], tuple(parameters.items()))


def run_recipe(recipe: Recipe, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """The arrays that `recipe` makes of a packed operand's `arrays` ("positions1", "coordinates1", …).

    Raises `InputError` when they lack the level that it reads or an index does not fit.
    """
    parameters = dict(recipe.parameters)
    key = f"positions{parameters.pop('level')}"
    if key not in arrays:
        raise InputError(f"{recipe} reads {key}, which this format does not have")
    positions = np.asarray(arrays[key]).astype(np.int64, copy=False)
    return RECIPES[recipe.name](positions, **parameters)


def row_segments(positions: RowPositions, length: int) -> Arrays:
    """Cut rows into segments of at most `length` entries; a row without entries is one segment.

    `rows[s]` is the row of segment s, or its bitwise complement where the row has several segments; `positions[s]` to
    `positions[s + 1]` are its entries; `cut` lists the rows that have several.  The segments of a row differ by at most
    one entry.
    """
    count = np.diff(positions)
    pieces = np.maximum(-(-count // length), 1)
    total = int(pieces.sum())
    _check_int32(total, len(count), int(positions[-1]))
    rows = np.repeat(np.arange(len(count), dtype=np.int32), pieces)
    first = np.cumsum(pieces) - pieces
    place = np.arange(total, dtype=np.int64) - first[rows]
    starts = positions[rows] + place * count[rows] // pieces[rows]
    cut = pieces > 1
    return {
        "rows": np.where(cut[rows], ~rows, rows),
        "positions": np.append(starts, positions[-1]).astype(np.int32),
        "cut": np.flatnonzero(cut).astype(np.int32),
    }


def long_segments(positions: RowPositions, limit: int, length: int) -> Arrays:
    """The rows of more than `limit` entries, cut into segments of at most `length` entries (as equal as can be).

    `rows[s]` is the row of segment s, `first[s]` to `last[s]` are its entries.  Rows of at most `limit` are not listed.
    """
    count = np.diff(positions)
    _check_int32(len(count), int(positions[-1]))
    long = np.flatnonzero(count > limit)
    pieces = -(-count[long] // length)
    which = np.repeat(np.arange(len(long)), pieces)
    place = np.arange(len(which), dtype=np.int64) - (np.cumsum(pieces) - pieces)[which]
    start, entries = positions[long][which], count[long][which]
    return {
        "rows": long[which].astype(np.int32),
        "first": (start + place * entries // pieces[which]).astype(np.int32),
        "last": (start + (place + 1) * entries // pieces[which]).astype(np.int32),
    }


def _check_int32(*numbers: int) -> None:
    if max(numbers) > np.iinfo(np.int32).max:
        raise InputError("more than 2^31 rows or entries cannot be cut into segments")


RECIPES: dict[str, Callable[..., Arrays]] = {
    "row-segments": row_segments,
    "long-segments": long_segments,
    "entry-parts": entry_parts,
    "entry-carries": entry_carries,
}
