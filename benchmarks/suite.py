"""The matrices that are measured: `suite("full")`, real and generated, and `suite("smoke")`, tiny ones of every kind.

Building is deterministic.  A pattern without values gets random ones in [-1, 1), from a seed that its name gives.
"""

from __future__ import annotations

import csv
import importlib.util
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import generators as g

_TRIANGLE = ((0, 0), (0, 1), (1, 1), (1, 2), (2, 0), (2, 2))
_SQUARE = ((0, 0), (0, 1), (1, 1), (1, 3), (2, 0), (2, 2), (3, 3))


@dataclass(frozen=True)
class Case:
    """One matrix: `build()` makes it, with about `nnz` entries; `source` says where it comes from."""

    name: str
    family: str
    build: Callable[[], Any]
    nnz: int
    source: str


def corpus_folder() -> Path:
    """Where the real matrices are looked for: beside the checkout, and in its folder .corpus."""
    checkout = Path(__file__).resolve().parents[1]
    folders = [checkout.parent / "shared" / "data" / "corpus", checkout / ".corpus"]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def suite(name: str, corpus: Path | None = None) -> list[Case]:
    """The cases of a suite by name.  `corpus` is the folder of the real matrices; by default `corpus_folder()`."""
    if name == "smoke":
        return _smoke()
    if name == "full":
        return [*corpus_cases(corpus or corpus_folder()), *_generated()]
    raise ValueError(f"no suite is named '{name}'; there are full and smoke")


def matrix(case: Case, cache: Path | None = None) -> Any:
    """Build a case: canonical CSR, float32, int32 indices; from `cache` when it is there, else into it."""
    file = cache / f"{case.name}.npz" if cache else None
    if file is not None and file.exists():
        return sp.csr_array(sp.load_npz(file))
    built = sp.csr_array(case.build())
    if not built.has_canonical_format:
        built.sum_duplicates()
    with np.errstate(over="ignore"):  # some circuits hold values that float32 does not
        data = np.ascontiguousarray(built.data, dtype=np.float32)
    if np.all(data == 1.0):
        data = np.random.default_rng(zlib.crc32(case.name.encode())).random(data.size, dtype=np.float32) * 2 - 1
    indices, starts = (np.ascontiguousarray(x, dtype=np.int32) for x in (built.indices, built.indptr))
    result = sp.csr_array((data, indices, starts), shape=built.shape)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part.npz")
        sp.save_npz(part, result, compressed=False)
        part.replace(file)
    return result


# --- The real ones --------------------------------------------------------------------------------------


def corpus_cases(folder: Path) -> list[Case]:
    """One case for each line of the corpus' MANIFEST.tsv; none when there is no such folder."""
    manifest = folder / "MANIFEST.tsv"
    if not manifest.exists():
        return []
    with manifest.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    return [
        Case(r["name"], r["kind"], partial(_load, str(folder), r["name"]), int(r["nnz"]), r["source"])
        for r in sorted(rows, key=lambda r: r["name"])
    ]


