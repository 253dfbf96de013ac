"""The header of a Matrix Market file, banner and size line: what is taken, what is forgiven, and what is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sparseditto.compiler.matrix import FORMATS, check_shape
from sparseditto.compiler.text_blocks import Text, printable
from sparseditto.dialects.errors import InputError, did_you_mean

_BANNER = "%%MatrixMarket matrix coordinate real general"
LAYOUTS = ("coordinate", "array")
_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")


@dataclass(frozen=True)
class Header:
    """Banner and size line.  `numbers` is how many numbers a line of the body has, `entries` how many such lines follow."""

    layout: str
    field: str
    symmetry: str
    shape: tuple[int, int] = (0, 0)
    entries: int = 0
    lines: int = 0
    notes: tuple[str, ...] = ()

    @property
    def numbers(self) -> int:
        if self.layout == "array":
            return 1
        return 2 if self.field == "pattern" else 3


def read_header(text: Text) -> Header:
    line = _next_content(text)
    if line is None:
        raise InputError("is empty", where=text.where)
    line = line.removeprefix(b"\xef\xbb\xbf").strip()  # UTF-8's byte order mark
    if b"\0" in line:
        raise InputError(f"is binary, not Matrix Market text; these formats can be read: {FORMATS}", where=text.where)
    banner = _read_banner(line, f"{text.where}:{text.number}")
    header = banner or Header("coordinate", "real", "general", notes=("no banner: read as coordinate real general",))
    if banner or line.startswith(b"%"):
        line = _next_content(text, comments=False)
    return _read_sizes(line, header, text)


def _next_content(text: Text, comments: bool = True) -> bytes | None:
    """The next line that is not blank (nor a comment), stripped."""
    while (line := text.line()) is not None:
        line = line.strip()
        if line and (comments or not line.startswith(b"%")):
            return line
    return None


def _read_banner(line: bytes, where: str) -> Header | None:
    """The banner's words, or None when this file has none (then its first content is a comment or a size line)."""
    words = [printable(word).lower() for word in line.split()]
    if words[0] not in ("%%matrixmarket", "%matrixmarket"):
        meant_as_banner = re.match(rb"%%\w|%+\s*matrix\W*market", line, re.I) or any(word in words for word in LAYOUTS)
        if meant_as_banner or not (line.startswith(b"%") or _sizes(line)):
            raise InputError(f"'{printable(line)}' is no Matrix Market banner; it should be like '{_BANNER}'", where=where)
        return None
    if len(words) != 5:
        raise InputError(f"the banner has {len(words)} words; it should be like '{_BANNER}'", where=where)
    thing, layout, field, symmetry = words[1:]
    if field == "complex":
        raise InputError("complex values are not supported", where=where)
    for word, known, what in (
        (thing, ("matrix",), "object"),
        (layout, LAYOUTS, "format"),
        (field, _FIELDS, "field"),
        (symmetry, _SYMMETRIES, "symmetry"),
    ):
        if word not in known:
            raise InputError(
                f"{what} '{word}' is not supported, only {', '.join(known)}{did_you_mean(word, known)}", where=where
            )
    if layout == "array" and field == "pattern":
        raise InputError("'array pattern' says nothing about the matrix; use 'coordinate pattern'", where=where)
    notes = () if line.startswith(b"%%") else ("the banner starts with one % instead of two",)
    if symmetry == "hermitian":
        symmetry, notes = "symmetric", (*notes, "hermitian, but not complex: read as symmetric")
    return Header(layout, "real" if field == "double" else field, symmetry, notes=notes)


def _sizes(line: bytes) -> list[int]:
    """The integers of a size line; an empty list when it holds anything else."""
    words = line.split()
    return [int(word) for word in words] if all(re.fullmatch(rb"[+-]?\d{1,25}", word) for word in words) else []


def _read_sizes(line: bytes | None, header: Header, text: Text) -> Header:
    wanted = "rows columns" if header.layout == "array" else "rows columns entries"
    where = f"{text.where}:{text.number}"
    if line is None:
        raise InputError(f"the file ends before its size line '{wanted}'", where=where)
    sizes = _sizes(line)
    if len(sizes) != len(wanted.split()):
        raise InputError(f"'{printable(line)}' is no size line; it should hold '{wanted}'", where=where)
    if min(sizes) < 0:
        raise InputError(f"'{printable(line)}': no size may be negative", where=where)
    rows, columns = sizes[0], sizes[1]
    if header.symmetry != "general" and rows != columns:
        raise InputError(f"a {header.symmetry} matrix must be square, and this one is {rows} x {columns}", where=where)
    entries = sizes[2] if header.layout == "coordinate" else _array_entries(rows, columns, header.symmetry)
    shape = check_shape((rows, columns), entries, where)
    return replace(header, shape=shape, entries=entries, lines=text.number)


def _array_entries(rows: int, columns: int, symmetry: str) -> int:
    if symmetry == "general":
        return rows * columns
    return rows * (rows - 1) // 2 if symmetry == "skew-symmetric" else rows * (rows + 1) // 2
