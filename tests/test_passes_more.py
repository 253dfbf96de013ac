"""Lanes that load entries together, persistent blocks, several rows a thread: right with each other and on hard matrices.

Kernels run under emulation with all checks, and each result is held to SciPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, matmul, transposed_matmul
from test_schedules import HARD, both, mixed

from sparseditto.compiler.api import compile_file, run
from sparseditto.dialects.errors import NotApplicable

Write = Callable[[str], Path]

FIRST = "set-encoding,accumulate-registers"

# --- share-loads --------------------------------------------------------------------------------------

SHARED = {  # before the lanes, lanes, after them, columns
    "a warp": ("", "lanes=32", "", 32),
    "a warp, ahead": ("", "lanes=32", "", 64),
    "two columns a lane": ("", "lanes=32", "", 64),
    "a warp, not all have columns": ("", "lanes=32", "", 9),
    "a warp, some have two columns": ("", "lanes=32", "unroll{factor=4},", 33),
    "eight lanes": ("", "lanes=8", "", 8),
    "eight lanes, nine columns": ("", "lanes=8", "unroll{factor=2 tail=clamp},", 9),
    "two lanes": ("", "lanes=2", "unroll{factor=2},", 33),
    "sixteen lanes, nine columns": ("", "lanes=16", "unroll,", 9),
    "vectors": ("vectorize{width=4},", "lanes=8", "unroll{factor=4},", 32),
    "vectors, few lanes have columns": ("vectorize{width=4},", "lanes=16", "", 36),
    "vectors, one warp": ("vectorize{width=4},", "lanes=32", "unroll{factor=8},", 128),
    "tiles": ("vectorize{width=2},jam-columns{factor=2},", "lanes=8", "unroll{factor=2},", 32),
    "groups": ("vectorize{width=4},", "lanes=32 groups=4", "unroll{factor=2},", 32),
    "groups of two": ("", "lanes=8 groups=4", "", 8),
    "groups in half a warp": ("", "lanes=16 groups=2", "unroll{factor=4 tail=clamp},", 32),
}


@pytest.mark.parametrize("e", ["f32", "f64"])
@pytest.mark.parametrize("cut", ["", "segment-rows{length=16},"])
@pytest.mark.parametrize("ahead", ["false", "true"])
@pytest.mark.parametrize("name", SHARED)
def test_lanes_load_entries_together(name: str, ahead: str, cut: str, e: str, kernel_file: Write) -> None:
    before, lanes, after, columns = SHARED[name]
    share = f"rows-to-subgroups{{{lanes} share=columns}},share-loads{{ahead={ahead}}}"
    start = None if ahead == "true" else 1.5 if cut else 0.0
    plan = f"{FIRST},{cut}{before}{share},{after}map-blocks{{threads=64}}"
    both(kernel_file(matmul(e, fill=start)), mixed()[:48], plan, columns)


FEW, WHOLE = "rows-to-subgroups{lanes=4 share=columns}", "rows-to-subgroups{lanes=32 share=columns}"
WALKS = {
    "few lanes": f"{FEW},share-loads,unroll{{factor=4}},map-blocks",
    "few lanes, ahead": f"vectorize,{FEW},share-loads{{ahead=true}},unroll{{factor=2 tail=clamp}},map-blocks",
    "a warp": f"{WHOLE},share-loads{{ahead=true}},unroll{{factor=4}},map-blocks",
    "segments": f"segment-rows{{length=16}},vectorize,{FEW},share-loads,map-blocks",
}


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("name", HARD)
def test_lanes_load_the_entries_of_hard_matrices(name: str, walk: str, kernel_file: Write) -> None:
    start = None if len(name) % 2 else -2.5
    both(kernel_file(matmul(fill=start)), HARD[name](), f"{FIRST},{WALKS[walk]}", 16)


@pytest.mark.parametrize("walk", ["few lanes", "a warp"])
@pytest.mark.parametrize("widths", [(16, 16), (64, 64), (64, 16), (32, 32)])
def test_stored_indices_of_any_width_are_broadcast(widths: tuple[int, int], walk: str, kernel_file: Write) -> None:
    encoding = "set-encoding{{positions={} coordinates={}}}".format(*widths)
    both(kernel_file(matmul("f64")), mixed(), f"{encoding},accumulate-registers,{WALKS[walk]}", 16)


@pytest.mark.parametrize("walk", ["few lanes", "a warp"])
@pytest.mark.parametrize("layout", ["dcsr", "csc"])
def test_lanes_load_entries_of_other_formats(layout: str, walk: str, kernel_file: Write) -> None:
    transpose = layout == "csc"
    a = sp.csr_array(mixed().T) if transpose else mixed()
    text = transposed_matmul() if transpose else matmul(fill=None)
    plan = f"set-encoding{{format={layout}}},accumulate-registers,{WALKS[walk]}"
    both(kernel_file(text), a, plan, 16, transpose=transpose)


@pytest.mark.parametrize("where", ["first", "before", "after", "last"])
def test_streamed_entries_are_shared_in_any_order(where: str, kernel_file: Write) -> None:
    steps = ["vectorize", FEW, "share-loads", "unroll", "map-blocks"]
    steps.insert({"first": 0, "before": 2, "after": 3, "last": 4}[where], "stream-entries")
    plan = f"{FIRST},{','.join(steps)}"
    both(kernel_file(matmul()), mixed(), plan, 16)
    package = compile_file(kernel_file(matmul()), sizes={"K": 16}, plan=plan).package
    assert package.ptx.count("L1::no_allocate") >= 2


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("first", [np.nan, np.inf])
def test_a_lane_past_the_end_of_its_row_takes_nothing(first: float, walk: str, kernel_file: Write) -> None:
    """Row 0 of B, which such lanes read, holds no number; rows that do not have column 0 know nothing of it."""
    lengths = [0, 1, 40, 3, 0, 7, 33, 2]
    indices = np.concatenate([np.arange(1, n + 1) for n in lengths])
    a = sp.csr_array((np.ones(sum(lengths)), indices, np.cumsum([0, *lengths])), (8, 41))
    b = np.ones((41, 16), np.float32)
    b[0] = first
    package = compile_file(kernel_file(matmul()), {"A": a}, {"K": 16}, plan=f"{FIRST},{WALKS[walk]}").package
    output = run(package, {"A": a, "B": b}).output
    assert np.array_equal(output, np.repeat(lengths, 16).reshape(8, 16))


def test_blocks_of_entries_are_not_shared(kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match="over stored entries that are no blocks"):
        compile_file(
            kernel_file(matmul()), sizes={"K": 16}, plan=f"set-encoding{{format=bsr}},accumulate-registers,{WALKS['few lanes']}"
        )


def test_any_number_of_columns(kernel_file: Write) -> None:
    """K stays free: no lane knows whether it has a column until it looks."""
    package = compile_file(kernel_file(matmul()), plan=f"{FIRST},{WALKS['a warp']}").package
    for k in (0, 1, 9, 33):
        result = run(package, {"A": MATRICES["staircase"]()}, {"K": k}, verify=True)
        assert result.check is not None
        assert result.check.passed, k
