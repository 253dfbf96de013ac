"""Compile SpMM for a finite-element matrix, run it, and compare with SciPy.

The matrix is the stiffness matrix of linear triangles on an unstructured mesh of the unit square (Delaunay triangles of
random points).  The kernel runs on a GPU where there is one, else under emulation.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp
from scipy.spatial import Delaunay

from sparseditto.compiler.api import compile_file, run
from sparseditto.compiler.cli.compile import describe, resources_of
from sparseditto.compiler.runtimes.cuda import available

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent / "build" / "demo"


def stiffness_matrix(points: int, seed: int = 0) -> sp.csr_array:
    """Linear triangles for -div grad u: row and column i belong to mesh point i; symmetric, float64."""
    xy = np.random.default_rng(seed).random((points, 2))
    triangles = Delaunay(xy).simplices
    corners = xy[triangles]
    # The gradient of the hat function of a corner is the opposite edge turned by a right angle, over twice the area.
    edges = corners[:, [2, 0, 1]] - corners[:, [1, 2, 0]]
    doubled = np.abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0])
    local = np.einsum("tik,tjk->tij", edges, edges) / (2 * doubled[:, None, None])
    rows, columns = np.repeat(triangles, 3, axis=1), np.tile(triangles, 3)
    return sp.coo_array((local.ravel(), (rows.ravel(), columns.ravel())), shape=(points, points)).tocsr()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--points", type=int, default=4000, help="mesh points, the rows of the matrix")
    parser.add_argument("-K", type=int, default=32, help="columns of the dense operand")
    args = parser.parse_args()

    OUTPUT.mkdir(parents=True, exist_ok=True)
    matrix_file, package = OUTPUT / "fem.mtx", OUTPUT / "spmm.ditto"
    scipy.io.mmwrite(matrix_file, stiffness_matrix(args.points), symmetry="general")
    print(f"== compile examples/spmm.mlir for {matrix_file.relative_to(HERE.parent)}, K = {args.K}")
    compiled = compile_file(HERE / "spmm.mlir", {"A": matrix_file}, {"K": args.K})
    compiled.package.save(package)
    print(describe(compiled, *resources_of(compiled)))
    print(f"PTX: {(package / 'kernel.ptx').relative_to(HERE.parent)}")

    reason = available()
    device = "simt" if reason else "cuda"
    print(f"== run on {device}" + (f" (no GPU: {reason})" if reason else ""))
    start = time.perf_counter()
    result = run(compiled.package, {"A": matrix_file}, device=device, verify=True, rounds=0 if reason else 7)
    print(f"ran in {time.perf_counter() - start:.2f} s, with packing and the check")
    expected = sp.csr_array(result.inputs.matrix, dtype=np.float64) @ result.inputs.dense["B"].astype(np.float64)
    print(f"largest difference from SciPy in float64: {np.abs(result.output - expected).max():.2e}")
    check = result.check
    assert check is not None
    print(
        f"check {'passed' if check.passed else 'FAILED'}: worst error {check.worst:.2e} of |A|·|B|, allowed {check.tolerance:g}"
    )
    if result.timing is not None:
        print(f"time: {result.timing.median_us:.2f} us a call")
    return 0 if check.passed else 1


if __name__ == "__main__":
    sys.exit(main())
