"""What a matrix was packed into: once for each encoding, on the host and on the GPU, for all plans and numbers of columns."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.operands import Array
from sparseditto.compiler.api import bind_package
from sparseditto.compiler.execute import Layout, Recipes, auxiliary, lay_out
from sparseditto.compiler.package import KernelPackage

KEPT = 4  # encodings

Place = tuple[int, int, str]
"""Where an array is on the host, its bytes and its type: equal for equal arrays while they live."""


@dataclass(frozen=True)
class Laid:
    """The packed arrays of one package by buffer name; all sizes; bytes; what packing took the first time.

    Arrays that the kernel only reads are on the GPU, shared by all packages; what it writes too is on the host, to be copied.
    """

    arrays: dict[str, Any]
    sizes: dict[str, int]
    bytes: int
    seconds: float


@dataclass
class _Encoded:
    """A matrix in one encoding, with its extents in whole blocks, and what recipes made of it."""

    layout: Layout
    extents: tuple[int, ...]
    recipes: Recipes = field(default_factory=dict)
    seconds: dict[tuple[str, ...], float] = field(default_factory=dict)
    on_gpu: dict[str, Any] = field(default_factory=dict)


class Packed:
    """Packs a matrix; `uploaded` are arrays that are on the GPU already, by where they are on the host."""

    def __init__(self, csr: Any, uploaded: Mapping[Place, Any]) -> None:
        self._csr, self._uploaded = csr, uploaded
        self._encoded: OrderedDict[str, _Encoded] = OrderedDict()

    def lay(self, package: KernelPackage, k: int) -> Laid:
        """Raises `InputError` when the matrix cannot be stored so."""
        found = self._find(package, k)
        recipes = tuple(b.recipe for b in package.buffers if b.recipe)
        start = time.perf_counter()
        made = auxiliary(package, found.layout.arrays, found.layout.sizes, found.recipes)
        found.seconds.setdefault(recipes, time.perf_counter() - start)
        names = {b.name: f"{b.recipe}/{b.name.rsplit('.', 1)[1]}/{b.dtype}" for b in package.buffers if b.recipe}
        host = found.layout.arrays | made
        arrays = {
            b.name: self._place(found, names.get(b.name, b.name), host[b.name]) if b.access == "read" else host[b.name]
            for b in package.buffers
            if b.name in host
        }
        computation, prefix = package.computation, f"{package.computation.sparse.name}."
        extents = dict.fromkeys(computation.output.dims, k) | dict(zip(computation.sparse.dims, found.extents, strict=True))
        sizes = {name: n for name, n in found.layout.sizes.items() if name.startswith(prefix)}
        sizes |= {f"{name}.dim0": len(array) for name, array in made.items()}
        for operand in computation.operands:
            sizes |= {f"{operand.name}.dim{n}": extents[d] for n, d in enumerate(operand.dims)}
        count = sum(array.nbytes for name, array in host.items() if name.startswith(prefix))
        return Laid(arrays, sizes, count, found.layout.seconds + found.seconds[recipes])

    def _find(self, package: KernelPackage, k: int) -> _Encoded:
        encoding = package.computation.sparse.encoding
        key = encoding.text() if encoding else ""
        if key not in self._encoded:
            layout = _laid_out(package, self._csr, k)
            self._encoded[key] = _Encoded(layout, tuple(layout.extents[d] for d in package.computation.sparse.dims))
            while len(self._encoded) > KEPT:
                self._encoded.popitem(last=False)
        self._encoded.move_to_end(key)
        return self._encoded[key]

    def _place(self, found: _Encoded, key: str, host: Array) -> Any:
        """The array on the GPU, where it is uploaded once; one without elements stays on the host."""
        import cupy as cp

        if not host.size:
            return host
        if key not in found.on_gpu:
            there = self._uploaded.get(place(host))
            found.on_gpu[key] = cp.asarray(host) if there is None else there
        return found.on_gpu[key]


def place(array: Array) -> Place:
    return array.__array_interface__["data"][0], array.nbytes, str(array.dtype)


def _laid_out(package: KernelPackage, csr: Any, k: int) -> Layout:
    """The packed matrix and all sizes, without what recipes make; dense operands are on the GPU already."""
    plain = replace(package, buffers=tuple(b for b in package.buffers if not b.recipe))
    problem = bind_package(plain, {"A": csr})
    free = [d for d in package.computation.output.dims if d not in package.computation.sparse.dims]
    return lay_out(plain, replace(problem, sizes={**problem.sizes, **dict.fromkeys(free, k)}))
