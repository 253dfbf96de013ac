"""`lower-collectives`: what crosses threads becomes warp shuffles and shared memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, gpu, llvm, memref, vector

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import op_name, walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import combine, neutral

SHARED_SPACE = 3


@register
@dataclass(frozen=True)
class LowerCollectives(LoweringPass):
    """Spell out each `ditto.lane_reduce` as a butterfly of `gpu.shuffle xor`, and each `ditto.block_reduce` by those.

    A reduction over a block leaves the sums of its warps in shared memory, where the first warp reads and reduces them.

    All shuffles have width 32: a smaller width would name only the first lanes of the warp in the mask, which is wrong for
    every other group; xor offsets below the group's size stay inside the group.  64-bit values cross in two halves, vectors
    element by element.  A `ditto.lane_broadcast` is one `gpu.shuffle idx` from a lane counted from the start of the warp, and a
    `ditto.segmented_scan` doubling steps of `gpu.shuffle up`.

    Before::

        %s = "ditto.lane_reduce"(%p) {kind = "arith.addf", lanes = 4 : i32} : (f32) -> f32

    After::

        %a, %va = gpu.shuffle xor %p, %c2, %c32 : f32
        %b = arith.addf %p, %a : f32
        %c, %vc = gpu.shuffle xor %b, %c1, %c32 : f32
        %s = arith.addf %b, %c : f32
    """

    name: ClassVar[str] = "lower-collectives"
    kind = Kind.LOWERING

    def apply(self, module: ir.Module, target: Target) -> None:
        with module.context, ir.Location.unknown():
            for op in [op for op in walk(module.operation) if op_name(op) in _LOWERINGS]:
                with ir.InsertionPoint(op):
                    result = _LOWERINGS[op_name(op)](op, target.warp_size)
                if result is not None:
                    op.results[0].replace_all_uses_with(result)
                op.operation.erase()


def _number(op: ir.OpView, name: str, default: int = 1) -> int:
    return int(ir.IntegerAttr(op.attributes[name]).value) if name in op.attributes else default


def _over_lanes(op: ir.OpView, warp: int) -> ir.Value:
    kind = ir.StringAttr(op.attributes["kind"]).value
    return _butterfly(op.operands[0], kind, _number(op, "lanes"), warp, _number(op, "stride"))


def _from_lane(op: ir.OpView, warp: int) -> ir.Value:
    """The value of one lane of the group; a shuffle counts lanes from the start of the warp."""
    value, which = op.operands
    lanes = _number(op, "lanes")
    if lanes < warp:
        lane = b.rem(gpu.thread_id(gpu.Dimension.x), b.index(warp))
        which = b.add(b.sub(lane, b.rem(lane, b.index(lanes))), which)
    return _cross(value, arith.index_cast(_i32(), which), gpu.ShuffleMode.IDX, warp)


def _over_block(op: ir.OpView, warp: int) -> ir.Value:
    """Reduce each warp, leave its result in shared memory, and reduce those in the first warp.

    The barrier at the end lets the buffer be used again, should the reduction stand in a loop.
    """
    kind = ir.StringAttr(op.attributes["kind"]).value
    value = _butterfly(op.operands[0], kind, warp, warp)
    warps = _number(op, "threads") // warp
    if warps == 1:
        return value
    buffer = _shared_buffer(op, warps, value.type)
    thread = gpu.thread_id(gpu.Dimension.x)
    number, lane = b.div(thread, b.index(warp)), b.rem(thread, b.index(warp))
    with b.if_then(arith.cmpi(arith.CmpIPredicate.eq, lane, b.index(0))):
        memref.store(value, buffer, [number])
    gpu.barrier()
    place = b.rem(thread, b.index(warps))
    result = _butterfly(memref.load(buffer, [place]), kind, warps, warp)
    gpu.barrier()
    return result


def _over_runs(op: ir.OpView, warp: int) -> None:
    """A scan in which a lane takes what the lane `offset` before it has while no run begins in between.

    Shifted so that this lane's bit is the highest, `heads` says that by its size.  Lane 0 begins a run: no lane reads past it.
    """
    value, heads = op.operands
    kind, lanes = ir.StringAttr(op.attributes["kind"]).value, _number(op, "lanes")
    lane = arith.index_cast(_i32(), b.rem(gpu.thread_id(gpu.Dimension.x), b.index(lanes)))
    word = arith.shli(arith.ori(heads, arith.constant(_i32(), 1)), arith.subi(arith.constant(_i32(), 31), lane))
    offset, scanned = 1, value
    while offset < lanes:
        limit = arith.shli(arith.constant(_i32(), 1), arith.constant(_i32(), 32 - offset))
        same = arith.cmpi(arith.CmpIPredicate.ult, word, limit)
        other = _cross(scanned, arith.constant(_i32(), offset), gpu.ShuffleMode.UP, warp)
        scanned = arith.select(same, combine(kind, other, scanned), scanned)
        offset *= 2
    before = _cross(scanned, arith.constant(_i32(), 1), gpu.ShuffleMode.UP, warp)
    is_first = arith.cmpi(arith.CmpIPredicate.eq, lane, arith.constant(_i32(), 0))
    op.results[0].replace_all_uses_with(arith.select(is_first, neutral(kind, value.type), before))
    in_warp = arith.index_cast(_i32(), b.rem(gpu.thread_id(gpu.Dimension.x), b.index(warp)))
    last = arith.addi(arith.subi(in_warp, lane), arith.constant(_i32(), lanes - 1))
    op.results[1].replace_all_uses_with(_cross(scanned, last, gpu.ShuffleMode.IDX, warp))


def _over_group(op: ir.OpView, warp: int) -> ir.Value:
    """A butterfly whose number of steps is known at run time."""
    value, shift = op.operands
    kind = ir.StringAttr(op.attributes["kind"]).value

    def step(i: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        offset = arith.index_cast(_i32(), arith.shli(b.index(1), i))
        return [combine(kind, values[0], _cross(values[0], offset, gpu.ShuffleMode.XOR, warp))]

    return b.for_loop(b.index(0), shift, b.index(1), [value], step)[0]


def _shared(op: ir.OpView, warp: int) -> ir.Value:
    type_ = op.results[0].type
    return _shared_buffer(op, type_.shape[0], type_.element_type)


def _fence(op: ir.OpView, warp: int) -> None:
    llvm.FenceOp(llvm.AtomicOrdering.acq_rel, syncscope="device")


def _shared_buffer(op: ir.OpView, count: int, element: ir.Type) -> ir.Value:
    """A buffer in shared memory, as a global of the `gpu.module` around `op`."""
    owner = op.operation.parent
    while owner is not None and owner.name != "gpu.module":
        owner = owner.parent
    if owner is None:
        raise NotApplicable(
            "a reduction over a block stands in no gpu.module; run outline-kernels first", where="lower-collectives"
        )
    block = owner.regions[0].blocks[0]
    taken = {ir.StringAttr(other.attributes["sym_name"]).value for other in block.operations if "sym_name" in other.attributes}
    name = next(name for name in map("shared{}".format, itertools.count()) if name not in taken)
    type_ = ir.MemRefType.get([count], element, memory_space=ir.IntegerAttr.get(ir.IntegerType.get_signless(64), SHARED_SPACE))
    with ir.InsertionPoint.at_block_begin(block):
        memref.global_(name, ir.TypeAttr.get(type_), sym_visibility="private", initial_value=ir.UnitAttr.get())
    return memref.get_global(type_, name)


def _butterfly(value: ir.Value, kind: str, lanes: int, width: int, stride: int = 1) -> ir.Value:
    """The reduction over `lanes` lanes that lie `stride` apart."""
    offset = lanes // 2
    while offset:
        value = combine(kind, value, _exchange(value, offset * stride, width))
        offset //= 2
    return value


def _i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def _exchange(value: ir.Value, offset: int, width: int) -> ir.Value:
    """The value of the lane whose number differs by `offset` (xor)."""
    return _cross(value, arith.constant(_i32(), offset), gpu.ShuffleMode.XOR, width)


def _cross(value: ir.Value, lane: ir.Value, mode: gpu.ShuffleMode, width: int) -> ir.Value:
    """A shuffle of a value of any type: 32 bits at a time."""
    type_ = value.type
    if isinstance(type_, ir.VectorType):
        parts = [_cross(vector.extract(value, [], [i]), lane, mode, width) for i in range(type_.shape[0])]
        return vector.from_elements(type_, parts)
    if isinstance(type_, ir.IndexType):
        i64 = ir.IntegerType.get_signless(64)
        return arith.index_cast(type_, _cross(arith.index_cast(i64, value), lane, mode, width))
    if type_.width == 64:
        halves = vector.bitcast(ir.VectorType.get([2], _i32()), vector.from_elements(ir.VectorType.get([1], type_), [value]))
        moved = _cross(halves, lane, mode, width)
        return vector.extract(vector.bitcast(ir.VectorType.get([1], type_), moved), [], [0])
    if type_.width < 32:
        bits = ir.IntegerType.get_signless(type_.width)
        raw = value if type_ == bits else arith.bitcast(bits, value)
        moved = arith.trunci(bits, _cross(arith.extui(_i32(), raw), lane, mode, width))
        return moved if type_ == bits else arith.bitcast(type_, moved)
    return gpu.ShuffleOp(value, lane, arith.constant(_i32(), width), mode).shuffleResult


_LOWERINGS = {
    "ditto.lane_reduce": _over_lanes,
    "ditto.lane_broadcast": _from_lane,
    "ditto.block_reduce": _over_block,
    "ditto.group_reduce": _over_group,
    "ditto.segmented_scan": _over_runs,
    "ditto.shared_buffer": _shared,
    "ditto.fence": _fence,
}
