"""`Recorded`: the answers of a transcript in place of a model, so that a session can be run again without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparseditto.agent.llm.model import Abilities, Allowance, Failure, Prompt, Reply, ToolCall
from sparseditto.agent.llm.transcript import read
from sparseditto.dialects.errors import InputError


class Recorded:
    """Gives the answers of a transcript in their order, failures too; when there are none left it fails for good.

    Of a hand-made transcript the lines `{"event": "call", "reply": {"text": …}}` are enough.
    """

    def __init__(self, events: Sequence[Mapping[str, Any]], where: str) -> None:
        begin = next((e for e in events if e["event"] == "session"), {})
        self.name = str(begin.get("model", "replay"))
        self._abilities = Abilities(**_part(begin, "abilities", where, bool))
        self._replies = [_outcome(e, where) for e in events if e["event"] == "call"]
        self._next = 0

    @staticmethod
    def load(path: Path) -> Recorded:
        """Raises `InputError` where the file cannot be read or is no transcript."""
        return Recorded(read(path), str(path))

    def abilities(self, limit_s: float) -> Abilities:
        return self._abilities

    def complete(self, prompt: Prompt, allowance: Allowance) -> Reply | Failure:
        if self._next == len(self._replies):
            return Failure("the replay has no more answers", lasting=True)
        self._next += 1
        return self._replies[self._next - 1]

    def wait(self, seconds: float) -> None:
        """No time passes between recorded answers."""


def _part(event: Mapping[str, Any], name: str, where: str, kind: type) -> dict[str, Any]:
    part = event.get(name, {})
    if not isinstance(part, Mapping) or not all(isinstance(value, kind) for value in part.values()):
        raise InputError(f"'{name}' is not what a transcript holds there", where=where)
    return dict(part)


def _outcome(event: Mapping[str, Any], where: str) -> Reply | Failure:
    if "failure" in event:
        part = _part(event, "failure", where, object)
        make: Any = Failure
    else:
        part = _part(event, "reply", where, object)
        make = Reply
    try:
        if "calls" in part:
            part["calls"] = tuple(ToolCall(**{key: str(value) for key, value in call.items()}) for call in part["calls"])
        return _checked(make(**part), where)
    except (TypeError, AttributeError) as e:
        raise InputError(f"a recorded answer is not what a transcript holds: {e}", where=where) from e


def _checked(made: Reply | Failure, where: str) -> Reply | Failure:
    text = made.text if isinstance(made, Reply) else made.why
    numbers = (made.prompt_tokens, made.answer_tokens) if isinstance(made, Reply) else (made.tokens,)
    if not isinstance(text, str) or not all(isinstance(n, int) and n >= 0 for n in numbers):
        raise InputError("a recorded answer has text, and numbers of tokens from 0 on", where=where)
    if made.cost is not None and not isinstance(made.cost, (int, float)):
        raise InputError("a recorded cost is no number", where=where)
    return made
