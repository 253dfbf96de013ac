"""MLIR through its Python bindings: the surprises of the bindings live here, the rest sees typed helpers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from mlir import ir
from mlir.dialects import irdl, sparse_tensor

from sparseditto.dialects.encoding import Encoding, Level
from sparseditto.dialects.errors import InputError, Unsupported

_NESTING = {"(": 1, ")": -1, "[": 1, "]": -1}
_source_name: ContextVar[str] = ContextVar("source_name", default="-")
_DITTO = Path(__file__).with_name("ditto.irdl.mlir")


def context() -> ir.Context:
    """A fresh context that knows the ditto dialect, on one thread (kernels are small; threads cost more than they save)."""
    ctx = ir.Context()
    ctx.enable_multithreading(False)
    load_ditto(ctx)
    return ctx


def load_ditto(ctx: ir.Context) -> None:
    """Load the ditto dialect once: a second time would abort the process."""
    if ctx.is_registered_operation("ditto.lane_reduce"):
        return
    # The bindings look for a Python module of each dialect at every op they meet, and do not remember that there is none.
    sys.modules.setdefault("mlir.dialects.ditto", ModuleType("mlir.dialects.ditto"))
    with ctx, ir.Location.unknown():
        irdl.load_dialects(ir.Module.parseFile(str(_DITTO)))


def location_text(loc: ir.Location) -> str:
    """`file:line:column` where the location has one, else MLIR's own spelling.

    A module that was parsed from text names no file; `parse_module` remembers which one it was.
    """
    if loc.is_a_file():
        name = _source_name.get() if loc.filename == "-" else loc.filename
        return f"{name}:{loc.start_line}:{loc.start_col}"
    return str(loc).removeprefix("loc(").removesuffix(")").replace('"', "")


def first_diagnostic(error: ir.MLIRError) -> tuple[str, str | None]:
    """Message and place of the first diagnostic behind an MLIR exception."""
    for diagnostic in error.error_diagnostics:
        notes = "".join(f"; {note.message}" for note in diagnostic.notes)
        return f"{diagnostic.message}{notes}", location_text(diagnostic.location)
    return str(error), None


def parse_module(source: str, filename: str = "-") -> ir.Module:
    """Parse and verify MLIR text in the current context; diagnostics and our messages name `filename`.

    Raises `InputError` with MLIR's own diagnostic and its place.
    """
    _source_name.set(filename)
    try:
        return ir.Module.parse(source)
    except ir.MLIRError as e:
        message, where = first_diagnostic(e)
        raise InputError(message, where=where) from e


def walk(root: ir.Operation | ir.OpView) -> Iterator[ir.OpView]:
    """All ops under `root`, each before its regions, gathered first so that the caller may rewrite."""
    if not len(root.regions):
        return iter(())
    found: list[ir.OpView] = []

    def gather(op: ir.Operation) -> ir.WalkResult:
        found.append(op.opview)
        return ir.WalkResult.ADVANCE

    root.operation.walk(gather, ir.WalkOrder.PRE_ORDER)
    return iter(found[1:])


def functions(module: ir.Module) -> list[ir.OpView]:
    """The functions of a module that have a body."""
    return [op for op in module.body if op_name(op) == "func.func" and len(op.regions[0].blocks)]


def op_name(op: ir.OpView | ir.Operation) -> str:
    """The op's name (`op.name` of a function is its symbol)."""
    return str(op.operation.name)


