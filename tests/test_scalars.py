"""Scalar arguments: `y = alpha A x + beta y` in every way of writing it, under every schedule, as BLAS has it where beta is 0.

Kernels run under emulation with all checks.  Each result is held to the compiler's own check and to SciPy in float64.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, computation, of_lengths

from sparseditto.compiler.api import Result, compile_file, run
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.runtimes.launches import resolve
from sparseditto.dialects.errors import InputError, Unsupported

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]
LENGTHS = [0, 0, 1, 2, 5, 16, 17, 33, 40, 0, 70, 300, 3, 0]


# --- Ways of writing it ---------------------------------------------------------------------------------


def prologue(e: str = "f32", columns: bool = False, a: str | None = None) -> str:
    """`beta` in an op over the output, `alpha` in the body of the product."""
    mark, a = ("", a) if a else (" {ditto.sparse}", f"tensor<?x?x{e}>")
    t, at = (f"tensor<?x?x{e}>", "(i, k, j)") if columns else (f"tensor<?x{e}>", "(i, j)")
    x, y = ("(j, k)", "(i, k)") if columns else ("(j)", "(i)")
    maps = f"affine_map<{at} -> (i, j)>, affine_map<{at} -> {x}>, affine_map<{at} -> {y}>"
    parallel = '"parallel", "parallel"' if columns else '"parallel"'
    return f"""func.func @f(%alpha: {e}, %A: {a}{mark}, %x: {t}, %beta: {e}, %y: {t}) -> {t} {{
  %scaled = linalg.map outs(%y : {t}) (%o: {e}) {{
    %0 = arith.mulf %o, %beta : {e}
    linalg.yield %0 : {e}
  }}
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{parallel}, "reduction"]}}
      ins(%A, %x : {a}, {t}) outs(%scaled : {t}) {{
  ^bb0(%a: {e}, %b: {e}, %c: {e}):
    %0 = arith.mulf %alpha, %a : {e}
    %1 = arith.mulf %0, %b : {e}
    %2 = arith.addf %1, %c : {e}
    linalg.yield %2 : {e}
  }} -> {t}
  return %r : {t}
}}"""


def prologue_generic(e: str = "f32", columns: bool = False, a: str | None = None) -> str:
    """As `prologue`, where `linalg.map` is written as `linalg.generic` with the scalar as an operand."""
    t = f"tensor<?x?x{e}>" if columns else f"tensor<?x{e}>"
    at, parallel = ("(i, k)", '"parallel", "parallel"') if columns else ("(i)", '"parallel"')
    scaled = f"""%scaled = linalg.generic {{
      indexing_maps = [affine_map<{at} -> ()>, affine_map<{at} -> {at}>], iterator_types = [{parallel}]
    }} ins(%beta : {e}) outs(%y : {t}) {{
  ^bb0(%s: {e}, %o: {e}):
    %0 = arith.mulf %s, %o : {e}
    linalg.yield %0 : {e}
  }} -> {t}
