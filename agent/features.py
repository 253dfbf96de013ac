"""Structural numbers of a sparse matrix, from its pattern alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import scipy.sparse as sp


@dataclass(frozen=True)
class Features:
    """What the planner reads.

    `rows`, `columns`, `entries` are the sizes; `mean_row`, `max_row` the mean and the largest number of entries of a row;
    `variation` the standard deviation of row lengths over their mean (0 for an empty matrix); `empty_rows` the share
    of rows without entries.
    """

    rows: int
    columns: int
    entries: int
    mean_row: float
    max_row: int
    variation: float
    empty_rows: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def analyse(csr: sp.csr_array) -> Features:
    """The features of a matrix in CSR form; cost is linear in its rows."""
    rows, columns = csr.shape
    lengths = np.diff(csr.indptr)
    mean = float(lengths.mean()) if rows else 0.0
    return Features(
        rows=int(rows),
        columns=int(columns),
        entries=int(csr.nnz),
        mean_row=mean,
        max_row=int(lengths.max(initial=0)),
        variation=float(lengths.std() / mean) if mean else 0.0,
        empty_rows=float((lengths == 0).mean()) if rows else 0.0,
    )


def transposed(csr: sp.csr_array) -> Features:
    """The features of the transposed matrix (its rows are the columns of `csr`)."""
    return analyse(csr.tocsc().T.tocsr() if csr.nnz else type(csr)((csr.shape[1], csr.shape[0]), dtype=csr.dtype))