def defining_op(value: ir.Value) -> ir.OpView | None:
    """The op whose result `value` is, or None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.opview


def sparse_encoding(type_: ir.Type) -> Encoding | None:
    """The sparse encoding of a tensor type, or None.

    Raises `Unsupported` for level types that nothing here packs.
    """
    if not isinstance(type_, ir.RankedTensorType) or type_.encoding is None:
        return None
    try:
        attr = sparse_tensor.EncodingAttr(type_.encoding)
    except ValueError:
        return None
    return _read_encoding(attr)


def _read_encoding(attr: Any) -> Encoding:
    mapping = attr.dim_to_lvl or ir.AffineMap.get_identity(attr.lvl_rank)
    levels = tuple(_level(expr, ir.Attribute(attr), k) for k, expr in enumerate(mapping.results))
    return Encoding(levels, attr.pos_width or 64, attr.crd_width or 64)


def _level(expr: ir.AffineExpr, attr: ir.Attribute, k: int) -> Level:
    text = _level_texts(str(attr))[k]
    name, _, properties = text.partition("(")
    if name not in ("dense", "compressed", "singleton", "loose_compressed") or "nonordered" in properties:
        raise Unsupported(f"level type '{text}' is not supported")
    unique = "nonunique" not in properties
    for kind, op in ((ir.AffineFloorDivExpr, "floordiv"), (ir.AffineModExpr, "mod")):
        if isinstance(expr, kind):
            return Level(_dim(expr.lhs), name, op, expr.rhs.value, unique)
    return Level(_dim(expr), name, unique=unique)


def _dim(expr: ir.AffineExpr) -> int:
    if not isinstance(expr, ir.AffineDimExpr):
        raise Unsupported(f"level expression '{expr}' is not supported")
    return int(expr.position)


def _level_texts(attr: str) -> list[str]:
    """The level types as the attribute prints them (the bindings give them as numbers of a private enumeration)."""
    body = attr.split("->", 1)[1]
    depth, start = 0, body.index("(")
    for end in range(start, len(body)):
        depth += _NESTING.get(body[end], 0)
        if depth == 0:
            break
    parts, depth = [""], 0
    for c in body[start + 1 : end]:
        depth += _NESTING.get(c, 0)
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.split(":", 1)[1].strip() for part in parts]


def encoding_attribute(encoding: Encoding) -> ir.Attribute:
    """The `#sparse_tensor.encoding` attribute in the current context."""
    return ir.Attribute.parse(encoding.text())


def clone_into(op: ir.OpView, mapping: Mapping[ir.Value, ir.Value]) -> ir.OpView:
    """Clone `op` at the current insertion point with its outside operands replaced by `mapping` (nested ops included)."""
    new = op.operation.clone().opview
    for inner in (new, *walk(new)):
        for i, operand in enumerate(inner.operands):
            if operand in mapping:
                inner.operands[i] = mapping[operand]
    return new


@contextmanager
def diagnostics_to(handler: Callable[[str, str, str], None]) -> Iterator[None]:
    """Hand each diagnostic of the current context to `handler(severity, message, place)` instead of printing it."""

    def take(diagnostic: Any) -> bool:
        handler(diagnostic.severity.name.lower(), diagnostic.message, location_text(diagnostic.location))
        return True

    handle = ir.Context.current.attach_diagnostic_handler(take)
    try:
        yield
    finally:
        handle.detach()


def argument_attributes(func: ir.OpView) -> list[dict[str, ir.Attribute]]:
    """One dictionary per argument of a function; changes take effect through `set_signature`."""
    count = len(func.regions[0].blocks[0].arguments)
    if "arg_attrs" not in func.attributes:
        return [{} for _ in range(count)]
    return [{named.name: named.attr for named in ir.DictAttr(d)} for d in ir.ArrayAttr(func.attributes["arg_attrs"])]


def argument_attribute(value: ir.Value, name: str) -> ir.Attribute | None:
    """The attribute of that name on a function argument; None for other values and where it is absent."""
    owner = value.owner
    if not isinstance(owner, ir.Block) or op_name(owner.owner) != "func.func":
        return None
    return argument_attributes(owner.owner.opview)[value.arg_number].get(name)


def add_argument(func: ir.OpView, type_: ir.Type, attributes: dict[str, ir.Attribute]) -> ir.Value:
    """Append an argument to a function."""
    known = argument_attributes(func)
    value = func.regions[0].blocks[0].add_argument(type_, func.location)
    set_signature(func, [*known, attributes])
    return value


def set_signature(func: ir.OpView, attributes: list[dict[str, ir.Attribute]], results: list[ir.Type] | None = None) -> None:
    """Make a function's type and argument attributes agree with its entry block's arguments.

    `results` are the new result types; None keeps the old ones.
    """
    block = func.regions[0].blocks[0]
    inputs = [argument.type for argument in block.arguments]
    old = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value)
    with func.operation.context:
        type_ = ir.FunctionType.get(inputs, old.results if results is None else results)
        func.attributes["function_type"] = ir.TypeAttr.get(type_)
        func.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in attributes])
        if results is not None and "res_attrs" in func.attributes:
            del func.attributes["res_attrs"]
