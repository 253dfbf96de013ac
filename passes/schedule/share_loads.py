"""`share-loads`: lanes that walk the same stored entries load a different one each, and tell the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, defining_op, op_name, walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.lanes import Agreement, evaluate
from sparseditto.passes.nest import Loop, LoopKind, LoopNest, indices
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import (
    Values,
    body_ops,
    clone_ops,
    clone_slice,
    collective,
    combine,
    combiner_of,
    guard_stores,
    neutral,
    sums_are_independent,
    take_initial,
    yielded,
)
from sparseditto.passes.rows import position_load, reads_entry
from sparseditto.passes.work import Work

_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extui")


@register
@dataclass(frozen=True)
class ShareLoads(SchedulePass):
    """Where n lanes share the columns of a row, load the next n stored entries by one lane each, and broadcast them.

    The loads of neighbouring lanes are neighbours, so that n entries take one request instead of n.  With `ahead` the next n
    entries are loaded while these are computed with.

    All lanes of a warp must reach a broadcast.  When n is the whole warp, they do.  Otherwise rows of different lengths share
    a warp, and all of them walk as far as the longest: a lane past the end of its row gets coordinate 0 and takes no sum
    (a product with 0 would let a NaN through).  Lanes past the last column do the first lane's columns again and store nothing.

    Before::

        scf.forall (%i) in (%m) {
          scf.forall (%lane) in (8) {
            %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
              %j = memref.load %crd[%p]
              %v = memref.load %val[%p]
              ...
              %n = arith.addf %a, %t
              scf.yield %n
            }

    After ``share-loads{ahead=false}``::

        scf.forall (%i) in (%m) {
          scf.forall (%lane) in (8) {
            %count = arith.maxsi %length, %c0
            ...
            %most = "ditto.lane_reduce"(%number) {kind = "arith.maxui", lanes = 4 : i32, stride = 8 : i32}
            ...
            %s = scf.for %o = %c0 to %end step %c8 iter_args(%a = %zero) {
              %mine = arith.addi %o, %lane
              %has = arith.cmpi ult, %mine, %count
              ... scf.if %has
                %p = arith.addi %lo, %mine
                memref.load %crd[%p]
                memref.load %val[%p]
              ...
              %sum = scf.for %k = %c0 to %take step %c1 iter_args(%b = %a) {
                %j = "ditto.lane_broadcast"(%loaded_j, %k) {lanes = 8 : i32}
                %v = "ditto.lane_broadcast"(%loaded_v, %k) {lanes = 8 : i32}
                ...
                %n = arith.addf %b, %t
                %inside = arith.cmpi ult, %at, %own
                %next = arith.select %inside, %n, %b
                scf.yield %next

    Leaves alone: everything but the walk over the entries; `unroll` after it unrolls the inner loop.
    Refuses: rows that no lanes share, or whose entries the lanes share already; entries that are blocks, or whose position
    is used for more than loads of coordinates and values; columns that lanes share in a way that is not seen to end.
    """

    name: ClassVar[str] = "share-loads"
    relieves = (Bottleneck.COALESCING, Bottleneck.LATENCY)
    consumes = (Resource.SHUFFLE, Resource.REGISTERS)
    requires = (Form.REGISTER_ACCUMULATION, Form.THREADS)
    excludes = (Form.UNROLLED, Form.LANE_LOADS, Form.COARSENED, Form.BLOCKS, Form.MIRRORED)
    provides = (Form.LANE_LOADS,)

    ahead: bool = option("load the next entries while these are computed with", default=False)

    def effect(self, work: Work) -> Work:
        return work._replace(shared_loads=True)

    @classmethod
    def candidates(cls, context: Any) -> tuple[ShareLoads, ...]:
        """Either way, where there are columns that lanes can share."""
        return () if context.task.columns in (0, 1) else (cls(), cls(ahead=True))

    def run(self, nest: LoopNest, target: Target) -> None:
        lane_loop = next(iter(nest.mapped("lane")), None)
        if lane_loop is None:
            raise NotApplicable(
                "a row belongs to one thread; share it among lanes (rows-to-subgroups{share=columns})", where=self.name
            )
        shared = _SharedLoads(nest, lane_loop, target.warp_size, self.ahead, self.name)
        with ir.InsertionPoint(lane_loop.op), b.forall(shared.lanes, "lane") as lane:
            shared.build(lane)
        lane_loop.op.operation.erase()


class _SharedLoads:
    """One lane's part of a row on its way to shared loads; refuses before anything is changed."""

    def __init__(self, nest: LoopNest, lane_loop: Loop, warp: int, ahead: bool, where: str) -> None:
        self.nest, self.lane_loop, self.warp, self.ahead, self.where = nest, lane_loop, warp, ahead, where
        self.lanes = lane_loop.extent or 1
        self.agreement = Agreement(nest, lane_loop, self.lanes, warp)
        self.entries = self._entries()
        self.loads = self._loads()
        self.combiner = self._combiner()
        self.sharing = self.agreement.of(self.entries.lower, self.entries.upper, self.entries.step)
        if self.sharing < 2:
            raise NotApplicable("the lanes share the entries, so each loads its own already", where=where)
        self.uneven = {op.operation for op in self._around() if self._is_uneven(op)}
        if self.uneven and self.sharing < self.lanes:
            raise NotApplicable("groups of lanes have different numbers of columns", where=where)

    def _entries(self) -> Loop:
        """The one reduction of the nest."""
        reductions = self.nest.reductions
        if len(reductions) != 1 or reductions[0].kind is not LoopKind.COMPRESSED:
            raise NotApplicable("needs one reduction, over stored entries that are no blocks", where=self.where)
        return reductions[0]

    def _combiner(self) -> str:
        """What combines a sum with the output's old value, which only those lanes may read that will store the new one."""
        combiner = combiner_of(self.entries) or ""
        if any(map(_is_read, self.entries.initial)) and not (combiner and sums_are_independent(self.entries)):
            raise NotApplicable("the reduction is no sum that the output's old value could be added to last", where=self.where)
        return combiner

    def _loads(self) -> list[ir.OpView]:
        """The loads of what is stored at the entry's position; nothing else may use that."""
        ops = [inner for op in body_ops(self.entries.body) for inner in (op, *walk(op))]
        users = [op for op in ops if self.entries.iv in list(op.operands)]
        loads = [op for op in body_ops(self.entries.body) if op in users and reads_entry(op, self.entries.iv)]
        if not loads or len(loads) < len(users):
            raise NotApplicable("an entry's position is used for more than its coordinate and value", where=self.where)
        stored = [load.results[0] for load in loads]
        for op in ops:
            if op_name(op) in ("memref.load", "vector.load") and op not in loads:
                self._check_address(op, stored)
        return loads

    def _check_address(self, load: ir.OpView, stored: list[ir.Value]) -> None:
        """What a lane past the end of its row reads at coordinate 0 must be there."""
        for index in indices(load):
            op = defining_op(index)
            while op is not None and op_name(op) in _CASTS:
                index = op.operands[0]
                op = defining_op(index)
            if index not in stored and op is not None and op.operation.parent == self.entries.op.operation:
                raise NotApplicable("an address is computed from a coordinate", where=self.where)

    # --- Whether all lanes get there ----------------------------------------------------------------------

    def _around(self) -> list[ir.OpView]:
        """The loops and conditions between the lanes and the entries."""
        found, at = [], self.entries.op.operation.parent
        while at.operation != self.lane_loop.op.operation:
            found.append(at.opview)
            at = at.operation.parent
        return found

    def _is_uneven(self, op: ir.OpView) -> bool:
        """Whether lanes of a warp do it different numbers of times.  Raises where that cannot be told."""
        controls = list(op.operands)[:3] if op_name(op) == "scf.for" else list(op.operands)[:1]
        if self.agreement.of(*controls) == self.warp:
            return False
        known = [[evaluate(v, {self.lane_loop.iv: lane}) for v in controls] for lane in range(self.lanes)]
        if op_name(op) == "scf.if" and not len(op.results) and known[0] == [1]:
            return True
        if op_name(op) != "scf.for" or list(op.operands)[3:] or self.agreement.of(*controls[1:]) < self.warp:
            raise NotApplicable("a loop or a condition around the entries differs between lanes", where=self.where)
        first = [bounds[0] for bounds in known]
        trips = {None if None in bounds else -(-(bounds[1] - bounds[0]) // bounds[2]) for bounds in known}  # type: ignore[operator]
        if len(trips) == 1 and None not in trips:
            return False
        if any(lower is None or lower < (first[0] or 0) for lower in first) or self._of_the_lane(op):
            raise NotApplicable("the columns of the lanes are not known", where=self.where)
        return True

    # --- Rewriting ----------------------------------------------------------------------------------------

    def build(self, lane: ir.Value) -> None:
        self.lane = lane
        self.place = lane if self.sharing == self.lanes else b.rem(lane, b.index(self.sharing))
        self.walk: _Walk | None = None
        self._clone(body_ops(self.lane_loop.body), {self.lane_loop.iv: lane})

    def _clone(self, ops: list[ir.OpView], values: Values) -> None:
        for op in ops:
            if op == self.entries.op:
                values = {**values, **dict(zip(op.results, self._sum(values), strict=True))}
            elif self.entries.op in list(walk(op)):
                self._measure(op, values)
                self._descend(op, values)
            else:
                values = clone_ops([op], values)

    def _measure(self, around: ir.OpView, values: Values) -> None:
        """How far to walk, before the outermost op that holds the walk and does not change its bounds."""
        bounds = (self.entries.lower, self.entries.upper, self.entries.step)
        if self.walk is None and not any(_is_inside(bound, around) for bound in bounds):
            self.walk = self._bounds(values)

    def _bounds(self, values: Values) -> _Walk:
        entries = self.entries
        lower, upper, step = (values.get(v, v) for v in (entries.lower, entries.upper, entries.step))
        count = b.ceildiv(arith.maxsi(b.sub(upper, lower), b.index(0)), step)
        if self.sharing == self.warp:
            return _Walk(lower, step, count, count)
        load = position_load(entries.upper)
        narrow = load is not None and isinstance(load.results[0].type, ir.IntegerType) and load.results[0].type.width <= 32
        number = arith.index_castui(ir.IntegerType.get_signless(32 if narrow else 64), count)
        sizes = {"lanes": self.warp // self.sharing, "stride": self.sharing}
        most = collective("ditto.lane_reduce", number, "arith.maxui", **sizes)
        return _Walk(lower, step, count, arith.index_castui(ir.IndexType.get(), most))

    def _descend(self, op: ir.OpView, values: Values) -> None:
        block = op.regions[0].blocks[0]
        if op_name(op) == "scf.if":
            if op.operation in self.uneven:
                self._condition(op, values)
                return
            with b.if_then(values.get(op.operands[0], op.operands[0])):
                self._clone(body_ops(block), values)
            return
        lower, upper, step = (values.get(v, v) for v in list(op.operands)[:3])

        def body(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
            if op.operation in self.uneven:
                self._uneven_columns(op, iv, values)
            else:
                self._clone(body_ops(block), {**values, block.arguments[0]: iv})
            return ()

        if op.operation in self.uneven:
            lower = clone_slice(op.operands[0], self._as_lane(b.index(0), values))
        b.for_loop(lower, upper, step, [], body)

    def _as_lane(self, lane: ir.Value, values: Values) -> Values:
        """What to compute values from that are to be those of another lane of the row."""
        same = {old: new for old, new in values.items() if self.agreement.of(old) >= self.lanes}
        return {**same, self.lane_loop.iv: lane}

    def _uneven_columns(self, loop: ir.OpView, column: ir.Value, values: Values) -> None:
        """The columns of lane 0 in turn, each with those beside it; where a lane has none, it does that of lane 0."""
        block, lower = loop.regions[0].blocks[0], loop.operands[0]
        base = clone_slice(lower, self._as_lane(b.index(0), values))
        own = b.add(column, b.sub(values.get(lower, lower), base))
        inside = arith.cmpi(arith.CmpIPredicate.ult, own, values.get(loop.operands[1], loop.operands[1]))
        self._guarded(block, {**values, block.arguments[0]: arith.select(inside, own, column)}, inside)

    def _condition(self, op: ir.OpView, values: Values) -> None:
        """What was done under a condition that lane 0 fulfils: the other lanes do what lane 0 does, and store nothing."""
        block = op.regions[0].blocks[0]
        inside = values.get(op.operands[0], op.operands[0])
        changed = self._as_lane(arith.select(inside, self.lane, b.index(0)), values)
        for operand in self._of_the_lane(op):
            clone_slice(operand, changed)
        self._guarded(block, {**values, **changed}, inside)

    def _of_the_lane(self, op: ir.OpView) -> list[ir.Value]:
        """What ops inside `op` take from outside that differs between the lanes of a row."""
        used = [operand for inner in walk(op) for operand in inner.operands if not _is_inside(operand, op)]
        return [operand for operand in used if self.agreement.of(operand) < self.lanes]

    def _guarded(self, block: ir.Block, values: Values, inside: ir.Value) -> None:
        place = ir.InsertionPoint.current.block
        before = len(list(place.operations))
        self._clone(body_ops(block), values)
        guard_stores(place, inside, before)

    def _sum(self, values: Values) -> list[ir.Value]:
        """The walk over the entries, `sharing` of them at a time."""
        walk_ = self.walk or self._bounds(values)
        read = [_is_read(v) for v in self.entries.initial]
        initial = [
            neutral(self.combiner, v.type) if late else values.get(v, v)
            for v, late in zip(self.entries.initial, read, strict=True)
        ]
        width = b.index(self.sharing)

        def chunk(offset: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            sums = carried[: len(initial)]
            loaded = carried[len(initial) :] or self._load(walk_, offset, values)
            following = self._load(walk_, b.add(offset, width), values) if self.ahead else []
            return [*self._add(walk_, offset, sums, loaded, values), *following]

        first = self._load(walk_, b.index(0), values) if self.ahead else []
        totals = b.for_loop(b.index(0), walk_.most, width, [*initial, *first], chunk)[: len(initial)]
        return [
            combine(self.combiner, take_initial(self.entries, values, k), total) if late else total
            for k, (total, late) in enumerate(zip(totals, read, strict=True))
        ]

    def _load(self, walk_: _Walk, offset: ir.Value, values: Values) -> list[ir.Value]:
        """This lane's entry of those from `offset` on; zeros when its row has none there."""
        number = b.add(offset, self.place)
        types = [load.results[0].type for load in self.loads]
        branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ult, number, walk_.count), types, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            at = b.add(walk_.lower, b.mul(number, walk_.step))
            scf.yield_([clone_into(load, {**values, self.entries.iv: at}).results[0] for load in self.loads])
        with ir.InsertionPoint(branch.else_block):
            scf.yield_([_zero(type_) for type_ in types])
        return list(branch.results)

    def _add(
        self, walk_: _Walk, offset: ir.Value, sums: list[ir.Value], loaded: list[ir.Value], values: Values
    ) -> list[ir.Value]:
        """The entries that the lanes have loaded, one after the other."""
        carried = list(self.entries.body.arguments)[1:]
        others = [op for op in body_ops(self.entries.body) if op not in self.loads]
        width, i32 = b.index(self.sharing), ir.IntegerType.get_signless(32)
        if self.sharing < self.warp:  # 32 bits, since each entry is compared with it
            own = arith.index_cast(i32, arith.minui(arith.maxsi(b.sub(walk_.count, offset), b.index(0)), width))

        def entry(k: ir.Value, current: list[ir.Value]) -> list[ir.Value]:
            told = [_broadcast(value, k, self.sharing) for value in loaded]
            known = dict(zip([load.results[0] for load in self.loads], told, strict=True))
            inner = clone_ops(others, {**values, **known, **dict(zip(carried, current, strict=True))})
            new = [inner.get(v, v) for v in yielded(self.entries.body)]
            if self.sharing == self.warp:
                return new
            inside = arith.cmpi(arith.CmpIPredicate.ult, arith.index_cast(i32, k), own)
            return [arith.select(inside, n, old) for n, old in zip(new, current, strict=True)]

        end = arith.minui(b.sub(walk_.most, offset), width)
        return b.for_loop(b.index(0), end, b.index(1), sums, entry)


@dataclass(frozen=True)
class _Walk:
    """Where the entries of a lane lie: `count` of them from `lower` on, and what the longest row of the warp has."""

    lower: ir.Value
    step: ir.Value
    count: ir.Value
    most: ir.Value


def _is_read(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and op_name(op) in ("memref.load", "vector.load")


def _is_inside(value: ir.Value, op: ir.OpView) -> bool:
    """Whether a value is made inside `op`."""
    owner = value.owner
    at = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation.parent
    while at is not None and at.name != "func.func":
        if at.operation == op.operation:
            return True
        at = at.operation.parent
    return False


def _zero(type_: ir.Type) -> ir.Value:
    if isinstance(type_, ir.IndexType):
        return b.index(0)
    whole = isinstance(type_, ir.IntegerType)
    return arith.constant(type_, ir.IntegerAttr.get(type_, 0) if whole else ir.FloatAttr.get(type_, 0.0))


def _broadcast(value: ir.Value, which: ir.Value, lanes: int) -> ir.Value:
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), lanes)
    return ir.Operation.create(
        "ditto.lane_broadcast", results=[value.type], operands=[value, which], attributes={"lanes": number}
    ).results[0]
