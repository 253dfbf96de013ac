"""Sparse tensors of more than two dimensions: FROSTT's text (`.tns`), and how a tensor becomes a matrix.

A line of a `.tns` file is an entry: its indices, counted from 1, and its value; `#` begins a comment.  The number of
dimensions is that of the first line; the shape is the largest indices, unless it is given or the file has the two lines
with which MLIR extends the format, `rank entries` and the sizes.  NumPy's reader parses the numbers, strictly.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.matrix import (
    Matrix,
    as_real,
    check_real,
    check_shape,
    counted,
    duplicates_note,
    from_coordinates,
    is_long_integer,
    rounding_note,
)
from sparseditto.compiler.text_blocks import Text, count_byte, open_text, printable
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

MAX_RANK = 16
_LARGEST = int(np.iinfo(np.int64).max)
_NUMBER = re.compile(rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.I)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A sparse tensor of three or more dimensions in canonical form.

    `coordinates[d]` are the entries' places (int64) in dimension d, sorted by dimension 0, then 1, and so on; none twice.
    `values` are float32 or float64, as in `Matrix`; stored zeros are kept.  `notes` says in words what the reader did.
    """

    coordinates: tuple[Array, ...]
    values: Array
    shape: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)


def make_tensor(
    coordinates: Sequence[Array], values: Array, shape: tuple[int, ...], where: str | None, notes: tuple[str, ...] = ()
) -> Matrix | Tensor:
    """The tensor of these entries, from 0 and in any order, duplicates summed; of two dimensions it is a `Matrix`.

    Raises `InputError` when an index is outside the shape or the values are not real.
    """
    check_real(values, "the tensor", where)
    for dim, (places, size) in enumerate(zip(coordinates, shape, strict=True)):
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < size:
            wrong = int(places.min()) if places.min() < 0 else int(places.max())
            raise InputError(f"index {wrong} of dimension {dim} is outside 0..{size - 1}", where=where)
    notes += rounding_note(as_real(values), is_long_integer(values))
    if len(shape) == 2:
        sizes = check_shape(shape, values.size, where)
        csr, summed = from_coordinates(as_real(values), coordinates[0], coordinates[1], sizes)
        return Matrix(csr, notes + duplicates_note(summed))
    canonical, kept = _sorted_and_summed([c.astype(np.int64, copy=False) for c in coordinates], as_real(values))
    return Tensor(canonical, kept, shape, notes + duplicates_note(values.size - kept.size))


def _sorted_and_summed(coordinates: list[Array], values: Array) -> tuple[tuple[Array, ...], Array]:
    order = np.lexsort(coordinates[::-1])
    places, values = [c[order] for c in coordinates], values[order]
    fresh = np.ones(values.size, dtype=bool)
    fresh[1:] = np.logical_or.reduce([c[1:] != c[:-1] for c in places])
    starts = np.flatnonzero(fresh)
    if starts.size == values.size:
        return tuple(places), values
    return tuple(c[starts] for c in places), np.add.reduceat(values, starts)


def unfold(tensor: Tensor, mode: int, where: str | None = None) -> Matrix:
    """The tensor as a matrix: its rows are dimension `mode`, its columns all others, of which the first varies fastest.

    That is the mode-n unfolding of Kolda and Bader, counted from 0.  Raises `InputError` for a mode that does not exist
    and when the columns cannot be counted with 64 bits.
    """
    if not 0 <= mode < tensor.rank:
        raise InputError(f"mode {mode} is not one of 0..{tensor.rank - 1}", where=where)
    others = [d for d in range(tensor.rank) if d != mode]
    columns = math.prod(tensor.shape[d] for d in others)
    shape = check_shape((tensor.shape[mode], columns), tensor.values.size, where)
    column, stride = np.zeros(tensor.values.size, dtype=np.int64), 1
    for d in others:
        column += tensor.coordinates[d] * stride
        stride *= tensor.shape[d]
    csr, _ = from_coordinates(tensor.values, tensor.coordinates[mode], column, shape)
    sizes = " x ".join(map(str, tensor.shape))
    return Matrix(csr, (*tensor.notes, f"a tensor of {sizes}, unfolded with the rows from dimension {mode}"))


# -------------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Layout:
    """What the first lines say.  `lines` is how many of them are no entries."""

    rank: int
    shape: tuple[int, ...] | None = None
    entries: int | None = None
    lines: int = 0


def load_tns(path: Path, shape: tuple[int, ...] | None = None) -> Matrix | Tensor:
    """Read a `.tns` file.  Raises `InputError`, with the line where one is to blame."""
    where = str(path)
    with open_text(path) as stream:
        layout = _layout(Text(stream, where))
    if layout is None:
        raise InputError("has no entry; a line of a .tns file is its indices and its value", where=where)
    with open_text(path) as stream:
        text = Text(stream, where)
        for _ in range(layout.lines):
            text.line()
        parts = list(_parse(text, layout))
    coordinates: list[Array] = [
        np.concatenate([part[f"i{d}"] for part in parts] or [np.zeros(0, np.int64)]) for d in range(layout.rank)
    ]
    values: Array = np.concatenate([part["v"] for part in parts] or [np.zeros(0)])
    if layout.entries is not None and layout.entries != values.size:
        promise = counted(layout.entries, "entry", "entries")
        raise InputError(f"line {layout.lines - 1} promises {promise}, and the file has {values.size}", where=where)
    sizes, notes = _sizes(layout, coordinates, shape, where)
    for places in coordinates:
        places -= 1
    return make_tensor(coordinates, values, sizes, where, notes)


