"""What several test files share: kernels as text, small matrices that are hard in some way, and the independent check."""

from __future__ import annotations

import itertools
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from mlir import ir

from sparseditto.compiler.api import Result, compile_file, run
from sparseditto.compiler.computation import Computation
from sparseditto.compiler.kernel import read_kernel
from sparseditto.dialects.binding import context
from sparseditto.dialects.encoding import Encoding, Level
from sparseditto.passes.registry import registry

Array = np.ndarray[Any, Any]
os.environ["SPARSEDITTO_DB"] = os.devnull  # nothing is known from outside; a test that tunes names its own database
SWEEP_SHARE = 4  # `make test` runs one case in so many of a sweep, the same ones each time; `make test-full` all


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Most cases of a module's sweeps (`pytestmark = pytest.mark.sweep`) are slow tests."""
    for item in items:
        swept = item.get_closest_marker("sweep") is not None and hasattr(item, "callspec")
        if swept and zlib.crc32(item.nodeid.encode()) % SWEEP_SHARE:
            item.add_marker(pytest.mark.slow)


SHARED = Path(__file__).resolve().parents[1].parent / "shared"
DTYPES = {"f32": "float32", "f64": "float64"}
TOLERANCE = {"float32": 1e-5, "float64": 1e-13}


# --- Kernels ------------------------------------------------------------------------------------------


def matvec(e: str = "f32", fill: float | None = None, a: str | None = None) -> str:
    """`y = A x + y`, or `y = A x + fill`; `a` is the type of A when it is pinned."""
    mark, a = ("", a) if a else (" {ditto.sparse}", f"tensor<?x?x{e}>")
    vector = f"tensor<?x{e}>"
    product = f"%r = linalg.matvec ins(%A, %x : {a}, {vector}) outs(%y : {vector}) -> {vector}"
    if fill is None:
        return f"""func.func @spmv(%A: {a}{mark}, %x: {vector}, %y: {vector}) -> {vector} {{
  {product}
  return %r : {vector}
}}"""
    return f"""func.func @spmv(%A: {a}{mark}, %x: {vector}) -> {vector} {{
  %c0 = arith.constant 0 : index
  %v = arith.constant {fill} : {e}
  %m = tensor.dim %A, %c0 : {a}
  %e = tensor.empty(%m) : {vector}
  %y = linalg.fill ins(%v : {e}) outs(%e : {vector}) -> {vector}
  {product}
  return %r : {vector}
}}"""


def matmul(e: str = "f32", fill: float | None = 0.0, a: str | None = None) -> str:
    """`C = A B + fill`, or `C = A B + C`."""
    mark, a = ("", a) if a else (" {ditto.sparse}", f"tensor<?x?x{e}>")
    dense = f"tensor<?x?x{e}>"
    product = f"%r = linalg.matmul ins(%A, %B : {a}, {dense}) outs(%C : {dense}) -> {dense}"
    if fill is None:
        return f"""func.func @spmm(%A: {a}{mark}, %B: {dense}, %C: {dense}) -> {dense} {{
  {product}
  return %r : {dense}
}}"""
    return f"""func.func @spmm(%A: {a}{mark}, %B: {dense}) -> {dense} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = arith.constant {fill} : {e}
  %m = tensor.dim %A, %c0 : {a}
  %k = tensor.dim %B, %c1 : {dense}
  %e = tensor.empty(%m, %k) : {dense}
  %C = linalg.fill ins(%v : {e}) outs(%e : {dense}) -> {dense}
  {product}
  return %r : {dense}
}}"""


def generic(maps: str, iterators: str, body: str, *, types: str, e: str = "f32") -> str:
    """`linalg.generic` with A sparse, a dense `x` and an output `y` that is read.

    `maps` are three indexing maps, `types` the tensor types of A, x and y; `body` computes `%r` from `%a`, `%b` and `%c`.
    """
    a, x, y = types.split(", ")
    names = ", ".join(f'"{i}"' for i in iterators.split())
    return f"""func.func @f(%A: {a} {{ditto.sparse}}, %x: {x}, %y: {y}) -> {y} {{
  %out = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{names}]}}
    ins(%A, %x : {a}, {x}) outs(%y : {y}) {{
  ^bb0(%a: {e}, %b: {e}, %c: {e}):
    {body}
    linalg.yield %r : {e}
  }} -> {y}
  return %out : {y}
}}"""


