"""The walk over one part of the stored entries, by one lane or by the lanes of a warp together (for `split-entries`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mlir import ir
from mlir.dialects import arith, memref, scf, vector

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import defining_op, op_name
from sparseditto.passes.nest import accessed
from sparseditto.passes.rewrite import Values, body_ops, clone_ops, combine, neutral, yielded
from sparseditto.passes.row_sums import RowSums
from sparseditto.passes.rows import reads_entry, stored_index

ADD = "arith.addf"
WARP = 32
_LOAD_BYTES = 16
_WORD = 32  # bits of a word of flags
HEAD, TAIL = 0, 1  # the first sum of a part, of a row that began before it; the last, of a row that goes on after it


class Pieces(Protocol):
    """Where the sum of a row's entries in one part goes when the row has entries in other parts too."""

    def add(self, which: int, total: ir.Value, row: ir.Value, side: int, values: Values) -> None:
        """Take sum number `which` of `row`; `side` is HEAD or TAIL, `values` maps the loops inside the rows."""


@dataclass(frozen=True)
class Arrays:
    """The arrays of the recipe `entry-parts` that a walk reads (`lanes` only where lanes share the entries)."""

    starts: ir.Value
    carry: ir.Value
    flags: ir.Value
    ranks: ir.Value
    rows: ir.Value
    lanes: ir.Value | None = None


@dataclass(frozen=True)
class _Group:
    """Neighbouring entries that a lane has taken: `bits` say which end a row, `emit` which of these ends it has to store.

    `sums[k][i]` is the sum number k over the entries from the one after the last end (or the first of the group) to entry
    i; `tails[k]` what is left open at the end.  `rank` is the number of the row of the first entry.
    """

    bits: ir.Value
    emit: ir.Value
    rank: ir.Value
    sums: list[list[ir.Value]]
    tails: list[ir.Value]


