"""Compiled kernels under emulation: right for every operator, type, format, width, plan and K, on hard matrices.

Each result is held to the compiler's own check and, independently of it, to SciPy in float64.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import (
    DTYPES,
    MATRICES,
    PRODUCT,
    agrees,
    both,
    every_case,
    generic,
    matmul,
    matvec,
    pairs_of,
    transposed_matmul,
    transposed_matvec,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparseditto.compiler.api import compile_file, run
from sparseditto.dialects.errors import DittoError, NotApplicable, PlanError, Unsupported

Write = Callable[[str], Path]
Case = dict[str, Any]

THREADS = "accumulate-registers,rows-to-threads,map-blocks"
ENTRIES = "accumulate-registers,rows-to-subgroups{lanes=8 share=entries},unroll{factor=2},map-blocks"
COLUMNS = "accumulate-registers,rows-to-subgroups{lanes=4 share=columns},map-blocks"


# --- Operators x types x formats x widths x plans x columns ------------------------------------------------

FORMATS = ("csr", "dcsr", "bsr block-rows=2 block-columns=2", "bsr block-rows=3 block-columns=4")
WIDTHS = ((32, 32), (16, 16), (32, 16), (64, 32), (64, 64), (16, 64))
LANES = (1, 2, 4, 8, 16, 32)
SHARED_ENTRIES = [f"rows-to-subgroups{{lanes={n} share=entries}}" for n in LANES]
SHARED_COLUMNS = [f"rows-to-subgroups{{lanes={n} share=columns}}" for n in LANES]
FACTORS = {
    "spmv": {
        "operator": ("y = Ax + y", "y = Ax + 0", "y = A^T x + y"),
        "dtype": ("f32", "f64"),
        "format": FORMATS,
        "widths": WIDTHS,
        "rows": ("rows-to-threads", "rows-to-subgroups{lanes=4}", *SHARED_ENTRIES),
        "unroll": (1, 2, 4, 8, 16),
        "threads": (32, 64, 96, 128, 256, 1024),
    },
    "spmm": {
        "operator": ("C = AB + 0", "C = AB + C", "C = A^T B + C"),
        "dtype": ("f32", "f64"),
        "format": FORMATS,
        "widths": WIDTHS,
        "rows": ("rows-to-threads", "rows-to-subgroups{lanes=2}", *SHARED_COLUMNS, *SHARED_ENTRIES),
        "unroll": (1, 2, 4, 8, 16),
        "threads": (32, 128, 192, 512),
        "columns": ("1", "2", "3", "8", "9", "33", "64", "143", "told at the run: 5", "told at the run: 143"),
        "vector": (1, 2, 4, 8),
    },
}


def valid(case: Case) -> bool:
    """Whether a plan that combines these exists at all."""
    if "A^T" in case["operator"] and case["format"].startswith("bsr"):
        return False  # no such format stores columns first
    columns = case.get("columns")
    if columns is None:
        return True
    width = case["vector"]
    if columns == "1":  # a loop over one column folds away
        return bool("columns" not in case["rows"] and width == 1)
    return bool(width == 1 or (columns.isdigit() and int(columns) % width == 0))


def plan_of(case: Case) -> str:
    positions, coordinates = case["widths"]
    layout = case["format"]
    if "A^T" in case["operator"]:
        layout = {"csr": "csc", "dcsr": "dcsc"}[layout]
    steps = [f"set-encoding{{format={layout} positions={positions} coordinates={coordinates}}}", "accumulate-registers"]
    steps += [f"vectorize{{width={case['vector']}}}"] if case.get("vector", 1) > 1 else []
    steps += [case["rows"]]
    steps += [f"unroll{{factor={case['unroll']}}}"] if case["unroll"] > 1 else []
    return ",".join([*steps, f"map-blocks{{threads={case['threads']}}}"])


@cache
def thinned(name: str) -> tuple[Case, ...]:
    """Few cases that hold every possible pair of values: each new one takes the most that are missing out of 40 random ones."""
    rng = random.Random(0)
    factors = FACTORS[name]

    def at_random(fixed: Case) -> Case | None:
        for _ in range(50):
            case = {key: rng.choice(values) for key, values in factors.items()} | fixed
            if valid(case):
                return case
        return None

    missing = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(factors, 2)
        for x, y in itertools.product(factors[a], factors[b])
        if at_random({a: x, b: y})
    }
    chosen = []
    while missing:
        first, second = min(missing, key=str)
        candidates = [c for c in (at_random(dict((first, second))) for _ in range(40)) if c]
        best = max(candidates, key=lambda c: len(pairs_of(c) & missing))
        missing -= pairs_of(best)
        chosen.append(best)
    return tuple(chosen)


def source_of(case: Case) -> str:
    e = case["dtype"]
    return {
        "y = Ax + y": lambda: matvec(e),
        "y = Ax + 0": lambda: matvec(e, fill=0.0),
        "y = A^T x + y": lambda: transposed_matvec(e),
        "C = AB + 0": lambda: matmul(e),
        "C = AB + C": lambda: matmul(e, fill=None),
        "C = A^T B + C": lambda: transposed_matmul(e),
    }[case["operator"]]()


def compile_and_check(case: Case, write: Write, a: sp.csr_array) -> None:
    columns = case.get("columns")
    both(
        write(source_of(case)),
        a,
        plan_of(case),
        None if columns is None else int(columns.rsplit(" ", 1)[-1]),
        dynamic=columns is not None and not columns.isdigit(),
        transpose="A^T" in case["operator"],
    )


def case_id(case: Case) -> str:
    return " ".join(map(str, case.values())).replace("[", "(").replace("]", ")")


@pytest.mark.parametrize("case", thinned("spmv"), ids=case_id)
def test_spmv_is_right(case: Case, kernel_file: Write, staircase: sp.csr_array) -> None:
    compile_and_check(case, kernel_file, staircase)


@pytest.mark.parametrize("case", thinned("spmm"), ids=case_id)
def test_spmm_is_right(case: Case, kernel_file: Write, staircase: sp.csr_array) -> None:
    compile_and_check(case, kernel_file, staircase)


def test_thinning_leaves_out_no_pair() -> None:
    covered = set().union(*map(pairs_of, thinned("spmv")))
    assert covered == set().union(*map(pairs_of, every_case(FACTORS["spmv"], valid)))
    assert len(thinned("spmv")) < 100
    assert len(thinned("spmm")) < 260


@pytest.mark.slow
@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("rows", FACTORS["spmm"]["rows"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operator", ["C = AB + 0", "C = A^T B + C", "y = Ax + y", "y = A^T x + y"])
def test_sweep(operator: str, dtype: str, rows: str, layout: str, kernel_file: Write, staircase: sp.csr_array) -> None:
    kind = "spmv" if operator.startswith("y") else "spmm"
    if rows not in FACTORS[kind]["rows"]:
        pytest.skip("there are no columns to share")
    fixed = {"operator": (operator,), "dtype": (dtype,), "format": (layout,), "rows": (rows,)}
    cases = list(every_case({**FACTORS[kind], **fixed}, valid))
    if not cases:
        pytest.skip("no such plan exists")
    rng = random.Random(f"{operator} {dtype} {rows} {layout}")
    for case in rng.sample(cases, min(6, len(cases))):
        compile_and_check(case, kernel_file, staircase)


# --- Hard matrices ------------------------------------------------------------------------------------

PLANS = {
    "planner's": None,
    "threads": f"set-encoding,{THREADS}",
    "entries": f"set-encoding{{format=dcsr}},{ENTRIES}",
    "blocks": f"set-encoding{{format=bsr block-rows=3 block-columns=4}},{ENTRIES}",
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", MATRICES)
def test_spmv_on_hard_matrices(name: str, plan: str, kernel_file: Write) -> None:
    both(kernel_file(matvec("f64" if name == "1xn" else "f32")), MATRICES[name](), PLANS[plan])


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", MATRICES)
def test_spmm_on_hard_matrices(name: str, plan: str, kernel_file: Write) -> None:
    both(kernel_file(matmul("f64" if name == "nx1" else "f32")), MATRICES[name](), PLANS[plan], columns=8)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("plan", [None, f"set-encoding,{THREADS}", f"set-encoding{{format=dcsr}},{COLUMNS}"])
@pytest.mark.parametrize("name", ["staircase", "0x0", "no entries"])
def test_no_columns(name: str, plan: str | None, dynamic: bool, kernel_file: Write) -> None:
    assert both(kernel_file(matmul()), MATRICES[name](), plan, columns=0, dynamic=dynamic).output.size == 0


def test_duplicate_entries_are_summed(kernel_file: Write) -> None:
    duplicated = sp.coo_array(([1.0, 2.0, 4.0, 8.0], ([0, 0, 2, 0], [1, 1, 0, 1])), shape=(3, 2))
    result = both(kernel_file(matvec(fill=0.0)), duplicated)
    assert np.allclose(result.output, [11 * result.inputs.dense["x"][1], 0, 4 * result.inputs.dense["x"][0]])


@pytest.mark.parametrize("kind", [sp.coo_array, sp.csc_array, sp.csr_matrix, sp.lil_array, sp.bsr_array, np.asarray])
def test_every_scipy_class_is_taken(kind: Any, kernel_file: Write, staircase: sp.csr_array) -> None:
    a = kind(staircase.toarray() if kind is np.asarray else staircase)
    both(kernel_file(matvec()), a)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64, np.uint16, np.bool_])
def test_every_value_type_is_taken(dtype: Any, kernel_file: Write, staircase: sp.csr_array) -> None:
    both(kernel_file(matvec()), sp.csr_array((10 * staircase).astype(dtype)))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_patterns(data: st.DataObject, kernel_file: Write) -> None:
    m, n = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    entries = data.draw(st.sets(st.tuples(st.integers(0, m - 1), st.integers(0, n - 1)), max_size=120))
    rows, columns = zip(*sorted(entries), strict=True) if entries else ((), ())
    values = data.draw(st.lists(st.floats(-4, 4, width=32), min_size=len(entries), max_size=len(entries)))
    a = sp.csr_array(sp.coo_array((np.array(values, float), (rows, columns)), shape=(m, n)))
    kind = data.draw(st.sampled_from(["spmv", "spmm"]))
    factors = FACTORS[kind]
    case = {key: data.draw(st.sampled_from(choices), label=key) for key, choices in factors.items()}
    if valid(case):
        compile_and_check(case, kernel_file, a)


# --- Dense operands -----------------------------------------------------------------------------------


def odd_layouts(array: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The same numbers in arrays that are not C-contiguous or not of the kernel's type."""
    spread = np.zeros(tuple(2 * n for n in array.shape), array.dtype)
    spread[(slice(None, None, 2),) * array.ndim] = array
    return {
        "every other": spread[(slice(None, None, 2),) * array.ndim],
        "backwards": array[::-1].copy()[::-1],
        "by columns": np.asfortranarray(array),
        "big endian": array.astype(array.dtype.newbyteorder(">")),
        "float64": array.astype(np.float64),
        "read only": np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
    }


