"""Learning: from groups of measured plans to a prior with its provenance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparseditto.agent.features import Hardware
from sparseditto.agent.prior.crossval import Validated, summary, validate
from sparseditto.agent.prior.fit import CAP, fit
from sparseditto.agent.prior.model import Prior
from sparseditto.agent.prior.subject import OPS
from sparseditto.agent.prior.training import Data


def validate_all(data: Data, say: Callable[[str], None] = lambda line: None) -> list[Validated]:
    """`crossval.validate` of each op that there are tasks of."""
    return [validate(op, groups, say) for op in OPS if (groups := data.of(op))]


def learn(data: Data, hardware: Hardware, validated: list[Validated] | float) -> Prior:
    """A prior with the penalties that cross-validation chose, or with the given one.  The same data give the same weights."""
    ops = [op for op in OPS if data.of(op)]
    if isinstance(validated, float):
        penalties, found = dict.fromkeys(ops, validated), None
    else:
        penalties, found = {one.op: one.penalty for one in validated}, summary(validated)
    models = {op: fit(data.of(op), penalties[op]) for op in ops}
    return Prior(models, hardware, _provenance(data, penalties) | {"cross_validation": found})


def _provenance(data: Data, penalties: dict[str, float]) -> dict[str, Any]:
    return {
        "gpu": data.gpu.name,
        "capability": data.gpu.capability,
        "measured_at": data.measured_at,
        "versions": data.versions,
        "matrices": len({group.matrix for group in data.groups}),
        "families": len({group.family for group in data.groups}),
        "tasks": len(data.groups),
        "trials": data.trials,
        "left_out": data.left_out,
        "unreadable": data.unreadable,
        "cap": CAP,
        "penalties": penalties,
    }
