"""`prepare-nest`: from what upstream's `sparsification` leaves to the nest that schedule passes read (S2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import func as func_dialect
from mlir.dialects import linalg, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import (
    argument_attributes,
    defining_op,
    location_text,
    op_name,
    set_signature,
    sparse_encoding,
    walk,
)
from sparseditto.dialects.errors import NotApplicable, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.base import FunctionPass, Kind
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import clone_ops


@register
@dataclass(frozen=True)
class PrepareNest(FunctionPass):
    """Make dense operands and the output buffers of the function, and the output's initial value a `linalg.fill`.

    `sparsification` reads dense operands by `tensor.extract` (the output's old value too, from the tensor whose
    buffer it stores to).  Here every dense tensor argument becomes a `memref` argument that is loaded from; an output
    that starts from an argument is updated in place; one that starts from a constant becomes a last argument
    named `result`.  A `linalg.generic` that scales what the output starts from scales the buffer.  Where the function
    converts the tensors that the sum starts from and ends in, loads and stores of the output convert.  The outermost
    positions of a tensor whose first level is compressed are 0 and the number of stored coordinates, so loads of them
    become just that.

    Before::

        func.func @f(%A: tensor<?x?xf32, #CSR>, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
          %buffer = bufferization.to_buffer %y
          scf.for %i = %c0 to %m step %c1 {
            ... tensor.extract %x[%j] ... memref.store %s, %buffer[%i]
          }
          %0 = bufferization.to_tensor %buffer
          return %0 : tensor<?xf32>

    After::

        func.func @f(%A: tensor<?x?xf32, #CSR>, %x: memref<?xf32>, %y: memref<?xf32>) {
          scf.for %i = %c0 to %m step %c1 {
            ... memref.load %x[%j] ... memref.store %s, %y[%i]
          }
          return

    Refuses: an output that nothing initialises; a function without a sparsified nest.
    """

    name: ClassVar[str] = "prepare-nest"
    kind = Kind.LOWERING

    def run_on(self, func: ir.OpView, target: Target) -> None:
        outputs = [op for op in walk(func) if op_name(op) == "bufferization.to_buffer"]
        if not outputs or not any(op_name(op) == "scf.for" for op in walk(func)):
            raise NotApplicable("there is no sparsified nest", where=self.name)
        with func.operation.context, func.location:
            _result_buffers(func, outputs, self.name)
            _dense_buffers(func)
            _return_nothing(func)
            _fold_first_positions(func)
            for op in walk(func):
                if "Emitted from" in op.attributes:
                    del op.attributes["Emitted from"]


def _result_buffers(func: ir.OpView, outputs: list[ir.OpView], where: str) -> None:
    """An output that does not simply start from an argument becomes a buffer that a `linalg` op initialises."""
    block = func.regions[0].blocks[0]
    attributes = argument_attributes(func)
    (stored,) = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value).results
    for op in outputs:
        tensor = op.operands[0]
        origin = defining_op(tensor)
        if origin is None:
            continue
        type_ = ir.MemRefType.get(stored.shape, stored.element_type)
        value, scaling, argument = _filled_with(origin), _scaling(origin), _source(tensor)
        with ir.InsertionPoint(op):
            if value is not None:
                buffer = block.add_argument(type_, op.location)
                attributes.append({"ditto.name": ir.StringAttr.get("result")})
                _fill_buffer(value, buffer)
            elif defining_op(argument) is None:
                buffer = argument
                _make_buffer(buffer, type_)
                if scaling is not None:
                    _scale_buffer(scaling, buffer)
            else:
                raise Unsupported(
                    "the output starts from neither an argument nor a linalg.fill of a constant",
                    where=f"{where}: {location_text(origin.location)}",
                )
        _read_from(buffer, tensor)
        _write_to(buffer, op.results[0])
        op.operation.erase()
        _erase_unused(func)
    set_signature(func, attributes, results=[])


def _scaling(op: ir.OpView) -> ir.OpView | None:
    """The op that scales what the output starts from; None where it starts from it as it is."""
    return op if op_name(op) == "linalg.generic" and len(op.operands) == 1 else None


def _source(tensor: ir.Value) -> ir.Value:
    """What a tensor is scaled and widened from."""
    op = defining_op(tensor)
    while op is not None and (op_name(op) == "arith.extf" or _scaling(op) is not None):
        tensor = op.operands[0]
        op = defining_op(tensor)
    return tensor


def _fill_buffer(value: ir.Value, buffer: ir.Value) -> None:
    """Write a constant everywhere, rounded to the buffer's type where it is wider."""
    element, rank = buffer.type.element_type, len(buffer.type.shape)
    if value.type == element:
        linalg.fill(value, outs=[buffer])
        return
    maps = [ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))]
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    body = _update(buffer, ir.ArrayAttr.get(maps), ir.ArrayAttr.get([parallel] * rank))
    with ir.InsertionPoint(body):
        linalg.yield_([b.convert(value, element)])


def _update(buffer: ir.Value, maps: ir.Attribute, iterators: ir.Attribute) -> ir.Block:
    """A `linalg.generic` over `buffer` alone; gives its empty body."""
    segments = ir.DenseI32ArrayAttr.get([0, 1])
    attributes = {"indexing_maps": maps, "iterator_types": iterators, "operandSegmentSizes": segments}
    op = ir.Operation.create("linalg.generic", [], [buffer], attributes, regions=1)
    return op.regions[0].blocks.append(buffer.type.element_type)


