"""`jam-block-rows`: the rows of a block in one walk, for every size of block and with every pass that goes with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import matmul, matvec

from sparseditto.compiler.api import compile_file, run
from sparseditto.dialects.errors import PlanError
from sparseditto.passes.plan import Plan

Write = Callable[[str], Path]

VECTOR = {
    "a thread a block row": "rows-to-threads",
    "lanes share the blocks": "rows-to-subgroups{lanes=4 share=entries}",
    "lanes share, unrolled": "rows-to-subgroups{lanes=8 share=entries},unroll{factor=2}",
}
COLUMNS = {
    "vectors": "vectorize{width=4},rows-to-subgroups{lanes=8 share=columns}",
    "groups": "vectorize{width=4},rows-to-subgroups{lanes=16 groups=2 share=columns},unroll{factor=2}",
    "scalars": "rows-to-subgroups{lanes=32 share=columns}",
}


def blocky(rows: int, columns: int, block: tuple[int, int]) -> sp.csr_array:
    """Dense blocks, and a few entries that fit none; the shape need not be whole blocks."""
    rng = np.random.default_rng([rows, columns, *block])
    shape = (-(-rows // block[0]), -(-columns // block[1]))
    blocks = sp.kron(sp.random_array(shape, density=0.15, rng=rng), np.ones(block), format="csr")[:rows, :columns]
    stray = sp.random_array((rows, columns), density=0.01, rng=rng, format="csr")
    found = sp.csr_array(blocks + stray)
    found.data = rng.uniform(-1, 1, found.nnz).astype(np.float32)
    return found


def right(path: Path, matrix: sp.csr_array, sizes: dict[str, int], plan: str) -> None:
    compiled = compile_file(path, {"A": matrix}, sizes, plan=plan)
    result = run(compiled.package, {"A": matrix}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


def encoded(block: tuple[int, int]) -> str:
    return f"set-encoding{{format=bsr block-rows={block[0]} block-columns={block[1]}}},accumulate-registers"


@pytest.mark.parametrize("after", VECTOR.values(), ids=list(VECTOR))
@pytest.mark.parametrize("block", [(2, 2), (3, 3), (4, 2), (2, 8)])
def test_vectors(block: tuple[int, int], after: str, kernel_file: Write) -> None:
    matrix = blocky(50, 43, block)
    right(kernel_file(matvec()), matrix, {}, f"{encoded(block)},jam-block-rows,{after},map-blocks{{threads=64}}")


@pytest.mark.parametrize("after", COLUMNS.values(), ids=list(COLUMNS))
@pytest.mark.parametrize("block", [(2, 2), (3, 3), (4, 4)])
def test_columns(block: tuple[int, int], after: str, kernel_file: Write) -> None:
    matrix = blocky(41, 50, block)
    right(kernel_file(matmul()), matrix, {"K": 32}, f"{encoded(block)},jam-block-rows,{after},map-blocks{{threads=64}}")


def test_after_vectors(kernel_file: Write) -> None:
    matrix = blocky(41, 50, (3, 3))
    plan = f"{encoded((3, 3))},vectorize{{width=4}},jam-block-rows,rows-to-subgroups{{lanes=8}},map-blocks"
    right(kernel_file(matmul()), matrix, {"K": 32}, plan)


@pytest.mark.parametrize("shape", [(0, 5), (5, 7), (1, 1)])
def test_no_entries(shape: tuple[int, int], kernel_file: Write) -> None:
    plan = f"{encoded((3, 3))},jam-block-rows,rows-to-threads,map-blocks"
    right(kernel_file(matvec()), sp.csr_array(shape, dtype=np.float32), {}, plan)


def test_not_twice() -> None:
    with pytest.raises(PlanError, match="does not go with several tiles"):
        Plan.parse(f"{encoded((2, 2))},vectorize,jam-columns,jam-block-rows,rows-to-subgroups,map-blocks")


@pytest.mark.parametrize("after", ["rows-to-threads", "jam-block-rows,rows-to-subgroups{lanes=4 share=entries},unroll"])
def test_padding_meets_no_infinity(after: str, kernel_file: Write) -> None:
    """What fills a block adds nothing to the rows beside those that read an infinity or a NaN."""
    matrix = blocky(40, 36, (2, 2))
    matrix.data[::7] = 0.0  # stored zeros are entries: times an infinity they are a NaN
    x = np.ones(36, np.float32)
    x[[5, 11, 20]] = np.inf, np.nan, -np.inf
    plan = f"{encoded((3, 3))},{after},map-blocks{{threads=64}}"
    package = compile_file(kernel_file(matvec(fill=0.0)), {"A": matrix}, plan=plan).package
    result = run(package, {"A": matrix, "x": x}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check
    row = np.repeat(np.arange(40), np.diff(matrix.indptr))
    expected = np.zeros(40)
    with np.errstate(invalid="ignore"):
        np.add.at(expected, row, matrix.data.astype(np.float64) * x[matrix.indices])
    assert np.isnan(expected).any()
    assert np.isfinite(expected).any()
    np.testing.assert_array_equal(np.isnan(result.output), np.isnan(expected))
