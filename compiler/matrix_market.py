"""Read a Matrix Market file: how its entries become a matrix.

SciPy's C++ reader parses the numbers, of text that `market_body.py` has checked and tidied.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.market_body import check_body, complaint_about, first_complaint, tidy
from sparseditto.compiler.market_header import Header, read_header
from sparseditto.compiler.matrix import Matrix, counted, duplicates_note, from_coordinates, from_dense, rounding_note
from sparseditto.compiler.text_blocks import Text, open_text, stream_of
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]


def load_text(path: Path) -> Matrix:
    where = str(path)
    with open_text(path) as stream:
        text = Text(stream, where)
        header = read_header(text)
        words = check_body(text, header)
    if header.entries == 0:
        row = column = np.zeros(0, dtype=np.int32)
        return Matrix(from_coordinates(np.zeros(0), row, column, header.shape)[0], header.notes)
    parsed = _parse(path, header)
    values: Array = parsed if header.layout == "array" else parsed.data
    notes = header.notes + rounding_note(values, "integer" in header.field)
    if not words and (beyond := int(np.count_nonzero(np.isinf(values)))):
        notes += (f"{counted(beyond, 'value', 'values')} beyond the range of float64 became infinite",)
    if header.layout == "array":
        return Matrix(from_dense(values).csr, notes)
    return _from_entries(path, header, parsed, notes)


def _from_entries(path: Path, header: Header, coo: Any, notes: tuple[str, ...]) -> Matrix:
    """The matrix of a coordinate file.  `coo` has the file's entries in order, then the mirrored ones."""
    if header.symmetry == "skew-symmetric":
        _check_skew(path, header, coo)
    csr, summed = from_coordinates(coo.data, coo.row, coo.col, header.shape)
    if summed and header.symmetry != "general":
        _check_one_triangle(path, header, coo)
    if mirrored := coo.data.size - header.entries:
        notes += (f"{header.symmetry}: {counted(mirrored, 'entry', 'entries')} mirrored",)
    return Matrix(csr, notes + duplicates_note(summed))


def _check_skew(path: Path, header: Header, coo: Any) -> None:
    wrong = np.flatnonzero((coo.row == coo.col) & (coo.data != 0))
    if wrong.size:
        line = _line_of_entry(path, header, int(wrong[0]))
        place = int(coo.row[wrong[0]]) + 1
        raise InputError(f"({place}, {place}) of a skew-symmetric matrix must be zero", where=f"{path}:{line}")


def _check_one_triangle(path: Path, header: Header, coo: Any) -> None:
    """Refuse an entry whose mirror is stored as well: summed, it would count twice."""
    row, column = (np.asarray(a[: header.entries], dtype=np.int64) for a in (coo.row, coo.col))
    size = header.shape[0]
    key = np.maximum(row, column) * size + np.minimum(row, column)
    both = np.intersect1d(key[row > column], key[row < column])
    if both.size:
        entry = int(np.flatnonzero(key == both[0])[-1])
        place = f"({row[entry] + 1}, {column[entry] + 1})"
        raise InputError(
            f"{place} is stored, and so is its mirror; a {header.symmetry} file stores one of the two, or say 'general'",
            where=f"{path}:{_line_of_entry(path, header, entry)}",
        )


def _line_of_entry(path: Path, header: Header, entry: int) -> int:
    """Line of the entry with this number, from 0."""
    lines = itertools.chain.from_iterable(block.splitlines() for block in _body(path, header))
    holding = (number for number, line in enumerate(lines, start=header.lines + 1) if line.strip())
    return next(itertools.islice(holding, entry, None))


def _parse(path: Path, header: Header) -> Any:
    """SciPy's reading of a checked body under a plain header: a `coo_matrix`, or for an array file its ndarray."""
    from scipy.io import mmread

    sizes = (*header.shape, header.entries) if header.layout == "coordinate" else header.shape
    field = "pattern" if header.field == "pattern" else "real"
    head = f"%%MatrixMarket matrix {header.layout} {field} {header.symmetry}\n{' '.join(map(str, sizes))}\n"
    blocks = _body(path, header)
    if header.layout == "array":  # one number a line is all that SciPy takes
        blocks = (b"\n".join(words) + b"\n" for block in blocks if (words := block.split()))
    try:
        with stream_of(itertools.chain([head.encode()], blocks)) as feed:
            return mmread(feed)
    except (ValueError, OverflowError) as e:
        raise _parse_error(path, header, str(e)) from e


def _parse_error(path: Path, header: Header, message: str) -> InputError:
    """SciPy's complaint in our words, with the line in the user's file."""
    named = re.fullmatch(r"Line (\d+): (.*)", message, re.S)
    if named is None or header.layout == "array":
        return first_complaint(_body(path, header), header.lines, header, str(path))
    number = int(named[1]) - 2 + header.lines
    with open_text(path) as stream:
        text = Text(stream, str(path))
        line = next(itertools.islice(iter(text.line, None), number - 1, None), b"")
    return InputError(complaint_about(tidy(line), header) or named[2], where=f"{path}:{number}")


def _body(path: Path, header: Header) -> Iterator[bytes]:
    """The tidied blocks behind the size line."""
    with open_text(path) as stream:
        text = Text(stream, str(path))
        for _ in range(header.lines):
            text.line()
        yield from map(tidy, text.blocks())
