"""Every feature against a slow reference, what sampling costs in truth, and the tables and commands made of the definitions."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import math
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES

ROOT = Path(__file__).resolve().parents[1]

from benchmarks import features_time  # noqa: E402
from benchmarks import generators as g  # noqa: E402
from sparseditto.agent.features import (  # noqa: E402
    Features,
    Hardware,
    Kind,
    analyse,
    definitions,
    dense_operation,
    describe,
    estimates,
    fit,
    multiply_patterns,
    operation,
    samples,
    sparse_operation,
    storage,
    walks,
)
from sparseditto.compiler.api import bind_package, compile_file  # noqa: E402
from sparseditto.compiler.cli import main as sparseditto_main  # noqa: E402
from sparseditto.compiler.cli.common import run_and_report  # noqa: E402
from sparseditto.compiler.execute import lay_out  # noqa: E402
from sparseditto.dialects.errors import InputError  # noqa: E402
from sparseditto.dialects.layouts import window_order  # noqa: E402

# --- A slow reference ---------------------------------------------------------------------------------


def rows_of(a: sp.csr_array) -> list[list[int]]:
    return [a.indices[a.indptr[i] : a.indptr[i + 1]].tolist() for i in range(a.shape[0])]


def slices(rows: list[list[int]], window: int) -> list[list[list[int]]]:
    """Rows in slices of 32, sorted by falling length within windows."""
    ordered = [row for k in range(0, len(rows), window) for row in sorted(rows[k : k + window], key=lambda r: -len(r))]
    return [ordered[k : k + 32] for k in range(0, len(rows), 32)]


def widest(groups: list[list[int]]) -> int:
    return max((max(columns) - min(columns) + 1 for columns in groups if columns), default=0)


def quantile(sizes: list[int], percent: int) -> int:
    """By nearest rank, in whole numbers."""
    return sorted(sizes)[max(-(-len(sizes) * percent // 100), 1) - 1] if sizes else 0


def gini(sizes: list[int]) -> float:
    total, n = sum(sizes), len(sizes)
    return sum(abs(x - y) for x in sizes for y in sizes) / (2 * n * total) if total else 0.0


def top(sizes: list[int]) -> float:
    return sum(sorted(sizes)[::-1][: -(-len(sizes) // 100)]) / sum(sizes) if sum(sizes) else 0.0


def variation(sizes: list[int]) -> float:
    return float(np.std(sizes) / np.mean(sizes)) if sum(sizes) else 0.0


def over(part: float, whole: float, empty: float = 0.0) -> float:
    return part / whole if whole else empty


def reference(a: sp.csr_array) -> dict[str, Any]:
    """Every feature, entry by entry."""
    (m, n), rows = a.shape, rows_of(a)
    at = {(i, j): a.data[k] for i, row in enumerate(rows) for k, j in enumerate(row, int(a.indptr[i]))}
    nnz, lengths, columns = len(at), [len(row) for row in rows], Counter(j for _, j in at)
    uses = [columns[j] for j in range(n)]
    plain = [rows[k : k + 32] for k in range(0, m, 32)]
    ordered = slices(rows, 1024)
    gaps = [y - x for row in rows for x, y in itertools.pairwise(row)]
    off = [(i, j) for i, j in at if i != j]
    mirrored = [(i, j) for i, j in off if (j, i) in at] if m == n else []
    equal = [p for p in mirrored if at[p] == at[p[::-1]] or (math.isnan(at[p]) and math.isnan(at[p[::-1]]))]
    later = [(i, j) for i, j in at if i > 0]
    width = min((w for w in sorted(lengths) if 3 * sum(x <= w for x in lengths) >= 2 * m), default=0)
    beyond = sum(max(x - width, 0) for x in lengths)
    diagonals = len({j - i for i, j in at})

    def fill(h: int, w: int) -> float:
        return over(nnz, h * w * len({(i // h, j // w) for i, j in at}))

    return {
        "rows": m,
        "columns": n,
        "entries": nnz,
        "mean_row": over(nnz, m),
        "max_row": max(lengths, default=0),
        "variation": variation(lengths),
        "empty_rows": over(lengths.count(0), m),
        "padding": over(sum(32 * max(map(len, s)) for s in plain), nnz, 1.0),
        "padding_sorted": over(sum(32 * max(map(len, s)) for s in ordered), nnz, 1.0),
        "span": widest([[j for row in s for j in row] for s in plain]),
        "span_sorted": widest([[j for row in s for j in row] for s in ordered]),
        "fill_2": fill(2, 2),
        "fill_3": fill(3, 3),
        "fill_4": fill(4, 4),
        "fill_8": fill(8, 4),
        "ell_padding": over(m * max(lengths, default=0), nnz, 1.0),
        "diagonals": diagonals,
        "diagonal_padding": over(m * diagonals, nnz, 1.0),
        "row_span": widest(rows),
        "equal_values": nnz > 0 and len({np.float64(v).tobytes() for v in at.values()}) == 1,
        "density": over(nnz, m * n),
        "min_row": min(lengths, default=0),
        "median_row": quantile(lengths, 50),
        "row_q90": quantile(lengths, 90),
        "row_q99": quantile(lengths, 99),
        "row_gini": gini(lengths),
        "long_rows": top(lengths),
        "mean_row_span": over(sum(r[-1] - r[0] + 1 for r in rows if r), m - lengths.count(0)),
        "lower_bandwidth": max([0, *(i - j for i, j in at)]),
        "upper_bandwidth": max([0, *(j - i for i, j in at)]),
        "profile": over(sum(max(0, i - r[0]) for i, r in enumerate(rows) if r), m),
        "max_gap": max(gaps, default=0),
        "hybrid_width": width,
        "hybrid_padding": over(m * width + beyond, nnz, 1.0),
        "hybrid_rest": over(beyond, nnz),
        "used_columns": len(columns),
        "empty_columns": over(n - len(columns), n),
        "column_reuse": over(nnz, len(columns)),
        "max_column": max(uses, default=0),
        "column_variation": variation(uses),
        "column_gini": gini(uses),
        "hot_columns": top(uses),
        "symmetry": over(len(mirrored), len(off), 1.0) if m == n else 0.0,
        "value_symmetry": over(len(equal), len(off), 1.0) if m == n else 0.0,
        "full_diagonal": over(nnz - len(off), min(m, n)),
        "row_overlap": over(sum((i - 1, j) in at for i, j in later), len(later)),
        "median_gap": quantile(gaps, 50),
        "gap_q90": quantile(gaps, 90),
        "adjacent": over(gaps.count(1), len(gaps)),
        "sectors": over(len({(i, j // 8) for i, j in at}), nnz),
        "sampled": 1.0,
    }


def of_dense(dense: Any, index: type[np.signedinteger[Any]] = np.int32) -> sp.csr_array:
    a = sp.csr_array(dense)
    return sp.csr_array((a.data, a.indices.astype(index), a.indptr.astype(index)), shape=a.shape)


def random(rows: int, columns: int, density: float, seed: int = 0) -> sp.csr_array:
    """Rows of very different lengths, some of them empty; few different values."""
    rng = np.random.default_rng(seed)
    kept = rng.random((rows, columns)) < density * 3 * rng.random((rows, 1)) ** 2
    return of_dense(kept * rng.integers(1, 3, (rows, columns)))


def arrow(n: int) -> sp.csr_array:
    """A full row, a full column and the diagonal."""
    dense = np.eye(n)
    dense[0], dense[:, 0] = 2.0, 3.0
    return of_dense(dense)


def nan_symmetric() -> sp.csr_array:
    return of_dense(np.array([[1.0, np.nan, 2.0], [np.nan, 0.0, 5.0], [2.0, 6.0, 0.0]]))


SMALL: dict[str, Callable[[], sp.csr_array]] = {
    "no rows": lambda: sp.csr_array((0, 5)),
    "no columns": lambda: sp.csr_array((5, 0)),
    "nothing": lambda: sp.csr_array((0, 0)),
    "no entries": lambda: sp.csr_array((40, 33)),
    "one": lambda: of_dense([[2.5]]),
    "one full row": lambda: of_dense(np.ones((1, 70))),
    "one full column": lambda: of_dense(np.ones((70, 1))),
    "dense": lambda: of_dense(np.ones((35, 24))),
    "arrow": lambda: arrow(60),
    "arrow backwards": lambda: of_dense(arrow(60).toarray()[::-1, ::-1]),
    "band": lambda: g.banded(90, 2),
    "identity": lambda: of_dense(np.eye(50)),
    "last entry only": lambda: sp.csr_array(([1.0], ([99], [69])), shape=(100, 70)),
    "first entry only": lambda: sp.csr_array(([1.0], ([0], [0])), shape=(100, 70)),
    "not a number": nan_symmetric,
    "symmetric": lambda: of_dense((lambda d: d + d.T)(random(40, 40, 0.1).toarray())),
    "wide": lambda: random(30, 300, 0.05, 1),
    "tall": lambda: random(300, 30, 0.05, 2),
    "long indices": lambda: of_dense(random(50, 60, 0.1, 3).toarray(), np.int64),
    "many rows": lambda: g.rmat(11, 2),
    "empty rows at both ends": lambda: of_dense(np.pad(np.tri(9), ((40, 40), (3, 3)))),
}


def check(found: Features, wanted: dict[str, Any]) -> None:
    assert found.to_json() == {name: pytest.approx(value, rel=1e-9, abs=1e-12) for name, value in wanted.items()}


@pytest.mark.parametrize("name", SMALL)
def test_features_are_what_the_reference_finds(name: str) -> None:
    a = SMALL[name]()
    check(analyse(a), reference(a))


@pytest.mark.parametrize("seed", range(6))
def test_random_matrices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = random(*rng.integers(1, 150, 2), density=10 ** rng.uniform(-2.5, -0.3), seed=seed)
    check(analyse(a), reference(a))


@pytest.mark.parametrize("name", ["arrow", "arrow backwards", "many rows", "tall", "long indices", "empty rows at both ends"])
@pytest.mark.parametrize("few", [0, 3])
def test_pieces_do_not_matter(name: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks in very small pieces, rows from four entries on listed one by one, shorter ones sorted or counted."""
    a = SMALL[name]()
    monkeypatch.setattr(walks, "FEW", few)
    monkeypatch.setattr(walks, "ROWS", 1024)
    monkeypatch.setattr(walks, "SHORT", 4)
    for module in (walks, samples):
        monkeypatch.setattr(module, "ENTRIES", 7)
    check(analyse(a), reference(a))


