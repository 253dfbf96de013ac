"""The names of upstream's passes, so that a misspelt one gets a suggestion before any IR is touched."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def upstream_names() -> frozenset[str]:
    """All passes and pipelines that MLIR 22.1.8 registers, from `mlir-opt --help` (`upstream_passes.txt`)."""
    return frozenset(Path(__file__).with_name("upstream_passes.txt").read_text().split())
