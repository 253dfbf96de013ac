"""How the pieces of rows meet that `split-entries` cuts: each part that such a row lies in has the sum of its entries there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod

from mlir import ir
from mlir.dialects import arith, memref, vector

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.passes.nest import accessed
from sparseditto.passes.part_walk import ADD, HEAD, TAIL
from sparseditto.passes.rewrite import Values, collective, combine, element_kernel, finished_kernel, neutral
from sparseditto.passes.row_sums import RowSums
from sparseditto.passes.rows import Stored, recipe_argument, stored_index, workspace

_LONG_THREADS = 256  # a block that adds up the pieces of a row that many parts cut


@dataclass(frozen=True)
class Keeps:
    """The initial value of each sum and what a piece of a row adds to it; `all` says that rows start from what they hold."""

    initial: tuple[ir.Value, ...]
    part: tuple[ir.Value, ...]
    all: bool

    @staticmethod
    def read(sums: RowSums, mode: str, where: str) -> Keeps:
        """Raises `NotApplicable` where a cut row cannot be put together as `mode` says."""
        found = [sums.parts(k) for k in range(len(sums.stores))]
        parts = [pair for pair in found if pair is not None]
        if mode == "atomic" and sums.rounds():
            raise NotApplicable("each piece of a cut row would be rounded; take mode=deterministic", where=where)
        if mode == "atomic" and len(parts) < len(found):
            raise NotApplicable(
                "what is stored is no multiple of the sum added to an initial value; take mode=deterministic", where=where
            )
        if mode != "atomic" and any(loop.trip_count is None for loop in sums.others):
            raise NotApplicable("the number of columns is not known; give its size (--size K=…)", where=where)
        whole = len(parts) == len(found) and all(sums.keeps(k, initial) for k, (initial, _) in enumerate(parts))
        return Keeps(tuple(initial for initial, _ in parts), tuple(part for _, part in parts), whole)


class Added:
    """Pieces of a cut row are added to the output."""

    def __init__(self, sums: RowSums, keeps: Keeps) -> None:
        self.sums, self.keeps = sums, keeps

    def add(self, which: int, total: ir.Value, row: ir.Value, side: int, values: Values) -> None:
        inner = {**values, self.sums.nest.outer.iv: row, self.sums.entries.op.results[which]: total}
        *at, last = self.sums.indices(which, row, values)
        for i, element in enumerate(_elements(self.sums.compute(self.keeps.part[which], inner))):
            place = b.add(last, b.index(i)) if i else last
            memref.atomic_rmw(arith.AtomicRMWKind.addf, element, accessed(self.sums.stores[which]), [*at, place])


class Kept:
    """Pieces of a cut row are left in the workspace, in the two places of the part."""

    def __init__(self, carries: Carries, part: ir.Value) -> None:
        self.carries, self.part = carries, part

    def add(self, which: int, total: ir.Value, row: ir.Value, side: int, values: Values) -> None:
        for i, element in enumerate(_elements(total)):
            memref.store(element, self.carries.kept, [self.carries.place(self.part, side, which, i, values)])


class Numbers:
    """How the numbers of the sums of one row are counted: sum after sum, over all iterations of the loops inside the rows.

    Neighbouring iterations lie side by side; each has a sum, which may be a vector.  There are `width` elements in all.
    """

    def __init__(self, sums: RowSums) -> None:
        self.sums = sums
        self.type = sums.entries.initial[0].type
        self.element = self.type.element_type if isinstance(self.type, ir.VectorType) else self.type
        self.vector = self.type.shape[0] if isinstance(self.type, ir.VectorType) else 1
        self.trips = [loop.trip_count or 0 for loop in sums.others]
        self.width = prod(self.trips) * self.vector * len(sums.stores)

    def of(self, which: int, values: Values) -> ir.Value:
        """The number of a sum."""
        at = b.index(which)
        for loop, trips in zip(self.sums.others, self.trips, strict=True):
            lower, step = (self.sums.compute(v, {}) for v in (loop.lower, loop.step))
            step = b.div(b.sub(values[loop.iv], lower), step)
            at = b.add(b.mul(at, b.index(trips)), step)
        return at

    def element_of(self, which: int, element: int, values: Values) -> ir.Value:
        """The number of one element of a sum."""
        return b.add(b.mul(self.of(which, values), b.index(self.vector)), b.index(element))

    def whole(self, elements: list[ir.Value]) -> ir.Value:
        """A sum of these elements."""
        return vector.from_elements(self.type, elements) if isinstance(self.type, ir.VectorType) else elements[0]


class Carries:
    """The workspace of pieces of cut rows, and the kernels that add them up in the order of the parts."""

    def __init__(self, sums: RowSums, stored: Stored, length: int) -> None:
        self.sums, self.stored, self.numbers = sums, stored, Numbers(sums)
        self.recipe = stored.recipe("entry-carries", length=length, columns=self.numbers.width)
        self.kept = workspace(sums.nest.func, stored, self.recipe, "sums", self.numbers.element)

    def of(self, part: ir.Value) -> Kept:
        return Kept(self, part)

    def place(self, part: ir.Value, side: int, which: int, element: int, values: Values) -> ir.Value:
        """Where one element of a sum is kept."""
        slot = b.add(b.mul(part, b.index(2)), b.index(side))
        return b.add(b.mul(slot, b.index(self.numbers.width)), self.numbers.element_of(which, element, values))

    def add_up(self) -> None:
        """A thread adds up the few pieces of a row; a block those of a row that many parts cut."""
        rows, first, last = self._rows("few")
        extents = [memref.dim(rows, b.index(0)), *map(b.index, self.numbers.trips)]

        def thread(at: list[ir.Value]) -> None:
            start, end = (stored_index(memref.load(array, at[:1])) for array in (first, last))
            values = self.sums.iterations(at[1:])
            tails = [[self._tails(start, end, b.index(1), *which, values) for which in own] for own in self._elements()]
            self._finish(memref.load(rows, at[:1]), tails, end, values)

        element_kernel("_carry", extents, thread)
        self._long_kernel()

    def _long_kernel(self) -> None:
        rows, first, last = self._rows("many")
        threads, trips = b.index(_LONG_THREADS), [b.index(n) for n in self.numbers.trips]
        blocks = reduce(b.mul, trips, memref.dim(rows, b.index(0)))
        with finished_kernel("_carry_long", blocks, _LONG_THREADS) as (block, thread):
            at: list[ir.Value] = []
            for n in reversed(trips):
                at.insert(0, b.rem(block, n))
                block = b.div(block, n)
            start, end = (stored_index(memref.load(array, [block])) for array in (first, last))
            values, mine = self.sums.iterations(at), b.add(start, thread)
            shares = [[self._tails(mine, end, threads, *which, values) for which in own] for own in self._elements()]
            tails = [[collective("ditto.block_reduce", s, ADD, threads=_LONG_THREADS) for s in own] for own in shares]
            with b.if_then(arith.cmpi(arith.CmpIPredicate.eq, thread, b.index(0))):
                self._finish(memref.load(rows, [block]), tails, end, values)

    def _elements(self) -> list[list[tuple[int, int]]]:
        """(sum, element) for all elements of each sum."""
        return [[(which, i) for i in range(self.numbers.vector)] for which in range(len(self.sums.stores))]

    def _rows(self, name: str) -> tuple[ir.Value, ir.Value, ir.Value]:
        rows, first, last = (
            recipe_argument(self.sums.nest.func, self.stored, self.recipe, f"{name}{end}") for end in ("", "_first", "_last")
        )
        return rows, first, last

    def _tails(self, start: ir.Value, end: ir.Value, step: ir.Value, which: int, element: int, values: Values) -> ir.Value:
        """The sum of what goes on after each of the parts from `start` to the one before `end`."""

        def add(part: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            return [combine(ADD, carried[0], memref.load(self.kept, [self.place(part, TAIL, which, element, values)]))]

        return b.for_loop(start, end, step, [neutral(ADD, self.numbers.element)], add)[0]

    def _finish(self, number: ir.Value, tails: list[list[ir.Value]], end: ir.Value, values: Values) -> None:
        """Store a row: its pieces in the parts before `end`, and the one there."""
        row = stored_index(number)
        for which, own in enumerate(tails):
            heads = [memref.load(self.kept, [self.place(end, HEAD, which, i, values)]) for i in range(self.numbers.vector)]
            totals = [combine(ADD, tail, head) for tail, head in zip(own, heads, strict=True)]
            self.sums.store(which, self.numbers.whole(totals), row, values)


def _elements(value: ir.Value) -> list[ir.Value]:
    """A scalar, or the elements of a vector."""
    if not isinstance(value.type, ir.VectorType):
        return [value]
    return [vector.extract(value, [], [i]) for i in range(value.type.shape[0])]
