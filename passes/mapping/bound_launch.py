"""`bound-launch`: tell the assembler how many blocks must fit on a multiprocessor, or how many registers a thread may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, MappingPass, Resource, option
from sparseditto.passes.nest import LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class BoundLaunch(MappingPass):
    """Say how many blocks must fit on a multiprocessor, or how many registers a thread may have.

    `blocks` becomes PTX's `.minnctapersm`, `registers` its `.maxnreg`; 0 says nothing.  A bound works both ways: told
    nothing, `ptxas` keeps to so few registers that all threads fit, and loads that were unrolled to be in flight together wait
    for each other; told that few blocks will do, it gives each thread the registers for them.

    Before::

        scf.forall (%b) in (%blocks) {
          ...
        } {mapping = [#gpu.block<linear_dim_0>]}

    After ``bound-launch{blocks=8}``::

        scf.forall (%b) in (%blocks) {
          ...
        } {mapping = [#gpu.block<linear_dim_0>], nvvm.minctasm = 8 : i32}

    Leaves alone: everything else.
    Refuses: both bounds at once (PTX allows one), none, and more threads than a multiprocessor holds.
    """

    name: ClassVar[str] = "bound-launch"
    relieves = (Bottleneck.LATENCY,)
    consumes = (Resource.REGISTERS,)
    requires = (Form.BLOCKS,)

    blocks: int = option(
        "blocks that must fit on a multiprocessor", default=0, choices=(0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
    )
    registers: int = option("registers that a thread may have", default=0, choices=(0, 24, 32, 40, 48, 64, 80, 96, 128))

    def effect(self, work: Work) -> Work:
        return work._replace(blocks=self.blocks, registers=self.registers)

    @classmethod
    def candidates(cls, _context: object) -> tuple[BoundLaunch, ...]:
        """Each single bound: the defaults together say nothing."""
        blocks = (cls(blocks=n) for n in (4, 8, 16, 32))
        return (*blocks, *(cls(registers=n) for n in (32, 40, 64)))

    def run(self, nest: LoopNest, target: Target) -> None:
        if bool(self.blocks) == bool(self.registers):
            raise NotApplicable("give either blocks or registers", where=self.name)
        threads = nest.mapped("thread")[0].extent or 0
        if self.blocks * threads > target.threads_per_multiprocessor:
            most = target.threads_per_multiprocessor
            raise NotApplicable(
                f"{self.blocks} blocks of {threads} threads exceed the {most} of a multiprocessor", where=self.name
            )
        name, value = ("nvvm.minctasm", self.blocks) if self.blocks else ("nvvm.maxnreg", self.registers)
        nest.outer.op.attributes[name] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)