def _load(folder: str, name: str) -> Any:
    """Read a matrix by the corpus' own reader."""
    spec = importlib.util.spec_from_file_location("corpus_io", Path(folder) / "corpus_io.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{folder} has no corpus_io.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(str(Path(folder) / f"{name}.npz"))


# --- The generated ones ---------------------------------------------------------------------------------


def _made(name: str, family: str, nnz: float, function: Callable[..., Any], *arguments: Any) -> Case:
    source = f"generators.{function.__name__}{arguments}"
    return Case(name, family, partial(function, *arguments), int(nnz), source)


def _generated() -> list[Case]:
    return [
        # as FACTS and PEERS have them
        _made("fem27_64", "stencil", 6.86e6, g.stencil27, 64),
        _made("fem27_128", "stencil", 55.7e6, g.stencil27, 128),
        _made("tri2M", "banded", 6.29e6, g.tridiagonal, 1 << 21),
        _made("rmat15_16", "rmat", 4.4e5, g.rmat, 15, 16),
        _made("rmat18_16", "rmat", 3.9e6, g.rmat, 18, 16),
        _made("rmat20_16", "rmat", 16.1e6, g.rmat, 20, 16),
        _made("unif256k_16", "uniform", 4.19e6, g.uniform, 1 << 18, 16),
        _made("unif1M_16", "uniform", 16.8e6, g.uniform, 1 << 20, 16),
        _made("unif60k_64", "uniform", 3.84e6, g.uniform, 60_000, 64),
        # the families in sizes
        _made("stencil5_256", "stencil", 3.3e5, g.star, (256, 256)),
        _made("stencil5_1024", "stencil", 5.2e6, g.star, (1024, 1024)),
        _made("stencil5_2100", "stencil", 22e6, g.star, (2100, 2100)),
        _made("stencil7_30", "stencil", 1.8e5, g.star, (30, 30, 30)),
        _made("stencil7_128", "stencil", 14.6e6, g.star, (128, 128, 128)),
        _made("stencil9_400", "stencil", 1.4e6, g.box, (400, 400)),
        _made("stencil9_2048", "stencil", 37.7e6, g.box, (2048, 2048)),
        _made("stencil27_16", "stencil", 9.7e4, g.stencil27, 16),
        _made("stencil27_154", "stencil", 97.3e6, g.stencil27, 154),
        _made("elasticity_12", "elasticity", 3.5e5, g.elasticity, 12),
        _made("elasticity_32", "elasticity", 7.5e6, g.elasticity, 32),
        _made("elasticity_64", "elasticity", 61.7e6, g.elasticity, 64),
        _made("rmat14_8", "rmat", 1.2e5, g.rmat, 14, 8),
        _made("rmat16_32", "rmat", 1.8e6, g.rmat, 16, 32),
        _made("rmat19_8", "rmat", 4.1e6, g.rmat, 19, 8),
        _made("rmat21_8", "rmat", 16.5e6, g.rmat, 21, 8),
        _made("rmat22_16", "rmat", 65e6, g.rmat, 22, 16),
        _made("road_220", "road", 1.2e5, g.road, 220),
        _made("road_1000", "road", 2.5e6, g.road, 1000),
        _made("road_2000", "road", 9.9e6, g.road, 2000),
        _made("web_100k", "web", 1e6, g.web, 100_000, 12.0),
        _made("web_1M", "web", 1e7, g.web, 1_000_000, 12.0),
        _made("web_2M", "web", 3e7, g.web, 2_000_000, 20.0),
        _made("circuit_20k", "circuit", 1.2e5, g.circuit, 20_000),
        _made("circuit_300k", "circuit", 1.8e6, g.circuit, 300_000),
        _made("circuit_2M", "circuit", 12e6, g.circuit, 2_000_000, 6),
        _made("lp_wide_2k", "lp", 1.2e6, g.linear_program, 2_000, 200_000, 4),
        _made("lp_wide_50k", "lp", 13e6, g.linear_program, 50_000, 1_500_000, 7),
        _made("lp_tall_100k", "lp", 6e5, g.tall_program, 100_000, 1_000, 4),
        _made("lp_tall_1M", "lp", 8e6, g.tall_program, 1_000_000, 20_000, 6),
        _made("unif400_3", "uniform", 1.2e3, g.uniform, 400, 3),
        _made("unif10k_10", "uniform", 1e5, g.uniform, 10_000, 10),
        _made("unif4M_8", "uniform", 33.5e6, g.uniform, 1 << 22, 8),
        _made("band_5k_20", "banded", 2e5, g.banded, 5_000, 20),
        _made("band_100k_16_half", "banded", 1.7e6, g.banded, 100_000, 16, 0.5),
        _made("band_1M_15", "banded", 31e6, g.banded, 1_000_000, 15),
        _made("band_2M_24", "banded", 98e6, g.banded, 2_000_000, 24),
        _made("blocks_4", "block-diagonal", 2e5, g.block_diagonal, 12_500, 4, 4),
        _made("blocks_2_64", "block-diagonal", 7.2e6, g.block_diagonal, 5_000, 2, 64),
        _made("blocks_256", "block-diagonal", 13e6, g.block_diagonal, 200, 256, 256),
        _made("kron3_7", "kronecker", 2.8e5, g.kronecker, _TRIANGLE, 7),
        _made("kron4_8", "kronecker", 5.76e6, g.kronecker, _SQUARE, 8),
        _made("kron4_9", "kronecker", 40.4e6, g.kronecker, _SQUARE, 9),
        _made("dnn_512x2048_70", "dnn", 3.1e5, g.pruned_layer, 512, 2048, 0.70),
        _made("dnn_4096x1024_80", "dnn", 8.4e5, g.pruned_layer, 4096, 1024, 0.80),
        _made("dnn_4096_90", "dnn", 1.7e6, g.pruned_layer, 4096, 4096, 0.90),
        _made("dnn_11008x4096_95", "dnn", 2.25e6, g.pruned_layer, 11008, 4096, 0.95),
        _made("dnn_8192_98", "dnn", 1.3e6, g.pruned_layer, 8192, 8192, 0.98),
        _made("dnn_8192x28672_70", "dnn", 70e6, g.pruned_layer, 8192, 28672, 0.70),
        _made("hyper_200k", "hypersparse", 1e4, g.hypersparse, 200_000, 5_000, 2),
        _made("hyper_1M", "hypersparse", 2e5, g.hypersparse, 1_000_000, 50_000, 4),
        _made("hyper_4M", "hypersparse", 3.2e6, g.hypersparse, 4_000_000, 400_000, 8),
    ]


def _smoke() -> list[Case]:
    return [
        _made("tiny_stencil", "stencil", 1065, g.star, (15, 15)),
        _made("tiny_elasticity", "elasticity", 3087, g.elasticity, 3),
        _made("tiny_rmat", "rmat", 1500, g.rmat, 8, 8),
        _made("tiny_road", "road", 550, g.road, 15),
        _made("tiny_circuit", "circuit", 1500, g.circuit, 250),
        _made("tiny_lp", "lp", 1500, g.linear_program, 20, 400, 3),
        _made("tiny_blocks", "block-diagonal", 2000, g.block_diagonal, 20, 1, 16),
        _made("tiny_dnn", "dnn", 1200, g.pruned_layer, 64, 96, 0.8),
        _made("tiny_hyper", "hypersparse", 90, g.hypersparse, 500, 30, 2),
    ]
