"""`Client`: calls of a language model through litellm, in a process of its own that its parent can end at any time.

That process is what keeps a session within its seconds: a server that never answers, or sends bytes for ever, is cut off with
the process.  litellm is imported nowhere else, and takes seconds to import.  Its retries, callbacks, remote price list and
debug output are off, and it reads no `.env` file.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sparseditto.agent.llm.masking import Mask
from sparseditto.agent.llm.model import Abilities, Allowance, Failure, Prompt, Reply, ToolCall
from sparseditto.dialects.errors import InputError

CLIENT = "sparseditto.agent.llm.client:Client"
OLDEST = (1, 109)  # 1.82.7, 1.82.8 and 1.107.0 stole credentials
INSTALL = "pip install 'sparseditto[llm]'"
QUIET = {
    "LITELLM_MODE": "PRODUCTION",  # in any other it reads a .env file
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    "LITELLM_LOCAL_POLICY_TEMPLATES": "True",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOG": "CRITICAL",
}
"""The environment in which litellm fetches nothing but answers, and prints nothing."""
ANSWER_BYTES = 1 << 18  # of a stream, after which it is cut
_CHUNK_BYTES = 8  # that count for a piece of a stream, however little is in it
_WHY = 400  # characters of an error
_MEMORY = 4 << 30  # bytes of address space
_TOKEN_BYTES = 4  # about, of an answer whose tokens nobody counted
_REFUSED = (400, 401, 403, 404, 422)  # answers of a server that will not change
_UNBILLED = (*_REFUSED, 429)  # which come before a prompt is read


def require() -> None:
    """Raises `InputError`, with how to install it, where there is no litellm that may be used."""
    if importlib.util.find_spec("litellm") is None:
        raise InputError(f"a language model needs litellm, which is not installed: {INSTALL}")
    version = importlib.metadata.version("litellm")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST:
        raise InputError(f"litellm {version} is too old, and some such releases were malicious: {INSTALL}")


class Client:
    """The handler of the process.  Options: `model` (PROVIDER/NAME), and `api_base` where it is not the provider's own."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        import litellm

        litellm.suppress_debug_info = True
        litellm.drop_params = True  # a provider that has no such parameter does without
        litellm.callbacks, litellm.success_callback, litellm.failure_callback = [], [], []
        self._litellm, self._model, self._api_base = litellm, str(options["model"]), options.get("api_base")
        self._mask = Mask.of(os.environ)

    def healthy(self) -> bool:
        return True

    def hello(self) -> Abilities:
        """What litellm knows of the model; nothing of one that it does not know."""
        return Abilities(
            tools=bool(self._litellm.supports_function_calling(self._model)),
            schema=bool(self._litellm.supports_response_schema(self._model)),
            priced=self._price(1, 1) is not None,
        )

    def complete(self, request: tuple[Prompt, Allowance], stage: Callable[[str, float], None]) -> Reply | Failure:
        """Answer a prompt within its allowance; what went wrong is an answer too."""
        from openai import OpenAIError  # the root of litellm's errors

        prompt, allowance = request
        asked = self._count(prompt)
        room = self._room(asked, allowance)
        if room < 1:
            return Failure(f"the budget does not hold a prompt of {asked} tokens and an answer", lasting=True)
        try:
            return self._answered(prompt, allowance, room, asked)
        except OpenAIError as e:
            return self._failed(e, asked)

    def _answered(self, prompt: Prompt, allowance: Allowance, room: int, asked: int) -> Reply | Failure:
        deadline = time.monotonic() + allowance.seconds
        stream = self._litellm.completion(**self._arguments(prompt, allowance.seconds, room))
        chunks, size = [], 0
        for chunk in stream:
            chunks.append(chunk)
            size += _CHUNK_BYTES + sum(map(len, _texts(chunk)))
            late = time.monotonic() > deadline
            if size > ANSWER_BYTES or late:
                stream.close()
                why = f"within {allowance.seconds:.0f} s" if late else f"after {ANSWER_BYTES} bytes"
                tokens = asked + size // _TOKEN_BYTES
                return Failure(f"the answer did not end {why}, and was cut off", tokens=tokens, cost=self._price(tokens, 0))
        if not chunks:
            return Failure("the server sent no answer", tokens=asked, cost=self._price(asked, 0))
        return self._reply(self._litellm.stream_chunk_builder(chunks), asked)

    def _arguments(self, prompt: Prompt, seconds: float, room: int) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self._model,
            "messages": list(prompt.messages),
            "api_base": self._api_base,
            "max_tokens": room,
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": seconds,
            "num_retries": 0,
            "max_retries": 0,
        }
        if prompt.tools:
            arguments["tools"] = list(prompt.tools)
        if prompt.schema is not None:
            named = {"name": prompt.role, "schema": dict(prompt.schema), "strict": True}
            arguments["response_format"] = {"type": "json_schema", "json_schema": named}
        return arguments

    def _reply(self, response: Any, asked: int) -> Reply:
        message = response.choices[0].message
        calls = tuple(
            ToolCall(str(call.id), str(call.function.name), str(call.function.arguments or ""))
            for call in message.tool_calls or ()
        )
        text = str(message.content or "")
        said = len(text) + sum(len(call.arguments) for call in calls)
        usage = getattr(response, "usage", None)
        prompt_tokens = _number(usage, "prompt_tokens") or asked
        answer_tokens = _number(usage, "completion_tokens") or -(-said // _TOKEN_BYTES)
        return Reply(text, calls, prompt_tokens, answer_tokens, self._price(prompt_tokens, answer_tokens))

    def _failed(self, error: Exception, asked: int) -> Failure:
        """What a server or the way to it refused.  What it said is masked: some repeat the key."""
        status = getattr(error, "status_code", None)
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        after = re.fullmatch(r"\d{1,5}(?:\.\d+)?", str(headers.get("retry-after", "")))
        why = "; ".join(self._mask.text(line)[:_WHY] for line in _lines(error))
        spent = 0 if status in _UNBILLED else asked
        wait = float(after[0]) if after else None
        return Failure(why, lasting=status in _REFUSED, retry_after_s=wait, tokens=spent, cost=self._price(spent, 0))

    def _count(self, prompt: Prompt) -> int:
        """Tokens of a prompt, by the model's tokenizer where litellm has it."""
        return int(self._litellm.token_counter(model=self._model, messages=list(prompt.messages), tools=list(prompt.tools)))

    def _room(self, asked: int, allowance: Allowance) -> int:
        """How many tokens the answer may have; below 1 where the budget does not even hold the prompt."""
        room = allowance.answer_tokens
        if allowance.tokens is not None:
            room = min(room, allowance.tokens - asked)
        if allowance.cost is not None:
            paid, each = self._price(asked, 0), self._price(0, 1000)
            if paid is None or each is None or paid > allowance.cost:
                return 0
            room = min(room, int((allowance.cost - paid) / each * 1000)) if each else room
        return room

    def _price(self, asked: int, said: int) -> float | None:
        """US dollars; None where litellm knows no price of the model."""
        try:
            return float(sum(self._litellm.cost_per_token(model=self._model, prompt_tokens=asked, completion_tokens=said)))
        except Exception:  # whatever it raises for a model that it does not know
            return None


def _lines(error: BaseException) -> Iterable[str]:
    """What an error says, and where that is something else, the one at its root: "Connection error." has many."""
    root = error
    while (before := root.__cause__ or root.__context__) is not None:
        root = before
    for one in (error,) if str(root) in str(error) else (error, root):
        yield f"{type(one).__name__}: {' '.join(str(one).split())}"


def _texts(chunk: Any) -> Iterable[str]:
    """All that a piece of a stream says."""
    for choice in chunk.choices or ():
        delta = choice.delta
        for text in (delta.content, getattr(delta, "reasoning_content", None)):
            yield str(text or "")
        for call in getattr(delta, "tool_calls", None) or ():
            yield str(call.function.arguments or "")


def _number(usage: Any, name: str) -> int:
    """A number of tokens that a server reports; 0 where that is none."""
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value > 0 else 0


def masked(answer: Reply | Failure, mask: Mask) -> Reply | Failure:
    """The answer without secrets, before anybody reads it."""
    if isinstance(answer, Failure):
        return replace(answer, why=mask.text(answer.why))
    calls = tuple(ToolCall(call.id, mask.text(call.name), mask.text(call.arguments)) for call in answer.calls)
    return replace(answer, text=mask.text(answer.text), calls=calls)