"""
    text = prologue(e, columns, a)
    start, end = text.index("%scaled"), text.index("  %r =")
    return text[:start] + scaled + text[end:]


def epilogue(e: str = "f32", columns: bool = False, a: str | None = None) -> str:
    """`linalg.matvec` or `linalg.matmul` from 0, then one op that scales and adds."""
    mark, a = ("", a) if a else (" {ditto.sparse}", f"tensor<?x?x{e}>")
    t, name = (f"tensor<?x?x{e}>", "matmul") if columns else (f"tensor<?x{e}>", "matvec")
    sizes = "%m, %k" if columns else "%m"
    return f"""func.func @f(%alpha: {e}, %A: {a}{mark}, %x: {t}, %beta: {e}, %y: {t}) -> {t} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : {e}
  %m = tensor.dim %A, %c0 : {a}
  {f"%k = tensor.dim %x, %c1 : {t}" if columns else ""}
  %empty = tensor.empty({sizes}) : {t}
  %init = linalg.fill ins(%zero : {e}) outs(%empty : {t}) -> {t}
  %p = linalg.{name} ins(%A, %x : {a}, {t}) outs(%init : {t}) -> {t}
  %r = linalg.map ins(%p, %y : {t}, {t}) outs(%empty : {t}) (%s: {e}, %o: {e}, %_: {e}) {{
    %0 = arith.mulf %alpha, %s : {e}
    %1 = arith.mulf %beta, %o : {e}
    %2 = arith.addf %0, %1 : {e}
    linalg.yield %2 : {e}
  }}
  return %r : {t}
}}"""


FORMS = {"prologue": prologue, "prologue generic": prologue_generic, "epilogue": epilogue}


def solve(
    text: Path, a: sp.csr_array, plan: str | None, alpha: float, beta: float, *, columns: int | None = None, nan: bool = False
) -> Result:
    """Compile for `a`, run on random operands, and hold the result to the compiler's check and to SciPy."""
    sizes = {} if columns is None else {"K": columns}
    package = compile_file(text, {"A": a}, sizes, plan=plan).package
    rng, dtype = np.random.default_rng(1), package.computation.output.dtype
    shapes = [(n,) if columns is None else (n, columns) for n in (a.shape[1], a.shape[0])]
    x, y = (rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes)
    if nan:
        y[...] = np.nan
    bound: dict[str, Any] = {"A": a, "x": x, "y": y, "alpha": alpha, "beta": beta}
    result = run(package, bound, sizes, verify=True)
    assert result.check is not None
    assert result.check.passed, (plan, result.check)
    exact = sp.csr_array(a.astype(dtype), dtype=np.float64)
    start = np.zeros(y.shape) if beta == 0 else beta * y.astype(np.float64)
    expected = alpha * (exact @ x.astype(np.float64)) + start
    scale = abs(alpha) * (abs(exact) @ np.abs(x).astype(np.float64)) + np.abs(start)
    tolerance = {"float32": 1e-5, "float64": 1e-13}[dtype]
    assert (np.abs(result.output - expected) <= tolerance * scale + 1e-35).all(), plan
    return result


# --- Every schedule -------------------------------------------------------------------------------------

ENCODE = "set-encoding{format=csr},accumulate-registers"
SPMV_PLANS = (
    "rows-to-threads,map-blocks",
    "rows-to-threads,unroll{factor=4 tail=clamp},map-blocks{threads=96}",
    "rows-to-subgroups{lanes=8 share=entries},map-blocks",
    "rows-to-subgroups{lanes=32 share=entries},unroll{factor=4},stream-entries,map-blocks",
    "segment-rows{length=16},rows-to-threads,map-blocks",
    "segment-rows{length=16},rows-to-subgroups{lanes=4 share=entries},unroll{factor=2 tail=clamp},map-blocks",
    "bin-rows{limit=32 length=1024 threads=128},rows-to-threads,map-blocks",
    "bin-rows{limit=32 length=1024 threads=128},rows-to-subgroups{lanes=8 share=entries},map-blocks",
)
SPMM_PLANS = (
    (1, "rows-to-threads,map-blocks"),
    (9, "rows-to-subgroups{lanes=8 share=columns},unroll{factor=4},map-blocks"),
    (33, "jam-columns{factor=3},rows-to-subgroups{lanes=8 share=columns},map-blocks"),
    (33, "jam-columns{factor=2},rows-to-subgroups{lanes=8 share=columns},map-blocks"),
    (33, "segment-rows{length=16},rows-to-subgroups{lanes=32 share=columns},map-blocks"),
    (32, "vectorize{width=4},rows-to-subgroups{lanes=8 share=columns},map-blocks"),
    (32, "vectorize{width=2},jam-columns{factor=4},rows-to-threads,unroll{factor=2},map-blocks"),
    (
        32,
        "segment-rows{length=16},vectorize{width=4},jam-columns{factor=2},rows-to-subgroups{lanes=4 share=columns},map-blocks",
    ),
    (32, "vectorize{width=4},rows-to-subgroups{lanes=16 share=columns groups=2},map-blocks"),
    (9, "rows-to-subgroups{lanes=8 share=entries},map-blocks"),
    (9, "segment-rows{length=16},rows-to-subgroups{lanes=8 share=entries},map-blocks"),
)


