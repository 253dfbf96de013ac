"""The one form in which the compiler works with a kernel (S0): a sum, scaled and rounded where the kernel says so.

    %start = ... the old value of the output times a factor, or a constant
    %sum   = the linalg op with the sparse operand, its terms times a factor, added to %start

People write the factors where they like: in the body, in a `linalg` op before it over the output, or in one after it
over the sum.  A factor is a product of scalar arguments and constants.  Two things are decided here:

- Where the factor of the old value is 0 the old value is not read, as in BLAS: a NaN in it does not spread.
- Sums are carried in the widest type that the kernel names for them, in f32 at least, and are rounded to the output's
  type once, at the end; f16 and bf16 values are widened before anything is computed with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

from mlir import ir
from mlir.dialects import arith, linalg, tensor
from mlir.passmanager import PassManager

from sparseditto.dialects.binding import argument_attributes, defining_op, location_text, op_name, sparse_encoding
from sparseditto.dialects.builders import convert
from sparseditto.dialects.errors import Unsupported

Factors: TypeAlias = "tuple[ir.Value | float, ...]"
"""Scalar arguments of the function, and constants."""

HALVES = ("f16", "bf16")
_CASTS = ("arith.extf", "arith.truncf")
_PLAIN = {"arith.constant", "tensor.dim", "tensor.empty", "linalg.fill", "func.return"}


def normalise(module: ir.Module, func: ir.OpView) -> None:
    """Bring a function that scales, widens or rounds into the form above; leaves all others as they are.

    Raises `Unsupported` for what is written around the op with the sparse operand and is neither a factor nor a sum.
    """
    ops = [op for op in _top(func) if op_name(op) not in _PLAIN]
    values = [*func.regions[0].blocks[0].arguments, *(v for op in ops for v in op.operands)]
    if len(ops) == 1 and not any(isinstance(v.type, ir.FloatType) or str(_element(v)) in HALVES for v in values):
        return
    if any(op_name(op).split(".")[0] not in ("arith", "linalg") for op in ops):
        return  # the reader refuses it by its name
    pipeline = "builtin.module(func.func(convert-elementwise-to-linalg),linalg-generalize-named-ops)"
    PassManager.parse(pipeline, module.context).run(module.operation)
    main = _main(func)
    if main is None:
        return
    with module.context, main.location:
        _rebuild(func, main, _read(func, main))
        _erase_unused(func)


def reads_sparse(func: ir.OpView, op: ir.OpView) -> bool:
    """Whether an op has an operand that is sparse, by its type or by the mark on the argument."""
    attributes = argument_attributes(func)
    return any(
        sparse_encoding(v.type) is not None or (defining_op(v) is None and "ditto.sparse" in attributes[v.arg_number])
        for v in op.operands
    )


def scalar_factors(value: ir.Value) -> Factors | None:
    """The factors of a scalar that depends on nothing but arguments of the function; None for any other value."""
    if not isinstance(value.type, ir.FloatType):
        return None
    op = defining_op(value)
    if op is None:
        owner = value.owner.owner.opview
        if op_name(owner) == "func.func":
            return (value,)
        inputs = list(owner.operands)
        return scalar_factors(inputs[value.arg_number]) if value.arg_number < len(inputs) else None
    if op_name(op) == "arith.constant":
        return (float(ir.FloatAttr(op.attributes["value"]).value),)
    if op_name(op) in _CASTS:
        return scalar_factors(op.operands[0])
    if op_name(op) == "arith.negf":
        inner = scalar_factors(op.operands[0])
        return None if inner is None else (*inner, -1.0)
    if op_name(op) == "arith.mulf":
        x, y = map(scalar_factors, op.operands)
        return None if x is None or y is None else (*x, *y)
    return None


# ------------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Form:
    """A value of an element as `total` times the sum, plus `old` times the old value of `output`, plus `constant`.

    None for factors: the value has no such part.
    """

    total: Factors | None = None
    old: Factors | None = None
    output: ir.Value | None = None
    constant: float = 0.0

    def times(self, factors: Factors, op: ir.OpView) -> _Form:
        constant = self.constant
        if constant:
            if any(isinstance(f, ir.Value) for f in factors):
                raise _refuse(op, "a scalar multiplies a constant that the output starts from; start from 0 or an argument")
            constant = reduce(lambda x, f: x * float(f), factors, constant)
        total, old = (None if part is None else (*part, *factors) for part in (self.total, self.old))
        if 0.0 in [f for f in factors if isinstance(f, float)]:  # as without an old value
            return _Form(total=total)
        return replace(self, total=total, old=old, constant=constant)

    def plus(self, other: _Form, op: ir.OpView) -> _Form:
        if self.total is not None and other.total is not None:
            raise _refuse(op, "the sum is added to itself; only one multiple of it is compiled")
        if self.old is not None and other.old is not None:
            raise _refuse(op, "two old values are added; only one argument can be what the output starts from")
        mine, theirs = self.total is None, self.old is None
        return _Form(
            other.total if mine else self.total,
            other.old if theirs else self.old,
            other.output if theirs else self.output,
            self.constant + other.constant,
        )


def _read(func: ir.OpView, main: ir.OpView) -> _Form:
    """What the function returns, in terms of the sum over the terms of `main` and the output's old value."""
    (returned,) = list(_top(func))[-1].operands
    return _tensor_form(returned, main)


