"""`accumulate-wide`: carry sums in a wider type than the values have, and round once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, memref, scf

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, defining_op, op_name, walk
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.initial import constant_of
from sparseditto.passes.nest import LoopNest, accessed, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, combiner_of, is_zero, neutral, yielded


@register
@dataclass(frozen=True)
class AccumulateWide(SchedulePass):
    """Compute what a nest adds up in `type`, from the loads of its values to the store of the sum, which rounds once.

    Products of two f32 values are exact in f64.  An initial value that is read is added after the sum.

    Before::

        %y0 = memref.load %y[%i]
        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %y0) -> (f32) {
          %v = memref.load %val[%p]
          ...
          %t = arith.mulf %v, %b : f32
          %n = arith.addf %a, %t : f32
          scf.yield %n : f32
        }
        memref.store %s, %y[%i]

    After::

        %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) -> (f64) {
          %v = memref.load %val[%p]
          %w = arith.extf %v : f32 to f64
          ...
          %t = arith.mulf %w, %b : f64
          %n = arith.addf %a, %t : f64
          scf.yield %n : f64
        }
        %y0 = memref.load %y[%i]
        %start = arith.extf %y0 : f32 to f64
        %all = arith.addf %start, %s : f64
        %r = arith.truncf %all : f64 to f32
        memref.store %r, %y[%i]

    Leaves alone: the loops, and which thread does what, which later passes choose.
    Refuses: sums that are as wide already; combinations other than sums; outputs of 16 bits; a nest that is scheduled further.
    Passes that cut rows refuse what it leaves: each piece of a row would be rounded.
    """

    name: ClassVar[str] = "accumulate-wide"
    relieves = (Bottleneck.ROUNDING,)
    consumes = (Resource.REGISTERS,)
    requires = (Form.ROWS, Form.REGISTER_ACCUMULATION)
    excludes = (
        Form.THREADS,
        Form.TILES,
        Form.VECTORS,
        Form.JAMMED,
        Form.UNROLLED,
        Form.LANE_LOADS,
        Form.SEGMENTS,
        Form.MIRRORED,
        Form.BINS,
        Form.LISTED,
    )

    type: str = option("the type that sums are carried in", default="f64", choices=("f64",))

    def run(self, nest: LoopNest, target: Target) -> None:
        if not nest.reductions:
            raise NotApplicable("there is no reduction", where=self.name)
        if any(combiner_of(loop) != "arith.addf" for loop in nest.reductions):
            raise NotApplicable("only sums are carried in a wider type", where=self.name)
        if nest.fill is not None and constant_of(nest.fill) is None:
            raise NotApplicable(
                f"rows that are left out keep the scaled value in {nest.output.type.element_type}, so it would be rounded "
                "before the sum is added; store all rows (csr)",
                where=self.name,
            )
        element = nest.output.type.element_type
        if element.width < 32:
            raise NotApplicable(
                f"an output in {element} shows nothing of what f64 adds to sums in f32; take an f32 output", where=self.name
            )
        strange = next((op for op in walk(nest.outer.op) if not _is_known(op)), None)
        if strange is not None:
            raise NotApplicable(f"'{op_name(strange)}' has no wider form here; widen first, then schedule", where=self.name)
        wide = ir.F64Type.get()
        carried = nest.reductions[0].initial[0].type
        if carried.width >= wide.width:
            raise NotApplicable(f"sums are carried in {carried} already", where=self.name)
        widen = _Widen(nest, wide)
        with ir.InsertionPoint(nest.outer.op):
            widen.loop(nest.outer.op, {})
        nest.outer.op.operation.erase()


class _Widen:
    """Clones ops with their floating-point arithmetic in another type; `values` maps to values of that type."""

    def __init__(self, nest: LoopNest, type_: ir.Type) -> None:
        self.output, self.type = nest.output, type_

    def ops(self, ops: Sequence[ir.OpView], values: Values) -> Values:
        values = dict(values)
        for op in ops:
            name = op_name(op)
            if name == "scf.for":
                values.update(zip(op.results, self.loop(op, values), strict=True))
            elif name == "scf.if":
                values.update(zip(op.results, self.condition(op, values), strict=True))
            elif name == "memref.store":
                self.store(op, values)
            elif name == "memref.load" and root_buffer(accessed(op)) == self.output:
                continue  # read where it is used: the sum comes first
            elif name in ("arith.extf", "arith.truncf"):
                values[op.results[0]] = self.value(op.operands[0], values)
            elif any(_is_float(v) for v in (*op.operands, *op.results)):
                values[op.results[0]] = self.arithmetic(op, values)
            else:
                values.update(zip(op.results, clone_into(op, values).results, strict=True))
        return values

    def value(self, old: ir.Value, values: Values) -> ir.Value:
        """A value of the nest in the wider type; one from outside, and the output's old value, are widened here."""
        if old in values or not _is_float(old):
            return values.get(old, old)
        op = defining_op(old)
        if op is not None and op_name(op) == "arith.constant":
            return arith.constant(self.type, float(ir.FloatAttr(op.attributes["value"]).value))
        if op is not None and op_name(op) == "memref.load":
            old = clone_into(op, values).results[0]
        return b.convert(old, self.type)

    def arithmetic(self, op: ir.OpView, values: Values) -> ir.Value:
        if op_name(op) == "memref.load":
            return b.convert(clone_into(op, values).results[0], self.type)
        if op_name(op) == "arith.constant":
            return self.value(op.results[0], values)
        new = ir.Operation.create(
            op_name(op),
            results=[self.type if _is_float(r) else r.type for r in op.results],
            operands=[self.value(v, values) for v in op.operands],
            attributes={a: op.attributes[a] for a in op.attributes},
        )
        return new.results[0]

    def store(self, op: ir.OpView, values: Values) -> None:
        value, buffer, *at = op.operands
        rounded = b.convert(self.value(value, values), buffer.type.element_type)
        memref.store(rounded, buffer, [values.get(v, v) for v in at])

    def loop(self, op: ir.OpView, values: Values) -> list[ir.Value]:
        lower, upper, step, *initial = op.operands
        bounds = [values.get(v, v) for v in (lower, upper, step)]
        block = op.regions[0].blocks[0]
        iv, *carried = block.arguments
        early = [v in values or _is_constant(v) for v in initial]  # else read after the loop, and added to the sum
        starts = [
            self.value(v, values) if known else neutral("arith.addf", self.type)
            for v, known in zip(initial, early, strict=True)
        ]

        def body(index: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            inner = self.ops(body_ops(block), {**values, iv: index, **dict(zip(carried, sums, strict=True))})
            return [self.value(v, inner) for v in yielded(block)]

        results = b.for_loop(bounds[0], bounds[1], bounds[2], starts, body)
        return [
            total if known else self._added(self.value(v, values), total)
            for v, known, total in zip(initial, early, results, strict=True)
        ]

    @staticmethod
    def _added(initial: ir.Value, total: ir.Value) -> ir.Value:
        return total if is_zero(initial) else arith.addf(initial, total)

    def condition(self, op: ir.OpView, values: Values) -> list[ir.Value]:
        blocks = [block for region in op.regions for block in region]
        types = [self.type if _is_float(r) else r.type for r in op.results]
        new = scf.IfOp(values.get(op.operands[0], op.operands[0]), types, has_else=len(blocks) > 1)
        for old, region in zip(blocks, new.regions, strict=False):
            with ir.InsertionPoint(region.blocks[0]):
                inner = self.ops(body_ops(old), values)
                scf.yield_([self.value(v, inner) for v in yielded(old)])
        return list(new.results)


def _is_known(op: ir.OpView) -> bool:
    """Whether an op has a wider form, or nothing that would be widened."""
    types = [v.type for v in (*op.operands, *op.results)]
    if any(isinstance(t, ir.VectorType) for t in types):
        return False
    floats = any(isinstance(t, ir.FloatType) for t in types)
    if op_name(op) == "arith.bitcast":
        return False
    return not floats or op_name(op).startswith(("arith.", "math.", "scf.")) or op_name(op) in ("memref.load", "memref.store")


def _is_float(value: ir.Value) -> bool:
    return isinstance(value.type, ir.FloatType)


def _is_constant(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and op_name(op) == "arith.constant"
