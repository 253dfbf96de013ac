"""The learned prior: how much slower a plan is likely to be than others of its task, from what was measured (docs/prior.md)."""

from sparseditto.agent.prior.model import Contribution, Judged, Prior, Scorer
from sparseditto.agent.prior.subject import Subject

__all__ = ["Contribution", "Judged", "Prior", "Scorer", "Subject"]
