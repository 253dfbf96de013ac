"""A policy that asks a language model for plans, seeded by the offline planner and never worse than it (docs/llm.md).

What a model says is parsed as JSON, held to the passes that are registered, compiled, compared with the reference and
measured like any other plan; nothing of it is executed, and none of it names a file.
"""

from sparseditto.agent.llm.bench import Bench
from sparseditto.agent.llm.budget import Limits
from sparseditto.agent.llm.model import Abilities, Allowance, Failure, Model, Prompt, Reply, ToolCall
from sparseditto.agent.llm.outcome import Outcome, Proposed, Verdict
from sparseditto.agent.llm.policy import Policy
from sparseditto.agent.llm.recorded import Recorded
from sparseditto.agent.llm.transcript import Transcript

__all__ = [
    "Abilities",
    "Allowance",
    "Bench",
    "Failure",
    "Limits",
    "Model",
    "Outcome",
    "Policy",
    "Prompt",
    "Proposed",
    "Recorded",
    "Reply",
    "ToolCall",
    "Transcript",
    "Verdict",
]
