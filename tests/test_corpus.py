"""SpMV and SpMM on real matrices, under emulation: a window of rows of each, the densest rows among them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import SHARED, agrees, matmul, matvec

from sparseditto.compiler.api import Result, compile_file, run

CORPUS = SHARED / "data/corpus"
ROWS = 300
ENTRIES = 20_000

Write = Callable[[str], Path]


@cache
def reader() -> ModuleType:
    """The corpus's own reader of its compact files."""
    spec = importlib.util.spec_from_file_location("corpus_io", CORPUS / "corpus_io.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def window(name: str) -> sp.csr_array:
    """At most `ROWS` rows and about `ENTRIES` entries, from the longest row on."""
    csr = sp.csr_array(reader().load(CORPUS / name))
    lengths = np.diff(csr.indptr)
    first = max(0, min(int(lengths.argmax()), csr.shape[0] - ROWS)) if csr.shape[0] else 0
    enough = np.searchsorted(np.cumsum(lengths[first : first + ROWS]), ENTRIES) + 1
    return sp.csr_array(csr[first : first + min(ROWS, int(enough))])


def names() -> list[object]:
    found = sorted(path.name for path in CORPUS.glob("*.npz"))
    return found or [pytest.param("", marks=pytest.mark.skip(reason=f"there is no {CORPUS}"))]


def checked(text: Path, a: sp.csr_array, columns: int | None, plan: str | None) -> Result:
    sizes = {} if columns is None else {"K": columns}
    result = run(compile_file(text, {"A": a}, sizes, plan=plan).package, {"A": a}, verify=True)
    assert result.check is not None
    assert result.check.passed, result.check
    (dense,) = result.inputs.dense.values()
    assert agrees(result.output, a, dense, 0.0 if result.inputs.initial is None else result.inputs.initial)
    return result


@pytest.mark.parametrize("name", names())
def test_spmv(name: str, kernel_file: Write) -> None:
    checked(kernel_file(matvec()), window(name), None, None)


@pytest.mark.parametrize("name", names())
def test_spmm(name: str, kernel_file: Write) -> None:
    checked(kernel_file(matmul()), window(name), 33, None)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["dcsr", "bsr block-rows=2 block-columns=2"])
@pytest.mark.parametrize("name", names())
def test_other_formats(name: str, layout: str, kernel_file: Write) -> None:
    tail = "accumulate-registers,rows-to-subgroups{lanes=16 share=entries},unroll,map-blocks"
    checked(kernel_file(matvec("f64")), window(name), None, f"set-encoding{{format={layout}}},{tail}")
