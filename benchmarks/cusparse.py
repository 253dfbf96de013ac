"""cuSPARSE's products, all of its algorithms and formats, as baselines: a binding through ctypes.

    python -m benchmarks.cusparse          # each baseline on a small matrix: right or wrong (needs a GPU)

alpha is 1 and beta 0; indices are 32-bit; B and C are row-major unless `order` says "col".  A baseline that cannot be made
or that does not run is still yielded, with the reason in `failure`: a failure is recorded, never counted as a win.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import site
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.timing import Stream

# The values of cusparseSpMVAlg_t and cusparseSpMMAlg_t, by format.
SPMV = {
    "csr": {"default": 0, "csr1": 2, "csr2": 3},
    "coo": {"default": 0, "coo1": 1, "coo2": 4},
    "sell": {"sell1": 5},
}
SPMM = {
    "csr": {"default": 0, "csr1": 4, "csr2": 6, "csr3": 12},
    "coo": {"default": 0, "coo1": 1, "coo2": 2, "coo3": 3, "coo4": 5},
}
SLICES = (2, 4, 8, 16, 32, 64)
MOST_PADDING = 16  # SELL is not tried when it would store more values than this for every entry
COL_MAJOR = ", col-major"  # ends the names and families of baselines that are given B and C that way
DEFAULT = "csr default"  # the name of what people call who choose nothing

_INDEX_32, _BASE_0, _NO_TRANSPOSE = 2, 0, 0
_TYPES = {"float32": 0, "float64": 1}
_ORDERS = {"col": 1, "row": 2}
_P, _I64, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_size_t
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cusparseCreate": (_P,),
    "cusparseGetVersion": (_P, _P),
    "cusparseSetStream": (_P, _P),
    "cusparseCreateCsr": (_P, _I64, _I64, _I64, _P, _P, _P, _INT, _INT, _INT, _INT),
    "cusparseCreateCoo": (_P, _I64, _I64, _I64, _P, _P, _P, _INT, _INT, _INT),
    "cusparseCreateSlicedEll": (_P, _I64, _I64, _I64, _I64, _I64, _P, _P, _P, _INT, _INT, _INT, _INT),
    "cusparseCreateDnVec": (_P, _I64, _P, _INT),
    "cusparseCreateDnMat": (_P, _I64, _I64, _I64, _P, _INT, _INT),
    "cusparseDestroySpMat": (_P,),
    "cusparseDestroyDnVec": (_P,),
    "cusparseDestroyDnMat": (_P,),
    **{f"cusparseSpMV{part}": (_P, _INT, _P, _P, _P, _P, _P, _INT, _INT, _P) for part in ("", "_bufferSize", "_preprocess")},
    **{
        f"cusparseSpMM{part}": (_P, _INT, _INT, _P, _P, _P, _P, _P, _INT, _INT, _P)
        for part in ("", "_bufferSize", "_preprocess")
    },
}


class CusparseError(RuntimeError):
    """A call returned a status other than success."""


@functools.cache
def library() -> Any:
    """libcusparse of the CUDA toolkit, of NVIDIA's wheels, or of the loader's path, in this order."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    patterns = ["/usr/local/cuda*/lib64/libcusparse.so*", *(f"{folder}/nvidia/**/libcusparse.so*" for folder in folders)]
    found = [file for pattern in patterns for file in sorted(glob.glob(pattern, recursive=True))]
    errors = []
    for file in [*found, "libcusparse.so", "libcusparse.so.12"]:
        try:
            loaded = ctypes.CDLL(file)
        except OSError as e:
            errors.append(str(e))
            continue
        loaded.cusparseGetErrorString.restype = ctypes.c_char_p
        loaded.cusparseGetErrorString.argtypes = (_INT,)
        return loaded
    raise CusparseError(f"libcusparse does not load: {'; '.join(errors)}")


def _call(name: str, *arguments: Any) -> None:
    function = getattr(library(), name, None)
    if function is None:
        raise CusparseError(f"this libcusparse has no {name}")
    function.argtypes, function.restype = _PROTOTYPES[name], _INT
    status = function(*arguments)
    if status:
        text = library().cusparseGetErrorString(status) or b"?"
        raise CusparseError(f"{name}: status {status} ({text.decode()})")


@functools.cache
def _handle() -> ctypes.c_void_p:
    handle = _P()
    _call("cusparseCreate", ctypes.byref(handle))
    return handle


def version() -> str:
    """The library's version, as 12.6.3."""
    number = _INT()
    _call("cusparseGetVersion", _handle(), ctypes.byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 100}.{number.value % 100}"