def _tensor_form(value: ir.Value, main: ir.OpView) -> _Form:
    """The elements of a tensor of the output's shape."""
    op = defining_op(value)
    if op is None and isinstance(value.type, ir.RankedTensorType):
        return _Form(old=(), output=value)
    if op is None:
        raise _refuse(
            main, "the output starts from a scalar argument, not from a linalg.fill of a constant or an argument of its shape"
        )
    if op == main:
        return _Form(total=()).plus(_tensor_form(op.operands[-1], main), op)
    if op_name(op) != "linalg.generic" or len(op.results) != 1:
        raise _refuse(op, f"'{op_name(op)}' is not supported beside the linalg op with the sparse operand")
    constant = _fill(op)
    if constant is not None:
        return _Form(constant=constant)
    _check_elementwise(op)
    block = op.regions[0].blocks[0]
    (result,) = list(block.operations)[-1].operands
    return _element_form(result, op, main)


def _element_form(value: ir.Value, generic: ir.OpView, main: ir.OpView) -> _Form:
    """A value in the body of an elementwise op."""
    op = defining_op(value)
    if op is None:
        return _tensor_form(generic.operands[value.arg_number], main)
    inputs = list(op.operands)
    name = op_name(op)
    if name == "arith.constant" and isinstance(op.attributes["value"], ir.FloatAttr):
        return _Form(constant=float(ir.FloatAttr(op.attributes["value"]).value))
    if name in _CASTS:
        return _element_form(inputs[0], generic, main)
    if name == "arith.negf":
        return _element_form(inputs[0], generic, main).times((-1.0,), op)
    if name in ("arith.addf", "arith.subf"):
        x, y = (_element_form(v, generic, main) for v in inputs)
        return x.plus(y.times((-1.0,), op) if name == "arith.subf" else y, op)
    if name == "arith.mulf":
        for factor, other in (inputs, inputs[::-1]):
            factors = scalar_factors(factor)
            if factors is not None:
                return _element_form(other, generic, main).times(factors, op)
    if name == "arith.select" and _guards_zero(inputs):
        return _element_form(inputs[2], generic, main)
    raise _refuse(
        op,
        f"'{name}' around the op with the sparse operand is not supported: sums and the output's old value may be multiplied "
        "by scalar arguments and constants, added and converted",
    )


def _guards_zero(operands: Sequence[ir.Value]) -> bool:
    """Whether a select gives 0 where a scalar is 0, which is what a product with it means here anyway."""
    condition, zero = defining_op(operands[0]), defining_op(operands[1])
    if condition is None or op_name(condition) != "arith.cmpf" or zero is None or not _is_zero(operands[1]):
        return False
    equal = int(ir.IntegerAttr(condition.attributes["predicate"]).value) == int(arith.CmpFPredicate.OEQ)
    product = defining_op(_uncast(operands[2]))
    scalar, other = condition.operands
    factors = scalar_factors(scalar)
    multiplied = (
        product is not None and op_name(product) == "arith.mulf" and any(scalar_factors(v) == factors for v in product.operands)
    )
    return equal and _is_zero(other) and factors is not None and multiplied


def _is_zero(value: ir.Value) -> bool:
    factors = scalar_factors(value)
    return factors is not None and len(factors) == 1 and factors[0] == 0.0


def _check_elementwise(op: ir.OpView) -> None:
    maps = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(op.attributes["indexing_maps"])]
    identity = ir.AffineMap.get_identity(maps[-1].n_dims)
    plain = all(m == identity or not isinstance(v.type, ir.ShapedType) for v, m in zip(op.operands, maps, strict=True))
    if not plain or any("parallel" not in str(a) for a in ir.ArrayAttr(op.attributes["iterator_types"])):
        raise _refuse(op, "only elementwise linalg ops are supported beside the one with the sparse operand")


