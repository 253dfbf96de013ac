"""What was asked, answered, proposed and measured in a session, as JSON lines without secrets.

A line is an object with `event`: "session" (the first), "planner", "call", "tool", "proposal", "composite" and "end"
(docs/llm.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from sparseditto.agent.llm.masking import Mask
from sparseditto.dialects.errors import InputError

SCHEMA = 1
EVENTS = ("session", "planner", "call", "tool", "proposal", "composite", "end")


class Transcript:
    """Writes events to a file as they come; without a path it writes nothing.  Raises `InputError` where it cannot."""

    def __init__(self, path: Path | None = None, mask: Mask | None = None) -> None:
        self.path, self.mask = path, mask or Mask()
        self._file: TextIO | None = None
        if path is not None:
            try:
                self._file = path.open("w", encoding="utf-8")
            except OSError as e:
                raise InputError(f"cannot be written: {e.strerror}", where=str(path)) from e

    def __enter__(self) -> Transcript:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, event: str, **values: Any) -> None:
        """One line, at once in the file."""
        assert event in EVENTS, event
        if self._file is not None:
            line = json.dumps(self.mask.data({"event": event, **values}), ensure_ascii=True)
            self._file.write(line + "\n")
            self._file.flush()


def read(path: Path) -> list[dict[str, Any]]:
    """The events of a transcript.  Raises `InputError` with the line where it is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"cannot be read: {e.strerror if isinstance(e, OSError) else 'it is no text'}", where=str(path)) from e
    found = [_event(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise InputError(
            "is empty; a transcript is what `sparseditto tune --agent llm --transcript FILE` writes", where=str(path)
        )
    return found


def _event(line: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise InputError(f"is no JSON: {e}", where=where) from e
    if not isinstance(data, Mapping) or data.get("event") not in EVENTS:
        raise InputError(f"is no event of a transcript ({', '.join(EVENTS)})", where=where)
    if data["event"] == "session" and data.get("schema") != SCHEMA:
        raise InputError(f"the transcript is of schema {data.get('schema')}; this release reads {SCHEMA}", where=where)
    return dict(data)
