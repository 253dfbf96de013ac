"""f16 and bf16 operands: sums in f32, one rounding at the end, under every schedule.

Kernels run under emulation with all checks.  Each result is held to the compiler's own check and to SciPy in float64.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from conftest import MATRICES, Array, computation, matvec, of_lengths
from test_scalars import ENCODE, LENGTHS, SPMM_PLANS, SPMV_PLANS, epilogue, prologue

from sparseditto.compiler.api import Result, compile_file, run
from sparseditto.compiler.cli.main import main
from sparseditto.compiler.dtypes import dtype_of, limits
from sparseditto.compiler.package import Buffer, KernelPackage
from sparseditto.compiler.reference import compare
from sparseditto.compiler.runtimes.foreign import foreign_array
from sparseditto.compiler.runtimes.resources import ptxas_resources
from sparseditto.dialects.errors import InputError, NotApplicable, Unsupported

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]
NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 0.0}


def product(e: str, out: str, columns: bool, stored: str = "") -> str:
    """A named op on tensors of `e`, from 0 into a tensor of `out`, perhaps rounded to `stored` by an op after it."""
    vector, name, index = ("tensor<?x?x", "matmul", "%m, %k") if columns else ("tensor<?x", "matvec", "%m")
    a, x, y, z = f"tensor<?x?x{e}>", f"{vector}{e}>", f"{vector}{out}>", f"{vector}{stored or out}>"
    size = f"%k = tensor.dim %x, %c1 : {x}" if columns else ""
    end = f"%h = arith.truncf %r : {y} to {z}\n  return %h : {z}" if stored else f"return %r : {y}"
    return f"""func.func @f(%A: {a} {{ditto.sparse}}, %x: {x}) -> {z} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : {out}
  %m = tensor.dim %A, %c0 : {a}
  {size}
  %empty = tensor.empty({index}) : {y}
  %init = linalg.fill ins(%zero : {out}) outs(%empty : {y}) -> {y}
  %r = linalg.{name} ins(%A, %x : {a}, {x}) outs(%init : {y}) -> {y}
  {end}
}}"""


def held(result: Result, a: sp.csr_array, start: Array | float, factor: float = 1.0) -> None:
    """Both checks: the sum to 1e-5 of the sum over absolute values, and one rounding to the output's type."""
    assert result.check is not None
    assert result.check.passed, result.check
    (x,) = (np.asarray(v, np.float64) for v in result.inputs.dense.values())
    exact = sp.csr_array(result.inputs.matrix, dtype=np.float64)
    assert exact.shape == a.shape
    expected, scale = factor * (exact @ x) + start, abs(factor) * (abs(exact) @ np.abs(x)) + np.abs(start)
    unit = limits(result.output.dtype.name).unit if result.output.dtype.itemsize == 2 else 0.0
    error = np.abs(result.output.astype(np.float64) - expected)
    assert (error <= 1.1e-5 * scale + unit * np.abs(expected) + 1e-7).all()


# --- Every schedule -------------------------------------------------------------------------------------


@pytest.mark.parametrize("out", ["f32", "same"])
@pytest.mark.parametrize("e", ["f16", "bf16"])
@pytest.mark.parametrize("plan", SPMV_PLANS)
def test_spmv(plan: str, e: str, out: str, kernel_file: Write) -> None:
    out = e if out == "same" else out
    text, a, plan = kernel_file(product(e, out, False)), of_lengths(LENGTHS, 401), f"{ENCODE},{plan}"
    if out == e and ("segment" in plan or "bin-rows" in plan):
        with pytest.raises(NotApplicable, match=f"carried in f32 and rounded to {e} once"):
            compile_file(text, {"A": a}, plan=plan)
        return
    package = compile_file(text, {"A": a}, plan=plan).package
    result = run(package, {"A": a}, verify=True)
    assert result.output.dtype.name == NAMES[out]
    held(result, a, 0.0)


@pytest.mark.parametrize("out", ["f32", "same"])
@pytest.mark.parametrize("e", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("columns", "plan"),
    [(k, plan) for k, plan in SPMM_PLANS if "segment" not in plan]
    + [(64, "vectorize{width=8},rows-to-subgroups{lanes=8 share=columns},stream-entries,map-blocks")],
)
def test_spmm(columns: int, plan: str, e: str, out: str, kernel_file: Write) -> None:
    text, a = kernel_file(product(e, e if out == "same" else out, True)), of_lengths(LENGTHS, 401)
    package = compile_file(text, {"A": a}, {"K": columns}, plan=f"{ENCODE},{plan}").package
    held(run(package, {"A": a}, {"K": columns}, verify=True), a, 0.0)


