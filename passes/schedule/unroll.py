"""`unroll`: several stored entries an iteration, so that their loads are in flight together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import MIRRORED, Loop, LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, depending_on, guard_stores, yielded
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class Unroll(SchedulePass):
    """Do `factor` iterations of the innermost reduction at a time: all their loads first, then their sums in order.

    The order of additions stays as it was.  With ``tail=loop`` a second loop does the iterations that are left over, one at a
    time.  With ``tail=clamp`` they are done together as well: what is past the end loads the group's first entry once
    more, and its sum is not taken; short rows then wait for memory once.  With ``tail=halves`` what is left over is done in
    groups of factor/2, factor/4 … 1, each where it is needed: memory is waited for a few times, and nothing is loaded twice.

    Before::

        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) {
          %j = memref.load %crd[%p]
          ...
          %n = arith.addf %a, %t
          scf.yield %n
        }

    After ``unroll{factor=2}``::

        %main = scf.for %p = %lo to %even step %c2 iter_args(%a = %y0) {
          %j0 = memref.load %crd[%p]
          ...
          %p1 = arith.addi %p, %c1
          %j1 = memref.load %crd[%p1]
          ...
          %n0 = arith.addf %a, %t0
          %n1 = arith.addf %n0, %t1
          scf.yield %n1
        } {ditto.unrolled}
        %s = scf.for %p = %even to %hi step %c1 iter_args(%a = %main) {
          ...
        } {ditto.unrolled}

    Leaves alone: outer reductions; a reduction whose constant trip count `factor` divides gets no second loop.
    Refuses: a nest whose sums are not in registers, and one that is unrolled already.
    """

    name: ClassVar[str] = "unroll"
    relieves = (Bottleneck.LATENCY, Bottleneck.ISSUE)
    consumes = (Resource.REGISTERS, Resource.CODE)
    requires = (Form.REGISTER_ACCUMULATION,)
    excludes = (Form.UNROLLED,)
    provides = (Form.UNROLLED,)

    factor: int = option("iterations at a time", default=4, choices=(1, 2, 4, 8, 16))
    tail: str = option("what becomes of iterations that are left over", default="loop", choices=("loop", "clamp", "halves"))

    def effect(self, work: Work) -> Work:
        return work._replace(unroll=max(work.unroll, self.factor), tail=self.tail)

    def run(self, nest: LoopNest, target: Target) -> None:
        loops = [loop for loop in nest.reductions if loop.sequential and not nest.children(loop)]
        if not loops:
            raise NotApplicable("there is no reduction", where=self.name)
        for loop in loops:
            if self.factor == 1:
                loop.op.attributes["ditto.unrolled"] = ir.UnitAttr.get()
            else:
                _replace(loop, _TAILS[self.tail](loop, self.factor))


def _replace(loop: Loop, results: list[ir.Value]) -> None:
    for old, new in zip(loop.op.results, results, strict=True):
        old.replace_all_uses_with(new)
    loop.op.operation.erase()


def _with_rest(loop: Loop, factor: int) -> list[ir.Value]:
    """A loop over whole groups, and one for what is left."""
    with ir.InsertionPoint(loop.op):
        stride = b.mul(loop.step, b.index(factor))
        middle = _last_multiple(loop, factor)
        main = b.for_loop(loop.lower, middle, stride, loop.initial, lambda iv, sums: _several(loop, factor, iv, sums))
        _mark(main[0])
        if b.known(middle) is not None and b.known(middle) == b.known(loop.upper):
            return main
        rest = b.for_loop(middle, loop.upper, loop.step, main, lambda iv, sums: _several(loop, 1, iv, sums))
        _mark(rest[0])
        return rest


def _clamped(loop: Loop, factor: int) -> list[ir.Value]:
    """One loop over groups; an iteration past the end does the group's first one again, and its sums are not taken."""
    with ir.InsertionPoint(loop.op):
        stride = b.mul(loop.step, b.index(factor))
        result = b.for_loop(
            loop.lower, loop.upper, stride, loop.initial, lambda iv, sums: _several(loop, factor, iv, sums, clamp=True)
        )
        _mark(result[0])
        return result


