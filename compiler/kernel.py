"""Reading a kernel (S0): the entry function of an `.mlir` file, its operands' names, and what it computes."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlir import ir
from mlir.passmanager import PassManager

from sparseditto.compiler.computation import SCALAR, Computation, Instruction, Operand, Scalar
from sparseditto.compiler.normalise import normalise, reads_sparse, scalar_factors
from sparseditto.dialects.binding import (
    argument_attributes,
    defining_op,
    functions,
    location_text,
    op_name,
    parse_module,
    set_signature,
    sparse_encoding,
    walk,
)
from sparseditto.dialects.errors import InputError, Unsupported, did_you_mean
from sparseditto.passes.nest import COMBINERS

_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_SCALARS = {"f32": "float32", "f64": "float64"}
_SUPPORT_OPS = {"arith.constant", "tensor.dim", "tensor.empty", "linalg.fill", "func.return"}
_SCALAR_OPS = {"arith.cmpf", "arith.mulf", "arith.extf", "arith.truncf"}
_BODY_OPS = {
    *COMBINERS,
    "arith.subf",
    "arith.divf",
    "arith.negf",
    "arith.constant",
    "arith.extf",
    "arith.truncf",
    "math.absf",
    "math.exp",
    "math.sqrt",
    "math.tanh",
}


@dataclass
class Kernel:
    """A kernel as written: its module (the entry function alone), the reading of it, and where its `linalg` op stands.

    Lives in one MLIR context.
    """

    module: ir.Module
    computation: Computation
    place: str

    @property
    def func(self) -> ir.OpView:
        (func,) = functions(self.module)
        return func


def read_kernel(source: str, filename: str = "-", entry: str | None = None) -> Kernel:
    """Parse MLIR text in the current context and read its entry function.

    Raises `InputError` when the text is not valid or the entry cannot be told, `Unsupported` when it is none of what
    this compiler takes: one `linalg` op with one sparse operand on tensors of f16, bf16, f32 or f64.
    """
    module = parse_module(source, filename)
    func = _entry(module, filename, entry)
    symbol = ir.StringAttr(func.attributes["sym_name"]).value
    names = _operand_names(func, source, symbol)
    for other in [op for op in module.body if op != func]:
        other.operation.erase()
    with func.operation.context, ir.Location.unknown():
        attributes = argument_attributes(func)
        for name, attribute in zip(names, attributes, strict=True):
            attribute["ditto.name"] = ir.StringAttr.get(name)
        set_signature(func, attributes)
    _check_scalars(func, names)
    op = _the_linalg_op(func)
    name, place = op_name(op), _place(op)
    normalise(module, func)
    _check_support(func)
    return Kernel(module, _Reader(module, symbol, names, name).read(), place)


def read_kernel_file(path: Path, entry: str | None = None) -> Kernel:
    """`read_kernel` on a file; `-` is standard input."""
    return read_kernel(read_text(path), str(path), entry)


def read_text(path: Path) -> str:
    """The text of a file, or of standard input for `-`.  Raises `InputError` when it cannot be read."""
    try:
        if str(path) == "-":
            return sys.stdin.buffer.read().decode()
        return path.read_text(encoding="utf-8")
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", where=str(path)) from e
    except UnicodeDecodeError as e:
        raise InputError("is not text (MLIR bytecode is not read)", where=str(path)) from e


def _entry(module: ir.Module, filename: str, entry: str | None) -> ir.OpView:
    found = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(module)}
    if not found:
        raise InputError("has no func.func with a body", where=filename)
    if entry is None:
        if len(found) > 1:
            raise InputError(f"has several functions ({', '.join(found)}); choose one with --entry", where=filename)
        return next(iter(found.values()))
    if entry not in found:
        raise InputError(f"has no function '{entry}'{did_you_mean(entry, found)}; it has {', '.join(found)}", where=filename)
    return found[entry]


def _operand_names(func: ir.OpView, source: str, symbol: str) -> list[str]:
    """`ditto.name`, else the name in the text, else `arg0`; a name that is no identifier falls back to `arg0` too."""
    attributes = argument_attributes(func)
    written = argument_names_in_text(source, symbol)
    if len(written) != len(attributes):
        written = [""] * len(attributes)
    names: list[str] = []
    for i, (attribute, text) in enumerate(zip(attributes, written, strict=True)):
        name = _given_name(attribute["ditto.name"], i) if "ditto.name" in attribute else text
        names.append(name if name.isidentifier() and name != "result" and name not in names else f"arg{i}")
    return names


def _given_name(attribute: ir.Attribute, argument: int) -> str:
    if not isinstance(attribute, ir.StringAttr):
        raise InputError(f"ditto.name of argument {argument} is {attribute}, not a string")
    return str(attribute.value)


def argument_names_in_text(source: str, symbol: str) -> list[str]:
    """The argument names of a function as the text writes them, without `%` (MLIR drops them when it parses)."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"|//[^\n]*', lambda m: m[0] if m[0][0] == '"' else " ", source)
    # A string is one alternative, so that a function named inside one is passed over.
    pattern = rf'"(?:[^"\\]|\\.)*"|\bfunc\.func\s+(?:\w+\s+)?@(?:{re.escape(symbol)}|"{re.escape(symbol)}")\s*\('
    head = next((m for m in re.finditer(pattern, text) if m[0][0] != '"'), None)
    if head is None:
        return []
    names, depth = [], 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|->|[()\[\]{}<>]|%[\w$.-]+', text[head.end() :]):
        word = token[0]
        if word in ("(", "[", "{", "<"):
            depth += 1
        elif word in (")", "]", "}", ">"):
            if depth == 0:
                break
            depth -= 1
        elif word[0] == "%" and depth == 0:
            names.append(word[1:])
    return names