@pytest.mark.parametrize("layout", odd_layouts(np.zeros(1)))
def test_layout_of_dense_operands_does_not_matter(layout: str, kernel_file: Write, staircase: sp.csr_array) -> None:
    rng = np.random.default_rng(3)
    b, c = (rng.uniform(-1, 1, (n, 9)).astype(np.float32) for n in reversed(staircase.shape))
    given_b, given_c = odd_layouts(b)[layout], odd_layouts(c)[layout]
    package = compile_file(kernel_file(matmul(fill=None)), {"A": staircase, "B": given_b}).package
    result = run(package, {"A": staircase, "B": given_b, "C": given_c}, verify=True)
    assert result.check is not None
    assert result.check.passed
    assert agrees(result.output, staircase, b, c)
    assert np.array_equal(given_b, b), "an input was changed"
    assert np.array_equal(given_c, c), "the bound output was changed"


@pytest.mark.parametrize("layout", ["csr", "dcsr", "bsr"])
@pytest.mark.parametrize("fill", [0.0, -2.5])
def test_fill_is_where_the_sum_starts(fill: float, layout: str, kernel_file: Write, staircase: sp.csr_array) -> None:
    plan = f"set-encoding{{format={layout}}}"
    y = both(kernel_file(matvec(fill=fill)), staircase, f"{plan},{ENTRIES}").output
    c = both(kernel_file(matmul(fill=fill)), staircase, f"{plan},{COLUMNS}", columns=9).output
    assert (y[-3:] == fill).all(), "an empty row"
    assert (c[-3:] == fill).all(), "an empty row"