def _in_halves(loop: Loop, factor: int) -> list[ir.Value]:
    """A loop over whole groups, then half a group, a quarter and so on, where they are left."""
    with ir.InsertionPoint(loop.op):
        stride = b.mul(loop.step, b.index(factor))
        at = _last_multiple(loop, factor)
        sums = b.for_loop(loop.lower, at, stride, loop.initial, lambda iv, sums: _several(loop, factor, iv, sums))
        _mark(sums[0])
        if b.known(at) is not None and b.known(at) == b.known(loop.upper):
            return sums
        left = b.ceildiv(arith.maxsi(b.sub(loop.upper, at), b.index(0)), loop.step)
        for size in (n for n in (8, 4, 2, 1) if n < factor):
            taken = arith.cmpi(arith.CmpIPredicate.sge, left, b.index(size))
            sums = _where(taken, sums, partial(_several, loop, size, at))
            at = arith.select(taken, b.add(at, b.mul(b.index(size), loop.step)), at)
            left = arith.select(taken, b.sub(left, b.index(size)), left)
        return sums


def _where(condition: ir.Value, sums: list[ir.Value], build: Callable[[list[ir.Value]], list[ir.Value]]) -> list[ir.Value]:
    """What `build` makes of the sums where the condition holds, else the sums."""
    branch = scf.IfOp(condition, [v.type for v in sums], has_else=True)
    with ir.InsertionPoint(branch.then_block):
        scf.yield_(build(sums))
    with ir.InsertionPoint(branch.else_block):
        scf.yield_(sums)
    return list(branch.results)


_TAILS = {"loop": _with_rest, "clamp": _clamped, "halves": _in_halves}


def _last_multiple(loop: Loop, factor: int) -> ir.Value:
    """Where the last whole group of `factor` iterations ends; not before `lower` when there is no iteration at all."""
    span = b.sub(loop.upper, loop.lower)
    if b.known(span) is None:
        span = arith.maxsi(span, b.index(0))
    trips = b.ceildiv(span, loop.step)
    whole = b.mul(b.div(trips, b.index(factor)), b.index(factor))
    return b.add(loop.lower, b.mul(whole, loop.step))


def _several(loop: Loop, factor: int, iv: ir.Value, sums: Sequence[ir.Value], clamp: bool = False) -> list[ir.Value]:
    """`factor` iterations from `iv` on: first what needs no sum and adds no mirror image, for each iteration, then the rest."""
    carried = list(loop.body.arguments)[1:]
    adding = depending_on(body_ops(loop.body), carried)
    users = [op for op in body_ops(loop.body) if op in adding or _adds_mirror(op)]
    free = [op for op in body_ops(loop.body) if op not in users]
    copies: list[Values] = []
    inside: list[ir.Value | None] = []
    for i in range(factor):
        at = b.add(iv, b.mul(b.index(i), loop.step))
        inside.append(arith.cmpi(arith.CmpIPredicate.slt, at, loop.upper) if clamp and i else None)
        copies.append(clone_ops(free, {loop.iv: at if inside[i] is None else arith.select(inside[i], at, iv)}))
    current = list(sums)
    for values, taken in zip(copies, inside, strict=True):
        first = len(list(ir.InsertionPoint.current.block.operations))
        values = clone_ops(users, {**values, **dict(zip(carried, current, strict=True))})
        if taken is not None:
            guard_stores(ir.InsertionPoint.current.block, taken, first)
        new = [values.get(v, v) for v in yielded(loop.body)]
        current = new if taken is None else [arith.select(taken, n, old) for n, old in zip(new, current, strict=True)]
    return current


def _adds_mirror(op: ir.OpView) -> bool:
    """Whether an op adds a mirror image to another row, or one inside it does."""
    return any(MIRRORED in inner.attributes for inner in (op, *walk(op)))


def _mark(result: ir.Value) -> None:
    result.owner.attributes["ditto.unrolled"] = ir.UnitAttr.get()