@pytest.mark.parametrize("rows", [1, 31, 1024, 3000])
@pytest.mark.parametrize("longest", [1, 2, 12, 13, 200])
def test_short_rows_are_counted_as_they_are_sorted(rows: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(rows)
    a = of_dense(rng.random((rows, longest)) < rng.random((rows, 1)))
    found = []
    for few in (0, longest):
        monkeypatch.setattr(walks, "FEW", few)
        found.append(analyse(a))
    assert found[0] == found[1]
    check(found[1], reference(a))


def test_far_more_columns_than_entries() -> None:
    a = sp.csr_array((np.ones(3), np.array([5, 2**40, 2**45]), np.array([0, 1, 3])), shape=(2, 2**46))
    f = analyse(a)
    assert (f.row_span, f.max_gap, f.diagonals, f.used_columns) == (2**45 - 2**40 + 1, 2**45 - 2**40, 3, 3.0)
    assert (f.span, f.upper_bandwidth, f.lower_bandwidth) == (2**45 - 4, 2**45 - 1, 0)
    assert storage(f, 4).absolute_bits == 64


@pytest.mark.parametrize("window", [1, 4, 1024])
@pytest.mark.parametrize("longest", [1, 300, 70_000, 2**40])
def test_the_order_of_rows_is_stable(window: int, longest: int) -> None:
    lengths = np.random.default_rng(0).integers(0, longest, 3000)
    found = window_order(lengths, window)
    wanted = [i for k in range(0, 3000, window) for i in sorted(range(k, min(k + window, 3000)), key=lambda i: -lengths[i])]
    assert found.tolist() == wanted


def test_a_window_above_all_rows_takes_no_memory_of_its_own() -> None:
    tracemalloc.start()
    try:
        assert window_order(np.array([1, 3, 2]), 1 << 30).tolist() == [1, 2, 0]
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


# --- Sampling -----------------------------------------------------------------------------------------

LARGE: dict[str, Callable[[], sp.csr_array]] = {
    "uniform": lambda: g.uniform(120_000, 8),
    "R-MAT": lambda: g.rmat(16, 12),
    "band": lambda: g.banded(120_000, 4, keep=0.7),
    "road": lambda: g.road(500),
    "web": lambda: g.web(60_000, 12),
    "blocks": lambda: g.block_diagonal(2000, 4, 30),
}
ABSOLUTE = 0.03  # of shares
RELATIVE = {"used_columns": 0.03, "column_reuse": 0.03, "column_variation": 0.15, "max_column": 0.3}
WHOLE = {"median_gap": 0.1, "gap_q90": 0.1}
SKEWED = {
    "median_gap": 1.0,
    "gap_q90": 1.0,
    "row_overlap": 0.06,
    "sectors": 0.06,
}  # where a few windows hold most of the sample


@pytest.mark.parametrize("name", LARGE)
def test_estimates_are_close(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a = LARGE[name]()
    for limit, value in {"SAMPLED": 100_000, "HASHED": 100_000, "SPREAD": 1 << 15, "MIRRORED": 1 << 13}.items():
        monkeypatch.setattr(samples, limit, value)
    found = analyse(a)
    assert 0.03 < found.sampled < 0.3
    assert found == analyse(a)
    monkeypatch.setattr(samples, "SAMPLED", a.nnz)
    exact = analyse(a)
    assert (exact.sampled, exact.estimates()) == (1.0, frozenset())
    for d in definitions():
        if d.name == "sampled" or not hasattr(found, d.name):
            continue
        estimate, truth = getattr(found, d.name), getattr(exact, d.name)
        if d.name not in found.estimates():
            assert estimate == truth, d.name
            continue
        relative = RELATIVE | WHOLE
        bound = SKEWED.get(d.name, 0.0) if name == "R-MAT" else 0.0
        if d.name in relative:
            assert estimate == pytest.approx(truth, rel=bound or relative[d.name], abs=1), d.name
        else:
            assert estimate == pytest.approx(truth, abs=bound or ABSOLUTE), d.name


def test_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    a = g.rmat(16, 12)
    found = analyse(a)
    monkeypatch.setattr(importlib.import_module("sparseditto.agent.features.analyse"), "MOST_THREADS", 1)
    assert analyse(a) == found


def test_a_giant_row_costs_no_more_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its window the first columns are looked at, as many for each row, so that blocks stay whole."""
    monkeypatch.setattr(samples, "SAMPLED", 4000)
    monkeypatch.setattr(samples, "WINDOW_ENTRIES", 600 * 24)
    dense = np.zeros((24 * 50, 7200), bool)
    dense[:24] = True
    dense[24:, :24] = np.kron(np.ones((49, 1)), np.ones((24, 24)))
    windows = samples.row_windows(of_dense(dense))
    assert windows.columns.max() == 600 - 1
    assert windows.lengths[:24].tolist() == [600] * 24
    f = analyse(of_dense(dense))
    assert (f.fill_2, f.fill_3, f.fill_4, f.fill_8, f.max_row, f.row_span) == (1, 1, 1, 1, 7200, 7200)


def test_spread_entries_are_one_in_each_stretch() -> None:
    places = samples.spread_entries(10_000, 100)
    assert (places // 100).tolist() == list(range(100))
    assert len(set(places % 10)) == 10
    assert samples.spread_entries(5, 100).tolist() == list(range(5))


def test_hidden_entries_are_never_packed_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No default plan is refused by packing, wherever a row stands that samples miss."""
    monkeypatch.setattr(samples, "SAMPLED", 500)
    monkeypatch.setattr(walks, "PROBED", 16)
    spmv = ROOT / "examples" / "spmv.mlir"
    for hidden in (None, [0, 2999], range(0, 3000, 2), range(60)):
        band = g.banded(3000, 2).tolil()
        if hidden is not None:
            band[1234, list(hidden)] = 1.0
        a = sp.csr_array(band, dtype=np.float32)
        f = analyse(a)
        assert f.sampled < 1
        assert f.diagonals == len(set((a.tocoo().col - a.tocoo().row).tolist()))
        compiled = compile_file(spmv, {"A": a})
        lay_out(compiled.package, bind_package(compiled.package, {"A": a}))


# --- What follows from features -----------------------------------------------------------------------


def test_storage_of_a_small_matrix() -> None:
    a = random(70, 300, 0.05)
    f, nnz, rows = analyse(a), a.nnz, rows_of(a)
    s = storage(f, 8)
    places = sum(32 * max(map(len, rows[k : k + 32])) for k in range(0, 70, 32))
    assert (s.absolute_bits, s.delta_bits) == (16, 8 if f.max_gap < 256 else 16)
    assert s.csr_bytes == pytest.approx((71 * 4 + nnz * 12) / nnz)
    assert s.csr_narrow_bytes == pytest.approx((71 * 4 + nnz * 10) / nnz)
    assert s.delta_bytes == pytest.approx((71 * 4 + 70 * 4 + nnz * (8 + s.delta_bits / 8)) / nnz)
    assert s.row_offset_bytes == pytest.approx((71 * 4 + 70 * 4 + nnz * (8 + s.row_offset_bits / 8)) / nnz)
    assert s.sell_bytes == pytest.approx((4 * 4 + places * 12) / nnz)
    assert s.slice_offset_bytes == pytest.approx((4 * 4 + 3 * 4 + places * (8 + s.slice_offset_bits / 8)) / nnz)
    assert s.ell_bytes == pytest.approx(70 * f.max_row * 12 / nnz)
    beyond = sum(max(len(row) - f.hybrid_width, 0) for row in rows)
    assert s.hybrid_bytes == pytest.approx((70 * f.hybrid_width * 12 + beyond * 16) / nnz)
    blocks = {(i // 8, j // 4) for i, row in enumerate(rows) for j in row}
    assert s.bsr_8_bytes == pytest.approx((len(blocks) * (4 + 32 * 8) + 10 * 4) / nnz)
    assert s.dia_bytes == pytest.approx((70 * f.diagonals * 8 + f.diagonals * 4) / nnz)


@pytest.mark.parametrize(
    ("span", "columns", "widths"),
    [(255, 256, (8, 8, 8)), (256, 257, (16, 8, 16)), (65_535, 65_536, (16, 16, 16)), (65_536, 65_537, (32, 16, 32))],
)
def test_widths_hold_the_largest_number(span: int, columns: int, widths: tuple[int, int, int]) -> None:
    s = storage(Features(9, columns, 9, 1.0, 1, 0.0, 0.0, span=span, row_span=span), 4)
    assert (s.absolute_bits, s.row_offset_bits, s.slice_offset_bits) == widths


def test_a_dense_operation() -> None:
    f = analyse(random(70, 300, 0.05))
    op = dense_operation(f, 16, 4)
    assert (op.flops, op.matrix_bytes, op.output_bytes) == (32 * f.entries, 8 * f.entries + 4 * 71, 70 * 64)
    assert op.operand_bytes == 64 * f.used_columns
    assert op.compulsory_bytes == op.matrix_bytes + op.operand_bytes + op.output_bytes
    assert op.operand_reuse == pytest.approx(f.column_reuse)
    assert (op.intensity > op.gather_intensity) == (f.column_reuse > 1)
    with pytest.raises(InputError, match="0 dense columns"):
        dense_operation(f, 0, 4)


@pytest.mark.parametrize("name", ["no entries", "arrow", "wide", "many rows", "long indices"])
def test_products_are_those_of_scipy(name: str) -> None:
    a = SMALL[name]()
    b = sp.csr_array(a.T)
    product = multiply_patterns(a, b)
    lengths = [len(row) for row in rows_of(b)]
    counts = [sum(lengths[k] for k in row) for row in rows_of(a)]
    output = ((a.astype(bool)) @ (b.astype(bool))).nnz
    assert (product.products, product.max_products, product.product_sampled) == (sum(counts), max(counts, default=0), 1.0)
    assert product.output_entries == pytest.approx(output)
    assert product.compression == pytest.approx(over(sum(counts), output, 1.0))
    op = sparse_operation(analyse(a), analyse(b), product, 4)
    assert (op.flops, op.dense_columns) == (2 * sum(counts), 0)
    assert op.output_bytes == pytest.approx(8 * output + 4 * (a.shape[0] + 1))


def test_sampled_products_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    for a, error in ((g.stencil27(16), 0.05), (g.uniform(20_000, 8), 0.02), (g.rmat(12, 8), 0.15)):
        monkeypatch.setattr(operation, "PRODUCTS", 10**9)
        exact = multiply_patterns(a, a)
        monkeypatch.setattr(operation, "PRODUCTS", 100_000)
        found = multiply_patterns(a, a)
        assert (exact.product_sampled, found.products) == (1.0, exact.products)
        assert found.product_sampled < 1
        assert found.compression == pytest.approx(exact.compression, rel=error)


def test_products_need_sizes_that_agree() -> None:
    with pytest.raises(InputError, match="2 x 3 times 2 x 3: the inner sizes differ"):
        multiply_patterns(sp.csr_array((2, 3)), sp.csr_array((2, 3)))


def test_a_fit() -> None:
    f = analyse(g.banded(1000, 1))
    gpu = Hardware("small", 2, 100, 1000, 10_000, 10.0, 3.0)
    op = dense_operation(f, 4, 4)
    found = fit(f, op, gpu)
    assert (found.thread_waves, found.warp_waves, found.entries_a_thread) == (5, 160, f.entries / 200)
    assert (found.operand_l1, found.output_l2) == (op.operand_bytes / 1000, op.output_bytes / 10_000)
    assert found.slice_l1 == pytest.approx(34 * 16 / 1000)
    assert found.longest_over_share == pytest.approx(3 / (f.entries / 2))
    assert found.bound_us == op.compulsory_bytes / 10
    assert found.launch_share == 30 / op.compulsory_bytes


@pytest.mark.parametrize("change", [{"sm_count": 0}, {"l2_bytes": -1}, {"launch_us": math.nan}, {"l1_bytes": "9"}])
def test_hardware_of_nothing_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(change))}=.*above 0"):
        Hardware(**change)


@pytest.mark.parametrize("name", ["nothing", "no rows", "no entries", "arrow"])
def test_everything_is_said_of_every_matrix(name: str) -> None:
    """All kinds at once, finite, and the same after a turn through JSON."""
    a = SMALL[name]()
    f, product = analyse(a), multiply_patterns(a, sp.csr_array(a.T))
    found = describe(f, 4, dense_operation(f, 8, 4), product, Hardware())
    assert set(found) == {d.name for d in definitions()}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert estimates(f, product) == frozenset()


def test_json_gives_the_same_back() -> None:
    f = analyse(MATRICES["staircase"]())
    assert Features.from_json(json.loads(json.dumps(f.to_json()))) == f
    assert Hardware.from_json(json.loads(json.dumps(Hardware().to_json()))) == Hardware()
    with pytest.raises(InputError, match="no features are named height"):
        Features.from_json(f.to_json() | {"height": 3})
    with pytest.raises(InputError, match="a GPU is described by"):
        Hardware.from_json({"sm_count": 3})


def test_estimates_are_named() -> None:
    f = dataclasses.replace(analyse(g.banded(50, 1)), sampled=0.5)
    named = estimates(f)
    assert {"fill_2", "symmetry", "bsr_2_bytes", "operand_bytes"} <= named
    assert not {"max_row", "padding", "span", "csr_bytes", "matrix_bytes"} & named


# --- Definitions, documentation, commands --------------------------------------------------------------


def test_definitions_say_what_a_reader_needs() -> None:
    found = definitions()
    assert len(found) >= 36
    assert len({d.name for d in found}) == len(found)
    assert {d.kind for d in found} == set(Kind)
    assert all(d.unit and len(d.formula) > 5 and d.name.isidentifier() for d in found)


def test_the_page_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "docs/generate.py", "--check"], check=True, timeout=60)
    page = (ROOT / "docs/features.md").read_text()
    assert all(f"| `{d.name}`" in page for d in definitions())


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    sp.save_npz(tmp_path / "a.npz", MATRICES["staircase"]())
    sp.save_npz(tmp_path / "b.npz", sp.csr_array(MATRICES["staircase"]().T))
    (tmp_path / "t.tns").write_text("1 2 3 4.5\n2 2 2 1\n")
    (tmp_path / "gpu.json").write_text(json.dumps(Hardware().to_json() | {"name": "half", "sm_count": 66}))
    monkeypatch.chdir(tmp_path)

    def in_process(*words: str) -> tuple[int, str, str]:
        args = sparseditto_main.parser().parse_args(["features", *words])
        code = run_and_report("sparseditto", lambda: int(args.func(args)))
        return (code, *capsys.readouterr())

    return in_process


