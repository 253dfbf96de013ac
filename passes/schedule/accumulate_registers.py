"""`accumulate-registers`: keep each output element in a register while its sum is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, defining_op, op_name, walk
from sparseditto.dialects.errors import NotApplicable, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.base import PLAIN_EXCLUDES, Bottleneck, Form, Resource, SchedulePass
from sparseditto.passes.initial import constant_of, initial_value
from sparseditto.passes.nest import COMBINERS, LOOPS, Loop, LoopKind, LoopNest, Role, Slices, accessed, indices, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import combine, is_zero, neutral


@register
@dataclass(frozen=True)
class AccumulateRegisters(SchedulePass):
    """Move parallel loops outside reductions and carry the sum through them in `iter_args`, stored once.

    The rows of the output that a reduction walks come first, then its other parallel loops (the dense columns),
    then the reductions in their order.  What only depends on outer loops is computed there.  The op that initialises the
    output becomes the sum's initial value where the parallel loops reach every element of the output; otherwise (a
    compressed level leaves rows out) it stays, and the sum starts from the output's old value.

    A factor that is the same for all terms multiplies the sum, once.  Where there is one, where the output's old value is
    scaled, or where the sum is wider than the output, the sum starts from 0 and the initial value is added after it:
    `%s = alpha * sum`, `%s1 = addf %initial, %s`; it is rounded to the output's type once.

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
    Refuses: a nest whose sum is added to an initial value that an op fills in; an output that is scattered (an output index
    that a reduction's stored coordinates give); an initial value that would be stored, and so rounded to a narrower type,
    before the sum is added to it.
    """

    name: ClassVar[str] = "accumulate-registers"
    relieves = (Bottleneck.BANDWIDTH, Bottleneck.LATENCY)
    consumes = (Resource.REGISTERS,)
    requires = (Form.ROWS,)
    excludes = (*PLAIN_EXCLUDES, Form.PARTS, Form.REORDERED)
    provides = (Form.REGISTER_ACCUMULATION,)

    def run(self, nest: LoopNest, target: Target) -> None:
        in_registers = Form.REGISTER_ACCUMULATION in nest.forms() and len(nest.stores) == 1
        reads_output = any(root_buffer(accessed(load)) == nest.output for load in nest.loads)
        added_after = in_registers and reads_output and _adds_initial_value(nest)
        if added_after and nest.fill is not None:
            raise NotApplicable("the initial value is added after the sum already; put this pass first", where=self.name)
        if added_after or (in_registers and not reads_output and nest.fill is None):
            return
        _Rebuild(nest, self.name).run()


def _adds_initial_value(nest: LoopNest) -> bool:
    """Whether something follows the reductions before the sum is stored."""
    stored = defining_op(_unrounded(nest.stores[0].operands[0]))
    return bool(nest.reductions) and stored is not None and op_name(stored) not in LOOPS


def _unrounded(value: ir.Value) -> ir.Value:
    op = defining_op(value)
    return op.operands[0] if op is not None and op_name(op) == "arith.truncf" else value


def _is_exact_fill(fill: ir.OpView) -> bool:
    """Whether the output is filled with a number that every type holds."""
    constant = constant_of(fill)
    return constant is not None and is_zero(constant)


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
        self.which = self._sum_operand()
        self.type = self.innermost.results[0].type
        self.scaling: set[ir.Operation] = set()
        self.scale, self.term = self._scale()
        self.pure = self._pure_ops()
        if nest.fill is not None and not covers and self._rounds() and not _is_exact_fill(nest.fill):
            raise NotApplicable(
                f"rows that are left out keep the initial value in {nest.output.type.element_type}, so it would be rounded "
                "before the sum is added; store all rows (csr)",
                where=self.where,
            )

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
        value = _unrounded(self.store.operands[0])
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
        sums = {self._old_value(), *(a for loop in self.nest.loops for a in list(loop.body.arguments)[1:])}
        for i, operand in enumerate(self.innermost.operands):
            if operand in sums:
                return i
        raise Unsupported("the output's old value is not an operand of the op that combines it", where=self.where)

    def _old_value(self) -> ir.Value:
        """The output's old value in the type of the sum."""
        loaded = self.old[0].results[0]
        users = [use.owner for use in loaded.uses]
        return users[0].results[0] if len(users) == 1 and op_name(users[0]) == "arith.extf" else loaded

    def _rounds(self) -> bool:
        """Whether the output is narrower than the sum."""
        return bool(self.type != self.nest.output.type.element_type)

    def _scale(self) -> tuple[list[ir.Value], ir.Value]:
        """Factors of every term that no loop changes, where they can multiply the sum; and what is left of a term."""
        factors: list[ir.Value] = []
        term = self.innermost.operands[1 - self.which]
        if not any(loop.role is Role.REDUCTION for loop in self.order) or op_name(self.innermost) != "arith.addf":
            return factors, term
        while (op := defining_op(term)) is not None and op_name(op) == "arith.mulf":
            fixed = [v for v in op.operands if not self.slices.blocks(v) & self._bodies()]
            if not fixed:
                break
            factors.append(fixed[0])
            if len(list(op.results[0].uses)) == 1:
                self.scaling.add(op.operation)
            term = next(v for v in op.operands if v != fixed[0] or op.operands[0] == op.operands[1])
        return factors, term

    def _pure_ops(self) -> list[ir.OpView]:
        """All ops to place anew: neither loops nor terminators nor the sum itself."""
        special = {self.store.operation, self.old[0].operation, self.innermost.operation, *self.scaling}
        if self._rounds():  # the sum is widened and rounded where it is read and stored
            special |= {v.owner for v in (self._old_value(), self.store.operands[0])}
        ops = [op for op in walk(self.nest.outer.op) if op_name(op) not in (*LOOPS, "scf.yield")]
        strange = next((op for op in ops if len(op.regions) or (len(op.results) != 1 and op != self.store)), None)
        if strange is not None:
            raise Unsupported(f"'{op_name(strange)}' in the nest cannot be moved", where=self.where)
        return [op for op in ops if op.operation not in special]

    def run(self) -> None:
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
        if not self._adds_afterwards(reductions):
            total = self._reduce(reductions, self._initial(at), mapping, known)
        else:
            total = self._reduce(reductions, neutral("arith.addf", self.type), mapping, known)
            total = reduce(arith.mulf, [mapping.get(factor, factor) for factor in self.scale], total)
            initial = self._initial(at)  # read after the loop, where passes may do it in one lane
            total = total if is_zero(initial) else arith.addf(initial, total)
        memref.store(b.convert(total, self.nest.output.type.element_type), self.nest.output, at)

    def _adds_afterwards(self, reductions: Sequence[Loop]) -> bool:
        """Whether the sum starts from 0 and the initial value is added to it."""
        constant = self.fill is not None and constant_of(self.fill) is not None
        plain = constant or (self.fill is None and not self._rounds())
        return bool(reductions) and op_name(self.innermost) == "arith.addf" and (bool(self.scale) or not plain)

    def _initial(self, at: list[ir.Value]) -> ir.Value:
        if self.fill is not None:
            return initial_value(self.fill, at, self.type)
        return b.convert(memref.load(self.nest.output, at), self.type)

    def _reduce(
        self, loops: Sequence[Loop], carried: ir.Value, mapping: dict[ir.Value, ir.Value], known: frozenset[ir.Block]
    ) -> ir.Value:
        if not loops:
            term = mapping.get(self.term, self.term)
            operands = [carried, term] if self.which == 0 else [term, carried]
            return combine(op_name(self.innermost), *operands)
        loop, *rest = loops

        def body(iv: ir.Value, sums: list[ir.Value]) -> Sequence[ir.Value]:
            inner, inside = {**mapping, loop.iv: iv}, known | {loop.body}
            self._place(inside, inner)
            return [self._reduce(rest, sums[0], inner, inside)]

        return b.for_loop(*self._bounds_in(loop, mapping), [carried], body)[0]

    def _bounds_in(self, loop: Loop, mapping: dict[ir.Value, ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
        lower, upper, step = (mapping.get(v, v) for v in (loop.lower, loop.upper, loop.step))
        return lower, upper, step