@pytest.mark.parametrize("e", ["f16", "bf16"])
@pytest.mark.parametrize("columns", [None, 1, 9, 33])
@pytest.mark.parametrize("skewed", [False, True])
def test_the_plan_that_structure_suggests(columns: int | None, e: str, skewed: bool, kernel_file: Write) -> None:
    """A matrix with one long row would be cut, which 16-bit outputs do not allow."""
    lengths = [2] * 900 + [900] if skewed else LENGTHS
    a, sizes = of_lengths(lengths), {} if columns is None else {"K": columns}
    package = compile_file(kernel_file(product(e, e, columns is not None)), {"A": a}, sizes).package
    held(run(package, {"A": a}, sizes, verify=True), a, 0.0)


@pytest.mark.parametrize("name", ["no entries", "0x0", "0x5", "5x0", "1x1", "full column"])
@pytest.mark.parametrize("e", ["f16", "bf16"])
def test_hard_matrices(name: str, e: str, kernel_file: Write) -> None:
    for out in ("f32", e):
        for plan in (SPMV_PLANS[0], SPMV_PLANS[2]):
            package = compile_file(kernel_file(product(e, out, False)), {}, plan=f"{ENCODE},{plan}").package
            held(run(package, {"A": MATRICES[name]()}, verify=True), MATRICES[name](), 0.0)


def in_f32(name: str, value: str, scalar: str, e: str) -> str:
    """`value` of type `e` times an f32 scalar, rounded to `e`, under a name."""
    lines = (
        f"%w{name[1:]} = arith.extf {value} : {e} to f32",
        f"%p{name[1:]} = arith.mulf %w{name[1:]}, {scalar} : f32",
        f"{name} = arith.truncf %p{name[1:]} : f32 to {e}",
    )
    return "\n    ".join(lines)


@pytest.mark.parametrize("e", ["f16", "bf16"])
@pytest.mark.parametrize("beta", [0.0, -1.5])
@pytest.mark.parametrize("form", [prologue, epilogue])
def test_alpha_and_beta(form: Callable[..., str], beta: float, e: str, kernel_file: Write) -> None:
    """The scalars are f32; the old value is widened, scaled and rounded with the sum."""
    text = form(e, True).replace(f"%alpha: {e}", "%alpha: f32").replace(f"%beta: {e}", "%beta: f32")
    text = re.sub(
        rf"(%\w+) = arith.mulf (%alpha|%o|%beta), (%a|%s|%o|%beta) : {e}",
        lambda m: in_f32(m[1], *sorted(m.groups()[1:], key=lambda v: v in ("%alpha", "%beta")), e),
        text,
    )
    a = of_lengths(LENGTHS, 401)
    package = compile_file(kernel_file(text), {"A": a}, {"K": 9}).package
    y = np.full((len(LENGTHS), 9), np.nan) if beta == 0 else np.random.default_rng(0).uniform(-1, 1, (len(LENGTHS), 9))
    result = run(package, {"A": a, "y": y, "alpha": 0.3, "beta": beta}, verify=True)
    start = 0.0 if beta == 0 else beta * y.astype(dtype_of(NAMES[e])).astype(np.float64)
    held(result, a, start, 0.3)
    assert np.isfinite(result.output.astype(np.float32)).all()


# --- Where the sum is carried -----------------------------------------------------------------------------


@pytest.mark.parametrize("e", ["f16", "bf16"])
def test_sums_are_carried_in_f32(e: str, kernel_file: Write) -> None:
    """3000 ones: a sum in f16 stops at 2048, one in bf16 at 256."""
    a = sp.csr_array(np.ones((2, 3000)))
    for rows in ("rows-to-threads", "rows-to-subgroups{lanes=32 share=entries}"):
        package = compile_file(kernel_file(matvec(e)), {}, plan=f"{ENCODE},{rows},map-blocks").package
        result = run(package, {"A": a, "x": np.ones(3000), "y": np.zeros(2)}, verify=True)
        assert result.check is not None
        assert result.check.passed
        assert (result.output == dtype_of(NAMES[e]).type(3000)).all()


STEP = "%p = arith.extf %a : f16 to f32\n    %q = arith.extf %b : f16 to f32\n    %t = arith.mulf %p, %q : f32\n    "


def explicit(out: str) -> str:
    """The conversions written out; for an f16 output each step rounds, by the letter."""
    maps = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>"
    body = STEP + "%s = arith.addf %c, %t : f32\n    linalg.yield %s : f32"
    if out == "f16":
        body = STEP + "%w = arith.extf %c : f16 to f32\n    %s = arith.addf %w, %t : f32\n    "
        body += "%h = arith.truncf %s : f32 to f16\n    linalg.yield %h : f16"
    return f"""func.func @f(%A: tensor<?x?xf16> {{ditto.sparse}}, %x: tensor<?xf16>, %y: tensor<?x{out}>) -> tensor<?x{out}> {{
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "reduction"]}}
      ins(%A, %x : tensor<?x?xf16>, tensor<?xf16>) outs(%y : tensor<?x{out}>) {{
  ^bb0(%a: f16, %b: f16, %c: {out}):
    {body}
  }} -> tensor<?x{out}>
  return %r : tensor<?x{out}>
}}"""