def test_features_are_listed(run: Run) -> None:
    code, out, _ = run()
    assert (code, len(out.splitlines())) == (0, len(definitions()))
    assert [d["name"] for d in json.loads(run("--json")[1])] == [d.name for d in definitions()]


def test_features_of_a_file(run: Run) -> None:
    code, out, _ = run("a.npz")
    assert code == 0
    assert [line for line in out.splitlines() if line.endswith(":")] == ["pattern:", "representation:"]
    assert any(line.split() == ["max_row", "65", "entries"] for line in out.splitlines())
    data = json.loads(run("a.npz", "--json", "--dtype", "f64")[1])
    assert data["features"] == describe(analyse(MATRICES["staircase"]()), 8)
    assert (data["estimates"], data["hardware"]) == ([], None)


def test_features_of_a_kernel_and_of_a_product(run: Run) -> None:
    spmm = str(ROOT / "examples" / "spmm.mlir")
    f = analyse(MATRICES["staircase"]())
    data = json.loads(run("a.npz", "--kernel", spmm, "--size", "K=64", "--hardware", "gpu.json", "--json")[1])
    gpu = Hardware("half", 66)
    assert data["hardware"] == gpu.to_json()
    assert data["features"] == describe(f, 4, dense_operation(f, 64, 4), None, gpu)
    out = run("a.npz", "--kernel", spmm, "--size", "K=64")[1]
    assert "values of 4 bytes, on H200" in out
    assert "hardware:" in out
    data = json.loads(run("a.npz", "--times", "b.npz", "--json")[1])
    assert data["features"]["products"] == sum(k * k for k in _uses(MATRICES["staircase"]()))


