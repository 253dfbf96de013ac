"""The compiler from Python: `compile_file` and `run`, which the command line calls too.

from sparseditto.compiler.api import compile_file, run

compiled = compile_file("spmm.mlir", {"A": scipy_matrix}, {"K": 64})
result = run(compiled.package, {"A": scipy_matrix, "B": b}, device="simt")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparseditto.compiler.execute import Inputs, check, prepare, run_simt, take
from sparseditto.compiler.package import KernelPackage
from sparseditto.compiler.problem import Problem, bind
from sparseditto.compiler.reference import Check
from sparseditto.dialects.errors import InputError, PlanError

if TYPE_CHECKING:
    from sparseditto.agent.architecture.architecture import Architecture
    from sparseditto.compiler.driver import Compiled, Observer
    from sparseditto.compiler.runtimes.timing import Timing
    from sparseditto.passes.plan import Plan


@dataclass(frozen=True)
class Result:
    """What a run gave: the output array, the data it ran on, the check against float64 and the timing, where asked for."""

    output: NDArray[Any]
    inputs: Inputs
    device: str
    check: Check | None = None
    timing: Timing | None = None


def compile_file(
    path: str | Path,
    bindings: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    *,
    entry: str | None = None,
    chip: str = "sm_90",
    plan: str | None = None,
    observe: Observer | None = None,
    database: Path | None = None,
    architecture: Architecture | None = None,
) -> Compiled:
    """Compile the entry function of an `.mlir` file for what is bound to it.

    `chip` is a chip (sm_90) or the name of a known GPU; where it is known which one will be used, that is `architecture`.
    `bindings` and `sizes` are as in `problem.bind`; `plan` is a plan's text or the path of a JSON file that holds one.  Without
    one the best plan that `database`, a file of `agent.memory`, knows of exactly this task is taken, else the planner's.  The
    composite passes that are kept there are known from now on.
    Raises `DittoError`s as the modules that it calls do.
    """
    from sparseditto.agent.architecture.choosing import place_of
    from sparseditto.agent.memory.composites import know_those_of
    from sparseditto.compiler.driver import compile_kernel
    from sparseditto.compiler.kernel import read_kernel_file
    from sparseditto.compiler.recall import Recalled, recall
    from sparseditto.dialects.binding import context

    target, meant, _ = place_of(chip)
    notes = know_those_of(database)
    chosen = None if plan is None else read_plan(plan)
    with context():
        kernel = read_kernel_file(Path(path), entry)
        problem = bind(kernel.computation, bindings or {}, sizes)
        known = recall(database, problem, target) if database is not None and chosen is None else Recalled()
        compiled = compile_kernel(
            kernel, problem, target, known.plan if chosen is None else chosen, observe, architecture or meant
        )
    provenance = known.provenance or {"plan": "planner" if chosen is None else "given"}
    return replace(compiled, package=replace(compiled.package, provenance=provenance), notes=(*notes, *known.notes))


def read_plan(text: str) -> Plan:
    """A plan from its text, from a JSON file, or from the package that was compiled with it."""
    from sparseditto.passes.plan import Plan

    path = Path(text)
    looks_like_a_path = text.strip() and "{" not in text and (text.endswith(".json") or path.is_dir())
    if not looks_like_a_path:
        return Plan.parse(text)
    try:
        data = json.loads((path / "package.json" if path.is_dir() else path).read_text(encoding="utf-8"))
    except OSError as e:
        raise InputError(f"cannot be read: {e.strerror}", where=text) from e
    except ValueError as e:
        raise PlanError(f"is not JSON: {e}", where=text) from e
    return Plan.from_json(data["plan"] if isinstance(data, dict) and "plan" in data else data)


def bind_package(
    package: KernelPackage, bindings: Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None
) -> Problem:
    """Bind data to a compiled kernel; sizes that it was compiled for are fixed."""
    fixed = {int(name[1:]): n for name, n in package.sizes.items()}
    return bind(package.computation, bindings or {}, sizes, fixed)


def run(
    package: KernelPackage,
    bindings: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    *,
    device: str = "simt",
    seed: int = 0,
    checks: bool = True,
    verify: bool = False,
    rounds: int = 0,
) -> Result:
    """Run a compiled kernel on `device` ("simt" or "cuda"); dense operands that are not bound are random from `seed`.

    `checks` are the emulator's; `verify` compares with float64; `rounds` times that many graph replays (cuda only).
    Raises `InputError`, `DeviceError`, or `CheckFailed` when the emulator catches a fault (a wrong result is in `check`).
    """
    if rounds and device != "cuda":
        raise InputError("only a GPU is timed (--time goes with --device cuda)")
    problem = bind_package(package, bindings, sizes)
    inputs = prepare(package, problem, seed)
    timing = None
    if device == "simt":
        output = run_simt(package, inputs, checks)
    elif device == "cuda":
        output, timing = _run_cuda(package, inputs, rounds)
    else:
        raise InputError(f"no device is named '{device}'; there are simt and cuda")
    verdict = check(package.computation, inputs, output) if verify else None
    return Result(output, inputs, device, verdict, timing)


def _run_cuda(package: KernelPackage, inputs: Inputs, rounds: int) -> tuple[NDArray[Any], Timing | None]:
    from sparseditto.compiler.runtimes.cuda import CudaSession

    with CudaSession(package, inputs.sizes, scalars=inputs.scalars) as session:
        session.upload({b.name: inputs.arrays[b.name] for b in package.buffers if b.access != "write"})
        session.launch()
        output = take(inputs, np.asarray(session.download(package.computation.output.name)))
        return output, session.time(rounds=rounds) if rounds else None
