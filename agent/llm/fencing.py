"""Text that somebody else has written, as data in a prompt: no control characters, bounded, and marked line by line."""

from __future__ import annotations

MARK = "| "
"""Stands before every line of data, so that no data can end its own fence."""


def clean(text: str, limit: int) -> str:
    """At most `limit` characters, all of them printable or line feeds; what was cut is told.

    Control, format and private characters (Unicode category C, among them those that change the direction of text) become
    spaces.
    """
    kept = text[:limit].replace("\r\n", "\n")
    shown = "".join(c if c.isprintable() or c == "\n" else " " for c in kept)
    return f"{shown} … ({len(text) - limit} characters more)" if len(text) > limit else shown


def fenced(name: str, text: str, limit: int) -> str:
    """`text` under a heading, each line behind `MARK`."""
    lines = clean(text, limit).strip("\n").split("\n")
    return "\n".join([f"{name}:", *(MARK + line for line in lines)])
