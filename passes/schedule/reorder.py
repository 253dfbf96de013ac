"""`reorder`: rows and columns of the matrix in another order, for what is near in time to be near in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import op_name
from sparseditto.dialects.errors import NotApplicable, PlanError
from sparseditto.dialects.orders import COLUMN_ORDERS, ROW_ORDERS
from sparseditto.dialects.target import Target
from sparseditto.passes.base import PLAIN_EXCLUDES, Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import LoopNest, accessed, root_buffer
from sparseditto.passes.rearrange import Rearranged, Rows, gather_argument
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, element_kernel
from sparseditto.passes.rows import recipe_argument, stored_index, tensor_name, workspace
from sparseditto.passes.work import INDEX_BYTES, Work


@register
@dataclass(frozen=True)
class Reorder(SchedulePass):
    """Walk the rows in another order, and store the columns in another order.

    The host permutes the matrix (recipe `reorder`).  A row is stored to its own place, which an array of the recipe says,
    so the result is in the order that it always has.  Orders of rows: ``degree``, the most entries first, so that
    neighbouring threads have rows alike in length; ``rcm``, reverse Cuthill-McKee (Cuthill and McKee, 1969; George, 1971),
    which brings entries to the diagonal and neighbouring rows to the same columns; ``cluster``, rows together that share
    columns, by min-hash (Broder, 1997; for SpMM on GPUs: Jiang, Hong and Agrawal, PPoPP 2020).

    With an order of the columns (``degree``, or the ``same`` as that of the rows) a kernel of its own first copies what is
    gathered into that order, without the columns that have no entries.  It reads and writes each element once; then hot
    elements are neighbours and share sectors and lines of the caches.  That pays where gathered rows are shorter than a
    sector of 32 bytes (SpMV), and hardly where each fills several of them; gathering through the permutation would bring
    nothing.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %lo = ... memref.load %pos[%i]
          %hi = ... memref.load %pos[%i1]
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            %j = memref.load %crd[%p]
            ...
            %b = memref.load %x[%j]
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``reorder{rows=degree columns=degree}``::

        scf.forall (%block) in (%blocks) {
          ...
              %old = memref.load %gathers[%new]
              ...
              memref.store %e, %copy[%new]
        ...
        scf.for %slot = %c0 to %slots step %c1 {
          %r = memref.load %rows[%slot]
          %i = arith.index_castui %r
          %lo = ... memref.load %positions[%slot]
          ...
          %s = scf.for %p = %first to %last step %c1 iter_args(%a = %zero) {
            %j = memref.load %coordinates[%p]
            ...
            %b = memref.load %copy[%j]
            ...
          }
          memref.store %s, %y[%i]
        }

    Leaves alone: what is done for one entry.
    Refuses: rows that are not a dense level over a compressed one; a nest that is scheduled already; with an order of
    columns, a column that is more than the first index of dense operands, and a number of dense columns that is not known.
    """

    name: ClassVar[str] = "reorder"
    relieves = (Bottleneck.BANDWIDTH, Bottleneck.COALESCING, Bottleneck.DIVERGENCE)
    consumes = (Resource.PREPROCESSING,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = (*PLAIN_EXCLUDES, Form.REORDERED)
    provides = (Form.REORDERED,)

    rows: str = option("order of the rows", default="degree", choices=ROW_ORDERS)
    columns: str = option("order of the columns", default="none", choices=COLUMN_ORDERS)

    def effect(self, work: Work) -> Work:
        f, rows = work.pattern, self.rows != "none"
        even = min(work.uneven, f.padding_sorted) if rows else work.uneven
        return work._replace(
            uneven=even,
            near=0.5 * work.near if rows else work.near,
            hot_first=self.columns == "degree",
            row_bytes=work.row_bytes + (INDEX_BYTES if rows else 0),
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows == "none" and self.columns != "degree":
            raise PlanError(f"rows=none columns={self.columns} changes nothing", where=self.name)

    @classmethod
    def candidates(cls, context: Any) -> Iterable[Reorder]:
        """Columns by their degree first where single elements are gathered; orders of rows alone where whole rows are."""
        alone = (cls("degree"), cls("rcm"), cls("cluster"))
        both = (cls("none", "degree"), cls("degree", "degree"), cls("rcm", "same"), cls("cluster", "degree"))
        return (*both, *alone) if context.task.columns in (0, 1) else (*alone, cls("rcm", "same"))

    def run(self, nest: LoopNest, target: Target) -> None:
        rows = Rows.read(nest, self.name)
        gathers = self._gathers(rows) if self.columns != "none" else {}
        recipe = rows.stored.recipe("reorder", rows=self.rows, columns=self.columns)
        made = Rearranged.make(rows, recipe, reorders=self.rows != "none")
        if gathers:
            made.buffers.update(self._copies(made, list(gathers)))
        made.build()
        nest.outer.op.operation.erase()

    def _gathers(self, rows: Rows) -> dict[ir.Value, None]:
        """The operands that are gathered from, and from which an entry reads nothing else."""
        loads = rows.gathered(self.name)
        found = {gather_argument(load, self.name): None for load in loads}
        if not found:
            raise NotApplicable("nothing is gathered by columns", where=self.name)
        others = [op for op in body_ops(rows.entries.body) if op_name(op) == "memref.load" and op not in loads]
        if any(root_buffer(accessed(op)) in found for op in others):
            raise NotApplicable("an operand that is gathered is read in another way too", where=self.name)
        return found

    def _copies(self, made: Rearranged, operands: list[ir.Value]) -> Values:
        """A workspace for each operand, and kernels that copy the operands into them in the order of the columns."""
        nest = made.rows.nest
        gathers = recipe_argument(nest.func, made.rows.stored, made.recipe, "gathers")
        copies: Values = {}
        for operand in operands:
            element, inner = operand.type.element_type, list(operand.type.shape)[1:]
            own = replace(made.stored, name=f"{made.stored.name}.{tensor_name(operand)}")
            copy = workspace(nest.func, own, own.recipe("gathered", width=inner[0] if inner else 1), "copy", element, inner)
            with ir.InsertionPoint(nest.outer.op):
                _copy(operand, copy, gathers)
            copies[operand] = copy
        return copies


def _copy(operand: ir.Value, copy: ir.Value, gathers: ir.Value) -> None:
    """A kernel that copies rows of `operand` in another order, an element a thread."""
    inner = [b.index(n) for n in list(operand.type.shape)[1:]]

    def element(at: list[ir.Value]) -> None:
        row = stored_index(memref.load(gathers, at[:1]))
        memref.store(memref.load(operand, [row, *at[1:]]), copy, at)

    element_kernel("_gather", [memref.dim(gathers, b.index(0)), *inner], element)
