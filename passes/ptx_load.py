"""Loads from global memory as inline PTX, for what LLVM has no words for: cache hints."""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir
from mlir.dialects import llvm

HINTS_PTX = 74  # the first version with L1::no_allocate and with cache policies

# PTX type and register constraint of a scalar.
_REGISTERS = {
    "i16": ("b16", "h"),
    "f16": ("b16", "h"),
    "bf16": ("b16", "h"),
    "i32": ("b32", "r"),
    "i64": ("b64", "l"),
    "f32": ("f32", "f"),
    "f64": ("f64", "d"),
}


def is_scalar(type_: ir.Type) -> bool:
    """Whether one register holds a value of this type."""
    return str(type_) in _REGISTERS


def is_loaded_at_once(type_: ir.Type) -> bool:
    """Whether PTX loads a value of this type, or a vector, with one instruction."""
    count, element = _shape(type_)
    return is_scalar(element) and count in (1, 2, 4) and count * int(element.width) <= 128


def load(pointer: ir.Value, type_: ir.Type, hint: str, policy: Sequence[ir.Value] = ()) -> ir.Value:
    """Load what no kernel writes meanwhile (`.nc`), with a hint (`.L1::no_allocate`) and its policy, if it takes one."""
    count, element = _shape(type_)
    ptx, constraint = _REGISTERS[str(element)]
    register = ir.IntegerType.get_signless(16) if constraint == "h" else element  # a register of 16 bits holds an integer
    out, width, result = "$0", "", register
    if count > 1:
        out, width = "{" + ", ".join(f"${i}" for i in range(count)) + "}", f".v{count}"
        result = ir.Type.parse(f"!llvm.struct<({', '.join([str(register)] * count)})>")
    last = "".join(f", ${count + 1 + i}" for i in range(len(policy)))
    constraints = ",".join([*[f"={constraint}"] * count, "l", *["l"] * len(policy)])
    text = f"ld.global.nc{hint}{width}.{ptx} {out}, [${count}]{last};"
    loaded = llvm.inline_asm(result, [pointer, *policy], text, constraints)
    parts = [loaded] if count == 1 else [llvm.extractvalue(register, loaded, [i]) for i in range(count)]
    parts = [part if register == element else llvm.bitcast(element, part) for part in parts]
    return _vector(type_, parts) if isinstance(type_, ir.VectorType) else parts[0]


def _shape(type_: ir.Type) -> tuple[int, ir.Type]:
    """How many elements of which type a load gives."""
    return (type_.shape[0], type_.element_type) if isinstance(type_, ir.VectorType) else (1, type_)


def _vector(type_: ir.Type, parts: Sequence[ir.Value]) -> ir.Value:
    whole: ir.Value = llvm.mlir_poison(type_)
    for i, part in enumerate(parts):
        whole = llvm.insertelement(whole, part, llvm.mlir_constant(ir.IntegerAttr.get(ir.IntegerType.get_signless(32), i)))
    return whole
