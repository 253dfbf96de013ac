"""`jam-columns`: several tiles of dense columns in one walk over the entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlir import ir

from sparseditto.dialects import builders as b
from sparseditto.dialects.errors import NotApplicable
from sparseditto.dialects.target import Target
from sparseditto.passes.base import Bottleneck, Form, Resource, SchedulePass, option
from sparseditto.passes.jam import Jam, Tiles
from sparseditto.passes.nest import LoopNest
from sparseditto.passes.registry import register
from sparseditto.passes.rewrite import body_ops
from sparseditto.passes.work import Work


@register
@dataclass(frozen=True)
class JamColumns(SchedulePass):
    """Cut the dense columns into `factor` tiles and compute one column (or vector) of every tile at a time.

    The loop over entries runs once for all of them: coordinates and values are loaded once, and the loads of the dense rows
    are independent of each other.  Neighbouring lanes stay on neighbouring columns of a tile, and the tiles of a lane lie
    a constant apart, so that its loads differ in a constant offset only.

    Before::

        scf.for %k = %c0 to %c64 step %c4 {
          %s = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero) {
            ...
          }
          vector.store %s, %C[%i, %k]
        }

    After ``jam-columns{factor=2}``::

        scf.for %k = %c0 to %c32 step %c4 {
          %k1 = arith.addi %k, %c32
          %s:2 = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero, %a1 = %zero) {
            ...
          }
          vector.store %s#0, %C[%i, %k]
          vector.store %s#1, %C[%i, %k1]
        }

    After ``jam-columns{factor=3}``, which does not divide the 16 vectors: the last of three tiles of six ends with the last
    column and begins two vectors early.  Those two are computed twice; the last tile does not store them::

        scf.for %k = %c0 to %c24 step %c4 {
          %new = arith.cmpi uge, %k, %c8
          %k1 = arith.addi %k, %c24
          %k2 = arith.addi %k, %c40
          %s:3 = scf.for %p = %lo to %hi step %c1 iter_args(%a = %zero, %a1 = %zero, %a2 = %zero) {
            ...
          }
          vector.store %s#0, %C[%i, %k]
          vector.store %s#1, %C[%i, %k1]
          scf.if %new {
            vector.store %s#2, %C[%i, %k2]
          }
        }

    Leaves alone: what does not depend on the column; it is computed once.
    Refuses: a number of columns that is not constant, or so small that fewer than `factor` tiles hold them.
    """

    name: ClassVar[str] = "jam-columns"
    relieves = (Bottleneck.LATENCY, Bottleneck.ISSUE)
    consumes = (Resource.REGISTERS, Resource.CODE)
    requires = (Form.COLUMNS, Form.REGISTER_ACCUMULATION)
    excludes = (Form.THREADS, Form.UNROLLED, Form.JAMMED, Form.MIRRORED)
    provides = (Form.JAMMED,)

    factor: int = option("tiles of columns that are computed together", default=2, choices=tuple(range(1, 10)))

    def effect(self, work: Work) -> Work:
        return work._replace(jam=self.factor)

    def run(self, nest: LoopNest, target: Target) -> None:
        loop = nest.columns[-1]
        trips, step = loop.trip_count, b.known(loop.step)
        if trips is None or step is None or b.known(loop.lower) != 0:
            raise NotApplicable("the number of columns is not known; give its size (--size K=…)", where=self.name)
        tiles = Tiles(trips, step, self.factor)
        if self.factor > max(1, tiles.needed):
            raise NotApplicable(
                f"{trips} steps of the column loop make {tiles.needed} tiles of {tiles.steps}, not {self.factor}",
                where=self.name,
            )
        jam = Jam(loop.iv, nest.output, tiles)
        jam.check(body_ops(loop.body), self.name)
        with ir.InsertionPoint(loop.op):

            def body(iv: ir.Value, _: list[ir.Value]) -> tuple[ir.Value, ...]:
                jam.body(body_ops(loop.body), iv)
                return ()

            b.for_loop(loop.lower, b.index(tiles.steps * step), loop.step, [], body)
        loop.op.operation.erase()
