"""The features of a sparse matrix: what its pattern is like, and what storing it in other ways would add."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

from sparseditto.agent.features.definition import Kind, definitions_of, feature
from sparseditto.dialects.errors import InputError

_pattern = partial(feature, kind=Kind.PATTERN)
_estimate = partial(_pattern, estimated=True, default=0.0)
_stored = partial(feature, kind=Kind.REPRESENTATION)

GINI = "Gini, Variabilità e mutabilità, 1912"
HYBRID = "Bell and Garland, Implementing sparse matrix-vector multiplication on throughput-oriented processors, SC 2009"
PROFILE = "George and Liu, Computer Solution of Large Sparse Positive Definite Systems, 1981"
SLICED = "Kreutzer et al., A unified sparse matrix data format (SELL-C-sigma), SISC 36(5), 2014"


@dataclass(frozen=True)
class Features:
    """What the planner reads of a matrix.

    Every field says what it is (`definitions`), and is exact for every matrix unless it is an estimate or one of three lower
    bounds: where the diagonals of 4096 rows, spread evenly, make more than 8 places an entry, `diagonals` and
    `diagonal_padding` say so and others are not looked for; `span_sorted` says no more than that it is above 65,536 columns.
    Estimates are exact where `sampled` is 1, up to half a million entries; `samples` says how they are made and what their
    errors are.
    """

    rows: int = _pattern("rows of the matrix", unit="rows")
    columns: int = _pattern("columns of the matrix", unit="columns")
    entries: int = _pattern("stored entries, zeros among them", unit="entries")
    mean_row: float = _pattern("entries / rows", unit="entries")
    max_row: int = _pattern("entries of the longest row", unit="entries")
    variation: float = _pattern("standard deviation of the lengths of rows / mean_row; 0 without entries", unit="1")
    empty_rows: float = _pattern("rows without entries / rows", unit="share of rows")

    padding: float = _stored(
        "places of slices of 32 neighbouring rows, each as wide as its longest row (SELL-32) / entries; 1 without entries",
        unit="places an entry",
        source=SLICED,
        default=1.0,
    )
    padding_sorted: float = _stored(
        "the same with rows sorted by falling length within windows of 1024", unit="places an entry", source=SLICED, default=1.0
    )
    span: int = _stored("the most columns from the first to the last of a slice of 32 rows", unit="columns", default=0)
    span_sorted: int = _stored(
        "the same with rows sorted as in padding_sorted; a lower bound above 65,536", unit="columns", default=0
    )
    fill_2: float = _stored(
        "entries / places of the 2 x 2 blocks that hold any", unit="share of places", estimated=True, default=0.0
    )
    fill_3: float = _stored(
        "entries / places of the 3 x 3 blocks that hold any", unit="share of places", estimated=True, default=0.0
    )
    fill_4: float = _stored(
        "entries / places of the 4 x 4 blocks that hold any", unit="share of places", estimated=True, default=0.0
    )
    fill_8: float = _stored(
        "entries / places of the blocks of 8 rows and 4 columns that hold any",
        unit="share of places",
        estimated=True,
        default=0.0,
    )
    ell_padding: float = _stored("rows * max_row / entries; 1 without entries", unit="places an entry", default=1.0)
    diagonals: int = _pattern(
        "diagonals that hold entries; a lower bound where 4096 rows show more than 8 places an entry",
        unit="diagonals",
        default=0,
    )
    diagonal_padding: float = _stored("rows * diagonals / entries; 1 without entries", unit="places an entry", default=1.0)
    row_span: int = _stored(
        "the most columns from the first to the last of one row, which offsets from the first must reach",
        unit="columns",
        default=0,
    )
    equal_values: bool = _pattern(
        "whether there are entries, and the bits of all values are the same", unit="flag", default=False
    )

    density: float = _pattern("entries / (rows * columns); 0 without places", unit="share of places", default=0.0)
    min_row: int = _pattern("entries of the shortest row", unit="entries", default=0)
    median_row: int = _pattern("least length that half of the rows do not exceed", unit="entries", default=0)
    row_q90: int = _pattern("least length that 90 % of the rows do not exceed", unit="entries", default=0)
    row_q99: int = _pattern("least length that 99 % of the rows do not exceed", unit="entries", default=0)
    row_gini: float = _pattern(
        "Gini coefficient of the lengths of rows: 0 where all are equal, near 1 where one row has all entries",
        unit="1",
        source=GINI,
        default=0.0,
    )
    long_rows: float = _pattern(
        "entries of the longest 1 % of the rows (rounded up) / entries", unit="share of entries", default=0.0
    )
    mean_row_span: float = _pattern(
        "mean number of columns from the first to the last of a row, of rows with entries", unit="columns", default=0.0
    )
    lower_bandwidth: int = _pattern("the most that the row of an entry exceeds its column", unit="columns", default=0)
    upper_bandwidth: int = _pattern("the most that the column of an entry exceeds its row", unit="columns", default=0)
    profile: float = _pattern(
        "mean over the rows of max(0, row - first column), the places of the lower envelope",
        unit="places a row",
        source=PROFILE,
        default=0.0,
    )
    max_gap: int = _stored("largest difference of two neighbouring columns of a row", unit="columns", default=0)
    hybrid_width: int = _stored(
        "least length that two thirds of the rows do not exceed: what a hybrid of ELL and COO stores as ELL",
        unit="entries",
        source=HYBRID,
        default=0,
    )
    hybrid_padding: float = _stored(
        "(rows * hybrid_width + entries beyond it) / entries; 1 without entries",
        unit="places an entry",
        source=HYBRID,
        default=1.0,
    )
    hybrid_rest: float = _stored("entries beyond hybrid_width / entries", unit="share of entries", source=HYBRID, default=0.0)

    used_columns: float = _estimate("columns with entries", unit="columns")
    empty_columns: float = _estimate("columns without entries / columns", unit="share of columns")
    column_reuse: float = _estimate("entries / used_columns: how often what is gathered is used", unit="entries")
    max_column: int = _pattern("entries of the fullest column", unit="entries", estimated=True, default=0)
    column_variation: float = _estimate("standard deviation of the entries of columns / their mean", unit="1")
    column_gini: float = _estimate("Gini coefficient of the entries of columns", unit="1", source=GINI)
    hot_columns: float = _estimate("entries of the fullest 1 % of the columns (rounded up) / entries", unit="share of entries")

    symmetry: float = _estimate(
        "of the entries off the diagonal, those whose mirror is stored; 1 where there are none, 0 where not square",
        unit="share of entries",
    )
    value_symmetry: float = _estimate("the same, with the same value (NaN equals NaN)", unit="share of entries")
    full_diagonal: float = _estimate("entries on the main diagonal / min(rows, columns)", unit="share of places")
    row_overlap: float = _estimate(
        "of the entries of rows but the first, those whose column has an entry in the row before", unit="share of entries"
    )
    median_gap: int = _pattern(
        "least number that half of the differences of neighbouring columns of a row do not exceed",
        unit="columns",
        estimated=True,
        default=0,
    )
    gap_q90: int = _pattern("the same for 90 % of them", unit="columns", estimated=True, default=0)
    adjacent: float = _estimate("of these differences, those that are 1", unit="share of gaps")
    sectors: float = _estimate(
        "32-byte sectors of a vector of 4-byte values that a row reads, over all rows / entries", unit="sectors an entry"
    )
    sampled: float = _pattern(
        "entries of the rows that were looked at whole / entries; 1 where every feature is exact",
        unit="share of entries",
        default=1.0,
    )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Features:
        """What `to_json` gave; features that are not there have their defaults.  Raises `InputError` on names of none."""
        if unknown := data.keys() - {field.name for field in fields(Features)}:
            raise InputError(f"no features are named {', '.join(sorted(unknown))}")
        return Features(**data)

    def estimates(self) -> frozenset[str]:
        """The names of the features that are estimates for this matrix."""
        exact = self.sampled == 1.0
        return frozenset() if exact else frozenset(d.name for d in definitions_of(Features) if d.estimated)
