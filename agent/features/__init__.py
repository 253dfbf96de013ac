"""What a sparse matrix is like, in numbers: its pattern, its storage, what is computed with it and where.

`analyse` reads a matrix; everything else follows from its `Features` and a few sizes.  `describe` has all of it in one
mapping, `definitions` what each number means.
"""

from sparseditto.agent.features.analyse import analyse, transposed
from sparseditto.agent.features.definition import Definition, Kind
from sparseditto.agent.features.describe import definitions, describe, estimates
from sparseditto.agent.features.hardware import Fit, Hardware, fit
from sparseditto.agent.features.operation import Operation, Product, dense_operation, multiply_patterns, sparse_operation
from sparseditto.agent.features.pattern import Features
from sparseditto.agent.features.storage import Storage, storage
from sparseditto.agent.features.walks import WINDOW

__all__ = [
    "WINDOW",
    "Definition",
    "Features",
    "Fit",
    "Hardware",
    "Kind",
    "Operation",
    "Product",
    "Storage",
    "analyse",
    "definitions",
    "dense_operation",
    "describe",
    "estimates",
    "fit",
    "multiply_patterns",
    "sparse_operation",
    "storage",
    "transposed",
]
