"""SpMV and SpMM on real matrices, under emulation: a window of rows of each, the densest rows among them.

By default, and in every representation; there, matrices that are made up stand in where the corpus is absent.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import MATRICES, SHARED, agrees, matmul, matvec

from sparseditto.compiler.api import Result, bind_package, compile_file, run
from sparseditto.compiler.execute import prepare, run_simt
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.runtimes.simt import SimtModule
from sparseditto.dialects.errors import InputError
from sparseditto.passes.base import Kind, Pass, Resource
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry

ROOT = Path(__file__).resolve().parents[1]

from benchmarks import corpus, each_representation  # noqa: E402
from benchmarks.representations import REPRESENTATIONS, UNSYMMETRIC, Representation, kernel_text  # noqa: E402

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
    first = longest(csr, ROWS)
    enough = np.searchsorted(np.cumsum(np.diff(csr.indptr)[first : first + ROWS]), ENTRIES) + 1
    return sp.csr_array(csr[first : first + min(ROWS, int(enough))])


def longest(csr: sp.csr_array, rows: int) -> int:
    """Where so many rows begin that the longest is among them, the first where it can be."""
    return max(0, min(int(np.diff(csr.indptr).argmax()), csr.shape[0] - rows)) if csr.shape[0] else 0


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


# --- Every representation -----------------------------------------------------------------------------

BLOCK = 64  # rows of a block of a matrix …
WIDE = 2048  # … and its columns
K = 17
KERNELS = [(name, op) for name, chosen in REPRESENTATIONS.items() for op in chosen.plans]


def ones() -> sp.csr_array:
    """What every representation takes."""
    return sp.csr_array(sp.diags_array([np.ones(120), np.ones(121), np.ones(120)], offsets=[-1, 0, 1]))


@cache
def samples(symmetric: bool) -> dict[str, sp.csr_array]:
    """Blocks of real matrices, from the longest row on, and made-up ones; symmetric: sums with their transposes."""
    made = {"ones": ones()} | {name: MATRICES[name]() for name in ("staircase", "full row", "no entries", "1x1")}
    found = {path.stem: sp.csr_array(reader().load(path)) for path in sorted(CORPUS.glob("*.npz"))}
    if symmetric:
        made |= {name: mirrored(csr, 0) for name, csr in made.items() if name != "ones"}
        return made | {name: mirrored(csr, longest(csr, BLOCK)) for name, csr in found.items()}
    return made | {name: block(csr, longest(csr, BLOCK), WIDE) for name, csr in found.items()}


def block(csr: sp.csr_array, first: int, columns: int) -> sp.csr_array:
    """Rows from the `first` on, and columns: of a square matrix beside the diagonal."""
    left = first if csr.shape[0] == csr.shape[1] else 0
    return sp.csr_array(csr[first : first + BLOCK, left : left + columns])


def mirrored(csr: sp.csr_array, first: int) -> sp.csr_array:
    part = block(csr, first, BLOCK)
    part.resize((BLOCK, BLOCK))
    return sp.csr_array(part + part.T)


def is_right(package: KernelPackage, module: SimtModule, a: sp.csr_array, chosen: Representation) -> bool:
    """Whether the result is right; False where packing refuses the matrix in a way that is announced."""
    try:
        inputs = prepare(package, bind_package(package, {"A": a}))
    except InputError as e:
        assert any(re.search(why, e.message) for why in chosen.refusals), e.message  # noqa: PT017 (most are no refusals)
        return False
    output = run_simt(package, inputs, module=module)
    (dense,) = inputs.dense.values()
    assert agrees(output, sp.csr_array(a.T) if chosen.transposed else a, dense), a.shape
    return True


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "op"), KERNELS)
def test_every_representation(name: str, op: str, kernel_file: Write) -> None:
    chosen = REPRESENTATIONS[name]
    text = kernel_file(kernel_text(op, "float32", chosen.transposed, chosen.pinned))
    package = compile_file(text, sizes={"K": K} if op == "spmm" else {}, plan=chosen.plans[op]).package
    module = SimtModule(package.mlir)
    found = {of: is_right(package, module, a, chosen) for of, a in samples(UNSYMMETRIC in chosen.refusals).items()}
    assert found["ones"]


def steps_of_all() -> list[Pass]:
    return [step for chosen in REPRESENTATIONS.values() for text in chosen.plans.values() for step in Plan.parse(text).steps]


def test_every_pass_that_stores_is_in_the_table() -> None:
    """With every choice that says how."""
    choices = ("format", "positions", "coordinates", "offsets", "bits", "by", "rows", "columns", "mode", "stage")
    steps = steps_of_all()
    ours = [cls for cls in registry().values() if cls.__module__.startswith("sparseditto.passes.")]
    stores = [cls for cls in ours if cls.kind is Kind.REPRESENTATION or Resource.PREPROCESSING in cls.consumes]
    assert len(stores) >= 15
    for cls in stores:
        used = [step for step in steps if type(step) is cls]
        assert used, f"{cls.name} is in no plan of benchmarks/representations.py"
        for field in fields(cls):
            if field.name in choices and field.metadata["choices"]:
                assert {getattr(step, field.name) for step in used} == set(field.metadata["choices"]), (cls.name, field.name)
    blocks = {(s.block_rows, s.block_columns) for s in steps if s.name == "set-encoding" and s.format == "bsr"}
    assert len({rows == columns for rows, columns in blocks}) == 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of two matrices."""
    made = tmp_path / "made"
    made.mkdir()
    (made / "corpus_io.py").write_text("from scipy.sparse import load_npz as load\n")
    sp.save_npz(made / "band.npz", ones())
    sp.save_npz(made / "stairs.npz", MATRICES["staircase"]())
    return made