def test_values_that_are_not_finite_in_dense_operands(kernel_file: Write) -> None:
    a = MATRICES["diagonal"]()
    x = np.ones(a.shape[1], np.float32)
    x[[5, 6, 7]] = np.nan, np.inf, -np.inf
    package = compile_file(kernel_file(matvec(fill=0.0)), {"A": a}).package
    result = run(package, {"A": a, "x": x}, verify=True)
    assert result.check is not None
    assert result.check.passed
    assert not np.isfinite(result.output[5:8]).any()
    assert np.isfinite(np.delete(result.output, [5, 6, 7])).all()


def test_runs_of_one_package_do_not_depend_on_each_other(kernel_file: Write, staircase: sp.csr_array) -> None:
    package = compile_file(kernel_file(matvec()), {"A": staircase}).package
    first = run(package, {"A": staircase}, seed=1)
    other = run(package, {"A": sp.csr_array(staircase[:20])}, seed=1)
    again = run(package, {"A": staircase}, seed=1)
    assert other.output.shape == (20,)
    assert np.array_equal(first.output, again.output)
    assert not np.array_equal(first.output, run(package, {"A": staircase}, seed=2).output)


@pytest.mark.parametrize("checks", [True, False])
def test_checks_of_the_emulator_do_not_change_results(checks: bool, kernel_file: Write, staircase: sp.csr_array) -> None:
    plan = "set-encoding,accumulate-registers,rows-to-subgroups,map-blocks"  # without atomic additions, whose order varies
    package = compile_file(kernel_file(matmul()), {"A": staircase}, {"K": 12}, plan=plan).package
    wanted = run(package, {"A": staircase}).output
    assert np.array_equal(run(package, {"A": staircase}, checks=checks).output, wanted)


