"""`partition`: two parts of the matrix, each with a nest, and so a schedule and a layout, of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import memref

from sparseditto.dialects.errors import NotApplicable, PlanError
from sparseditto.dialects.orders import CRITERIA
from sparseditto.dialects.target import Target
from sparseditto.passes.base import PLAIN_EXCLUDES, Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import WAITING, LoopNest, accessed, indices
from sparseditto.passes.rearrange import Rearranged, Rows
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, clone_slice, combine
from sparseditto.passes.rows import Finish, row_entries
from sparseditto.passes.work import INDEX_BYTES, Work, share_beyond

_PERCENT = 100


@register
@dataclass(frozen=True)
class Partition(SchedulePass):
    """Split the matrix in two parts, which run one after the other and which passes schedule one after the other.

    The host makes the arrays of each part (recipe `partition`).  What follows in the plan applies to the first part, until
    `next-part` finishes it and turns to the second; each may be split again.  ``by=length``: rows of at most `limit`
    entries, then the longer ones; each row is in one part, which does with it all that was done before.  ``by=column``: the
    entries in the first `limit` columns, then the rest; after `reorder` by the degree of the columns, the hot ones and the
    cold ones.  ``by=diagonal``: diagonals that are full to `limit` percent, then the rest.  There the second part adds what
    its entries make to what the first has stored, and only to rows that have such entries.

    So a hybrid is an order of passes: SELL and a warp a row for what is longer (as in HYB: Bell and Garland, SC 2009), or
    diagonals and CSR for the rest.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %lo = ... memref.load %pos[%i]
          %hi = ... memref.load %pos[%i1]
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``partition{by=length limit=64}``::

        scf.for %slot = %c0 to %short step %c1 {
          %r0 = memref.load %rows0[%slot]
          %i0 = arith.index_castui %r0
          %lo0 = ... memref.load %positions0[%slot]
          %s0 = scf.for %p0 = %first0 to %last0 step %c1 iter_args(%a0 = %zero) {
            ...
          }
          memref.store %s0, %y[%i0]
        }
        scf.for %place = %c0 to %long step %c1 {
          %r1 = memref.load %rows1[%place]
          %i1 = arith.index_castui %r1
          ...
          memref.store %s1, %y[%i1]
        } {ditto.waiting}

    Leaves alone: what is done for one entry.
    Refuses: rows that are not a dense level over a compressed one; a nest that is scheduled already; an output that is
    initialised outside of the nest; unless it is by length, reductions other than sums and sums that are wider than the
    output.
    """

    name: ClassVar[str] = "partition"
    relieves = (Bottleneck.IMBALANCE, Bottleneck.DIVERGENCE, Bottleneck.BANDWIDTH)
    consumes = (Resource.PREPROCESSING,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = PLAIN_EXCLUDES
    provides = (Form.PARTS,)

    by: str = option("what says to which part an entry belongs", default="length", choices=CRITERIA)
    limit: int = option("most entries of a row, columns, or least percent of a diagonal, of the first part", default=64)

    def effect(self, work: Work) -> Work:
        beyond = share_beyond(work.pattern, self.limit) if self.by == "length" else 0.5  # where columns are is not known
        listed = work.row_bytes + INDEX_BYTES
        least = work.longest if self.by != "length" else min(work.longest, float(self.limit))
        many = work.rows if self.by != "length" else min(work.rows, work.entries * beyond / self.limit)
        rest = work._replace(entries=work.entries * beyond, rows=many, units=many, row_bytes=listed, launches=1)
        return work._replace(entries=work.entries * (1 - beyond), longest=least, row_bytes=listed, rest=rest)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit < 1:
            raise PlanError(f"limit={self.limit}: say at least 1", where=self.name)
        if self.by == "diagonal" and self.limit > _PERCENT:
            raise PlanError(f"limit={self.limit}: a diagonal is full to at most {_PERCENT} percent", where=self.name)

    @classmethod
    def candidates(cls, context: Any) -> Iterable[Partition]:
        """By length where rows differ, at powers of two above the mean."""
        features = context.features
        if features is None:
            return (cls("length", 64),)
        first = 1 << max(int(features.mean_row), 1).bit_length()
        return tuple(cls("length", limit) for limit in (2 * first, 8 * first, first) if limit < features.max_row)

    def run(self, nest: LoopNest, target: Target) -> None:
        rows = Rows.read(nest, self.name)
        if nest.fill is not None:
            raise NotApplicable(
                "the output is initialised outside of the nest; put accumulate-registers before", where=self.name
            )
        finish = None if self.by == "length" else _Adding(Finish.read(nest, row_entries(nest, self.name), self.name)).build
        first, second = (
            Rearranged.make(rows, rows.stored.recipe("partition", by=self.by, limit=self.limit, part=part), reorders)
            for part, reorders in ((0, self.by == "length"), (1, True))
        )
        first.build()
        second.build(finish).attributes[WAITING] = ir.UnitAttr.get()
        nest.outer.op.operation.erase()


@dataclass(frozen=True)
class _Adding:
    """What a later part does with the sum of a row: it adds to what the output holds."""

    finish: Finish

    def build(self, _: list[ir.OpView], values: Values, sums: list[ir.Value]) -> None:
        store = self.finish.store
        at = [clone_slice(i, values) for i in indices(store)]
        part = self.finish.part_of(sums[0], values)
        old = memref.load(accessed(store), at)
        memref.store(combine("arith.addf", old, part), accessed(store), at)
