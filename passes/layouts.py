"""Layouts: nests over rows whose stored entries lie elsewhere than in the arrays of the sparse operand.

A layout says for a row which places its walk visits, and for a place what the coordinate and the value are and whether the row
has an entry there.  The nest stays one of rows over stored entries, so that the passes after it apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.recipes import Recipe
from sparseditto.passes.nest import LoopNest, buffer_part, root_buffer
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, clone_to, yielded
from sparseditto.passes.rows import bits, reads_entry, recipe_argument, row_entries, stored_entries, stored_index


@dataclass(frozen=True)
class Walk:
    """The places of a row: from `lower` to `upper` by `step`; `row` is the row itself, and offsets start from `base`."""

    row: ir.Value
    lower: ir.Value
    upper: ir.Value
    step: ir.Value
    base: ir.Value | None = None


@dataclass(frozen=True)
class Entry:
    """What stands at a place: results of the loads that it replaces, and whether there is an entry (None: always)."""

    known: Values
    inside: ir.Value | None = None


class Layout:
    """A nest on its way to another layout.  Subclasses say `walk` and `entry`; all is refused before anything is changed.

    `coordinate` is the load of an entry's column, `values` are the loads of its value (one, or none where it is not read);
    `needs` says what is missing where no column is read.
    """

    needs: ClassVar[str] = "no column is read, which the layout must give"

    def __init__(self, nest: LoopNest, where: str) -> None:
        self.nest, self.where = nest, where
        self.entries = row_entries(nest, where, cut=False)
        ops = body_ops(self.entries.body)
        self.loads = [op for op in ops if reads_entry(op, self.entries.iv)]
        self.others = [op for op in ops if op not in self.loads]
        if any(self.entries.iv in list(op.operands) for op in self.others) or nest.children(self.entries):
            raise NotApplicable("entries are read by more than their coordinates and values", where=where)
        self.coordinate = self._coordinate()
        self.values = [load for load in self.loads if load != self.coordinate]
        self.stored = stored_entries(self.entries, where)

    def _coordinate(self) -> ir.OpView:
        found = [load for load in self.loads if buffer_part(root_buffer(load.operands[0])) == "coordinates"]
        if len(found) != 1:
            raise NotApplicable(self.needs, where=self.where)
        return found[0]

    # --- What a layout says -------------------------------------------------------------------------------

    def walk(self, slot: ir.Value) -> Walk:
        """The walk of the row at a place of the outer loop; built at the insertion point."""
        raise NotImplementedError

    def entry(self, place: ir.Value, walk: Walk) -> Entry:
        """What stands at a place of the walk; built at the insertion point."""
        raise NotImplementedError

    # --- What is made of it -------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Put the nest in the layout in the place of the nest."""
        outer = self.nest.outer
        with ir.InsertionPoint(outer.op):
            b.for_loop(outer.lower, outer.upper, outer.step, [], self._row)
        outer.op.operation.erase()

    def _row(self, slot: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
        walk, outer = self.walk(slot), self.nest.outer
        before = ir.InsertionPoint.current.block
        clone_to(body_ops(outer.body), self.entries.op, {outer.iv: walk.row}, self._sum(walk))
        erase_unused(before)
        return ()

    def _sum(self, walk: Walk) -> Callable[[list[ir.OpView], Values], None]:
        loop = self.entries
        carried = list(loop.body.arguments)[1:]

        def build(rest: list[ir.OpView], values: Values) -> None:
            def body(place: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
                entry = self.entry(place, walk)
                done = clone_ops(self.others, {**values, **entry.known, **dict(zip(carried, sums, strict=True))})
                new = [done.get(v, v) for v in yielded(loop.body)]
                if entry.inside is None:
                    return new
                return [arith.select(entry.inside, n, old) for n, old in zip(new, sums, strict=True)]

            initial = [values.get(v, v) for v in loop.initial]
            results = b.for_loop(walk.lower, walk.upper, walk.step, initial, body)
            clone_ops(rest, {**values, **dict(zip(loop.op.results, results, strict=True))})

        return build

    # --- What layouts share -------------------------------------------------------------------------------

    def array(self, recipe: Recipe, part: str, type_: ir.Type | None = None) -> ir.Value:
        """An array of the recipe as an argument of the function."""
        return recipe_argument(self.nest.func, self.stored, recipe, part, type_)

    def value_array(self, recipe: Recipe) -> ir.Value | None:
        """The array of the values; None where the nest reads none."""
        return self.array(recipe, "values", self.values[0].results[0].type) if self.values else None


class MarkedLayout(Layout):
    """A layout whose entries lie in arrays in which all bits of a column are set where there is no entry."""

    needs = "no column is read, where a mark could say that a row has no entry"

    bases: ir.Value | None
    columns: ir.Value
    packed: ir.Value | None

    def width(self, offsets: int) -> int:
        """The bits of a stored column: its own where no fewer are asked for."""
        own = bits(self.coordinate.results[0].type)
        return min(offsets, own) if offsets == 16 else own

    def take_entries(self, recipe: Recipe, width: int) -> None:
        """Take the arrays of the entries, the last of the recipe: `bases` where columns are offsets, columns, and values."""
        narrow = narrow_type(self.coordinate, width)
        self.bases = None if narrow is None else self.array(recipe, "bases")
        self.columns = self.array(recipe, "coordinates", narrow or self.coordinate.results[0].type)
        self.packed = self.value_array(recipe)

    def base(self, group: ir.Value) -> ir.Value | None:
        """What the offsets of a group of rows start from."""
        return None if self.bases is None else memref.load(self.bases, [group])

    def marked_entry(self, at: ir.Value, walk: Walk) -> Entry:
        """What stands at a place of the arrays."""
        coordinate = memref.load(self.columns, [at])
        known: Values = {}
        if self.packed is not None:
            value = memref.load(self.packed, [at])
            known = {load.results[0]: value for load in self.values}
        inside = arith.cmpi(arith.CmpIPredicate.ne, coordinate, arith.constant(coordinate.type, -1))
        coordinate = arith.select(inside, coordinate, arith.constant(coordinate.type, 0))
        known[self.coordinate.results[0]] = self._absolute(coordinate, walk.base)
        return Entry(known, inside)

    def _absolute(self, coordinate: ir.Value, base: ir.Value | None) -> ir.Value:
        """A stored coordinate, an offset from `base` where there is one, as the operand's own array has it."""
        if base is None:
            return coordinate
        wide = self.coordinate.results[0].type
        return arith.addi(widened(base, wide), widened(coordinate, wide))


def narrow_type(load: ir.OpView, width: int) -> ir.Type | None:
    """An integer type of `width` bits where the loaded coordinate has more; None where it has not."""
    return ir.IntegerType.get_signless(width) if bits(load.results[0].type) > width else None


def widened(value: ir.Value, type_: ir.Type) -> ir.Value:
    """A stored non-negative integer in a type of at least its width."""
    if isinstance(type_, ir.IndexType):
        return stored_index(value)
    return value if value.type == type_ else arith.extui(type_, value)


def has_value(value: ir.Value) -> ir.Value:
    """Whether a stored value is not the NaN with all bits set, which says that a layout has no entry there."""
    integer = ir.IntegerType.get_signless(value.type.width)
    return arith.cmpi(arith.CmpIPredicate.ne, arith.bitcast(integer, value), arith.constant(integer, -1))


def erase_unused(block: ir.Block) -> None:
    """Erase loads and index arithmetic of a block that nothing uses: what the layout has replaced."""
    for op in reversed(list(block.operations)):
        plain = op_name(op) == "memref.load" or op_name(op).startswith("arith.")
        if plain and not len(op.regions) and not any(True for result in op.results for _ in result.uses):
            op.operation.erase()
