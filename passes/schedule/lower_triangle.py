"""`lower-triangle`: of a symmetric matrix the entries on and below the diagonal, each of which is added to two rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import PLAIN_EXCLUDES, Bottleneck, Form, Resource, SchedulePass
from sparseditto.passes.nest import MIRRORED, LoopNest, accessed, buffer_part, indices, root_buffer
from sparseditto.passes.rearrange import Rearranged, Rows
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, clone_slice, depending_on, neutral, yielded
from sparseditto.passes.row_sums import RowSums
from sparseditto.passes.rows import stored_index
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class LowerTriangle(SchedulePass):
    """Store the entries of a symmetric matrix on and below the diagonal, and add each of those below it to two rows.

    The host keeps one triangle (recipe `lower-triangle`), and refuses a matrix that does not equal its transpose.  Half of the
    coordinates and values is read (as in the symmetric formats of OSKI: Vuduc, Demmel and Yelick, SciDAC 2005).  The entry at
    (i, j) adds to the sum of row i, in registers, and its mirror image at (j, i) adds to row j, by an atomic; what that
    multiplies is the same for all entries of the row, and is loaded once.  The sum of a row is added by an atomic too, since
    rows below it add to the same element.  A kernel of its own first sets the output to what sums start from, unless that is
    what it holds.  Atomics come in any order, so two runs may differ in the last bits.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %lo = ... memref.load %pos[%i]
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            %j = memref.load %crd[%p]
            %v = memref.load %val[%p]
            %b = memref.load %x[%j]
            %t = arith.mulf %v, %b
            %n = arith.addf %a, %t
            scf.yield %n
          }
          memref.store %s, %y[%i]
        }

    After::

        scf.forall (%block) in (%blocks) {
          ...
              memref.store %zero, %y[%e]
        ...
        scf.for %i = %c0 to %m step %c1 {
          %lo = ... memref.load %positions[%i]
          ...
          %mine = memref.load %x[%i]
          %s = scf.for %p = %first to %last step %c1 iter_args(%a = %zero) {
            %j = memref.load %coordinates[%p]
            %v = memref.load %values[%p]
            %b = memref.load %x[%j]
            %t = arith.mulf %v, %b
            %n = arith.addf %a, %t
            %below = arith.cmpi ne, %j, %i
            scf.if %below {
              %u = arith.mulf %v, %mine
              %w = arith.addf %u, %zero
              memref.atomic_rmw addf %w, %y[%j] {ditto.mirrored}
            }
            scf.yield %n
          }
          memref.atomic_rmw addf %s, %y[%i]
        }

    Leaves alone: how rows are mapped, and narrow coordinates and one value for all entries, which go with it.
    Refuses: rows that are not a dense level over a compressed one; reductions other than sums, and sums that are wider than the
    output; entries that are multiplied by a value of their row, or whose column is not read; parts of a matrix, and other
    orders of rows; at packing, a matrix that is not square and symmetric.
    """

    name: ClassVar[str] = "lower-triangle"
    relieves = (Bottleneck.BANDWIDTH,)
    consumes = (Resource.ATOMICS, Resource.PREPROCESSING)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = (*PLAIN_EXCLUDES, Form.REORDERED, Form.PARTS)
    provides = (Form.MIRRORED,)

    def effect(self, work: Work) -> Work:
        half = work.entries / 2
        return work._replace(
            entries=half, longest=work.longest / 2, cut=half, most_cut=work.longest, launches=work.launches + 1
        )

    @classmethod
    def candidates(cls, context: Any) -> tuple[LowerTriangle, ...]:
        """For a square matrix times a vector: each dense column would take an atomic an entry."""
        features = context.features
        square = features is not None and features.rows == features.columns
        return (cls(),) if square and context.task.columns in (0, 1) else ()

    def run(self, nest: LoopNest, target: Target) -> None:
        triangle = _Triangle.read(nest, self.name)
        made = Rearranged.make(triangle.rows, triangle.rows.stored.recipe(self.name), reorders=False)
        if not triangle.keeps:
            with ir.InsertionPoint(nest.outer.op):
                triangle.sums.initialise(triangle.initial, nest.outer.upper, lambda row: row)
        triangle.mirror()
        made.build(triangle.finish)
        nest.outer.op.operation.erase()


@dataclass(frozen=True)
class _Triangle:
    """A nest whose entries are to be added to two rows.

    For each sum a row stores `initial` + `part`, a multiple of the sum; `keeps` says that `initial` is what the output holds.
    """

    rows: Rows
    sums: RowSums
    column: ir.OpView
    initial: tuple[ir.Value, ...]
    part: tuple[ir.Value, ...]
    keeps: bool

    @staticmethod
    def read(nest: LoopNest, where: str) -> _Triangle:
        """Raises `NotApplicable` where entries cannot be added to two rows, and says why."""
        rows, sums = Rows.read(nest, where), RowSums.read(nest, where)
        if rows.stored.source is not None:
            raise NotApplicable("a part of a matrix, or its rows in another order, is not symmetric", where=where)
        columns = [load for load in rows.loads if buffer_part(root_buffer(accessed(load))) == "coordinates"]
        if len(columns) != 1:
            raise NotApplicable("no column is read, which would say where the mirror image of an entry is", where=where)
        if sums.rounds():
            raise NotApplicable("sums are wider than the output, and each of its additions would be rounded", where=where)
        found = [sums.parts(k) for k in range(len(sums.stores))]
        parts = [pair for pair in found if pair is not None]
        if len(parts) < len(found):
            raise NotApplicable("what is stored is no multiple of the sum added to an initial value", where=where)
        initial, part = zip(*parts, strict=True)
        return _Triangle(rows, sums, columns[0], initial, part, all(sums.keeps(k, v) for k, v in enumerate(initial)))

    def mirror(self) -> None:
        """Add the mirror image of each entry to its row: what the entry would add if its row were its column."""
        entries, row = self.rows.entries, self.rows.nest.outer.iv
        carried, end = list(entries.body.arguments)[1:], list(entries.body.operations)[-1]
        column = self.column.results[0]
        ops = [op for op in body_ops(entries.body) if op not in self.rows.loads]
        stored = [r for load in self.rows.loads if load != self.column for r in load.results]
        own = depending_on(ops, [*stored, *carried])
        with ir.InsertionPoint(entries.op):  # the same for all entries of the row
            as_column = row if isinstance(column.type, ir.IndexType) else arith.index_cast(column.type, row)
            values = clone_ops([op for op in ops if op not in own], {column: as_column})
        with ir.InsertionPoint(end):
            image = column if isinstance(column.type, ir.IndexType) else stored_index(column)
            with b.if_then(arith.cmpi(arith.CmpIPredicate.ne, image, row)):
                zeros = [neutral("arith.addf", v.type) for v in carried]
                done = clone_ops(own, {**values, **dict(zip(carried, zeros, strict=True))})
                totals = [done.get(v, v) for v in yielded(entries.body)]
                for update in self._add(totals, {row: image}):
                    update.attributes[MIRRORED] = ir.UnitAttr.get()

    def finish(self, _: list[ir.OpView], values: Values, totals: list[ir.Value]) -> None:
        """What follows the sums of a row."""
        self._add(totals, values)

    def _add(self, totals: list[ir.Value], values: Values) -> list[ir.OpView]:
        """Add to the output what a row stores of `totals`, at the insertion point; `values` says which row it is."""
        known = {**values, **dict(zip(self.sums.entries.op.results, totals, strict=True))}
        found = []
        for part, store in zip(self.part, self.sums.stores, strict=True):
            at = [clone_slice(i, known) for i in indices(store)]
            old = memref.atomic_rmw(arith.AtomicRMWKind.addf, clone_slice(part, known), accessed(store), at)
            found.append(old.owner.opview)
        return found
