"""Recipes: auxiliary arrays that the host computes from a packed pattern, and that become kernel operands.

A pass names a recipe with its parameters, as `row-segments{level=1 length=64}`; the runtime runs it when it packs the
matrix.  Every recipe is vectorised: its cost is linear in the rows, not a loop over entries.

Recipes compose: `reorder{level=1 rows=rcm columns=none}|row-segments{level=1 length=64}` cuts the rows as `reorder` has
put them.  What a recipe makes hides what was there under the same name, for the recipes after it.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.dialects.entry_parts import entry_carries, entry_parts
from sparseditto.dialects.errors import InputError, PlanError
from sparseditto.dialects.layouts import LAYOUTS, window_order
from sparseditto.dialects.orders import ORDERS, REARRANGED
from sparseditto.dialects.symmetric import SYMMETRIC

__all__ = ["REARRANGED", "RECIPES", "Recipe", "run_recipe"]

Arrays = dict[str, NDArray[np.generic]]
RowPositions = NDArray[np.integer]


@dataclass(frozen=True)
class Recipe:
    """A recipe's name and parameters; `str` gives the text that `parse` reads.

    It reads the arrays that `source` makes, and those of the packed operand where that makes none of the name.
    """

    name: str
    parameters: tuple[tuple[str, int | str], ...] = ()
    source: Recipe | None = None

    def __str__(self) -> str:
        own = f"{self.name}{{{' '.join(f'{key}={value}' for key, value in self.parameters)}}}"
        return own if self.source is None else f"{self.source}|{own}"

    @property
    def label(self) -> str:
        """What names of arrays say of the recipe: its own name, or the number of the part that it takes."""
        part = dict(self.parameters).get("part")
        return self.name.replace("-", "_") if part is None else f"part{part}"

    @property
    def level(self) -> int:
        return int(dict(self.parameters)["level"])

    @staticmethod
    def parse(text: str) -> Recipe:
        """Read the text form.  Raises `PlanError` on anything else, and on names that do not exist."""
        *before, own = text.split("|")
        found = re.fullmatch(r"([a-z-]+)\{([a-z_]+=\w+(?: [a-z_]+=\w+)*)\}", own)
        if found is None or found[1] not in RECIPES:
            raise PlanError(f"'{own}' is no recipe; there are {', '.join(RECIPES)}")
        words = [word.split("=") for word in found[2].split()]
        parameters = {key: int(value) if value.isdecimal() else value for key, value in words}
        wanted = {"level": "int"} | _options(found[1])
        if len(words) != len(wanted) or set(parameters) != set(wanted):
            raise PlanError(f"'{own}': {found[1]} has the parameters {', '.join(sorted(wanted))}")
        for key, value in parameters.items():
            if (wanted[key] == "int") is not isinstance(value, int):
                raise PlanError(f"'{own}': {key}={value} is no {'number' if wanted[key] == 'int' else 'word'}")
            if value == 0 and key not in _FROM_ZERO:
                raise PlanError(f"'{own}': a number of entries, rows or threads is at least 1")
        return Recipe(found[1], tuple(parameters.items()), Recipe.parse("|".join(before)) if before else None)


def run_recipe(
    recipe: Recipe,
    arrays: Mapping[str, NDArray[np.generic]],
    made: MutableMapping[str, Mapping[str, NDArray[np.generic]]] | None = None,
    seconds: MutableMapping[str, float] | None = None,
) -> Mapping[str, NDArray[np.generic]]:
    """The arrays that `recipe` makes of a packed operand's `arrays` ("positions1", "coordinates1", …).

    "extents" holds those of the operand's levels.

    A recipe whose text is in `made` is not run again; what is run is put there, and its time is added to `seconds` under
    the recipe's name.  Raises `InputError` when a level that it reads is not there or an index does not fit.
    """
    made = {} if made is None else made
    text = str(recipe)
    if text not in made:
        known = dict(arrays)
        if recipe.source is not None:
            known |= {_key(name, recipe.level): a for name, a in run_recipe(recipe.source, arrays, made, seconds).items()}
        start = time.perf_counter()
        made[text] = _run(recipe, known)
        if seconds is not None:
            seconds[recipe.name] = seconds.get(recipe.name, 0.0) + time.perf_counter() - start
    return made[text]


def _run(recipe: Recipe, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    parameters: dict[str, Any] = dict(recipe.parameters)
    level = parameters.pop("level")
    for part in set(_READ) & set(inspect.signature(RECIPES[recipe.name]).parameters):
        key = _key(part, level)
        if key not in arrays:
            raise InputError(f"{recipe} reads {key}, which this format does not have")
        parameters[part] = np.asarray(arrays[key])
    if "positions" in parameters:
        parameters["positions"] = parameters["positions"].astype(np.int64, copy=False)
    return RECIPES[recipe.name](**parameters)


def _key(part: str, level: int) -> str:
    """The name of an array of a packed operand."""
    return f"{part}{level}" if part in ("positions", "coordinates") else part


def _options(name: str) -> dict[str, str]:
    """The parameters of a recipe that its text gives, with their types."""
    given = inspect.signature(RECIPES[name]).parameters
    return {key: str(p.annotation) for key, p in given.items() if key not in _READ}


_READ = ("positions", "coordinates", "values", "gathers", "extents")  # parameters of recipes that are arrays
_FROM_ZERO = ("level", "part")  # numbers that may be 0


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


def row_blocks(positions: RowPositions, entries: int, rows: int, threads: int) -> Arrays:
    """Cut the rows into blocks of whole rows, each of at most `entries` entries and `rows` rows, in order and greedily.

    A row of more entries is cut into pieces (as equal as can be), each a block.  `rows[b]` is the first row of block b,
    complemented where the block is a piece; `rows[blocks]` the number of rows.  `positions[b]` to `positions[b + 1]` are its
    entries.
    `shift[b]` is the logarithm of how many of `threads` lanes each row of the block has, 32 at most.  Of a piece, `start[b]`
    is the first block of its row and `pieces[b]` how many there are.  `partials` and `tickets` are workspaces, one element a
    block.
    """
    count = np.diff(positions)
    total = len(count)
    _check_int32(total, int(positions[-1]))
    last = np.searchsorted(positions, positions[:-1] + entries, side="right") - 1
    following = np.minimum(np.minimum(last, np.arange(total) + rows), total)
    first = np.asarray(_chain(np.maximum(following, np.arange(total) + 1)), dtype=np.int64)
    lengths = np.where(count[first] > entries, count[first], 0)
    pieces = np.maximum(-(-lengths // entries), 1)
    begin = np.cumsum(pieces) - pieces
    which = np.repeat(np.arange(len(first)), pieces)
    place = np.arange(len(which), dtype=np.int64) - begin[which]
    starts = positions[first][which] + place * lengths[which] // pieces[which]
    ends = np.append(first[1:], total)
    each = np.maximum(threads // np.maximum(ends - first, 1), 1)
    return {
        "rows": np.append(np.where(pieces > 1, ~first, first)[which], total).astype(np.int32),
        "positions": np.append(starts, positions[-1]).astype(np.int32),
        "shift": np.minimum(np.log2(each).astype(np.int32), 5)[which],
        "start": begin[which].astype(np.int32),
        "pieces": pieces[which].astype(np.int32),
        "partials": np.zeros(len(which), np.int32),
        "tickets": np.zeros(len(which), np.int32),
    }


def sliced_rows(
    positions: RowPositions,
    coordinates: NDArray[np.integer],
    values: NDArray[np.generic],
    height: int,
    window: int,
    bits: int,
) -> Arrays:
    """The entries in slices of `height` rows (SELL-C-sigma): of each slice the first entry of each row, then the second.

    Rows are sorted by falling length, in their order where that is equal, within windows of `window` rows; slot i is the place
    of row `rows[i]` in that order.  Entry k of slot i stands at `starts[i // height] + i % height + k * height` of
    `coordinates` and `values`.  Where there is no entry, all bits of the coordinate are set, and the value is 0.
    Coordinates of fewer `bits` than the array has are offsets from `bases[i // height]`, the slice's least column.
    """
    count = np.diff(positions)
    total = len(count)
    slices = -(-total // height)
    rows = window_order(count, window)
    lengths = np.zeros(slices * height, np.int64)
    lengths[:total] = count[rows]
    starts = np.append(0, np.cumsum(lengths.reshape(slices, height).max(axis=1, initial=0) * height))
    _check_int32(total, int(starts[-1]))
    slot_start = np.repeat(starts[:-1], height) + np.tile(np.arange(height), slices)
    row_start = np.empty(total, np.int64)
    row_start[rows] = slot_start[:total]
    places = np.repeat(row_start - positions[:-1] * height, count)
    places += np.arange(int(positions[-1]), dtype=np.int64) * height
    found = {"rows": rows.astype(np.int32), "starts": starts.astype(np.int32)}
    narrow = bits < 8 * coordinates.itemsize
    if narrow:
        found["bases"], coordinates = _offsets(positions, coordinates, rows, height)
    _check_fits(coordinates, bits, narrow)
    stored = np.full(int(starts[-1]), (1 << bits) - 1, f"uint{bits}")
    stored[places] = coordinates
    entries = np.zeros(int(starts[-1]), values.dtype)
    entries[places] = values
    return {**found, "coordinates": stored.view(np.uint16 if bits == 16 else f"int{bits}"), "values": entries}


def _check_fits(coordinates: NDArray[np.integer], bits: int, narrow: bool) -> None:
    """Raises `InputError` when a coordinate has more than `bits` bits, or all of them set, which marks padding."""
    most = int(coordinates.max(initial=0))
    if most >= (1 << bits) - 1:
        what = f"the columns of a slice span {most + 1}" if narrow else f"there is a column {most}"
        raise InputError(f"{what}, and {bits} bits hold less than {(1 << bits) - 1}: store coordinates with more bits")


def _offsets(
    positions: RowPositions, coordinates: NDArray[np.integer], rows: NDArray[np.integer], height: int
) -> tuple[NDArray[np.int32], NDArray[np.integer]]:
    """The least column of each slice, and coordinates as offsets from those."""
    count = np.diff(positions)
    slots = -(-len(rows) // height) * height
    least = np.full(slots, np.iinfo(np.int64).max)
    some = count > 0
    if some.any():
        of_rows = np.full(len(rows), np.iinfo(np.int64).max)
        of_rows[some] = np.minimum.reduceat(coordinates, positions[:-1][some])
        least[: len(rows)] = of_rows[rows]
    bases = least.reshape(-1, height).min(axis=1, initial=np.iinfo(np.int64).max)
    bases[bases == np.iinfo(np.int64).max] = 0
    if bases.max(initial=0) > np.iinfo(np.int32).max:
        raise InputError("a column of 2^31 or more has no 32-bit offset: store coordinates with more bits")
    of_row = np.empty(len(rows), np.int64)
    of_row[rows] = np.repeat(bases, height)[: len(rows)]
    offsets = coordinates - np.repeat(of_row, count)
    return bases.astype(np.int32), offsets


def _chain(following: NDArray[np.integer]) -> list[int]:
    """0, and what follows it, and what follows that, to the end."""
    step, at, found = following.tolist(), 0, []
    while at < len(step):
        found.append(at)
        at = step[at]
    return found


def _check_int32(*numbers: int) -> None:
    if max(numbers) > np.iinfo(np.int32).max:
        raise InputError("more than 2^31 rows or entries cannot be cut into segments")


RECIPES: dict[str, Callable[..., Arrays]] = {
    "row-segments": row_segments,
    "long-segments": long_segments,
    "row-blocks": row_blocks,
    "sliced-rows": sliced_rows,
    "entry-parts": entry_parts,
    "entry-carries": entry_carries,
    **LAYOUTS,
    **ORDERS,
    **SYMMETRIC,
}
