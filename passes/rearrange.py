"""Nests over rows that a recipe has made of others: in another order, or a part of them.

The recipe makes positions, coordinates and values anew, and the nest walks those; what a row reads and stores otherwise stays
that of the row that it was.  Every pass that reads entries applies to what is made here, and its recipes follow this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import defining_op, op_name, walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.recipes import Recipe
from sparseditto.passes.layouts import erase_unused
from sparseditto.passes.nest import Loop, LoopKind, LoopNest, accessed, buffer_part, indices, root_buffer
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, clone_to, neutral, require_plain, yielded
from sparseditto.passes.rows import Stored, position_load, reads_entry, recipe_argument, stored_entries, stored_in, stored_index

Finish = Callable[[list[ir.OpView], Values, list[ir.Value]], None]


@dataclass(frozen=True)
class Rows:
    """A nest of dense rows over compressed entries that nothing has scheduled yet; `loads` read what an entry holds."""

    nest: LoopNest
    entries: Loop
    loads: tuple[ir.OpView, ...]
    stored: Stored

    @staticmethod
    def read(nest: LoopNest, where: str) -> Rows:
        """Raises `NotApplicable` for a nest of another shape, and says in which way."""
        require_plain(nest.outer, where)
        entries = next(iter(nest.reductions), None)
        blocks = any(loop.kind is LoopKind.BLOCK for loop in nest.loops)
        if entries is None or blocks or entries.kind is not LoopKind.COMPRESSED or nest.outer.kind is not LoopKind.DENSE:
            raise NotApplicable("needs dense rows over compressed entries", where=where)
        lower, upper = position_load(entries.lower), position_load(entries.upper)
        if (
            lower is None
            or upper is None
            or indices(lower) != [nest.outer.iv]
            or b.known(entries.step) != 1
            or len(nest.reductions) != 1
            or nest.children(entries)
        ):
            raise NotApplicable("the nest is scheduled already: its entries are not walked row by row", where=where)
        ops = body_ops(entries.body)
        loads = tuple(op for op in ops if reads_entry(op, entries.iv))
        if any(entries.iv in list(op.operands) for op in ops if op not in loads):
            raise NotApplicable("entries are read by more than their coordinates and values", where=where)
        stored = stored_entries(entries, where)
        if any(stored_in(accessed(load), where).source != stored.source for load in loads):
            raise NotApplicable("the entries are in arrays of their own already", where=where)
        return Rows(nest, entries, loads, stored)

    def gathered(self, where: str) -> list[ir.OpView]:
        """The loads from dense operands at the column of the entry, which is their first index and read by nothing else."""
        columns = {r for op in self.loads if _part(op) == "coordinates" for r in op.results}
        found = []
        for op in body_ops(self.entries.body):
            used = [operand in columns for operand in op.operands]
            if not any(used):
                continue
            if op_name(op) in ("arith.index_cast", "arith.index_castui", "arith.extui"):
                columns.update(op.results)
            elif op_name(op) == "memref.load" and sum(used) == 1 and indices(op)[0] in columns:
                found.append(op)
            else:
                raise NotApplicable("the column of an entry is more than the first index of a dense operand", where=where)
        return found


@dataclass(frozen=True)
class Rearranged:
    """Rows that `recipe` makes of `rows`, as arguments of the function.

    `order` says which row each one is (None: they are the same rows, in order); `buffers` stand for what the entries read.
    """

    rows: Rows
    recipe: Recipe
    order: ir.Value | None
    positions: ir.Value
    buffers: Values = field(repr=False)

    @staticmethod
    def make(rows: Rows, recipe: Recipe, reorders: bool) -> Rearranged:
        """Add the arrays of `recipe` to the function."""

        def argument(part: str, like: ir.OpView | None = None) -> ir.Value:
            element = None if like is None else like.results[0].type
            return recipe_argument(rows.nest.func, rows.stored, recipe, part, element)

        order = argument("rows") if reorders else None
        positions = argument("positions", position_load(rows.entries.lower))
        old = {accessed(load): load for load in rows.loads}
        return Rearranged(rows, recipe, order, positions, {buffer: argument(_part(load), load) for buffer, load in old.items()})

    @property
    def stored(self) -> Stored:
        """What recipes after this one read."""
        before = self.rows.stored
        return Stored(f"{before.name}.{self.recipe.label}", before.level, self.recipe)

    def build(self, finish: Finish | None = None) -> ir.OpView:
        """The nest over these rows, before the old one; `finish` builds what follows the sums, if not what did before."""
        outer = self.rows.nest.outer
        made: list[ir.Block] = []

        def body(slot: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
            made.append(ir.InsertionPoint.current.block)
            self._row(slot, finish)
            return ()

        with ir.InsertionPoint(outer.op):
            upper = outer.upper if self.order is None else memref.dim(self.order, b.index(0))
            b.for_loop(outer.lower, upper, outer.step, [], body)
        erase_unused(made[0])
        loop: ir.OpView = made[0].owner.opview
        # Outside, since passes compute anew only what depends on the row, and use the rest as it is.
        for constant in [op for op in walk(loop) if op_name(op) == "arith.constant"]:
            constant.operation.move_before(loop.operation)
        return loop

    def _row(self, slot: ir.Value, finish: Finish | None) -> None:
        row = slot if self.order is None else stored_index(memref.load(self.order, [slot]))
        bounds = self._bound(slot), self._bound(b.add(slot, b.index(1)))
        outer, entries = self.rows.nest.outer, self.rows.entries

        def build(rest: list[ir.OpView], values: Values) -> None:
            total = self._sum(values, bounds, finish is not None)
            if finish is not None:
                finish(rest, values, total)
            else:
                clone_ops(rest, {**values, **dict(zip(entries.op.results, total, strict=True))})

        clone_to(body_ops(outer.body), entries.op, {outer.iv: row}, build)

    def _bound(self, slot: ir.Value) -> ir.Value:
        position = memref.load(self.positions, [slot])
        return position if isinstance(position.type, ir.IndexType) else stored_index(position)

    def _sum(self, values: Values, bounds: tuple[ir.Value, ir.Value], from_zero: bool) -> list[ir.Value]:
        entries = self.rows.entries
        carried = list(entries.body.arguments)[1:]
        initial = [neutral("arith.addf", v.type) if from_zero else values.get(v, v) for v in entries.initial]

        def body(place: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            known = {**values, entries.iv: place, **dict(zip(carried, sums, strict=True)), **self.buffers}
            done = clone_ops(body_ops(entries.body), known)
            return [done.get(v, v) for v in yielded(entries.body)]

        return b.for_loop(*bounds, entries.step, initial, body)


def gather_argument(load: ir.OpView, where: str) -> ir.Value:
    """The operand that a load gathers from.  Raises `NotApplicable` when rows of it cannot be copied."""
    buffer: ir.Value = accessed(load)
    if defining_op(buffer) is not None:
        raise NotApplicable("what is gathered is no operand of the kernel", where=where)
    if len(buffer.type.shape) > 2 or any(ir.ShapedType.is_dynamic_size(n) for n in buffer.type.shape[1:]):
        raise NotApplicable("the number of columns is not known; give its size (--size K=…)", where=where)
    return buffer


def _part(load: ir.OpView) -> str:
    return buffer_part(root_buffer(accessed(load))) or ""
