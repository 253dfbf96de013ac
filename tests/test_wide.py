"""`accumulate-wide`: sums in f64 over f32 values, rounded once, under every schedule that does not cut rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, matmul, matvec, of_lengths
from test_halves import product
from test_scalars import LENGTHS, SPMM_PLANS, SPMV_PLANS, epilogue, prologue

from sparseditto.compiler.api import Result, compile_file, run
from sparseditto.compiler.reference import compare, evaluate
from sparseditto.compiler.runtimes.resources import ptxas_resources
from sparseditto.dialects.errors import NotApplicable, PlanError

Write = Callable[[str], Path]
WIDE = "set-encoding{format=csr},accumulate-registers,accumulate-wide{type=f64}"
CUTS = ("segment-rows", "bin-rows")


def rounded_once(text: Path, a: sp.csr_array, plan: str, columns: int | None = None, **scalars: float) -> Result:
    """Compile, run on random operands, and hold the result to the bound of sums in f64 and one rounding to f32."""
    sizes = {} if columns is None else {"K": columns}
    package = compile_file(text, {"A": a}, sizes, plan=plan).package
    result = run(package, {"A": a, **scalars}, sizes)
    inputs = result.inputs
    expected, scale = evaluate(package.computation, inputs.matrix, inputs.dense, inputs.initial, inputs.scalars)
    check = compare(result.output, expected, scale, "float64")
    assert check.tolerance == 1e-13
    assert check.passed, (plan, check)
    return result


@pytest.mark.parametrize("plan", [plan for plan in SPMV_PLANS if not plan.startswith(CUTS)])
def test_spmv(plan: str, kernel_file: Write) -> None:
    a = of_lengths(LENGTHS, 401)
    for text in (matvec(), matvec(fill=0.0), matvec(fill=0.1)):
        rounded_once(kernel_file(text), a, f"{WIDE},{plan}")
    for beta in (0.0, 1.0 / 3.0):
        rounded_once(kernel_file(prologue()), a, f"{WIDE},{plan}", alpha=0.7, beta=beta)


@pytest.mark.parametrize(("columns", "plan"), [(k, plan) for k, plan in SPMM_PLANS if not plan.startswith(CUTS)])
def test_spmm(columns: int, plan: str, kernel_file: Write) -> None:
    a = of_lengths(LENGTHS, 401)
    rounded_once(kernel_file(matmul()), a, f"{WIDE},{plan}", columns)
    rounded_once(kernel_file(epilogue(columns=True)), a, f"{WIDE},{plan}", columns, alpha=0.7, beta=1.0 / 3.0)


@pytest.mark.parametrize("name", ["no entries", "0x0", "0x5", "5x0", "1x1", "full column"])
def test_hard_matrices(name: str, kernel_file: Write) -> None:
    for plan in (SPMV_PLANS[0], SPMV_PLANS[2]):
        rounded_once(kernel_file(matvec()), MATRICES[name](), f"{WIDE},{plan}")


@pytest.mark.parametrize("encoding", ["bsr block-rows=3 block-columns=4", "dcsr"])
def test_other_formats(encoding: str, kernel_file: Write) -> None:
    plan = f"{WIDE.replace('csr', encoding, 1)},rows-to-threads,map-blocks"
    rounded_once(kernel_file(matvec()), of_lengths(LENGTHS, 401), plan)
    rounded_once(kernel_file(matmul()), of_lengths(LENGTHS, 401), plan, 9)


def test_the_check_of_rounding_once_tells_f32_sums(kernel_file: Write) -> None:
    """Without the pass the same check fails."""
    a = of_lengths([900] * 5)
    plan = "rows-to-threads,map-blocks"
    rounded_once(kernel_file(matvec()), a, f"{WIDE},{plan}")
    with pytest.raises(AssertionError):
        rounded_once(kernel_file(matvec()), a, f"{WIDE.replace(',accumulate-wide{type=f64}', '')},{plan}")


def test_what_f32_sums_lose(kernel_file: Write) -> None:
    """1 and 2^30 times 2^-30, in an order in which a sum in f32 stays at 1."""
    count = 1 << 12
    a = sp.csr_array(np.array([[1.0] + [2.0**-26] * count]))
    package = compile_file(kernel_file(matvec(fill=0.0)), {}, plan=f"{WIDE},rows-to-threads,map-blocks").package
    result = run(package, {"A": a, "x": np.ones(count + 1)}, verify=True)
    assert result.output[0] == np.float32(1 + count * 2.0**-26)
    plain = compile_file(kernel_file(matvec(fill=0.0)), {}, plan="set-encoding,accumulate-registers,rows-to-threads,map-blocks")
    assert run(plain.package, {"A": a, "x": np.ones(count + 1)}).output[0] == 1


@pytest.mark.parametrize("e", ["f16", "bf16"])
def test_halves(e: str, kernel_file: Write) -> None:
    a = of_lengths(LENGTHS, 401)
    plan = f"{WIDE},rows-to-subgroups{{lanes=8 share=entries}},map-blocks"
    rounded_once(kernel_file(product(e, "f32", False)), a, plan)
    with pytest.raises(NotApplicable, match=f"an output in {e} shows nothing of what f64 adds"):
        compile_file(kernel_file(product(e, e, False)), {}, plan=plan)


def test_the_kernel_adds_in_f64_and_rounds_once(kernel_file: Write) -> None:
    package = compile_file(kernel_file(matvec()), {}, plan=f"{WIDE},rows-to-threads,map-blocks").package
    assert "fma.rn.f64" in package.ptx
    assert "fma.rn.f32" not in package.ptx
    assert "mul.rn" not in package.ptx
    assert len(re.findall(r"cvt\.rn\.f32\.f64", package.ptx)) == 1
    resources, reason = ptxas_resources(package.ptx, "sm_90")
    if resources is not None:
        assert resources[0].spill_bytes == 0
    else:
        assert reason


@pytest.mark.parametrize("cut", ["segment-rows{length=16}", "bin-rows{limit=32}"])
def test_rows_are_not_cut(cut: str, kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match=r"carried in f64 and rounded to f32 once; the pieces of a cut row"):
        compile_file(kernel_file(matvec()), {}, plan=f"{WIDE},{cut},rows-to-threads,map-blocks")


def test_what_is_refused(kernel_file: Write) -> None:
    tail = "rows-to-threads,map-blocks"
    with pytest.raises(NotApplicable, match="sums are carried in f64 already"):
        compile_file(kernel_file(matvec("f64")), {}, plan=f"{WIDE},{tail}")
    with pytest.raises(NotApplicable, match="would be rounded before the sum is added"):
        compile_file(kernel_file(prologue()), {}, plan=f"{WIDE.replace('csr', 'dcsr', 1)},{tail}")
    with pytest.raises(PlanError, match="accumulate-wide"):
        compile_file(kernel_file(matvec()), {}, plan=f"set-encoding,accumulate-registers,{tail},accumulate-wide")
    with pytest.raises(PlanError, match=r"type=f80 is not one of \('f64',\)"):
        compile_file(kernel_file(matvec()), {}, plan=f"set-encoding,accumulate-registers,accumulate-wide{{type=f80}},{tail}")
