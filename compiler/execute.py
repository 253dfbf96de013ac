"""Running a packaged kernel on bound data: pack, lay out, launch, and take the result.

`lay_out` needs the matrix and the sizes only; `prepare` adds the dense operands, on the host, and what the reference needs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sparseditto.compiler.computation import Computation, Operand
from sparseditto.compiler.dtypes import HALVES, dtype_of
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.problem import Problem
from sparseditto.compiler.reference import Check, compare, evaluate
from sparseditto.compiler.runtimes.launches import resolve
from sparseditto.dialects.encoding import Encoding
from sparseditto.dialects.errors import InputError
from sparseditto.dialects.recipes import Recipe, run_recipe

if TYPE_CHECKING:
    import scipy.sparse as sp

    from sparseditto.compiler.matrix import Matrix
    from sparseditto.compiler.runtimes.simt import SimtModule


@dataclass(frozen=True)
class Inputs:
    """Everything that a launch needs.

    `arrays` holds every buffer by name; `sizes` every size; `matrix` and `dense` are what the reference computes with
    (values already rounded to the kernel's dtype); `initial` is the output before the launch where the kernel reads it;
    `scalars` are the numbers by name; `pack_parts` says what `pack_seconds` went into.
    """

    matrix: sp.csr_array
    dense: Mapping[str, np.ndarray]
    initial: np.ndarray | None
    arrays: dict[str, np.ndarray]
    sizes: dict[str, int]
    output_shape: tuple[int, ...]
    pack_seconds: float
    notes: tuple[str, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    pack_parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """What follows from the matrix and the sizes alone: packed and auxiliary arrays by buffer name, and all sizes."""

    arrays: dict[str, np.ndarray]
    sizes: dict[str, int]
    extents: dict[int, int]
    """Of the iteration dimensions, those of blocked levels rounded up to whole blocks."""
    parts: Mapping[str, float]
    """Seconds: `pack`, and each recipe by its name."""

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


def lay_out(package: KernelPackage, problem: Problem) -> Layout:
    """Pack the matrix and run the recipes; no dense operand is looked at.

    Raises `InputError` when the sparse operand is not bound, cannot be stored so, or a size is not known.
    """
    from sparseditto.compiler.packing import pack

    computation = package.computation
    sparse = computation.sparse
    matrix, encoding = _bound(problem, sparse), _encoding(sparse)
    for operand in computation.operands:
        problem.shape(operand)  # refuses first, as packing may take long
    start = time.perf_counter()
    packed = pack(matrix, encoding, dtype_of(sparse.dtype))
    arrays = {f"{sparse.name}.{part}": array for part, array in packed.arrays.items()}
    seconds = {"pack": time.perf_counter() - start}
    extents = _padded(problem, encoding, sparse)
    sizes = {
        f"{sparse.name}.{part}" if part.startswith("lvl") else f"{sparse.name}.{part}.length": n
        for part, n in packed.sizes.items()
    }
    made = auxiliary(package, arrays, sizes, seconds=seconds)
    for operand in computation.operands:
        sizes |= {f"{operand.name}.dim{k}": extents[d] for k, d in enumerate(operand.dims)}
    sizes |= {f"{name}.dim0": len(array) for name, array in made.items()}
    return Layout(arrays | made, sizes, extents, seconds)


def prepare(package: KernelPackage, problem: Problem, seed: int = 0) -> Inputs:
    """Lay out the matrix and the dense operands; those that are not bound are random in [-1, 1).

    Blocked formats work on whole blocks: dense operands are padded with zeros to them.
    Raises `InputError` when the sparse operand or a scalar is not bound or a size is not known.
    """
    computation = package.computation
    sparse = computation.sparse
    scalars = {scalar.name: problem.scalar(scalar) for scalar in computation.scalars}
    bound = _bound(problem, sparse)
    laid = lay_out(package, problem)
    matrix, notes = _rounded(bound.csr, sparse)
    rng = np.random.default_rng(seed)
    dense = {o.name: _dense(problem, o, rng) for o in computation.inputs if not o.sparse}
    initial = _dense(problem, computation.output, rng) if computation.initial is None else None
    arrays = dict(laid.arrays)
    for operand in computation.operands:
        if operand.sparse:
            continue
        shape = tuple(laid.extents[d] for d in operand.dims)
        source = initial if operand is computation.output else dense[operand.name]
        arrays[operand.name] = np.full(shape, np.nan, operand.dtype) if source is None else _pad(source, shape)
        if source is not None and shape != source.shape:
            notes += (f"{operand.name}: padded from {source.shape} to {shape}, whole blocks",)
    shape = problem.shape(computation.output)
    return Inputs(matrix, dense, initial, arrays, laid.sizes, shape, laid.seconds, notes, scalars, laid.parts)


Recipes = MutableMapping[str, Mapping[str, np.ndarray]]
"""What recipes made of one packed operand, by their text."""


def auxiliary(
    package: KernelPackage,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    cache: Recipes | None = None,
    seconds: MutableMapping[str, float] | None = None,
) -> dict[str, np.ndarray]:
    """The arrays that recipes make of the packed operand among `arrays`, by buffer name; `sizes` has the extents of its levels.

    A recipe whose text is in `cache` is not run again; what is run is put there, and its time into `seconds`, by name.
    """
    made = {} if cache is None else cache
    prefix = f"{package.computation.sparse.name}."
    packed = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    packed["extents"] = np.array([n for name, n in sizes.items() if name.startswith(f"{prefix}lvl")])
    buffers = [b for b in package.buffers if b.recipe]
    for buffer in buffers:
        if buffer.recipe not in made:
            run_recipe(Recipe.parse(buffer.recipe), packed, made, seconds)
    return {b.name: made[b.recipe][b.name.rsplit(".", 1)[1]].astype(b.dtype, copy=False) for b in buffers}


def _bound(problem: Problem, sparse: Operand) -> Matrix:
    if problem.matrix is None:
        raise InputError(f"bind a matrix to '{sparse.name}' (--bind {sparse.name}=matrix.mtx)")
    return problem.matrix


def _encoding(sparse: Operand) -> Encoding:
    if sparse.encoding is None:
        raise InputError(f"the package does not say how '{sparse.name}' is stored")
    return sparse.encoding


def _rounded(csr: sp.csr_array, sparse: Operand) -> tuple[sp.csr_array, tuple[str, ...]]:
    """The matrix with its values as the kernel sees them."""
    with np.errstate(over="ignore", invalid="ignore"):
        data = csr.data.astype(dtype_of(sparse.dtype))
    if sparse.dtype in HALVES:
        data = data.astype(np.float32)  # SciPy takes no 16-bit values
    overflowed = int((np.isinf(data) & np.isfinite(csr.data)).sum())
    rounded = type(csr)((data, csr.indices, csr.indptr), shape=csr.shape)
    notes = (f"{sparse.name}: {overflowed} values are beyond {sparse.dtype} and became infinite",) if overflowed else ()
    return rounded, notes


def _dense(problem: Problem, operand: Operand, rng: np.random.Generator) -> np.ndarray:
    shape = problem.shape(operand)
    if operand.name in problem.dense:
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(problem.dense[operand.name], dtype=dtype_of(operand.dtype))
    return rng.uniform(-1.0, 1.0, shape).astype(dtype_of(operand.dtype))


def _padded(problem: Problem, encoding: Encoding, sparse: Operand) -> dict[int, int]:
    """Extents of the iteration dimensions, those of blocked levels rounded up to whole blocks."""
    extents = dict(problem.sizes)
    for level in encoding.levels:
        d = sparse.dims[level.dim]
        extents[d] = -(-extents[d] // level.size) * level.size
    return extents


def _pad(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if array.shape == shape:
        return array.copy()
    return np.pad(array, [(0, n - have) for n, have in zip(shape, array.shape, strict=True)])


def take(inputs: Inputs, output: np.ndarray) -> np.ndarray:
    """The result without padding."""
    return output[tuple(slice(n) for n in inputs.output_shape)]


def run_simt(package: KernelPackage, inputs: Inputs, checks: bool = True, module: SimtModule | None = None) -> np.ndarray:
    """Run all launches under emulation; returns the result.  Raises `CheckFailed` on a fault in the kernel."""
    from sparseditto.compiler.runtimes.simt import SimtModule

    module = module or SimtModule(package.mlir, checks=checks)
    arrays = {name: array.copy() if package.writes(name) else array for name, array in inputs.arrays.items()}
    for launch in resolve(package, inputs.sizes, inputs.scalars):
        arguments = [arrays[a] if isinstance(a, str) else a for a in launch.arguments]
        module.launch(launch.kernel, launch.grid, launch.block, arguments, shared_bytes=launch.shared_bytes)
    return take(inputs, arrays[package.computation.output.name])


def check(computation: Computation, inputs: Inputs, result: np.ndarray) -> Check:
    """Compare with float64."""
    expected, scale = evaluate(computation, inputs.matrix, inputs.dense, inputs.initial, inputs.scalars)
    return compare(result, expected, scale, computation.sum_dtype)