def _uses(a: sp.csr_array) -> list[int]:
    return np.bincount(a.indices, minlength=a.shape[1]).tolist()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kernel", "k.mlir"], "--kernel means nothing here: it needs a matrix"),
        (["--dtype", "f64"], "--dtype means nothing here: it needs a matrix"),
        (["a.npz", "--size", "K=3"], "--size means nothing here: it needs --kernel"),
        (["a.npz", "--hardware", "gpu.json"], "--hardware means nothing here: it needs --kernel or --times"),
        (["a.npz", "--kernel", str(ROOT / "examples/spmm.mlir")], "the number of dense columns is not known"),
        (["a.npz", "--times", "b.npz", "--hardware", "a.npz"], "a.npz: is no description of a GPU"),
        (["a.npz", "--times", "a.npz"], "the inner sizes differ"),
        (["t.tns"], "unfold it into a matrix with t.tns,mode=0"),
        (["none.mtx"], "none.mtx: cannot be read"),
    ],
)
def test_what_the_command_refuses(run: Run, words: list[str], message: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err


def test_the_benchmark_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "times.jsonl"
    words = ["--entries", "20000", "--rounds", "1", "--check", "--out", str(out)]
    assert features_time.main(words) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()[1:]]
    assert [row["pattern"] for row in rows] == list(features_time.PATTERNS)
    for row, make in zip(rows, features_time.PATTERNS.values(), strict=True):
        a = make(20_000)
        assert row["entries"] == a.nnz
        assert row["entries"] == pytest.approx(20_000, rel=0.2)
        assert a.has_canonical_format
    monkeypatch.setattr(features_time, "MOST_SECONDS", 0.0)
    assert features_time.main(words) == 1
