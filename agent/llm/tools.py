"""What a model may look up or try while it thinks, where it can call functions.

A tool answers with text.  What a model asks of it wrongly is answered with the reason; that is no error of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparseditto.agent.cost import check_plan
from sparseditto.agent.llm import schema
from sparseditto.agent.llm.bench import Bench, cost_of, fastest, told
from sparseditto.agent.llm.fencing import clean
from sparseditto.agent.llm.model import ToolCall
from sparseditto.agent.llm.reading import decoded, plan
from sparseditto.dialects.errors import DittoError, NotApplicable, PlanError, did_you_mean
from sparseditto.passes.plan import Plan

LONGEST = 12_000  # characters of what a tool says
_HISTORY = 30  # plans


@dataclass(frozen=True)
class _Tool:
    text: str
    answer: Callable[[Tools, Mapping[str, Any]], str]
    properties: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        return schema.with_steps(schema.record(**self.properties))


class Tools:
    """The tools of one session; `measure` compiles, verifies and measures a plan, and says what came of it."""

    def __init__(self, bench: Bench, measure: Callable[[Plan], str]) -> None:
        self._bench, self._measure = bench, measure

    def offered(self) -> tuple[dict[str, Any], ...]:
        """The tools as OpenAI's chat completions declare them."""
        return tuple(
            {"type": "function", "function": {"name": name, "description": tool.text, "parameters": tool.parameters()}}
            for name, tool in _TOOLS.items()
        )

    def answer(self, call: ToolCall) -> str:
        """What the tool says, or why it says nothing."""
        tool = _TOOLS.get(call.name)
        if tool is None:
            return f"no tool is named '{clean(call.name, 80)}'{did_you_mean(call.name, _TOOLS)}; there are {', '.join(_TOOLS)}"
        try:
            arguments = decoded(call.arguments) if call.arguments.strip() else {}
            return clean(tool.answer(self, arguments), LONGEST)
        except DittoError as e:
            return f"refused: {clean(str(e), 1000)}"

    def _plan(self, arguments: Mapping[str, Any]) -> Plan:
        """The plan of an argument.  Raises `PlanError`, and `NotApplicable` where the GPU cannot run it."""
        found = plan(arguments.get("plan"), self._bench.space)
        context = self._bench.space.context
        if context.features is not None:
            check_plan(found, context.task, context.features, context.gpu)
        return found

    def list_passes(self, arguments: Mapping[str, Any]) -> str:
        wanted = str(arguments.get("relieves", ""))
        found = [c for c in schema.vocabulary() if not wanted or wanted in {b.value for b in c.relieves}]
        if not found:
            raise PlanError(f"no pass relieves '{clean(wanted, 80)}'")
        return schema.catalogue(found)

    def features(self, _: Mapping[str, Any]) -> str:
        known = self._bench.space.context.features
        return json.dumps(known.to_json()) if known else "the features of the matrix are not known"

    def architecture(self, _: Mapping[str, Any]) -> str:
        gpu = self._bench.space.context.gpu
        return "\n".join(f"{place} = {q.value} {q.unit}" for place, q in gpu.values.items() if q.value is not None)

    def history(self, _: Mapping[str, Any]) -> str:
        trials = self._bench.trials()
        chosen = [*fastest(trials)[:_HISTORY], *[t for t in trials if t.us is None][-_HISTORY:]]
        return "\n".join(f"[{t.plan.digest()}] {told(t, self._bench)}: {t.plan.text()}" for t in chosen)

    def estimate(self, arguments: Mapping[str, Any]) -> str:
        cost = cost_of(self._plan(arguments), self._bench.space.context)
        if cost is None:
            raise NotApplicable("a cost needs the matrix and the number of dense columns")
        return json.dumps({key: cost.to_json()[key] for key in ("total_us", "times_us", "limit", "bottleneck")})

    def measure(self, arguments: Mapping[str, Any]) -> str:
        return self._measure(self._plan(arguments))


_PLAN = {"plan": schema.STEPS}
_TOOLS: dict[str, _Tool] = {
    "list_passes": _Tool(
        "The passes that relieve a bottleneck, with options and what they go with; all where it is empty.",
        Tools.list_passes,
        {"relieves": {"type": "string"}},
    ),
    "features": _Tool("The numbers that are known of the matrix.", Tools.features),
    "architecture": _Tool("The numbers that are known of the GPU, by place.", Tools.architecture),
    "history": _Tool("Every plan that was tried, with times or reasons.", Tools.history),
    "estimate": _Tool("What the cost model predicts for a plan, in microseconds by resource.", Tools.estimate, _PLAN),
    "measure": _Tool("Compile, verify and measure a plan; few are allowed in a round.", Tools.measure, _PLAN),
}