def _content(text: Text) -> Iterable[bytes]:
    """Lines that are neither blank nor only a comment, without their comments."""
    while (line := text.line()) is not None:
        if line := line.split(b"#", 1)[0].strip():
            yield line


def _layout(text: Text) -> _Layout | None:
    """What the first content says; None when there is none."""
    lines = iter(_content(text))
    first = next(lines, b"").split()
    if not first:
        return None
    where = f"{text.where}:{text.number}"
    if len(first) != 2:
        return _Layout(_checked_rank(len(first) - 1, where))
    if not all(re.fullmatch(rb"\d{1,18}", word) for word in first):
        raise InputError(f"'{printable(b' '.join(first))}' is neither an entry nor 'rank entries'", where=where)
    rank, entries = _checked_rank(int(first[0]), where), int(first[1])
    second = next(lines, b"").split()
    if len(second) != rank or not all(re.fullmatch(rb"\d{1,18}", word) for word in second):
        raise InputError(f"the line behind 'rank entries' should hold {rank} sizes", where=f"{text.where}:{text.number}")
    return _Layout(rank, tuple(int(word) for word in second), entries, text.number)


def _checked_rank(rank: int, where: str) -> int:
    if not 2 <= rank <= MAX_RANK:
        dimensions = counted(rank, "dimension", "dimensions")
        raise InputError(
            f"an entry of {dimensions}; a tensor has 2 to {MAX_RANK}, and a line its indices and a value", where=where
        )
    return rank


def _parse(text: Text, layout: _Layout) -> Iterable[Array]:
    """The entries, a block at a time, their indices as they stand in the file and checked from below."""
    dtype = np.dtype([(f"i{d}", np.int64) for d in range(layout.rank)] + [("v", np.float64)])
    number = layout.lines
    for block in text.blocks():
        if re.search(rb"(?m)^[ \t]*[^# \t\n]", block):
            part = _parsed_block(block, dtype)
            if part is None or any(part[f"i{d}"].min() < 1 for d in range(layout.rank)):
                raise _complaint(block, number, layout, text.where)
            yield part
        number += count_byte(block, 10)


def _parsed_block(block: bytes, dtype: np.dtype[Any]) -> Array | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an integer that is written with a point is only warned of
        try:
            return np.loadtxt(io.BytesIO(block), dtype=dtype, comments="#", ndmin=1, encoding="latin-1")
        except (ValueError, TypeError, OverflowError, DeprecationWarning, UserWarning):
            return None


def _complaint(block: bytes, number: int, layout: _Layout, where: str) -> InputError:
    """What is wrong in this block, which begins behind line `number`."""
    for line in block.splitlines():
        number += 1
        line = line.split(b"#", 1)[0].strip()
        if line and (complaint := _wrong_entry(line, layout)):
            return InputError(complaint, where=f"{where}:{number}")
    return InputError("this is no text of a tensor", where=f"{where}:{number}")


def _wrong_entry(line: bytes, layout: _Layout) -> str | None:
    words = line.split()
    if len(words) != layout.rank + 1:
        found = counted(len(words), "number", "numbers")
        return f"'{printable(line)}' has {found}; an entry has {layout.rank} indices and a value"
    for dim, word in enumerate(words[:-1]):
        if not re.fullmatch(rb"[+-]?\d+", word):
            return f"index '{printable(word)}' is not an integer"
        if len(word) > 25 or not 1 <= int(word) <= _LARGEST:
            return f"index {printable(word)} of dimension {dim} is out of range; indices count from 1"
    return None if _NUMBER.fullmatch(words[-1]) else f"value '{printable(words[-1])}' is not a number"


def _sizes(
    layout: _Layout, coordinates: list[Array], given: tuple[int, ...] | None, where: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The shape, and what is to be said of it; raises `InputError` where an index does not fit in a shape that is given."""
    largest = tuple(int(places.max()) if places.size else 0 for places in coordinates)
    shape = given or layout.shape
    if shape is None:
        return largest, (f"no shape is stored: {' x '.join(map(str, largest))} are the largest indices",)
    source = "shape=" if given else "the file"
    if len(shape) != layout.rank:
        raise InputError(f"{source} says {len(shape)} dimensions, and the entries have {layout.rank}", where=where)
    for dim, (most, size) in enumerate(zip(largest, shape, strict=True)):
        if most > size:
            raise InputError(f"index {most} of dimension {dim} is outside 1..{size}, which {source} says", where=where)
    return shape, ()
