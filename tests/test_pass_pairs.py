"""Whatever two passes a plan accepts in a row compiles to a right kernel, or is refused with a reason: never anything else.

All ordered pairs of schedule and mapping passes, for SpMV and SpMM, on matrices stored as CSR, CSC, DCSR and BSR.  The quick
suite takes a sample that changes with no run; all of them are slow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import Array, agrees, matmul, matvec, of_lengths, transposed_matmul, transposed_matvec
from test_new_schedules import alternating, banded
from test_symmetric import symmetric

from sparseditto.compiler.api import bind_package, compile_file
from sparseditto.compiler.execute import prepare, run_simt
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.runtimes.simt import SimtModule
from sparseditto.dialects.errors import InputError, NotApplicable, PlanError, Unsupported
from sparseditto.passes.base import Form, Kind, Pass
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry

Write = Callable[[str], Path]

SAMPLE = 40  # one of so many pairs in the quick suite
COLUMNS = 16
OPTIONS = {  # where the defaults are for larger matrices
    "diagonals": "factor=1048576",
    "ell-rows": "factor=1048576 offsets=16",
    "slice-rows": "height=4 window=128 offsets=16",
    "segment-rows": "length=16",
    "bin-rows": "limit=32 length=1024 threads=128",
    "stage-entries": "entries=128 threads=64",
    "split-entries": "length=32 items=2",
    "tile-columns": "width=8",
    "rows-to-subgroups": "lanes=4",
    "nonempty-rows": "share=4",
    "partition": "limit=4",
}
KERNELS = {"spmv": (matvec, transposed_matvec), "spmm": (matmul, transposed_matmul)}
FORMATS = ("csr", "csc", "dcsr", "bsr")
PASSES = sorted(
    name
    for name, cls in registry().items()
    if cls.kind in (Kind.SCHEDULE, Kind.MAPPING)
    and cls.__module__.startswith("sparseditto.")
    and name not in ("accumulate-registers", "next-part")  # `completed` adds these
)


def spelled(name: str) -> str:
    return f"{name}{{{OPTIONS[name]}}}" if name in OPTIONS else name


def completed(names: tuple[str, ...]) -> str:
    """A plan with these passes in this order, and what makes a kernel of it: threads where one needs them, and blocks."""
    steps, forms = ["accumulate-registers"], set[Form]()

    def add(name: str) -> None:
        cls: type[Pass] = registry()[name]
        steps.append(spelled(name))
        forms.update(cls.provides)

    for name in names:
        needed = registry()[name].requires
        if Form.THREADS in needed and Form.THREADS not in forms:
            add("rows-to-subgroups")
        if Form.BLOCKS in needed and Form.BLOCKS not in forms:
            for missing in ([] if Form.THREADS in forms else ["rows-to-subgroups"]) + ["map-blocks"]:
                add(missing)
        add(name)
    for form, name in ((Form.THREADS, "rows-to-subgroups"), (Form.BLOCKS, "map-blocks")):
        if form not in forms:
            add(name)
    if Form.PARTS in forms:
        steps += ["next-part", spelled("rows-to-subgroups"), "map-blocks"]
    return ",".join(steps)


def accepted(layout: str, names: tuple[str, ...]) -> str | None:
    """The plan, where `Plan` accepts it."""
    plan = f"set-encoding{{format={layout}}},{completed(names)}"
    try:
        Plan.parse(plan)
    except PlanError:
        return None
    return plan


def sample() -> Iterator[tuple[str, str, str]]:
    """Kernel, format and plan: one of `SAMPLE` pairs, of those that `Plan` accepts."""
    for case in product(KERNELS, FORMATS, PASSES, PASSES):
        if int(hashlib.sha256(" ".join(case).encode()).hexdigest(), 16) % SAMPLE == 0:
            kernel, layout, *names = case
            plan = accepted(layout, tuple(names))
            if plan is not None:
                yield kernel, layout, plan


@cache
def matrices() -> dict[str, sp.csr_array]:
    """All values are the same, which one pass needs."""
    found = {
        "all lengths": of_lengths([3, 0, 17, 40, 1, 0, 0, 5, 2, 70, 0], 90),
        "every other column": alternating([1, 5, 2, 0, 3, 33, 7]),
        "no entries": sp.csr_array((5, 6)),
        "one entry": sp.csr_array(([1.0], ([2], [8])), shape=(3, 9)),
        "symmetric": symmetric(sp.csr_array(of_lengths([3, 0, 2, *[5] * 20], 23) + banded(23))),
    }
    return {name: sp.csr_array((np.full(a.nnz, 0.5), a.indices, a.indptr), a.shape) for name, a in found.items()}


def operand(rows: int, columns: tuple[int, ...]) -> Array:
    """Every fourth row holds no number: what has no entry there must not notice."""
    x = np.linspace(-1, 1, rows * int(np.prod(columns)), dtype=np.float32).reshape(rows, *columns)
    x[1::4] = np.nan
    x[3::8] = np.inf
    return x


def verify(kernel: str, layout: str, plan: str, write: Write) -> str:
    """Compile and run; returns the reason where a pass or packing refuses."""
    plain, transposed = KERNELS[kernel]
    columns = (COLUMNS,) if kernel == "spmm" else ()
    text = transposed() if layout == "csc" else plain(fill=0.0)
    try:
        package = compile_file(write(text), plan=plan, sizes={"K": COLUMNS} if columns else {}).package
    except (NotApplicable, Unsupported) as e:
        return e.message
    module = SimtModule(package.mlir)
    reasons = [run_on(package, module, a, columns, layout == "csc") for a in matrices().values()]
    return "; ".join(filter(None, reasons))


def run_on(package: KernelPackage, module: SimtModule, a: sp.csr_array, columns: tuple[int, ...], transposed: bool) -> str:
    name = next(o.name for o in package.computation.inputs if not o.sparse)
    bound = sp.csr_array(a.T) if transposed else a
    x = operand(a.shape[1], columns)
    try:
        inputs = prepare(package, bind_package(package, {"A": bound, name: x}, {"K": COLUMNS} if columns else {}))
    except InputError as e:
        return str(e)
    output = run_simt(package, inputs, module=module)
    start = 0.0 if inputs.initial is None else inputs.initial
    assert agrees(output, a, x, start)
    return ""


@pytest.mark.parametrize(("kernel", "layout", "plan"), list(sample()))
def test_a_sample_of_pairs(kernel: str, layout: str, plan: str, kernel_file: Write) -> None:
    verify(kernel, layout, plan, kernel_file)


@pytest.mark.slow
@pytest.mark.parametrize("first", PASSES)
@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_all_pairs(kernel: str, layout: str, first: str, kernel_file: Write) -> None:
    plans = [accepted(layout, (first, second)) for second in PASSES]
    for plan in filter(None, plans):
        verify(kernel, layout, plan, kernel_file)


def before_sums(name: str) -> str | None:
    """The plan with `accumulate-registers` after the pass, where `Plan` accepts it."""
    first, *rest = completed((name,)).split(",")
    rest.remove(spelled(name))
    plan = ",".join(("set-encoding{format=csr}", spelled(name), first, *rest))
    try:
        return Plan.parse(plan).text()
    except PlanError:
        return None


@pytest.mark.parametrize("plan", list(filter(None, map(before_sums, PASSES))))
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_pass_before_sums_are_in_registers(kernel: str, plan: str, kernel_file: Write) -> None:
    """An output that is filled first stays right where a pass runs before `accumulate-registers` takes the fill away."""
    verify(kernel, "csr", plan, kernel_file)


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_stands_in_some_plan(name: str) -> None:
    assert accepted("csr", (name,)) or any(accepted("csr", (other, name)) for other in PASSES)
