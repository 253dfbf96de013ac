"""What results were measured with: the first line that a run writes to its file."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

from sparseditto.compiler.driver import versions


def machine_row(device: str) -> dict[str, Any]:
    """A line of kind "machine": versions, the time (UTC), the arguments without folders, and on "cuda" which GPU.

    Raises `DeviceError` where that is absent.
    """
    row: dict[str, Any] = {
        "kind": "machine",
        "versions": dict(versions()),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "argv": list(map(_without_folders, sys.argv[1:])),
    }
    if device == "cuda":
        from sparseditto.compiler.runtimes.cuda import versions as gpu_versions

        row["gpu"] = gpu_versions()
    return row


def _without_folders(word: str) -> str:
    """A path, also behind an option's `=`, is only its last name; a shard (1/2) stays."""
    option, equals, value = word.rpartition("=")
    return word if re.fullmatch(r"\d+/\d+", value) else option + equals + value.rsplit("/", 1)[-1]