def _check_scalars(func: ir.OpView, names: Sequence[str]) -> None:
    for name, argument in zip(names, func.regions[0].blocks[0].arguments, strict=True):
        if not isinstance(argument.type, ir.ShapedType) and str(argument.type) not in _SCALARS:
            raise Unsupported(
                f"the argument '{name}' of type {argument.type} is not supported: scalars are f32 or f64", where=_place(func)
            )


def _the_linalg_op(func: ir.OpView) -> ir.OpView:
    """The op with the sparse operand; others may scale its result or what it starts from."""
    ops = [op for op in func.regions[0].blocks[0] if op_name(op).startswith("linalg.") and op_name(op) != "linalg.fill"]
    main = ops if len(ops) == 1 else [op for op in ops if reads_sparse(func, op)]
    if len(main) != 1:
        raise Unsupported(
            f"the function has {len(ops)} linalg ops (linalg.fill aside), {len(main)} of them with a sparse operand; "
            "exactly one is compiled at a time, with others that scale its result",
            where=_place(func),
        )
    return main[0]


def _check_support(func: ir.OpView) -> None:
    """Raise `Unsupported` for what neither the kernel's form nor the reading of its parts accounts for."""
    *ops, end = func.regions[0].blocks[0]
    result = defining_op(end.operands[0]) if len(end.operands) == 1 else None
    if result is not None and op_name(result) == "arith.truncf":
        result = defining_op(result.operands[0])
    if result is None or not op_name(result).startswith("linalg."):
        raise Unsupported("the function must return the result of its linalg op", where=_place(end))
    for other in ops:
        known = op_name(other) in _SUPPORT_OPS or op_name(other) in _SCALAR_OPS or other == result
        if not known and not _is_scaling(other, result):
            raise Unsupported(f"'{op_name(other)}' is not supported beside the linalg op", where=_place(other))


def _is_scaling(op: ir.OpView, of: ir.OpView) -> bool:
    """Whether `op` is what `normalise` makes of a factor of the output's old value."""
    return op_name(op) == "linalg.generic" and len(op.operands) == 1 and of.operands[-1] == op.results[0]


def _place(op: ir.OpView) -> str:
    return location_text(op.location)