def rows_of(out: Path) -> list[dict[str, object]]:
    return [row for row in map(json.loads, out.read_text().splitlines()) if row["kind"] == each_representation.KIND]


def test_the_benchmark_goes_on_where_it_stopped(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out" / "each.jsonl"
    words = [str(folder), "--device", "simt", "--jobs", "1", "--out", str(out), "--representations"]
    assert corpus.main([*words, "csr,csc", "--K", "", "--time-limit", "0"]) == 0
    assert not rows_of(out)
    assert "time is up; 4 runs are left" in capsys.readouterr().err
    assert corpus.main([*words, "csr,csc", "--K", ""]) == 0
    assert corpus.main([*words, "csr,csc,triangle", "--K", "3"]) == 0
    rows = rows_of(out)
    assert len(rows) == 2 * 2 * 3
    assert {row["representation"] for row in rows if row["outcome"] == "refused"} == {"triangle"}
    assert "| triangle | 2 | 2 | 0 |  |" in capsys.readouterr().out
    kinds = [json.loads(line)["kind"] for line in out.read_text().splitlines()]
    assert kinds.count("machine") == 3
    assert corpus.done(out) == set()


def test_refusals_that_are_not_announced_are_faults(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(REPRESENTATIONS, "triangle", replace(REPRESENTATIONS["triangle"], refusals=("places",)))
    words = [str(folder), "--device", "simt", "--jobs", "1", "--K", "", "--representations", "triangle"]
    assert corpus.main([*words, "--out", str(tmp_path / "each.jsonl")]) == 1
    assert "| triangle | 1 | 0 | 1 | stairs spmv K=0: bad-input a matrix of 69 x 67" in capsys.readouterr().out


def test_the_benchmark_of_default_plans(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "corpus.jsonl"
    words = [str(folder), "--device", "simt", "--K", "3", "--out", str(out)]
    assert corpus.main(words) == corpus.main(words) == 0
    assert len(corpus.done(out)) == 4
    assert [json.loads(line).get("kind") for line in out.read_text().splitlines()].count("machine") == 2
    assert "right" in capsys.readouterr().out


def test_unknown_representations_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        corpus.main([str(folder), "--out", "x", "--representations", "csr,dok"])
    assert "no representation is named 'dok'; there are csr, " in capsys.readouterr().err
