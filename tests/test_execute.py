"""Laying a problem out for a kernel: what is packed and made, with and without dense operands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matmul

from sparseditto.compiler import execute
from sparseditto.compiler.api import bind_package, compile_file
from sparseditto.compiler.execute import auxiliary, lay_out, prepare
from sparseditto.compiler.package import KernelPackage
from sparseditto.dialects.errors import InputError

SEGMENTS = "set-encoding,accumulate-registers,segment-rows{length=16},rows-to-threads,map-blocks"
BLOCKS = "set-encoding{format=bsr block-rows=4 block-columns=4},accumulate-registers,rows-to-threads,map-blocks"


def compiled(write: Callable[[str], Path], a: sp.csr_array, plan: str) -> KernelPackage:
    return compile_file(write(matmul()), {"A": a}, {"K": 3}, plan=plan).package


@pytest.mark.parametrize("plan", [SEGMENTS, BLOCKS])
def test_laying_out_looks_at_no_dense_operand(plan: str, staircase: sp.csr_array, kernel_file: Callable[[str], Path]) -> None:
    """The arrays of A and all sizes are those that `prepare` gives."""
    package = compiled(kernel_file, staircase, plan)
    problem = bind_package(package, {"A": staircase}, {"K": 3})
    laid, whole = lay_out(package, problem), prepare(package, problem)
    assert laid.sizes == whole.sizes
    assert whole.arrays.keys() - laid.arrays.keys() == {"B", package.computation.output.name}
    for name, array in laid.arrays.items():
        np.testing.assert_array_equal(array, whole.arrays[name])
    assert whole.arrays["B"].shape == (laid.sizes["B.dim0"], 3)


def test_what_is_not_bound_or_known_is_refused(staircase: sp.csr_array, kernel_file: Callable[[str], Path]) -> None:
    package = compile_file(kernel_file(matmul()), {"A": staircase}, plan=BLOCKS).package
    with pytest.raises(InputError, match="bind a matrix to 'A'"):
        lay_out(package, bind_package(package, {}, {"K": 3}))
    with pytest.raises(InputError, match="is not known"):
        lay_out(package, bind_package(package, {"A": staircase}))


def test_a_recipe_runs_once(
    staircase: sp.csr_array, kernel_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = compiled(kernel_file, staircase, SEGMENTS)
    laid = lay_out(package, bind_package(package, {"A": staircase}, {"K": 3}))
    made = {b.name for b in package.buffers if b.recipe}
    cache: execute.Recipes = {}
    first = auxiliary(package, laid.arrays, laid.sizes, cache)
    assert made == first.keys()
    assert made
    assert cache.keys() == {b.recipe for b in package.buffers if b.recipe}
    monkeypatch.setattr(execute, "run_recipe", None)
    assert all(auxiliary(package, laid.arrays, laid.sizes, cache)[name] is array for name, array in first.items())
