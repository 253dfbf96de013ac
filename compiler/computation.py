"""What a kernel computes, as data without MLIR: the reading of its one `linalg` op.

A `Computation` is what the reference, the packer and a packaged kernel need to know on a machine
that has no MLIR.  `kernel.py` reads it from `.mlir`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sparseditto.dialects.encoding import Encoding
from sparseditto.dialects.errors import InputError

SCALAR = "scalar"  # the instruction that reads a scalar argument


@dataclass(frozen=True)
class Operand:
    """One tensor of the computation.

    `dims[k]` is the iteration dimension that indexes tensor dimension k; `shape[k]` is its static size or
    None.  `dtype` is NumPy's name (float16, bfloat16, float32, float64).  `sparse` operands have an `encoding` once it is
    chosen (`pinned` when the file chose it).
    """

    name: str
    argument: int | None
    dtype: str
    shape: tuple[int | None, ...]
    dims: tuple[int, ...]
    sparse: bool = False
    pinned: bool = False
    encoding: Encoding | None = None

    @staticmethod
    def from_json(data: dict[str, Any]) -> Operand:
        encoding = data["encoding"]
        return Operand(
            **{
                **data,
                "shape": tuple(data["shape"]),
                "dims": tuple(data["dims"]),
                "encoding": Encoding.from_json(encoding) if encoding else None,
            }
        )


@dataclass(frozen=True)
class Scalar:
    """One number that a launch is given.  `dtype` is NumPy's name (float32, float64)."""

    name: str
    argument: int
    dtype: str


@dataclass(frozen=True)
class Instruction:
    """One scalar operation of the body: `op` is an MLIR name, or `SCALAR`; arguments are value numbers.

    Values are numbered: inputs in order, then the output's old value, then one per instruction.
    `constant` is the value of an `arith.constant`; `scalar` names the argument that a `SCALAR` reads.
    """

    op: str
    arguments: tuple[int, ...] = ()
    constant: float | None = None
    scalar: str | None = None


@dataclass(frozen=True)
class Computation:
    """`output[dims] = body(inputs[dims]…, output[dims])` over the iteration space, reduced where dims are missing.

    `initial` is the value that the output starts from, or None when the output operand itself is read.  It is multiplied
    by `initial_scale`, scalars by name and constants; where their product is 0 the output's old value is not read.
    `sum_dtype` is the type in which the sum is carried where that is wider than the output's.
    """

    entry: str
    op: str
    iterators: tuple[str, ...]
    inputs: tuple[Operand, ...]
    output: Operand
    initial: float | None
    body: tuple[Instruction, ...]
    result: int
    scalars: tuple[Scalar, ...] = ()
    initial_scale: tuple[str | float, ...] = ()
    sum_dtype: str | None = None

    @property
    def rounds(self) -> bool:
        """Whether the sum is carried in a wider type than the output's, and rounded once at the end."""
        return self.sum_dtype is not None

    @property
    def sparse(self) -> Operand:
        """The one sparse operand."""
        return next(operand for operand in self.inputs if operand.sparse)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Inputs, then the output."""
        return (*self.inputs, self.output)

    def reads(self) -> set[int]:
        """Numbers of the inputs that the result depends on."""
        first = len(self.inputs) + 1
        found, ahead = set[int](), [self.result]
        while ahead:
            value = ahead.pop()
            if value >= first:
                ahead += self.body[value - first].arguments
            elif value < len(self.inputs):
                found.add(value)
        return found

    def size_names(self) -> dict[str, int]:
        """Names under which a user may give an iteration dimension's size: `d0`…, and M, N, K where they mean something.

        M and N are the sparse matrix's rows and columns; K is the one dimension that no sparse operand has
        (the dense width of SpMM).
        """
        names = {f"d{d}": d for d in range(len(self.iterators))}
        if len(self.sparse.dims) == 2:
            names |= {"M": self.sparse.dims[0], "N": self.sparse.dims[1]}
        free = [d for d in range(len(self.iterators)) if d not in self.sparse.dims]
        if len(free) == 1:
            names["K"] = free[0]
        return names

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Computation:
        """Rebuild from `to_json`.  Raises `InputError` on anything else."""
        try:
            return Computation(
                **{
                    **data,
                    "iterators": tuple(data["iterators"]),
                    "inputs": tuple(Operand.from_json(o) for o in data["inputs"]),
                    "output": Operand.from_json(data["output"]),
                    "body": tuple(Instruction(**{**i, "arguments": tuple(i["arguments"])}) for i in data["body"]),
                    "scalars": tuple(Scalar(**s) for s in data.get("scalars", ())),
                    "initial_scale": tuple(data.get("initial_scale", ())),
                }
            )
        except (KeyError, TypeError) as e:
            raise InputError(f"this is no stored computation: {e}") from e