@pytest.mark.parametrize("beta", [0.0, -1.5])
@pytest.mark.parametrize("plan", SPMV_PLANS)
def test_spmv(plan: str, beta: float, kernel_file: Write) -> None:
    a = of_lengths(LENGTHS, 401)
    result = solve(kernel_file(epilogue()), a, f"{ENCODE},{plan}", 2.25, beta, nan=beta == 0)
    assert np.isfinite(result.output).all()


@pytest.mark.parametrize("beta", [0.0, -1.5])
@pytest.mark.parametrize(("columns", "plan"), SPMM_PLANS)
def test_spmm(columns: int, plan: str, beta: float, kernel_file: Write) -> None:
    a = of_lengths(LENGTHS, 401)
    result = solve(kernel_file(prologue(columns=True)), a, f"{ENCODE},{plan}", 0.5, beta, columns=columns, nan=beta == 0)
    assert np.isfinite(result.output).all()


@pytest.mark.parametrize("name", ["no entries", "0x0", "0x5", "5x0", "1x1", "full column"])
@pytest.mark.parametrize("plan", [SPMV_PLANS[0], SPMV_PLANS[2], SPMV_PLANS[5], SPMV_PLANS[7]])
def test_hard_matrices(name: str, plan: str, kernel_file: Write) -> None:
    for beta in (0.0, 2.0):
        solve(kernel_file(prologue()), MATRICES[name](), f"{ENCODE},{plan}", -1.0, beta, nan=beta == 0)


@pytest.mark.parametrize("e", ["f32", "f64"])
@pytest.mark.parametrize("columns", [None, 1, 9, 33])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_with_the_plan_that_structure_suggests(form: str, columns: int | None, e: str, kernel_file: Write) -> None:
    text = kernel_file(FORMS[form](e, columns is not None))
    solve(text, of_lengths(LENGTHS, 401), None, 1.0 / 3.0, -0.75, columns=columns)


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("encoding", ["dcsr", "bsr block-rows=3 block-columns=4"])
def test_other_formats(encoding: str, beta: float, kernel_file: Write) -> None:
    """Rows that DCSR leaves out are scaled as well, by a kernel of its own."""
    plan = f"set-encoding{{format={encoding}}},accumulate-registers,rows-to-threads,map-blocks"
    a = of_lengths(LENGTHS, 401)
    result = solve(kernel_file(prologue()), a, plan, 3.0, beta)
    assert (result.output[0] == 0) == (beta == 0)
    if encoding == "dcsr":
        assert np.isfinite(solve(kernel_file(prologue()), a, plan, 3.0, 0.0, nan=True).output).all()


def test_operands_that_are_not_contiguous(kernel_file: Write) -> None:
    a = of_lengths(LENGTHS, 40 * 11)
    package = compile_file(kernel_file(prologue(columns=True)), {"A": a}, {"K": 9}).package
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-1, 1, (9, 440)).astype(np.float32).T, rng.uniform(-1, 1, (28, 18)).astype(np.float32)[::2, ::2]
    before = y.copy()
    result = run(package, {"A": a, "x": x, "y": y, "alpha": 1, "beta": 2}, verify=True)
    assert result.check is not None
    assert result.check.passed
    assert np.array_equal(y, before), "what the caller gave is left alone"
    assert np.abs(result.output - (a @ x.astype(np.float64) + 2.0 * y)).max() < 1e-4


# --- What comes out ---------------------------------------------------------------------------------------


def s4(text: Path, plan: str, sizes: Mapping[str, int] | None = None) -> str:
    return compile_file(text, {}, sizes, plan=f"{ENCODE},{plan}").package.mlir


