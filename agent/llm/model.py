"""What a policy needs of a language model: a prompt goes in, an answer or a failure comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

Message = Mapping[str, Any]
"""One message in the form of OpenAI's chat completions, which litellm translates."""


@dataclass(frozen=True)
class Abilities:
    """Whether a model can call `tools`, keeps to a JSON `schema`, and is `priced`: what it costs is known."""

    tools: bool = False
    schema: bool = False
    priced: bool = False


@dataclass(frozen=True)
class Prompt:
    """What is asked: by which `role` of ours, with the schema that the answer must have and the tools on offer."""

    role: str
    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Allowance:
    """What one call may take: seconds, tokens of the answer, and of what is left of a budget tokens and US dollars."""

    seconds: float
    answer_tokens: int
    tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model asks for; `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    """What a model said.  Tokens are those that the server reported, or counted here; `cost` is in US dollars."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    prompt_tokens: int = 0
    answer_tokens: int = 0
    cost: float | None = None

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.answer_tokens

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Failure:
    """Why there is no answer.  `lasting`: asking again is of no use.  `tokens` and `cost` may have been spent nevertheless."""

    why: str
    lasting: bool = False
    retry_after_s: float | None = None
    tokens: int = 0
    cost: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Model(Protocol):
    """A language model, or something that answers in its place."""

    @property
    def name(self) -> str:
        """PROVIDER/NAME, as litellm has it."""

    def abilities(self, limit_s: float) -> Abilities | Failure:
        """What it can do, or why that is not known within `limit_s` seconds."""

    def complete(self, prompt: Prompt, allowance: Allowance) -> Reply | Failure:
        """Answer a prompt.  It returns in the seconds of the allowance, whatever the server does."""

    def wait(self, seconds: float) -> None:
        """Let time pass before the next call."""
