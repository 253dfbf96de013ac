"""`stage-entries`: a block reads the entries of its rows as one stream, into shared memory, and sums up rows from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, gpu, memref, scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import defining_op, op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option, plain_but
from sparseditto.passes.nest import COMBINERS, Loop, LoopNest, Slices
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import (
    Values,
    body_ops,
    clone_ops,
    clone_reduction,
    clone_slice,
    clone_to,
    collective,
    combine,
    depending_on,
    fence,
    finish_sum,
    neutral,
    yielded,
)
from sparseditto.passes.rows import (
    other_parallel,
    reads_entry,
    recipe_argument,
    row_entries,
    stored_entries,
    stored_index,
    workspace,
)
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class StageEntries(SchedulePass):
    """Give each block as many whole rows as have at most `entries` stored entries, and stage those in shared memory.

    The threads of a block read coordinates and values as one coalesced stream, whatever the lengths of the rows, all loads
    in flight together.  With ``stage=products`` each thread also gathers what its entries are multiplied by and stages
    the products: most gathers in flight, for irregular matrices.  With ``stage=entries`` coordinates and values are staged, and
    the gathers happen row by row, neighbouring threads in neighbouring rows: these read neighbouring elements where rows
    resemble each other.  Then as many lanes as there are for each row of the block (a power of two, from the host)
    sum it up.

    A row of more than `entries` entries is cut over several blocks.  Each leaves its sum in a workspace and takes a ticket; the
    block that takes the last one adds up the sums, in their order, so that results do not depend on timing: there is one
    launch, nothing to initialise, and no atomic addition to the output.  This is CSR-Adaptive (Greathouse and Daga,
    SC 2014), with tickets.

    Before::

        scf.for %i = %c0 to %m step %c1 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          memref.store %s, %y[%i]
        }

    After ``stage-entries{entries=2048 threads=256 stage=products}``::

        scf.forall (%b) in (%blocks) {
          scf.forall (%t) in (256) {
            ...
            memref.store %t0, %staged[%t]
            ...
            gpu.barrier
            ... scf.for %k = %c0 to %trips step %c1 iter_args
              %part = scf.for %q = ... iter_args(%a = %zero) {
                %e = memref.load %staged[%q]
                ...
              }
              %s = "ditto.group_reduce"(%part, %shift) {kind = "arith.addf"}
              ...
                memref.store %s, %y[%i]
            }
          } {mapping = [#gpu.thread<linear_dim_0>]}
        } {mapping = [#gpu.block<linear_dim_0>]}

    Leaves alone: what is done for one entry.
    Refuses: rows with dense columns or blocks inside; what `segment-rows` refuses; more entries than shared memory holds.
    """

    name: ClassVar[str] = "stage-entries"
    relieves = (Bottleneck.COALESCING, Bottleneck.IMBALANCE, Bottleneck.DIVERGENCE, Bottleneck.LATENCY)
    consumes = (Resource.SHARED, Resource.SHUFFLE, Resource.ATOMICS, Resource.PREPROCESSING)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = plain_but(Form.TILES, Form.JAMMED, Form.NARROW)
    provides = (Form.THREADS, Form.BLOCKS)
    removes = (Form.ROWS,)

    entries: int = option("most entries of a block", default=2048, choices=(128, 256, 512, 1024, 2048, 4096))
    threads: int = option("threads a block", default=256, choices=(64, 128, 256, 512))
    stage: str = option("what is staged", default="products", choices=("products", "entries"))

    def effect(self, work: Work) -> Work:
        blocks = max(1.0, 1.1 * work.entries / self.entries)
        staged = work.value_bytes if self.stage == "products" else work.entry_bytes
        return work._replace(
            units=blocks,
            longest=float(self.entries),
            uneven=1.0,
            lanes=self.threads,
            groups=self.threads,
            unroll=max(work.unroll, self.entries // self.threads),
            threads=self.threads,
            staged_bytes=staged,
            shared_bytes=work.shared_bytes + ceil(staged * self.entries),
            most_cut=work.pattern.max_row / self.entries,
        )

    def run(self, nest: LoopNest, target: Target) -> None:
        entries = row_entries(nest, self.name)
        if other_parallel(nest) or nest.children(entries):
            raise NotApplicable("rows with dense columns or blocks inside are not staged", where=self.name)
        if self.entries % self.threads:
            raise NotApplicable(f"{self.threads} threads do not share {self.entries} entries evenly", where=self.name)
        _Blocks(self, nest, entries).build()
        nest.outer.op.operation.erase()


class _Blocks:
    """One nest on its way to blocks of rows."""

    def __init__(self, options: StageEntries, nest: LoopNest, entries: Loop) -> None:
        self.options, self.nest, self.entries = options, nest, entries
        self.threads = options.threads
        self.ops = body_ops(entries.body)
        self.carried = list(entries.body.arguments)[1]
        self.summed = depending_on(self.ops, [self.carried])
        self.loads = [op for op in self.ops if reads_entry(op, entries.iv)]
        self.products = options.stage == "products"
        self.zero_type = entries.initial[0].type
        self._check()

    def _check(self) -> None:
        """Refuse, before anything is changed, what cannot be staged so."""
        name = self.options.name
        if not self.products and any(self.entries.iv in list(op.operands) for op in self.ops if op not in self.loads):
            raise NotApplicable("entries are read by more than their coordinates and values", where=name)
        slices, row = Slices(), self.nest.outer.body
        terms = [op for op in self.ops if op not in self.summed]
        if self.products and any(row in slices.blocks(v) for op in terms for v in op.operands):
            raise NotApplicable("what an entry adds depends on its row; use stage=entries", where=name)
        if self.products:
            self._term()

    def build(self) -> None:
        stored = stored_entries(self.entries, self.options.name)
        recipe = stored.recipe("row-blocks", entries=self.options.entries, rows=4 * self.threads, threads=self.threads)
        func = self.nest.func
        self.rows, self.positions, self.shifts, self.starts, self.pieces = (
            recipe_argument(func, stored, recipe, part) for part in ("rows", "positions", "shift", "start", "pieces")
        )
        self.bits = ir.IntegerType.get_signless(self.zero_type.width)
        self.partials = workspace(func, stored, recipe, "partials", self.bits)
        self.tickets = workspace(func, stored, recipe, "tickets", ir.IntegerType.get_signless(32))
        with ir.InsertionPoint(self.nest.outer.op):
            blocks = memref.dim(self.shifts, b.index(0))
            with b.forall(blocks, "block") as block, b.forall(self.threads, "thread") as thread:
                self._block(block, thread)

    def _block(self, block: ir.Value, thread: ir.Value) -> None:
        i32 = ir.IntegerType.get_signless(32)
        tag = memref.load(self.rows, [block])
        first = stored_index(memref.load(self.positions, [block]))
        last = stored_index(memref.load(self.positions, [b.add(block, b.index(1))]))
        minus_one = arith.constant(i32, -1)
        cut = arith.cmpi(arith.CmpIPredicate.slt, tag, arith.constant(i32, 0))
        branch = scf.IfOp(cut, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            row = stored_index(arith.xori(tag, minus_one))
            self._row(row, lambda rest, values: self._piece(rest, values, block, thread, first, last))
            scf.yield_([])
        with ir.InsertionPoint(branch.else_block):
            after = memref.load(self.rows, [b.add(block, b.index(1))])
            end = stored_index(arith.maxsi(after, arith.xori(after, minus_one)))
            self._whole_rows(block, thread, first, last, stored_index(tag), end)
            scf.yield_([])

    def _row(self, row: ir.Value, at_sum: Callable[[list[ir.OpView], Values], None]) -> None:
        clone_to(body_ops(self.nest.outer.body), self.entries.op, {self.nest.outer.iv: row}, at_sum)

    # --- Whole rows --------------------------------------------------------------------------------------

    def _whole_rows(
        self, block: ir.Value, thread: ir.Value, first: ir.Value, last: ir.Value, row: ir.Value, end: ir.Value
    ) -> None:
        shift = stored_index(memref.load(self.shifts, [block]))
        groups = arith.shrui(b.index(self.threads), shift)
        group = arith.shrui(thread, shift)
        lane = b.sub(thread, arith.shli(group, shift))
        count = b.sub(end, row)

        def place(trip: ir.Value) -> tuple[ir.Value, ir.Value]:
            """The row of this thread's group in a trip, and whether there is one."""
            number = b.add(b.mul(trip, groups), group)
            inside = arith.cmpi(arith.CmpIPredicate.ult, number, count)
            return b.add(row, arith.minui(number, b.sub(count, b.index(1)))), inside

        def bounds(trip: ir.Value) -> list[ir.Value]:
            mine, _ = place(trip)
            values: Values = {self.nest.outer.iv: mine}
            return [clone_slice(bound, values) for bound in (self.entries.lower, self.entries.upper)]

        def rows(trip: ir.Value, known: list[ir.Value]) -> list[ir.Value]:
            mine, inside = place(trip)
            own = dict(zip((self.entries.lower, self.entries.upper), known, strict=True))
            where = (first, lane, shift, inside)
            following = bounds(b.add(trip, b.index(1)))
            self._row(mine, lambda rest, values: self._sum_staged(rest, {**values, **own}, staged, where))
            return following

        ahead = bounds(b.index(0))  # loaded while the entries are on their way, as those of each next row are
        staged = self._stage(thread, first, last)
        gpu.barrier()
        b.for_loop(b.index(0), b.ceildiv(count, groups), b.index(1), ahead, rows)

    def _stage(self, thread: ir.Value, first: ir.Value, last: ir.Value) -> dict[ir.Value, ir.Value]:
        """Buffers in shared memory by the value of the body that they hold; every slot is written."""
        steps = self.options.entries // self.threads
        places = [b.add(thread, b.index(k * self.threads)) for k in range(steps)]
        final = arith.maxui(last, b.index(1))
        at = [arith.minui(b.add(first, place), b.sub(final, b.index(1))) for place in places]
        ops = [op for op in self.ops if op not in self.summed] if self.products else self.loads
        held = [self._term()] if self.products else [load.results[0] for load in self.loads]
        buffers = {value: _shared(self.options.entries, value.type) for value in held}
        some = arith.cmpi(arith.CmpIPredicate.ult, first, last)
        with b.if_then(some):
            copies: list[Values] = [{self.entries.iv: position} for position in at]
            for op in ops:  # each of all entries, so that loads that do not wait for each other stand together
                copies = [clone_ops([op], values) for values in copies]
            for place, values in zip(places, copies, strict=True):
                for value, buffer in buffers.items():
                    memref.store(values[value], buffer, [place])
        return buffers

    def _term(self) -> ir.Value:
        """What is added for one entry."""
        add = defining_op(yielded(self.entries.body)[0])
        if add is None or op_name(add) not in COMBINERS or self.carried not in list(add.operands):
            raise NotApplicable("the sum is not built by one addition an entry; stage=entries", where=self.options.name)
        return next(v for v in add.operands if v != self.carried)

    def _sum_staged(
        self,
        rest: list[ir.OpView],
        values: Values,
        staged: dict[ir.Value, ir.Value],
        place: tuple[ir.Value, ir.Value, ir.Value, ir.Value],
    ) -> None:
        first, lane, shift, inside = place
        lower, upper = (b.sub(values.get(v, v), first) for v in (self.entries.lower, self.entries.upper))
        step = arith.shli(b.index(1), shift)

        def body(q: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            known = {value: memref.load(buffer, [q]) for value, buffer in staged.items()}
            if self.products:
                (term,) = known.values()
                return [combine("arith.addf", sums[0], term)]
            ops = [op for op in self.ops if op not in self.loads]
            done = clone_ops(ops, {**values, **known, self.carried: sums[0]})
            return [done.get(v, v) for v in yielded(self.entries.body)]

        (part,) = b.for_loop(b.add(lower, lane), upper, step, [neutral("arith.addf", self.zero_type)], body)
        total = _over_group(part, shift)
        leads = arith.andi(inside, arith.cmpi(arith.CmpIPredicate.eq, lane, b.index(0)))
        with b.if_then(leads):
            finish_sum(self.entries, rest, values, total)

    # --- A piece of a cut row ----------------------------------------------------------------------------

    def _piece(
        self, rest: list[ir.OpView], values: Values, block: ir.Value, thread: ir.Value, first: ir.Value, last: ir.Value
    ) -> None:
        stride = b.index(self.threads)
        zero = neutral("arith.addf", self.zero_type)
        (part,) = clone_reduction(self.entries, values, b.add(first, thread), last, stride, [zero])
        total = collective("ditto.block_reduce", part, "arith.addf", threads=self.threads)
        start = stored_index(memref.load(self.starts, [block]))
        pieces = memref.load(self.pieces, [block])
        is_last = self._ticket(block, thread, total, start, pieces)
        with b.if_then(is_last):
            fence()
            count = stored_index(pieces)

            def body(q: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
                bits = self._take(self.partials, b.add(start, q))
                return [combine("arith.addf", sums[0], arith.bitcast(self.zero_type, bits))]

            (sum_,) = b.for_loop(thread, count, stride, [zero], body)
            whole = collective("ditto.block_reduce", sum_, "arith.addf", threads=self.threads)
            with b.if_then(arith.cmpi(arith.CmpIPredicate.eq, thread, b.index(0))):
                self._take(self.tickets, start)
                finish_sum(self.entries, rest, values, whole)

    def _take(self, workspace: ir.Value, place: ir.Value) -> ir.Value:
        """What other blocks left in a workspace, which is 0 again after it."""
        none = arith.constant(workspace.type.element_type, 0)
        return memref.atomic_rmw(arith.AtomicRMWKind.andi, none, workspace, [place])

    def _ticket(self, block: ir.Value, thread: ir.Value, total: ir.Value, start: ir.Value, pieces: ir.Value) -> ir.Value:
        """Leave the sum of this piece; whether all others have left theirs before, known to the whole block."""
        i32 = ir.IntegerType.get_signless(32)
        flag = _shared(1, i32)
        with b.if_then(arith.cmpi(arith.CmpIPredicate.eq, thread, b.index(0))):
            memref.atomic_rmw(arith.AtomicRMWKind.ori, arith.bitcast(self.bits, total), self.partials, [block])
            fence()
            ticket = memref.atomic_rmw(arith.AtomicRMWKind.addi, arith.constant(i32, 1), self.tickets, [start])
            memref.store(ticket, flag, [b.index(0)])
        gpu.barrier()
        taken = arith.addi(memref.load(flag, [b.index(0)]), arith.constant(i32, 1))
        return arith.cmpi(arith.CmpIPredicate.eq, taken, pieces)


def _over_group(value: ir.Value, shift: ir.Value) -> ir.Value:
    """The sum over the 2^shift lanes of a group."""
    kind = {"kind": ir.StringAttr.get("arith.addf")}
    return ir.Operation.create("ditto.group_reduce", results=[value.type], operands=[value, shift], attributes=kind).results[0]


def _shared(count: int, element: ir.Type) -> ir.Value:
    """A buffer of the block in shared memory."""
    space = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 3)
    type_ = ir.MemRefType.get([count], element, memory_space=space)
    return ir.Operation.create("ditto.shared_buffer", results=[type_]).results[0]
