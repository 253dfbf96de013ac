"""Rows of stored entries: what passes share that change which entries a row's iteration walks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import arith

from sparseditto.dialects.binding import add_argument, argument_attribute, defining_op, op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.recipes import REARRANGED, Recipe
from sparseditto.passes.nest import WORKSPACE, Loop, LoopKind, LoopNest, Role, buffer_part, indices, root_buffer
from sparseditto.passes.rewrite import Values, clone_slice, combiner_of, depends, is_zero, require_plain


def row_entries(nest: LoopNest, where: str, cut: bool = True) -> Loop:
    """The reduction over a row's stored entries, of a nest whose outermost loop walks the rows.

    Raises `NotApplicable` unless rows are a dense level over a compressed one, the reduction is one sum (only those have
    atomics), and nothing is scheduled yet; where rows are to be `cut`, also for a sum that is rounded when it is stored.
    """
    require_plain(nest.outer, where)
    entries = next(iter(nest.reductions), None)
    if entries is None or entries.kind is not LoopKind.COMPRESSED or nest.outer.kind is not LoopKind.DENSE:
        raise NotApplicable("needs dense rows over compressed entries", where=where)
    if combiner_of(entries) != "arith.addf" or len(entries.initial) != 1:
        raise NotApplicable("only sums can be cut", where=where)
    if len(nest.stores) != 1 or any(not loop.starts_at_zero_by_one() for loop in other_parallel(nest)):
        raise NotApplicable("the nest is scheduled already", where=where)
    if cut and entries.initial[0].type != nest.output.type.element_type:
        raise NotApplicable(
            f"the sum is carried in {entries.initial[0].type} and rounded to {nest.output.type.element_type} once; the pieces "
            "of a cut row would each be rounded",
            where=where,
        )
    load = position_load(entries.lower)
    if load is None or indices(load) != [nest.outer.iv]:
        raise NotApplicable("the entries do not start at the position of the row", where=where)
    return entries


@dataclass(frozen=True)
class Finish:
    """What a row stores of the sum over its entries: `initial + part(sum)`, where `initial` does not depend on the sum."""

    total: ir.Value
    initial: ir.Value
    part: ir.Value
    store: ir.OpView

    @staticmethod
    def read(nest: LoopNest, entries: Loop, where: str) -> Finish:
        """Raises `NotApplicable` when what is stored is anything else."""
        (store,) = nest.stores
        (total,) = entries.op.results
        stored, initial = store.operands[0], entries.initial[0]
        if stored == total:
            return Finish(total, initial, total, store)
        op = defining_op(stored)
        if op is not None and op_name(op) == "arith.addf" and is_zero(initial):
            for part, other in (list(op.operands), list(op.operands)[::-1]):
                if scales(part, total) and not depends(other, [total]):
                    return Finish(total, other, part, store)
        if not scales(stored, total) or not is_zero(initial):
            raise NotApplicable("what is stored is no multiple of the sum added to an initial value", where=where)
        return Finish(total, initial, stored, store)

    def part_of(self, total: ir.Value, values: Values) -> ir.Value:
        """What a piece of the row with the sum `total` adds, at the insertion point."""
        return clone_slice(self.part, {**values, self.total: total})


def scales(value: ir.Value, total: ir.Value) -> bool:
    """Whether `value` is `total` times factors that do not depend on it."""
    op = defining_op(value)
    if value == total or op is None or op_name(op) != "arith.mulf":
        return bool(value == total)
    x, y = op.operands
    return (scales(x, total) and not depends(y, [total])) or (scales(y, total) and not depends(x, [total]))


def other_parallel(nest: LoopNest) -> list[Loop]:
    """The parallel loops inside the rows."""
    return [loop for loop in nest.loops[1:] if loop.role is Role.PARALLEL]


def stored_index(value: ir.Value) -> ir.Value:
    """A non-negative stored integer as an index."""
    return arith.index_castui(ir.IndexType.get(), value)


def bits(type_: ir.Type) -> int:
    """The size of a stored element; an index has 64 bits."""
    return 64 if isinstance(type_, ir.IndexType) else int(type_.width)


def is_load(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and op_name(op) == "memref.load"


def position_load(value: ir.Value) -> ir.OpView | None:
    """The load of a position that a loop bound is widened from."""
    op = defining_op(value)
    while op is not None and op_name(op) in ("arith.index_cast", "arith.index_castui", "arith.extui"):
        op = defining_op(op.operands[0])
    found = op is not None and op_name(op) == "memref.load" and buffer_part(root_buffer(op.operands[0])) == "positions"
    return op if found else None


@dataclass(frozen=True)
class Stored:
    """Where the entries of a nest are stored: in a level of a packed operand, or in what recipes made of it (`source`).

    Names of arrays that are made of them begin with `name`.
    """

    name: str
    level: int
    source: Recipe | None = None

    def recipe(self, name: str, **parameters: int | str) -> Recipe:
        """A recipe that reads these entries."""
        return Recipe(name, (("level", self.level), *parameters.items()), self.source)


def stored_entries(entries: Loop, where: str) -> Stored:
    """Where the entries come from that a loop walks.  Raises `NotApplicable` when they are rows of entries no more."""
    load = position_load(entries.lower)
    if load is None:
        raise NotApplicable("the entries are no level of a sparse operand", where=where)
    return stored_in(load.operands[0], where)


def stored_in(buffer: ir.Value, where: str) -> Stored:
    """The entries that a buffer holds positions, coordinates or values of.  Raises `NotApplicable` as `stored_entries` does."""
    buffer = root_buffer(buffer)
    made, name = (argument_attribute(buffer, f"ditto.{key}") for key in ("recipe", "name"))
    if made is not None and name is not None:
        recipe = Recipe.parse(ir.StringAttr(made).value)
        if recipe.name in REARRANGED:
            return Stored(ir.StringAttr(name).value.rpartition(".")[0], recipe.level, recipe)
    part = defining_op(buffer)
    if part is None:
        raise NotApplicable("the entries are in arrays of their own already", where=where)
    level = int(ir.IntegerAttr(part.attributes["level"]).value) if "level" in part.attributes else 1
    return Stored(tensor_name(part.operands[0]), level)


def tensor_name(tensor: ir.Value) -> str:
    """The name of the operand that a tensor is a view of, or a buffer is."""
    while (op := defining_op(tensor)) is not None:
        tensor = op.operands[0]
    name = argument_attribute(tensor, "ditto.name")
    return ir.StringAttr(name).value if name is not None else f"arg{tensor.arg_number}"


def reads_entry(op: ir.OpView, position: ir.Value) -> bool:
    """Whether an op loads the coordinate or the value that is stored at `position`."""
    return (
        op_name(op) == "memref.load"
        and buffer_part(root_buffer(op.operands[0])) in ("coordinates", "values")
        and indices(op) == [position]
    )


# What arrays of recipes stand for.
PARTS = dict.fromkeys(("first", "last", "starts", "widths"), "positions") | {"offsets": "coordinates"}


def recipe_argument(func: ir.OpView, stored: Stored, recipe: Recipe, part: str, element: ir.Type | None = None) -> ir.Value:
    """One array of the recipe as a new argument of the function; its elements are `i32` unless said otherwise."""
    attributes = _auxiliary(stored, recipe, part)
    stands_for = PARTS.get(part, part)
    if stands_for in ("positions", "coordinates", "values"):
        attributes["ditto.part"] = ir.StringAttr.get(stands_for)
    return add_argument(func, _array(element or ir.IntegerType.get_signless(32)), attributes)


def workspace(
    func: ir.OpView, stored: Stored, recipe: Recipe, part: str, element: ir.Type, inner: Sequence[int] = ()
) -> ir.Value:
    """An array of the recipe that kernels write, as a new argument: zero at first, and zero again after each call.

    Where it has more than one dimension, `inner` are all but the first.
    """
    attributes = _auxiliary(stored, recipe, part)
    attributes[WORKSPACE] = ir.UnitAttr.get()
    return add_argument(func, _array(element, inner), attributes)


def _auxiliary(stored: Stored, recipe: Recipe, part: str) -> dict[str, ir.Attribute]:
    return {
        "ditto.name": ir.StringAttr.get(f"{stored.name}.{recipe.label}.{part}"),
        "ditto.recipe": ir.StringAttr.get(str(recipe)),
    }


def _array(element: ir.Type, inner: Sequence[int] = ()) -> ir.MemRefType:
    return ir.MemRefType.get([ir.ShapedType.get_dynamic_size(), *inner], element)