def test_every_way_of_writing_it_is_one_computation(kernel_file: Write) -> None:
    named = computation(matvec("f16"))
    assert (named.output.dtype, named.sum_dtype, named.rounds) == ("float16", "float32", True)
    assert computation(explicit("f16")).body == named.body
    assert computation(explicit("f32")).sum_dtype is None
    assert computation(explicit("f32")).body == named.body
    after = computation(product("f16", "f32", False, "f16"))
    assert (after.output.dtype, after.sum_dtype, after.body) == ("float16", "float32", named.body)
    assert computation(matvec("f32")).sum_dtype is None
    a = of_lengths(LENGTHS, 401)
    for text in (explicit("f16"), explicit("f32"), product("f16", "f32", False, "f16")):
        package = compile_file(kernel_file(text), {"A": a}).package
        y = {"y": np.zeros(len(LENGTHS))} if "%y: tensor" in text.partition("\n")[0] else {}
        held(run(package, {"A": a, **y}, verify=True), a, 0.0)


def test_f64_sums_of_f32_values_as_written(kernel_file: Write) -> None:
    text = product("f32", "f64", False, "f32")
    assert computation(text).sum_dtype == "float64"
    a = sp.csr_array(np.array([[1.0, 1e-8] * 500]))
    package = compile_file(kernel_file(text), {}, plan=f"{ENCODE},rows-to-threads,map-blocks").package
    result = run(package, {"A": a, "x": np.tile([1.0, 1.0], 500)}, verify=True)
    assert result.check is not None
    assert result.check.passed
    assert result.check.tolerance == 1e-13
    assert result.output[0] == np.float32(500 + 500 * float(np.float32(1e-8)))


# --- Vectors and PTX --------------------------------------------------------------------------------------


@pytest.mark.parametrize("e", ["f16", "bf16"])
def test_eight_halves_are_one_load(e: str, kernel_file: Write) -> None:
    plan = f"{ENCODE},vectorize{{width=8}},rows-to-subgroups{{lanes=8 share=columns}},stream-entries,map-blocks"
    for out in (e, "f32"):
        package = compile_file(kernel_file(product(e, out, True)), {}, {"K": 64}, plan=plan).package
        assert re.search(rf"vector\.load .*vector<8x{e}>", package.mlir)
        assert re.search(r"ld\.global\.nc\.v4\.b32", package.ptx)
        assert re.search(r"ld\.global\.nc\.L1::no_allocate\.b16", package.ptx)
        assert len(re.findall(r"st\.global\.v4", package.ptx)) == (1 if out == e else 2)


def test_the_default_plan_loads_eight_halves(kernel_file: Write) -> None:
    package = compile_file(kernel_file(product("f16", "f32", True)), {"A": of_lengths([9] * 300)}, {"K": 64}).package
    assert "vector<8xf16>" in package.mlir


@pytest.mark.parametrize("e", ["f16", "bf16"])
@pytest.mark.parametrize("chip", ["sm_75", "sm_80", "sm_90"])
def test_the_assembler_takes_it(chip: str, e: str, kernel_file: Write) -> None:
    for out in (e, "f32"):
        plan = f"{ENCODE},vectorize{{width=8}},rows-to-subgroups{{lanes=8 share=columns}},stream-entries,map-blocks"
        package = compile_file(kernel_file(product(e, out, True)), {}, {"K": 64}, chip=chip, plan=plan).package
        resources, reason = ptxas_resources(package.ptx, chip)
        if resources is None and "ptxas" in reason and "not" in reason:
            pytest.skip(reason)
        assert resources is not None, reason
        assert resources[0].spill_bytes == 0


# --- Binding, storing, checking ---------------------------------------------------------------------------


def test_operands_that_are_not_contiguous(kernel_file: Write) -> None:
    a = of_lengths(LENGTHS, 401)
    package = compile_file(kernel_file(product("bf16", "bf16", True)), {"A": a}, {"K": 9}).package
    x = np.random.default_rng(0).uniform(-1, 1, (9, 802)).astype(ml_dtypes.bfloat16)[:, ::2].T
    held(run(package, {"A": a, "x": x}, verify=True), a, 0.0)


