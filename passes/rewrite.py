"""Steps that several schedule and mapping passes share: cloning loop bodies, guarding stores, sharing loops among lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce

from mlir import ir
from mlir.dialects import arith

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, defining_op, op_name, walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.passes.nest import COMBINERS, KERNEL, STORES, Loop

Values = dict[ir.Value, ir.Value]
ELEMENT_THREADS = 256  # a block of a kernel over elements
_TERMINATORS = ("scf.yield", "scf.forall.in_parallel")
FENCE = "ditto.fence"  # an op of one thread: no lanes meet in it


def require_plain(loop: Loop, where: str) -> None:
    """Raise `NotApplicable` unless the loop counts from 0 by 1."""
    if not loop.starts_at_zero_by_one():
        raise NotApplicable("the loop does not count from 0 by 1", where=where)


def body_ops(block: ir.Block) -> list[ir.OpView]:
    """The ops of a loop body without its terminator."""
    return [op for op in block.operations if op_name(op) not in _TERMINATORS]


def inline_body(loop: Loop, mapping: Mapping[ir.Value, ir.Value]) -> Values:
    """Clone the body of `loop` at the insertion point; returns the mapping extended by what was cloned."""
    return clone_ops(body_ops(loop.body), mapping)


def clone_ops(ops: list[ir.OpView], mapping: Mapping[ir.Value, ir.Value]) -> Values:
    """Clone `ops` in order at the insertion point; returns the mapping extended by their results."""
    values = dict(mapping)
    for op in ops:
        new = clone_into(op, values)
        values.update(zip(op.results, new.results, strict=True))
    return values


def clone_reduction(
    loop: Loop, values: Values, lower: ir.Value, upper: ir.Value, step: ir.Value, initial: list[ir.Value]
) -> list[ir.Value]:
    """A reduction like `loop` over other bounds and from other initial values; returns its results."""
    carried = list(loop.body.arguments)[1:]

    def body(iv: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        inner = inline_body(loop, {**values, loop.iv: iv, **dict(zip(carried, sums, strict=True))})
        return [inner.get(v, v) for v in yielded(loop.body)]

    return b.for_loop(lower, upper, step, initial, body)


def clone_to(
    ops: list[ir.OpView],
    target: ir.OpView,
    values: Values,
    at_target: Callable[[list[ir.OpView], Values], None],
) -> None:
    """Clone `ops`; at `target`, which stands among them or in loops nested in them, call `at_target` instead.

    `at_target` gets the ops that follow in the same block, which it clones itself, and the mapping so far.
    """
    for i, op in enumerate(ops):
        if op == target:
            at_target(ops[i + 1 :], values)
            return
        if target in list(walk(op)):
            _clone_loop_to(op, target, values, at_target)
        else:
            values = clone_ops([op], values)


def _clone_loop_to(
    loop: ir.OpView, target: ir.OpView, values: Values, at_target: Callable[[list[ir.OpView], Values], None]
) -> None:
    lower, upper, step = (values.get(v, v) for v in list(loop.operands)[:3])
    block = loop.regions[0].blocks[0]

    def body(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
        clone_to(body_ops(block), target, {**values, block.arguments[0]: iv}, at_target)
        return ()

    b.for_loop(lower, upper, step, [], body)


def depending_on(ops: list[ir.OpView], values: list[ir.Value]) -> list[ir.OpView]:
    """Those of `ops`, in order, that use one of `values` or a result of such an op."""
    tainted, users = set(values), []
    for op in ops:
        if any(operand in tainted for operand in op.operands):
            users.append(op)
            tainted.update(op.results)
    return users


def yielded(block: ir.Block) -> list[ir.Value]:
    """The operands of a loop body's `scf.yield`."""
    return list(list(block.operations)[-1].operands)


def neutral(combiner: str, type_: ir.Type) -> ir.Value:
    """The constant that changes nothing under `combiner` (0 for a sum), of a float or a vector of floats."""
    numbers = {"arith.addf": 0.0, "arith.mulf": 1.0}
    number = numbers.get(combiner, float("-inf") if "max" in combiner else float("inf"))
    if isinstance(type_, ir.VectorType):
        attr = ir.FloatAttr.get(type_.element_type, number)
        return arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, attr))
    return arith.constant(type_, ir.FloatAttr.get(type_, number))


