"""Short builders for index arithmetic and loops, at the current insertion point, folding constants as they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mlir import ir
from mlir.dialects import arith, scf

from sparseditto.dialects.binding import defining_op, op_name


def index(value: int) -> ir.Value:
    """An index constant."""
    return arith.constant(ir.IndexType.get(), value)


def known(value: ir.Value) -> int | None:
    """The number behind an index constant, or None."""
    op = defining_op(value)
    if op is None or op_name(op) != "arith.constant" or not isinstance(value.type, ir.IndexType):
        return None
    return int(ir.IntegerAttr(op.attributes["value"]).value)


def add(a: ir.Value, b: ir.Value) -> ir.Value:
    return _fold(a, b, lambda x, y: x + y, arith.addi, neutral=0)


def sub(a: ir.Value, b: ir.Value) -> ir.Value:
    return _fold(a, b, lambda x, y: x - y, arith.subi, neutral=0)


def mul(a: ir.Value, b: ir.Value) -> ir.Value:
    return _fold(a, b, lambda x, y: x * y, arith.muli, neutral=1)


def div(a: ir.Value, b: ir.Value) -> ir.Value:
    """Quotient of non-negative numbers, rounded down."""
    return _fold(a, b, lambda x, y: x // y, arith.divui, neutral=1)


def rem(a: ir.Value, b: ir.Value) -> ir.Value:
    """Remainder of non-negative numbers."""
    return _fold(a, b, lambda x, y: x % y, arith.remui)


def ceildiv(a: ir.Value, b: ir.Value) -> ir.Value:
    """Quotient of non-negative numbers, rounded up."""
    return _fold(a, b, lambda x, y: -(-x // y), arith.ceildivui, neutral=1)


def _fold(
    a: ir.Value,
    b: ir.Value,
    number: Callable[[int, int], int],
    build: Callable[[ir.Value, ir.Value], ir.Value],
    neutral: int | None = None,
) -> ir.Value:
    x, y = known(a), known(b)
    if x is not None and y is not None:
        return index(number(x, y))
    return a if neutral is not None and y == neutral else build(a, b)


def convert(value: ir.Value, type_: ir.Type) -> ir.Value:
    """A float, or a vector or tensor of floats, with its elements widened or rounded to those of `type_`."""
    if value.type == type_:
        return value
    have, want = (t.element_type if isinstance(t, ir.ShapedType) else t for t in (value.type, type_))
    return (arith.extf if want.width > have.width else arith.truncf)(type_, value)


def for_loop(
    lower: ir.Value,
    upper: ir.Value,
    step: ir.Value,
    initial: Sequence[ir.Value],
    body: Callable[[ir.Value, list[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """`scf.for` whose body gets the induction variable and the carried values, and returns the next ones."""
    loop = scf.ForOp(lower, upper, step, list(initial))
    with ir.InsertionPoint(loop.body):
        scf.yield_(list(body(loop.induction_variable, list(loop.inner_iter_args))))
    return list(loop.results)


@contextmanager
def forall(upper: ir.Value | int, mapping: str) -> Iterator[ir.Value]:
    """`scf.forall (%i) in (upper)` mapped to `#gpu.<mapping><linear_dim_0>`; the block is built inside, gets `%i`."""
    attribute = ir.ArrayAttr.get([ir.Attribute.parse(f"#gpu.{mapping}<linear_dim_0>")])
    loop = scf.ForallOp([0], [upper], [1], mapping=attribute)
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variables[0]
        scf.InParallelOp()


@contextmanager
def if_then(condition: ir.Value) -> Iterator[None]:
    """`scf.if` without results; the block is built inside."""
    op = scf.IfOp(condition)
    with ir.InsertionPoint(op.then_block):
        yield
        scf.yield_([])
