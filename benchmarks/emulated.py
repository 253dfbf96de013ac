"""One task under emulation: right or wrong, and a cost that stands for the time."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.candidates import Sample
from benchmarks.operands import dense
from benchmarks.prepare import Kernel, Prepared, Ready, seed_of
from sparseditto.agent.tuner import OK
from sparseditto.compiler.api import bind_package
from sparseditto.compiler.devices import Laid, SimtRun
from sparseditto.compiler.execute import prepare
from sparseditto.compiler.reference import Check
from sparseditto.dialects.errors import CheckFailed, DittoError


class Emulation:
    """What candidates of a task are emulated on; see `Bench`."""

    def __init__(self, ready: Ready, prepared: Prepared) -> None:
        assert prepared.reference is not None
        self.ready, self.task, self.reference = ready, prepared.task, prepared.reference
        self._right: Any = None
        self._costs: dict[str, float] = {}

    def candidate(self, kernel: Kernel, rounds: int, cutoff_us: float | None) -> Sample:
        if kernel.digest in self._costs:
            return Sample(OK, (self._costs[kernel.digest],) * rounds)
        try:
            cost, check = self.run(kernel)
        except DittoError as e:
            return Sample(e.code, why=e.message)
        if not check.passed:
            return Sample("wrong", (), check.to_json(), f"{check.wrong} of {check.components} components are wrong")
        self._costs[kernel.digest] = cost
        return Sample(OK, (cost,) * rounds, check.to_json())

    def meanwhile(self) -> bool:
        return False

    def run(self, kernel: Kernel) -> tuple[float, Check]:
        """The cost and the check.  Raises `CheckFailed` when the emulator catches a fault."""
        cost, output = self.output(kernel)
        return cost, self.reference.check(lambda rows: output if rows is None else output[rows])

    def output(self, kernel: Kernel) -> tuple[float, Any]:
        """The cost and the output.  Raises `CheckFailed` when the emulator catches a fault."""
        package = kernel.package
        operand = next(o for o in package.computation.inputs if not o.sparse)
        if self._right is None:
            shape = (self.ready.matrix.shape[1], *((self.task.k,) if self.task.k else ()))
            self._right = dense(np, shape, seed_of(self.ready.case, self.task), operand.dtype)
        inputs = prepare(package, bind_package(package, {"A": self.ready.matrix, operand.name: self._right}))
        run = SimtRun(package, Laid(inputs, inputs.arrays, inputs.sizes, {}))
        return run.launch(), run.fetch(None, 0)


def emulated_row(bench: Emulation, kernel: Kernel) -> dict[str, Any]:
    """The row of one task."""
    entry: dict[str, Any] = {"plan": kernel.plan, "digest": kernel.digest, "seconds": kernel.seconds}
    try:
        _, check = bench.run(kernel)
    except CheckFailed as e:
        return entry | {"outcome": e.code, "why": str(e)}
    about = check.to_json() | {"what": bench.reference.describe()}
    return entry | {"outcome": "right" if check.passed else "wrong", "check": about}