def _fill(op: ir.OpView) -> float | None:
    """The constant that an op writes everywhere."""
    (result,) = list(op.regions[0].blocks[0].operations)[-1].operands
    factors = scalar_factors(result)
    return factors[0] if factors is not None and len(factors) == 1 and isinstance(factors[0], float) else None


# ---------------------------------------------------------------------------------------------------------- rebuilding


def _rebuild(func: ir.OpView, main: ir.OpView, form: _Form) -> None:
    """Emit the form before the function's end, and return it."""
    term = _term(main)
    if term is None or form.total is None:
        return  # the reader says what is wrong with the body
    end = list(_top(func))[-1]
    stored, type_ = end.operands[0].type.element_type, _sum_type(func, main, form)
    if form.output is not None and form.output.type.element_type != stored:
        old = form.output.type.element_type
        raise _refuse(
            end,
            f"the output starts from an argument of {old} and is of {stored}; it is updated in place, so both must be one type",
        )
    if form.output is not None and form.output in list(main.operands)[:-1]:
        raise _refuse(end, "the argument that the output starts from is an input too, and it is updated in place; pass a copy")
    if form.old is not None and form.constant:
        raise _refuse(end, "the output starts from a constant beside an argument; only one of them is compiled")
    with ir.InsertionPoint(end):
        start = _start(main, form, type_)
        result = _sum(main, form.total, term, start, type_)
        if type_ != stored:
            result = arith.truncf(_like(result.type, stored), result)
    end.operands[0] = result


def _sum_type(func: ir.OpView, main: ir.OpView, form: _Form) -> ir.Type:
    """The type in which the sum is carried: the widest of what it is written to, f32 at least."""
    (returned,) = list(_top(func))[-1].operands
    found = [main.results[0].type.element_type, returned.type.element_type, ir.F32Type.get()]
    return max(found, key=lambda t: t.width)


def _start(main: ir.OpView, form: _Form, type_: ir.Type) -> ir.Value:
    """The tensor that the sum is added to."""
    if form.output is None:
        empty = tensor.empty(_extents(main.operands[-1]), type_)
        return linalg.fill(arith.constant(type_, form.constant), outs=[empty])
    start = form.output
    if start.type.element_type != type_:
        start = arith.extf(_like(start.type, type_), start)
    if not form.old:
        return start
    factor = _product(form.old, type_)
    zero = arith.constant(type_, 0.0)
    unread = arith.cmpf(arith.CmpFPredicate.OEQ, factor, zero)
    identity = ir.AffineMap.get_identity(len(start.type.shape))
    op = _generic([], start, [identity], ["parallel"] * len(start.type.shape))
    block = op.regions[0].blocks.append(type_)
    with ir.InsertionPoint(block):
        linalg.yield_([arith.select(unread, zero, arith.mulf(factor, block.arguments[0]))])
    return op.results[0]


def _extents(value: ir.Value) -> list[ir.Value | int]:
    """The extents of a tensor, as `tensor.empty` takes them."""
    dynamic = ir.ShapedType.get_dynamic_size()
    op = defining_op(value)
    while op is not None and op_name(op) == "linalg.generic":
        value = op.operands[-1]
        op = defining_op(value)
    given = iter(op.operands) if op is not None and op_name(op) == "tensor.empty" else None
    extents: list[ir.Value | int] = []
    for k, n in enumerate(value.type.shape):
        if n != dynamic:
            extents.append(n)
        else:
            extents.append(next(given) if given is not None else tensor.dim(value, arith.constant(ir.IndexType.get(), k)))
    return extents


def _sum(main: ir.OpView, factors: Factors, term: ir.Value, start: ir.Value, type_: ir.Type) -> ir.Value:
    """`main` anew: its terms in `type_`, all their scalar factors multiplied together, added to `start`."""
    maps = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(main.attributes["indexing_maps"])]
    taken = [k for k, v in enumerate(list(main.operands)[:-1]) if isinstance(v.type, ir.RankedTensorType)]
    iterators = ["parallel" if "parallel" in str(a) else "reduction" for a in ir.ArrayAttr(main.attributes["iterator_types"])]
    inputs = [main.operands[k] for k in taken]
    body = _Term(type_)
    found = body.factors(term)
    scale = _product((*factors, *found), type_) if factors or found else None
    op = _generic(inputs, start, [maps[k] for k in (*taken, len(maps) - 1)], iterators)
    block = op.regions[0].blocks.append(*(v.type.element_type for v in inputs), type_)
    arguments = dict(zip((main.regions[0].blocks[0].arguments[k] for k in taken), block.arguments, strict=False))
    with ir.InsertionPoint(block):
        value = body.emit(term, arguments)
        if scale is not None:
            value = arith.mulf(scale, value)
        linalg.yield_([arith.addf(block.arguments[len(inputs)], value)])
    return op.results[0]