# --- Other computations -------------------------------------------------------------------------------

VECTOR = "tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>"
MATRIX = "tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>"
ROWS = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>"

BODIES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "scaled": (
        "%s = arith.constant 2.5 : f32\n%u = arith.mulf %b, %s : f32\n"
        "%t = arith.mulf %a, %u : f32\n%r = arith.addf %c, %t : f32",
        lambda a, x: 2.5 * a @ x,
    ),
    "operands swapped": ("%t = arith.mulf %b, %a : f32\n%r = arith.addf %t, %c : f32", lambda a, x: a @ x),
    "squares": (
        "%s = arith.mulf %a, %a : f32\n%t = arith.mulf %s, %b : f32\n%r = arith.addf %c, %t : f32",
        lambda a, x: a.multiply(a) @ x,
    ),
    "absolute values": (
        "%s = math.absf %a : f32\n%t = arith.mulf %s, %b : f32\n%r = arith.addf %c, %t : f32",
        lambda a, x: abs(a) @ x,
    ),
    "negated": (
        "%s = arith.negf %a : f32\n%t = arith.mulf %s, %b : f32\n%r = arith.addf %c, %t : f32",
        lambda a, x: -a @ x,
    ),
    "a function of x": (
        "%s = math.exp %b : f32\n%t = arith.mulf %s, %a : f32\n%r = arith.addf %c, %t : f32",
        lambda a, x: a @ np.exp(x),
    ),
    "x unused": ("%r = arith.addf %c, %a : f32", lambda a, x: a.sum(axis=1)),
}


