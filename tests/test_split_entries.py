"""`split-entries`: equal parts of the entries give the right sums for any rows, and the same bits where that is promised.

Kernels run under emulation with all checks.  Each result is held to the compiler's own check and to SciPy in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, Array, both, generic, matmul, matvec, of_lengths, transposed_matmul, transposed_matvec
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scalars import FORMS, solve

from sparseditto.agent.features import analyse
from sparseditto.agent.planner import Task
from sparseditto.agent.space import Context
from sparseditto.compiler.api import bind_package, compile_file, run
from sparseditto.compiler.execute import prepare, run_simt
from sparseditto.compiler.runtimes.launches import resolve
from sparseditto.compiler.runtimes.resources import ptxas_resources
from sparseditto.compiler.runtimes.simt import SimtModule
from sparseditto.dialects.entry_parts import entry_carries, entry_parts
from sparseditto.dialects.errors import InputError, NotApplicable, PlanError
from sparseditto.dialects.recipes import Recipe
from sparseditto.passes.schedule.split_entries import SplitEntries

pytestmark = pytest.mark.sweep

Write = Callable[[str], Path]

MODES = ("atomic", "deterministic")
EMPTY = [0] * 3000


@cache
def mixed() -> sp.csr_array:
    """Rows of every length up to 34, around 64, 128 and 256, of 300 and 1000, and empty ones between and at both ends."""
    return of_lengths([0, 0, *range(35), 1000, 0, 63, 64, 65, 0, 127, 128, 129, 300, 1, 256, 0])


HARD: dict[str, Callable[[], sp.csr_array]] = {
    "mixed": mixed,
    "runs of empty rows": lambda: of_lengths([*EMPTY, 5, 0, 700, 0, 0, 3, *EMPTY, 64, *EMPTY]),
    "rows over many parts": lambda: of_lengths([0, 3000, 0, 2999, 1, 0, 1, 2500], 3001),
    "one giant row": lambda: of_lengths([2500], 3001),
    "rows of a part's length": lambda: of_lengths([64] * 9),
    "rows of one entry": lambda: of_lengths([1] * 333),
    "ends at a boundary": lambda: of_lengths([64, 128, 1, 63, 192, 64]),
    **{
        name: MATRICES[name]
        for name in ("no entries", "0x0", "0x5", "5x0", "1x1", "one entry", "full column", "special values")
    },
}


def plan(split: str, *, first: str = "", encoding: str = "set-encoding") -> str:
    return ",".join(filter(None, (encoding, "accumulate-registers", first, f"split-entries{{{split}}}", "map-blocks")))


# --- SpMV ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HARD)
def test_spmv_on_hard_matrices(name: str, mode: str, kernel_file: Write) -> None:
    start = None if len(name) % 2 else -2.5
    both(kernel_file(matvec(fill=start)), HARD[name](), plan(f"length=64 mode={mode}"))


SHARES = ("items=1", "items=2", "items=8", "items=1 lanes=1", "items=4 lanes=1")


@pytest.mark.parametrize("start", [None, 0.0, 1.5])
@pytest.mark.parametrize("share", SHARES)
def test_spmv_by_warps_and_by_threads(share: str, start: float | None, kernel_file: Write) -> None:
    mode = MODES[(len(share) + bool(start)) % 2]
    both(kernel_file(matvec("f64", fill=start)), mixed(), plan(f"length=32 {share} mode={mode}"))


@pytest.mark.parametrize("length", [128, 4096])
def test_parts_may_be_long(length: int, kernel_file: Write) -> None:
    both(kernel_file(matvec()), mixed(), plan(f"length={length}"))


@pytest.mark.parametrize("encoding", ["positions=16 coordinates=16", "positions=64 coordinates=64"])
@pytest.mark.parametrize("share", ["items=8", "items=4 lanes=1"])
def test_widths_of_stored_indices(share: str, encoding: str, kernel_file: Write) -> None:
    both(kernel_file(matvec()), mixed(), plan(f"length=32 {share}", encoding=f"set-encoding{{{encoding}}}"))


@pytest.mark.parametrize("mode", MODES)
def test_other_layouts(mode: str, kernel_file: Write) -> None:
    """Blocks, whose entries are walked block by block; and a transposed matrix."""
    blocks = "set-encoding{format=bsr block-rows=3 block-columns=4}"
    both(kernel_file(matvec(fill=2.0)), mixed(), plan(f"length=32 mode={mode}", encoding=blocks))
    transposed = sp.csr_array(mixed().T)
    both(
        kernel_file(transposed_matvec()),
        transposed,
        plan(f"length=32 mode={mode}", encoding="set-encoding{format=csc}"),
        transpose=True,
    )


def test_streamed_entries_stay_streamed(kernel_file: Write) -> None:
    both(kernel_file(matvec()), mixed(), plan("length=64 items=1", first="stream-entries"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("share", ["items=4", "items=2 lanes=1"])
def test_entries_of_other_rows_do_not_get_into_a_sum(share: str, mode: str, kernel_file: Write) -> None:
    """Columns that only odd rows have hold NaN and infinities: even rows know nothing of them."""
    lengths = [1 + i % 23 for i in range(96)]
    columns = [np.arange(n) * 2 + i % 2 for i, n in enumerate(lengths)]
    a = sp.csr_array((np.ones(sum(lengths)), np.concatenate(columns), np.cumsum([0, *lengths])), (96, 46))
    x = np.ones(46, np.float32)
    x[1::2] = np.resize([np.nan, np.inf, -np.inf], 23)
    package = compile_file(kernel_file(matvec(fill=0.0)), {"A": a}, plan=plan(f"length=32 {share} mode={mode}")).package
    result = run(package, {"A": a, "x": x}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check
    assert np.array_equal(result.output[::2], lengths[::2])
    assert not np.isfinite(result.output[1::2]).any()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("beta", [0.0, -1.5])
@pytest.mark.parametrize("columns", [None, 8])
@pytest.mark.parametrize("form", FORMS)
def test_sums_are_scaled_and_added_to_a_scaled_output(
    form: str, columns: int | None, beta: float, mode: str, kernel_file: Write
) -> None:
    """Each row once, those without entries too, and without a look at the output where beta is 0."""
    split = f"length=32 mode={mode}" + (" lanes=4" if columns else "")
    steps = plan(split, first="vectorize{width=2}" if columns else "")
    solve(kernel_file(FORMS[form](columns=columns is not None)), mixed(), steps, 2.5, beta, columns=columns, nan=beta == 0)


# --- SpMM ---------------------------------------------------------------------------------------------

COLUMNS = {
    "one column": (1, "", "items=4"),
    "8, lanes": (8, "", "lanes=8 items=4"),
    "8, entries": (8, "", "share=entries items=2"),
    "8, vectors": (8, "vectorize{width=4}", "lanes=2 items=8"),
    "9, fewer lanes": (9, "", "lanes=4 items=2"),
    "9, more lanes": (9, "", "lanes=32 items=1"),
    "9, threads": (9, "", "lanes=1 items=4"),
    "33, tiles": (33, "jam-columns{factor=3}", "lanes=8 items=2"),
    "33, tiles by warps": (33, "jam-columns{factor=3}", "share=entries items=4"),
    "64, vectors in tiles": (64, "vectorize{width=4},jam-columns{factor=2}", "lanes=8 items=4"),
    "64, two walks": (64, "vectorize{width=4}", "lanes=8 items=4 tiles=2"),
    "72, eight walks": (72, "", "lanes=4 items=2 tiles=8"),
    "24, four walks, fewer lanes": (24, "vectorize{width=2}", "lanes=4 tiles=4"),
    "12, threads, two walks": (12, "", "lanes=1 items=4 tiles=2"),
    "64, two walks in tiles": (64, "vectorize{width=4},jam-columns{factor=2}", "lanes=4 tiles=2"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", COLUMNS)
def test_spmm(name: str, mode: str, kernel_file: Write) -> None:
    columns, first, split = COLUMNS[name]
    e, start = ("f32", "f64")[len(name) % 2], (None, 0.0, 1.5)[len(name) % 3]
    both(kernel_file(matmul(e, fill=start)), mixed(), plan(f"length=32 {split} mode={mode}", first=first), columns)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HARD)
def test_spmm_on_hard_matrices(name: str, mode: str, kernel_file: Write) -> None:
    start = None if len(name) % 2 else -2.5
    columns, first, split = COLUMNS["8, vectors" if mode == "atomic" else "9, more lanes"]
    both(kernel_file(matmul(fill=start)), HARD[name](), plan(f"length=64 {split} mode={mode}", first=first), columns)


def test_spmm_of_a_transposed_matrix(kernel_file: Write) -> None:
    steps = plan("length=32 lanes=8 mode=deterministic", encoding="set-encoding{format=csc}")
    both(kernel_file(transposed_matmul()), sp.csr_array(mixed().T), steps, 9, transpose=True)


# --- What is promised ---------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [None, 9])
@pytest.mark.parametrize("e", ["f32", "f64"])
def test_deterministic_results_have_the_same_bits_on_any_number_of_processors(
    e: str, columns: int | None, kernel_file: Write
) -> None:
    a, sizes = HARD["rows over many parts"](), {} if columns is None else {"K": columns}
    text = matvec(e) if columns is None else matmul(e)
    package = compile_file(kernel_file(text), {"A": a}, sizes, plan=plan("length=32 mode=deterministic")).package
    inputs = prepare(package, bind_package(package, {"A": a}, sizes))
    results = [
        run_simt(package, inputs, module=module).tobytes()
        for module in (SimtModule(package.mlir, threads=n) for n in (1, 2, 3, 8, 16))
        for _ in range(2)
    ]
    assert len(set(results)) == 1


@pytest.mark.parametrize(
    ("mode", "lengths", "wanted"),
    [
        ("atomic", [40, 3, 0, 20] * 9, ["spmv"]),
        ("atomic", [40, 3, 0, 200], ["spmv_init", "spmv"]),
        ("deterministic", [40, 3, 0, 20] * 9, ["spmv"]),
        ("deterministic", [40, 3, 0, 200], ["spmv", "spmv_carry"]),
        ("deterministic", [3000, 3], ["spmv", "spmv_carry_long"]),
        ("atomic", [0, 0], ["spmv"]),
        ("atomic", [], []),
    ],
)
def test_kernels_for_cut_rows_run_only_where_rows_are_cut(
    mode: str, lengths: list[int], wanted: list[str], kernel_file: Write
) -> None:
    """A row of at most half a part is never cut."""
    package = compile_file(kernel_file(matvec(fill=0.0)), plan=plan(f"length=64 mode={mode}")).package
    sizes = prepare(package, bind_package(package, {"A": of_lengths(lengths, 3001)})).sizes
    assert [launch.kernel for launch in resolve(package, sizes)] == wanted


def test_a_package_splits_the_matrix_that_it_is_given(kernel_file: Write) -> None:
    package = compile_file(kernel_file(matvec()), {"A": mixed()}, plan=plan("length=32")).package
    for a in (mixed(), of_lengths([600]), of_lengths([0, 0]), of_lengths([1, 700, 33], 800)):
        result = run(package, {"A": a}, verify=True)
        assert result.check is not None
        assert result.check.passed


def test_entries_are_loaded_by_vectors_and_counted_by_popc(kernel_file: Write) -> None:
    package = compile_file(kernel_file(matvec()), plan=plan("items=4")).package
    assert package.ptx.count("ld.global.nc.v4") == 2
    assert "popc.b32" in package.ptx
    found, reason = ptxas_resources(package.ptx, "sm_90")
    if found is None:
        pytest.skip(reason)
    assert all(r.spill_bytes == 0 for r in found)


# --- What is refused ----------------------------------------------------------------------------------

ROW_SCALED = generic(
    "affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>",
    "parallel reduction",
    "%t = arith.mulf %a, %b : f32\n    %r = arith.addf %c, %t : f32",
    types="tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>",
)
REFUSED = {
    "segment-rows,split-entries": "does not go with rows cut into segments",
    "bin-rows,split-entries": "does not go with long rows in a kernel of their own",
    "unroll,split-entries": "does not go with the innermost reduction unrolled",
    "split-entries,unroll": "does not go with the innermost reduction unrolled",
    "split-entries,split-entries": "needs a parallel loop outside all others",
    "split-entries,rows-to-threads": "needs a parallel loop outside all others",
    "split-entries{lanes=8}": "entries are shared by all 32 lanes of a warp, or not at all",
    "split-entries{share=columns}": "needs one loop over dense columns, not 0",
    "split-entries{tiles=2}": "no columns are shared out, which tiles could cut",
}


@pytest.mark.parametrize("steps", REFUSED)
def test_what_does_not_go_together_is_refused(steps: str, kernel_file: Write) -> None:
    with pytest.raises((NotApplicable, PlanError), match=REFUSED[steps]):
        compile_file(kernel_file(matvec()), plan=f"set-encoding,accumulate-registers,{steps},map-blocks")


@pytest.mark.parametrize("columns", [9, None])
def test_tiles_share_out_the_columns_evenly(columns: int | None, kernel_file: Write) -> None:
    sizes = {} if columns is None else {"K": columns}
    with pytest.raises(NotApplicable, match="2 tiles do not share out the columns evenly"):
        compile_file(kernel_file(matmul()), {}, sizes, plan=plan("tiles=2"))


def test_entries_that_know_their_row_are_refused(kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match="what an entry adds depends on its row"):
        compile_file(kernel_file(ROW_SCALED), plan=plan(""))


@pytest.mark.parametrize("columns", [None, 8])
@pytest.mark.parametrize("e", ["f16", "bf16"])
def test_sums_of_halves_are_rounded_once(e: str, columns: int | None, kernel_file: Write) -> None:
    """Pieces are kept in f32; atomic additions would round each."""
    text, sizes = (matvec(e, fill=0.0), {}) if columns is None else (matmul(e), {"K": columns})
    steps = plan("length=32 items=8 mode=deterministic")
    result = run(compile_file(kernel_file(text), {"A": mixed()}, sizes, plan=steps).package, {"A": mixed()}, sizes, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check
    with pytest.raises(NotApplicable, match="each piece of a cut row would be rounded; take mode=deterministic"):
        compile_file(kernel_file(text), sizes=sizes, plan=plan("length=32"))


def test_a_workspace_needs_the_number_of_columns(kernel_file: Write) -> None:
    with pytest.raises(NotApplicable, match="the number of columns is not known"):
        compile_file(kernel_file(matmul()), plan=plan("mode=deterministic"))


# --- Recipes ------------------------------------------------------------------------------------------

LENGTHS = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 70), st.integers(0, 3000)), max_size=30)


def positions_of(lengths: list[int]) -> Array:
    return np.cumsum([0, *lengths])


def bit(words: Array, number: int) -> bool:
    return bool(words[number // 32] >> number % 32 & 1)


@settings(deadline=None, max_examples=150)
@given(lengths=LENGTHS, length=st.sampled_from([32, 64, 256]), items=st.sampled_from([1, 2, 4, 8]))
def test_parts_cover_the_entries_evenly(lengths: list[int], length: int, items: int) -> None:
    positions = positions_of(lengths)
    made = entry_parts(positions, length, items)
    assert {array.dtype for array in made.values()} == {np.dtype(np.int32)}
    starts, carry, total = made["starts"], made["carry"], sum(lengths)
    assert starts.size == carry.size
    assert starts[0] == 0
    assert starts[-1] == total
    sizes = np.diff(starts)
    assert (sizes >= 0).all()
    assert sizes.max(initial=0) <= length * 3 // 2
    assert (starts.size - 1) * length >= max(total, lengths.count(0))
    for start, row in zip(starts, carry, strict=True):
        if row < 0:
            assert start in positions
        else:
            assert positions[row] < start < positions[row + 1]
            assert start % items == 0
            assert lengths[row] > length // 2
    assert made["cut"].tolist() == sorted(set(carry[carry >= 0].tolist()))
    assert made["rows"].tolist() == [i for i, n in enumerate(lengths) if n]
    assert made["empty"].tolist() == [i for i, n in enumerate(lengths) if not n]


@settings(deadline=None, max_examples=60)
@given(lengths=LENGTHS, items=st.sampled_from([1, 2, 4, 8]))
def test_flags_find_the_row_of_an_entry(lengths: list[int], items: int) -> None:
    made = entry_parts(positions_of(lengths), 64, items)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    flags = np.array([bit(made["flags"], e) for e in range(owner.size)], bool)
    assert flags.tolist() == [e + 1 == owner.size or owner[e] != owner[e + 1] for e in range(owner.size)]
    ends_before = np.cumsum(flags) - flags
    assert (made["rows"][ends_before] == owner).all()
    assert (made["ranks"][: -(-owner.size // 32)] == ends_before[::32]).all()
    groups = [flags[g * items : (g + 1) * items].any() for g in range(-(-owner.size // items))]
    assert [bit(made["lanes"], g) for g in range(len(groups))] == groups
    assert made["lanes"].size >= len(groups) // 32 + 2 - (len(groups) % 32 == 0)


@settings(deadline=None, max_examples=100)
@given(lengths=LENGTHS, length=st.sampled_from([32, 64]))
def test_pieces_of_cut_rows_are_counted_once(lengths: list[int], length: int) -> None:
    positions = positions_of(lengths)
    parts, made = entry_parts(positions, length, 1), entry_carries(positions, length, 3)
    assert made["sums"].size == 6 * (parts["starts"].size - 1)
    assert sorted([*made["few"], *made["many"]]) == parts["cut"].tolist()
    for name in ("few", "many"):
        for row, first, last in zip(made[name], made[f"{name}_first"], made[f"{name}_last"], strict=True):
            assert (parts["carry"][first + 1 : last + 1] == row).all()
            assert parts["carry"][first] != row
            assert parts["carry"][last + 1] != row
            assert (last - first > 32) == (name == "many")


def test_entries_that_32_bits_do_not_number_are_refused() -> None:
    with pytest.raises(InputError, match=r"more than 2\^31 rows or entries"):
        entry_parts(np.array([0, 5, 2**31]), 4096, 4)


@pytest.mark.parametrize("text", ["entry-parts{level=1 length=64 items=4}", "entry-carries{level=1 length=64 columns=9}"])
def test_recipes_read_back_what_they_print(text: str) -> None:
    assert str(Recipe.parse(text)) == text


# --- What a search tries ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "lanes"), [(0, {32, 1}), (8, {2, 4, 8}), (33, {2, 4, 8, 16, 32}), (None, {2, 4, 8, 16, 32})]
)
def test_candidates_fit_the_columns(columns: int | None, lanes: set[int]) -> None:
    task = Task(rows_first=True, choose_format=True, columns=columns, element_bytes=4)
    found = SplitEntries.candidates(Context(task, analyse(mixed())))
    assert {one.lanes for one in found} == lanes
    assert {one.mode for one in found} == set(MODES)
    assert len(set(found)) == len(found)
    assert SplitEntries.candidates(Context(task))[0].length >= found[0].length