def test_a_package_and_files(kernel_file: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a = of_lengths(LENGTHS, 401)
    package = compile_file(kernel_file(matvec("bf16")), {"A": a}).package
    package.save(tmp_path / "k")
    assert KernelPackage.load(tmp_path / "k") == package
    assert {b.dtype for b in package.buffers if b.name in ("A.values", "x", "y")} == {"bfloat16"}
    scipy.io.mmwrite(tmp_path / "a.mtx", a)
    x = np.random.default_rng(0).uniform(-1, 1, 401).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)  # NumPy writes the bits, and reads them back as voids
    np.save(tmp_path / "y.npy", np.ones(len(LENGTHS), np.float32))
    bound = [f"--bind={name}={tmp_path / file}" for name, file in (("A", "a.mtx"), ("x", "x.npy"), ("y", "y.npy"))]
    out = tmp_path / "out.npy"
    assert main(["run", str(tmp_path / "k"), *bound, "--device=simt", "--check", f"--result={out}"]) == 0
    assert "output 14 bfloat16" in capfd.readouterr().out
    stored = np.load(out)
    assert stored.dtype == np.float32
    exact = a.astype(np.float32) @ x.astype(np.float32) + 1
    assert np.abs(stored - exact).max() < 0.05


def test_torch_gives_the_bits_of_bfloat16() -> None:
    class Tensor:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<V2", "data": (16, False), "version": 3}  # noqa: RUF012

    found = foreign_array(Buffer("x", "bfloat16", ("4",), "read"), Tensor())
    assert found is not None
    assert found.dtype == dtype_of("bfloat16")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_the_bound_is_one_rounding(name: str) -> None:
    dtype, one = dtype_of(name), np.ones(1)
    unit = limits(name).unit
    exact = 1 + unit * 1.001  # just above the middle between 1 and its neighbour

    def passes(value: float, expected: float, scale: float = 1.0) -> bool:
        return compare(np.array([value], dtype), np.array([expected]), scale * one).passed

    assert passes(1 + 2 * unit, exact)
    assert passes(1.0, exact), "the sum in f32 may have been below the middle"
    assert not passes(1 + 4 * unit, exact)
    assert not passes(1 - unit, exact)
    assert not passes(unit, 0.0), "a scale of 1 allows the sum 1e-5, whatever the output's type"
    assert passes(2.0**-20, 0.0)
    assert passes(0.0, limits(name).least / 2, 0.0)
    assert compare(np.array([np.inf], dtype), np.array([2 * limits(name).largest]), one * 2 * limits(name).largest).skipped == 1


def test_rounded_values_of_the_matrix_are_what_the_reference_has(kernel_file: Write) -> None:
    a = sp.csr_array(np.array([[0.1, 1e6]]))
    package = compile_file(kernel_file(product("f16", "f32", False)), {}, plan=f"{ENCODE},rows-to-threads,map-blocks").package
    result = run(package, {"A": a, "x": np.array([1.0, 0.0])}, verify=True)
    assert result.inputs.matrix.data.tolist() == [float(np.float16(0.1)), np.inf]
    assert result.inputs.notes == ("A: 1 values are beyond float16 and became infinite",)


def test_limits_are_those_of_the_types() -> None:
    for name in ("bfloat16", "float16", "float32", "float64"):
        info, own = ml_dtypes.finfo(dtype_of(name)), limits(name)
        assert own.unit == float(info.eps) / 2
        assert (own.tiny, own.least, own.largest) == (float(info.tiny), float(info.smallest_subnormal), float(info.max))


def test_without_ml_dtypes_bfloat16_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(InputError, match="bfloat16 needs the package ml_dtypes"):
        dtype_of("bfloat16")
    assert dtype_of("float16") == np.float16


# --- What is refused --------------------------------------------------------------------------------------


def test_a_rounded_initial_value_is_refused_where_rows_are_left_out(kernel_file: Write) -> None:
    """DCSR leaves empty rows out, so the scaled old value would be stored in f16 before the sum is added."""
    plan = "set-encoding{format=dcsr},accumulate-registers,rows-to-threads,map-blocks"
    text = product("f16", "f32", False, "f16").replace("arith.constant 0.0 : f32", "arith.constant 0.1 : f32")
    with pytest.raises(NotApplicable, match="would be rounded before the sum is added"):
        compile_file(kernel_file(text), {}, plan=plan)
    a = of_lengths(LENGTHS, 401)
    held(
        run(compile_file(kernel_file(product("f16", "f32", False, "f16")), {}, plan=plan).package, {"A": a}, verify=True),
        a,
        0.0,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (matvec("f8E4M3FN"), "element type f8E4M3FN is not supported; f16, bf16, f32, f64 are"),
        (prologue("f16"), "the argument 'alpha' of type f16 is not supported: scalars are f32 or f64"),
    ],
)
def test_types_that_are_refused(text: str, message: str) -> None:
    with pytest.raises((Unsupported, InputError), match=re.escape(message)):
        computation(text)
