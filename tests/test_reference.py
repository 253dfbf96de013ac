"""The float64 reference and the comparison with it."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, PRODUCT, computation, generic, matmul, matvec, transposed_matmul, transposed_matvec
from hypothesis import given
from hypothesis import strategies as st

from sparseditto.compiler import reference
from sparseditto.compiler.computation import Computation
from sparseditto.compiler.reference import TOLERANCE, Check, compare, evaluate
from sparseditto.dialects.errors import Unsupported

Array = np.ndarray[Any, Any]


VECTOR = "tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>"
MATRIX = "tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>"
ROWS = "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>"
SUM = "parallel parallel reduction"


def maps(a: str, b: str, c: str) -> str:
    return ", ".join(f"affine_map<(i, k, j) -> {m}>" for m in (a, b, c))


# Each with how NumPy says it, for a dense A.
COMPUTATIONS: dict[str, tuple[str, str]] = {
    "A x": (matvec(), "ij,j->i"),
    "A^T x": (transposed_matvec(), "ji,j->i"),
    "A B": (matmul(fill=None), "ij,jk->ik"),
    "A^T B": (transposed_matmul(), "ji,jk->ik"),
    "A B^T": (generic(maps("(i, j)", "(k, j)", "(i, k)"), SUM, PRODUCT, types=MATRIX), "ij,kj->ik"),
    "(A B)^T": (generic(maps("(i, j)", "(j, k)", "(k, i)"), SUM, PRODUCT, types=MATRIX), "ij,jk->ki"),
    "A^T B^T": (generic(maps("(j, i)", "(k, j)", "(i, k)"), SUM, PRODUCT, types=MATRIX), "ji,kj->ik"),
    "rows scaled": (
        generic(
            "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>",
            "parallel parallel",
            PRODUCT,
            types="tensor<?x?xf32>, tensor<?xf32>, tensor<?x?xf32>",
        ),
        "ij,i->ij",
    ),
    "spread": (
        generic(
            "affine_map<(i, j, k) -> (i, j)>, affine_map<(i, j, k) -> (k)>, affine_map<(i, j, k) -> (i, k)>",
            "parallel reduction parallel",
            PRODUCT,
            types="tensor<?x?xf32>, tensor<?xf32>, tensor<?x?xf32>",
        ),
        "ij,k->ik",
    ),
}


def operands(c: Computation, a: sp.csr_array, columns: int = 5, seed: int = 0) -> tuple[dict[str, Array], Array]:
    rng = np.random.default_rng(seed)
    extents = dict(zip(c.sparse.dims, a.shape, strict=True))
    shape = [tuple(extents.get(d, columns) for d in o.dims) for o in (c.inputs[1], c.output)]
    return {c.inputs[1].name: rng.uniform(-1, 1, shape[0])}, rng.uniform(-1, 1, shape[1])


@pytest.mark.parametrize("matrix", ["staircase", "0x5", "5x0", "no entries", "1x1", "full row", "full column"])
@pytest.mark.parametrize("name", COMPUTATIONS)
def test_dense_numpy_says_the_same(name: str, matrix: str) -> None:
    text, formula = COMPUTATIONS[name]
    c, a = computation(text), MATRICES[matrix]()
    dense, initial = operands(c, a)
    (b,) = dense.values()
    result, scale = evaluate(c, a, dense, initial)
    assert result.shape == scale.shape == initial.shape
    assert np.allclose(result, np.einsum(formula, a.toarray(), b) + initial, rtol=1e-12)
    assert np.allclose(scale, np.einsum(formula, abs(a.toarray()), abs(b)) + abs(initial), rtol=1e-12)


@pytest.mark.parametrize("name", ["A x", "A^T x", "A B", "A^T B", "A B^T", "(A B)^T", "A^T B^T"])
def test_the_fast_path_and_the_general_one_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    c, a = computation(COMPUTATIONS[name][0]), MATRICES["staircase"]()
    dense, initial = operands(c, a, columns=3)
    assert reference._plain_product(c, {}) is not None
    fast = evaluate(c, a, dense, initial)
    monkeypatch.setattr(reference, "_plain_product", lambda *_: None)
    general = evaluate(c, a, dense, initial)
    assert np.allclose(fast[0], general[0], rtol=1e-13)
    assert np.allclose(fast[1], general[1], rtol=1e-13)


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_runs_of_entries_add_up(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    c, a = computation(COMPUTATIONS["spread"][0]), MATRICES["staircase"]()
    dense, initial = operands(c, a)
    whole = evaluate(c, a, dense, initial)
    monkeypatch.setattr(reference, "_CHUNK", chunk * 5)
    parts = evaluate(c, a, dense, initial)
    assert np.allclose(whole[0], parts[0], rtol=1e-13)


def test_a_fill_is_where_the_sum_starts() -> None:
    a = MATRICES["no entries"]()
    result, scale = evaluate(computation(matvec(fill=-2.0)), a, {"x": np.zeros(6)}, None)
    assert result.tolist() == [-2.0] * 7
    assert scale.tolist() == [2.0] * 7


def test_inputs_are_left_alone() -> None:
    c, a = computation(matvec()), MATRICES["staircase"]()
    dense, initial = operands(c, a)
    copies = dense["x"].copy(), initial.copy()
    evaluate(c, a, dense, initial)
    assert np.array_equal(dense["x"], copies[0])
    assert np.array_equal(initial, copies[1])


def body(text: str) -> Computation:
    return computation(generic(ROWS, "parallel reduction", text, types=VECTOR))


def test_bodies_with_constants_and_functions() -> None:
    c = body(
        "%s = arith.constant 3.0 : f32\n%u = math.exp %b : f32\n%v = arith.subf %u, %s : f32\n%w = math.absf %v : f32\n"
        "%q = math.sqrt %w : f32\n%t = arith.mulf %a, %q : f32\n%r = arith.addf %t, %c : f32"
    )
    a = MATRICES["staircase"]()
    dense, initial = operands(c, a)
    result, _ = evaluate(c, a, dense, initial)
    assert np.allclose(result, a @ np.sqrt(np.abs(np.exp(dense["x"]) - 3)) + initial)


def test_the_scale_does_not_cancel() -> None:
    """a * (x - 1) with x = 1: the value is 0, the scale must be |a| * (|x| + 1)."""
    c = body(
        "%k = arith.constant 1.0 : f32\n%d = arith.subf %b, %k : f32\n"
        "%t = arith.mulf %a, %d : f32\n%r = arith.addf %c, %t : f32"
    )
    a = sp.csr_array(np.array([[2.0, -3.0], [0.0, 4.0]]))
    result, scale = evaluate(c, a, {"x": np.ones(2)}, np.zeros(2))
    assert result.tolist() == [0.0, 0.0]
    assert scale.tolist() == [10.0, 8.0]


@pytest.mark.parametrize(
    ("op", "numpy"), [("maximumf", np.max), ("minimumf", np.min), ("maxnumf", np.max), ("minnumf", np.min), ("mulf", np.prod)]
)
def test_other_ways_to_combine(op: str, numpy: Any) -> None:
    c = computation(matvec())
    c = dataclasses.replace(c, body=(c.body[0], dataclasses.replace(c.body[1], op=f"arith.{op}")))
    a = sp.csr_array(np.array([[1.0, -2.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]]))
    x, initial = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.5])
    result, _ = evaluate(c, a, {"x": x}, initial)
    expected = [numpy([0.5, 1.0, -4.0]), 0.5, numpy([0.5, 3.0, 12.0])]
    assert np.allclose(result, expected)


@pytest.mark.parametrize(
    "text",
    [
        "%t = arith.mulf %a, %b : f32\n%r = arith.subf %c, %t : f32",
        "%t = arith.addf %c, %a : f32\n%r = arith.mulf %t, %b : f32",
        "%t = arith.mulf %c, %a : f32\n%r = arith.addf %c, %t : f32",
        "%r = arith.addf %c, %c : f32",
        "%r = arith.mulf %a, %b : f32",
    ],
)
def test_bodies_that_are_no_reduction(text: str) -> None:
    a = MATRICES["1x1"]()
    with pytest.raises(Unsupported):
        evaluate(body(text), a, {"x": np.ones(1)}, np.ones(1))


def test_values_that_are_not_finite_make_no_warning() -> None:
    c, a = computation(matvec()), MATRICES["special values"]()
    result, scale = evaluate(c, a, {"x": np.array([1, np.inf, 0, 1, 1, 1, 1e308, 1, np.nan])}, np.ones(10))
    assert np.isnan(result[[0, 2, 8]]).all()
    assert np.isposinf(result[1])
    assert scale.shape == (10,)


# --- Comparison ---------------------------------------------------------------------------------------

F32, F64 = np.finfo(np.float32), np.finfo(np.float64)


def verdict(value: Any, expected: Any, scale: Any, dtype: Any = np.float32) -> Check:
    with np.errstate(over="ignore"):
        return compare(np.atleast_1d(np.asarray(value, dtype)), np.atleast_1d(float(expected)), np.atleast_1d(float(scale)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_tolerance_is_relative_to_the_scale(dtype: Any) -> None:
    tolerance = TOLERANCE[np.dtype(dtype).name]
    for scale in (1e-3, 1.0, 1e10):
        assert verdict(0.9 * tolerance * scale, 0.0, scale, dtype).passed
        assert not verdict(1.1 * tolerance * scale, 0.0, scale, dtype).passed
    assert verdict(0.5 * tolerance, 0.0, 1.0, dtype).worst == pytest.approx(0.5 * tolerance, rel=1e-6)


@pytest.mark.parametrize(
    ("value", "expected", "scale", "passed"),
    [
        (math.nan, math.nan, math.nan, True),
        (math.nan, math.nan, math.inf, True),
        (math.nan, 1.0, 1.0, False),
        (1.0, math.nan, math.nan, False),
        (math.inf, math.inf, math.inf, True),
        (-math.inf, -math.inf, math.inf, True),
        (-math.inf, math.inf, math.inf, False),
        (math.inf, math.nan, math.nan, False),
        (math.nan, math.inf, math.inf, False),
        (math.inf, 1.0, 1.0, False),
        (1.0, math.inf, math.inf, False),
        (0.0, 0.0, 0.0, True),
        (-0.0, 0.0, 0.0, True),
        (1e-30, 0.0, 0.0, False),
        (0.0, 1e-45, 1e-45, True),  # underflow to 0
        (float(F32.tiny), 0.0, 0.0, True),  # the order of underflow
        (1e-37, 0.0, 0.0, False),
        (math.inf, 1e39, 1e39, True),  # beyond float32
        (math.inf, 1.0, 1e39, True),  # a partial sum may overflow
        (math.nan, 0.0, 1e39, True),
        (3.0e38, 3.0e38, 3.0e38, True),
        (1.0, 1.0, 1e39, True),
        (1.0, 2.0, 1.0, False),
    ],
)
def test_edge_values(value: float, expected: float, scale: float, passed: bool) -> None:
    check = verdict(value, expected, scale)
    assert check.passed == passed
    assert check.wrong == int(not passed)
    assert check.first_wrong == (None if passed else (0,))


def test_what_overflows_is_counted() -> None:
    check = compare(np.array([np.inf, 1.0], np.float32), np.array([1e39, 1.0]), np.array([1e39, 1.0]))
    assert (check.passed, check.skipped, check.wrong, check.components) == (True, 1, 0, 2)
    assert check.worst == 0.0


def test_the_first_wrong_component_is_named() -> None:
    result = np.zeros((3, 4), np.float32)
    result[1, 2] = result[2, 0] = 1.0
    check = compare(result, np.zeros((3, 4)), np.ones((3, 4)))
    assert (check.wrong, check.first_wrong, check.worst, check.components) == (2, (1, 2), 1.0, 12)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_worst_error_is_never_less_than_a_wrong_one(value: float) -> None:
    result = np.array([0.0, value, 0.5], np.float32)
    check = compare(result, np.zeros(3), np.ones(3))
    assert check.wrong == 2
    assert check.worst >= 0.5, "NaN would compare as no error"


def test_nothing_to_compare() -> None:
    check = compare(np.zeros((0, 4), np.float32), np.zeros((0, 4)), np.zeros((0, 4)))
    assert (check.passed, check.components, check.worst, check.first_wrong) == (True, 0, 0.0, None)


def test_checks_are_json() -> None:
    check = verdict(1.0, 0.0, 1.0)
    assert json.loads(json.dumps(check.to_json(), allow_nan=False)) == {
        "worst": 1.0,
        "tolerance": 1e-5,
        "wrong": 1,
        "components": 1,
        "skipped": 0,
        "first_wrong": [0],
        "passed": False,
    }


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_checks_of_values_that_are_not_finite_are_json(value: float) -> None:
    assert not verdict(value, 0.0, 1.0).passed
    json.dumps(verdict(value, 0.0, 1.0).to_json(), allow_nan=False)


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=8),
    st.lists(st.floats(), min_size=8, max_size=8),
    st.lists(st.one_of(st.floats(min_value=0), st.just(math.nan)), min_size=8, max_size=8),
)
def test_compare_takes_anything(values: list[float], expected: list[float], scale: list[float]) -> None:
    n = len(values)
    check = compare(np.array(values, np.float32), np.array(expected[:n]), np.array(scale[:n]))
    assert 0 <= check.wrong + check.skipped <= check.components == n
    assert check.passed == (check.first_wrong is None)
