"""Schedules that change how stored entries are read: in vectors, staged by blocks, in slices, in halves of a group.

Kernels run under emulation with all checks.  Each result is held to the compiler's own check and to SciPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import (
    MATRICES,
    PRODUCT,
    Array,
    agrees,
    generic,
    matmul,
    matvec,
    of_lengths,
    transposed_matmul,
    transposed_matvec,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compile import BODIES, DENSE_TIMES_SPARSE, MATRIX, PINNED, ROWS, STORED_OTHERWISE, VECTOR
from test_reference import COMPUTATIONS
from test_scalars import prologue
from test_schedules import ROW_SCALED, mixed, positions_of

from sparseditto.agent import planner
from sparseditto.agent.machine import Machine
from sparseditto.compiler.api import bind_package, compile_file, run
from sparseditto.compiler.driver import make_task
from sparseditto.compiler.execute import check, prepare, run_simt
from sparseditto.compiler.kernel import read_kernel
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.problem import bind
from sparseditto.compiler.runtimes.launches import resolve
from sparseditto.compiler.runtimes.resources import ptxas_resources
from sparseditto.compiler.runtimes.simt import SimtModule
from sparseditto.dialects.binding import context
from sparseditto.dialects.errors import InputError, NotApplicable, PlanError
from sparseditto.dialects.recipes import Recipe, row_blocks, run_recipe, sliced_rows
from sparseditto.dialects.target import Target
from sparseditto.passes.registry import find

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]

INT32 = 2**31 - 1


# --- Matrices -----------------------------------------------------------------------------------------


def banded(rows: int, width: int = 3) -> sp.csr_array:
    """A square matrix with `width` diagonals."""
    offsets = range(-(width // 2), width // 2 + 1)
    return sp.csr_array(sp.diags_array([np.arange(1.0, rows - abs(k) + 1) for k in offsets], offsets=list(offsets)))


@cache
def hard() -> dict[str, sp.csr_array]:
    return {
        "mixed": mixed(),
        "thousands of empty rows": of_lengths([*[0] * 2600, 3, *[0] * 2600, 1, *[0] * 40]),
        "one row of many blocks": of_lengths([2, 0, 2500, 1, 0, 0, 7], 3001),
        "a giant row alone": of_lengths([2500], 3001),
        "all rows are long": of_lengths([400, 401, 500, 390, 515]),
        "the last row is long": of_lengths([1, 1, 0, 400]),
        "bands": banded(300, 5),
        **{name: MATRICES[name]() for name in ("no entries", "0x0", "0x5", "5x0", "1x1", "one entry", "special values")},
    }


def checked(
    package: KernelPackage, a: sp.csr_array, module: SimtModule | None = None, transpose: bool = False, **dense: Array
) -> Array:
    """Run on `a`, and hold the result to both checks."""
    inputs = prepare(package, bind_package(package, {"A": a, **dense}))
    output = run_simt(package, inputs, module=module)
    assert (found := check(package.computation, inputs, output)).passed, found
    (x,) = inputs.dense.values()
    start = inputs.initial if inputs.initial is not None else package.computation.initial
    assert agrees(output, sp.csr_array(a.T) if transpose else a, x, start)
    return output


def each_checked(package: KernelPackage, matrices: Iterable[sp.csr_array], transpose: bool = False) -> None:
    module = SimtModule(package.mlir)
    for a in matrices:
        checked(package, a, module, transpose)


# --- Right on hard matrices ---------------------------------------------------------------------------

ENTRY_VECTORS = (
    "vectorize-entries{width=2},rows-to-threads,map-blocks",
    "vectorize-entries{width=4},rows-to-threads,unroll{factor=2},map-blocks",
    "vectorize-entries{width=4},rows-to-subgroups{lanes=8},map-blocks",
    "vectorize-entries{width=8},rows-to-subgroups{lanes=4},unroll{factor=2 tail=clamp},map-blocks",
    "vectorize-entries{width=2},rows-to-subgroups{lanes=32},unroll{factor=4 tail=halves},map-blocks",
    "segment-rows{length=16},vectorize-entries{width=4},rows-to-threads,map-blocks",
    "stream-entries,vectorize-entries{width=4},rows-to-subgroups{lanes=4},map-blocks{threads=96}",
)
STAGED = tuple(
    f"stage-entries{{entries={entries} threads={threads} stage={stage}}}{unroll}"
    for entries, threads, stage, unroll in [
        (128, 64, "products", ""),
        (128, 64, "entries", ""),
        (128, 128, "products", ",unroll{factor=4}"),
        (256, 64, "entries", ",unroll{factor=2 tail=clamp}"),
        (512, 512, "products", ",unroll{factor=8 tail=halves}"),
        (1024, 256, "entries", ",bound-launch{registers=64}"),
        (256, 128, "products", ",unroll,stream-entries"),
    ]
)
SLICED = tuple(
    f"slice-rows{{height={height} window={window} offsets={offsets}}},{rows},map-blocks"
    for height, window, offsets, rows in [
        (32, 1, 32, "rows-to-threads"),
        (32, 1, 16, "rows-to-threads,unroll{factor=8 tail=halves}"),
        (8, 128, 16, "rows-to-threads,unroll{factor=4 tail=clamp}"),
        (128, 1024, 32, "rows-to-threads,unroll{factor=4}"),
        (64, 1 << 30, 16, "rows-to-threads,unroll{factor=16 tail=halves}"),
        (16, 1 << 16, 32, "rows-to-subgroups{lanes=4},unroll"),
        (2, 8192, 16, "rows-to-subgroups{lanes=32}"),
        (4, 1, 32, "stream-entries,rows-to-threads"),
    ]
)
HALVES = tuple(
    f"{rows},unroll{{factor={factor} tail=halves}},map-blocks"
    for factor, rows in [
        (1, "rows-to-threads"),
        (2, "rows-to-threads"),
        (4, "rows-to-subgroups{lanes=8}"),
        (8, "segment-rows{length=16},rows-to-threads"),
        (16, "bin-rows{limit=32 length=1024 threads=128},rows-to-subgroups{lanes=2}"),
    ]
)
PLANS = (*ENTRY_VECTORS, *STAGED, *SLICED, *HALVES)
SETTINGS = list(product(("f32", "f64"), (None, 0.0, 1.5), ((32, 32), (64, 64), (32, 16), (64, 32), (32, 64))))


def setting_of(number: int) -> tuple[str, float | None, tuple[int, int]]:
    """A choice of type, start and index widths: neighbouring numbers have different ones."""
    return SETTINGS[7 * number % len(SETTINGS)]


def compiled(text: Path, plan: str, widths: tuple[int, int] = (32, 32), layout: str = "csr", **options: Any) -> KernelPackage:
    encoding = "set-encoding{{format={} positions={} coordinates={}}}".format(layout, *widths)
    return compile_file(text, plan=f"{encoding},accumulate-registers,{plan}", **options).package


@pytest.mark.parametrize("plan", PLANS)
def test_spmv_is_right(plan: str, kernel_file: Write) -> None:
    e, start, widths = setting_of(PLANS.index(plan))
    package = compiled(kernel_file(matvec(e, fill=start)), plan, widths)
    each_checked(package, hard().values())


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(32, 32), (64, 64), (32, 16), (64, 32), (16, 64)])
@pytest.mark.parametrize("e", ["f32", "f64"])
@pytest.mark.parametrize("plan", PLANS)
def test_spmv_sweep(plan: str, e: str, widths: tuple[int, int], kernel_file: Write) -> None:
    for start in (None, 0.0, -2.5):
        package = compiled(kernel_file(matvec(e, fill=start)), plan, widths)
        each_checked(package, hard().values())


@pytest.mark.parametrize("plan", [ENTRY_VECTORS[2], STAGED[0], STAGED[3], SLICED[1], SLICED[5], HALVES[2]])
def test_columns_of_a_transposed_matrix(plan: str, kernel_file: Write) -> None:
    package = compiled(kernel_file(transposed_matvec()), plan, layout="csc")
    names = ("mixed", "one row of many blocks", "no entries", "thousands of empty rows")
    each_checked(package, (sp.csr_array(hard()[name].T) for name in names), transpose=True)


WIDE = {
    "vectors of entries": "vectorize-entries{width=4},rows-to-subgroups{lanes=4 share=entries},map-blocks",
    "vectors both ways": "vectorize{width=4},vectorize-entries{width=2},rows-to-subgroups{lanes=4},unroll{factor=2},map-blocks",
    "slices": "slice-rows{height=4 offsets=16},vectorize{width=4},rows-to-subgroups{lanes=4},unroll{tail=halves},map-blocks",
    "sorted slices": "slice-rows{height=8 window=128},jam-columns{factor=3},rows-to-subgroups{lanes=8},unroll,map-blocks",
    "halves": "vectorize{width=4},jam-columns,rows-to-subgroups{lanes=2},unroll{factor=8 tail=halves},map-blocks",
}


@pytest.mark.parametrize("plan", WIDE)
def test_spmm_is_right(plan: str, kernel_file: Write) -> None:
    e, start, widths = setting_of(list(WIDE).index(plan))
    package = compiled(kernel_file(matmul(e, fill=start)), WIDE[plan], widths, sizes={"K": 16})
    each_checked(package, (hard()[name] for name in ("mixed", "bands", "no entries", "0x5", "5x0", "one entry")))


def test_columns_of_a_transposed_matrix_times_columns(kernel_file: Write) -> None:
    package = compiled(kernel_file(transposed_matmul()), WIDE["slices"], layout="csc", sizes={"K": 16})
    checked(package, sp.csr_array(mixed().T), transpose=True)


def test_every_width_of_pinned_coordinates(kernel_file: Write) -> None:
    """Among them 8 bits, and MLIR's index type, which an encoding without widths has."""
    a = of_lengths([3, 0, 17, 40, 1, 5], 200)
    for widths, plan in product(
        ["", ", posWidth = 8, crdWidth = 8", ", posWidth = 16, crdWidth = 64"],
        [ENTRY_VECTORS[0], STAGED[1], SLICED[0], SLICED[1]],
    ):
        text = matvec(a=f"tensor<?x?xf32, #sparse_tensor.encoding<{{map = (i, j) -> (i : dense, j : compressed){widths}}}>>")
        checked(compile_file(kernel_file(text), plan=f"accumulate-registers,{plan}").package, a)


