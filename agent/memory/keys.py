"""What a measurement depends on: two tasks share times only where all of this is equal.

Fingerprints and versions are passed in: nothing here knows a compiler or a matrix.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

EMULATOR = "emulator"  # the name of the GPU that is none
WARM = "warm"
NAMED = "name:"  # begins a `Structure.pattern` that is not a hash


@dataclass(frozen=True)
class Structure:
    """A sparsity pattern.  `pattern` is a hash of sizes, positions and coordinates, and of what passes ask of the values.

    Of a matrix that is known by name only it is `name:` with that name, which equals no hash.
    """

    pattern: str
    rows: int
    columns: int
    entries: int


@dataclass(frozen=True)
class Operator:
    """A computation.  `kernel` is the fingerprint that plans name; `encoding` the storage that the kernel pins (empty: free).

    `dtypes` are NumPy's names, each once, sorted, with commas between; `computation` is the canonical text that `kernel` is the
    hash of (empty: not known).
    """

    kernel: str
    encoding: str
    dtypes: str
    computation: str = field(default="", compare=False)


@dataclass(frozen=True)
class Gpu:
    """`capability` is CUDA's (9.0); the emulator has none."""

    name: str
    capability: str

    @property
    def emulated(self) -> bool:
        return self.name == EMULATOR


@dataclass(frozen=True)
class Compiler:
    """Versions of the project and of the two MLIR wheels, and a digest of the code that shapes kernels, plugins included."""

    project: str
    mlir: str
    llvm: str
    code: str


@dataclass(frozen=True)
class TaskKey:
    """What equal times need to be equal.

    `K` are the sizes of the dimensions that the sparse operand lacks (none for SpMV, one for SpMM); `chip` is the PTX target;
    `caches` is "warm", or "cold" where the caches were emptied before each call.
    """

    structure: Structure
    operator: Operator
    K: tuple[int, ...]
    chip: str
    gpu: Gpu
    compiler: Compiler
    caches: str = WARM

    def digest(self) -> str:
        """Sixteen hexadecimal digits that name the task in exported files."""
        return hashlib.sha256(canonical(self._identity()).encode()).hexdigest()[:16]

    def _identity(self) -> dict[str, Any]:
        """What sets tasks apart; the rest follows from it."""
        data = asdict(self)
        data["structure"] = self.structure.pattern
        data["operator"] = [self.operator.kernel, self.operator.encoding]
        return data

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "K": list(self.K)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TaskKey:
        """Read `to_json`'s, whose fields `exchange` has checked."""
        return TaskKey(
            Structure(**data["structure"]),
            Operator(**data["operator"]),
            tuple(data["K"]),
            data["chip"],
            Gpu(**data["gpu"]),
            Compiler(**data["compiler"]),
            data["caches"],
        )


def canonical(data: Any) -> str:
    """The one JSON text of a value.  Raises `ValueError` for infinities and NaN, which JSON lacks."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