@pytest.mark.parametrize("plan", [None, f"set-encoding{{format=dcsr}},{THREADS}", f"set-encoding{{format=bsr}},{ENTRIES}"])
@pytest.mark.parametrize("body", BODIES)
def test_other_bodies(body: str, plan: str | None, kernel_file: Write, staircase: sp.csr_array) -> None:
    text, expected = BODIES[body]
    package = compile_file(
        kernel_file(generic(ROWS, "parallel reduction", text, types=VECTOR)), {"A": staircase}, plan=plan
    ).package
    result = run(package, {"A": staircase}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check
    a, x = (v.astype(np.float64) for v in (staircase.astype(np.float32), result.inputs.dense["x"]))
    assert np.allclose(result.output, expected(a, x) + result.inputs.initial, atol=1e-4)


@pytest.mark.parametrize("op", ["maximumf", "minimumf", "maxnumf", "minnumf", "mulf"])
@pytest.mark.parametrize("term", ["mulf", "addf"])
def test_reductions_that_zeros_do_not_leave_alone_are_refused(
    op: str, term: str, kernel_file: Write, staircase: sp.csr_array
) -> None:
    body = f"%t = arith.{term} %a, %b : f32\n%r = arith.{op} %c, %t : f32"
    with pytest.raises(Unsupported):
        compile_file(kernel_file(generic(ROWS, "parallel reduction", body, types=VECTOR)), {"A": staircase})


def test_rows_scaled_in_a_sum(kernel_file: Write, staircase: sp.csr_array) -> None:
    maps = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>"
    package = compile_file(kernel_file(generic(maps, "parallel reduction", PRODUCT, types=VECTOR)), {"A": staircase}).package
    result = run(package, {"A": staircase}, verify=True)
    assert result.check is not None
    assert result.check.passed
    expected = staircase.sum(axis=1) * result.inputs.dense["x"] + result.inputs.initial
    assert np.allclose(result.output, expected, atol=1e-4)


@pytest.mark.parametrize("plan", [None, *(f"set-encoding{{format={f}}},{THREADS}" for f in ("csr", "csc", "dcsr"))])
def test_diagonal_times_sparse_into_dense(plan: str | None, kernel_file: Write, staircase: sp.csr_array) -> None:
    maps = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>"
    types = "tensor<?x?xf32>, tensor<?xf32>, tensor<?x?xf32>"
    text = generic(maps, "parallel parallel", PRODUCT, types=types)
    result = run(compile_file(kernel_file(text), {"A": staircase}, plan=plan).package, {"A": staircase}, verify=True)
    assert result.check is not None
    assert result.check.passed
    expected = staircase.toarray() * result.inputs.dense["x"][:, None] + result.inputs.initial
    assert np.allclose(result.output, expected, atol=1e-5)


DENSE_TIMES_SPARSE = """
func.func @f(%B: tensor<?x?xf32>, %A: tensor<?x?xf32> {ditto.sparse}, %C: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = linalg.matmul ins(%B, %A : tensor<?x?xf32>, tensor<?x?xf32>) outs(%C : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}"""


@pytest.mark.parametrize("columns", [1, 12, 33])
@pytest.mark.parametrize("plan", [None, f"set-encoding{{format=csc}},{THREADS}", f"set-encoding{{format=dcsc}},{THREADS}"])
def test_dense_times_sparse(plan: str | None, columns: int, kernel_file: Write, staircase: sp.csr_array) -> None:
    package = compile_file(kernel_file(DENSE_TIMES_SPARSE), {"A": staircase}, {"K": columns}, plan=plan).package
    result = run(package, {"A": staircase}, verify=True)
    assert result.check is not None
    assert result.check.passed
    initial = result.inputs.initial
    assert initial is not None
    assert agrees(result.output.T, sp.csr_array(staircase.T), result.inputs.dense["B"].T, initial.T)


STORED_OTHERWISE = {
    "B transposed": ("(i, k, j) -> (i, j)", "(i, k, j) -> (k, j)", "(i, k, j) -> (i, k)"),
    "C transposed": ("(i, k, j) -> (i, j)", "(i, k, j) -> (j, k)", "(i, k, j) -> (k, i)"),
    "loops in another order": ("(k, i, j) -> (i, j)", "(k, i, j) -> (j, k)", "(k, i, j) -> (i, k)"),
}


@pytest.mark.parametrize("plan", [None, f"set-encoding,{COLUMNS}"])
@pytest.mark.parametrize("name", STORED_OTHERWISE)
def test_dense_operands_stored_otherwise(name: str, plan: str | None, kernel_file: Write, staircase: sp.csr_array) -> None:
    maps = ", ".join(f"affine_map<{m}>" for m in STORED_OTHERWISE[name])
    text = generic(maps, "parallel parallel reduction", PRODUCT, types=MATRIX)
    package = compile_file(kernel_file(text), {"A": staircase}, {"K": 12}, plan=plan).package
    result = run(package, {"A": staircase}, verify=True)
    assert result.check is not None
    assert result.check.passed
    b, c, output = result.inputs.dense["x"], result.inputs.initial, result.output
    assert c is not None
    if name == "B transposed":
        b = b.T
    if name == "C transposed":
        output, c = output.T, c.T
    assert agrees(output, staircase, b, c)


PINNED = {
    "csr": "map = (d0, d1) -> (d0 : dense, d1 : compressed)",
    "csr with narrow indices": "map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 16, crdWidth = 8",
    "dcsr": "map = (d0, d1) -> (d0 : compressed, d1 : compressed), posWidth = 32, crdWidth = 32",
    "loose csr": "map = (d0, d1) -> (d0 : dense, d1 : loose_compressed), posWidth = 32, crdWidth = 32",
    "bsr 5x2": "map = (i, j) -> (i floordiv 5 : dense, j floordiv 2 : compressed, i mod 5 : dense, j mod 2 : dense)",
}


@pytest.mark.parametrize("name", PINNED)
def test_pinned_encodings(name: str, kernel_file: Write, staircase: sp.csr_array) -> None:
    text = f"#E = #sparse_tensor.encoding<{{ {PINNED[name]} }}>\n" + matvec(a="tensor<?x?xf32, #E>")
    if name == "csr with narrow indices":
        staircase = sp.csr_array(staircase[:, :67])
    both(kernel_file(text), staircase)


@pytest.mark.parametrize("static", ["tensor<69x67xf32>", "tensor<69x?xf32>", "tensor<?x67xf32>"])
def test_static_shapes(static: str, kernel_file: Write, staircase: sp.csr_array) -> None:
    m, n = (word.removeprefix("tensor<") for word in static.split("x")[:2])
    text = f"""func.func @f(%A: {static} {{ditto.sparse}}, %x: tensor<{n}xf32>, %y: tensor<{m}xf32>) -> tensor<{m}xf32> {{
      %r = linalg.matvec ins(%A, %x : {static}, tensor<{n}xf32>) outs(%y : tensor<{m}xf32>) -> tensor<{m}xf32>
      return %r : tensor<{m}xf32>
    }}"""
    both(kernel_file(text), staircase)
    both(kernel_file(text), staircase, f"set-encoding{{format=dcsr}},{ENTRIES}")


@pytest.mark.parametrize(
    ("block", "divides"), [("block-rows=3 block-columns=2", True), ("block-rows=4 block-columns=4", False)]
)
def test_static_blocks(block: str, divides: bool, kernel_file: Write) -> None:
    text = """func.func @f(%A: tensor<69x66xf32> {ditto.sparse}, %x: tensor<66xf32>, %y: tensor<69xf32>) -> tensor<69xf32> {
      %r = linalg.matvec ins(%A, %x : tensor<69x66xf32>, tensor<66xf32>) outs(%y : tensor<69xf32>) -> tensor<69xf32>
      return %r : tensor<69xf32>
    }"""
    a = sp.random_array((69, 66), density=0.2, rng=np.random.default_rng(5), format="csr")
    plan = f"set-encoding{{format=bsr {block}}},{THREADS}"
    if divides:
        both(kernel_file(text), a, plan)
        return
    with pytest.raises(Unsupported):
        both(kernel_file(text), a, plan)


# --- Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "columns", "message"),
    [
        (f"set-encoding{{format=csc}},{THREADS}", None, "scattered|needs a parallel loop"),
        (f"set-encoding,vectorize,{THREADS}", 8, "needs reductions in registers|does not go with vectors"),
        ("set-encoding,accumulate-registers,vectorize{width=4},rows-to-threads,map-blocks", 9, "width 4 does not divide 9"),
        ("set-encoding,accumulate-registers,vectorize{width=4},rows-to-threads,map-blocks", None, "the number of columns"),
        ("set-encoding,accumulate-registers,rows-to-threads", 8, "map-blocks"),
        ("set-encoding,map-blocks", 8, "needs rows mapped"),
        (f"set-encoding,{THREADS},map-blocks", 8, "does not go with the grid"),
        ("set-encoding,accumulate-registers,unroll,unroll,rows-to-threads,map-blocks", 8, "does not go with"),
        (f"set-encoding,set-encoding,{THREADS}", 8, "no operand is marked"),
        (
            "set-encoding,accumulate-registers,unroll,rows-to-subgroups{share=entries},map-blocks",
            8,
            "share first, then unroll",
        ),
    ],
)
def test_plans_that_do_not_apply(
    plan: str, columns: int | None, message: str, kernel_file: Write, staircase: sp.csr_array
) -> None:
    with pytest.raises((NotApplicable, PlanError), match=message):
        compile_file(kernel_file(matmul()), {"A": staircase}, {"K": columns} if columns else {}, plan=plan)


