"""What a session with a model may take: rounds, tokens, money and seconds; and what it has taken."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparseditto.dialects.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Rounds, tokens (prompts and answers together), US dollars, and seconds of wall time; None: no limit.

    The seconds count from the first call on, with all compilations and measurements of the session.
    Raises `InputError` on a limit that is not above 0.
    """

    rounds: int = 8
    tokens: int | None = 200_000
    cost: float | None = None
    seconds: float | None = 300.0

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{value} {name} are no limit; it must be above 0")

    def to_json(self) -> dict[str, Any]:
        return {"rounds": self.rounds, "tokens": self.tokens, "cost": self.cost, "seconds": self.seconds}


class Ledger:
    """What has been spent of the limits.  A cost of None (no price is known) counts as nothing."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self._clock, self._start = limits, clock, clock()
        self.calls, self.tokens, self.cost = 0, 0, 0.0

    def charge(self, tokens: int, cost: float | None) -> None:
        self.calls += 1
        self.tokens += tokens
        self.cost += cost or 0.0

    @property
    def seconds(self) -> float:
        return self._clock() - self._start

    def left_s(self) -> float:
        return math.inf if self.limits.seconds is None else self.limits.seconds - self.seconds

    def left_tokens(self) -> int | None:
        return None if self.limits.tokens is None else self.limits.tokens - self.tokens

    def left_cost(self) -> float | None:
        return None if self.limits.cost is None else self.limits.cost - self.cost

    def exhausted(self) -> str | None:
        """The name of the limit that is reached; None where none is."""
        left = {"seconds": self.left_s(), "tokens": self.left_tokens(), "cost": self.left_cost()}
        return next((name for name, value in left.items() if value is not None and value <= 0), None)
