"""Upstream's passes: their names, and how one of them becomes a step of a plan.

Upstream's names go to upstream's passes everywhere, so `ditto-opt` runs them on any IR as `mlir-opt` does.  The few that may
stand in a plan are passes of ours, which run one on the nest and hold it to what other passes rely on; these are named `mlir-`
and upstream's name.  docs/composites.md lists them, and why others are not among them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Pass, SchedulePass, spell

if TYPE_CHECKING:
    from mlir import ir

    from sparseditto.passes.nest import LoopNest

PREFIX = "mlir-"


@cache
def upstream_names() -> frozenset[str]:
    """All passes and pipelines that MLIR 22.1.8 registers, from `mlir-opt --help` (`upstream_passes.txt`)."""
    return frozenset(Path(__file__).with_name("upstream_passes.txt").read_text().split())


class UpstreamPass(SchedulePass):
    """Upstream's pass of the same name, without `mlir-`; options that it has not here keep upstream's defaults.

    Refuses what takes away or adds something that other passes ask of a nest.
    """

    relieves = (Bottleneck.ISSUE,)
    requires = (Form.REGISTER_ACCUMULATION,)

    @classmethod
    def candidates(cls, _context: Any) -> tuple[Pass, ...]:
        """None: the code is the same in the end, as the pipeline's own passes and LLVM's do as much later.

        Passes after it may see other IR, so that a plan or a composite pass can have a use for it.
        """
        return ()

    def run(self, nest: LoopNest, target: Target) -> None:
        trial = nest.func.operation.clone()
        self._rewrite(trial)
        self._check(nest, trial.opview)
        trial.erase()
        self._rewrite(nest.func.operation)

    def _rewrite(self, func: ir.Operation) -> None:
        from mlir.passmanager import PassManager

        options = " ".join(f"{key}={spell(value)}" for key, value in self.options().items())
        PassManager.parse(f"func.func({self.name.removeprefix(PREFIX)}{{{options}}})").run(func)

    def _check(self, nest: LoopNest, rewritten: ir.OpView) -> None:
        from sparseditto.passes.nest import LoopNest

        before, after = nest.forms(), LoopNest.read(rewritten, reader=self.name).forms()
        for form in before ^ after:
            verb = "takes away" if form in before else "makes"
            raise NotApplicable(f"{verb} {form.value} here, which other passes ask of a nest", where=self.name)
