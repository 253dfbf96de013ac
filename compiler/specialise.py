"""Fix sizes that are known before compilation: dynamic dimensions of the kernel's dense operands become static (S0)."""

from __future__ import annotations

from collections.abc import Mapping

from mlir import ir
from mlir.dialects import tensor

from sparseditto.compiler.kernel import Kernel
from sparseditto.dialects.binding import argument_attributes, op_name, set_signature, walk


def specialise(kernel: Kernel, sizes: Mapping[int, int]) -> None:
    """Make the extents of the iteration dimensions in `sizes` static, in arguments, results and `tensor.empty`."""
    if not sizes:
        return
    func, computation = kernel.func, kernel.computation
    block = func.regions[0].blocks[0]
    for operand in computation.operands:
        if operand.argument is not None and not operand.sparse:
            argument = block.arguments[operand.argument]
            argument.set_type(_static(argument.type, operand.dims, sizes))
    dims = computation.output.dims
    for op in walk(func):
        if op_name(op) == "tensor.empty":
            _static_empty(op, dims, sizes)
    for op in walk(func):
        if op.operation.parent == func.operation and op_name(op).startswith(("linalg.", "arith.")):
            for result in op.results:
                if isinstance(result.type, ir.RankedTensorType):
                    result.set_type(_static(result.type, dims, sizes))
    set_signature(func, argument_attributes(func), [_static(_result_type(func), dims, sizes)])


def _static(type_: ir.Type, dims: tuple[int, ...], sizes: Mapping[int, int]) -> ir.Type:
    shape = [sizes.get(d, n) for d, n in zip(dims, type_.shape, strict=True)]
    return ir.RankedTensorType.get(shape, type_.element_type, type_.encoding)


def _static_empty(op: ir.OpView, dims: tuple[int, ...], sizes: Mapping[int, int]) -> None:
    dynamic = ir.ShapedType.get_dynamic_size()
    old = op.results[0].type
    values = iter(op.operands)
    extents: list[ir.Value | int] = []
    for d, n in zip(dims, old.shape, strict=True):
        value = next(values) if n == dynamic else None
        known = sizes.get(d)
        extents.append(known if known is not None else value if value is not None else n)
    with ir.InsertionPoint(op):
        new = tensor.empty(extents, old.element_type)
    op.results[0].replace_all_uses_with(new)
    op.operation.erase()


def _result_type(func: ir.OpView) -> ir.Type:
    return ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value).results[0]
