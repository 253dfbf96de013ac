"""The language of size expressions: what it computes and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparseditto.compiler.sizes import evaluate
from sparseditto.dialects.errors import InputError

SIZES = {"K": 64, "m": 0, "A.lvl0": 10, "A.positions1.length": 11, "B.dim1": 7, "min": 3}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0", 0),
        ("12", 12),
        ("K", 64),
        ("A.lvl0", 10),
        ("A.positions1.length", 11),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("K*K", 4096),
        ("((K))", 64),
        ("ceildiv(10, 4)", 3),
        ("ceildiv(8, 4)", 2),
        ("ceildiv(0, 4)", 0),
        ("floordiv(10, 4)", 2),
        ("min(K, 10)", 10),
        ("max(K, 10)", 64),
        ("min + min(min, 2)", 5),
        ("ceildiv(A.lvl0 * B.dim1, min(128, 256))", 1),
        ("max(A.positions1.length - 1, 0)", 10),
        ("ceildiv(m, 128)", 0),
        ("9223372036854775807 * 9223372036854775807", (2**63 - 1) ** 2),
    ],
)
def test_values(expression: str, value: int) -> None:
    assert evaluate(expression, SIZES) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "is no size expression"),
        ("1 +", "is no size expression"),
        ("1; 2", "is no size expression"),
        ("K = 1", "is no size expression"),
        ("(1", "is no size expression"),
        ("N", "size 'N' is not known; known are A.lvl0, "),
        ("A.lvl1", "size 'A.lvl1' is not known"),
        ("A", "size 'A' is not known"),
        ("1 / 2", "may not stand in a size expression"),
        ("1 // 2", "may not stand in a size expression"),
        ("2 ** 3", "may not stand in a size expression"),
        ("-1", "may not stand in a size expression"),
        ("K % 2", "may not stand in a size expression"),
        ("1.5", "may not stand in a size expression"),
        ("'K'", "may not stand in a size expression"),
        ("True", "may not stand in a size expression"),
        ("None", "may not stand in a size expression"),
        ("[1]", "may not stand in a size expression"),
        ("K < 2", "may not stand in a size expression"),
        ("1 if K else 2", "may not stand in a size expression"),
        ("lambda: 1", "may not stand in a size expression"),
        ("abs(K, K)", "may not stand in a size expression"),
        ("min(1)", "may not stand in a size expression"),
        ("min(1, 2, 3)", "may not stand in a size expression"),
        ("min(*K)", "may not stand in a size expression"),
        ("ceildiv(a=1, b=2)", "may not stand in a size expression"),
        ("__import__('os').system('true')", "may not stand in a size expression"),
        ("().__class__", "is not known|may not stand"),
        ("A[0]", "may not stand in a size expression"),
        ("ceildiv(1, 0)", "is no size expression"),
        ("floordiv(1, m)", "is no size expression"),
    ],
)
def test_refusals(expression: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(expression, SIZES)


@pytest.mark.parametrize("expression", ["K\0", "(" * 500 + "K" + ")" * 500, "+".join(["1"] * 20_000)])
def test_what_the_parser_gives_up_on_is_refused_too(expression: str) -> None:
    with pytest.raises(InputError):
        evaluate(expression, SIZES)


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_division_rounds_as_its_name_says(a: int, b: int) -> None:
    sizes = {"a": a, "b": b}
    quotient, up = evaluate("floordiv(a, b)", sizes), evaluate("ceildiv(a, b)", sizes)
    assert quotient * b <= a < (quotient + 1) * b
    assert (up - 1) * b < a <= up * b
