"""A nest over rows that stores sums over their entries, taken apart for passes that walk the entries in another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mlir import ir

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, defining_op, op_name, walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.passes.nest import LOOPS, STORES, Loop, LoopKind, LoopNest, Slices, accessed, indices, root_buffer
from sparseditto.passes.rewrite import (
    Values,
    combine,
    combiner_of,
    depends,
    element_kernel,
    is_zero,
    require_plain,
    sums_are_independent,
)
from sparseditto.passes.rows import other_parallel, position_load, scales

_LOADS = ("memref.load", "vector.load")


@dataclass(frozen=True)
class RowSums:
    """`entries` is the reduction over the entries of a row, inside the loops `others`; `stores[k]` stores its k-th sum."""

    nest: LoopNest
    entries: Loop
    others: tuple[Loop, ...]
    stores: tuple[ir.OpView, ...]

    @staticmethod
    def read(nest: LoopNest, where: str) -> RowSums:
        """Raises `NotApplicable` for a nest of another shape, and says in which way."""
        require_plain(nest.outer, where)
        entries = next(iter(nest.reductions), None)
        if entries is None or entries.kind is not LoopKind.COMPRESSED or nest.outer.kind is not LoopKind.DENSE:
            raise NotApplicable("needs dense rows over compressed entries", where=where)
        if combiner_of(entries) != "arith.addf" or not sums_are_independent(entries):
            raise NotApplicable("only sums can be cut", where=where)
        others = tuple(other_parallel(nest))
        load = position_load(entries.lower)
        if (
            load is None
            or indices(load) != [nest.outer.iv]
            or b.known(entries.step) != 1
            or not _is_chain(nest, others, entries)
        ):
            raise NotApplicable("the nest is scheduled already: its entries are not walked row by row", where=where)
        _refuse_conditions(nest, where)
        _refuse_dependence_on_rows(nest, entries, others, where)
        return RowSums(nest, entries, others, _stores_of_sums(nest, entries, where))

    # --- What is stored -----------------------------------------------------------------------------------

    def rounds(self) -> bool:
        """Whether the sums are wider than the output."""
        type_ = self.entries.initial[0].type
        element = type_.element_type if isinstance(type_, ir.VectorType) else type_
        return bool(element != self.nest.output.type.element_type)

    def parts(self, which: int) -> tuple[ir.Value, ir.Value] | None:
        """`initial` and `part`, where `initial + part` is stored, `part` a multiple of the sum, and `initial` without it.

        None where something else is stored.
        """
        total, start = self.entries.op.results[which], self.entries.initial[which]
        stored = self.stores[which].operands[0]
        if stored == total:
            return start, total
        if not is_zero(start):
            return None
        if scales(stored, total):
            return start, stored
        op = defining_op(stored)
        if op is not None and op_name(op) == "arith.addf":
            for part, other in (list(op.operands), list(op.operands)[::-1]):
                if scales(part, total) and not depends(other, [total]):
                    return other, part
        return None

    def keeps(self, which: int, initial: ir.Value) -> bool:
        """Whether an initial value is what the output holds there."""
        op = defining_op(initial)
        loads = op is not None and op_name(op) in _LOADS and root_buffer(accessed(op)) == self.nest.output
        return loads and op is not None and indices(op) == indices(self.stores[which])

    def store(self, which: int, total: ir.Value, row: ir.Value, values: Values) -> None:
        """Store what a row whose entries add up to `total` stores; `values` maps the loops inside the rows."""
        inner = {**values, self.nest.outer.iv: row}
        initial = self.compute(self.entries.initial[which], inner)
        inner[self.entries.op.results[which]] = total if is_zero(initial) else combine("arith.addf", initial, total)
        self._store(which, self.stores[which].operands[0], inner)

    def store_initial(self, which: int, initial: ir.Value, row: ir.Value, values: Values) -> None:
        """Store the initial value of a row."""
        self._store(which, initial, {**values, self.nest.outer.iv: row})

    def initialise(self, initial: Sequence[ir.Value], count: ir.Value, row: Callable[[ir.Value], ir.Value]) -> None:
        """A kernel, before the nest, that stores the initial value of each sum to `count` rows: `row(0)`, `row(1)`, …."""
        bounds = [[self.compute(v, {}) for v in (loop.lower, loop.upper, loop.step)] for loop in self.others]
        trips = [b.ceildiv(b.sub(upper, lower), step) for lower, upper, step in bounds]

        def element(at: list[ir.Value]) -> None:
            chosen = row(at[0])
            for which, value in enumerate(initial):
                self.store_initial(which, value, chosen, self.iterations(at[1:]))

        element_kernel("_init", [count, *trips], element)

    def iterations(self, numbers: list[ir.Value]) -> Values:
        """The loops inside the rows at iterations with these numbers."""
        values: Values = {}
        for loop, number in zip(self.others, numbers, strict=True):
            lower, step = (self.compute(v, {}) for v in (loop.lower, loop.step))
            values[loop.iv] = b.add(lower, b.mul(number, step))
        return values

    def _store(self, which: int, value: ir.Value, values: Values) -> None:
        store = self.stores[which]
        mapped = {operand: self.compute(operand, values) for operand in list(store.operands)[1:]}
        new = clone_into(store, mapped)
        with ir.InsertionPoint(new):
            new.operands[0] = self.compute(value, values)

    def indices(self, which: int, row: ir.Value, values: Values) -> list[ir.Value]:
        """Where the sum of a row is stored."""
        inner = {**values, self.nest.outer.iv: row}
        return [self.compute(i, inner) for i in indices(self.stores[which])]

    # --- Computing anew -----------------------------------------------------------------------------------

    def compute(self, value: ir.Value, values: Values) -> ir.Value:
        """`value` at the insertion point, from what `values` maps; extends `values` by what it took."""
        if value in values:
            return values[value]
        op = defining_op(value)
        if op is None or not _stands_in(op, self.nest.outer.op):
            return value
        for operand in _outside_operands(op):
            self.compute(operand, values)
        values.update(zip(op.results, clone_into(op, values).results, strict=True))
        return values[value]

    def around_entries(self, values: Values) -> Values:
        """`values` and what the entries use of what is computed before them."""
        found = dict(values)
        for operand in _outside_operands(self.entries.op, skip=len(self.entries.op.operands)):
            self.compute(operand, found)
        return found


def _outside_operands(op: ir.OpView, skip: int = 0) -> list[ir.Value]:
    """What an op and the ops in it use of what is defined outside of it; `skip` leaves out its own first operands."""
    inner = list(walk(op))
    own = {result for each in inner for result in each.results}
    own.update(argument for each in (op, *inner) for region in each.regions for block in region for argument in block.arguments)
    used = [*list(op.operands)[skip:], *(v for each in inner for v in each.operands)]
    return [v for v in used if v not in own]


def _is_chain(nest: LoopNest, others: Sequence[Loop], entries: Loop) -> bool:
    """Whether each loop stands directly in the one before, and no reduction beside the entries."""
    beside = [loop for loop in nest.reductions if loop is not entries and loop.depth <= entries.depth]
    return not beside and all(nest.parent(inner) is outer for outer, inner in pairwise([nest.outer, *others, entries]))


def _refuse_conditions(nest: LoopNest, where: str) -> None:
    for op in walk(nest.outer.op):
        if len(op.regions) and op_name(op) not in LOOPS and any(op_name(inner) in (*STORES, *LOOPS) for inner in walk(op)):
            raise NotApplicable("some stores or loops stand under a condition", where=where)


def _refuse_dependence_on_rows(nest: LoopNest, entries: Loop, others: Sequence[Loop], where: str) -> None:
    rows, slices = nest.outer.body, Slices()
    if rows in slices.of(v for loop in others for v in (loop.lower, loop.upper, loop.step)):
        raise NotApplicable("the loops inside the rows differ between rows", where=where)
    if rows in slices.of(v for op in walk(entries.op) for v in op.operands):
        raise NotApplicable("what an entry adds depends on its row, and that is known only where the row ends", where=where)


def _stores_of_sums(nest: LoopNest, entries: Loop, where: str) -> tuple[ir.OpView, ...]:
    """The store of what comes of each sum; there are no other stores."""
    found = []
    for total in entries.op.results:
        mine = [store for store in nest.stores if depends(store.operands[0], [total])]
        if len(mine) != 1 or op_name(mine[0]) == "memref.atomic_rmw":
            raise NotApplicable("something other than one store follows the sum of a row", where=where)
        found += mine
    if len(set(found)) != len(nest.stores):
        raise NotApplicable("something other than the sums of rows is stored", where=where)
    return tuple(found)


def _stands_in(op: ir.OpView, top: ir.OpView) -> bool:
    parent = op.operation.parent
    while parent is not None and parent.operation != top.operation:
        parent = parent.operation.parent
    return parent is not None