class _Term:
    """Clones a term into another body with its arithmetic in one type, and leaves out the scalars that multiply it."""

    def __init__(self, type_: ir.Type) -> None:
        self.type = type_
        self.made: dict[ir.Value, ir.Value] = {}

    def factors(self, value: ir.Value) -> Factors:
        """The scalars that the term is a product with."""
        op = defining_op(value)
        if op is None or op_name(op) not in ("arith.mulf", *_CASTS):
            return ()
        if op_name(op) in _CASTS:
            return self.factors(op.operands[0])
        return tuple(f for v in op.operands for f in (scalar_factors(v) or self.factors(v)))

    def emit(self, value: ir.Value, arguments: Mapping[ir.Value, ir.Value]) -> ir.Value:
        """The term without those scalars."""
        op = defining_op(value)
        if op is not None and op_name(op) in _CASTS:
            return self.emit(op.operands[0], arguments)
        if op is None or op_name(op) != "arith.mulf":
            return self._value(value, arguments)
        kept = [self.emit(v, arguments) for v in op.operands if scalar_factors(v) is None]
        return reduce(arith.mulf, kept) if kept else arith.constant(self.type, 1.0)

    def _value(self, value: ir.Value, arguments: Mapping[ir.Value, ir.Value]) -> ir.Value:
        """Any other value of the body."""
        if value not in self.made:
            self.made[value] = self._new(value, arguments)
        return self.made[value]

    def _new(self, value: ir.Value, arguments: Mapping[ir.Value, ir.Value]) -> ir.Value:
        factors = scalar_factors(value)
        if factors is not None:
            return _product(factors, self.type)
        op = defining_op(value)
        if op is None:
            return convert(arguments[value], self.type)
        if op_name(op) in _CASTS:
            return self._value(op.operands[0], arguments)
        if len(op.results) != 1 or len(op.regions) or not all(isinstance(v.type, ir.FloatType) for v in op.operands):
            raise _refuse(op, f"'{op_name(op)}' in the body is not supported")
        operands = [self._value(v, arguments) for v in op.operands]
        return ir.Operation.create(op_name(op), results=[self.type], operands=operands).results[0]


def _term(main: ir.OpView) -> ir.Value | None:
    """What the body adds to the output's old value; None when it does anything else."""
    block = main.regions[0].blocks[0]
    old = block.arguments[len(block.arguments) - 1]
    op = defining_op(_uncast(list(block.operations)[-1].operands[0]))
    if op is None or op_name(op) != "arith.addf":
        return None
    terms = [v for v in op.operands if _uncast(v) != old]
    return terms[0] if len(terms) == 1 and not _reads(terms[0], old) else None


def _uncast(value: ir.Value) -> ir.Value:
    op = defining_op(value)
    while op is not None and op_name(op) in _CASTS:
        value = op.operands[0]
        op = defining_op(value)
    return value


def _reads(value: ir.Value, old: ir.Value) -> bool:
    op = defining_op(value)
    return value == old if op is None else any(_reads(v, old) for v in op.operands)


def _product(factors: Factors, type_: ir.Type) -> ir.Value:
    """The product of factors, in `type_`."""
    return reduce(arith.mulf, [arith.constant(type_, f) if isinstance(f, float) else convert(f, type_) for f in factors])


def _generic(inputs: Sequence[ir.Value], output: ir.Value, maps: Sequence[ir.AffineMap], iterators: Sequence[str]) -> ir.OpView:
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{name}>") for name in iterators]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
    }
    operands = [*inputs, output]
    return ir.Operation.create("linalg.generic", [output.type], operands, attributes, regions=1).opview


# -------------------------------------------------------------------------------------------------------------- pieces


def _main(func: ir.OpView) -> ir.OpView | None:
    """The op with the sparse operand, where there is exactly one."""
    found = [op for op in _top(func) if op_name(op) == "linalg.generic" and reads_sparse(func, op)]
    return found[0] if len(found) == 1 else None


def _top(func: ir.OpView) -> list[ir.OpView]:
    return list(func.regions[0].blocks[0].operations)


def _element(value: ir.Value) -> ir.Type | None:
    type_ = value.type
    return type_.element_type if isinstance(type_, ir.RankedTensorType) else type_


def _like(type_: ir.RankedTensorType, element: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(type_.shape, element)


def _erase_unused(func: ir.OpView) -> None:
    for op in reversed(_top(func)):
        if op_name(op) != "func.return" and not any(True for r in op.results for _ in r.uses):
            op.operation.erase()


def _refuse(op: ir.OpView, message: str) -> Unsupported:
    return Unsupported(message, where=location_text(op.location))