PRODUCT = "%t = arith.mulf %a, %b : f32\n    %r = arith.addf %c, %t : f32"


def transposed_matvec(e: str = "f32") -> str:
    """`y = A^T x + y`."""
    return generic(
        "affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>",
        "parallel reduction",
        PRODUCT.replace("f32", e),
        types=f"tensor<?x?x{e}>, tensor<?x{e}>, tensor<?x{e}>",
        e=e,
    )


def transposed_matmul(e: str = "f32") -> str:
    """`C = A^T B + C`."""
    return generic(
        "affine_map<(i, k, j) -> (j, i)>, affine_map<(i, k, j) -> (j, k)>, affine_map<(i, k, j) -> (i, k)>",
        "parallel parallel reduction",
        PRODUCT.replace("f32", e),
        types=f"tensor<?x?x{e}>, tensor<?x?x{e}>, tensor<?x?x{e}>",
        e=e,
    )


def computation(text: str) -> Computation:
    """What the kernel computes."""
    with context():
        return read_kernel(text).computation


# --- Encodings ----------------------------------------------------------------------------------------

UNNAMED_ENCODINGS = {
    "coo": Encoding((Level(0, "compressed", unique=False), Level(1, "singleton"))),
    "loose csr": Encoding((Level(0), Level(1, "loose_compressed"))),
    "dense": Encoding((Level(0), Level(1))),
    "bsc": Encoding(
        (
            Level(1, "dense", "floordiv", 3),
            Level(0, "compressed", "floordiv", 2),
            Level(1, "dense", "mod", 3),
            Level(0, "dense", "mod", 2),
        )
    ),
    "sparse blocks": Encoding(
        (
            Level(0, "compressed", "floordiv", 2),
            Level(1, "compressed", "floordiv", 3),
            Level(0, "dense", "mod", 2),
            Level(1, "compressed", "mod", 3),
        )
    ),
}


# --- Matrices -----------------------------------------------------------------------------------------


def _staircase() -> sp.csr_array:
    """Rows of length 0 to 65, then empty rows: every remainder of every unrolling and of every group of lanes."""
    rng = np.random.default_rng(1)
    rows = [np.sort(rng.choice(67, size=length, replace=False)) for length in range(66)]
    indptr = np.cumsum([0, *map(len, rows), 0, 0, 0])
    indices = np.concatenate(rows)
    return sp.csr_array((rng.uniform(-1, 1, indices.size), indices, indptr), shape=(69, 67))


def _only(shape: tuple[int, int], row: int | None = None, column: int | None = None) -> sp.csr_array:
    dense = np.zeros(shape)
    rng = np.random.default_rng(2)
    where = (slice(None) if row is None else row, slice(None) if column is None else column)
    dense[where] = rng.uniform(0.5, 1.5, dense[where].shape)
    return sp.csr_array(dense)


def of_lengths(lengths: list[int], columns: int = 1003) -> sp.csr_array:
    """A matrix whose rows have these numbers of entries, in columns at random."""
    rng = np.random.default_rng(4)
    rows = [np.sort(rng.choice(columns, size=n, replace=False)) for n in lengths]
    values = rng.uniform(-1, 1, sum(lengths))
    return sp.csr_array((values, np.concatenate([*rows, []]).astype(int), np.cumsum([0, *lengths])), (len(lengths), columns))


def _special() -> sp.csr_array:
    """NaN, both infinities, -0, a stored zero, a subnormal and large values."""
    values = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3e38, -3e38, 1.0]
    return sp.csr_array((values, (range(9), [0, 1, 2, 3, 4, 5, 6, 6, 8])), shape=(10, 9))