def _scale_buffer(scaling: ir.OpView, buffer: ir.Value) -> None:
    """The op over a tensor as one that updates `buffer`."""
    body = _update(buffer, scaling.attributes["indexing_maps"], scaling.attributes["iterator_types"])
    old, element = scaling.regions[0].blocks[0], buffer.type.element_type
    *ops, end = old.operations
    with ir.InsertionPoint(body):
        values = {old.arguments[0]: b.convert(body.arguments[0], old.arguments[0].type)}
        values = clone_ops(ops, values)
        linalg.yield_([b.convert(values.get(v, v), element) for v in end.operands])


def _write_to(buffer: ir.Value, tensor_buffer: ir.Value) -> None:
    """Make what stores to `tensor_buffer` store to `buffer`, in its type."""
    for store in [use.owner for use in tensor_buffer.uses if op_name(use.owner) == "memref.store"]:
        with ir.InsertionPoint(store):
            memref.store(b.convert(store.operands[0], buffer.type.element_type), buffer, list(store.operands)[2:])
        store.operation.erase()
    tensor_buffer.replace_all_uses_with(buffer)


def _filled_with(op: ir.OpView) -> ir.Value | None:
    """The constant that a generalised `linalg.fill` writes everywhere, or None for any other op."""
    if op_name(op) != "linalg.generic" or len(op.results) != 1:
        return None
    block = op.regions[0].blocks[0]
    (value,) = list(block.operations)[-1].operands
    if value.owner == block:
        value = op.operands[list(block.arguments).index(value)]
    source = defining_op(value)
    return value if source is not None and op_name(source) == "arith.constant" else None


def _dense_buffers(func: ir.OpView) -> None:
    """Every dense tensor argument becomes a buffer."""
    block = func.regions[0].blocks[0]
    for argument in block.arguments:
        type_ = argument.type
        if not isinstance(type_, ir.RankedTensorType) or sparse_encoding(type_) is not None:
            continue
        _make_buffer(argument, ir.MemRefType.get(type_.shape, type_.element_type))
    set_signature(func, argument_attributes(func), results=[])


def _make_buffer(argument: ir.Value, type_: ir.Type) -> None:
    """Make an argument of the function a buffer, also for what reads it."""
    uses = [use.owner for use in argument.uses]
    argument.set_type(type_)
    _read_from(argument, argument, uses)


def _read_from(buffer: ir.Value, tensor: ir.Value, uses: list[ir.OpView] | None = None) -> None:
    """Make the users of `tensor` read `buffer`: extracts become loads, sizes are the buffer's."""
    for op in uses if uses is not None else [use.owner for use in tensor.uses]:
        with ir.InsertionPoint(op):
            if op_name(op) == "tensor.extract":
                new = b.convert(memref.load(buffer, list(op.operands)[1:]), op.results[0].type)
            elif op_name(op) == "tensor.dim":
                new = memref.dim(buffer, op.operands[1])
            elif op_name(op) == "bufferization.to_buffer" and tensor == buffer:
                new = buffer
            else:
                continue
        op.results[0].replace_all_uses_with(new)
        op.operation.erase()


def _return_nothing(func: ir.OpView) -> None:
    (end,) = (op for op in walk(func) if op_name(op) == "func.return")
    with ir.InsertionPoint(end):
        func_dialect.return_([])
    end.operation.erase()
    _erase_unused(func)


def _erase_unused(func: ir.OpView) -> None:
    """Erase tensor ops that nothing reads any more."""
    for op in reversed(list(walk(func))):
        names = ("bufferization.to_tensor", "linalg.generic", "tensor.empty", "arith.extf", "arith.truncf")
        if op_name(op) in names and len(op.results) and not any(True for r in op.results for _ in r.uses):
            op.operation.erase()


def _fold_first_positions(func: ir.OpView) -> None:
    for op in list(walk(func)):
        if op_name(op) != "memref.load" or len(op.operands) != 2:
            continue
        source, at = defining_op(op.operands[0]), b.known(op.operands[1])
        if source is None or op_name(source) != "sparse_tensor.positions" or at is None or _level(source) != 0:
            continue
        with ir.InsertionPoint(op):
            _replace_widened(op.results[0], b.index(0) if at == 0 else memref.dim(_first_coordinates(source), b.index(0)))


def _level(op: ir.OpView) -> int:
    return int(ir.IntegerAttr(op.attributes["level"]).value)


def _first_coordinates(positions: ir.OpView) -> ir.Value:
    return next(
        op.results[0]
        for op in walk(positions.operation.parent)
        if op_name(op) == "sparse_tensor.coordinates" and op.operands[0] == positions.operands[0] and _level(op) == 0
    )


def _replace_widened(loaded: ir.Value, bound: ir.Value) -> None:
    """Replace a loaded position, or the index that it is widened to (`extui`, `index_cast`), by `bound`."""
    if isinstance(loaded.type, ir.IndexType):
        loaded.replace_all_uses_with(bound)
        return
    for use in list(loaded.uses):
        _replace_widened(use.owner.results[0], bound)
