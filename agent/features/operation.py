"""What is computed with a matrix: A x (SpMV), A B with a dense B (SpMM), and A B with a sparse B (SpGEMM)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sparseditto.agent.features.definition import Kind, feature
from sparseditto.agent.features.pattern import Features
from sparseditto.agent.features.walks import pieces
from sparseditto.dialects.errors import InputError

if TYPE_CHECKING:
    import scipy.sparse as sp

ROOFLINE = "Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009"
COMPRESSION = "Nagasaka et al., High-performance sparse matrix-matrix products on Intel KNL and multicore, ICPP Workshops 2018"
PRODUCTS = 2_000_000  # products up to which the output is counted; about as many are looked at in larger ones
LEAST_ROWS = 16  # that are looked at

_feature = partial(feature, kind=Kind.OPERATOR)
_product = partial(feature, kind=Kind.OPERATOR, source=COMPRESSION)


@dataclass(frozen=True)
class Operation:
    """One call: what it computes and the bytes that it must move, A as CSR with 32-bit indices."""

    dense_columns: int = _feature("columns K of the dense operand: 1 for SpMV, 0 where it is sparse", unit="columns")
    flops: float = _feature("2 * entries * K, or 2 * products", unit="flops")
    matrix_bytes: float = _feature("entries * (4 + value bytes) + 4 * (rows + 1)", unit="bytes")
    operand_bytes: float = _feature("used_columns * K * value bytes, or B as CSR", unit="bytes", estimated=True)
    output_bytes: float = _feature("rows * K * value bytes, or the output as CSR", unit="bytes", estimated=True)
    compulsory_bytes: float = _feature(
        "matrix_bytes + operand_bytes + output_bytes: each is moved once", unit="bytes", source=ROOFLINE, estimated=True
    )
    gathered_bytes: float = _feature("entries * K * value bytes, or B's rows as often as they are used", unit="bytes")
    operand_reuse: float = _feature("gathered_bytes / operand_bytes; 0 without operand", unit="1", estimated=True)
    intensity: float = _feature("flops / compulsory_bytes", unit="flops a byte", source=ROOFLINE, estimated=True)
    gather_intensity: float = _feature(
        "flops / (matrix_bytes + gathered_bytes + output_bytes): where no cache holds the operand",
        unit="flops a byte",
        source=ROOFLINE,
        estimated=True,
    )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Product:
    """What SpGEMM makes of two patterns."""

    products: int = _product("sum over the entries (i, k) of A of the entries of row k of B", unit="products")
    max_products: int = _product("most products of one row of A", unit="products")
    output_entries: float = _product("entries of the pattern of A B", unit="entries", estimated=True)
    compression: float = _product("products / output_entries; 1 without products", unit="products an entry", estimated=True)
    product_sampled: float = _product("products of the rows that were looked at / products; 1 where all is exact", unit="share")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def dense_operation(f: Features, columns: int, value_bytes: int) -> Operation:
    """A times a dense operand with so many columns, 1 for a vector.  Raises `InputError` for fewer."""
    if columns < 1:
        raise InputError(f"{columns} dense columns: at least one is needed")
    width = columns * value_bytes
    return _operation(
        columns,
        2.0 * f.entries * columns,
        _csr_bytes(f.rows, f.entries, value_bytes),
        f.used_columns * width,
        float(f.rows * width),
        float(f.entries * width),
    )


def sparse_operation(a: Features, b: Features, product: Product, value_bytes: int) -> Operation:
    """A times B, both sparse."""
    return _operation(
        0,
        2.0 * product.products,
        _csr_bytes(a.rows, a.entries, value_bytes),
        _csr_bytes(b.rows, b.entries, value_bytes),
        _csr_bytes(a.rows, product.output_entries, value_bytes),
        product.products * (4.0 + value_bytes),
    )


def _csr_bytes(rows: int, entries: float, value_bytes: int) -> float:
    return float(entries * (4 + value_bytes) + 4 * (rows + 1))


def _operation(columns: int, flops: float, matrix: float, operand: float, output: float, gathered: float) -> Operation:
    compulsory = matrix + operand + output
    return Operation(
        columns,
        flops,
        matrix,
        operand,
        output,
        compulsory,
        gathered,
        gathered / operand if operand else 0.0,
        flops / compulsory,
        flops / (matrix + gathered + output),
    )


def multiply_patterns(a: sp.csr_array, b: sp.csr_array) -> Product:
    """The products of A B, counted, and the entries of its output, where there are many products of rows of A spread evenly.

    The compression of a sample is that of all rows as far as rows are alike; rows of more than `PRODUCTS` products are left out
    of it.  Raises `InputError` where the shapes do not agree.
    """
    if a.shape[1] != b.shape[0]:
        raise InputError(f"{a.shape[0]} x {a.shape[1]} times {b.shape[0]} x {b.shape[1]}: the inner sizes differ")
    per_row = _products_per_row(a, np.diff(b.indptr))
    products = int(per_row.sum())
    if not products:
        return Product(0, 0, 0.0, 1.0, 1.0)
    rows = np.flatnonzero(per_row)
    if products > PRODUCTS:
        wanted = max(LEAST_ROWS, rows.size * PRODUCTS // products)
        rows = rows[np.linspace(0, rows.size - 1, min(wanted, rows.size)).astype(np.int64)]
        rows = rows[per_row[rows] <= max(PRODUCTS, int(per_row[rows].min()))]  # one row may have nearly all
    seen = int(per_row[rows].sum())
    compression = seen / int((_ones(a[rows]) @ _ones(b)).nnz)
    return Product(products, int(per_row.max()), products / compression, compression, seen / products)


def _ones(csr: sp.csr_array) -> sp.csr_array:
    """True where there are entries, so that sums neither cancel nor overflow."""
    return type(csr)((np.ones(csr.nnz, bool), csr.indices, csr.indptr), shape=csr.shape)


def _products_per_row(a: sp.csr_array, lengths: Any) -> Any:
    """For each row of A the sum of the lengths of the rows of B that it names."""
    found = np.zeros(a.shape[0], np.int64)
    for start, stop in pieces(a.shape[0], 1 << 15):
        positions = a.indptr[start : stop + 1]
        some = np.flatnonzero(np.diff(positions))
        if some.size:
            named = lengths.take(a.indices[positions[0] : positions[-1]])
            found[start + some] = np.add.reduceat(named, positions[some] - positions[0], dtype=np.int64)
    return found