@pytest.mark.parametrize("form", FORMS)
def test_alpha_multiplies_the_sum_once(form: str, kernel_file: Write) -> None:
    text = s4(kernel_file(FORMS[form]()), "rows-to-threads,map-blocks")
    (body,) = re.findall(r"scf\.for .*?\n(.*?)scf\.yield", text, re.DOTALL)
    assert body.count("fma") == 1
    assert "arith.mulf" not in body
    assert text.count("math.fma") == 2, "alpha times the sum is added to the scaled old value in one instruction"
    assert text.count("gpu.func") == 1, "no second pass over the output"


def test_the_old_value_is_read_in_one_branch_only(kernel_file: Write) -> None:
    text = s4(kernel_file(prologue()), "rows-to-threads,map-blocks")
    branch = re.search(r"scf\.if %\S+ -> \(f32\) \{(.*?)\} else \{(.*?)\n\s*\}", text, re.DOTALL)
    assert branch is not None
    assert "memref.load" not in branch[1]
    assert "memref.load" in branch[2]


def test_vectors_of_the_old_value(kernel_file: Write) -> None:
    text = s4(kernel_file(prologue(columns=True)), "vectorize{width=4},rows-to-threads,map-blocks", {"K": 32})
    assert re.search(r"scf\.if %\S+ -> \(vector<4xf32>\)", text)


def test_scalars_are_arguments_of_the_kernel_by_value(kernel_file: Write, tmp_path: Path) -> None:
    a = of_lengths(LENGTHS, 401)
    package = compile_file(kernel_file(epilogue()), {"A": a}).package
    assert re.search(r"\.param \.f32 ", package.ptx)
    package.save(tmp_path / "k")
    stored = json.loads((tmp_path / "k" / "package.json").read_text())
    assert [s["name"] for s in stored["computation"]["scalars"]] == ["alpha", "beta"]
    loaded = KernelPackage.load(tmp_path / "k")
    assert loaded.scalars == package.scalars
    assert loaded == package
    y = np.ones(len(LENGTHS), np.float32)
    result = run(loaded, {"A": a, "y": y, "alpha": 0.0, "beta": np.float64(4)})
    assert (result.output == 4).all()


def test_a_launch_takes_scalars_in_their_types(kernel_file: Write) -> None:
    for e, letter in (("f32", "f"), ("f64", "d")):
        package = compile_file(kernel_file(epilogue(e)), {}, plan=f"{ENCODE},rows-to-threads,map-blocks").package
        sizes = {name: 5 for launch in package.launches for name in launch.arguments}
        (launch,) = resolve(package, sizes, {"alpha": 0.1, "beta": 1})
        assert launch.format.count(letter) == 2
        with pytest.raises(InputError, match="the scalars beta have no value"):
            resolve(package, sizes, {"alpha": 0.1})


@pytest.mark.parametrize("which", ["alpha", "beta"])
def test_one_of_them(which: str, kernel_file: Write) -> None:
    a = of_lengths(LENGTHS, 401)
    text = epilogue()
    if which == "alpha":
        text = text.replace("%beta: f32, ", "").replace("%1 = arith.mulf %beta, %o : f32", "").replace("%0, %1 :", "%0, %o :")
    else:
        text = text.replace("%alpha: f32, ", "").replace("%0 = arith.mulf %alpha, %s : f32", "").replace("%0, %1 :", "%s, %1 :")
    for plan in (None, f"{ENCODE},{SPMV_PLANS[5]}", f"{ENCODE},{SPMV_PLANS[7]}"):
        package = compile_file(kernel_file(text), {"A": a}, plan=plan).package
        y = np.linspace(1, 2, len(LENGTHS), dtype=np.float32)
        result = run(package, {"A": a, "y": y, which: 3.0}, verify=True)
        assert result.check is not None
        assert result.check.passed
        assert result.output[0] == (y[0] if which == "alpha" else np.float32(3.0) * y[0])


