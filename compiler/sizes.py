"""Size expressions: what a launch grid or a buffer's shape is, in terms of the sizes known when a kernel runs.

The language is integers, names (`K`, `A.lvl0`, `A.positions1`), `+`, `-`, `*`, parentheses,
`ceildiv(a, b)`, `floordiv(a, b)`, `min(a, b)` and `max(a, b)`.  All values are Python integers, so nothing overflows.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from sparseditto.dialects.errors import InputError

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "ceildiv": lambda a, b: -(-a // b),
    "floordiv": operator.floordiv,
    "min": min,
    "max": max,
}


def evaluate(expression: str, sizes: Mapping[str, int]) -> int:
    """The value of `expression`.  Raises `InputError` when it is malformed or names an unknown size."""
    try:
        return _value(ast.parse(expression, mode="eval").body, sizes)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError) as e:
        raise InputError(f"'{expression}' is no size expression: {e}") from e


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            if name not in sizes:
                raise InputError(f"size '{name}' is not known; known are {', '.join(sorted(sizes))}")
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(left, sizes), _value(right, sizes))
    raise InputError(f"'{ast.unparse(node)}' may not stand in a size expression")