class PartWalk:
    """Walks part number `part` in groups of `items` entries a lane.

    Sums are built for all entries of a group, those of a neighbouring part in the first and the last group too: ends of
    rows keep them apart, and only the ends in the part are stored.  Nothing that was loaded for no use gets into a sum.
    """

    def __init__(self, sums: RowSums, arrays: Arrays, items: int, pieces: Pieces, part: ir.Value) -> None:
        self.sums, self.arrays, self.items, self.pieces = sums, arrays, items, pieces
        self.terms = _Terms(sums, items)
        self.zeros = [neutral(ADD, initial.type) for initial in sums.entries.initial]
        following = b.add(part, b.index(1))
        self.first, self.last = (stored_index(memref.load(arrays.starts, [p])) for p in (part, following))
        self.head_row, self.tail_row = (memref.load(arrays.carry, [p]) for p in (part, following))
        self.base = self._aligned(self.first)

    def alone(self, values: Values) -> None:
        """One lane walks the whole part."""

        def step(at: ir.Value, carried: list[ir.Value]) -> Sequence[ir.Value]:
            *sums, rank = carried
            group = self._group(at, at, values, sums, rank)
            return [*group.tails, self._store(group, None, values)]

        rank = self._rank(self.base, *self._word(self.base))
        *tails, _ = b.for_loop(self.base, self.last, b.index(self.items), [*self.zeros, rank], step)
        _mark(tails[0])
        with b.if_then(_compare("sge", self.tail_row, _i32(0))):
            self._carry_out(tails, values)

    def together(self, lane: ir.Value, values: Values) -> None:
        """The lanes of a warp walk the part: neighbouring lanes take neighbouring groups."""
        final = self._aligned(b.sub(self.last, b.index(1)))

        def step(base: ir.Value, carried: list[ir.Value]) -> Sequence[ir.Value]:
            at = b.add(base, b.mul(lane, b.index(self.items)))
            group = self._group(at, arith.minui(at, final), values, self.zeros)
            before, after = self._scan(group, base, at, lane, carried)
            self._store(group, before, values)
            return after

        tails = b.for_loop(self.base, self.last, b.index(WARP * self.items), self.zeros, step)
        _mark(tails[0])
        goes_on = _compare("sge", self.tail_row, _i32(0))
        with b.if_then(arith.andi(goes_on, arith.cmpi(arith.CmpIPredicate.eq, lane, b.index(0)))):
            self._carry_out(tails, values)

    def _aligned(self, entry: ir.Value) -> ir.Value:
        items = b.index(self.items)
        return b.mul(b.div(entry, items), items)

    def _carry_out(self, tails: list[ir.Value], values: Values) -> None:
        row = stored_index(self.tail_row)
        for k, tail in enumerate(tails):
            self.pieces.add(k, tail, row, TAIL, values)

    # --- One group of entries -----------------------------------------------------------------------------

    def _group(
        self, at: ir.Value, place: ir.Value, values: Values, carried: list[ir.Value], rank: ir.Value | None = None
    ) -> _Group:
        """The group at entry `at`, of which what is loaded lies at `place` (elsewhere only where `at` is past the part)."""
        word, shift = self._word(place)
        bits = arith.andi(arith.shrui(word, shift), _i32((1 << self.items) - 1))
        rank = self._rank(place, word, shift) if rank is None else rank
        terms = self.terms.of(place, self.last, values)
        sums = [self._sums(bits, start, own) for start, own in zip(carried, terms, strict=True)]
        last = self._ends(bits, self.items - 1)
        tails = [arith.select(last, zero, own[-1]) for zero, own in zip(self.zeros, sums, strict=True)]
        return _Group(bits, self._to_store(bits, at), rank, sums, tails)

    def _word(self, entry: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The word of flags that has the bit of an entry, and the number of that bit."""
        word = memref.load(self.arrays.flags, [b.div(entry, b.index(_WORD))])
        return word, _narrow(b.rem(entry, b.index(_WORD)))

    def _rank(self, entry: ir.Value, word: ir.Value, shift: ir.Value) -> ir.Value:
        """How many rows end before an entry."""
        before = memref.load(self.arrays.ranks, [b.div(entry, b.index(_WORD))])
        return arith.addi(before, popcount(arith.andi(word, _below(shift))))

    def _sums(self, bits: ir.Value, start: ir.Value, terms: list[ir.Value]) -> list[ir.Value]:
        """The running sums of a group, each from the last end of a row."""
        sums = [combine(ADD, start, terms[0])]
        for i, term in enumerate(terms[1:]):
            sums.append(combine(ADD, arith.select(self._ends(bits, i), neutral(ADD, term.type), sums[-1]), term))
        return sums

    @staticmethod
    def _ends(bits: ir.Value, i: int) -> ir.Value:
        return _compare("ne", arith.andi(bits, _i32(1 << i)), _i32(0))

    def _to_store(self, bits: ir.Value, at: ir.Value) -> ir.Value:
        """The bits of entries that lie in the part."""
        end = arith.minsi(arith.maxsi(_narrow(b.sub(self.last, at)), _i32(0)), _i32(self.items))
        start = arith.maxsi(_narrow(b.sub(self.first, at)), _i32(0))
        return arith.shli(arith.shrui(arith.andi(bits, _below(end)), start), start)

    def _store(self, group: _Group, before: list[ir.Value] | None, values: Values) -> ir.Value:
        """Store each row that ends in the group; `before` is what lanes before this one have of the first of them.

        Returns the rank of the entry after the group.
        """
        rank = group.rank
        for i in range(self.items):
            totals = [own[i] for own in group.sums]
            if before is not None:
                totals = [self._with_before(group.bits, i, total, own) for total, own in zip(totals, before, strict=True)]
            with b.if_then(_compare("ne", arith.andi(group.emit, _i32(1 << i)), _i32(0))):
                self._store_row(memref.load(self.arrays.rows, [stored_index(rank)]), totals, values)
            rank = arith.addi(rank, arith.andi(arith.shrui(group.bits, _i32(i)), _i32(1)))
        return rank

    @staticmethod
    def _with_before(bits: ir.Value, i: int, total: ir.Value, before: ir.Value) -> ir.Value:
        whole = combine(ADD, before, total)
        if i == 0:
            return whole
        return arith.select(_compare("eq", arith.andi(bits, _i32((1 << i) - 1)), _i32(0)), whole, total)

    def _store_row(self, number: ir.Value, totals: list[ir.Value], values: Values) -> None:
        row = stored_index(number)
        branch = scf.IfOp(_compare("eq", number, self.head_row), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            for k, total in enumerate(totals):
                self.pieces.add(k, total, row, HEAD, values)
            scf.yield_([])
        with ir.InsertionPoint(branch.else_block):
            for k, total in enumerate(totals):
                self.sums.store(k, total, row, values)
            scf.yield_([])

    # --- What lanes tell each other -----------------------------------------------------------------------

    def _scan(
        self, group: _Group, base: ir.Value, at: ir.Value, lane: ir.Value, carried: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """What the lanes before this one, and the steps before, have of the row of its first entry; and what goes on."""
        heads = self._lanes_with_ends(base)
        none = _compare("eq", heads, _i32(0))
        none_before = _compare("eq", arith.andi(heads, _below(_narrow(lane))), _i32(0))
        inside = arith.cmpi(arith.CmpIPredicate.ult, at, self.last)
        befores, afters = [], []
        for tail, zero, carry in zip(group.tails, self.zeros, carried, strict=True):
            before, total = segmented_scan(arith.select(inside, tail, zero), heads, ADD, WARP)
            befores.append(arith.select(none_before, combine(ADD, carry, before), before))
            afters.append(arith.select(none, combine(ADD, carry, total), total))
        return befores, afters

    def _lanes_with_ends(self, base: ir.Value) -> ir.Value:
        """A bit for each lane of the step at entry `base`, those past the part left out: whether a row ends in its group."""
        lanes, i64 = self.arrays.lanes, ir.IntegerType.get_signless(64)
        assert lanes is not None, "lanes that share entries have the array"
        group = b.div(base, b.index(self.items))
        word = b.div(group, b.index(_WORD))
        low, high = (arith.extui(i64, memref.load(lanes, [w])) for w in (word, b.add(word, b.index(1))))
        both = arith.ori(low, arith.shli(high, arith.constant(i64, _WORD)))
        shift = arith.index_cast(i64, b.rem(group, b.index(_WORD)))
        taken = b.ceildiv(b.sub(self.last, base), b.index(self.items))
        count = arith.index_cast(i64, arith.minui(taken, b.index(WARP)))
        one = arith.constant(i64, 1)
        mask = arith.subi(arith.shli(one, count), one)
        return arith.trunci(ir.IntegerType.get_signless(32), arith.andi(arith.shrui(both, shift), mask))


class _Terms:
    """What the entries of a group add to the sums."""

    def __init__(self, sums: RowSums, items: int) -> None:
        self.sums, self.items, self.entries = sums, items, sums.entries
        self.loads = [op for op in body_ops(self.entries.body) if reads_entry(op, self.entries.iv)] if items > 1 else []
        self.added = [self._added(k) for k in range(len(self.entries.initial))]

    def _added(self, which: int) -> tuple[ir.OpView, ir.Value] | None:
        """The op that adds a term to sum number `which` as the last thing, and the term; None where loops add more."""
        carried = self.entries.body.arguments[1 + which]
        op = defining_op(yielded(self.entries.body)[which])
        if op is None or op_name(op) != ADD or carried not in op.operands or len(list(carried.uses)) != 1:
            return None
        return op, op.operands[1 if op.operands[0] == carried else 0]

    def of(self, at: ir.Value, last: ir.Value, values: Values) -> list[list[ir.Value]]:
        """The terms by sum and entry; entries past `last`, the end of the part, are read as the one before it."""
        around = self.sums.around_entries(values)
        final = b.sub(last, b.index(1))
        places = [at if i == 0 else arith.minui(b.add(at, b.index(i)), final) for i in range(self.items)]
        loaded = self._loaded(at, places, around) if self.loads else [{} for _ in places]
        terms = [self._terms(place, {**around, **own}) for place, own in zip(places, loaded, strict=True)]
        return [list(own) for own in zip(*terms, strict=True)]

    def _terms(self, place: ir.Value, values: Values) -> list[ir.Value]:
        carried = list(self.entries.body.arguments)[1:]
        values = {**values, self.entries.iv: place}
        if any(added is None for added in self.added):
            values |= {c: neutral(ADD, c.type) for c in carried}
        skipped = [*(load for load in self.loads), *(added[0] for added in self.added if added is not None)]
        values = clone_ops([op for op in body_ops(self.entries.body) if op not in skipped], values)
        ends = yielded(self.entries.body)
        return [
            values.get(v, v)
            for v in (added[1] if added is not None else end for added, end in zip(self.added, ends, strict=True))
        ]

    def _loaded(self, at: ir.Value, places: list[ir.Value], values: Values) -> list[Values]:
        """What each entry loads: by vectors, or one by one where a vector would reach past the end of the arrays.

        Either way vectors come out: LLVM would make scalar loads of vectors of which it sees the elements taken.
        """
        vectors = [(load, start) for load in self.loads for start in range(0, self.items, self._width(load))]
        types = [ir.VectorType.get([self._width(load)], load.results[0].type) for load, _ in vectors]
        length = memref.dim(self.sums.compute(accessed(self.loads[0]), dict(values)), b.index(0))
        whole = arith.cmpi(arith.CmpIPredicate.ule, b.add(at, b.index(self.items)), length)
        branch = scf.IfOp(whole, types, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            scf.yield_([self._vector(load, at, start, values) for load, start in vectors])
        with ir.InsertionPoint(branch.else_block):
            scf.yield_([self._one_by_one(load, places[start : start + self._width(load)], values) for load, start in vectors])
        found: list[Values] = [{} for _ in places]
        for (load, start), loaded in zip(vectors, branch.results, strict=True):
            for i in range(self._width(load)):
                found[start + i][load.results[0]] = vector.extract(loaded, [], [i])
        return found

    def _width(self, load: ir.OpView) -> int:
        """Entries of one vector."""
        return min(self.items, _LOAD_BYTES // _bytes(load.results[0].type))

    def _vector(self, load: ir.OpView, at: ir.Value, start: int, values: Values) -> ir.Value:
        element, width = load.results[0].type, self._width(load)
        buffer = self.sums.compute(accessed(load), dict(values))
        place = [b.add(at, b.index(start)) if start else at]
        loaded = vector.LoadOp(ir.VectorType.get([width], element), buffer, place, alignment=width * _bytes(element))
        if "nontemporal" in load.attributes:
            loaded.operation.attributes["nontemporal"] = load.attributes["nontemporal"]
        return loaded.result

    def _one_by_one(self, load: ir.OpView, places: list[ir.Value], values: Values) -> ir.Value:
        elements = [clone_ops([load], {**values, self.entries.iv: place})[load.results[0]] for place in places]
        return vector.from_elements(ir.VectorType.get([len(elements)], load.results[0].type), elements)


# --- Small steps ------------------------------------------------------------------------------------------


def segmented_scan(value: ir.Value, heads: ir.Value, kind: str, lanes: int) -> tuple[ir.Value, ir.Value]:
    """`ditto.segmented_scan`: what lanes before this one have of its run, and what the last run is left with."""
    attributes = {"kind": ir.StringAttr.get(kind), "lanes": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), lanes)}
    op = ir.Operation.create(
        "ditto.segmented_scan", results=[value.type, value.type], operands=[value, heads], attributes=attributes
    )
    return op.results[0], op.results[1]


def popcount(word: ir.Value) -> ir.Value:
    """How many bits of a 32-bit word are set: the form that LLVM knows and makes one instruction of."""
    pairs = arith.subi(word, arith.andi(arith.shrui(word, _i32(1)), _i32(0x55555555)))
    fours = arith.addi(arith.andi(pairs, _i32(0x33333333)), arith.andi(arith.shrui(pairs, _i32(2)), _i32(0x33333333)))
    bytes_ = arith.andi(arith.addi(fours, arith.shrui(fours, _i32(4))), _i32(0x0F0F0F0F))
    return arith.shrui(arith.muli(bytes_, _i32(0x01010101)), _i32(24))


def _i32(number: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(32), number)


def _narrow(value: ir.Value) -> ir.Value:
    """An index that fits as a 32-bit number."""
    return arith.index_cast(ir.IntegerType.get_signless(32), value)


def _below(number: ir.Value) -> ir.Value:
    """The word whose bits below `number` (at most 31) are set."""
    return arith.subi(arith.shli(_i32(1), number), _i32(1))


def _bytes(type_: ir.Type) -> int:
    return 8 if isinstance(type_, ir.IndexType) else int(type_.width) // 8


def _compare(predicate: str, x: ir.Value, y: ir.Value) -> ir.Value:
    return arith.cmpi(getattr(arith.CmpIPredicate, predicate), x, y)


def _mark(result: ir.Value) -> None:
    result.owner.attributes["ditto.unrolled"] = ir.UnitAttr.get()