def test_what_the_computation_says() -> None:
    c = computation(prologue())
    assert [(s.name, s.argument, s.dtype) for s in c.scalars] == [("alpha", 0, "float32"), ("beta", 3, "float32")]
    assert c.initial_scale == ("beta",)
    assert c == computation(prologue_generic())
    assert (c.body, c.initial_scale) == (computation(epilogue()).body, ("beta",))
    plain = computation(epilogue().replace("arith.mulf %beta, %o", "arith.mulf %zero, %o"))
    assert (plain.initial, plain.initial_scale) == (0.0, ()), "a constant factor of 0 is no old value at all"


def test_a_scalar_that_is_no_factor_stays_in_the_body(kernel_file: Write) -> None:
    """Here it multiplies one of two parts of a sum: `alpha a + a`."""
    body = "%p = arith.mulf %alpha, %a : f32\n    %0 = arith.addf %p, %a"
    text = kernel_file(prologue().replace("%0 = arith.mulf %alpha, %a", body))
    a = of_lengths(LENGTHS, 401)
    package = compile_file(text, {"A": a}).package
    x = np.linspace(-1, 1, 401, dtype=np.float32)
    result = run(package, {"A": a, "x": x, "y": np.ones(len(LENGTHS), np.float32), "alpha": 2, "beta": 1}, verify=True)
    assert result.check is not None
    assert result.check.passed
    assert np.abs(result.output - (3 * (a @ x) + 1)).max() < 1e-3


# --- What is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ({"alpha": 1.0}, "bind a number to the scalar 'beta' (--bind beta=1.0)"),
        ({"alpha": 1.0, "beta": 1.0, "gamma": 1.0}, "the kernel has no operand 'gamma'"),
        ({"alpha": 1.0, "bet": 1.0}, "did you mean 'beta'?"),
        ({"alpha": "much", "beta": 1.0}, "'much' is no number"),
        ({"alpha": 1e39, "beta": 1.0}, "not finite in float32"),
        ({"alpha": float("nan"), "beta": 1.0}, "not finite"),
        ({"alpha": 1.0, "arg0": 1.0, "beta": 1.0}, "'alpha' is bound twice"),
        ({"alpha": np.zeros(3), "beta": 1.0}, "is no number"),
    ],
)
def test_bindings_that_are_refused(bound: dict[str, Any], message: str, kernel_file: Write) -> None:
    package = compile_file(kernel_file(prologue()), {}, plan=f"{ENCODE},rows-to-threads,map-blocks").package
    with pytest.raises(InputError, match=re.escape(message)):
        run(package, {"A": MATRICES["1x1"](), **bound})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("arith.mulf %alpha, %s", "arith.divf %s, %alpha"), "'arith.divf' around the op with the sparse operand"),
        (("arith.mulf %beta, %o", "arith.mulf %s, %o"), "'arith.mulf' around the op"),
        (("arith.mulf %beta, %o", "arith.mulf %beta, %s"), "the sum is added to itself"),
        (("arith.mulf %alpha, %s", "arith.mulf %alpha, %o"), "two old values are added"),
        (("%zero = arith.constant 0.0", "%zero = arith.constant 1.0"), "a scalar multiplies a constant"),
        (("%beta: f32", "%beta: i32"), "the argument 'beta' of type i32 is not supported"),
    ],
)
def test_kernels_that_are_refused(change: tuple[str, str], message: str) -> None:
    text = epilogue().replace(*change)
    if "i32" in text:
        text = text.replace("arith.mulf %beta, %o", "arith.mulf %alpha, %o")
    with pytest.raises(Unsupported, match=re.escape(message)):
        computation(text)


def test_an_output_that_is_an_input_too() -> None:
    text = prologue().replace("ins(%A, %x :", "ins(%A, %y :")
    with pytest.raises(Unsupported, match="updated in place"):
        computation(text)
