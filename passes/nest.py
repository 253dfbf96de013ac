"""`LoopNest`: the reading of a sparse loop nest that schedule and mapping passes work with.

The IR is the only state: a nest is read from a function, used by one pass and thrown away.  It is the nest that
`sparsification` makes over `sparse_tensor.positions/coordinates/values` (S2), or what passes made of it (S3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from mlir import ir

from sparseditto.dialects.binding import argument_attribute, defining_op, op_name, walk
from sparseditto.dialects.builders import known
from sparseditto.dialects.errors import NotApplicable, Unsupported
from sparseditto.passes.base import Form, Pass

WORKSPACE = "ditto.workspace"  # on an argument that is scratch memory, not an output
OVERLAP = "ditto.overlap"  # of a function and its kernels: each may start while the kernel before it ends
KEEP = "ditto.keep"  # of a dense operand that the L2 cache is to keep; of a kernel, the numbers of such arguments
KERNEL = "ditto.kernel"  # on a nest that is a finished kernel: the suffix of its name
WAITING = "ditto.waiting"  # on the nest of a part of the matrix whose turn to be scheduled has not come
PART = "_part"  # how the suffix begins of kernels of a part that is finished
LONG_ROWS = "_long"  # that suffix, of the kernel for long rows
MIRRORED = "ditto.mirrored"  # on an atomic add to the row of an entry's mirror image, beside the sum over the entries
WALKS = "ditto.walks"  # on a sequential loop inside a mapped one: it walks "rows" or "blocks", so it is none over columns
STORES = ("memref.store", "vector.store", "memref.atomic_rmw")
STRANGE = ("scf.while", "scf.parallel", "sparse_tensor.insert")
LOOPS = ("scf.for", "scf.forall")
INITIALISERS = ("linalg.fill", "linalg.generic")
COMBINERS = ("arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf")


class LoopKind(Enum):
    """What a loop walks: all coordinates of a dense level, the stored ones of a compressed level, or one block."""

    DENSE = "dense"
    COMPRESSED = "compressed"
    BLOCK = "block"


class Role(Enum):
    """Whether iterations write different outputs (parallel) or add into the same one (reduction)."""

    PARALLEL = "parallel"
    REDUCTION = "reduction"


@dataclass(frozen=True)
class Loop:
    """One loop of the nest.  `depth` counts loops around it; `mapping` is the GPU id of a mapped `scf.forall`."""

    op: ir.OpView
    kind: LoopKind
    role: Role
    depth: int
    mapping: str | None = None

    @property
    def sequential(self) -> bool:
        return op_name(self.op) == "scf.for"

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def iv(self) -> ir.Value:
        return self.body.arguments[0]

    @property
    def lower(self) -> ir.Value:
        return self.op.operands[0]

    @property
    def upper(self) -> ir.Value:
        return self.op.operands[1]

    @property
    def step(self) -> ir.Value:
        return self.op.operands[2]

    @property
    def initial(self) -> list[ir.Value]:
        """Initial values of the loop's iter_args (a sequential loop's)."""
        return list(self.op.operands)[3:] if self.sequential else []

    @property
    def trip_count(self) -> int | None:
        """The number of iterations when bounds and step are constants."""
        bounds = [known(v) for v in (self.lower, self.upper, self.step)] if self.sequential else [None]
        if any(b is None for b in bounds):
            return None
        lower, upper, step = (b or 0 for b in bounds)
        return max(0, -(-(upper - lower) // step))

    @property
    def extent(self) -> int | None:
        """The number of iterations of a mapped loop when it is static."""
        bound = int(ir.DenseI64ArrayAttr(self.op.attributes["staticUpperBound"])[0])
        return None if bound == ir.ShapedType.get_dynamic_size() else bound

    def starts_at_zero_by_one(self) -> bool:
        return known(self.lower) == 0 and known(self.step) == 1


class Slices:
    """Which loops a value depends on, through any ops, with a cache."""

    def __init__(self) -> None:
        self._cache: dict[ir.Value, frozenset[ir.Block]] = {}

    def blocks(self, value: ir.Value) -> frozenset[ir.Block]:
        """The loop bodies whose arguments `value` is computed from."""
        if value not in self._cache:
            owner = value.owner
            if isinstance(owner, ir.Block):
                self._cache[value] = frozenset([owner])
            else:
                parts = [self.blocks(v) for v in self._inputs(owner)]
                self._cache[value] = frozenset().union(*parts)
        return self._cache[value]

    def of(self, values: Iterable[ir.Value]) -> frozenset[ir.Block]:
        """The loop bodies whose arguments any of `values` is computed from."""
        return frozenset().union(*map(self.blocks, values))

    @staticmethod
    def _inputs(op: ir.OpView) -> Iterator[ir.Value]:
        yield from op.operands
        for inner in walk(op):
            yield from inner.operands


def root_buffer(value: ir.Value) -> ir.Value:
    """The buffer behind casts of a memref."""
    op = defining_op(value)
    while op is not None and op_name(op) in ("memref.cast", "memref.reinterpret_cast", "memref.assume_alignment"):
        value = op.operands[0]
        op = defining_op(value)
    return value


def buffer_part(buffer: ir.Value) -> str | None:
    """What a buffer holds of a sparse operand: "positions", "coordinates", "values", or None for any other buffer.

    An auxiliary array says it in the attribute `ditto.part`.
    """
    op = defining_op(buffer)
    if op is None:
        part = argument_attribute(buffer, "ditto.part")
        return ir.StringAttr(part).value if part is not None else None
    return op_name(op).removeprefix("sparse_tensor.") if op_name(op).startswith("sparse_tensor.") else None


def is_scratch(buffer: ir.Value) -> bool:
    """Whether a buffer holds what a kernel leaves for itself: shared memory, or a workspace."""
    op = defining_op(buffer)
    if op is None:
        return argument_attribute(buffer, WORKSPACE) is not None
    return op_name(op) == "ditto.shared_buffer"


def feeds_from(value: ir.Value, source: str) -> bool:
    """Whether `value` is computed by index arithmetic from a load of a `sparse_tensor.<source>` buffer."""
    op = defining_op(value)
    if op is None:
        return False
    if op_name(op) == "memref.load":
        return buffer_part(root_buffer(op.operands[0])) == source
    return op_name(op).startswith("arith.") and any(feeds_from(v, source) for v in op.operands)


def indices(op: ir.OpView) -> list[ir.Value]:
    """The index operands of a memref or vector load or store (an atomic update too)."""
    first = 1 if op_name(op) in ("memref.load", "vector.load") else 2
    return list(op.operands)[first:]


def accessed(op: ir.OpView) -> ir.Value:
    """The memref operand of a load or store."""
    return op.operands[0] if op_name(op) in ("memref.load", "vector.load") else op.operands[1]


@dataclass(frozen=True)
class LoopNest:
    """The loops of one function in preorder, its stores to the output, and the loads inside.

    `mirrors` are the atomic adds to the rows of mirror images, which are not among the stores and make no loop parallel.
    `output` is the buffer that the nest writes; `fill` the `linalg` op that initialises it, if any (`passes/initial.py`).
    """

    func: ir.OpView
    loops: tuple[Loop, ...]
    stores: tuple[ir.OpView, ...]
    mirrors: tuple[ir.OpView, ...]
    loads: tuple[ir.OpView, ...]
    output: ir.Value
    fill: ir.OpView | None
    reader: str

    @staticmethod
    def read(func: ir.OpView, reader: str = "loop-nest") -> LoopNest:
        """Read the one nest of `func` that is to be scheduled now: kernels that a pass has finished have `ditto.kernel`, and
        parts that come later `ditto.waiting`.

        Raises `NotApplicable` when there is none, `Unsupported` when it has a shape that no pass here knows.
        """
        nests = [nest for nest in LoopNest.read_each(func, reader) if not _is_set_aside(nest.outer.op)]
        if len(nests) != 1:
            raise Unsupported(f"{len(nests)} loop nests in one function", where=reader)
        return nests[0]

    @staticmethod
    def read_each(func: ir.OpView, reader: str = "loop-nest") -> list[LoopNest]:
        """Read all nests of `func`, in order.  Raises as `read` does."""
        tops = [op for op in func.regions[0].blocks[0] if op_name(op) in LOOPS]
        if not tops:
            strange = next((op for op in walk(func) if op_name(op) in STRANGE), None)
            if strange is not None:
                raise _unsupported_nest(strange, reader)
            raise NotApplicable("there is no loop nest; run sparsification and prepare-nest first", where=reader)
        return [_read_nest(func, top, reader) for top in tops]

    @property
    def outer(self) -> Loop:
        return self.loops[0]

    @property
    def columns(self) -> tuple[Loop, ...]:
        """Sequential parallel loops inside the outermost one that walk neither stored entries nor blocks."""
        inner = (loop for loop in self.loops[1:] if loop.sequential and WALKS not in loop.op.attributes)
        return tuple(loop for loop in inner if loop.role is Role.PARALLEL and loop.kind is LoopKind.DENSE)

    @property
    def reductions(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.role is Role.REDUCTION)

    def mapped(self, to: str) -> tuple[Loop, ...]:
        """Loops mapped to a GPU id: "block", "thread", "warp" or "lane"."""
        return tuple(loop for loop in self.loops if loop.mapping == to)

    def parent(self, loop: Loop) -> Loop | None:
        """The loop directly around `loop`."""
        before = self.loops[: self.loops.index(loop)]
        return next((other for other in reversed(before) if other.depth == loop.depth - 1), None)

    def children(self, loop: Loop) -> tuple[Loop, ...]:
        """The loops directly inside `loop`."""
        return tuple(other for other in self.loops if other is not loop and self.parent(other) is loop)

    def forms(self) -> frozenset[Form]:
        """What holds of this nest, for `requires` and `excludes`."""
        recipes = self._recipes()
        facts = {
            Form.ROWS: self.outer.sequential and self.outer.role is Role.PARALLEL,
            Form.COLUMNS: bool(self.columns),
            Form.REGISTER_ACCUMULATION: self._accumulates_in_registers(),
            Form.BINS: LONG_ROWS in self._finished_kernels(),
            Form.SEGMENTS: not self.mirrors and any(op_name(store) == "memref.atomic_rmw" for store in self.stores),
            Form.PARTS: any(WAITING in op.attributes for op in self.func.regions[0].blocks[0]),
            Form.REORDERED: "reorder" in recipes,
            Form.GATHERED: "gathered" in recipes,
            Form.SLICES: bool(recipes & {"sliced_rows", "row_diagonals", "equal_rows"}),
            Form.MIRRORED: bool(self.mirrors),
            Form.NARROW: "row_offsets" in recipes,
            Form.UNIFORM: "one_value" in recipes,
            Form.LISTED: "listed_rows" in recipes,
            Form.BITMAPS: "block_bitmaps" in recipes,
            Form.TILES: any(self._places_with_rows(store) > 1 for store in self.stores),
            Form.VECTORS: any(
                isinstance(load.result.type, ir.VectorType) and buffer_part(root_buffer(load.operands[0])) is None
                for load in self.loads
            ),
            Form.ENTRY_VECTORS: any(
                isinstance(load.result.type, ir.VectorType) and buffer_part(root_buffer(load.operands[0])) is not None
                for load in self.loads
            ),
            Form.JAMMED: any(len(loop.initial) > 1 for loop in self.reductions),
            Form.UNROLLED: any("ditto.unrolled" in loop.op.attributes for loop in self.loops),
            Form.LANE_LOADS: any(op_name(op) == "ditto.lane_broadcast" for op in walk(self.outer.op)),
            Form.THREADS: bool(self.mapped("thread") or self.mapped("warp")),
            Form.COARSENED: self._walks("rows"),
            Form.BLOCKS: bool(self.mapped("block")),
            Form.PERSISTENT: self._walks("blocks"),
        }
        return frozenset(form for form, holds in facts.items() if holds)

    def _finished_kernels(self) -> set[str]:
        """Suffixes of the names of kernels that passes have finished."""
        marks = [op.attributes[KERNEL] for op in self.func.regions[0].blocks[0] if KERNEL in op.attributes]
        return {ir.StringAttr(mark).value for mark in marks}

    def _recipes(self) -> set[str]:
        """The recipes of whose arrays (A.reorder.order) the nest reads one."""
        buffers = {root_buffer(load.operands[0]) for load in self.loads}
        names = (argument_attribute(buffer, "ditto.name") for buffer in buffers)
        return {part for name in names if name is not None for part in ir.StringAttr(name).value.split(".")[1:-1]}

    def _places_with_rows(self, store: ir.OpView) -> int:
        """How many indices of a store change with the outermost loop."""
        slices = Slices()
        return sum(self.outer.body in slices.blocks(index) for index in indices(store))

    def _walks(self, what: str) -> bool:
        """Whether a loop of the nest is marked as one that walks `what`."""
        marks = [loop.op.attributes[WALKS] for loop in self.loops if WALKS in loop.op.attributes]
        return any(ir.StringAttr(mark).value == what for mark in marks)

    def _accumulates_in_registers(self) -> bool:
        return (
            not any(loop.role is Role.PARALLEL and self._inside_reduction(loop) for loop in self.loops)
            and all(loop.initial for loop in self.reductions)
            and not any(root_buffer(accessed(load)) == self.output and self._reduces(load) for load in self.loads)
        )

    def _inside_reduction(self, loop: Loop) -> bool:
        around = self.parent(loop)
        return around is not None and (around.role is Role.REDUCTION or self._inside_reduction(around))

    def _reduces(self, op: ir.OpView) -> bool:
        reduction_bodies = {loop.body for loop in self.reductions}
        parent = op.operation.parent
        while parent is not None and parent != self.func.operation:
            if any(block in reduction_bodies for region in parent.regions for block in region):
                return True
            parent = parent.parent
        return False

    def check(self, pass_: Pass) -> None:
        """Raise `NotApplicable` unless the nest has what `pass_` requires and nothing that it excludes."""
        forms = self.forms()
        for form in pass_.requires:
            if form not in forms:
                raise NotApplicable(f"needs {form.value}", where=pass_.name)
        for form in pass_.excludes:
            if form in forms:
                raise NotApplicable(f"does not go with {form.value}", where=pass_.name)


def _read_nest(func: ir.OpView, top: ir.OpView, reader: str) -> LoopNest:
    inside = list(walk(top))
    strange = next((op for op in inside if op_name(op) in STRANGE), None)
    if strange is not None:
        raise _unsupported_nest(strange, reader)
    written_to = [op for op in inside if op_name(op) in STORES and not is_scratch(root_buffer(accessed(op)))]
    stores = tuple(op for op in written_to if MIRRORED not in op.attributes)
    mirrors = tuple(op for op in written_to if MIRRORED in op.attributes)
    loads = tuple(op for op in inside if op_name(op) in ("memref.load", "vector.load"))
    outputs = {root_buffer(accessed(op)) for op in stores}
    if not outputs and KERNEL in top.attributes:  # it only prepares what another kernel reads
        outputs = {root_buffer(accessed(op)) for op in inside if op_name(op) in STORES}
    if len(outputs) != 1:
        raise Unsupported(f"the nest writes {len(outputs)} buffers, not one", where=reader)
    (output,) = outputs
    fills = [op for op in func.regions[0].blocks[0] if op_name(op) in INITIALISERS and root_buffer(op.operands[-1]) == output]
    slices = Slices()
    written = slices.of(i for op in stores for i in indices(op))
    addressed = slices.of(i for op in loads if _reads_values(op) for i in indices(op))
    loop_ops = [op for op in (top, *inside) if op_name(op) in LOOPS]
    loops = [_read_loop(op, _depth(op, top), written, addressed) for op in loop_ops]
    return LoopNest(func, tuple(loops), stores, mirrors, loads, output, fills[0] if fills else None, reader)


def _is_set_aside(op: ir.OpView) -> bool:
    """Whether a nest is a finished kernel or waits for its turn."""
    return KERNEL in op.attributes or WAITING in op.attributes


def _depth(op: ir.OpView, top: ir.OpView) -> int:
    """How many loops of the nest stand around `op`."""
    depth, at = 0, op.operation
    while at != top.operation:
        at = at.parent.operation
        depth += at.name in LOOPS
    return depth


def _unsupported_nest(op: ir.OpView, reader: str) -> Unsupported:
    return Unsupported(
        f"the nest has a '{op_name(op)}': only nests of counted loops over one sparse operand are compiled", where=reader
    )


def _reads_values(load: ir.OpView) -> bool:
    return buffer_part(root_buffer(load.operands[0])) == "values"


def _read_loop(op: ir.OpView, depth: int, written: frozenset[ir.Block], addressed: frozenset[ir.Block]) -> Loop:
    body = op.regions[0].blocks[0]
    role = Role.PARALLEL if body in written else Role.REDUCTION
    if op_name(op) == "scf.forall":
        return Loop(op, LoopKind.DENSE, Role.PARALLEL, depth, _mapping(op))
    bounds = list(op.operands)[:2]
    if any(feeds_from(bound, "positions") for bound in bounds) or _walks_entries(bounds[1]):
        kind = LoopKind.COMPRESSED
    elif depth > 0 and body in addressed:
        kind = LoopKind.BLOCK
    else:
        kind = LoopKind.DENSE
    return Loop(op, kind, role, depth)


def _walks_entries(upper: ir.Value) -> bool:
    """Whether a bound is the length of a coordinates array: an outermost compressed level, or diagonals."""
    op = defining_op(upper)
    return op is not None and op_name(op) == "memref.dim" and buffer_part(root_buffer(op.operands[0])) == "coordinates"


def _mapping(op: ir.OpView) -> str | None:
    if "mapping" not in op.attributes:
        return None
    text = str(ir.ArrayAttr(op.attributes["mapping"])[0])
    return text.removeprefix("#gpu.").split("<")[0]