class DeviceCsr:
    """A matrix on the GPU, uploaded once; the rows of its entries (for COO) are made there when asked for."""

    def __init__(self, matrix: Any, dtype: str) -> None:
        import cupy as cp

        def placed(array: Any, wanted: str) -> Any:
            with np.errstate(over="ignore"):
                array = np.ascontiguousarray(array, dtype=wanted)
            return cp.asarray(array) if array.size else cp.zeros(4, wanted)  # never a null pointer

        self.shape, self.nnz, self.dtype = matrix.shape, int(matrix.nnz), dtype
        self.starts, self.columns = placed(matrix.indptr, "int32"), placed(matrix.indices, "int32")
        self.values = placed(matrix.data, dtype)

    @functools.cached_property
    def rows(self) -> Any:
        """The row of each entry, int32."""
        import cupy as cp

        if not self.nnz:
            return self.columns
        marks = cp.zeros(self.nnz + 1, cp.int32)
        cp.add.at(marks, self.starts[1:-1], 1)
        return cp.cumsum(marks[:-1], dtype=cp.int32)

    def sliced(self, height: int) -> tuple[Any, Any, Any]:
        """SELL: offsets of the slices, columns (-1 where padded) and values; within a slice the rows are the fast dimension."""
        import cupy as cp

        slices = -(-self.shape[0] // height)
        lengths = cp.zeros(slices * height, cp.int64)
        lengths[: self.shape[0]] = cp.diff(self.starts[: self.shape[0] + 1])
        offsets = cp.zeros(slices + 1, cp.int64)
        offsets[1:] = cp.cumsum(lengths.reshape(slices, height).max(axis=1) * height)
        size = int(offsets[-1])
        if size > MOST_PADDING * self.nnz + 4096 or size >= 2**31:
            raise CusparseError(f"not tried: SELL with slices of {height} stores {size} values for {self.nnz} entries")
        columns, values = cp.full(max(size, 4), -1, cp.int32), cp.zeros(max(size, 4), self.dtype)
        if self.nnz:
            row = self.rows.astype(cp.int64)
            at = offsets[row // height] + (cp.arange(self.nnz) - self.starts[row]) * height + row % height
            columns[at], values[at] = self.columns, self.values
        return offsets.astype(cp.int32), columns[: max(size, 4)], values


@dataclass
class Baseline:
    """One way to call cuSPARSE.  `run(stream)` enqueues one product; it is None when that failed, and `failure` says why.

    `seconds` is what conversion of the format and preprocessing took.
    """

    name: str
    family: str
    preprocess: bool
    run: Callable[[Stream], None] | None = None
    failure: str = ""
    seconds: float = 0.0
    _destroy: list[tuple[str, Any]] = field(default_factory=list, repr=False)

    def close(self) -> None:
        """Give descriptors and memory back."""
        self.run = None
        while self._destroy:
            with suppress(CusparseError):
                _call(*self._destroy.pop())


def baselines(
    op: str, matrix: DeviceCsr, right: Any, out: Any, order: str = "row", skip: Collection[str] = ()
) -> Iterator[Baseline]:
    """Every way to compute `out = matrix @ right` ("spmv" or "spmm"), with and without preprocessing where there is that.

    `right` and `out` are CuPy arrays.  With `order` "col" they hold the transposes: (K, columns) and (K, rows).  Those that
    `skip` names are not made: they are known to bring the GPU down.
    """
    suffix = COL_MAJOR if order == "col" else ""
    for family, algorithms in (SPMV if op == "spmv" else SPMM).items():
        for algorithm, code in algorithms.items():
            for height in SLICES if family == "sell" else (0,):
                for preprocess in (False,) if family == "sell" else (False, True):
                    name = f"{family} {algorithm}" + (f"/{height}" if height else "") + ("+p" if preprocess else "") + suffix
                    baseline = Baseline(name, family + suffix, preprocess)
                    if name in skip:
                        baseline.failure = "the GPU faulted or hung in it"
                        yield baseline
                    else:
                        yield _baseline(baseline, matrix, right, out, code, height, order)


def _baseline(baseline: Baseline, matrix: DeviceCsr, right: Any, out: Any, code: int, height: int, order: str) -> Baseline:
    import cupy as cp

    start = time.perf_counter()
    try:
        _prepare(baseline, matrix, right, out, code, height, order)
        cp.cuda.Device().synchronize()
    except (CusparseError, cp.cuda.memory.OutOfMemoryError) as e:
        baseline.close()
        baseline.failure = str(e)
    baseline.seconds = time.perf_counter() - start
    return baseline


def _prepare(baseline: Baseline, matrix: DeviceCsr, right: Any, out: Any, code: int, height: int, order: str) -> None:
    import cupy as cp

    kind = _TYPES[matrix.dtype]
    scalar = ctypes.c_float if matrix.dtype == "float32" else ctypes.c_double
    one, zero = scalar(1), scalar(0)
    keep: list[Any] = [matrix, right, out]

    def made(create: str, destroy: str, *arguments: Any) -> ctypes.c_void_p:
        descriptor = _P()
        _call(create, ctypes.byref(descriptor), *arguments)
        baseline._destroy.append((destroy, descriptor))
        return descriptor

    rows, columns = matrix.shape
    size = (rows, columns, matrix.nnz)
    types = (_INDEX_32, _BASE_0, kind)
    if height:
        arrays = matrix.sliced(height)
        keep += arrays
        a = made(
            "cusparseCreateSlicedEll",
            "cusparseDestroySpMat",
            *size,
            _stored(arrays[0]),
            height,
            *map(_ptr, arrays),
            _INDEX_32,
            *types,
        )
    elif baseline.family.startswith("coo"):
        parts = (_ptr(matrix.rows), _ptr(matrix.columns), _ptr(matrix.values))
        a = made("cusparseCreateCoo", "cusparseDestroySpMat", *size, *parts, *types)
    else:
        parts = (_ptr(matrix.starts), _ptr(matrix.columns), _ptr(matrix.values))
        a = made("cusparseCreateCsr", "cusparseDestroySpMat", *size, *parts, _INDEX_32, *types)
    operations: tuple[int, ...]
    if right.ndim == 1:
        x = made("cusparseCreateDnVec", "cusparseDestroyDnVec", columns, _ptr(right), kind)
        y = made("cusparseCreateDnVec", "cusparseDestroyDnVec", rows, _ptr(out), kind)
        function, operations = "cusparseSpMV", (_NO_TRANSPOSE,)
    else:
        k = right.shape[0 if order == "col" else 1]
        lead = (columns, rows) if order == "col" else (k, k)
        x = made("cusparseCreateDnMat", "cusparseDestroyDnMat", columns, k, lead[0], _ptr(right), kind, _ORDERS[order])
        y = made("cusparseCreateDnMat", "cusparseDestroyDnMat", rows, k, lead[1], _ptr(out), kind, _ORDERS[order])
        function, operations = "cusparseSpMM", (_NO_TRANSPOSE, _NO_TRANSPOSE)
    arguments = (_handle(), *operations, ctypes.byref(one), a, x, ctypes.byref(zero), y, kind, code)
    need = _SIZE()
    _call("cusparseSetStream", _handle(), None)
    _call(f"{function}_bufferSize", *arguments, ctypes.byref(need))
    buffer = cp.empty(max(need.value, 16), cp.uint8)
    if baseline.preprocess:
        _call(f"{function}_preprocess", *arguments, _ptr(buffer))
    keep += [one, zero, buffer]

    def run(stream: Stream, keep: list[Any] = keep) -> None:
        _call("cusparseSetStream", _handle(), stream.handle)
        _call(function, *arguments, _ptr(buffer))

    baseline.run = run


def _ptr(array: Any) -> int:
    return int(array.data.ptr)


def _stored(offsets: Any) -> int:
    return int(offsets[-1])


# --- Self-test ------------------------------------------------------------------------------------------


def self_test(say: Callable[[str], None] = print) -> int:
    """Run each baseline on a small matrix against float64; the number of wrong ones (what failed is printed only)."""
    import cupy as cp
    import scipy.sparse as sp

    from benchmarks.operands import dense
    from benchmarks.timing import Stream

    stream, wrong = Stream(), 0
    matrix = sp.random(500, 333, 0.03, format="lil", random_state=0)
    matrix[7], matrix[20:60] = 1.5, 0
    csr = sp.csr_array(matrix)
    say(f"cuSPARSE {version()}")
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-13)):
        a = DeviceCsr(csr, dtype)
        for op, k, order in (("spmv", 0, "row"), ("spmm", 8, "row"), ("spmm", 33, "row"), ("spmm", 8, "col")):
            host = dense(np, (333, k) if k else (333,), 1, dtype)
            right = cp.asarray(np.ascontiguousarray(host.T) if order == "col" else host)
            out = cp.empty((k, 500) if order == "col" else (500, k) if k else (500,), dtype)
            expected, scale = csr.astype(dtype).astype("f8") @ host.astype("f8"), abs(csr) @ np.abs(host.astype("f8"))
            for baseline in baselines(op, a, right, out, order):
                verdict = baseline.failure
                if baseline.run is not None:
                    out.fill(np.nan)
                    cp.cuda.Device().synchronize()
                    try:
                        baseline.run(stream)
                        stream.synchronize()
                    except CusparseError as e:
                        verdict = str(e)
                    else:
                        got = cp.asnumpy(out.T if order == "col" else out)
                        good = bool((np.abs(got - expected) <= tolerance * scale + 1e-30).all())
                        wrong += not good
                        verdict = "right" if good else "WRONG"
                say(f"{dtype} {op} K={k:<3} {baseline.name:24} {verdict}")
                baseline.close()
    stream.close()
    return wrong


if __name__ == "__main__":
    sys.exit(1 if self_test() else 0)
