"""Whether the body of a Matrix Market file can be given to SciPy's reader, and what is wrong with it if not.

The reader believes what it is given: it takes 3.5 for the integer 3, 1.5D3 for 1.5, and the index 1.5 for an index 1 with
the value 0.5; it allocates what the size line promises, and crashes on a NUL or a lone carriage return.  So every body is
first checked here, a block at a time and without a loop over entries, and the reader sees only text that has passed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.market_header import LAYOUTS, Header
from sparseditto.compiler.matrix import counted
from sparseditto.compiler.text_blocks import Text, count_byte, printable
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]


def tidy(block: bytes) -> bytes:
    """`block` without comments, leading plus signs and Fortran exponents, which SciPy does not take.  Keeps the lines."""
    if b"%" in block:
        block = re.sub(rb"(?m)^[ \t]*%.*$", b"", block)
    if b"D" in block or b"d" in block:
        block = re.sub(rb"(?<=[0-9.])[dD](?=[-+0-9])", b"e", block)
    if b"+" in block and _has_leading_plus(block):
        block = re.sub(rb"(?<![^ \t\n])\+(?=[0-9.iInN])", b" ", block)
    return block


def _has_leading_plus(block: bytes) -> bool:
    array = np.frombuffer(b"\n" + block, dtype=np.uint8)
    before = array[np.flatnonzero(array == ord("+")) - 1]
    return bool((before <= ord(" ")).any())


# Each byte has a class, and each pair of neighbouring classes is illegal, dull, or a mark.  A few marks a line are
# then what is left to look at: they say how many numbers a line has, whether a number has two points, and whether an
# index has one.  Grammar that this does not see (a point without digits, the range of an index) SciPy refuses.

_SPACE, _NEWLINE, _DIGIT, _SIGN, _POINT, _EXPONENT, _LETTER = range(1, 8)  # class 0: anything else
_CLASS_BYTES = {
    _SPACE: b" \t",
    _NEWLINE: b"\n",
    _DIGIT: b"0123456789",
    _SIGN: b"+-",
    _POINT: b".",
    _EXPONENT: b"eE",
    _LETTER: b"infatyINFATY",
}
_GAP = frozenset({_SPACE, _NEWLINE})
_NUMBER_CLASSES = {
    "real": {_DIGIT, _SIGN, _POINT, _EXPONENT, _LETTER},
    "integer": {_DIGIT, _SIGN},
    "unsigned-integer": {_DIGIT},
    "pattern": {_DIGIT, _SIGN},
}
_FOLLOWERS = {
    _SPACE: _GAP | {_DIGIT, _SIGN, _POINT, _LETTER},
    _NEWLINE: _GAP | {_DIGIT, _SIGN, _POINT, _LETTER},
    _DIGIT: _GAP | {_DIGIT, _POINT, _EXPONENT},
    _SIGN: {_DIGIT, _POINT, _LETTER},
    _POINT: _GAP | {_DIGIT, _EXPONENT},
    _EXPONENT: {_DIGIT, _SIGN},
    _LETTER: _GAP | {_LETTER},
}
_DULL, _START, _START_AT_POINT, _START_AT_LETTER, _LETTER_AT_SIGN, _INNER_POINT, _POWER, _END_OF_LINE, _ILLEGAL = range(9)
_STARTS = {_START, _START_AT_POINT, _START_AT_LETTER}
_WORDS = {_START_AT_LETTER, _LETTER_AT_SIGN}
_VALUE = {
    "real": (re.compile(rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.I), "a number"),
    "integer": (re.compile(rb"[+-]?\d+"), "an integer"),
    "unsigned-integer": (re.compile(rb"\d+"), "an integer of at least 0"),
}


def _class_table(field: str) -> bytes:
    table = bytearray(256)
    for kind in _GAP | _NUMBER_CLASSES[field]:
        for byte in _CLASS_BYTES[kind]:
            table[byte] = kind
    return bytes(table)


def _mark(before: int, after: int) -> int:
    if after not in _FOLLOWERS.get(before, ()):
        return _ILLEGAL
    if before in _GAP and after not in _GAP:
        return {_POINT: _START_AT_POINT, _LETTER: _START_AT_LETTER}.get(after, _START)
    if (before, after) == (_SIGN, _LETTER):
        return _LETTER_AT_SIGN
    return {_NEWLINE: _END_OF_LINE, _POINT: _INNER_POINT, _EXPONENT: _POWER}.get(after, _DULL)


def _is_illegal(before: int, after: int, layout: str) -> bool:
    """Whether a number has two points, two powers or a point in its power; or, as an index, any of these or letters."""
    if after == _INNER_POINT:
        return before in (_INNER_POINT, _START_AT_POINT, _POWER)
    if after == _POWER:
        return before == _POWER
    return layout == "coordinate" and after in _STARTS and before not in (_START, _END_OF_LINE)


_MARKS = bytes(_mark(pair >> 4, pair & 15) for pair in range(256))
_ILLEGAL_MARKS = {layout: bytes(_is_illegal(pair >> 4, pair & 15, layout) for pair in range(256)) for layout in LAYOUTS}
_COUNTED = bytes(_START if mark in _STARTS else mark for mark in range(256))


def _pairs(codes: bytes, table: bytes) -> bytes:
    """For each pair of neighbours in `codes`, what `table` says of `before * 16 + after`."""
    array = np.frombuffer(codes, dtype=np.uint8)
    pairs: Array = array[:-1] << 4
    pairs |= array[1:]
    return pairs.tobytes().translate(table)


def check_body(text: Text, header: Header) -> bool:
    """Check all of the body but the values of indices.  Returns whether a value is a word (inf, nan)."""
    classes = _class_table(header.field)
    entries, words = 0, False
    number = header.lines
    for block in map(tidy, text.blocks()):
        marks = _pairs((b"\n" + block).translate(classes), _MARKS).translate(None, bytes([_DULL]))
        found = _count_entries(marks, header)
        has_words = any(mark in marks for mark in _WORDS)
        if found is None or (has_words and not _only_known_words(block)):
            raise first_complaint([block], number, header, text.where)
        if entries + found > header.entries:
            line = number + _nth_content(block, header.entries - entries, header)
            promise = counted(header.entries, "entry", "entries")
            raise InputError(f"the size line promises {promise}, and here is one more", where=f"{text.where}:{line}")
        entries += found
        words = words or has_words
        number += count_byte(block, 10)
    if entries < header.entries:
        promise = counted(header.entries, "entry", "entries")
        raise InputError(f"the size line promises {promise}, and the file has {entries}", where=f"{text.where}:{number}")
    return words


def _count_entries(marks: bytes, header: Header) -> int | None:
    """Entries (numbers of an array file) in a block with these marks, or None when something in it is wrong."""
    if _ILLEGAL in marks or 1 in _pairs(marks, _ILLEGAL_MARKS[header.layout]):
        return None
    lines = marks.translate(_COUNTED, bytes([_LETTER_AT_SIGN, _INNER_POINT, _POWER]))
    starts = count_byte(lines, _START)
    if header.layout == "array":
        return starts
    rest = lines.replace(bytes([_START] * header.numbers + [_END_OF_LINE]), b"")  # leaves blank lines, and bad ones
    return None if _START in rest else starts // header.numbers


def _only_known_words(block: bytes) -> bool:
    words = set(re.findall(rb"(?i)(?<![a-z0-9.])[a-z]+", block))
    return {word.lower() for word in words} <= {b"inf", b"infinity", b"nan"}


def first_complaint(blocks: Iterable[bytes], number: int, header: Header, where: str) -> InputError:
    """What is wrong in these blocks, which begin behind line `number`."""
    for line in itertools.chain.from_iterable(block.splitlines() for block in blocks):
        number += 1
        if complaint := complaint_about(line, header):
            return InputError(complaint, where=f"{where}:{number}")
    return InputError("this is no Matrix Market text", where=where)


def complaint_about(line: bytes, header: Header) -> str | None:
    """What is wrong with this line of the body, or None."""
    if strange := re.search(rb"[^!-~ \t]", line):
        return f"'{printable(strange[0])}' may not stand in a number"
    words = line.split()
    shown = printable(line.strip())
    if header.layout == "coordinate":
        names = ("row", "column", "value")[: header.numbers]
        if words and len(words) != len(names):
            found = counted(len(words), "number", "numbers")
            return f"'{shown}' has {found}; a line of a {header.field} matrix has {len(names)}: {', '.join(names)}"
        for name, word, size in zip(names, words[:2], header.shape, strict=False):
            if not re.fullmatch(rb"[+-]?\d+", word):
                return f"{name} '{printable(word)}' is not an integer"
            if len(word) > 25 or not 1 <= int(word) <= size:
                return f"{name} {printable(word)} is outside 1..{size}; rows and columns count from 1"
        words = words[2:]
    pattern, what = _VALUE.get(header.field, _VALUE["real"])
    wrong = next((word for word in words if not pattern.fullmatch(word)), None)
    return None if wrong is None else f"value '{printable(wrong)}' is not {what}"


def _nth_content(block: bytes, entry: int, header: Header) -> int:
    """Number, from 1, of the line of `block` that holds its entry `entry`, from 0."""
    for number, line in enumerate(block.splitlines(), start=1):
        entry -= len(line.split()) // header.numbers
        if entry < 0:
            return number
    return 0
