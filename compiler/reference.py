"""What a kernel should have computed: float64 on the host, with the bound that each component's error is held to.

The bound of a component is `tolerance * (|A|·|x|)`: the same sum over absolute values, plus the absolute initial
value (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1, with a constant in place of n·u).
The tolerance is that of the type in which the sum is carried.  Where the output's type is narrower, the sum is rounded
once, which may be wrong by the unit roundoff of that type times the result, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.compiler.computation import SCALAR, Computation, Instruction, Operand
from sparseditto.compiler.dtypes import arithmetic, limits
from sparseditto.dialects.errors import Unsupported

if TYPE_CHECKING:
    import scipy.sparse as sp

TOLERANCE = {"float32": 1e-5, "float64": 1e-13}
_CHUNK = 1 << 22  # scalar terms at a time

_REDUCERS: dict[str, np.ufunc] = {
    "arith.addf": np.add,
    "arith.mulf": np.multiply,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
}
_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    **_REDUCERS,
    "arith.subf": np.subtract,
    "arith.divf": np.divide,
    "arith.negf": np.negative,
    "arith.extf": np.asarray,
    "arith.truncf": np.asarray,
    "math.absf": np.abs,
    "math.exp": np.exp,
    "math.sqrt": np.sqrt,
    "math.tanh": np.tanh,
}
# How the magnitudes of arguments combine; what is not here has the magnitude of its value.
_MAGNITUDES: dict[str, Callable[..., np.ndarray]] = {
    "arith.addf": np.add,
    "arith.subf": np.add,
    "arith.mulf": np.multiply,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.maximum,
    "arith.maxnumf": np.maximum,
    "arith.minnumf": np.maximum,
    "arith.negf": np.asarray,
    "arith.extf": np.asarray,
    "arith.truncf": np.asarray,
    "math.absf": np.asarray,
}


@dataclass(frozen=True)
class Check:
    """How far a result is from the reference.

    `worst` is the largest error of a component over the scale `|A|·|x|` of that component, to be compared with
    `tolerance`; `wrong` counts components above it, `skipped` those whose scale the kernel's dtype cannot hold.
    """

    worst: float
    tolerance: float
    wrong: int
    components: int
    skipped: int = 0
    first_wrong: tuple[int, ...] | None = None

    @property
    def passed(self) -> bool:
        return self.wrong == 0

    def to_json(self) -> dict[str, Any]:
        """`worst` is None where it is infinite or not a number, which JSON cannot hold."""
        worst = self.worst if np.isfinite(self.worst) else None
        return {**asdict(self), "worst": worst, "passed": self.passed}


def evaluate(
    computation: Computation,
    matrix: sp.csr_array,
    dense: Mapping[str, np.ndarray],
    initial: np.ndarray | None,
    scalars: Mapping[str, float] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The result and its scale `|A|·|x|`, both float64, of the output's shape.

    `matrix` is the sparse operand, `dense` the other inputs, `initial` the output's old value where the kernel reads it,
    `scalars` the values of scalar arguments.  Raises `Unsupported` when the body does not combine one term into the output.
    """
    out, scalars = computation.output, scalars or {}
    shape = _output_shape(computation, matrix, dense, initial)
    start = _start(computation, shape, initial, scalars)
    result, scale = start.copy(), np.abs(start)
    product = _plain_product(computation, scalars)
    if product is not None:
        operand, factor = product
        return _product(computation, matrix, dense[operand.name], factor, result, scale)
    combiner, term = _split_body(computation, scalars)
    reducer = _REDUCERS[combiner]
    coo = matrix.tocoo()
    free = _free_extents(computation, dense, shape)
    step = max(1, _CHUNK // max(1, int(np.prod([n for _, n in free], dtype=np.int64))))
    with np.errstate(all="ignore"):
        for first in range(0, coo.nnz, step):
            part = slice(first, first + step)
            where = _Where(computation.sparse.dims, (coo.row[part], coo.col[part]), free)
            inputs = [
                where.spread(coo.data[part].astype(np.float64)) if o.sparse else where.take(o, dense[o.name])
                for o in computation.inputs
            ]
            at = where.indices(out)
            value, magnitude = term(inputs)
            reducer.at(result, at, value)
            np.add.at(scale, at, magnitude)
    return result, scale


def _start(
    computation: Computation, shape: tuple[int, ...], initial: np.ndarray | None, scalars: Mapping[str, float]
) -> np.ndarray:
    """What the sum is added to.  Where a factor is 0 the old value is not read."""
    if computation.initial is not None:
        return np.full(shape, computation.initial, np.float64)
    factor = math.prod(scalars[f] if isinstance(f, str) else f for f in computation.initial_scale)
    with np.errstate(all="ignore"):
        return factor * np.array(initial, np.float64) if factor else np.zeros(shape)


def _plain_product(computation: Computation, scalars: Mapping[str, float]) -> tuple[Operand, float] | None:
    """The dense operand and the factor when the computation is a multiple of the sparse matrix times a vector or a matrix.

    SciPy computes those much faster than the general way.
    """
    sparse, out = computation.sparse, computation.output
    old = len(computation.inputs)
    last = computation.body[computation.result - old - 1]
    if old != 2 or last.op != "arith.addf" or last.arguments.count(old) != 1:
        return None
    (term,) = (a for a in last.arguments if a != old)
    factors = _factors(computation, term, scalars)
    if factors is None or sorted(f for f in factors if isinstance(f, int)) != [0, 1]:
        return None
    factor = math.prod(f for f in factors if isinstance(f, float))
    (dense,) = (o for o in computation.inputs if not o.sparse)
    common = [d for d in sparse.dims if d in dense.dims and d not in out.dims]
    kept = [d for d in sparse.dims if d in out.dims and d not in dense.dims]
    free = [d for d in dense.dims if d not in sparse.dims]
    alike = len(common) == len(kept) == 1 and set(dense.dims) == {*common, *free} and set(out.dims) == {*kept, *free}
    return (dense, factor) if alike and len(free) <= 1 else None


def _factors(computation: Computation, value: int, scalars: Mapping[str, float]) -> list[int | float] | None:
    """What the value of that number is a product of: inputs by number, and numbers; None when it is no such product."""
    inputs = len(computation.inputs)
    if value <= inputs:
        return [value] if value < inputs else None
    instruction = computation.body[value - inputs - 1]
    if instruction.op == SCALAR:
        return [float(scalars[instruction.scalar or ""])]
    if instruction.op == "arith.constant":
        return [float(instruction.constant or 0.0)]
    if instruction.op not in ("arith.mulf", "arith.extf", "arith.truncf"):
        return None
    parts = [_factors(computation, a, scalars) for a in instruction.arguments]
    return None if None in parts else [f for part in parts for f in part or ()]


def _product(
    computation: Computation,
    matrix: sp.csr_array,
    dense: np.ndarray,
    factor: float,
    result: np.ndarray,
    scale: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """`factor * matrix @ dense`, either side transposed as the computation's dimensions say."""
    sparse, out = computation.sparse, computation.output
    (operand,) = (o for o in computation.inputs if not o.sparse)
    left = matrix.astype(np.float64)
    if sparse.dims[0] not in out.dims:
        left = left.T.tocsr()
    right = dense.astype(np.float64)
    if operand.dims[0] not in sparse.dims:
        right = right.T
    with np.errstate(all="ignore"):
        product, size = left @ right, abs(left) @ np.abs(right)
        if out.dims[0] not in sparse.dims:
            product, size = product.T, size.T
        if factor != 1.0:
            product, size = factor * product, abs(factor) * size
        return result + product, scale + size


def compare(result: np.ndarray, expected: np.ndarray, scale: np.ndarray, sum_dtype: str | None = None) -> Check:
    """Hold `result` to `TOLERANCE` times `scale`, component by component.

    Sums are carried in `sum_dtype`, which is the result's type unless said otherwise (float32 for 16-bit results); what
    rounding a sum to the result's type may cost is no error.  Where the reference is infinite or NaN the result must be the
    same; underflow below the normal numbers of the sum's type is not an error; a component whose scale is beyond the range of
    the result's type may overflow and is counted as skipped.
    """
    stored = result.dtype.name
    carried = sum_dtype or arithmetic(stored)
    tolerance, own = TOLERANCE[carried], limits(stored)
    underflow = 4 * limits(carried).tiny + (own.least if carried != stored else 0.0)
    value = result.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(value - expected)
        same = (value == expected) | (np.isnan(value) & np.isnan(expected))
        error = np.where(same, 0.0, error)
        if carried != stored:
            rounding = own.unit * (np.abs(expected) + tolerance * scale)
            error = np.where(error <= rounding, 0.0, error - rounding)
        beyond = (scale > own.largest / 2) & np.isfinite(scale) & ~same
        allowed = tolerance * scale + underflow
        wrong = ~(np.isfinite(expected) & (error <= allowed)) & ~beyond & ~same
        relative = np.where(beyond | (error <= underflow), 0.0, error / scale)
        relative = np.where(wrong & ~(relative >= 0), np.inf, relative)
    first = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.any() else None
    worst = float(np.nanmax(relative, initial=0.0))
    return Check(worst, tolerance, int(wrong.sum()), int(value.size), int(beyond.sum()), first)


def _output_shape(
    computation: Computation, matrix: sp.csr_array, dense: Mapping[str, np.ndarray], initial: np.ndarray | None
) -> tuple[int, ...]:
    if initial is not None:
        return initial.shape
    extents = dict(zip(computation.sparse.dims, matrix.shape, strict=True))
    for operand in computation.inputs:
        if not operand.sparse:
            extents.update(zip(operand.dims, dense[operand.name].shape, strict=True))
    return tuple(extents[d] for d in computation.output.dims)


def _free_extents(computation: Computation, dense: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """(dimension, extent) of the iteration dimensions that the sparse operand does not have."""
    extents = dict(zip(computation.output.dims, shape, strict=True))
    for operand in computation.inputs:
        if not operand.sparse:
            extents.update(zip(operand.dims, dense[operand.name].shape, strict=True))
    return [(d, extents[d]) for d in range(len(computation.iterators)) if d not in computation.sparse.dims]


class _Where:
    """Indices of a run of stored entries, broadcast against the free dimensions: shape (entries, *free)."""

    def __init__(self, sparse_dims: Sequence[int], coordinates: Sequence[np.ndarray], free: Sequence[tuple[int, int]]) -> None:
        rank = 1 + len(free)
        self.count = len(coordinates[0])
        self.free = tuple(n for _, n in free)
        self.index = {d: c.reshape((-1,) + (1,) * len(free)) for d, c in zip(sparse_dims, coordinates, strict=True)}
        for place, (d, n) in enumerate(free, start=1):
            self.index[d] = np.arange(n).reshape(tuple(n if k == place else 1 for k in range(rank)))

    def indices(self, operand: Operand) -> tuple[np.ndarray, ...]:
        return tuple(np.broadcast_to(self.index[d], (self.count, *self.free)) for d in operand.dims)

    def take(self, operand: Operand, array: np.ndarray) -> np.ndarray:
        return array[tuple(self.index[d] for d in operand.dims)].astype(np.float64)

    def spread(self, values: np.ndarray) -> np.ndarray:
        return values.reshape((-1,) + (1,) * len(self.free))


def _split_body(
    computation: Computation, scalars: Mapping[str, float]
) -> tuple[str, Callable[[list[np.ndarray]], tuple[np.ndarray, np.ndarray]]]:
    """The combining operation, and the function from inputs to the term that it adds and to that term's magnitude."""
    inputs, body = len(computation.inputs), computation.body
    last = body[computation.result - inputs - 1]
    if last.op not in _REDUCERS or inputs not in last.arguments:
        raise Unsupported(f"the body ends in '{last.op}', which does not combine a term into the output")
    (term,) = (a for a in last.arguments if a != inputs) if last.arguments != (inputs, inputs) else (inputs,)
    if term == inputs or any(inputs in i.arguments for i in body if i is not last):
        raise Unsupported("the output's old value is used for more than to be combined with")

    def function(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return _run(body, [*values, np.zeros(())], term, scalars)

    return last.op, function


def _run(
    body: Sequence[Instruction], values: list[np.ndarray], wanted: int, scalars: Mapping[str, float]
) -> tuple[np.ndarray, np.ndarray]:
    """The value with number `wanted`, and its magnitude: the same expression over absolute values, nothing subtracted."""
    sizes = [np.abs(v) for v in values]
    for instruction in body:
        if len(values) > wanted:
            break
        if instruction.op == SCALAR:
            instruction = Instruction("arith.constant", (), scalars[instruction.scalar or ""])
        value, size = _step(instruction, values, sizes)
        values.append(value)
        sizes.append(size)
    return values[wanted], sizes[wanted]


def _step(instruction: Instruction, values: list[np.ndarray], sizes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    if instruction.op == "arith.constant":
        value = np.asarray(np.float64(instruction.constant or 0.0))
        return value, np.abs(value)
    value = _FUNCTIONS[instruction.op](*(values[a] for a in instruction.arguments))
    if instruction.op == "arith.divf":
        numerator, denominator = instruction.arguments
        return value, sizes[numerator] / np.abs(values[denominator])
    if instruction.op in _MAGNITUDES:
        return value, _MAGNITUDES[instruction.op](*(sizes[a] for a in instruction.arguments))
    return value, np.abs(value)
