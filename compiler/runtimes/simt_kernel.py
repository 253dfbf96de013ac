"""What is left to know of a kernel once it is host code: its arguments, its buffers, and the sites of its checks.

The numbers are those of `simt.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass

READ_ONLY, SHARED, PRIVATE = 1, 2, 4
LOAD, STORE, ATOMIC = 1, 2, 4

# Element type: its bytes, and the NumPy names that an array may have.  A bfloat16 array is one of another
# package's type, or the bits of it.
ELEMENTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "i8": (1, ("int8", "uint8")),
    "i16": (2, ("int16", "uint16")),
    "i32": (4, ("int32", "uint32")),
    "i64": (8, ("int64", "uint64")),
    "index": (8, ("int64", "uint64")),
    "f16": (2, ("float16",)),
    "bf16": (2, ("bfloat16", "uint16")),
    "f32": (4, ("float32",)),
    "f64": (8, ("float64",)),
}


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel: a pointer to `element`s, or a scalar of that type."""

    name: str
    element: str
    pointer: bool
    read_only: bool = False
    align: int = 1


@dataclass(frozen=True)
class Buffer:
    """Memory that a kernel can touch.  `argument` is its place among the arguments; shared and private memory has none.

    `count` is the number of elements where the IR fixes it: 0 for an argument, -1 for dynamic shared memory.
    """

    name: str
    unit: int
    count: int
    flags: int
    argument: int | None = None


@dataclass(frozen=True)
class Site:
    """An operation that the runtime may have to name; see `DittoSite` in simt.cpp."""

    where: str
    kind: int = 0
    buffer: int = -1
    bytes: int = 1
    lanes: int = 1
    align: int = 1
    masked: bool = False


@dataclass(frozen=True)
class Kernel:
    """What is left to know of a kernel once it is host code."""

    name: str
    symbol: str
    arguments: tuple[Argument, ...]
    buffers: tuple[Buffer, ...]
    sites: tuple[Site, ...]
    block: tuple[int, int, int] | None
    stack_bytes: int