def test_shared_columns_of_a_vector_are_refused(kernel_file: Write, staircase: sp.csr_array) -> None:
    with pytest.raises(NotApplicable, match="one loop over dense columns, not 0"):
        compile_file(kernel_file(matvec()), {"A": staircase}, plan=f"set-encoding,{COLUMNS}")


def test_indices_too_wide_for_the_plan(kernel_file: Write) -> None:
    wide = sp.csr_array(([1.0], ([0], [70_000])), shape=(2, 80_000))
    plan = f"set-encoding{{coordinates=16}},{THREADS}"
    package = compile_file(kernel_file(matvec()), {"A": wide}, plan=plan).package
    with pytest.raises(DittoError, match="does not fit in 16 bits; use coordinate width 32"):
        run(package, {"A": wide})


# --- What the PTX says --------------------------------------------------------------------------------


def test_ptx_uses_what_was_promised(kernel_file: Write, staircase: sp.csr_array) -> None:
    package = compile_file(kernel_file(matmul()), {"A": staircase}, {"K": 64}).package
    assert "ld.global.nc.v4" in package.ptx
    assert "st.global.v4" in package.ptx
    assert ".target sm_90" in package.ptx
    assert f".reqntid {package.launches[0].block[0]}" in package.ptx or ".maxntid" in package.ptx
    assert "fma.rn.f32" in package.ptx


@pytest.mark.parametrize("chip", ["sm_70", "sm_80", "sm_100", "sm_120"])
def test_every_target(chip: str, kernel_file: Write, staircase: sp.csr_array) -> None:
    package = compile_file(kernel_file(matvec()), {"A": staircase}, chip=chip).package
    assert package.chip == chip
    assert f".target {chip}" in package.ptx


def test_the_same_input_gives_the_same_kernel(kernel_file: Write, staircase: sp.csr_array) -> None:
    first, second = (compile_file(kernel_file(matmul()), {"A": staircase}, {"K": 32}).package for _ in range(2))
    assert first == second
