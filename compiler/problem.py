"""Binding: which matrix and which dense arrays a kernel runs on, and the sizes that follow from them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.computation import Computation, Operand, Scalar
from sparseditto.compiler.dtypes import as_wanted, dtype_of, is_real, limits
from sparseditto.compiler.matrix import counted
from sparseditto.dialects.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from sparseditto.compiler.matrix import Matrix


@dataclass(frozen=True)
class Problem:
    """A computation with what is bound to it.

    `matrix` is the sparse operand, `dense` the bound dense arrays by operand name, `sizes` the extent of each
    iteration dimension that is known, `scalars` the bound numbers by name.  `notes` is what the readers have to say.
    """

    computation: Computation
    matrix: Matrix | None
    dense: Mapping[str, np.ndarray] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)

    def scalar(self, scalar: Scalar) -> float:
        """The value of a scalar argument, as its type holds it.  Raises `InputError` when it is not bound."""
        if scalar.name not in self.scalars:
            raise InputError(f"bind a number to the scalar '{scalar.name}' (--bind {scalar.name}=1.0)")
        return self.scalars[scalar.name]

    def shape(self, operand: Operand) -> tuple[int, ...]:
        """The operand's shape.  Raises `InputError` when a size is not known."""
        for k, d in enumerate(operand.dims):
            if d not in self.sizes:
                names = [name for name, dim in self.computation.size_names().items() if dim == d]
                raise InputError(
                    f"the size of dimension {k} of '{operand.name}' is not known; "
                    f"bind an operand that has it or give --size {names[-1]}=…"
                )
        return tuple(self.sizes[d] for d in operand.dims)


def bind(
    computation: Computation,
    bindings: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
    fixed: Mapping[int, int] | None = None,
) -> Problem:
    """Bind operands to files or objects.

    A key of `bindings` is an operand's name or `arg0`, `arg1`, …; a value is a path (for the sparse operand what
    `matrix_io.load_matrix` reads, with options behind a comma when it is text; `.npy` for dense ones), a matrix or array of
    SciPy, NumPy, torch or CuPy, and for a scalar a number or its text.
    `sizes` are extents by name (`Computation.size_names`, or `B.1` for dimension 1 of B).  `fixed` are extents that a
    compiled kernel has already.

    Raises `InputError` on unknown names, unreadable files, shapes that do not agree and scalars that are no finite number.
    """
    for operand in computation.operands:
        dtype_of(operand.dtype)  # a type that is missing is told at once
    extents = _Extents(computation)
    for d, n in (fixed or {}).items():
        extents.set(d, n, "the compiled kernel")
    for operand in computation.operands:
        for d, size in zip(operand.dims, operand.shape, strict=True):
            if size is not None:
                extents.set(d, size, f"the type of '{operand.name}'")
    matrix, notes = None, list[str]()
    dense: dict[str, np.ndarray] = {}
    scalars: dict[str, float] = {}
    for key, value in bindings.items():
        argument = _argument(computation, key)
        if isinstance(argument, Scalar):
            if argument.name in scalars:
                raise InputError(f"'{argument.name}' is bound twice")
            scalars[argument.name] = _number(value, argument)
            continue
        operand = argument
        if operand.sparse:
            if matrix is not None:
                raise InputError(f"'{operand.name}' is bound twice")
            matrix = _matrix(value)
            notes += [f"{operand.name}: {note}" for note in matrix.notes]
            shape = matrix.csr.shape
        else:
            if operand.name in dense:
                raise InputError(f"'{operand.name}' is bound twice")
            dense[operand.name] = _array(value, operand)
            notes += _rounding(dense[operand.name], operand)
            shape = dense[operand.name].shape
        for d, n in zip(operand.dims, shape, strict=True):
            extents.set(d, int(n), f"what is bound to '{operand.name}'")
    for name, n in (sizes or {}).items():
        extents.set(_dimension(computation, name), n, f"--size {name}")
    return Problem(computation, matrix, dense, extents.known, tuple(notes), scalars)


class _Extents:
    """Sizes of the iteration dimensions, each with where it came from."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.known: dict[int, int] = {}
        self._source: dict[int, str] = {}

    def set(self, d: int, n: int, source: str) -> None:
        if not 0 <= n < 2**63:
            raise InputError(f"{source} gives a size of {n}")
        if self.known.setdefault(d, n) != n:
            users = ", ".join(f"dimension {o.dims.index(d)} of '{o.name}'" for o in self.computation.operands if d in o.dims)
            raise InputError(f"{source} gives size {n}, but {self._source[d]} gives {self.known[d]} ({users})")
        self._source.setdefault(d, source)


def _argument(computation: Computation, key: str) -> Operand | Scalar:
    """What is called `key` among the kernel's operands and scalars."""
    found: tuple[Operand | Scalar, ...] = (*computation.operands, *computation.scalars)
    arguments = [a for a in found if a.argument is not None]
    names: dict[str, Operand | Scalar] = {a.name: a for a in arguments}
    for argument in arguments:
        names.setdefault(f"arg{argument.argument}", argument)
    if key not in names:
        there = ", ".join(a.name for a in arguments)
        raise InputError(f"the kernel has no operand '{key}'{did_you_mean(key, names)}; it has {there}")
    return names[key]


