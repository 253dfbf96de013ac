"""S4 to S5: a `gpu.module` to PTX, and the launch manifest that the kernels carry."""

from __future__ import annotations

import re
from dataclasses import replace

from mlir import ir

from sparseditto.compiler.package import Buffer, Launch
from sparseditto.compiler.pipeline import run_upstream
from sparseditto.dialects.binding import op_name, walk
from sparseditto.dialects.errors import StepFailed
from sparseditto.passes.nest import OVERLAP

NVVM = (
    "gpu.module(expand-strided-metadata,lower-affine,convert-scf-to-cf,convert-vector-to-llvm,"
    "convert-gpu-to-nvvm{use-bare-ptr-memref-call-conv=1},reconcile-unrealized-casts,canonicalize,cse)"
)
_DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "uint8",
    "i16": "uint16",
    "i32": "int32",
    "i64": "int64",
    "index": "int64",
}


def lower_to_nvvm(module: ir.Module) -> None:
    """S4 to NVVM, in place."""
    run_upstream(module, NVVM)


def ptx_of(module: ir.Module) -> str:
    """The PTX of an NVVM module, which becomes a `gpu.binary`."""
    run_upstream(module, "gpu-module-to-binary{format=isa}")
    binaries = [op for op in walk(module.operation) if op_name(op) == "gpu.binary"]
    if len(binaries) != 1:
        raise StepFailed(f"{len(binaries)} binaries came of one gpu.module", where="gpu-module-to-binary")
    text = str(ir.ArrayAttr(binaries[0].attributes["objects"])[0])
    assembly = re.search(r'assembly = "((?:[^"\\]|\\.)*)"', text)
    if assembly is None:
        raise StepFailed("the binary holds no assembly", where="gpu-module-to-binary")
    return re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), assembly[1]).rstrip("\0").strip() + "\n"


def manifest(module: ir.Module) -> tuple[tuple[Buffer, ...], tuple[Launch, ...]]:
    """Buffers and launches as the kernels of an S4 module declare them, in order."""
    buffers: dict[str, Buffer] = {}
    launches: list[Launch] = []
    for kernel in [op for op in walk(module.operation) if op_name(op) == "gpu.func"]:
        arguments = [ir.DictAttr(d) for d in ir.ArrayAttr(kernel.attributes["arg_attrs"])]
        types = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).inputs
        names = [ir.StringAttr(d["ditto.name"]).value for d in arguments]
        for name, type_, d in zip(names, types, arguments, strict=True):
            if isinstance(type_, ir.MemRefType):
                buffers[name] = _merge(buffers.get(name), _buffer(name, type_, d))
        grid = tuple(ir.StringAttr(a).value for a in ir.ArrayAttr(kernel.attributes["ditto.grid"]))
        block = tuple(int(n) for n in ir.DenseI32ArrayAttr(kernel.attributes["known_block_size"]))
        symbol = ir.StringAttr(kernel.attributes["sym_name"]).value
        overlap = OVERLAP in kernel.attributes
        sizes = (grid[0], grid[1], grid[2]), (block[0], block[1], block[2])
        launches.append(Launch(symbol, *sizes, tuple(names), overlap=overlap))
    return tuple(buffers.values()), tuple(launches)


def _buffer(name: str, type_: ir.MemRefType, attributes: ir.DictAttr) -> Buffer:
    shape = tuple(ir.StringAttr(a).value for a in ir.ArrayAttr(attributes["ditto.shape"]))
    access = ir.StringAttr(attributes["ditto.access"]).value if "ditto.access" in attributes else "read"
    recipe = ir.StringAttr(attributes["ditto.recipe"]).value if "ditto.recipe" in attributes else ""
    return Buffer(name, _DTYPES[str(type_.element_type)], shape, access, recipe)


def _merge(a: Buffer | None, b: Buffer) -> Buffer:
    """One buffer for two kernels: written by either is written."""
    if a is None or a == b:
        return b
    access = b.access if a.access == "read" else a.access if b.access == "read" else "readwrite"
    return replace(b, access=access)
