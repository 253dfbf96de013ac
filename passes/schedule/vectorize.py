"""`vectorize`: each thread computes several neighbouring columns of the output with vector loads and stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, memref, scf, vector

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import clone_into, op_name
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.columns import Neighbours
from sparseditto.passes.nest import LoopNest, Slices
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, body_ops, require_plain, yielded
from sparseditto.passes.work import Work

_ELEMENTWISE = ("arith.", "math.")


@register
@dataclass(frozen=True)
class Vectorize(SchedulePass):
    """Step the dense column loop by `width` and compute on vectors.

    Rows of the dense operands must be a whole number of vectors long, so that every vector is aligned: the number of
    columns is a constant that `width` divides.

    Before::

        scf.for %k = %c0 to %c64 step %c1 {
          ... %v = memref.load %B[%j, %k]
          ... memref.store %s, %C[%i, %k]
        }

    After ``vectorize{width=4}``::

        scf.for %k = %c0 to %c64 step %c4 {
          ... %v = vector.load %B[%j, %k] : memref<?x64xf32>, vector<4xf32>
          ... vector.store %s, %C[%i, %k] : memref<?x64xf32>, vector<4xf32>
        }

    Leaves alone: what does not depend on the column; it is broadcast where it meets a vector.
    Refuses: a number of columns that is not constant or that `width` does not divide; columns that are read with a stride.
    """

    name: ClassVar[str] = "vectorize"
    relieves = (Bottleneck.ISSUE, Bottleneck.BANDWIDTH)
    consumes = (Resource.REGISTERS,)
    requires = (Form.COLUMNS, Form.REGISTER_ACCUMULATION)
    excludes = (Form.VECTORS, Form.ENTRY_VECTORS, Form.THREADS, Form.MIRRORED)
    provides = (Form.VECTORS,)

    width: int = option("columns a thread", default=4, choices=(1, 2, 4, 8))

    def effect(self, work: Work) -> Work:
        return work._replace(width=self.width)

    def run(self, nest: LoopNest, target: Target) -> None:
        loop = nest.columns[-1]
        require_plain(loop, self.name)
        trips = loop.trip_count
        if trips is None:
            raise NotApplicable("the number of columns is not known; give its size (--size K=…)", where=self.name)
        if trips % self.width:
            raise NotApplicable(f"width {self.width} does not divide {trips} columns", where=self.name)
        if self.width == 1:
            return
        widen = _Widen(self.width, loop.iv, target.load_bytes, self.name)
        widen.check(body_ops(loop.body))
        with ir.InsertionPoint(loop.op):

            def body(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
                widen.ops(body_ops(loop.body), {loop.iv: iv})
                return ()

            b.for_loop(loop.lower, loop.upper, b.index(self.width), [], body)
        loop.op.operation.erase()


class _Widen:
    """Clones ops with every value that depends on the column as a vector."""

    def __init__(self, width: int, column: ir.Value, load_bytes: int, where: str) -> None:
        self.width, self.column, self.load_bytes, self.where = width, column, load_bytes, where
        self.slices = Slices()
        self.neighbours = Neighbours(column, width, self.depends)

    def check(self, ops: list[ir.OpView]) -> None:
        """Refuse, before anything is changed, what cannot be a vector."""
        for op in ops:
            if op_name(op) == "scf.if":
                if self.depends(op.operands[0]) and not self.neighbours.agree(op.operands[0]):
                    raise NotApplicable("a condition depends on the column", where=self.where)
                for region in op.regions:
                    for block in region:
                        self.check(body_ops(block))
            elif op_name(op) == "scf.for":
                if any(self.depends(v) for v in list(op.operands)[:3]):
                    raise NotApplicable("a loop's bounds depend on the column", where=self.where)
                self.check(body_ops(op.regions[0].blocks[0]))
            elif any(self.depends(v) for v in op.operands):
                self._check_op(op)

    def _check_op(self, op: ir.OpView) -> None:
        name = op_name(op)
        if any(self.neighbours.beside(result) or self.neighbours.agree(result) for result in op.results):
            return  # stays one number
        if name in ("arith.addi", "arith.cmpi") and isinstance(op.operands[0].type, ir.IndexType):
            raise NotApplicable(f"tiles of columns do not begin with a whole vector of {self.width}", where=self.where)
        if name in ("memref.load", "memref.store", "memref.atomic_rmw"):
            at = list(op.operands)[1 if name == "memref.load" else 2 :]
            if any(self.depends(v) for v in at) and (
                not self.neighbours.beside(at[-1]) or any(self.depends(v) for v in at[:-1])
            ):
                raise NotApplicable("columns are not read one beside the other", where=self.where)
        elif not name.startswith(_ELEMENTWISE) or any(isinstance(v.type, ir.IndexType) for v in op.operands):
            raise NotApplicable(f"'{name}' of the column has no vector form", where=self.where)

    def depends(self, value: ir.Value) -> bool:
        return self.column.owner in self.slices.blocks(value)

    def ops(self, ops: list[ir.OpView], values: Values) -> Values:
        for op in ops:
            values = self._op(op, values)
        return values

    def _op(self, op: ir.OpView, values: Values) -> Values:
        name, operands = op_name(op), [values.get(v, v) for v in op.operands]
        if name == "scf.for":
            return {**values, **dict(zip(op.results, self._loop(op, operands, values), strict=True))}
        if name == "scf.if":
            return {**values, **dict(zip(op.results, self._condition(op, operands[0], values), strict=True))}
        if name == "memref.atomic_rmw":
            self._atomic(op, operands)
            return values
        wide = name in ("memref.load", "memref.store") and self.neighbours.beside(list(op.operands)[-1])
        if wide and name == "memref.load":
            return {**values, op.results[0]: self._access(vector.LoadOp, operands, self.vector(op.results[0].type)).result}
        if wide:
            self._access(vector.StoreOp, [self.broadcast(operands[0]), *operands[1:]])
            return values
        if any(isinstance(v.type, ir.VectorType) for v in operands):
            results = [self.vector(r.type) for r in op.results]
            new = ir.Operation.create(
                name,
                results=results,
                operands=[self.broadcast(v) for v in operands],
                attributes={a: op.attributes[a] for a in op.attributes},
            )
        else:
            new = clone_into(op, values)
        return {**values, **dict(zip(op.results, new.results, strict=True))}

    def _access(self, op: type, operands: list[ir.Value], result: ir.Type | None = None) -> ir.OpView:
        element = (result or operands[0].type).element_type
        size = min(self.load_bytes, self.width * element.width // 8)
        if result is not None:
            return op(result, operands[0], operands[1:], alignment=size)
        return op(operands[0], operands[1], operands[2:], alignment=size)

    def _condition(self, op: ir.OpView, condition: ir.Value, values: Values) -> list[ir.Value]:
        blocks = [block for region in op.regions for block in region]
        types = [self.vector(r.type) if self.depends(r) else r.type for r in op.results]
        new = scf.IfOp(condition, types, has_else=len(blocks) > 1)
        for old, region in zip(blocks, new.regions, strict=False):
            with ir.InsertionPoint(region.blocks[0]):
                inner = self.ops(body_ops(old), values)
                given = [inner.get(v, v) for v in yielded(old)]
                scf.yield_(
                    [self.broadcast(v) if isinstance(t, ir.VectorType) else v for v, t in zip(given, types, strict=True)]
                )
        return list(new.results)

    def _atomic(self, op: ir.OpView, operands: list[ir.Value]) -> None:
        """One update an element: memref has no atomic update of a vector."""
        value, buffer, *at = operands
        for i in range(self.width):
            element = vector.extract(self.broadcast(value), [], [i])
            memref.AtomicRMWOp(op.attributes["kind"], element, buffer, [*at[:-1], b.add(at[-1], b.index(i))])

    def _loop(self, op: ir.OpView, operands: list[ir.Value], values: Values) -> list[ir.Value]:
        block = op.regions[0].blocks[0]

        def body(iv: ir.Value, sums: list[ir.Value]) -> Sequence[ir.Value]:
            carried = dict(zip(list(block.arguments)[1:], sums, strict=True))
            inner = self.ops(body_ops(block), {**values, block.arguments[0]: iv, **carried})
            return [self.broadcast(inner.get(v, v)) for v in yielded(block)]

        results = b.for_loop(operands[0], operands[1], operands[2], [self.broadcast(v) for v in operands[3:]], body)
        for name in op.attributes:  # "ditto.unrolled" must stay
            results[0].owner.attributes[name] = op.attributes[name]
        return results

    def vector(self, element: ir.Type) -> ir.Type:
        return ir.VectorType.get([self.width], element)

    def broadcast(self, value: ir.Value) -> ir.Value:
        if isinstance(value.type, ir.VectorType):
            return value
        source = value.owner
        if not isinstance(source, ir.Block) and op_name(source.opview) == "arith.constant":
            type_ = self.vector(value.type)
            return arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, source.opview.attributes["value"]))
        return vector.broadcast(self.vector(value.type), value)
