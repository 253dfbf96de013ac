"""`--verify-diagnostics`: `expected-error` comments against the diagnostics that came, as upstream does it.

A comment is `// expected-error @+1 {{part of the message}}`; the severity may be error, warning, remark or note, the place
`@+N`, `@-N`, `@above`, `@below`, `@unknown`, or none (its own line).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_COMMENT = re.compile(r"expected-(error|warning|remark|note)(-re)?\s*(?:@([+-]\d+|above|below|unknown))?\s*\{\{(.*?)\}\}")


@dataclass(frozen=True)
class Diagnostic:
    """A severity, a message (where it is expected maybe a regular expression), and a line (0: no line is known)."""

    severity: str
    message: str
    line: int
    pattern: bool = False

    @staticmethod
    def at(severity: str, message: str, where: str) -> Diagnostic:
        found = re.search(r":(\d+):\d+", where)
        return Diagnostic(severity, message, int(found[1]) if found else 0)


def expectations(text: str) -> list[Diagnostic]:
    """What the comments of `text` expect."""
    wanted: list[Diagnostic] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        for severity, pattern, place, message in _COMMENT.findall(line):
            wanted.append(Diagnostic(severity, message, _line(number, place, lines), bool(pattern)))
    return wanted


def _line(number: int, place: str, lines: Sequence[str]) -> int:
    if place == "unknown":
        return 0
    if place in ("above", "below"):
        step = -1 if place == "above" else 1
        number += step
        while 0 < number <= len(lines) and _COMMENT.search(lines[number - 1]):
            number += step
        return number
    return number + int(place) if place else number


def _says(wanted: Diagnostic, message: str) -> bool:
    return bool(re.search(wanted.message, message)) if wanted.pattern else wanted.message in message


def mismatches(wanted: Sequence[Diagnostic], found: Sequence[Diagnostic]) -> list[str]:
    """What was expected and did not come, and what came unexpected; each as `line: message`.

    Upstream's warnings, remarks and notes need not be expected; errors must.
    """
    left = list(dict.fromkeys(found))
    problems: list[str] = []
    for w in wanted:
        hit = next(
            (f for f in left if f.severity == w.severity and _says(w, f.message) and (f.line == w.line or not f.line)), None
        )
        if hit is None:
            problems.append(f'{w.line}: expected {w.severity} "{w.message}" was not produced')
        else:
            left.remove(hit)
    problems += [f"{f.line}: unexpected error: {f.message}" for f in left if f.severity == "error"]
    return problems
