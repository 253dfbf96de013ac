"""What a pass is: a frozen dataclass whose fields are its options and whose class says what the agent must know.

Three kinds, in the order in which a plan runs them: representation passes set encodings (S0 to S1), schedule passes
rewrite the loop nest (S3 to S3), mapping passes put it on blocks and threads (S3 to S3).  Lowering passes belong to the
pipeline itself and are never part of a plan.  A composite pass stands for several others, which a plan holds in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sparseditto.dialects.errors import NotApplicable, PlanError, did_you_mean
from sparseditto.dialects.target import Target

if TYPE_CHECKING:
    from mlir import ir

    from sparseditto.passes.nest import LoopNest
    from sparseditto.passes.work import Work


class Kind(Enum):
    """When in a plan a pass runs."""

    REPRESENTATION = "representation"
    SCHEDULE = "schedule"
    MAPPING = "mapping"
    LOWERING = "lowering"
    COMPOSITE = "composite"


class Bottleneck(Enum):
    """What can limit a kernel; a pass says which of these it relieves."""

    LAUNCH = "launch"
    BANDWIDTH = "bandwidth"
    COALESCING = "coalescing"
    DIVERGENCE = "divergence"
    IMBALANCE = "imbalance"
    LATENCY = "latency"
    ISSUE = "issue"
    ATOMICS = "atomics"
    ROUNDING = "rounding"


class Resource(Enum):
    """What a pass spends more of."""

    REGISTERS = "registers"
    SHARED = "shared memory"
    SHUFFLE = "shuffle"
    ATOMICS = "atomics"
    CODE = "code size"
    PREPROCESSING = "preprocessing"


class Form(Enum):
    """What is true of a nest; passes require and provide these, so the planner knows which orders are legal."""

    __hash__ = object.__hash__  # planning looks them up in sets all the time, and an Enum's own is slow

    ROWS = "a parallel loop outside all others, not mapped yet"
    COLUMNS = "a sequential loop over dense columns"
    REGISTER_ACCUMULATION = "reductions in registers, parallel loops outside them"
    BINS = "long rows in a kernel of their own"
    SEGMENTS = "rows cut into segments"
    PARTS = "the matrix in parts, of which some wait"
    REORDERED = "rows or columns in another order"
    GATHERED = "dense operands copied in the order of the columns"
    SLICES = "rows stored in slices, diagonals or at one width"
    MIRRORED = "one triangle of a symmetric matrix, whose entries are added to two rows"
    NARROW = "coordinates stored as offsets from the first of their row"
    UNIFORM = "one value for all entries"
    LISTED = "a list of the rows that have entries"
    BITMAPS = "blocks that store their entries only"
    TILES = "all rows for one tile of columns before the next"
    VECTORS = "vectors over the dense columns"
    ENTRY_VECTORS = "stored entries loaded in vectors"
    JAMMED = "several tiles of columns in one walk over the entries"
    UNROLLED = "the innermost reduction unrolled"
    LANE_LOADS = "stored entries loaded by the lanes of a row together"
    THREADS = "rows mapped to threads or subgroups"
    COARSENED = "several rows a thread or subgroup"
    BLOCKS = "the grid split into blocks of threads"
    PERSISTENT = "a fixed number of blocks that take the work in turn"


PLAIN_EXCLUDES = (
    Form.THREADS,
    Form.TILES,
    Form.VECTORS,
    Form.ENTRY_VECTORS,
    Form.JAMMED,
    Form.UNROLLED,
    Form.SEGMENTS,
    Form.BINS,
    Form.SLICES,
    Form.MIRRORED,
    Form.NARROW,
    Form.LISTED,
)
"""What a nest over plain rows and their plain entries has none of: the `excludes` of passes that need such a nest."""


def plain_but(*allowed: Form) -> tuple[Form, ...]:
    """`PLAIN_EXCLUDES` of a pass that takes some of these forms."""
    return tuple(form for form in PLAIN_EXCLUDES if form not in allowed)


T = TypeVar("T")


def option(help: str, *, default: T, choices: Iterable[T] | None = None) -> T:
    """A field of a pass that a plan may set: `help` for people, `choices` the whole domain when it is finite."""
    allowed = None if choices is None else tuple(choices)
    field: T = dataclasses.field(default=default, metadata={"help": help, "choices": allowed})
    return field


_PARSERS = {"int": int, "float": float, "str": str}


@dataclasses.dataclass(frozen=True)
class Pass:
    """One step on IR.  Subclasses are frozen dataclasses; `make` builds one from the text of a plan."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    relieves: ClassVar[tuple[Bottleneck, ...]] = ()
    consumes: ClassVar[tuple[Resource, ...]] = ()
    requires: ClassVar[tuple[Form, ...]] = ()
    provides: ClassVar[tuple[Form, ...]] = ()
    excludes: ClassVar[tuple[Form, ...]] = ()
    removes: ClassVar[tuple[Form, ...]] = ()
    starts_part: ClassVar[bool] = False  # whether the passes after it schedule the next part of the matrix

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), field.metadata.get("choices")
            if choices is not None and value not in choices:
                raise PlanError(f"{field.name.replace('_', '-')}={value} is not one of {choices}", where=self.name)

    @classmethod
    def make(cls, options: dict[str, str]) -> Pass:
        """A pass with these options, as text.  Raises `PlanError` on an unknown option or a value out of its domain."""
        fields = {field.name.replace("_", "-"): field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, text in options.items():
            if key not in fields:
                known = f"; it has {', '.join(fields)}" if fields else "; it has none"
                raise PlanError(f"no option '{key}'{did_you_mean(key, fields)}{known}", where=cls.name)
            field = fields[key]
            values[field.name] = _parse(cls.name, key, text, type_name(field))
        return cls(**values)

    def options(self) -> dict[str, Any]:
        """All options with their values, defaults spelled out, keyed as a plan writes them."""
        return {field.name.replace("_", "-"): getattr(self, field.name) for field in dataclasses.fields(self)}

    def __str__(self) -> str:
        """As a plan writes it: `rows-to-subgroups{lanes=8 share=auto}`."""
        return self._text

    @cached_property
    def _text(self) -> str:
        spelled = " ".join(f"{key}={spell(value)}" for key, value in self.options().items())
        return f"{self.name}{{{spelled}}}" if spelled else self.name

    def expand(self) -> tuple[Pass, ...]:
        """The steps that a plan holds where it names this pass."""
        return (self,)

    def effect(self, work: Work) -> Work:
        """What the pass makes of the work of a kernel, for cost models.  A pass that says nothing changes nothing."""
        return work

    def apply(self, module: ir.Module, target: Target) -> None:
        """Rewrite every function of `module` that the pass applies to.  Raises `NotApplicable` when there is none."""
        raise NotImplementedError


def type_name(field: dataclasses.Field[Any]) -> str:
    """The type of an option by name, whether or not its module postpones annotations."""
    return field.type if isinstance(field.type, str) else field.type.__name__


def _parse(pass_name: str, key: str, text: str, type_name: str) -> Any:
    if type_name == "bool":
        if text not in ("true", "false"):
            raise PlanError(f"{key}={text}: say true or false", where=pass_name)
        return text == "true"
    try:
        return _PARSERS[type_name](text)
    except ValueError as e:
        raise PlanError(f"{key}={text}: that is no {type_name}", where=pass_name) from e


def spell(value: Any) -> str:
    """The value of an option as a plan writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class FunctionPass(Pass):
    """A pass that works on one function at a time."""

    def apply(self, module: ir.Module, target: Target) -> None:
        from sparseditto.dialects.binding import functions

        refusals: list[NotApplicable] = []
        applied = False
        for func in functions(module):
            try:
                self.run_on(func, target)
                applied = True
            except NotApplicable as e:
                refusals.append(e)
        if not applied:
            raise refusals[0] if refusals else NotApplicable("there is no function with a body", where=self.name)

    def run_on(self, func: ir.OpView, target: Target) -> None:
        raise NotImplementedError


class RepresentationPass(FunctionPass):
    """Sets or changes how a sparse operand is stored: S0 to S1."""

    kind = Kind.REPRESENTATION


class NestPass(FunctionPass):
    """Rewrites the loop nest of a function: S3 to S3.  `run` gets the nest as it reads now."""

    def run_on(self, func: ir.OpView, target: Target) -> None:
        from mlir import ir as mlir_ir

        from sparseditto.passes.nest import LoopNest

        with func.operation.context, mlir_ir.Location.unknown():
            nest = LoopNest.read(func, reader=self.name)
            nest.check(self)
            self.run(nest, target)

    def run(self, nest: LoopNest, target: Target) -> None:
        """Rewrite the IR that `nest` was read from.  Raise `NotApplicable` before touching it."""
        raise NotImplementedError


class SchedulePass(NestPass):
    """Changes how the loops of the nest run."""

    kind = Kind.SCHEDULE


class MappingPass(NestPass):
    """Puts the loops of the nest on blocks and threads."""

    kind = Kind.MAPPING


class LoweringPass(Pass):
    """A step of the pipeline itself; `ditto-opt` runs it, a plan does not name it."""

    kind = Kind.LOWERING
