"""Tuning with a language model: the search of `tuning`, and then the rounds of `agent.llm.policy` on the same workers.

with TuningSession(device="cuda") as session, Served("anthropic/claude-sonnet-4-5") as model:
    asked = ask(session, model, "spmm.mlir", {"A": "matrix.mtx"}, {"K": 64}, budget=Budget(candidates=16))
asked.verdict.who, asked.result.best
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from lzma import LZMAError
from pathlib import Path
from types import TracebackType
from typing import Any

from sparseditto.agent.llm import (
    Abilities,
    Allowance,
    Failure,
    Limits,
    Model,
    Outcome,
    Policy,
    Prompt,
    Reply,
    Transcript,
    Verdict,
)
from sparseditto.agent.llm.client import CLIENT, QUIET, masked, require
from sparseditto.agent.llm.masking import Mask
from sparseditto.agent.llm.outcome import MODEL
from sparseditto.agent.llm.prompts import File
from sparseditto.agent.tuner import OK
from sparseditto.compiler.matrix_io import Source
from sparseditto.compiler.text_blocks import open_text
from sparseditto.compiler.tuning import TuningResult, TuningSession
from sparseditto.compiler.workers import Job, Pool, gather
from sparseditto.dialects.errors import DittoError, InputError

_COMMENT = 2000  # bytes at the head of a file, of which comments are told
_LATE_S = 0.5  # beyond its allowance, after which a call is ended from outside


class Served:
    """A model that litellm reaches, called in a worker process; use it in a `with` statement.

    `name` is PROVIDER/NAME, `api_base` the address of a server that is not the provider's own, and `abilities` what the model
    can do where litellm does not know it.  Keys are in the environment, as litellm has them.  Raises `InputError` where litellm
    is not installed.
    """

    def __init__(self, name: str, api_base: str | None = None, abilities: Abilities | None = None) -> None:
        require()
        if not re.fullmatch(r"[\w.-]+/[\w./:@+-]+", name):
            raise InputError(f"'{name}' names no model; write PROVIDER/NAME, as in openai/gpt-4o")
        self.name, self._given = name, abilities
        self._mask = Mask.of(os.environ)
        self._pool = Pool(CLIENT, 1, {"model": name, "api_base": api_base}, QUIET)
        self._calls = 0

    def __enter__(self) -> Served:
        self._pool.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.close()

    def abilities(self, limit_s: float) -> Abilities | Failure:
        end = time.monotonic() + limit_s
        try:
            self._pool.start()
            while self._pool.hello is None and (left := end - time.monotonic()) > 0:
                for _ in gather([self._pool], left):
                    pass
        except DittoError as e:
            return Failure(self._mask.text(f"litellm cannot be used: {e}"), lasting=True)
        known: Abilities | None = self._pool.hello
        if known is None:
            return Failure(f"litellm did not start within {limit_s:.0f} s", lasting=True)
        return known if self._given is None else replace(self._given, priced=known.priced)

    def complete(self, prompt: Prompt, allowance: Allowance) -> Reply | Failure:
        """An answer, or after the seconds of the allowance the failure that there is none: the process is then replaced."""
        end = time.monotonic() + allowance.seconds
        self._calls += 1
        job = Job(self._calls, "complete", (prompt, allowance), allowance.seconds + _LATE_S)
        try:
            self._pool.submit(job)
            while (left := end + 2 * _LATE_S - time.monotonic()) > 0:
                for _, done in gather([self._pool], left):
                    if done.key == job.key:
                        return masked(done.value if done.outcome == OK else Failure(f"{done.outcome}: {done.why}"), self._mask)
        except DittoError as e:
            return Failure(self._mask.text(str(e)), lasting=True)
        self._pool.cancel()
        return Failure(f"no answer within {allowance.seconds:.0f} s")

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True)
class Asked:
    """What a tuning found, what the session with the model did (None: it never began), and whose plan is kept."""

    result: TuningResult
    outcome: Outcome | None
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """The JSON of the tuning, with `llm` beside it."""
        told = None if self.outcome is None else self.outcome.to_json()
        return {**self.result.to_json(), "llm": {"who": self.verdict.who, "why": self.verdict.why, "session": told}}


def ask(
    session: TuningSession,
    model: Model,
    kernel_path: str | Path,
    bindings: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
    *,
    limits: Limits | None = None,
    transcript: Transcript | None = None,
    tell: Callable[[str], None] = lambda text: None,
    **tuning: Any,
) -> Asked:
    """`TuningSession.tune`, then rounds with `model` within `limits`; the better plan of the two is kept.

    `tell` is given a line about each thing that happens; `tuning` is what `TuningSession.tune` takes.  Raises as that does.
    """
    policy = Policy(model, limits, transcript, named_files(kernel_path, bindings), tell)
    result = session.tune(kernel_path, bindings, sizes, further=policy, **tuning)
    verdict = policy.verdict(result.best, result.trials)
    if verdict.who == MODEL and result.package is not None:
        package = replace(result.package, provenance={**result.package.provenance, "model": model.name})
        result = replace(result, package=package)
    return Asked(result, policy.outcome, verdict)


def named_files(kernel_path: str | Path, bindings: Mapping[str, Any]) -> list[File]:
    """The files of a task: names without folders, and the comments of those that are bound."""
    bound = [Source.parse(value).path for value in map(str, filter(_is_path, bindings.values()))]
    return [(Path(kernel_path).name, ""), *((path.name, _comments(path)) for path in bound if path.is_file())]


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, Path))


def _comments(path: Path) -> str:
    """The comments at the head of a text file, which may be compressed; of a file that is no text, nothing."""
    try:
        with open_text(path) as stream:
            head = stream.read(_COMMENT).decode("utf-8", "replace")
    except (OSError, EOFError, LZMAError):
        return ""
    return "\n".join(line for line in head.splitlines() if line.startswith(("%", "#")))