def _number(value: Any, scalar: Scalar) -> float:
    """A finite number as the scalar's type holds it.

    Rows may be cut, and an infinite factor of a sum is not one of its parts.
    """
    try:
        with np.errstate(over="ignore"):
            number = float(np.dtype(scalar.dtype).type(float(value)))
    except (TypeError, ValueError) as e:
        raise InputError(f"'{value}' is no number; bind one, as in {scalar.name}=1.0", where=f"'{scalar.name}'") from e
    if not math.isfinite(number):
        raise InputError(f"{value} is not finite in {scalar.dtype}", where=f"'{scalar.name}'")
    return number


def _dimension(computation: Computation, name: str) -> int:
    names = computation.size_names()
    if name in names:
        return names[name]
    operand_name, dot, place = name.rpartition(".")
    if dot and re.fullmatch(r"[0-9]+", place):
        found = _argument(computation, operand_name)
        operand = found if isinstance(found, Operand) else None
        if operand is not None and int(place) < len(operand.dims):
            return operand.dims[int(place)]
    raise InputError(f"no size is named '{name}'; there are {', '.join(names)}, and NAME.0, NAME.1 for an operand's dimensions")


def _matrix(value: Any) -> Matrix:
    from sparseditto.compiler.matrix_io import Source, load_matrix
    from sparseditto.compiler.matrix_objects import from_object

    if not isinstance(value, (str, Path)):
        return from_object(value)
    source = Source.parse(value) if isinstance(value, str) else Source(value)
    return load_matrix(source.path, source.options)


def _array(value: Any, operand: Operand) -> np.ndarray:
    from sparseditto.compiler.matrix_objects import as_array
    from sparseditto.compiler.matrix_triplets import load_npy

    where = f"'{operand.name}'"
    if isinstance(value, (str, Path)):
        where = str(value)
        if Path(value).suffix != ".npy":
            raise InputError(f"'{operand.name}' is dense: bind a .npy file", where=where)
        array = load_npy(Path(value))
    else:
        try:
            array = as_array(value)
        except InputError as e:
            raise InputError(e.message, where=where) from e
    array = as_wanted(array, operand.dtype)
    if array.ndim != len(operand.dims):
        raise InputError(f"has {array.ndim} dimensions, '{operand.name}' has {len(operand.dims)}", where=where)
    if not is_real(array.dtype):
        raise InputError(f"holds {array.dtype}, which is no real number type", where=where)
    return array


def _rounding(array: np.ndarray, operand: Operand) -> list[str]:
    """What to say of integers that the operand's type cannot hold exactly."""
    if array.dtype.kind not in "iu":
        return []
    exact = int(1 / limits(operand.dtype).unit)
    most = np.iinfo(array.dtype).max
    rounded = int(np.count_nonzero((array > exact) | (array < -exact))) if most > exact else 0
    what = counted(rounded, "integer", "integers")
    return [f"{operand.name}: {what} beyond {exact} may be rounded to {operand.dtype}"] if rounded else []


def parse_sizes(words: Sequence[str]) -> dict[str, int]:
    """`["K=64"]` as a dictionary.  Raises `InputError` on anything else."""
    sizes: dict[str, int] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip() or not re.fullmatch(r"[0-9]+", text.strip()):
            raise InputError(f"'{word}' is no size; write NAME=NUMBER, as in K=64")
        if name.strip() in sizes:
            raise InputError(f"size '{name.strip()}' is given twice")
        sizes[name.strip()] = int(text)
    return sizes


def parse_bindings(words: Sequence[str]) -> dict[str, str]:
    """`["A=a.mtx"]` as a dictionary.  Raises `InputError` on anything else."""
    bindings: dict[str, str] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or not name.strip() or not path:
            raise InputError(f"'{word}' is no binding; write OPERAND=FILE, as in A=matrix.mtx, or SCALAR=NUMBER")
        if name.strip() in bindings:
            raise InputError(f"'{name.strip()}' is bound twice")
        bindings[name.strip()] = path
    return bindings
