"""Sessions with models side by side: what each took, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparseditto.agent.llm.fencing import clean
from sparseditto.agent.llm.transcript import read
from sparseditto.dialects.errors import InputError


@dataclass(frozen=True)
class Line:
    """One session.  `cost` is in US dollars, `us` the time of the plan that was kept, `planner_us` the offline planner's.

    `proposed` counts answers with a plan or without, `refused` those that held no legal plan, `worked` the plans that were
    measured and right; `who` found the plan that was kept, and `why` it was.
    """

    file: str
    model: str
    rounds: int
    calls: int
    tokens: int
    cost: float
    seconds: float
    proposed: int
    refused: int
    worked: int
    planner_us: float | None
    us: float | None
    who: str
    why: str
    stopped: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def line(path: Path) -> Line:
    """What a transcript says in sum.  Raises `InputError` where it is none, or the session did not end."""
    events = read(path)
    end = next((e for e in events if e["event"] == "end"), None)
    if end is None:
        raise InputError("the session did not end: there is no line with the event 'end'", where=str(path))
    proposals = [e for e in events if e["event"] == "proposal"]
    try:
        return Line(
            file=path.name,
            model=_said(end["model"]),
            rounds=int(end["rounds"]),
            calls=int(end["calls"]),
            tokens=int(end["tokens"]),
            cost=float(end["cost"]),
            seconds=float(end["seconds"]),
            proposed=len(proposals),
            refused=sum(p["plan"] is None for p in proposals),
            worked=sum(p["us"] is not None for p in proposals),
            planner_us=_time(end["planner_us"]),
            us=_time(end["us"]),
            who=_said(end["who"]),
            why=_said(end["verdict"]),
            stopped=_said(end["stopped"]),
        )
    except (KeyError, TypeError, ValueError) as e:
        raise InputError(f"its last event is not what a transcript holds there: {e!r}", where=str(path)) from e


def _said(value: Any) -> str:
    return clean(str(value), 1000)


def _time(value: Any) -> float | None:
    return None if value is None else float(value)


def table(lines: Sequence[Line]) -> str:
    """The sessions, a line each, under a heading; then why the plan of each was kept."""
    heads = (
        "session",
        "model",
        "rounds",
        "tokens",
        "dollars",
        "seconds",
        "proposed",
        "refused",
        "planner us",
        "best us",
        "found by",
    )
    rows = [
        (
            *(one.file, one.model, str(one.rounds), str(one.tokens), f"{one.cost:.4f}", f"{one.seconds:.1f}"),
            *(str(one.proposed), str(one.refused), _shown(one.planner_us), _shown(one.us), one.who or "nobody"),
        )
        for one in lines
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    body = ["  ".join(f"{word:{w}}" for word, w in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)]
    return "\n".join([*body, "", *(f"{one.file}: found by {one.who or 'nobody'}: {one.why}" for one in lines)])


def _shown(us: float | None) -> str:
    return "none" if us is None else f"{us:.2f}"