class _Reader:
    """Reads the `Computation` from a copy in which named ops are generic."""

    def __init__(self, module: ir.Module, symbol: str, names: Sequence[str], op: str) -> None:
        self.copy = ir.Module.parse(module.operation.get_asm(enable_debug_info=True), module.context)
        PassManager.parse("builtin.module(linalg-generalize-named-ops)", module.context).run(self.copy.operation)
        self.symbol, self.names, self.op = symbol, names, op
        (self.func,) = functions(self.copy)
        self.fills = {
            o.results[0]: _constant(o.operands[0])
            for o in walk(self.func)
            if op_name(o) == "linalg.generic" and len(o.operands) == 2 and _is_constant(o.operands[0])
        }
        (end,) = (o for o in walk(self.func) if op_name(o) == "func.return")
        generic = defining_op(end.operands[0])
        self.stored = end.operands[0].type
        if generic is not None and op_name(generic) == "arith.truncf":
            generic = defining_op(generic.operands[0])
        if generic is None or op_name(generic) != "linalg.generic":
            raise self.refuse(self.func, f"'{op}' has no generic form")
        self.generic = generic

    def refuse(self, op: ir.OpView, message: str) -> Unsupported:
        return Unsupported(message, where=_place(op))

    def read(self) -> Computation:
        generic = self.generic
        maps = [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(generic.attributes["indexing_maps"])]
        iterators = [str(a).split("<")[-1].rstrip(">") for a in ir.ArrayAttr(generic.attributes["iterator_types"])]
        if len(generic.results) != 1:
            raise self.refuse(generic, "an op with several results is not supported")
        *inputs, output = [self._operand(v, m) for v, m in zip(generic.operands, maps, strict=True)]
        operands = [*inputs, output]
        sparse = [o for o in operands if o.sparse]
        if len(sparse) != 1 or output.sparse:
            raise self.refuse(
                generic,
                f"{len(sparse)} operands are sparse{' (the output among them)' if output.sparse else ''}; exactly one "
                "input must be: give it a #sparse_tensor.encoding or mark its argument ditto.sparse",
            )
        if len(sparse[0].shape) != 2:
            raise self.refuse(
                generic, f"the sparse operand '{sparse[0].name}' has rank {len(sparse[0].shape)}; matrices are supported"
            )
        initial = self.fills.get(generic.operands[-1])
        if initial is None and output.argument is None:
            raise self.refuse(generic, "the output starts from neither an argument nor a linalg.fill of a constant")
        if output.argument in [o.argument for o in inputs]:
            raise self.refuse(generic, f"the output '{output.name}' is updated in place and is an input too; pass a copy")
        body, result = self._body(len(inputs))
        self._check_term(body, result, inputs)
        return Computation(
            self.symbol,
            self.op,
            tuple(i.replace("utils.iterator_type<", "") for i in iterators),
            tuple(inputs),
            output,
            initial,
            body,
            result,
            self._scalars(),
            self._initial_scale(),
            self._sum_dtype(output),
        )

    def _sum_dtype(self, output: Operand) -> str | None:
        """The type in which the sum is carried, where it is not the output's."""
        carried = _DTYPES[str(self.generic.results[0].type.element_type)]
        return None if carried == output.dtype else carried

    def _scalars(self) -> tuple[Scalar, ...]:
        arguments = enumerate(self.func.regions[0].blocks[0].arguments)
        return tuple(Scalar(self.names[i], i, _SCALARS[str(a.type)]) for i, a in arguments if str(a.type) in _SCALARS)

    def _initial_scale(self) -> tuple[str | float, ...]:
        """The factors of the output's old value."""
        scaling = defining_op(self.generic.operands[-1])
        if scaling is None or op_name(scaling) != "linalg.generic" or scaling.results[0] in self.fills:
            return ()
        product = next(op for op in walk(scaling) if op_name(op) == "arith.mulf")
        factors = scalar_factors(product.operands[0]) or ()
        return tuple(f if isinstance(f, float) else self.names[f.arg_number] for f in factors)

    def _check_term(self, body: tuple[Instruction, ...], result: int, inputs: Sequence[Operand]) -> None:
        """Refuse a term that reads the output's old value, or that is not 0 where the sparse operand stores nothing."""
        old = len(inputs)
        last = body[result - old - 1]
        if last.arguments.count(old) != 1 or any(old in i.arguments for i in body if i is not last):
            raise self.refuse(self.generic, "the output's old value is used for more than to be added to")
        zero = {k for k, operand in enumerate(inputs) if operand.sparse}
        for value, instruction in enumerate(body, old + 1):
            if _keeps_zero(instruction, zero):
                zero.add(value)
        (term,) = (a for a in last.arguments if a != old)
        if term not in zero:
            raise self.refuse(
                self.generic, "the term is not 0 where the sparse operand stores nothing; only such sums are compiled"
            )

    def _operand(self, value: ir.Value, indexing: ir.AffineMap) -> Operand:
        type_ = value.type
        if not isinstance(type_, ir.RankedTensorType):
            raise self.refuse(self.generic, f"an operand of type {type_} is not supported")
        output = value == self.generic.operands[-1]
        element = str((self.stored if output else type_).element_type)
        if element not in _DTYPES:
            raise self.refuse(self.generic, f"element type {element} is not supported; {', '.join(_DTYPES)} are")
        if not all(isinstance(e, ir.AffineDimExpr) for e in indexing.results):
            raise self.refuse(self.generic, f"the indexing map {indexing} is not supported: each index must be one loop")
        dims = tuple(int(e.position) for e in indexing.results)
        if len(set(dims)) != len(dims):
            raise self.refuse(self.generic, f"the indexing map {indexing} uses a loop twice")
        dynamic = ir.ShapedType.get_dynamic_size()
        shape = tuple(None if n == dynamic else int(n) for n in type_.shape)
        argument = self._argument(value)
        if argument is None:
            return Operand("result", None, _DTYPES[element], shape, dims)
        encoding = sparse_encoding(type_)
        marked = "ditto.sparse" in argument_attributes(self.func)[argument]
        return Operand(
            self.names[argument],
            argument,
            _DTYPES[element],
            shape,
            dims,
            encoding is not None or marked,
            encoding is not None,
            encoding,
        )

    def _argument(self, value: ir.Value) -> int | None:
        if value == self.generic.operands[-1]:
            value = _source(value)
            return int(value.arg_number) if defining_op(value) is None else None
        if defining_op(value) is None:
            return int(value.arg_number)
        raise self.refuse(self.generic, "an input that is no argument of the function is not supported")

    def _body(self, inputs: int) -> tuple[tuple[Instruction, ...], int]:
        block = self.generic.regions[0].blocks[0]
        numbers: dict[ir.Value, int] = {a: i for i, a in enumerate(block.arguments)}
        body: list[Instruction] = []

        def number(value: ir.Value) -> int:
            """The number of a value; one from outside the body is read there."""
            if value not in numbers:
                instruction = outside(value)
                numbers[value] = inputs + 1 + len(body)
                body.append(instruction)
            return numbers[value]

        def outside(value: ir.Value) -> Instruction:
            op = defining_op(value)
            if op is None and str(value.type) in _SCALARS:
                return Instruction(SCALAR, scalar=self.names[value.arg_number])
            if op is not None and op_name(op) in _BODY_OPS and op_name(op) != "arith.constant":
                return Instruction(op_name(op), tuple(number(v) for v in op.operands))
            return Instruction("arith.constant", (), _constant(value))

        *ops, end = list(block.operations)
        combining = defining_op(end.operands[0])
        if combining is None or op_name(combining) != "arith.addf" or block.arguments[inputs] not in list(combining.operands):
            what = "nothing" if combining is None else f"'{op_name(combining)}'"
            raise self.refuse(
                end,
                f"the body must add a term to the output (arith.addf), and ends in {what}: entries that are not stored add 0",
            )
        for op in ops:
            name = op_name(op)
            if name not in _BODY_OPS:
                raise self.refuse(op, f"'{name}' in the body is not supported")
            constant = _constant(op.results[0]) if name == "arith.constant" else None
            arguments = tuple(number(v) for v in op.operands)
            numbers[op.results[0]] = inputs + 1 + len(body)
            body.append(Instruction(name, arguments, constant))
        return tuple(body), number(end.operands[0])


def _keeps_zero(instruction: Instruction, zero: set[int]) -> bool:
    """Whether an instruction gives 0 when the values in `zero` are 0."""
    if instruction.op == "arith.constant":
        return instruction.constant == 0
    if instruction.op == SCALAR:
        return False
    if instruction.op == "arith.mulf":
        return any(a in zero for a in instruction.arguments)
    if instruction.op == "arith.divf":
        return instruction.arguments[0] in zero
    return instruction.op != "math.exp" and all(a in zero for a in instruction.arguments)


def _source(output: ir.Value) -> ir.Value:
    """What the output's initial value is read from, behind its scale and its conversion."""
    op = defining_op(output)
    while op is not None and (op_name(op) == "arith.extf" or (op_name(op) == "linalg.generic" and len(op.operands) == 1)):
        output = op.operands[0]
        op = defining_op(output)
    return output


def _is_constant(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and op_name(op) == "arith.constant" and isinstance(op.attributes["value"], ir.FloatAttr)


def _constant(value: ir.Value) -> float:
    op = defining_op(value)
    if op is None or not _is_constant(value):
        raise Unsupported("a number is wanted where the kernel has another value", where=_place(op) if op is not None else None)
    return float(ir.FloatAttr(op.attributes["value"]).value)
