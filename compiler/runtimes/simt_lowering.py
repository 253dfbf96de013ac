"""From `gpu.func` to host code that the fiber runtime can run.

Each kernel becomes one `func.func` over bare pointers and scalars.  Its shared memory, the worker that runs it
and its thread's ids arrive as further arguments; barriers and shuffles become calls into the runtime, and so
does, before each access to memory, the check of that access.  Loads, stores and atomics themselves stay what
they are (`simt_operations.py` says which these are, and refuses what has no host form).  The operations are
moved, not copied: the source module is used up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlir import ir
from mlir.dialects import arith, func, memref, vector
from mlir.passmanager import PassManager

from sparseditto.compiler.runtimes.simt_host import Host, to_llvm
from sparseditto.compiler.runtimes.simt_kernel import ELEMENTS, PRIVATE, READ_ONLY, SHARED, Argument, Buffer, Kernel, Site
from sparseditto.compiler.runtimes.simt_operations import (
    ACCESSES,
    MASKED,
    VIEWS,
    global_of,
    place_of,
    refuse,
    vector_of,
    where_in,
)
from sparseditto.dialects.binding import argument_attributes, defining_op, op_name, parse_module, walk
from sparseditto.dialects.errors import InputError, Unsupported

# A kernel's last arguments, all of type index: the worker, then `Ids` of simt.cpp in its order.
IDS = (
    "worker",
    *(f"gpu.{what} {axis}" for what in ("thread_id", "block_id", "block_dim", "grid_dim") for axis in "xyz"),
    "gpu.lane_id",
    "gpu.subgroup_id",
    "dynamic_bytes",
)

_WIDEST = 16  # bytes of one access on a GPU, and so the most that its alignment can matter

_SHUFFLES = {"xor": 0, "up": 1, "down": 2, "idx": 3}

_DIVISIONS = ("divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi")


def lower(text: str, *, checks: bool) -> tuple[ir.Module, tuple[Kernel, ...]]:
    """Lower every `gpu.func` of S4 `text` to the LLVM dialect, one host function each, in a context of its own.

    Raises `InputError` for text that is no S4, `Unsupported` for an operation that has no host form.
    """
    context = ir.Context()
    context.enable_multithreading(False)
    context.allow_unregistered_dialects = True  # so that a stray operation is refused by name below
    with context, ir.Location.unknown():
        source = parse_module(text, "S4")
        if "affine." in text:
            PassManager.parse("builtin.module(lower-affine)").run(source.operation)  # so that accesses look one way
        host = Host(ir.Module.create(), checks)
        kernels = []
        for gpu_module in _named(source.body, "gpu.module"):
            body = gpu_module.regions[0].blocks[0]
            shared = {_symbol(g) for g in _named(body, "memref.global") if _is_shared(ir.TypeAttr(g.attributes["type"]).value)}
            functions = [f for f in _named(body, "gpu.func") if "gpu.kernel" in f.attributes]
            kernels += [_Translation(f, shared, host).run() for f in functions]
        if not kernels:
            raise InputError("there is no gpu.func that is a kernel in this module; the emulator runs S4")
        names = [kernel.name for kernel in kernels]
        if len(set(names)) < len(names):
            raise InputError("two gpu.funcs have one name; the emulator finds kernels by name")
        to_llvm(host.module, bf16="bf16" in text)
    return host.module, tuple(kernels)


def _named(block: ir.Block, name: str) -> list[ir.OpView]:
    return [op for op in block.operations if op_name(op) == name]


def _symbol(op: ir.OpView) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)


def _is_shared(type_: ir.Type) -> bool:
    return str(ir.MemRefType(type_).memory_space) in ("3", "3 : i64", "#gpu.address_space<workgroup>")


def _without_space(type_: ir.Type) -> ir.Type:
    if not isinstance(type_, ir.MemRefType) or type_.memory_space is None:
        return type_
    return ir.MemRefType.get(type_.shape, type_.element_type, layout=type_.layout)


def _elements(type_: ir.MemRefType) -> int:
    """How many elements a memref of static shape spans."""
    strides, offset = type_.get_strides_and_offset()
    if 0 in type_.shape:
        return 0
    return int(offset + sum((size - 1) * stride for size, stride in zip(type_.shape, strides, strict=True)) + 1)


def _vector_bytes(type_: ir.Type) -> int:
    if not isinstance(type_, ir.VectorType):
        return 0
    lanes = 1
    for size in type_.shape:
        lanes *= size
    return lanes * 8


@dataclass
class _Shape:
    """The numbers behind a memref, as values."""

    pointer: ir.Value
    offset: ir.Value
    sizes: list[ir.Value]
    strides: list[ir.Value]


@dataclass
class _Translation:
    """One `gpu.func` on its way."""

    kernel: ir.OpView
    shared_globals: set[str]
    host: Host
    buffers: list[Buffer] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    stack_bytes: int = 0
    _roots: dict[ir.Value, int] = field(default_factory=dict)
    _shapes: dict[ir.Value, _Shape] = field(default_factory=dict)
    _ids: dict[str, ir.Value] = field(default_factory=dict)
    _constants: dict[tuple[str, int], ir.Value] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = _symbol(self.kernel)
        self.entry = self.kernel.regions[0].blocks[0]
        type_ = ir.TypeAttr(self.kernel.attributes["function_type"]).value
        self.declared = len(ir.FunctionType(type_).inputs)  # arguments; shared and private memory follow them

    def run(self) -> Kernel:
        for op in walk(self.kernel):
            refuse(op, self.name, self.shared_globals)
        self._strip_spaces()
        self._place_private()
        arguments = self._bind_arguments()
        self._place_shared()
        self._add_ids()
        for op in walk(self.kernel):
            self._rewrite(op)
        for op in walk(self.kernel):
            self._instrument(op)
        buffers, sites = tuple(self.buffers), tuple(self.sites)
        return Kernel(self.name, self._move(), arguments, buffers, sites, self._block(), self.stack_bytes)

    def _block(self) -> tuple[int, int, int] | None:
        """The block size that the kernel was compiled for."""
        if "known_block_size" not in self.kernel.attributes:
            return None
        x, y, z = ir.DenseI32ArrayAttr(self.kernel.attributes["known_block_size"])
        return x, y, z

    # --- Arguments and memory -----------------------------------------------------------------------

    def _strip_spaces(self) -> None:
        """Forget memory spaces (the host has one) and cache hints, and count what vectors may need when they are spilled."""
        operations = list(walk(self.kernel))
        for op in operations:
            if "nontemporal" in op.attributes:  # LLVM's x86 back end ends the process at such a load of f16
                del op.attributes["nontemporal"]
        blocks = list(self.kernel.regions[0].blocks)
        blocks += [block for op in operations for region in op.regions for block in region.blocks]
        values = [argument for block in blocks for argument in block.arguments]
        values += [result for op in operations for result in op.results]
        for value in values:
            if isinstance(value.type, ir.MemRefType):
                value.set_type(_without_space(value.type))
            self.stack_bytes += 2 * _vector_bytes(value.type)

    def _place_private(self) -> None:
        """Give the thread its own memory at the start, where a loop cannot make it grow."""
        attributes = self.kernel.attributes
        shared = attributes["workgroup_attributions"].value if "workgroup_attributions" in attributes else 0
        with ir.InsertionPoint.at_block_begin(self.entry), self.kernel.location:
            for argument in reversed(list(self.entry.arguments)[self.declared + shared :]):
                argument.replace_all_uses_with(memref.alloca(argument.type, [], []))
                self.entry.erase_argument(argument.arg_number)
        for op in walk(self.kernel):
            if op_name(op) == "memref.alloca":
                op.operation.move_before(self.entry.operations[0])
                self._add_private(op.result)

    def _add_private(self, value: ir.Value) -> None:
        unit, count = self._bytes(value.type), _elements(value.type)
        self.stack_bytes += count * unit + 64
        number = sum(buffer.flags == PRIVATE for buffer in self.buffers)
        self._add_buffer(value, Buffer(f"private{number}", unit, count, PRIVATE))

    def _add_buffer(self, value: ir.Value, buffer: Buffer) -> None:
        self._roots[value] = len(self.buffers)
        self.buffers.append(buffer)

    def _bytes(self, type_: ir.Type) -> int:
        """Bytes of a scalar, or of a memref's element."""
        element = str(type_.element_type if isinstance(type_, ir.MemRefType) else type_)
        if element not in ELEMENTS:
            raise Unsupported(f"the emulator has no elements of type {element}", where=self.name)
        return ELEMENTS[element][0]

    def _bind_arguments(self) -> tuple[Argument, ...]:
        values = list(self.entry.arguments)[: self.declared]
        given = argument_attributes(self.kernel)
        return tuple(self._bind(place, value, given[place]) for place, value in enumerate(values))

    def _bind(self, place: int, value: ir.Value, given: dict[str, ir.Attribute]) -> Argument:
        name = _name(given, f"argument {place}")
        unit = self._bytes(value.type)
        if not isinstance(value.type, ir.MemRefType):
            if str(value.type) in ("f16", "bf16"):
                raise Unsupported(f"{name}: the emulator takes no scalar of type {value.type}", where=self.name)
            return Argument(name, str(value.type), pointer=False)
        if not value.type.has_static_shape:
            raise Unsupported(f"{name} must be a bare pointer such as memref<1xf32, 1>", where=self.name)
        read_only = "llvm.readonly" in given
        align = ir.IntegerAttr(given["llvm.align"]).value if "llvm.align" in given else 1
        self._add_buffer(value, Buffer(name, unit, 0, READ_ONLY if read_only else 0, place))
        return Argument(name, str(value.type.element_type), True, read_only, max(unit, min(align, _WIDEST)))

    def _place_shared(self) -> None:
        """Make each piece of shared memory an argument: workgroup attributions, then globals, then dynamic memory."""
        attributions = list(self.entry.arguments)[self.declared :]
        given = self._attribution_attributes(len(attributions))
        for place, value in enumerate(attributions):
            self._add_shared(value, _name(given[place], f"shared{place}"), _elements(value.type))
        placed: dict[str, ir.Value] = {}
        for op in walk(self.kernel):
            if op_name(op) == "memref.get_global":
                symbol = global_of(op)
                if symbol not in placed:
                    placed[symbol] = self._add_argument(op.result.type)
                    self._add_shared(placed[symbol], f"@{symbol}", _elements(op.result.type))
                self._replace(op, placed[symbol])
        if any(op_name(op) == "gpu.dynamic_shared_memory" for op in walk(self.kernel)):
            self._dynamic = self._add_argument(ir.MemRefType.get([1], ir.IntegerType.get_signless(8)))
            self._add_shared(self._dynamic, "dynamic shared memory", -1)

    def _attribution_attributes(self, count: int) -> list[dict[str, ir.Attribute]]:
        if "workgroup_attrib_attrs" not in self.kernel.attributes:
            return [{}] * count
        attributes = ir.ArrayAttr(self.kernel.attributes["workgroup_attrib_attrs"])
        return [{named.name: named.attr for named in ir.DictAttr(d)} for d in attributes]

    def _add_argument(self, type_: ir.Type) -> ir.Value:
        return self.entry.add_argument(type_, self.kernel.location)

    def _add_shared(self, value: ir.Value, name: str, count: int) -> None:
        self._add_buffer(value, Buffer(name, self._bytes(value.type), count, SHARED))

    def _add_ids(self) -> None:
        for name in IDS:
            self._ids[name] = self._add_argument(self.host.index)

    # --- Rewriting ----------------------------------------------------------------------------------

    def _rewrite(self, op: ir.OpView) -> None:
        """Replace what only a GPU has."""
        name = op_name(op)
        rewrite = self._REWRITES.get(name)
        with ir.InsertionPoint(op), op.location:
            if name in ("gpu.thread_id", "gpu.block_id", "gpu.block_dim", "gpu.grid_dim"):
                self._replace(op, self._ids[f"{name} {_axis(op)}"])
            elif name in ("gpu.lane_id", "gpu.subgroup_id"):
                self._replace(op, self._ids[name])
            elif rewrite is not None:
                rewrite(self, op)
            elif name.startswith("arith.") and name.removeprefix("arith.") in _DIVISIONS:
                self._guard_division(op)

    def _replace(self, op: ir.OpView, *values: ir.Value) -> None:
        for result, value in zip(op.results, values, strict=True):
            result.replace_all_uses_with(value)
        op.operation.erase()

    def _constant(self, type_: ir.Type, value: int) -> ir.Value:
        """An integer constant at the start of the function."""
        key = (str(type_), value)
        if key not in self._constants:
            with ir.InsertionPoint.at_block_begin(self.entry):
                self._constants[key] = arith.constant(type_, value)
        return self._constants[key]

    def _site(self, op: ir.OpView, **facts: Any) -> ir.Value:
        """The number of a new site.  An operation of unknown place is named by its rank among its like."""
        name = op_name(op)
        self._seen[name] = self._seen.get(name, 0) + 1
        self.sites.append(Site(place_of(op.location) or f"{name} #{self._seen[name]}", **facts))
        return self._constant(self.host.i32, len(self.sites) - 1)

    def _global_id(self, op: ir.OpView) -> None:
        axis = _axis(op)
        start = arith.muli(self._ids[f"gpu.block_id {axis}"], self._ids[f"gpu.block_dim {axis}"])
        self._replace(op, arith.addi(start, self._ids[f"gpu.thread_id {axis}"]))

    def _subgroup_size(self, op: ir.OpView) -> None:
        self._replace(op, self._constant(self.host.index, 32))

    def _subgroup_count(self, op: ir.OpView) -> None:
        threads = self._ids["gpu.block_dim x"]
        for axis in "yz":
            threads = arith.muli(threads, self._ids[f"gpu.block_dim {axis}"])
        self._replace(op, arith.ceildivui(threads, self._constant(self.host.index, 32)))

    def _barrier(self, op: ir.OpView) -> None:
        self.host.call("ditto_simt_barrier", [self._ids["worker"], self._site(op)])
        op.operation.erase()

    def _shuffle(self, op: ir.OpView) -> None:
        value, offset, width = op.operands
        mode = str(op.attributes["mode"]).removesuffix(">").split()[-1]
        number = self._constant(self.host.i32, _SHUFFLES[mode])
        packed = self._pack(op, value)
        operands = [self._ids["worker"], self._site(op), number, packed, offset, width]
        result, valid = self.host.call("ditto_simt_shuffle", operands)
        valid = arith.trunci(ir.IntegerType.get_signless(1), valid)
        self._replace(op, self._unpack(value.type, result), valid)

    def _pack(self, op: ir.OpView, value: ir.Value) -> ir.Value:
        type_ = value.type
        if str(type_) not in ELEMENTS:
            raise Unsupported(f"the emulator shuffles scalars, not {type_}", where=where_in(self.name, op))
        if isinstance(type_, ir.IndexType):
            return arith.index_cast(self.host.i64, value)
        bits = ir.IntegerType.get_signless(ELEMENTS[str(type_)][0] * 8)
        if bits != type_:
            value = arith.bitcast(bits, value)
        return value if bits == self.host.i64 else arith.extui(self.host.i64, value)

    def _unpack(self, type_: ir.Type, value: ir.Value) -> ir.Value:
        if isinstance(type_, ir.IndexType):
            return arith.index_cast(type_, value)
        bits = ir.IntegerType.get_signless(ELEMENTS[str(type_)][0] * 8)
        if bits != self.host.i64:
            value = arith.trunci(bits, value)
        return value if bits == type_ else arith.bitcast(type_, value)

    def _dynamic_memory(self, op: ir.OpView) -> None:
        size, dynamic = self._ids["dynamic_bytes"], ir.ShapedType.get_dynamic_size()
        self._replace(op, memref.reinterpret_cast(op.result.type, self._dynamic, [], [size], [], [0], [dynamic], [1]))

    def _same_memory(self, op: ir.OpView) -> None:
        self._replace(op, op.operands[0])

    def _return(self, op: ir.OpView) -> None:
        func.ReturnOp([])
        op.operation.erase()

    def _guard_division(self, op: ir.OpView) -> None:
        """Divide by 1 where the host would trap: by zero (a fault when checks are on), or the least integer by -1."""
        left, right = op.operands
        if _known_divisor(right):
            return
        type_ = right.type
        is_zero = bad = _equals(right, 0)
        if op_name(op).endswith("si"):
            least = -(1 << (_bits(type_) - 1))
            bad = arith.ori(bad, arith.andi(_equals(right, -1), _equals(left, least)))
        op.operation.operands[1] = arith.select(bad, _splat(type_, 1), right)
        if self.host.checks and not isinstance(type_, ir.VectorType):
            flag = arith.extui(self.host.i32, is_zero)
            self.host.call("ditto_simt_divisor", [self._ids["worker"], self._site(op), flag])

    _REWRITES: ClassVar[dict[str, Callable[[_Translation, ir.OpView], None]]] = {
        "gpu.global_id": _global_id,
        "gpu.subgroup_size": _subgroup_size,
        "gpu.num_subgroups": _subgroup_count,
        "gpu.barrier": _barrier,
        "gpu.shuffle": _shuffle,
        "gpu.dynamic_shared_memory": _dynamic_memory,
        "gpu.return": _return,
        "nvvm.griddepcontrol": _replace,
        "memref.assume_alignment": _same_memory,
        "memref.memory_space_cast": _same_memory,
    }

    # --- Checks -------------------------------------------------------------------------------------

    def _instrument(self, op: ir.OpView) -> None:
        """Put the check of an access before it."""
        name = op_name(op)
        if name not in ACCESSES:
            return
        align = 1
        if "alignment" in op.attributes:
            align = min(op.attributes["alignment"].value, _WIDEST)
            del op.attributes["alignment"]  # a claim that host code must not rely on: the check may find it wrong, or be off
        if not self.host.checks:
            return
        _, place = ACCESSES[name]
        buffer = op.operands[place]
        rank = len(buffer.type.shape)
        index = list(op.operands)[place + 1 : place + 1 + rank]
        shape = self._shape(buffer)
        with ir.InsertionPoint(op), op.location:
            if name in MASKED:
                self._pass_mask(op.operands[place + 1 + rank])
            site = self._access_site(op, buffer, align)
            linear = shape.offset
            for i, stride in zip(index, shape.strides, strict=True):
                linear = arith.addi(linear, arith.muli(i, stride))
            pairs = [value for pair in zip(index, shape.sizes, strict=True) for value in pair]
            self.host.call(f"ditto_simt_access{rank}", [self._ids["worker"], site, shape.pointer, linear, *pairs])

    def _access_site(self, op: ir.OpView, buffer: ir.Value, align: int) -> ir.Value:
        kind, _ = ACCESSES[op_name(op)]
        unit, value = self._bytes(buffer.type), vector_of(op)
        lanes = 1 if value is None else value.shape[0]
        root, masked = self._root(op, buffer), op_name(op) in MASKED
        return self._site(op, kind=kind, buffer=root, bytes=unit, lanes=lanes, align=max(unit, align), masked=masked)

    def _pass_mask(self, mask: ir.Value) -> None:
        lanes = mask.type.shape[0]
        bits = ir.IntegerType.get_signless(lanes)
        whole = vector.extract(vector.bitcast(ir.VectorType.get([1], bits), mask), [], [0])
        if lanes < 64:
            whole = arith.extui(self.host.i64, whole)
        self.host.call("ditto_simt_mask", [self._ids["worker"], whole])

    def _root(self, op: ir.OpView, value: ir.Value) -> int:
        """The buffer behind a memref, or -1 when only its address can tell (which it cannot for private memory)."""
        shifted = False
        while value not in self._roots:
            owner = defining_op(value)
            if owner is None or op_name(owner) not in VIEWS:
                if any(buffer.flags == PRIVATE for buffer in self.buffers):
                    raise Unsupported("the emulator cannot tell whether this is private memory", where=where_in(self.name, op))
                return -1
            shifted |= op_name(owner) == "memref.view"
            value = owner.operands[0]
        root = self._roots[value]
        if shifted and self.buffers[root].flags == PRIVATE:
            raise Unsupported("the emulator has no memref.view of private memory", where=where_in(self.name, op))
        return root

    def _shape(self, value: ir.Value) -> _Shape:
        """Compute a memref's pointer and layout once, where it is defined."""
        if value not in self._shapes:
            owner = defining_op(value)
            point = ir.InsertionPoint.at_block_begin(value.owner) if owner is None else ir.InsertionPoint.after(owner)
            with point, self.kernel.location:
                self._shapes[value] = self._measure(value)
        return self._shapes[value]

    def _measure(self, value: ir.Value) -> _Shape:
        rank = len(value.type.shape)
        _, offset, *facts = memref.ExtractStridedMetadataOp(value).operation.results
        pointer = memref.extract_aligned_pointer_as_index(value)
        return _Shape(pointer, offset, facts[:rank], facts[rank:])

    # --- Moving -------------------------------------------------------------------------------------

    def _move(self) -> str:
        """Move the body into the host module, and name it so that it cannot clash with a library's function."""
        symbol = f"ditto_kernel_{self.name}"
        types = [argument.type for argument in self.entry.arguments]
        with ir.InsertionPoint(self.host.module.body), self.kernel.location:
            target = func.FuncOp(symbol, (types, []))
        for block in list(self.kernel.regions[0].blocks):
            block.append_to(target.regions[0])
        return symbol


def _axis(op: ir.OpView) -> str:
    return str(op.attributes["dimension"]).removesuffix(">").split()[-1]


def _name(attributes: dict[str, ir.Attribute], otherwise: str) -> str:
    return str(ir.StringAttr(attributes["ditto.name"]).value) if "ditto.name" in attributes else otherwise


def _known_divisor(value: ir.Value) -> bool:
    owner = defining_op(value)
    if owner is None or op_name(owner) != "arith.constant":
        return False
    constant = owner.attributes["value"]
    return isinstance(constant, ir.IntegerAttr) and constant.value not in (0, -1)


def _bits(type_: ir.Type) -> int:
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    return 64 if isinstance(element, ir.IndexType) else int(element.width)


def _equals(value: ir.Value, constant: int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, value, _splat(value.type, constant))


def _splat(type_: ir.Type, value: int) -> ir.Value:
    if not isinstance(type_, ir.VectorType):
        return arith.constant(type_, value)
    element = ir.IntegerAttr.get(type_.element_type, value)
    return arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, element))
