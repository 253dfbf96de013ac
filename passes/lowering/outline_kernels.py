"""`outline-kernels`: each loop over blocks becomes a `gpu.func` (S4)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from mlir import ir
from mlir.dialects import arith, gpu, memref, nvvm

from sparseditto.dialects import builders as b
from sparseditto.dialects.binding import argument_attribute, argument_attributes, defining_op, functions, op_name, walk
from sparseditto.dialects.errors import NotApplicable, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, LoweringPass
from sparseditto.passes.nest import KEEP, KERNEL, LOOPS, OVERLAP, STORES, WAITING, LoopNest, root_buffer
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import Values, clone_ops, inline_body

GLOBAL_SPACE = 1
_ARITHMETIC = {
    "arith.addi": "({} + {})",
    "arith.subi": "({} - {})",
    "arith.muli": "({} * {})",
    "arith.divui": "floordiv({}, {})",
    "arith.ceildivui": "ceildiv({}, {})",
    "arith.maxsi": "max({}, {})",
    "arith.minsi": "min({}, {})",
}


@register
@dataclass(frozen=True)
class OutlineKernels(LoweringPass):
    """Make a `gpu.func` of every loop over blocks, with bare pointers, 64-bit sizes and the scalars it reads as arguments.

    The kernel says all that a launch needs: `ditto.grid` holds the number of blocks as size expressions, every argument
    has its `ditto.name`, a pointer its `ditto.shape`, and what the kernel only reads is `llvm.readonly`.
    Buffers keep their order: parts of the sparse operand by level, then operands as the function has them.

    Before::

        func.func @f(%A: tensor<?x?xf32, #CSR>, %x: memref<?xf32>, %y: memref<?xf32>) {
          scf.forall (%b) in (%blocks) {
            scf.forall (%t) in (128) {
              ...
            } {mapping = [#gpu.thread<linear_dim_0>]}
          } {mapping = [#gpu.block<linear_dim_0>]}

    After::

        gpu.module @kernels [#nvvm.target<...>] {
          gpu.func @f(%pos: memref<1xi32, 1> {ditto.name = "A.positions1", llvm.readonly, ...}, ..., %m: i64 {...}) kernel
              attributes {ditto.grid = ["ceildiv(A.lvl0, 128)", "1", "1"], known_block_size = array<i32: 128, 1, 1>} {
            %b = gpu.block_id x
            %t = gpu.thread_id x
            ...
            gpu.return

    A function with several such loops gives several kernels, launched in order.

    Refuses: a nest that is not mapped to blocks, and a `linalg.fill` that is left.
    """

    name: ClassVar[str] = "outline-kernels"
    kind = Kind.LOWERING

    def apply(self, module: ir.Module, target: Target) -> None:
        funcs = functions(module)
        with module.context, ir.Location.unknown():
            outlines = [_Outline(nest, self.name) for func in funcs for nest in LoopNest.read_each(func, self.name)]
            if not outlines:
                raise NotApplicable("there is no function with a body", where=self.name)
            module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
            text = f'gpu.module @kernels [#nvvm.target<chip = "{target.chip}", features = "{target.features}", O = 3>] {{}}'
            gpu_module = ir.Operation.parse(text)
            module.body.append(gpu_module)
            for outline in outlines:
                with ir.InsertionPoint(gpu_module.regions[0].blocks[0]):
                    outline.build()
            for func in funcs:
                func.operation.erase()


@dataclass
class _Argument:
    """A kernel argument: the host values that it stands for, and how it is passed."""

    name: str
    type: ir.Type
    attributes: dict[str, ir.Attribute] = field(default_factory=dict)


class _Outline:
    """One function's nest on its way to a kernel; everything is decided before any IR is made."""

    def __init__(self, nest: LoopNest, where: str) -> None:
        self.func, self.where, self.nest = nest.func, where, nest
        if WAITING in self.nest.outer.op.attributes:
            raise NotApplicable("a part of the matrix waits for its schedule; add next-part and what it needs", where=where)
        block_loops = self.nest.mapped("block")
        if self.nest.outer not in block_loops or not self.nest.mapped("thread"):
            raise NotApplicable("the nest is not mapped to blocks of threads; add map-blocks", where=where)
        if self.nest.fill is not None:
            raise NotApplicable("the output's fill is left; lower-fill makes a kernel of it", where=where)
        self.block_loop, self.thread_loop = self.nest.outer, self.nest.mapped("thread")[0]
        self.names = _argument_names(nest.func)
        self.inside = list(walk(self.block_loop.op))
        self.captured = self._captured()
        self.written = {root_buffer(op.operands[1]) for op in self.inside if op_name(op) in STORES}
        self.buffers = self._ordered_buffers()
        self.sizes: list[str] = []
        self.shapes = {buffer: self._shape(buffer) for buffer in self.buffers}
        extent = self.block_loop.extent
        self.grid = self.expression(self.block_loop.op.operands[0]) if extent is None else str(extent)
        for value in self._captured_indices():
            self.expression(value)
        read = self._scalars_read()
        self.scalars = [a for a in nest.func.regions[0].blocks[0].arguments if a in read]

    def _captured(self) -> list[ir.Value]:
        """Values from outside that the nest uses, in order of first use."""
        inner = {op.operation for op in self.inside} | {self.block_loop.op.operation}
        seen: dict[ir.Value, None] = {}
        for op in self.inside:
            for value in op.operands:
                owner = value.owner
                parent = owner.owner.operation if isinstance(owner, ir.Block) else owner.operation
                if parent not in inner:
                    seen.setdefault(value)
        return list(seen)

    def _captured_indices(self) -> list[ir.Value]:
        return [v for v in self.captured if isinstance(v.type, ir.IndexType)]

    def _scalars_read(self) -> set[ir.Value]:
        """The scalar arguments of the function that captured values are computed from."""
        seen: set[ir.Value] = set()
        todo = [v for v in self.captured if isinstance(v.type, (ir.FloatType, ir.IntegerType))]
        while todo:
            value = todo.pop()
            op = defining_op(value)
            if op is None and isinstance(value.type, ir.FloatType):
                seen.add(value)
            elif op is not None:
                todo += op.operands
        return seen

    def _ordered_buffers(self) -> list[ir.Value]:
        order = {"sparse_tensor.positions": 0, "sparse_tensor.coordinates": 1, "sparse_tensor.values": 2}

        def key(buffer: ir.Value) -> tuple[int, int, int]:
            op = defining_op(buffer)
            if op is None:
                return (1, buffer.arg_number, 0)
            level = int(ir.IntegerAttr(op.attributes["level"]).value) if "level" in op.attributes else 1 << 16
            return (0, level, order[op_name(op)])

        roots = {root_buffer(v) for v in self.captured if isinstance(v.type, ir.MemRefType)}
        for root in roots:
            op = defining_op(root)
            if op is not None and op_name(op) not in order:
                raise Unsupported(f"a buffer made by '{op_name(op)}' cannot be passed to a kernel", where=self.where)
        return sorted(roots, key=key)

    def buffer_name(self, buffer: ir.Value) -> str:
        op = defining_op(buffer)
        if op is None:
            return self.names[buffer.arg_number]
        part = op_name(op).removeprefix("sparse_tensor.")
        level = str(ir.IntegerAttr(op.attributes["level"]).value) if "level" in op.attributes else ""
        return f"{self.tensor_name(op.operands[0])}.{part}{level}"

    def tensor_name(self, tensor: ir.Value) -> str:
        op = defining_op(tensor)
        while op is not None and op_name(op) == "sparse_tensor.reinterpret_map":
            tensor = op.operands[0]
            op = defining_op(tensor)
        if op is not None:
            raise Unsupported("a sparse tensor that is no argument cannot be passed to a kernel", where=self.where)
        return self.names[tensor.arg_number]

    def _shape(self, buffer: ir.Value) -> list[str]:
        op, name = defining_op(buffer), self.buffer_name(buffer)
        if op is not None:
            return [self.size(f"{name}.length")]
        dynamic = ir.ShapedType.get_dynamic_size()
        return [self.size(f"{name}.dim{k}") if n == dynamic else str(n) for k, n in enumerate(buffer.type.shape)]

    def size(self, name: str) -> str:
        if name not in self.sizes:
            self.sizes.append(name)
        return name

    def expression(self, value: ir.Value) -> str:
        """A host index as a size expression; registers the sizes that it needs."""
        op = defining_op(value)
        name = op_name(op) if op is not None else ""
        if op is None:
            raise Unsupported("an index argument of the function is not supported", where=self.where)
        if (number := b.known(value)) is not None:
            return str(number)
        if name in _ARITHMETIC:
            return _ARITHMETIC[name].format(*(self.expression(v) for v in op.operands))
        if name in ("sparse_tensor.lvl", "tensor.dim"):
            which = "lvl" if name == "sparse_tensor.lvl" else "dim"
            return self.size(f"{self.tensor_name(op.operands[0])}.{which}{b.known(op.operands[1])}")
        if name == "memref.dim":
            return self._shape(root_buffer(op.operands[0]))[b.known(op.operands[1]) or 0]
        raise Unsupported(f"'{name}' cannot be computed before the launch", where=self.where)

    def build(self) -> None:
        arguments = [self._pointer(buffer) for buffer in self.buffers]
        i64 = ir.IntegerType.get_signless(64)
        arguments += [_Argument(name, i64, {"ditto.name": ir.StringAttr.get(name)}) for name in self.sizes]
        for scalar in self.scalars:
            name = self.names[scalar.arg_number]
            arguments.append(_Argument(name, scalar.type, {"ditto.name": ir.StringAttr.get(name)}))
        threads = self.thread_loop.extent
        assert threads is not None, "blocks have a static number of threads"
        attributes = self.block_loop.op.attributes
        suffix = ir.StringAttr(attributes[KERNEL]).value if KERNEL in attributes else ""
        kernel = gpu.GPUFuncOp(
            ir.FunctionType.get([a.type for a in arguments], []),
            re.sub(r"\W", "_", ir.StringAttr(self.func.attributes["sym_name"]).value, flags=re.ASCII) + suffix,
            arg_attrs=[a.attributes for a in arguments],
            kernel=True,
            known_block_size=[threads, 1, 1],
        )
        grid = [ir.StringAttr.get(e) for e in (self.grid, "1", "1")]
        kernel.operation.attributes["ditto.grid"] = ir.ArrayAttr.get(grid)
        kept = [i for i, buffer in enumerate(self.buffers) if argument_attribute(buffer, KEEP) and buffer not in self.written]
        if kept:
            kernel.operation.attributes[KEEP] = ir.DenseI32ArrayAttr.get(kept)
        for name in ("nvvm.minctasm", "nvvm.maxnreg"):
            if name in attributes:
                kernel.operation.attributes[name] = attributes[name]
        overlaps = OVERLAP in self.func.attributes
        if overlaps:
            kernel.operation.attributes[OVERLAP] = ir.UnitAttr.get()
        entry = kernel.add_entry_block()
        with ir.InsertionPoint(entry):
            if overlaps:
                nvvm.griddepcontrol(nvvm.GridDepActionKind.wait)
                nvvm.griddepcontrol(nvvm.GridDepActionKind.launch_dependents)
            values = self._prologue(list(entry.arguments))
            values[self.block_loop.iv] = gpu.block_id(gpu.Dimension.x)
            values[self.thread_loop.iv] = gpu.thread_id(gpu.Dimension.x)
            self._body(values)
            gpu.ReturnOp([])

    def _body(self, values: Values) -> None:
        """The loop over blocks holds the loop over threads, and before it arithmetic, which each thread then does itself."""
        for op in self.block_loop.body.operations:
            if op == self.thread_loop.op:
                inline_body(self.thread_loop, values)
            elif op_name(op).startswith("arith."):
                values = clone_ops([op], values)
            elif op_name(op) not in (*LOOPS, "scf.forall.in_parallel"):
                raise Unsupported(f"'{op_name(op)}' between blocks and threads", where=self.where)

    def _pointer(self, buffer: ir.Value) -> _Argument:
        name = self.buffer_name(buffer)
        attributes: dict[str, ir.Attribute] = {
            "ditto.name": ir.StringAttr.get(name),
            "ditto.shape": ir.ArrayAttr.get([ir.StringAttr.get(s) for s in self.shapes[buffer]]),
            "llvm.noalias": ir.UnitAttr.get(),
            "llvm.align": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 16),
        }
        recipe = argument_attribute(buffer, "ditto.recipe")
        if recipe is not None:
            attributes["ditto.recipe"] = recipe
        if buffer not in self.written:
            attributes["llvm.readonly"] = ir.UnitAttr.get()
        else:
            reads = any(
                op_name(op) in ("memref.load", "vector.load", "memref.atomic_rmw") and buffer in map(root_buffer, _memrefs(op))
                for op in self.inside
            )
            attributes["ditto.access"] = ir.StringAttr.get("readwrite" if reads else "write")
        type_ = ir.MemRefType.get([1], buffer.type.element_type, memory_space=_global_space())
        return _Argument(name, type_, attributes)

    def _prologue(self, arguments: list[ir.Value]) -> Values:
        """Give pointers their shapes, make indices of sizes, and compute what the nest takes from outside."""
        first, last = len(self.buffers), len(self.buffers) + len(self.sizes)
        pointers, numbers = arguments[:first], arguments[first:last]
        index = ir.IndexType.get()
        known = {name: arith.index_cast(index, n) for name, n in zip(self.sizes, numbers, strict=True)}
        values: Values = dict(zip(self.scalars, arguments[last:], strict=True))
        for buffer, pointer in zip(self.buffers, pointers, strict=True):
            values[buffer] = _with_shape(pointer, buffer.type, self.shapes[buffer], known)
        for value in self.captured:
            self._recompute(value, values, known)
        return values

    def _recompute(self, value: ir.Value, values: Values, known: dict[str, ir.Value]) -> ir.Value:
        """A host value inside the kernel."""
        if value in values:
            return values[value]
        op = defining_op(value)
        if op is None:
            raise Unsupported(f"the kernel reads an argument of type {value.type}; scalars are f32 or f64", where=self.where)
        if isinstance(value.type, ir.MemRefType):
            values[value] = self._recompute(root_buffer(value), values, known)
        elif op_name(op) in ("sparse_tensor.lvl", "tensor.dim", "memref.dim"):
            text = self.expression(value)
            values[value] = known[text] if text in known else b.index(int(text))
        else:
            inputs = {v: self._recompute(v, values, known) for v in op.operands}
            new = op.operation.clone()
            for i, v in enumerate(op.operands):
                new.operands[i] = inputs[v]
            values[value] = new.results[0]
        return values[value]


def _memrefs(op: ir.OpView) -> list[ir.Value]:
    return [v for v in op.operands if isinstance(v.type, ir.MemRefType)]


def _global_space() -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), GLOBAL_SPACE)


def _with_shape(pointer: ir.Value, type_: ir.MemRefType, shape: list[str], known: dict[str, ir.Value]) -> ir.Value:
    """`memref.reinterpret_cast` of a bare pointer to a contiguous row-major memref of `shape`."""
    dynamic, stride_mark = ir.ShapedType.get_dynamic_size(), ir.ShapedType.get_dynamic_stride_or_offset()
    static_sizes = list(type_.shape)
    sizes = [known[s] for s, n in zip(shape, static_sizes, strict=True) if n == dynamic]
    strides: list[ir.Value] = []
    stride: ir.Value = b.index(1)
    for k in reversed(range(len(shape))):
        strides.insert(0, stride)
        extent = known[shape[k]] if static_sizes[k] == dynamic else b.index(static_sizes[k])
        stride = b.mul(extent, stride) if k else stride
    static_strides = [b.known(s) if b.known(s) is not None else stride_mark for s in strides]
    result = ir.MemRefType.get(static_sizes, type_.element_type, memory_space=_global_space())
    return memref.reinterpret_cast(
        result, pointer, [], sizes, [s for s in strides if b.known(s) is None], [0], static_sizes, static_strides
    )


def _argument_names(func: ir.OpView) -> list[str]:
    """`ditto.name` of each argument, else its place."""
    names = []
    for i, attributes in enumerate(argument_attributes(func)):
        name = attributes.get("ditto.name")
        names.append(ir.StringAttr(name).value if name is not None else f"arg{i}")
    return names
