"""Text files, perhaps compressed, as blocks of whole lines, every line end turned into LF; how messages show text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sparseditto.dialects.errors import InputError

BLOCK = 1 << 20  # bytes that are read at a time
_LONGEST_LINE = 1 << 16
COMPRESSIONS = (".gz", ".bz2", ".xz")


def open_text(path: Path) -> io.BufferedIOBase:
    """`path` for reading, decompressed when its content (not its name) says that it is gzip, bzip2 or xz."""
    with path.open("rb") as file:
        start = file.read(6)
    if start.startswith(b"\x1f\x8b"):
        return gzip.open(path, "rb")
    if start.startswith(b"BZh"):
        return bz2.open(path, "rb")
    return lzma.open(path, "rb") if start == b"\xfd7zXZ\x00" else path.open("rb")


def without_compression(name: str) -> str:
    """A file's name without the suffix that says how it is compressed."""
    suffix = next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


class Text:
    """A text file as lines and then as blocks of whole lines, every line end (CR LF, CR, LF) turned into LF."""

    def __init__(self, stream: io.BufferedIOBase, where: str) -> None:
        self.where = where
        self.number = 0
        self._blocks = _blocks(stream, where)
        self._block = b""
        self._at = 0

    def line(self) -> bytes | None:
        """The next line without its end, or None behind the last one.  `number` is then its number."""
        if self._at == len(self._block):
            self._block, self._at = next(self._blocks, b""), 0
            if not self._block:
                return None
        end = self._block.index(b"\n", self._at)
        line, self._at = self._block[self._at : end], end + 1
        self.number += 1
        return line

    def blocks(self) -> Iterator[bytes]:
        """What is left, in blocks."""
        if self._at < len(self._block):
            yield self._block[self._at :]
        yield from self._blocks


def _blocks(stream: io.BufferedIOBase, where: str) -> Iterator[bytes]:
    rest, number = b"", 1
    while more := stream.read(BLOCK):
        text = rest + more
        held = text[-1:] if text.endswith(b"\r") else b""  # perhaps half of a CR LF
        text = _line_feeds(text[: len(text) - len(held)])
        end = text.rfind(b"\n") + 1
        rest = text[end:] + held
        if end:
            number += count_byte(text, 10)
            yield text[:end]
        if len(rest) > _LONGEST_LINE:
            raise InputError(f"a line of more than {_LONGEST_LINE} characters; is this a text file?", where=f"{where}:{number}")
    if rest:
        yield _line_feeds(rest).removesuffix(b"\n") + b"\n"


def _line_feeds(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


def count_byte(text: bytes, byte: int) -> int:
    """As `bytes.count`, which is slow where there are many."""
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == byte))


class _Feed(io.RawIOBase):
    """Blocks of bytes as a stream."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        super().__init__()
        self._blocks = iter(blocks)
        self._block = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._block:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._block = memoryview(block)
        count = min(len(buffer), len(self._block))
        buffer[:count] = self._block[:count]
        self._block = self._block[count:]
        return count


def stream_of(blocks: Iterable[bytes]) -> io.BufferedReader:
    """The blocks as a file for SciPy's reader; to be closed."""
    return io.BufferedReader(_Feed(blocks), BLOCK)


def printable(text: bytes) -> str:
    """`text` as it may stand in a message: printable and short."""
    line = text.decode("ascii", "backslashreplace")
    line = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)
    return line if len(line) <= 60 else line[:57] + "..."
