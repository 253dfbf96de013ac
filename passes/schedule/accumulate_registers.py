"""`accumulate-registers`: keep each output element in a register while its sum is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, defining_op, op_name, walk
from sparseditto.dialects.errors import NotApplicable, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass
from sparseditto.passes.nest import COMBINERS, LOOPS, Loop, LoopKind, LoopNest, Role, Slices, accessed, indices, root_buffer
from sparseditto.passes.registry import register


@register
@dataclass(frozen=True)
class AccumulateRegisters(SchedulePass):
    """Move parallel loops outside reductions and carry the sum through them in `iter_args`, stored once.

    The rows of the output that a reduction walks come first, then its other parallel loops (the dense columns),
    then the reductions in their order.  What only depends on outer loops is computed there.  A `linalg.fill` of the
    output becomes the sum's initial value where the parallel loops reach every element of the output; otherwise (a
    compressed level leaves rows out) it stays, and the sum starts from the output's old value.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          scf.for %p = %lo to %hi step %c1 {
            scf.for %k = %c0 to %c64 step %c1 {
              %c = memref.load %C[%i, %k]
              %s = arith.addf %c, %t
              memref.store %s, %C[%i, %k]

    After::

        scf.for %i = %c0 to %m step %c1 {
          scf.for %k = %c0 to %c64 step %c1 {
            %c = memref.load %C[%i, %k]
            %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %c) {
              %n = arith.addf %a, %t
              scf.yield %n
            memref.store %s, %C[%i, %k]

    Leaves alone: a nest whose sums start from a constant already.
    Refuses: an output that is scattered (an output index that a reduction's stored coordinates give).
    """

    name: ClassVar[str] = "accumulate-registers"
    relieves = (Bottleneck.BANDWIDTH, Bottleneck.LATENCY)
    consumes = (Resource.REGISTERS,)
    requires = (Form.ROWS,)
    excludes = (Form.THREADS, Form.VECTORS, Form.UNROLLED, Form.SEGMENTS)
    provides = (Form.REGISTER_ACCUMULATION,)

    def run(self, nest: LoopNest, target: Target) -> None:
        reads_output = any(root_buffer(accessed(load)) == nest.output for load in nest.loads)
        if len(nest.stores) == 1 and nest.fill is None and not reads_output and Form.REGISTER_ACCUMULATION in nest.forms():
            return
        _Rebuild(nest, self.name).run()


class _Rebuild:
    """One rewriting of a nest: decides the new order first, then emits it before the old nest and erases that."""

    def __init__(self, nest: LoopNest, where: str) -> None:
        self.nest, self.where = nest, where
        self.slices = Slices()
        if len(nest.stores) != 1 or op_name(nest.stores[0]) != "memref.store":
            raise Unsupported(f"the nest has {len(nest.stores)} stores, not one", where=where)
        self.store = nest.stores[0]
        if any(not loop.sequential for loop in nest.loops):
            raise NotApplicable("some loops are mapped already", where=where)
        self.old = [load for load in nest.loads if root_buffer(accessed(load)) == nest.output]
        if len(self.old) != 1:
            raise Unsupported(f"the output is read {len(self.old)} times, not once", where=where)
        self.order = self._order()
        covers = all(loop.kind is not LoopKind.COMPRESSED for loop in nest.loops if loop.role is Role.PARALLEL)
        self.fill = nest.fill if covers else None
        self.innermost = self._combining_op()
        self.pure = self._pure_ops()

    def _order(self) -> list[Loop]:
        """Rows, other parallel loops, reductions; bounds must be known where a loop stands."""
        parallel = [loop for loop in self.nest.loops if loop.role is Role.PARALLEL]
        reductions = [loop for loop in self.nest.loops if loop.role is Role.REDUCTION]
        governed = frozenset().union(*(self._bounds(loop) for loop in reductions)) if reductions else frozenset()
        order = [
            *(loop for loop in parallel if loop.body in governed),
            *(loop for loop in parallel if loop.body not in governed),
            *reductions,
        ]
        outside: set[ir.Block] = set()
        for loop in order:
            inner = {other.body for other in order} - outside
            if self._bounds(loop) & inner:
                raise NotApplicable(
                    "the output is scattered: its rows come from stored coordinates of a reduction", where=self.where
                )
            outside.add(loop.body)
        return order

    def _bounds(self, loop: Loop) -> frozenset[ir.Block]:
        return self.slices.blocks(loop.lower) | self.slices.blocks(loop.upper)

    def _combining_op(self) -> ir.OpView:
        """The op that adds one term to the sum: what is stored, or what the innermost reduction yields."""
        value = self.store.operands[0]
        op = defining_op(value)
        while op is not None and op_name(op) == "scf.for":
            value = list(op.regions[0].blocks[0].operations)[-1].operands[0]
            op = defining_op(value)
        if op is None or op_name(op) not in COMBINERS:
            raise Unsupported(
                f"the output is combined by '{op_name(op) if op else value}', not by one of {', '.join(COMBINERS)}",
                where=self.where,
            )
        return op

    def _sum_operand(self) -> int:
        """Which operand of the combining op is the sum so far."""
        sums = {self.old[0].results[0], *(a for loop in self.nest.loops for a in list(loop.body.arguments)[1:])}
        for i, operand in enumerate(self.innermost.operands):
            if operand in sums:
                return i
        raise Unsupported("the output's old value is not an operand of the op that combines it", where=self.where)

    def _pure_ops(self) -> list[ir.OpView]:
        """All ops to place anew: neither loops nor terminators nor the sum itself."""
        special = {self.store.operation, self.old[0].operation, self.innermost.operation}
        ops = [op for op in walk(self.nest.outer.op) if op_name(op) not in (*LOOPS, "scf.yield")]
        strange = next((op for op in ops if len(op.regions) or (len(op.results) != 1 and op != self.store)), None)
        if strange is not None:
            raise Unsupported(f"'{op_name(strange)}' in the nest cannot be moved", where=self.where)
        return [op for op in ops if op.operation not in special]

    def run(self) -> None:
        self.which = self._sum_operand()
        reductions = [loop for loop in self.order if loop.role is Role.REDUCTION]
        parallel = [loop for loop in self.order if loop.role is Role.PARALLEL]
        with ir.InsertionPoint(self.nest.outer.op):
            self._parallel(parallel, reductions, {}, frozenset())
        self.nest.outer.op.operation.erase()
        if self.fill is not None:
            self.fill.operation.erase()

    def _place(self, known: frozenset[ir.Block], mapping: dict[ir.Value, ir.Value]) -> None:
        """Clone every op whose loops are all known by now and that is not placed yet."""
        for op in self.pure:
            if op.results[0] not in mapping and self.slices.blocks(op.results[0]) & self._bodies() <= known:
                new = clone_into(op, mapping)
                mapping.update(zip(op.results, new.results, strict=True))

    def _bodies(self) -> frozenset[ir.Block]:
        return frozenset(loop.body for loop in self.order)

    def _parallel(
        self, loops: Sequence[Loop], reductions: Sequence[Loop], mapping: dict[ir.Value, ir.Value], known: frozenset[ir.Block]
    ) -> None:
        self._place(known, mapping)
        if not loops:
            self._reduce_and_store(reductions, mapping, known)
            return
        loop, *rest = loops

        def body(iv: ir.Value, _: list[ir.Value]) -> Sequence[ir.Value]:
            self._parallel(rest, reductions, {**mapping, loop.iv: iv}, known | {loop.body})
            return ()

        b.for_loop(*self._bounds_in(loop, mapping), [], body)

    def _reduce_and_store(
        self, reductions: Sequence[Loop], mapping: dict[ir.Value, ir.Value], known: frozenset[ir.Block]
    ) -> None:
        at = [mapping.get(i, i) for i in indices(self.store)]
        if self.fill is not None:
            initial = self.fill.operands[0]
        else:
            initial = memref.load(self.nest.output, at)
        memref.store(self._reduce(reductions, initial, mapping, known), self.nest.output, at)

    def _reduce(
        self, loops: Sequence[Loop], carried: ir.Value, mapping: dict[ir.Value, ir.Value], known: frozenset[ir.Block]
    ) -> ir.Value:
        if not loops:
            new = clone_into(self.innermost, {**mapping, self.innermost.operands[self.which]: carried})
            return new.results[0]
        loop, *rest = loops

        def body(iv: ir.Value, sums: list[ir.Value]) -> Sequence[ir.Value]:
            inner, inside = {**mapping, loop.iv: iv}, known | {loop.body}
            self._place(inside, inner)
            return [self._reduce(rest, sums[0], inner, inside)]

        return b.for_loop(*self._bounds_in(loop, mapping), [carried], body)[0]

    def _bounds_in(self, loop: Loop, mapping: dict[ir.Value, ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
        lower, upper, step = (mapping.get(v, v) for v in (loop.lower, loop.upper, loop.step))
        return lower, upper, step
