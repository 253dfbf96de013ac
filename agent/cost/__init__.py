"""What a plan costs on a GPU, by formula: microseconds of each resource, in total, and what limits it (docs/cost.md)."""

from sparseditto.agent.cost.capacity import check_plan, violations
from sparseditto.agent.cost.model import LIMITS, Cost, Model, predict, rank

__all__ = ["LIMITS", "Cost", "Model", "check_plan", "predict", "rank", "violations"]