def combine(combiner: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """`x` and `y` under `combiner`."""
    return ir.Operation.create(combiner, results=[x.type], operands=[x, y]).results[0]


def collective(name: str, value: ir.Value, combiner: str, **sizes: int) -> ir.Value:
    """A `ditto` reduction of `value` across threads; `sizes` are its integer attributes (`lanes`, `threads`)."""
    i32 = ir.IntegerType.get_signless(32)
    attributes: dict[str, ir.Attribute] = {key: ir.IntegerAttr.get(i32, n) for key, n in sizes.items()}
    attributes["kind"] = ir.StringAttr.get(combiner)
    return ir.Operation.create(name, results=[value.type], operands=[value], attributes=attributes).results[0]


def clone_slice(value: ir.Value, values: Values) -> ir.Value:
    """`value` computed anew at the insertion point from what `values` maps; what depends on none of it is used as it is."""
    if value in values:
        return values[value]
    op = defining_op(value)
    if op is None:
        return value
    inside = {result for inner in walk(op) for result in inner.results}
    outside = [v for each in (op, *walk(op)) for v in each.operands if v not in inside]
    inputs = {v: clone_slice(v, values) for v in outside}
    if all(new == old for old, new in inputs.items()):
        return value
    values.update(zip(op.results, clone_into(op, inputs).results, strict=True))
    return values[value]


@contextmanager
def finished_kernel(suffix: str, blocks: ir.Value, threads: int) -> Iterator[tuple[ir.Value, ir.Value]]:
    """A nest over blocks and their threads that is a kernel of its own; built inside, gets both numbers."""
    with b.forall(blocks, "block") as block:
        loop = ir.InsertionPoint.current.block.owner
        with b.forall(threads, "thread") as thread:
            yield block, thread
    loop.attributes[KERNEL] = ir.StringAttr.get(suffix)


def element_kernel(suffix: str, extents: list[ir.Value], body: Callable[[list[ir.Value]], None]) -> None:
    """A kernel of its own with a thread for each element of a row-major box; `body` gets the element's indices."""
    total = reduce(b.mul, reversed(extents), b.index(1))
    with finished_kernel(suffix, b.ceildiv(total, b.index(ELEMENT_THREADS)), ELEMENT_THREADS) as (block, thread):
        element = b.add(b.mul(block, b.index(ELEMENT_THREADS)), thread)
        with b.if_then(arith.cmpi(arith.CmpIPredicate.ult, element, total)):
            body(_coordinates(element, extents))


def _coordinates(element: ir.Value, extents: list[ir.Value]) -> list[ir.Value]:
    """The indices of the element with a row-major number."""
    at: list[ir.Value] = []
    for extent in reversed(extents[1:]):
        at.insert(0, b.rem(element, extent))
        element = b.div(element, extent)
    return [element, *at]


def take_initial(loop: Loop, values: Values, which: int = 0) -> ir.Value:
    """What a reduction's sum starts from, at the insertion point; a load of it that was cloned before moves here."""
    initial = values.get(loop.initial[which], loop.initial[which])
    read = defining_op(initial)
    if read is None or op_name(read) not in ("memref.load", "vector.load"):
        return initial
    moved = clone_into(read, {}).results[0]
    read.operation.erase()
    return moved


def finish_sum(entries: Loop, rest: list[ir.OpView], values: Values, total: ir.Value) -> None:
    """Clone what follows the sum of a row, at the insertion point, for the sum `total` of its entries alone."""
    initial = take_initial(entries, values)
    result = total if is_zero(initial) else combine("arith.addf", initial, total)
    clone_ops(rest, {**values, entries.op.results[0]: result})


def combiner_of(loop: Loop) -> str | None:
    """The op under which a reduction's iterations combine, through nested reductions; None when it is none we know.

    A term may be added under a condition (`arith.select` between the sum with and without it).
    """
    op = defining_op(yielded(loop.body)[0])
    conditional = False
    while op is not None and op_name(op) in ("scf.for", "arith.select"):
        conditional |= op_name(op) == "arith.select"
        op = defining_op(op.operands[1] if op_name(op) == "arith.select" else yielded(op.regions[0].blocks[0])[0])
    known = op is not None and op_name(op) in COMBINERS and (not conditional or sums_are_independent(loop))
    return op_name(op) if op is not None and known else None


def sums_are_independent(loop: Loop) -> bool:
    """Whether each value that a reduction carries only has terms added to it that depend on none of them."""
    carried = list(loop.body.arguments)[1:]
    return all(_adds_to(value, own, carried) for value, own in zip(yielded(loop.body), carried, strict=True))


def _adds_to(value: ir.Value, own: ir.Value, carried: list[ir.Value]) -> bool:
    """Whether `value` is `own` with terms added, in a chain of combining ops or in a loop that carries the sum on."""
    if value == own:
        return True
    op = defining_op(value)
    if op is None:
        return False
    if op_name(op) == "scf.for":
        which = ir.OpResult(value).result_number
        block = op.regions[0].blocks[0]
        inner = list(block.arguments)[1:]
        return _adds_to(list(op.operands)[3 + which], own, carried) and _adds_to(yielded(block)[which], inner[which], inner)
    if op_name(op) == "arith.select":  # a term that is added under a condition
        return not depends(op.operands[0], carried) and all(_adds_to(v, own, carried) for v in list(op.operands)[1:])
    if op_name(op) not in COMBINERS:
        return False
    x, y = op.operands
    return (_adds_to(x, own, carried) and not depends(y, carried)) or (_adds_to(y, own, carried) and not depends(x, carried))


def depends(value: ir.Value, carried: list[ir.Value]) -> bool:
    """Whether `value` is computed from any of `carried`."""
    op = defining_op(value)
    if op is None or value in carried:
        return value in carried
    return any(depends(v, carried) for inner in (op, *walk(op)) for v in inner.operands)


def is_zero(value: ir.Value) -> bool:
    """Whether a value is the constant 0.0, scalar or vector."""
    op = defining_op(value)
    return op is not None and op_name(op) == "arith.constant" and str(op.attributes["value"]).startswith(("0.0", "dense<0.0"))


def within(item: ir.Value, count: ir.Value, together: bool, build: Callable[[ir.Value], None]) -> None:
    """Build for `item` where it is below `count`.

    With `together` all lanes must get through what is built: past the end they then do the last item again, and store nothing.
    """
    inside = arith.cmpi(arith.CmpIPredicate.ult, item, count)
    if not together:
        with b.if_then(inside):
            build(item)
        return
    clamped = arith.select(inside, item, b.sub(count, b.index(1)))
    place = ir.InsertionPoint.current.block
    first = len(list(place.operations))
    build(clamped)
    guard_stores(place, inside, first)


def has_collectives(op: ir.OpView) -> bool:
    """Whether lanes or threads meet inside `op`."""
    return any(_is_collective(op_name(inner)) for inner in walk(op))


def _is_collective(name: str) -> bool:
    return name.startswith("ditto.") and name != FENCE


def guard_stores(block: ir.Block, condition: ir.Value, first: int = 0) -> None:
    """Put what stores under `block` inside an `scf.if` of `condition`, but nothing that all lanes must reach.

    The guard goes around the largest ops that hold stores, no collective and no sum that is carried on, and around what they
    alone read in order to store it again.  Ops before number `first` stay as they are.
    """
    for op in list(block.operations)[first:]:
        inside = [op_name(inner) for inner in (op, *walk(op))]
        if not any(name in STORES for name in inside):
            continue
        if any(map(_is_collective, inside)) or (len(op.regions) and len(op.results)):
            for region in op.regions:
                for inner in region:
                    guard_stores(inner, condition)
        else:
            guarded = [*_read_for(op), op]
            with ir.InsertionPoint(op), b.if_then(condition):
                clone_ops(guarded, {})
            for old in reversed(guarded):
                old.operation.erase()


def _read_for(op: ir.OpView) -> list[ir.OpView]:
    """Loads in the block of `op` from the buffers that it stores to, and what is made of them, where `op` alone needs it."""
    inside = [op, *walk(op)]
    buffers = [inner.operands[1] for inner in inside if op_name(inner) in STORES]
    needed = {inner.operation for inner in inside}
    found: list[ir.OpView] = []
    for other in reversed(_before(op)):
        users = [use.owner.operation for result in other.results for use in result.uses]
        if users and not len(other.regions) and all(user in needed for user in users):
            needed.add(other.operation)
            found.insert(0, other)
    loads = [other for other in found if op_name(other) in ("memref.load", "vector.load") and other.operands[0] in buffers]
    return [other for other in found if other in loads or other in depending_on(found, [r for x in loads for r in x.results])]


def _before(op: ir.OpView) -> list[ir.OpView]:
    """The ops before `op` in its block."""
    ops = list(op.operation.block.operations)
    return ops[: ops.index(op)]


def tile_and_row(number: ir.Value, rows: ir.Value, tiles: int, width: int) -> tuple[ir.Value, ir.Value]:
    """The first column of the tile with this number, and its row: by comparisons, since GPUs have no division."""
    first, row = b.index(0), number
    for k in reversed(range((tiles - 1).bit_length())):
        before = b.mul(rows, b.index(1 << k))
        later = arith.cmpi(arith.CmpIPredicate.uge, row, before)
        first = b.add(arith.select(later, b.index(width << k), b.index(0)), first)
        row = arith.select(later, b.sub(row, before), row)
    return first, row


def fence() -> None:
    """What this thread did to memory before is seen on the whole GPU before what it does after."""
    ir.Operation.create(FENCE)