MATRICES: dict[str, Callable[[], sp.csr_array]] = {
    "staircase": _staircase,
    "0x0": lambda: sp.csr_array((0, 0)),
    "0x5": lambda: sp.csr_array((0, 5)),
    "5x0": lambda: sp.csr_array((5, 0)),
    "no entries": lambda: sp.csr_array((7, 6)),
    "1x1": lambda: sp.csr_array([[2.0]]),
    "1xn": lambda: sp.csr_array(np.arange(1.0, 40.0)[None, :]),
    "nx1": lambda: sp.csr_array(np.arange(1.0, 40.0)[:, None]),
    "full row": lambda: _only((9, 300), row=4),
    "full column": lambda: _only((300, 9), column=5),
    "one entry": lambda: _only((33, 34), row=31, column=33),
    "diagonal": lambda: sp.csr_array(sp.diags_array(np.arange(1.0, 130.0))),
    "first row only": lambda: _only((257, 5), row=0),
    "special values": _special,
}


@pytest.fixture(scope="session")
def staircase() -> sp.csr_array:
    return _staircase()


# --- Independent check --------------------------------------------------------------------------------


def agrees(result: Array, a: sp.csr_array, x: Array, start: Array | float = 0.0) -> bool:
    """Whether `result` is `a @ x + start` up to rounding, by SciPy in float64 on the values as the kernel's type has them."""
    dtype = result.dtype
    with np.errstate(all="ignore"):
        a64, x64 = sp.csr_array(a.astype(dtype), dtype=np.float64), np.asarray(x, dtype).astype(np.float64)
        start64 = np.asarray(start, dtype).astype(np.float64)
        expected, scale = a64 @ x64 + start64, abs(a64) @ np.abs(x64) + np.abs(start64)
        close = np.abs(result - expected) <= TOLERANCE[str(dtype)] * scale + 4 * float(np.finfo(dtype).tiny)
        same = (result == expected) | (np.isnan(result) & np.isnan(expected))
        overflows = np.isfinite(scale) & (scale > float(np.finfo(dtype).max) / 2)
    return result.shape == expected.shape and bool((close | same | overflows).all())


def both(
    text: Path, a: Any, plan: str | None = None, columns: int | None = None, *, dynamic: bool = False, transpose: bool = False
) -> Result:
    """Compile for `a`, run with random operands, and hold the result to both checks.  `dynamic`: K is told at the run only."""
    sizes = {} if columns is None else {"K": columns}
    package = compile_file(text, {"A": a}, {} if dynamic else sizes, plan=plan).package
    result = run(package, {"A": a}, sizes, verify=True)
    assert result.check is not None
    assert result.check.passed, (package.plan, result.check)
    (dense,) = result.inputs.dense.values()
    initial = result.inputs.initial if result.inputs.initial is not None else package.computation.initial
    matrix = sp.csr_array(a)
    assert agrees(result.output, sp.csr_array(matrix.T) if transpose else matrix, dense, initial), package.plan
    return result


# --- Files and contexts -------------------------------------------------------------------------------


@pytest.fixture
def mlir_context() -> Iterator[ir.Context]:
    """A context with the ditto dialect, entered."""
    with context() as ctx:
        yield ctx


@pytest.fixture
def kernel_file(tmp_path: Path) -> Callable[[str], Path]:
    """Write a kernel's text to a file of its own."""
    count = 0

    def write(text: str) -> Path:
        nonlocal count
        count += 1
        path = tmp_path / f"kernel{count}.mlir"
        path.write_text(text)
        return path

    return write


def every_case(factors: dict[str, tuple[Any, ...]], valid: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
    """Every choice of one value for each factor that is `valid`."""
    for values in itertools.product(*factors.values()):
        case = dict(zip(factors, values, strict=True))
        if valid(case):
            yield case


def pairs_of(case: dict[str, Any]) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    """Every two choices that a case makes together."""
    return set(itertools.combinations(case.items(), 2))


@pytest.fixture
def passes_forgotten() -> Iterator[None]:
    """Forget after a test what passes it registered, and the plug-ins that it loaded."""
    before, modules = dict(registry()), set(sys.modules)
    yield
    registry().clear()
    registry().update(before)
    for name in set(sys.modules) - modules:
        if name.startswith("sparseditto_plugin_"):
            del sys.modules[name]