@pytest.mark.parametrize("plan", [ENTRY_VECTORS[1], STAGED[1], HALVES[3]])
def test_rows_with_a_value_of_their_own(plan: str, kernel_file: Write) -> None:
    result = run(compiled(kernel_file(ROW_SCALED), plan), {"A": mixed()}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


@pytest.mark.parametrize("beta", [0.0, -0.5])
@pytest.mark.parametrize("plan", [ENTRY_VECTORS[1], *STAGED[:2], SLICED[2], HALVES[3]])
def test_alpha_and_beta(plan: str, beta: float, kernel_file: Write) -> None:
    package = compiled(kernel_file(prologue()), plan)
    for name in ("mixed", "one row of many blocks"):
        a = hard()[name]
        y = np.full(a.shape[0], np.nan if beta == 0 else 3, np.float32)
        result = run(package, {"A": a, "y": y, "alpha": 2.5, "beta": beta}, verify=True)
        assert result.check is not None
        assert result.check.passed, result.check
        (x,) = result.inputs.dense.values()
        assert agrees(result.output, 2.5 * a, x, 3 * beta)


# --- What is read and not taken -----------------------------------------------------------------------


def alternating(lengths: list[int]) -> sp.csr_array:
    """Ones, in rows of these lengths: even rows have even columns only, odd rows odd ones."""
    columns = [np.arange(n) * 2 + i % 2 for i, n in enumerate(lengths)]
    width = 2 * max(lengths)
    return sp.csr_array((np.ones(sum(lengths)), np.concatenate(columns), np.cumsum([0, *lengths])), (len(lengths), width))


@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize("plan", PLANS)
def test_nan_and_infinity_do_not_leak(plan: str, parity: int, kernel_file: Write) -> None:
    """Every other column holds none but NaN and infinities, once those that column 0 is among: others know nothing of them."""
    lengths = [1 + 7 * i % 23 for i in range(90)] + [300, 301, 1, 2]
    a = alternating(lengths)
    x = np.ones(a.shape[1], np.float32)
    x[parity::2] = np.resize([np.nan, np.inf, -np.inf], a.shape[1] // 2)
    output = checked(compiled(kernel_file(matvec(fill=0.0)), plan), a, x=x)
    assert np.array_equal(output[1 - parity :: 2], lengths[1 - parity :: 2])
    assert not np.isfinite(output[parity::2]).any()


@pytest.mark.parametrize("plan", [*ENTRY_VECTORS[:2], SLICED[0], SLICED[1], SLICED[4], STAGED[0], HALVES[1]])
def test_an_infinity_keeps_its_sign(plan: str, kernel_file: Write) -> None:
    """A sum of NaN would come of adding what is beside it."""
    a = alternating([1, 3, 2, 1, 1])
    x = np.array([np.inf, -np.inf, 1, 1, 1, 1], np.float32)
    output = checked(compiled(kernel_file(matvec(fill=0.0)), plan), a, x=x)
    assert output.tolist() == [np.inf, -np.inf, np.inf, -np.inf, np.inf]


# --- Workspaces and repeats ---------------------------------------------------------------------------


def launched(package: KernelPackage, arrays: dict[str, Array], sizes: dict[str, int], module: SimtModule) -> None:
    for launch in resolve(package, sizes):
        arguments = [arrays[a] if isinstance(a, str) else a for a in launch.arguments]
        module.launch(launch.kernel, launch.grid, launch.block, arguments, shared_bytes=launch.shared_bytes)


@pytest.mark.parametrize("e", ["f32", "f64"])
@pytest.mark.parametrize("plan", [STAGED[0], STAGED[3]])
def test_launches_that_follow_each_other_give_the_same_bits(plan: str, e: str, kernel_file: Write) -> None:
    """Each finds the tickets as the first did."""
    package = compiled(kernel_file(matvec(e, fill=0.0)), plan)
    for name in ("mixed", "all rows are long", "one row of many blocks"):
        inputs = prepare(package, bind_package(package, {"A": hard()[name]}))
        arrays, module = {key: array.copy() for key, array in inputs.arrays.items()}, SimtModule(package.mlir)
        results = []
        for _ in range(3):
            arrays["result"][...] = np.nan
            launched(package, arrays, inputs.sizes, module)
            assert not arrays["A.row_blocks.tickets"].any()
            results.append(arrays["result"].tobytes())
        assert len(set(results)) == 1
        assert arrays["A.row_blocks.pieces"].max() > 1, "no row was cut"


def test_sums_are_added_to_the_output_once(kernel_file: Write) -> None:
    """Two launches of `y = A x + y` add twice what one adds, for cut rows too."""
    a = of_lengths([600, 3, 0, 129], 700)
    a.data[:] = 1
    package = compiled(kernel_file(matvec()), STAGED[0])
    problem = bind_package(package, {"A": a, "x": np.ones(700), "y": np.zeros(4)})
    inputs = prepare(package, problem)
    arrays, module = {key: array.copy() for key, array in inputs.arrays.items()}, SimtModule(package.mlir)
    for times in (1, 2, 3):
        launched(package, arrays, inputs.sizes, module)
        assert arrays["y"].tolist() == [600 * times, 3 * times, 0, 129 * times]


@pytest.mark.parametrize("plan", [STAGED[2], STAGED[3], STAGED[4], SLICED[1], ENTRY_VECTORS[3]])
def test_bits_do_not_depend_on_timing(plan: str, kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec()), plan)
    inputs = prepare(package, bind_package(package, {"A": hard()["one row of many blocks"]}))
    results = [
        run_simt(package, inputs, module=module).tobytes()
        for module in (SimtModule(package.mlir, threads=n) for n in (1, 2, 8))
        for _ in range(3)
    ]
    assert len(set(results)) == 1


@pytest.mark.parametrize("plan", [STAGED[0], STAGED[3], SLICED[2]])
def test_a_package_packs_the_matrix_that_it_is_given(plan: str, kernel_file: Write, tmp_path: Path) -> None:
    compiled(kernel_file(matvec()), plan).save(tmp_path / "package")
    package = KernelPackage.load(tmp_path / "package")
    each_checked(package, (hard()[name] for name in ("mixed", "bands", "no entries", "all rows are long")))


def test_a_workspace_is_written_and_no_output(kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec(fill=0.0)), STAGED[0])
    access = {buffer.name: buffer.access for buffer in package.buffers}
    assert access["A.row_blocks.partials"] == access["A.row_blocks.tickets"] == "readwrite"
    assert [name for name, kind in access.items() if kind == "write"] == ["result"]
    assert [launch.block for launch in package.launches] == [(64, 1, 1)]


