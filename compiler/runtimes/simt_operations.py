"""Which operations of a kernel the emulator takes, and how they touch memory; all others are refused here, by name."""

from __future__ import annotations

from collections.abc import Collection

from mlir import ir

from sparseditto.compiler.runtimes.simt_kernel import ATOMIC, ELEMENTS, LOAD, STORE
from sparseditto.dialects.binding import op_name
from sparseditto.dialects.errors import Unsupported

# Operations that touch memory: the kind, and the place of the memref among the operands (its indices follow).
ACCESSES = {
    "memref.load": (LOAD, 0),
    "memref.store": (STORE, 1),
    "memref.atomic_rmw": (ATOMIC, 1),
    "vector.load": (LOAD, 0),
    "vector.store": (STORE, 1),
    "vector.maskedload": (LOAD, 0),
    "vector.maskedstore": (STORE, 0),
}
MASKED = ("vector.maskedload", "vector.maskedstore")

# Operations whose result is the memory of their first operand, seen another way.
VIEWS = (
    "memref.reinterpret_cast",
    "memref.cast",
    "memref.subview",
    "memref.collapse_shape",
    "memref.expand_shape",
    "memref.transpose",
    "memref.view",
    "memref.extract_strided_metadata",
)

_DIALECTS = ("affine", "arith", "cf", "math", "scf", "ub", "vector")
_TAKEN = {
    *ACCESSES,
    *VIEWS,
    *(f"gpu.{name}" for name in ("thread_id", "block_id", "block_dim", "grid_dim", "global_id")),
    *(f"gpu.{name}" for name in ("lane_id", "subgroup_id", "subgroup_size", "num_subgroups")),
    *(f"gpu.{name}" for name in ("barrier", "shuffle", "dynamic_shared_memory", "return")),
    *(f"memref.{name}" for name in ("alloca", "assume_alignment", "dim", "get_global", "memory_space_cast")),
    "llvm.fence",  # the host's own
    "nvvm.griddepcontrol",  # nothing: one kernel runs at a time
}
_NOT_TAKEN = {
    "cf.assert",
    "scf.forall",
    "scf.parallel",
    *(f"vector.{name}" for name in ("transfer_read", "transfer_write", "gather", "scatter", "expandload", "compressstore")),
    *(f"vector.{name}" for name in ("print", "vscale", "scalable.extract", "scalable.insert", "mask", "type_cast")),
}


def refuse(op: ir.OpView, kernel: str, shared_globals: Collection[str]) -> None:
    """Raise `Unsupported` at what has no host form; a pass would stop later, and some abort the process."""
    name, where = op_name(op), where_in(kernel, op)
    if name in _NOT_TAKEN or not (name in _TAKEN or name.partition(".")[0] in _DIALECTS):
        raise Unsupported(f"the emulator has no host form of '{name}'", where=where)
    if not all(map(_is_strided, (result.type for result in op.results))):
        raise Unsupported(f"the emulator takes memrefs with strides only, not {op.results[0].type}", where=where)
    if name == "arith.truncf" and (str(op.operands[0].type), str(op.results[0].type)) == ("f64", "bf16"):
        raise Unsupported("the emulator cannot round from f64 to bf16; round to f32 first", where=where)
    if name == "memref.alloca" and len(op.operands):
        raise Unsupported("the emulator cannot run a memref.alloca of dynamic size", where=where)
    if name == "memref.get_global" and global_of(op) not in shared_globals:
        raise Unsupported(f"the emulator has globals in shared memory only; @{global_of(op)} is elsewhere", where=where)
    if name in ACCESSES:
        _refuse_access(op, name, where)


def _refuse_access(op: ir.OpView, name: str, where: str) -> None:
    type_ = op.operands[ACCESSES[name][1]].type
    if str(type_.element_type) not in ELEMENTS:
        raise Unsupported(f"the emulator has no elements of type {type_.element_type}", where=where)
    if len(type_.shape) > 4:
        raise Unsupported("the emulator takes memrefs of up to 4 dimensions", where=where)
    value = vector_of(op)
    if value is not None and (len(value.shape) != 1 or value.scalable):
        raise Unsupported(f"the emulator loads and stores vectors of one dimension, not {value}", where=where)
    if value is not None and name in MASKED and value.shape[0] > 64:
        raise Unsupported("the emulator takes masks of up to 64 lanes", where=where)


def _is_strided(type_: ir.Type) -> bool:
    try:
        return not isinstance(type_, ir.MemRefType) or bool(type_.get_strides_and_offset())
    except RuntimeError:
        return False


def where_in(kernel: str, op: ir.OpView) -> str:
    """Where an operation of a kernel comes from, for an error."""
    return ", ".join(filter(None, (kernel, place_of(op.location))))


def place_of(location: ir.Location) -> str:
    """Where an operation comes from, as people write it; an empty string when nobody knows."""
    if location.is_a_file():
        file = "line " if location.filename in ("-", "") else f"{location.filename}:"
        return f"{file}{location.start_line}:{location.start_col}"
    if location.is_a_name():
        return place_of(location.child_loc)
    if location.is_a_callsite():
        return place_of(location.callee)
    if location.is_a_fused():
        return next(filter(None, map(place_of, location.locations)), "")
    return ""


def global_of(op: ir.OpView) -> str:
    return str(ir.FlatSymbolRefAttr(op.attributes["name"]).value)


def vector_of(op: ir.OpView) -> ir.VectorType | None:
    """The vector that an access moves, or None for a scalar."""
    value = op.results[0] if len(op.results) else op.operands[-1 if op_name(op) in MASKED else 0]
    return value.type if isinstance(value.type, ir.VectorType) else None
