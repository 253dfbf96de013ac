"""`analyse`: the features of a matrix, in under 0.3 s for 50 million entries on two processors."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sparseditto.agent.features.pattern import Features
from sparseditto.agent.features.samples import column_uses, fill, full_diagonal, locality, mirrors, row_windows
from sparseditto.agent.features.walks import Rows, all_equal, keep_freed_memory, largest_gap, occupied_diagonals, walk_rows

if TYPE_CHECKING:
    import scipy.sparse as sp

    from sparseditto.agent.features.distribution import Distribution

MOST_THREADS = 8  # NumPy lets go of the interpreter; what is found does not depend on how many there are
HYBRID_ROWS = 2 / 3  # are stored as ELL whole
BLOCKS = {"fill_2": (2, 2), "fill_3": (3, 3), "fill_4": (4, 4), "fill_8": (8, 4)}


def analyse(csr: sp.csr_array) -> Features:
    """The features of a matrix in canonical CSR form (rows in order, no duplicates; any type of index and value).

    What decides whether a layout is legal is exact and costs time linear in the rows, or a look at each coordinate; other
    features are estimates where `Features.sampled` is below 1.
    """
    keep_freed_memory()
    with ThreadPoolExecutor(min(MOST_THREADS, len(os.sched_getaffinity(0)))) as pool:
        picked = pool.submit(row_windows, csr)
        rows = walk_rows(csr, pool)
        windows = picked.result()
        near = pool.submit(locality, windows, int(csr.shape[1]))
        blocks = {name: pool.submit(fill, windows, *block) for name, block in BLOCKS.items()}
        mirrored, diagonal, alike = pool.submit(mirrors, csr), pool.submit(full_diagonal, csr), pool.submit(all_equal, csr.data)
        uses = column_uses(csr, pool)
        diagonals, gap = occupied_diagonals(csr, pool), largest_gap(csr, pool)
        fills: dict[str, Any] = {name: share.result() for name, share in blocks.items()}
        return Features(
            **_of_rows(csr, rows),
            **_of_columns(csr, uses),
            **asdict(near.result()),
            **fills,
            sampled=windows.share,
            **asdict(mirrored.result()),
            full_diagonal=diagonal.result(),
            max_gap=gap,
            diagonals=diagonals,
            diagonal_padding=_an_entry(csr, csr.shape[0] * diagonals),
            equal_values=alike.result(),
        )


def _an_entry(csr: sp.csr_array, places: int) -> float:
    """Places over entries, 1 where there are no entries."""
    return places / int(csr.nnz) if csr.nnz else 1.0


def _of_rows(csr: sp.csr_array, found: Rows) -> dict[str, Any]:
    """What follows from the lengths of rows, and from where each begins and ends."""
    lengths, most, total = found.lengths, found.most, found.total
    rows, columns, entries = int(csr.shape[0]), int(csr.shape[1]), int(csr.nnz)
    empty = int(lengths.empty)
    width = lengths.quantile(HYBRID_ROWS)
    beyond = round(lengths.above(width))
    return {
        "rows": rows,
        "columns": columns,
        "entries": entries,
        "density": entries / (rows * columns) if rows and columns else 0.0,
        "mean_row": entries / rows if rows else 0.0,
        "max_row": lengths.largest,
        "variation": lengths.variation,
        "empty_rows": empty / rows if rows else 0.0,
        "min_row": lengths.smallest,
        "median_row": lengths.quantile(0.5),
        "row_q90": lengths.quantile(0.9),
        "row_q99": lengths.quantile(0.99),
        "row_gini": lengths.gini(),
        "long_rows": lengths.held_by_largest(0.01),
        "padding": _an_entry(csr, total.places),
        "padding_sorted": _an_entry(csr, total.places_sorted),
        "span": most.span,
        "span_sorted": most.span_sorted,
        "ell_padding": _an_entry(csr, rows * lengths.largest),
        "row_span": most.row_span,
        "mean_row_span": total.spans / (rows - empty) if rows > empty else 0.0,
        "lower_bandwidth": most.below,
        "upper_bandwidth": most.above,
        "profile": total.envelope / rows if rows else 0.0,
        "hybrid_width": width,
        "hybrid_padding": _an_entry(csr, rows * width + beyond),
        "hybrid_rest": beyond / entries if entries else 0.0,
    }


def _of_columns(csr: sp.csr_array, uses: Distribution) -> dict[str, Any]:
    columns, entries = int(csr.shape[1]), int(csr.nnz)
    used = uses.members - uses.empty
    return {
        "used_columns": used,
        "empty_columns": 1 - used / columns if columns else 0.0,
        "column_reuse": entries / used if used else 0.0,
        "max_column": uses.largest,
        "column_variation": uses.variation,
        "column_gini": uses.gini(),
        "hot_columns": uses.held_by_largest(0.01),
    }


def transposed(csr: sp.csr_array) -> Features:
    """The features of the transposed matrix (its rows are the columns of `csr`)."""
    return analyse(csr.tocsc().T.tocsr() if csr.nnz else type(csr)((csr.shape[1], csr.shape[0]), dtype=csr.dtype))
