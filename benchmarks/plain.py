"""Plans that read a matrix as CSR has it: what the other representations are measured against."""

from __future__ import annotations

from dataclasses import replace

from sparseditto.passes.base import Form, Pass
from sparseditto.passes.plan import Plan
from sparseditto.passes.registry import registry
from sparseditto.passes.representation.set_encoding import SetEncoding

MOST_NARROW = 2**31 - 1  # entries that 32-bit positions number
REPACKED = {Form.SLICES, Form.LISTED, Form.NARROW, Form.UNIFORM, Form.BITMAPS, Form.REORDERED, Form.PARTS}
"""Forms of entries that are stored otherwise.  Lists of rows or parts beside the arrays of CSR are no such thing."""


def repacks(cls: type[Pass] | Pass) -> bool:
    """Whether a pass stores entries in another way than the encoding says."""
    return bool(REPACKED & set(cls.provides))


def passes() -> dict[str, type[Pass]]:
    """The passes that leave the arrays of CSR alone."""
    return {name: cls for name, cls in registry().items() if not repacks(cls)}


def as_csr(plan: Plan, entries: int) -> Plan | None:
    """The plan on CSR with 32-bit coordinates and values of their own; None where it stores the entries in another way."""
    steps = [_as_csr(step, entries) for step in plan.steps]
    return Plan(tuple(step for step in steps if step is not None), plan.kernel) if all(steps) else None


def _as_csr(step: Pass, entries: int) -> Pass | None:
    if repacks(step):
        return None
    if not isinstance(step, SetEncoding):
        return step
    wide = 64 if entries > MOST_NARROW else 32
    return replace(step, positions=wide, coordinates=32) if step.format == "csr" else None
