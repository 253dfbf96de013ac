"""Tiles of columns: right for widths that divide the columns and widths that do not, with every pass that goes with them.

Kernels run under emulation with all checks, and each result is held to SciPy in float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import scipy.sparse as sp
from conftest import both, matmul, matvec, transposed_matmul
from test_schedules import HARD, mixed

from sparseditto.agent.features import Features
from sparseditto.agent.planner import Task
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.api import compile_file
from sparseditto.compiler.runtimes.launches import resolve
from sparseditto.compiler.runtimes.resources import ptxas_resources
from sparseditto.dialects.errors import NotApplicable, PlanError
from sparseditto.passes.base import Form
from sparseditto.passes.plan import Plan
from sparseditto.passes.schedule.tile_columns import TileColumns

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]

FIRST = "set-encoding,accumulate-registers"
END = "map-blocks{threads=64}"
CUTS = {"rows": "", "segments": "segment-rows{length=16},"}

AFTER = {  # columns, width, what follows
    "a thread a row": (32, 8, "rows-to-threads"),
    "a lane a column": (32, 16, "rows-to-subgroups{lanes=16},unroll{factor=2}"),
    "vectors": (64, 16, "vectorize{width=4},rows-to-subgroups{lanes=4},unroll{factor=4}"),
    "vectors of two, 16 tiles": (128, 8, "vectorize{width=2},rows-to-subgroups{lanes=4}"),
    "three tiles, jammed": (96, 32, "vectorize{width=4},jam-columns{factor=2},rows-to-subgroups{lanes=4},unroll"),
    "jammed in three": (128, 32, "vectorize{width=2},jam-columns{factor=3},rows-to-subgroups{lanes=8}"),
    "groups of lanes": (64, 32, "vectorize{width=4},rows-to-subgroups{lanes=32 groups=4},unroll{factor=2 tail=clamp}"),
    "lanes share entries": (32, 16, "rows-to-subgroups{lanes=4 share=entries},unroll{tail=clamp}"),
    "vectors of entries": (64, 16, "vectorize{width=4},vectorize-entries{width=4},rows-to-subgroups{lanes=4}"),
    "streamed, bounded": (96, 16, "stream-entries,vectorize{width=4},rows-to-subgroups{lanes=4}"),
}
NARROWER = {  # the width does not divide the columns
    "one column is left": (33, 32, "rows-to-threads"),
    "one column is left of three tiles": (33, 16, "rows-to-subgroups{lanes=16},unroll{factor=2}"),
    "seven columns are left": (15, 8, "rows-to-subgroups{lanes=4}"),
    "a vector is left": (36, 16, "vectorize{width=4},rows-to-subgroups{lanes=4},unroll{factor=4}"),
    "vectors of two": (34, 16, "vectorize{width=2},rows-to-subgroups{lanes=8}"),
    "unrolled before": (36, 16, "vectorize{width=4},unroll,rows-to-threads"),
    "jammed": (100, 32, "vectorize{width=4},jam-columns{factor=2},rows-to-subgroups{lanes=4},unroll"),
    "jammed in three": (60, 16, "vectorize{width=2},jam-columns{factor=3},rows-to-subgroups{lanes=4}"),
    "groups of lanes": (60, 32, "vectorize{width=4},rows-to-subgroups{lanes=16 groups=2},unroll{factor=2}"),
    "groups of lanes, some idle": (33, 8, "rows-to-subgroups{lanes=32 groups=2}"),
    "lanes share entries": (40, 16, "rows-to-subgroups{lanes=4 share=entries},unroll{tail=clamp}"),
    "vectors of entries": (36, 8, "vectorize{width=4},vectorize-entries{width=4},rows-to-subgroups{lanes=2}"),
}


def plan_of(width: int, after: str, cut: str = "", end: str = END) -> str:
    return f"{FIRST},{cut}tile-columns{{width={width}}},{after},{end}"


@pytest.mark.parametrize("start", [None, 0.0, 1.5])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", AFTER)
def test_tiles_of_equal_width(name: str, cut: str, start: float | None, kernel_file: Write) -> None:
    columns, width, after = AFTER[name]
    both(kernel_file(matmul(fill=start)), mixed(), plan_of(width, after, CUTS[cut]), columns)


@pytest.mark.parametrize("start", [None, 0.0, 1.5])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", NARROWER)
def test_the_last_tile_begins_inside_the_one_before(name: str, cut: str, start: float | None, kernel_file: Write) -> None:
    columns, width, after = NARROWER[name]
    both(kernel_file(matmul(fill=start)), mixed(), plan_of(width, after, CUTS[cut]), columns)


@pytest.mark.parametrize("start", [None, 0.0])
@pytest.mark.parametrize("columns", [64, 36])
def test_doubles(columns: int, start: float | None, kernel_file: Write) -> None:
    plan = plan_of(16, "vectorize{width=2},rows-to-subgroups{lanes=8},unroll", end=f"{END},bound-launch{{blocks=4}}")
    both(kernel_file(matmul("f64", fill=start)), mixed(), plan, columns)


@pytest.mark.parametrize("widths", [(16, 16), (32, 16), (64, 64)])
def test_widths_of_stored_indices(widths: tuple[int, int], kernel_file: Write) -> None:
    encoding = f"set-encoding{{positions={widths[0]} coordinates={widths[1]}}}"
    plan = plan_of(16, "vectorize{width=4},rows-to-subgroups{lanes=4}").replace("set-encoding", encoding)
    both(kernel_file(matmul()), mixed(), plan, 36)


@pytest.mark.parametrize("encoding", ["format=bsr block-rows=3 block-columns=4", "format=dcsr"])
@pytest.mark.parametrize("columns", [32, 36])
def test_other_formats(columns: int, encoding: str, kernel_file: Write) -> None:
    plan = plan_of(16, "vectorize{width=4},rows-to-subgroups{lanes=4},unroll")
    plan = plan.replace("set-encoding", f"set-encoding{{{encoding}}}")
    both(kernel_file(matmul(fill=None)), mixed(), plan, columns)


@pytest.mark.parametrize("columns", [32, 33])
@pytest.mark.parametrize("name", HARD)
def test_hard_matrices(name: str, columns: int, kernel_file: Write) -> None:
    plan = plan_of(16, "rows-to-subgroups{lanes=8 groups=2},unroll", CUTS["segments"])
    both(kernel_file(matmul()), HARD[name](), plan, columns)


def test_columns_of_a_transposed_matrix(kernel_file: Write) -> None:
    plan = plan_of(16, "vectorize{width=4},rows-to-subgroups{lanes=4}").replace("set-encoding", "set-encoding{format=csc}")
    both(kernel_file(transposed_matmul()), sp.csr_array(mixed().T), plan, 36, transpose=True)


# --- What comes out -----------------------------------------------------------------------------------


def loops_of(ptx: str) -> list[list[str]]:
    """The instructions of each block that branches back to itself."""
    blocks = re.split(r"^(\$L__BB\d+_\d+):", ptx, flags=re.M)
    named = zip(blocks[1::2], blocks[2::2], strict=True)
    own = [body.split(f"bra \t{name};")[0] for name, body in named if f"bra \t{name};" in body]
    return [re.findall(r"^\t(?!@)(\S+)", body, re.M) for body in own]


@pytest.mark.parametrize("columns", [128, 100])
def test_no_arithmetic_of_tiles_in_the_walk_over_entries(columns: int, kernel_file: Write) -> None:
    """One multiplication and one addition an entry, as without tiles, and no division anywhere."""
    after = "vectorize{width=4},rows-to-subgroups{lanes=8},unroll{factor=4}"
    ptx = compile_file(kernel_file(matmul()), sizes={"K": columns}, plan=plan_of(32, after)).package.ptx
    assert not re.search(r"\b(div|rem)\.", ptx)
    (main, *_) = sorted(loops_of(ptx), key=len, reverse=True)
    assert main.count("ld.global.nc.v4.b32") == 4
    assert main.count("mul.wide.u32") == 4
    assert sum(name.startswith("add.") for name in main) == 4 + 3
    assert not [name for name in main if name.startswith(("min", "sel", "shl", "mad"))]


@pytest.mark.parametrize("columns", [128, 100])
def test_the_assembler_spills_nothing(columns: int, kernel_file: Write) -> None:
    after = "vectorize{width=4},jam-columns{factor=2},rows-to-subgroups{lanes=4},unroll"
    package = compile_file(kernel_file(matmul()), sizes={"K": columns}, plan=plan_of(32, after)).package
    found, reason = ptxas_resources(package.ptx, package.chip)
    if found is None:
        pytest.skip(reason)
    assert all(r.spill_bytes == 0 for r in found)


def test_the_grid_has_all_tiles(kernel_file: Write) -> None:
    package = compile_file(kernel_file(matmul()), sizes={"K": 100}, plan=plan_of(32, "rows-to-subgroups{lanes=8}")).package
    sizes = {"A.lvl0": 10, "A.lvl1": 10, "B.dim0": 10, "result.dim0": 10}
    needed = {size: sizes.get(size, 10) for buffer in package.buffers for size in buffer.shape if not size.isdigit()}
    (launch,) = resolve(package, {**sizes, **needed})
    assert launch.grid[0] == 5, "ten rows, four tiles, eight lanes: 320 threads"


# --- Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sizes", "plan", "message"),
    [
        (matvec(), {}, "tile-columns,rows-to-threads", "needs a sequential loop over dense columns"),
        (matmul(), {}, "tile-columns,rows-to-threads", "the number of columns is not known"),
        (matmul(), {"K": 32}, "tile-columns{width=32},rows-to-threads", "32 columns make one tile of 32"),
        (matmul(), {"K": 33}, "tile-columns{width=16},vectorize{width=2},rows-to-threads", "begin with a whole vector of 2"),
        (matmul(), {"K": 40}, "tile-columns{width=16},vectorize{width=8},tile-columns{width=8}", "does not go with"),
        (matmul(), {"K": 64}, "tile-columns,segment-rows,rows-to-threads", "segment-rows: does not go with all rows"),
        (matmul(), {"K": 64}, "rows-to-threads,tile-columns", "needs a parallel loop outside all others"),
    ],
)
def test_what_is_refused(text: str, sizes: dict[str, int], plan: str, message: str, kernel_file: Write) -> None:
    with pytest.raises((NotApplicable, PlanError), match=message):
        compile_file(kernel_file(text), sizes=sizes, plan=f"{FIRST},{plan},{END}")


# --- The search ---------------------------------------------------------------------------------------


def context(columns: int, rows: int = 1 << 20) -> Context:
    features = Features(rows=rows, columns=rows, entries=16 * rows, mean_row=16.0, max_row=40, variation=0.3, empty_rows=0.0)
    return Context(Task(rows_first=True, choose_format=True, columns=columns, element_bytes=4, shape=(rows, rows)), features)


def test_the_widest_tile_that_a_cache_keeps_comes_first() -> None:
    assert [p.width for p in TileColumns.candidates(context(128, 1 << 18))] == [16, 8, 32, 64]
    assert [p.width for p in TileColumns.candidates(context(128, 1 << 22))] == [8, 16, 32, 64]
    assert TileColumns.candidates(context(128, 1000)) == ()
    assert TileColumns.candidates(context(8)) == ()


@pytest.mark.parametrize("columns", [128, 100])
def test_the_search_reaches_tiles(columns: int) -> None:
    space = Space(context(columns))
    (base, *_) = space.seeds()
    found = [plan for plan in space.neighbours(base) if any(step.name == "tile-columns" for step in plan.steps)]
    assert found
    for plan in found:
        names = [step.name for step in plan.steps]
        vectors = [names.index(step.name) for step in plan.steps if Form.VECTORS in step.provides]
        assert all(names.index("tile-columns") < k for k in vectors)
        assert Plan.parse(plan.text()).text() == plan.text()
