"""How fast the host packs a matrix, and how much memory that takes, for every storage format and recipe.

    python -m benchmarks.pack_time [--entries 10000000] [--out FILE] [--check]

Nonzeros a second from canonical CSR in memory to the arrays that a kernel takes, the best of some rounds; and the peak of what
is allocated meanwhile, the new arrays included, over the bytes of the matrix (values, 32-bit coordinates and positions).
With `--check` it exits 1 where that is less than 50 million a second for formats that keep the arrays of CSR, 15 million for
others, or more than 4 times the matrix.  Two processors are meant, as many as CI has.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import generators as g
from benchmarks.machine import machine_row
from sparseditto.compiler.api import bind_package, compile_file
from sparseditto.compiler.execute import lay_out
from sparseditto.compiler.matrix import Matrix
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.packed_io import packed_format
from sparseditto.compiler.packing import pack

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
LEAST = {True: 50e6, False: 15e6}  # nonzeros a second: of the arrays of CSR, of others
MOST_MEMORY = 4.0  # times the matrix


@dataclass(frozen=True)
class Storage:
    """What is packed: an encoding, a pass that lays entries out in another way, and a pattern that suits it.

    Without `steps` it is a format alone, as `sparseditto pack` writes it.
    """

    name: str
    encoding: str = "format=csr coordinates=32"
    steps: str = "rows-to-threads"
    pattern: str = "rows"
    like_csr: bool = False

    @property
    def plan(self) -> str:
        blocks = "" if self.steps.startswith("stage-entries") else ",map-blocks"
        return f"set-encoding{{{self.encoding}}},accumulate-registers,{self.steps}{blocks}"


def _laid_out(step: str, pattern: str = "rows", like_csr: bool = False) -> Storage:
    mapped = step if step.startswith(("split-", "stage-")) else f"{step},rows-to-threads"
    return Storage(step, steps=mapped, pattern=pattern, like_csr=like_csr)


STORAGES = (
    Storage("csr", like_csr=True),
    Storage("csr, 16-bit coordinates", "format=csr coordinates=16", pattern="narrow", like_csr=True),
    Storage("dcsr", "format=dcsr coordinates=32", like_csr=True),
    *(Storage(name, name, steps="") for name in ("csc", "dcsc", "coo")),
    *(
        Storage(f"bsr {h} x {w}", f"format=bsr coordinates=32 block-rows={h} block-columns={w}", pattern="blocks")
        for h, w in ((2, 2), (3, 3), (4, 4), (8, 4), (8, 8), (16, 16))
    ),
    Storage(
        "bsr 4 x 4, bitmaps", "format=bsr coordinates=32 block-rows=4 block-columns=4", "pack-blocks,rows-to-threads", "blocks"
    ),
    _laid_out("slice-rows{height=32 window=1 offsets=16}", "band"),
    _laid_out("slice-rows{height=32 window=1024 offsets=32}"),
    _laid_out("ell-rows{offsets=16}", "band"),
    _laid_out("ell-rows{offsets=32}", "band"),
    _laid_out("diagonals", "band"),
    _laid_out("narrow-coordinates{bits=8}", "band"),
    _laid_out("narrow-coordinates{bits=16}", "band"),
    _laid_out("uniform-values", "ones", like_csr=True),
    _laid_out("nonempty-rows", "skewed"),
    _laid_out("reorder{rows=degree}", "skewed"),
    _laid_out("reorder{rows=none columns=degree}", "skewed"),
    _laid_out("segment-rows{length=64}", "skewed", like_csr=True),
    _laid_out("bin-rows{limit=128 length=2048 threads=256}", "skewed", like_csr=True),
    _laid_out("split-entries{length=256}", "skewed", like_csr=True),
    _laid_out("stage-entries{entries=1024 threads=128}", "skewed", like_csr=True),
    Storage(
        "partition{by=length limit=64}",
        steps="partition{by=length limit=64},rows-to-threads,map-blocks,next-part,rows-to-threads",
        pattern="skewed",
    ),
)


def _csr(matrix: Any) -> Any:
    csr = sp.csr_array(matrix)
    csr.sort_indices()
    return sp.csr_array(
        (csr.data.astype(np.float32), csr.indices.astype(np.int32), csr.indptr.astype(np.int32)), shape=csr.shape
    )


def _rows(entries: int, columns: int | None = None) -> Any:
    """About ten entries a row, at random."""
    rows = max(entries // 10, 10)
    return g.uniform(rows, 10) if columns is None else _csr(g.uniform(rows, 10))[:, :columns]


PATTERNS: dict[str, Callable[[int], Any]] = {
    "rows": _rows,
    "narrow": lambda n: sp.random_array((max(n // 1000, 1), 50_000), density=0.02, rng=1, format="csr", dtype=np.float32),
    "band": lambda n: g.banded(max(n // 15, 10), 7),
    "blocks": lambda n: sp.kron(g.banded(max(n // 432, 10), 1), np.ones((12, 12)), format="csr"),
    "ones": lambda n: g.banded(max(n // 15, 10), 7) != 0,
    "skewed": lambda n: g.rmat(max(8, int(np.log2(max(n, 16) / 15))), 16),
}


def compiled(storage: Storage, shape: tuple[int, int]) -> KernelPackage:
    rows, columns = shape
    return compile_file(EXAMPLES / "spmv.mlir", {}, {"M": rows, "N": columns}, plan=storage.plan).package


def packer(storage: Storage, csr: Any) -> Callable[[], int]:
    """Packs the matrix from scratch when it is called, and says how many bytes its arrays have."""
    if not storage.steps:
        matrix, encoding = Matrix(csr), packed_format(storage.encoding)
        return lambda: sum(array.nbytes for array in pack(matrix, encoding, np.float32).arrays.values())
    package = compiled(storage, csr.shape)
    problem = bind_package(package, {"A": csr})
    names = [b.name for b in package.buffers if b.name.startswith("A.")]

    def lay() -> int:
        arrays = lay_out(package, problem).arrays
        return sum(arrays[name].nbytes for name in names)

    return lay


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most that NumPy and Python had allocated meanwhile, beyond what there was."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measure(storage: Storage, csr: Any, rounds: int) -> dict[str, Any]:
    """Packs from scratch each time: nothing is kept between rounds."""
    packing = packer(storage, csr)
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        stored = packing()
        samples.append(time.perf_counter() - start)
    size = csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes
    peak = peak_bytes(packing)
    return {
        "storage": storage.name,
        "pattern": storage.pattern,
        "like_csr": storage.like_csr,
        "entries": int(csr.nnz),
        "seconds": min(samples),
        "entries_per_second": csr.nnz / min(samples),
        "bytes_per_nonzero": stored / csr.nnz,
        "peak_over_matrix": peak / size,
    }


def missed(row: dict[str, Any]) -> list[str]:
    found = []
    if row["entries_per_second"] < LEAST[row["like_csr"]]:
        found.append(f"{row['entries_per_second'] / 1e6:.1f} M nonzeros/s, {LEAST[row['like_csr']] / 1e6:.0f} M wanted")
    if row["peak_over_matrix"] > MOST_MEMORY:
        found.append(f"{row['peak_over_matrix']:.1f} times the matrix in memory, at most {MOST_MEMORY:.0f} wanted")
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pack_time", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="exit 1 where packing is too slow or takes too much memory")
    args = parser.parse_args(words)
    lines = [json.dumps(machine_row("host") | {"rounds": args.rounds})]
    short, pattern, csr = 0, "", None
    for storage in sorted(STORAGES, key=lambda s: s.pattern):
        if storage.pattern != pattern:
            pattern, csr = storage.pattern, _csr(PATTERNS[storage.pattern](args.entries))
        row = measure(storage, csr, args.rounds)
        lines.append(json.dumps(row))
        why = missed(row)
        short += bool(why)
        print(
            f"{storage.name:45} {row['entries_per_second'] / 1e6:7.1f} M/s {row['bytes_per_nonzero']:6.2f} B/nonzero, "
            f"peak {row['peak_over_matrix']:.1f} x{'   short: ' + '; '.join(why) if why else ''}",
            flush=True,
        )
    if args.out is not None:
        args.out.write_text("\n".join(lines) + "\n")
    return 1 if args.check and short else 0


if __name__ == "__main__":
    sys.exit(main())
