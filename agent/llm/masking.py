"""Secrets out of everything that is written or shown: transcripts, errors, notes, progress."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HIDDEN = "[hidden]"
_SHORTEST = 8  # characters; a shorter value is no key, and would hide words
_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_SHAPES = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?:(?:bearer|basic)\s+)?[^\s\"',;]+", rf"\1{HIDDEN}"),
        (r"(\bbearer\s+)[\w.~+/=-]{8,}", rf"\1{HIDDEN}"),
        (r"(api[-_ ]?key[\"']?\s*[:=]\s*[\"']?)[^\s\"'&,;})]+", rf"\1{HIDDEN}"),
        (r"((?:access|auth)[-_ ]?token[\"']?\s*[:=]\s*[\"']?)[^\s\"'&,;})]+", rf"\1{HIDDEN}"),
        (r"\b(?:sk|pk|rk)-[\w*-]{6,}", HIDDEN),
        (r"(://)[^/\s@]+@", rf"\1{HIDDEN}@"),
    )
)


@dataclass(frozen=True)
class Mask:
    """Hides the values in `secrets`, and whatever has the shape of a key."""

    secrets: tuple[str, ...] = ()

    @staticmethod
    def of(environment: Mapping[str, str]) -> Mask:
        """The mask for what the environment holds: the values of variables whose names say key, token, secret or the like."""
        found = {value for name, value in environment.items() if _NAMES.search(name) and len(value) >= _SHORTEST}
        return Mask(tuple(sorted(found, key=len, reverse=True)))  # a secret that holds another one first

    def text(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        for shape, replacement in _SHAPES:
            text = shape.sub(replacement, text)
        return text

    def data(self, data: Any) -> Any:
        """JSON with every text in it masked, keys too."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {self.text(str(key)): self.data(value) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self.data(value) for value in data]
        return data
