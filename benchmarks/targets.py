"""What each GPU of the table gets: the plans that are made for it, assembled by `ptxas` and held to its limits.

    python -m benchmarks.targets [--gpus NAME,…] [--cases REGEX] [--out FILE] [--check]

For every GPU and task (the matrices of `CASES` by their features in benchmarks/results, SpMV and SpMM with K = 8, 32 and 128,
float32 and float64) the first plan of the ranking is compiled for the GPU's chip.  Its row says what every kernel takes by
`ptxas -v`, how much of a multiprocessor's warps that leaves (NVIDIA's occupancy rules), what the cost model predicts, and in
`exceeds` what the GPU does not have.  A chip that `ptxas` no longer knows (sm_70 since CUDA 13) is assembled for the next one,
which runs the same PTX; `assembled_for` says so.  No GPU is needed.  `--check` exits 1 where anything is exceeded, or where a
GPU whose `Machine` is not the H200's gets all of the H200's plans.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cost_model import read_features
from benchmarks.machine import machine_row
from benchmarks.prepare import kernel_file
from benchmarks.prior import FEATURES
from benchmarks.tables import table
from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.building import named
from sparseditto.agent.architecture.choosing import MEASURED
from sparseditto.agent.architecture.occupancy import check, occupancy
from sparseditto.agent.architecture.table import known
from sparseditto.agent.cost import Model
from sparseditto.agent.features import Features
from sparseditto.agent.machine import Machine
from sparseditto.agent.planner import Task
from sparseditto.agent.ranking import Ranking
from sparseditto.agent.space import Context, Space
from sparseditto.compiler.api import compile_file
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.runtimes.resources import KernelResources, ptxas_resources
from sparseditto.dialects.errors import DittoError, InputError
from sparseditto.dialects.target import CHIPS
from sparseditto.passes.plan import Plan

CASES = [
    "band_1M_15",
    "tri2M",
    "blocks_256",
    "blocks_2_64",
    "circuit_300k",
    "cholesky_mc",
    "dnn_4096_90",
    "dnn_512x2048_70",
    "elasticity_12",
    "elasticity_32",
    "fast0507",
    "fem27_64",
    "go_offspring",
    "hyper_1M",
    "kron4_8",
    "lp_tall_1M",
    "lp_wide_2k",
    "nsjac",
    "rmat15_16",
    "rmat18_16",
    "rmat20_16",
    "road_220",
    "stencil5_256",
    "stencil9_400",
    "unif10k_10",
    "unif1M_16",
    "unif256k_16",
    "wave",
    "web_1M",
    "west0067",
]
WIDTHS = (0, 8, 32, 128)  # dense columns; 0: SpMV
DTYPES = {"float32": 4, "float64": 8}


@dataclass(frozen=True)
class Case:
    """One computation with one matrix, of which only the features are known."""

    name: str
    features: Features
    columns: int
    dtype: str

    @property
    def task(self) -> Task:
        f = self.features
        return Task(True, True, self.columns, DTYPES[self.dtype], shape=(f.rows, f.columns))


@dataclass(frozen=True)
class Kernel:
    """One kernel of a plan on a GPU: its block, what `ptxas` says of it, and the share of the warps that can be resident."""

    threads: int
    resources: KernelResources
    occupancy: float

    def to_json(self) -> dict[str, Any]:
        r = self.resources
        told = {"registers": r.registers, "shared_bytes": r.shared_bytes, "spill_bytes": r.spill_bytes}
        return {"kernel": r.kernel, "threads": self.threads, **told, "occupancy": round(self.occupancy, 3)}


@dataclass(frozen=True)
class Row:
    """What a GPU gets for a case; `exceeds` is empty where it can run that."""

    gpu: str
    chip: str
    case: Case
    plan: Plan
    us: float
    limit: str
    assembled_for: str
    kernels: tuple[Kernel, ...]
    exceeds: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        case = {"case": self.case.name, "K": self.case.columns, "dtype": self.case.dtype}
        told = {"plan": self.plan.text(), "digest": self.plan.digest(), "us": round(self.us, 3), "limit": self.limit}
        taken = {"assembled_for": self.assembled_for, "kernels": [kernel.to_json() for kernel in self.kernels]}
        return {"gpu": self.gpu, "chip": self.chip, **case, **told, **taken, "exceeds": list(self.exceeds)}


def cases(pattern: str = "") -> list[Case]:
    """Those of `CASES` whose name `pattern` matches, for every width and type."""
    found = read_features(FEATURES)
    names = [name for name in CASES if re.search(pattern, name)]
    return [Case(name, found[name], k, dtype) for name in names for k in WIDTHS for dtype in DTYPES]


def planned(case: Case, gpu: Architecture) -> Plan:
    """The plan that a GPU gets without a measurement."""
    return Ranking(Space(Context(case.task, case.features, gpu.target(), gpu))).first()


def examine(case: Case, gpu: Architecture) -> Row:
    """Plan, compile, assemble, and compare with the limits.  Raises `DittoError` where one of the first three fails."""
    plan = planned(case, gpu)
    cost = Model.of(case.task, case.features, gpu).predict(plan)
    chip = gpu.target().chip
    package, assembled_for, found = _assembled(case.columns, case.dtype, chip, plan.text())
    threads = {launch.kernel: launch.block[0] * launch.block[1] * launch.block[2] for launch in package.launches}
    kernels, exceeds = [], []
    for r in found:
        kernels.append(Kernel(threads[r.kernel], r, occupancy(gpu, r.registers, r.shared_bytes, threads[r.kernel]).share))
        exceeds += [f"{r.kernel}: {v}" for v in check(gpu, r.registers, r.shared_bytes, threads[r.kernel])]
    return Row(gpu.name, chip, case, plan, cost.total_us, cost.limit, assembled_for, tuple(kernels), tuple(exceeds))


@cache
def _assembled(columns: int, dtype: str, chip: str, plan: str) -> tuple[KernelPackage, str, list[KernelResources]]:
    """The kernel of a plan, of which the matrix is no part, the chip it is assembled for, and what `ptxas` says of it."""
    op, sizes = ("spmm", {"K": columns}) if columns else ("spmv", {})
    with TemporaryDirectory() as folder:
        package = compile_file(kernel_file(op, dtype, Path(folder)), {}, sizes, chip=chip, plan=plan).package
    reasons = []
    for newer in CHIPS[CHIPS.index(chip) :]:
        found, told = ptxas_resources(package.ptx, newer)
        if found is not None:
            return package, newer, found
        reasons.append(told)
    raise InputError(reasons[0])


def examined(gpus: Sequence[Architecture], chosen: Sequence[Case]) -> Iterator[Row]:
    for gpu in gpus:
        for case in chosen:
            try:
                yield examine(case, gpu)
            except DittoError as e:
                raise InputError(f"{gpu.name}, {case.name}, K={case.columns}, {case.dtype}: {e}") from e


def alike(rows: Sequence[Row], gpu: str) -> int:
    """Tasks for which a GPU gets the plan that `MEASURED` gets."""
    here = {row.case: row.plan.steps for row in rows if row.gpu == MEASURED}
    return sum(row.plan.steps == here.get(row.case) for row in rows if row.gpu == gpu)


def summary(rows: Sequence[Row]) -> str:
    """A table with a line for each GPU."""
    body = []
    for gpu in dict.fromkeys(row.gpu for row in rows):
        mine = [row for row in rows if row.gpu == gpu]
        kernels = [kernel for row in mine for kernel in row.kernels]
        numbers = (
            len(mine),
            len(mine) - alike(rows, gpu),
            max(k.resources.registers for k in kernels),
            max(k.resources.registers * k.threads for k in kernels),
            max(k.resources.shared_bytes for k in kernels),
            sum(k.resources.spill_bytes or 0 for k in kernels),
            sum(map(len, (row.exceeds for row in mine))),
        )
        body.append([gpu, mine[0].chip, *map(str, numbers), f"{min(k.occupancy for k in kernels):.0%}"])
    head = ["GPU", "chip", "tasks", f"unlike the {MEASURED}", "registers", "a block", "shared bytes", "spilled", "exceeded"]
    return table([*head, "least occupancy"], body)


def wrong(rows: Sequence[Row]) -> list[str]:
    """What `--check` finds."""
    found = [f"{row.gpu}: {row.case.name}, K={row.case.columns}: {text}" for row in rows for text in row.exceeds]
    for gpu in dict.fromkeys(row.gpu for row in rows):
        if Machine.of(named(gpu)) != Machine() and alike(rows, gpu) == sum(row.gpu == gpu for row in rows):
            found.append(f"{gpu}: all plans are those of the {MEASURED}")
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.targets", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--gpus", metavar="NAME,…", help="some GPUs only (sparseditto arch lists them)")
    parser.add_argument("--cases", metavar="REGEX", default="", help="some matrices only")
    parser.add_argument("--out", metavar="FILE", type=Path, help="one JSON line a GPU and task (.xz compresses them)")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 where a limit is exceeded, or plans are those of another GPU"
    )
    args = parser.parse_args(words)
    names = args.gpus.split(",") if args.gpus else [MEASURED, *(name for name in known() if name != MEASURED)]
    rows = list(examined([named(name) for name in names], cases(args.cases)))
    if not rows:
        parser.error(f"no matrix matches '{args.cases}' (there are {', '.join(CASES)})")
    if args.out is not None:
        text = "".join(json.dumps(line) + "\n" for line in (machine_row("host"), *(row.to_json() for row in rows)))
        args.out.write_bytes(lzma.compress(text.encode()) if args.out.suffix == ".xz" else text.encode())
    print(summary(rows))
    found = wrong(rows) if args.check else []
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
