"""What the prior reads of a task: the operator, K, the size of a value, and numbers of the matrix on its GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparseditto.agent.features import Features, Hardware, dense_operation, describe
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    from sparseditto.agent.planner import Task

SPMV, SPMM = "spmv", "spmm"
OPS = (SPMV, SPMM)
FEATURES = (
    "dense_columns",
    "value_bytes",
    "rows",
    "columns",
    "entries",
    "mean_row",
    "max_row",
    "variation",
    "empty_rows",
    "padding",
    "padding_sorted",
    "fill_2",
    "fill_4",
    "sectors",
    "row_overlap",
    "column_reuse",
    "operand_l2",
    "longest_over_share",
)
"""The features whose bins have weights: `value_bytes` is that of an input's value, the others are in docs/features.md."""


@dataclass(frozen=True)
class Subject:
    """One task.  `columns` is K, 1 for SpMV; `numbers` are all features of the matrix, the operation and the GPU, by name."""

    op: str
    columns: int
    numbers: Mapping[str, float]

    @staticmethod
    def of(task: Task, features: Features, hardware: Hardware) -> Subject:
        """Raises `InputError` for a task that the prior says nothing of (see `covers`)."""
        if not covers(task):
            raise InputError(
                "the prior knows products of a sparse matrix with a vector or a dense matrix of known columns; "
                "rank plans of other tasks by `planner.ranked`"
            )
        return Subject.product(features, max(task.columns or 0, 1), task.element_bytes, hardware)

    @staticmethod
    def product(features: Features, columns: int, value_bytes: int, hardware: Hardware) -> Subject:
        """A matrix times a dense one of so many columns, or a vector (1)."""
        operation = dense_operation(features, columns, value_bytes)
        numbers = describe(features, value_bytes, operation, None, hardware) | {"value_bytes": value_bytes}
        return Subject(SPMM if columns > 1 else SPMV, columns, numbers)


def covers(task: Task) -> bool:
    """Whether a task is SpMV or SpMM, with storage that may be chosen, and K is known: what the prior has learned from."""
    plain = task.choose_format and task.reduction and task.one_sum and task.gathers and not task.row_terms
    return plain and task.contiguous and task.columns is not None
