"""`vectorize-entries`: coordinates and values of neighbouring stored entries by vector loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, memref, scf, vector

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.nest import Loop, LoopKind, LoopNest, buffer_part, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, depending_on, yielded
from sparseditto.passes.rows import bits, reads_entry
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class VectorizeEntries(SchedulePass):
    """Walk the stored entries of a row in aligned groups of `width`, each loaded by one vector load an array.

    Rows do not start at multiples of `width`: the first group of a row holds entries of the row before it, the last one
    entries of the next.  Those load what coordinate 0 points to, and their sums are not taken (a product with 0 would let
    a NaN through).  A group that reaches past the end of the arrays is loaded entry by entry.

    Before::

        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
          %j = memref.load %crd[%p]
          %v = memref.load %val[%p]
          ...
          %n = arith.addf %a, %t
          scf.yield %n
        }

    After ``vectorize-entries{width=4}``::

        %group = arith.divui %lo, %c4
        %first = arith.muli %group, %c4
        %some = arith.cmpi ult, %lo, %hi
        %end = arith.select %some, %hi, %first
        %s = scf.for %p = %first to %end step %c4 iter_args(%a = %zero) {
          ...
            %js = vector.load %crd[%p]
            %vs = vector.load %val[%p]
          ...
          %n0 = arith.addf %a, %t0
          %a0 = arith.select %inside0, %n0, %a
          ...
          scf.yield %a3
        }

    Leaves alone: which lane walks which group, which `rows-to-subgroups` decides after it.
    Refuses: entries that are blocks; entries whose position is used for more than loads of coordinates and values.
    """

    name: ClassVar[str] = "vectorize-entries"
    relieves = (Bottleneck.COALESCING, Bottleneck.ISSUE)
    consumes = (Resource.REGISTERS, Resource.CODE)
    requires = (Form.REGISTER_ACCUMULATION,)
    excludes = (Form.THREADS, Form.UNROLLED, Form.ENTRY_VECTORS, Form.SLICES, Form.MIRRORED)
    provides = (Form.ENTRY_VECTORS,)

    width: int = option("stored entries a load", default=4, choices=(2, 4, 8))

    def effect(self, work: Work) -> Work:
        return work._replace(entry_vector=self.width, unroll=max(work.unroll, self.width))

    def run(self, nest: LoopNest, target: Target) -> None:
        loops = [loop for loop in nest.reductions if loop.kind is LoopKind.COMPRESSED and b.known(loop.step) == 1]
        if not loops:
            raise NotApplicable("there is no reduction over stored entries one by one", where=self.name)
        groups = [_Groups(loop, self.width, target.load_bytes, self.name) for loop in loops]
        for group in groups:
            group.build()


class _Groups:
    """One loop over stored entries on its way to a loop over groups of them; refuses before anything is changed."""

    def __init__(self, loop: Loop, width: int, load_bytes: int, where: str) -> None:
        self.loop, self.width, self.load_bytes = loop, width, load_bytes
        self.ops = body_ops(loop.body)
        self.loads = [op for op in self.ops if reads_entry(op, loop.iv)]
        users = [op for op in (inner for top in self.ops for inner in (top, *walk(top))) if loop.iv in list(op.operands)]
        if not self.loads or any(op not in self.loads for op in users):
            raise NotApplicable("entries are read by more than their coordinates and values", where=where)

    def build(self) -> None:
        loop = self.loop
        with ir.InsertionPoint(loop.op):
            width = b.index(self.width)
            first = b.mul(b.div(loop.lower, width), width)
            some = arith.cmpi(arith.CmpIPredicate.ult, loop.lower, loop.upper)
            results = b.for_loop(first, arith.select(some, loop.upper, first), width, loop.initial, self._group)
        for old, new in zip(loop.op.results, results, strict=True):
            old.replace_all_uses_with(new)
        loop.op.operation.erase()

    def _group(self, start: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        """The entries of one group: first what needs no sum, for each of them, then the sums."""
        loop = self.loop
        carried = list(loop.body.arguments)[1:]
        users = depending_on(self.ops, carried)
        free = [op for op in self.ops if op not in users and op not in self.loads]
        vectors = self._load(start)
        inside = self._inside(start)
        copies = [clone_ops(free, self._entry(vectors, e, inside[e])) for e in range(self.width)]
        current = list(sums)
        for values, taken in zip(copies, inside, strict=True):
            done = clone_ops(users, {**values, **dict(zip(carried, current, strict=True))})
            new = [done.get(v, v) for v in yielded(loop.body)]
            current = [arith.select(taken, n, old) for n, old in zip(new, current, strict=True)]
        return current

    def _inside(self, start: ir.Value) -> list[ir.Value]:
        """Whether each entry of the group is the row's own."""
        width, i32 = b.index(self.width), ir.IntegerType.get_signless(32)
        left = arith.index_cast(i32, arith.minui(b.sub(self.loop.upper, start), width))
        before = arith.index_cast(i32, arith.maxsi(b.sub(self.loop.lower, start), b.index(0)))
        found = []
        for e in range(self.width):
            number = arith.constant(i32, e)
            begun = arith.cmpi(arith.CmpIPredicate.ule, before, number)
            ended = arith.cmpi(arith.CmpIPredicate.ugt, left, number)
            found.append(begun if e == 0 else ended if e == self.width - 1 else arith.andi(begun, ended))
        return found

    def _load(self, start: ir.Value) -> list[ir.Value]:
        """A vector of each array; entry by entry where the group reaches past its end."""
        length = memref.dim(self.loads[0].operands[0], b.index(0))
        whole = arith.cmpi(arith.CmpIPredicate.ule, b.add(start, b.index(self.width)), length)
        types = [ir.VectorType.get([self.width], load.results[0].type) for load in self.loads]
        branch = scf.IfOp(whole, types, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            scf.yield_([self._vector(load, type_, start) for load, type_ in zip(self.loads, types, strict=True)])
        with ir.InsertionPoint(branch.else_block):
            last = b.sub(length, b.index(1))
            at = [arith.minui(b.add(start, b.index(e)), last) for e in range(self.width)]
            elements = [[memref.load(load.operands[0], [place]) for place in at] for load in self.loads]
            scf.yield_([vector.from_elements(type_, parts) for type_, parts in zip(types, elements, strict=True)])
        return list(branch.results)

    def _vector(self, load: ir.OpView, type_: ir.VectorType, start: ir.Value) -> ir.Value:
        size = min(self.load_bytes, self.width * bits(type_.element_type) // 8)
        return vector.LoadOp(type_, load.operands[0], [start], alignment=size).result

    def _entry(self, vectors: list[ir.Value], e: int, inside: ir.Value) -> Values:
        """The loads' results for entry `e`; of one that is not the row's, coordinate 0."""
        values: Values = {}
        for load, whole in zip(self.loads, vectors, strict=True):
            element = vector.extract(whole, [], [e])
            if buffer_part(root_buffer(load.operands[0])) == "coordinates":
                element = arith.select(inside, element, arith.constant(element.type, 0))
            values[load.results[0]] = element
        return values