@pytest.mark.parametrize("chip", ["sm_75", "sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("plan", [ENTRY_VECTORS[2], STAGED[2], STAGED[1], SLICED[1]])
def test_the_assembler_takes_it(plan: str, chip: str, kernel_file: Write) -> None:
    package = compiled(kernel_file(matvec("f64")), plan, chip=chip)
    found, reason = ptxas_resources(package.ptx, chip)
    if found is None:
        pytest.skip(reason)
    assert all(r.spill_bytes == 0 for r in found)


# --- Plans by structure -------------------------------------------------------------------------------


def blocked() -> sp.csr_array:
    """Blocks of 8 x 8 that are full."""
    return sp.csr_array(sp.kron(sp.random_array((7, 20), density=0.3, rng=2, format="csr"), np.ones((8, 8))))


KERNELS = {
    **{name: text for name, (text, _) in COMPUTATIONS.items()},
    **{name: generic(ROWS, "parallel reduction", body, types=VECTOR) for name, (body, _) in BODIES.items()},
    "y = A x + 1.5 in f64": matvec("f64", fill=1.5),
    "A B in f64": matmul("f64"),
    "dense times sparse": DENSE_TIMES_SPARSE,
    "C transposed": generic(
        ", ".join(f"affine_map<{m}>" for m in STORED_OTHERWISE["C transposed"]),
        "parallel parallel reduction",
        PRODUCT,
        types=MATRIX,
    ),
    "rows scaled in a sum": ROW_SCALED,
    "alpha and beta": prologue(),
    "alpha and beta with columns": prologue(columns=True),
    **{
        f"pinned {name}": matvec(a=f"tensor<?x?xf32, #sparse_tensor.encoding<{{{encoding}}}>>")
        for name, encoding in PINNED.items()
        if "narrow" not in name
    },
}
STRUCTURES: dict[str, Callable[[], sp.csr_array]] = {
    "bands": lambda: hard()["bands"],
    "one row of many blocks": lambda: hard()["one row of many blocks"],
    "blocks": blocked,
    "rows of like length": lambda: of_lengths([5, 6, 5, 5] * 30 + [9]),
    "a layer": lambda: of_lengths([30, 17, 44, 0, 61, 8] * 8, 91),
}


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 rows are enough for slices, and a thousand entries for rows in order."""
    small = {"sliced_rows": 64, "sliced_ratio": 1, "small": 1000, "many": 1000, "ordered_rows": 48}
    of = Machine.of
    monkeypatch.setattr(Machine, "of", lambda gpu: replace(of(gpu), **small))


def task_of(text: str, bound: dict[str, Any], sizes: dict[str, int]) -> tuple[planner.Task, Any]:
    with context():
        computation = read_kernel(text).computation
        return make_task(bind(computation, bound, {k: n for k, n in sizes.items() if k in computation.size_names()}))


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_a_default_plan_that_is_right(name: str, structure: str, kernel_file: Write) -> None:
    text, a = KERNELS[name], STRUCTURES[structure]()
    bound = {"A": a, "alpha": 2.0, "beta": 0.5} if "alpha" in name else {"A": a}
    with context():
        sizes = {"K": 8} if "K" in read_kernel(text).computation.size_names() else {}
    result = run(compile_file(kernel_file(text), bound, sizes).package, bound, sizes, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("columns", [1, 2, 9, 33, 40, 143, 160, 256])
def test_rows_in_order_have_any_number_of_columns(columns: int, element: str, kernel_file: Write) -> None:
    compiled = compile_file(kernel_file(matmul(element)), {"A": STRUCTURES["a layer"]()}, {"K": columns})
    assert ("reorder" in compiled.plan.text()) == (columns > 2)
    result = run(compiled.package, {"A": STRUCTURES["a layer"]()}, {"K": columns}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check


@pytest.mark.slow
@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_plans_by_structure_are_right_or_say_why_not(name: str, structure: str, kernel_file: Write) -> None:
    text, a = KERNELS[name], STRUCTURES[structure]()
    bound = {"A": a, "alpha": 2.0, "beta": 0.5} if "alpha" in name else {"A": a}
    task, found = task_of(text, bound, {"K": 8})
    sizes = {} if task.columns == 0 else {"K": 8}
    for plan in planner.ranked(task, found, Target()):
        try:
            package = compile_file(kernel_file(text), bound, sizes, plan=plan.text()).package
        except NotApplicable:
            continue
        result = run(package, bound, sizes, verify=True)
        assert result.check is not None
        assert result.check.passed, (plan.text(), result.check)


def test_plans_of_small_matrices_are_of_the_kinds_that_large_ones_get(small_is_large: None, kernel_file: Write) -> None:
    used = {
        step.name
        for structure in STRUCTURES.values()
        for step in compile_file(kernel_file(matvec()), {"A": structure()}).plan.steps
    }
    assert {"slice-rows", "stage-entries", "jam-block-rows", "diagonals"} <= used


@pytest.mark.parametrize(
    ("text", "gathers", "row_terms"),
    [
        (matvec(), True, False),
        (transposed_matvec(), True, False),
        (ROW_SCALED, False, True),
        (KERNELS["x unused"], False, False),
        (KERNELS["a function of x"], True, False),
        (prologue(), True, False),
    ],
)
def test_what_a_task_says_of_what_is_read(text: str, gathers: bool, row_terms: bool) -> None:
    task, _ = task_of(text, {"A": mixed()}, {})
    assert (task.gathers, task.row_terms) == (gathers, row_terms)


# --- What is refused ----------------------------------------------------------------------------------

REFUSED = {
    "slice-rows,slice-rows,rows-to-threads": "does not go with rows stored in slices",
    "slice-rows,bin-rows,rows-to-threads": "does not go with rows stored in slices",
    "slice-rows,segment-rows,rows-to-threads": "does not go with rows stored in slices",
    "slice-rows,stage-entries": "does not go with rows stored in slices",
    "slice-rows,vectorize-entries,rows-to-threads": "does not go with rows stored in slices",
    "segment-rows,slice-rows,rows-to-threads": "does not go with rows cut into segments",
    "vectorize-entries,vectorize-entries,rows-to-threads": "does not go with stored entries loaded in vectors",
    "vectorize-entries,slice-rows,rows-to-threads": "does not go with stored entries loaded in vectors",
    "vectorize-entries,stage-entries": "does not go with stored entries loaded in vectors",
    "unroll,vectorize-entries,rows-to-threads": "does not go with the innermost reduction unrolled",
    "rows-to-threads,vectorize-entries": "does not go with rows mapped to threads",
    "unroll,stage-entries": "does not go with the innermost reduction unrolled",
    "stage-entries,rows-to-threads": "needs a parallel loop outside all others, not mapped yet",
    "stage-entries,stage-entries": "needs a parallel loop outside all others, not mapped yet",
    "stage-entries{entries=128 threads=256}": "256 threads do not share 128 entries evenly",
}


@pytest.mark.parametrize("plan", REFUSED)
def test_what_does_not_go_together_is_refused(plan: str, kernel_file: Write) -> None:
    with pytest.raises((NotApplicable, PlanError), match=REFUSED[plan]):
        compiled(kernel_file(matvec()), f"{plan},map-blocks" if "rows-to" in plan else plan)


@pytest.mark.parametrize(
    ("text", "plan", "message"),
    [
        (matmul(), "stage-entries", "rows with dense columns or blocks inside are not staged"),
        (ROW_SCALED, "stage-entries", "what an entry adds depends on its row; use stage=entries"),
        (ROW_SCALED, "slice-rows,rows-to-threads,map-blocks", "no column is read, where a mark could say"),
    ],
)
def test_kernels_that_are_refused(text: str, plan: str, message: str, kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match=message):
        compiled(kernel_file(text), plan)


@pytest.mark.parametrize("layout", ["bsr block-rows=2 block-columns=2", "dcsr"])
@pytest.mark.parametrize("name", ["slice-rows", "stage-entries", "vectorize-entries"])
def test_other_formats(name: str, layout: str, kernel_file: Write) -> None:
    """Entries that are blocks are not read so, and rows that are stored themselves have no place to be found by."""
    plan = f"{name}{'' if name == 'stage-entries' else ',rows-to-threads,map-blocks'}"
    if layout == "dcsr" and name == "vectorize-entries":
        checked(compiled(kernel_file(matvec()), plan, layout=layout), mixed())
        return
    with pytest.raises(NotApplicable):
        compiled(kernel_file(matvec()), plan, layout=layout)


def test_slices_that_are_too_wide_are_refused(kernel_file: Write) -> None:
    """Offsets reach 65,534 columns; the one after them marks padding."""
    package = compiled(kernel_file(matvec()), "slice-rows{height=2 offsets=16},rows-to-threads,map-blocks")

    def with_columns(*columns: int) -> sp.csr_array:
        return sp.csr_array((np.ones(len(columns)), ([0, *[1] * (len(columns) - 1)], columns)), (3, 200_000))

    checked(package, with_columns(100_000, 165_534))
    with pytest.raises(InputError, match="the columns of a slice span 65536, and 16 bits hold less than 65535"):
        run(package, {"A": with_columns(100_000, 165_535)})
    checked(package, with_columns(100_000, 100_001, 165_534))


@pytest.mark.parametrize("offsets", [16, 32])
def test_the_column_that_marks_padding_is_refused(offsets: int, kernel_file: Write) -> None:
    plan = f"slice-rows{{offsets={offsets}}},rows-to-threads,map-blocks"
    package = compiled(kernel_file(matvec()), plan, (32, 16))
    checked(package, sp.csr_array(([1.0], ([0], [65_534])), (2, 65_536)))
    with pytest.raises(InputError, match="there is a column 65535, and 16 bits hold less than 65535"):
        run(package, {"A": sp.csr_array(([1.0], ([0], [65_535])), (2, 65_536))})


def test_choices_that_do_not_exist() -> None:
    for name, options in [
        ("stage-entries", {"stage": "sums"}),
        ("slice-rows", {"offsets": "8"}),
        ("vectorize-entries", {"width": "3"}),
    ]:
        with pytest.raises(PlanError, match="is not one of"):
            find(name).make(options)


# --- Recipe: slices -----------------------------------------------------------------------------------


@st.composite
def stored_rows(draw: st.DrawFn, columns: int = 70_000) -> tuple[Array, Array]:
    """Positions and sorted coordinates of a few rows: mostly short, some long, some empty; columns near each other or not."""
    lengths = draw(st.lists(st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 40)), max_size=40))
    start = st.one_of(st.integers(0, 300), st.integers(0, columns - 200))
    rows = []
    for n in lengths:
        gaps = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
        rows.append(draw(start) + np.cumsum(gaps) - 1 if n else np.empty(0, int))
    return positions_of(lengths), np.concatenate([*rows, np.empty(0, int)]).astype(int)


def unpacked(made: dict[str, Array], height: int, bits: int) -> list[tuple[list[int], list[float]]]:
    """The rows of slices, entry by entry: each slot from its place on, in steps of the height, to the first mark."""
    mark = (1 << bits) - 1
    rows: list[tuple[list[int], list[float]]] = [([], []) for _ in made["rows"]]
    for slot, row in enumerate(made["rows"].tolist()):
        slice_ = slot // height
        base = int(made["bases"][slice_]) if "bases" in made else 0
        places = range(int(made["starts"][slice_]) + slot % height, int(made["starts"][slice_ + 1]), height)
        marks = [int(made["coordinates"][p]) & mark == mark for p in places]
        count = marks.index(True) if True in marks else len(marks)
        assert all(marks[count:]), "an entry after padding"
        assert all(made["values"][p] == 0 for p in places[count:])
        rows[row] = (
            [base + (int(made["coordinates"][p]) & mark) for p in places[:count]],
            [float(made["values"][p]) for p in places[:count]],
        )
    return rows


@settings(deadline=None, max_examples=150)
@given(
    stored=stored_rows(),
    height=st.sampled_from((2, 4, 8, 32, 128)),
    window=st.sampled_from((1, 128, 1024, 1 << 30)),
    width=st.sampled_from((np.uint16, np.int32, np.int64)),
    narrow=st.booleans(),
)
def test_slices_hold_the_matrix(stored: tuple[Array, Array], height: int, window: int, width: Any, narrow: bool) -> None:
    positions, columns = stored
    if width is np.uint16:
        columns = np.minimum(columns, 65_534)
    bits = 16 if narrow else 8 * np.dtype(width).itemsize
    values = np.arange(1.0, columns.size + 1)
    try:
        made = sliced_rows(positions, columns.astype(width), values, height, window, bits)
    except InputError:
        assert narrow
        assert columns.max() - columns.min() > 65_534
        return
    lengths = np.diff(positions)
    total = lengths.size
    assert sorted(made["rows"].tolist()) == list(range(total))
    for start in range(0, total, window):
        mine = made["rows"][start : start + window]
        assert sorted(mine.tolist()) == list(range(start, min(start + window, total))), "a row left its window"
        order = [(-lengths[row], row) for row in mine.tolist()]
        assert window == 1 or order == sorted(order)
    widest = np.diff(made["starts"]) // height
    slots = np.zeros(-(-total // height) * height, int)
    slots[:total] = lengths[made["rows"]]
    assert widest.tolist() == slots.reshape(-1, height).max(axis=1, initial=0).tolist()
    assert made["coordinates"].size == made["values"].size == made["starts"][-1]
    wanted = [(columns[i:j].tolist(), values[i:j].tolist()) for i, j in pairwise(positions)]
    assert unpacked(made, height, bits) == wanted


def test_slices_keep_the_bits_of_values() -> None:
    values = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
    made = sliced_rows(np.array([0, 1, 4]), np.array([0, 0, 1, 2], np.int32), values, 2, 1, 32)
    assert made["values"].dtype == np.float32
    assert made["values"].tolist()[1::2] == [0.0 * -1, np.inf, float(np.float32(1e-45))]
    assert made["values"].tobytes()[4:8] == values.tobytes()[4:8]
    assert np.isnan(made["values"][0])


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [0] * 33, [7]])
def test_the_smallest_slices(lengths: list[int]) -> None:
    columns = np.arange(sum(lengths), dtype=np.int32)
    for window, bits in product((1, 128), (16, 32)):
        made = sliced_rows(positions_of(lengths), columns, columns + 1.0, 32, window, bits)
        assert made["starts"].size == -(-len(lengths) // 32) + 1
        assert made["coordinates"].size == 32 * sum(lengths)
        assert ("bases" in made) == (bits == 16)


def test_padding_beyond_32_bits_is_refused() -> None:
    positions = np.repeat([0, 1 << 25], [1, 128])
    with pytest.raises(InputError, match=r"more than 2\^31"):
        sliced_rows(positions, np.zeros(1 << 25, np.int32), np.zeros(1 << 25, np.float32), 128, 1, 32)


def test_columns_beyond_32_bits_have_no_offsets() -> None:
    far = np.array([1 << 31, (1 << 31) + 5])
    with pytest.raises(InputError, match=r"a column of 2\^31 or more"):
        sliced_rows(np.array([0, 2]), far, np.ones(2), 32, 1, 16)
    made = sliced_rows(np.array([0, 2]), far - 6, np.ones(2), 32, 1, 16)
    assert unpacked(made, 32, 16) == [((far - 6).tolist(), [1.0, 1.0])]


# --- Recipe: blocks of rows ---------------------------------------------------------------------------

LENGTHS = st.lists(st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 300), st.integers(0, 3000)), max_size=60)


def check_blocks(lengths: list[int], entries: int, rows: int, threads: int) -> None:
    """Every block by itself, in order, against what the recipe says of it."""
    positions = positions_of(lengths)
    made = row_blocks(positions, entries, rows, threads)
    count = made["shift"].size
    assert {made[part].size for part in ("shift", "start", "pieces", "partials", "tickets")} == {count}
    assert made["rows"].size == made["positions"].size == count + 1
    assert made["rows"][-1] == len(lengths)
    assert made["positions"][-1] == sum(lengths)
    assert not made["partials"].any()
    assert not made["tickets"].any()
    assert {array.dtype for array in made.values()} == {np.dtype(np.int32)}
    row = block = 0
    while row < len(lengths):
        if lengths[row] > entries:
            block = check_pieces(made, block, row, positions, entries)
            row += 1
            continue
        assert made["rows"][block] == row
        assert made["positions"][block] == positions[row]
        after = int(made["rows"][block + 1])
        after = ~after if after < 0 else after
        size = positions[after] - positions[row]
        assert 0 < after - row <= rows
        assert size <= entries
        fits = after < len(lengths) and after - row < rows and size + lengths[after] <= entries
        assert not fits, "another row would have fitted"
        lanes = 1 << int(made["shift"][block])
        assert lanes <= 32
        assert lanes == 1 or lanes * (after - row) <= threads
        assert lanes == 32 or 2 * lanes * (after - row) > threads
        row, block = after, block + 1
    assert block == count


def check_pieces(made: dict[str, Array], block: int, row: int, positions: Array, entries: int) -> int:
    """The pieces of a cut row, of which `block` is the first; returns the block that follows."""
    count = int(made["pieces"][block])
    mine = slice(block, block + count)
    assert count == -(-(positions[row + 1] - positions[row]) // entries)
    assert (made["rows"][mine] == ~row).all()
    assert (made["start"][mine] == block).all()
    assert (made["pieces"][mine] == count).all()
    sizes = np.diff(made["positions"][block : block + count + 1])
    assert made["positions"][block] == positions[row]
    assert made["positions"][block + count] == positions[row + 1]
    assert sizes.max() <= entries
    assert sizes.max() - sizes.min() <= 1
    return block + count


@settings(deadline=None, max_examples=200)
@given(
    lengths=LENGTHS,
    entries=st.sampled_from((1, 7, 128, 1024)),
    rows=st.sampled_from((1, 3, 256)),
    threads=st.sampled_from((64, 128, 512)),
)
def test_blocks_cover_the_rows(lengths: list[int], entries: int, rows: int, threads: int) -> None:
    check_blocks(lengths, entries, rows, threads)


@pytest.mark.parametrize(
    "lengths",
    [[], [0], [0] * 5000, [1_000_000], [1, 1_000_000, 1], [0, 1_000_000, 0, 0, 129], [128] * 50, [129] * 50, [1] * 5000],
)
def test_blocks_of_extreme_rows(lengths: list[int]) -> None:
    check_blocks(lengths, 128, 256, 64)


def test_blocks_that_32_bits_do_not_number_are_refused() -> None:
    with pytest.raises(InputError, match=r"more than 2\^31 rows or entries"):
        row_blocks(np.array([0, 5, INT32 + 1]), 4096, 256, 64)
    assert row_blocks(np.array([0, 5, INT32]), 1 << 30, 256, 64)["positions"][-1] == INT32


BLOCKS = "row-blocks{level=1 entries=128 rows=256 threads=64}"
SLICES = "sliced-rows{level=1 height=32 window=1 bits=16}"


@pytest.mark.parametrize("text", [BLOCKS, SLICES])
def test_recipes_read_back_what_they_print(text: str) -> None:
    assert str(Recipe.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (BLOCKS, ("=128", "=0")),
        (BLOCKS, ("=256", "=0")),
        (BLOCKS, (" threads=64", "")),
        (BLOCKS, ("threads", "lanes")),
        (SLICES, ("=32", "=0")),
        (SLICES, ("bits=16", "bits=0")),
        (SLICES, ("bits", "values")),
    ],
)
def test_what_is_no_recipe_is_refused(text: str, change: tuple[str, str]) -> None:
    with pytest.raises(PlanError):
        Recipe.parse(text.replace(*change))


def test_a_recipe_that_reads_coordinates_says_which_are_missing() -> None:
    arrays = {"positions1": np.array([0, 1]), "values": np.ones(1)}
    with pytest.raises(InputError, match="reads coordinates1, which this format does not have"):
        run_recipe(Recipe.parse("sliced-rows{level=1 height=32 window=1 bits=16}"), arrays)
