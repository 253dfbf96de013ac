"""What a kernel takes of a GPU, and the way to know it without one: `ptxas -v` on the PTX.

`KernelResources` is the one record of it; the CUDA runtime fills the same record from the driver.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparseditto.dialects.errors import StepFailed

_TIMEOUT_S = 120
_TOO_OLD = ("Unsupported .version", "is not defined for option 'gpu-name'")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame")
_CUMULATIVE = re.compile(r"(\d+) bytes cumulative stack size")
_SPILLS = re.compile(r"(\d+) bytes spill (?:stores|loads)")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelResources:
    """What one kernel takes; None where the source cannot know it.

    `registers` and `local_bytes` (stack and spills) are per thread, `shared_bytes` per block.  ptxas alone knows
    `spill_bytes` (bytes that its spill instructions store and load) and counts only static shared memory.  The driver
    alone knows `max_threads` (the largest block that its registers allow), `blocks_per_sm` (blocks of this launch that
    one multiprocessor holds at a time) and `occupancy` (their threads over the most that it can hold, 0 to 1).
    """

    kernel: str
    registers: int
    local_bytes: int
    shared_bytes: int
    spill_bytes: int | None = None
    max_threads: int | None = None
    blocks_per_sm: int | None = None
    occupancy: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_ptxas() -> list[Path]:
    """Every ptxas here, best first: that of the Python package nvidia-cuda-nvcc, then that of PATH."""
    spec = importlib.util.find_spec("nvidia")  # a namespace package that every NVIDIA wheel adds to
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    found = [path for root in roots for path in sorted(root.glob("*/bin/ptxas")) if os.access(path, os.X_OK)]
    on_path = shutil.which("ptxas")
    return [*found, *([Path(on_path)] if on_path else [])]


def ptxas_resources(ptx: str, chip: str) -> tuple[list[KernelResources] | None, str]:
    """The resources of every kernel in `ptx`, assembled for `chip` (sm_90), and which ptxas said so.

    Where no ptxas is, or none starts or knows this version of PTX or this chip, the first is None and the second says why.
    Raises `StepFailed` with ptxas's message when the PTX does not assemble; the PTX is kept for the command that repeats it.
    """
    tools = find_ptxas()
    if not tools:
        return None, "no ptxas was found: pip install nvidia-cuda-nvcc"
    reasons = []
    for tool in tools:
        code, log = _assemble(tool, ptx, chip)
        if code == 0:
            return parse_log(log), str(tool)
        if code is not None and not any(words in log for words in _TOO_OLD):
            raise _failure(tool, ptx, chip, log)
        reasons.append(f"{tool} cannot assemble it: {log.strip().partition(chr(10))[0]}")
    return None, "; ".join(reasons)


def parse_log(log: str) -> list[KernelResources]:
    """Read what `ptxas -v` printed: one record for each kernel, in its order."""
    parts = _ENTRY.split(log)[1:]  # name, text, name, text, …
    return [_record(name, text) for name, text in zip(parts[::2], parts[1::2], strict=True)]


def _record(kernel: str, text: str) -> KernelResources:
    return KernelResources(
        kernel=kernel,
        registers=_number(_REGISTERS, text),
        local_bytes=max(_number(_FRAME, text), _number(_CUMULATIVE, text)),
        shared_bytes=_number(_SHARED, text),
        spill_bytes=sum(int(count) for count in _SPILLS.findall(text)),
    )


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match.group(1)) if match else 0


def _assemble(tool: Path, ptx: str, chip: str) -> tuple[int | None, str]:
    """Exit code (None: it did not start) and output of ptxas, run in a folder of its own so that no path is in the output."""
    with tempfile.TemporaryDirectory(prefix="ditto-ptxas-") as folder:
        (Path(folder) / "kernel.ptx").write_text(ptx, encoding="utf-8")
        command = _command(tool, chip, "kernel.ptx")
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return 1, f"ptxas did not finish in {_TIMEOUT_S} s"
        except OSError as e:
            return None, f"it does not start: {e.strerror}"
    return done.returncode, done.stdout + done.stderr


def _command(tool: Path, chip: str, ptx: str) -> list[str]:
    return [str(tool), "-v", f"-arch={chip}", ptx, "-o", "kernel.cubin"]


def _failure(tool: Path, ptx: str, chip: str, log: str) -> StepFailed:
    kept = Path(tempfile.mkdtemp(prefix="ditto-failure-")) / "kernel.ptx"
    kept.write_text(ptx, encoding="utf-8")
    command = shlex.join(_command(tool, chip, str(kept)))
    return StepFailed(log.strip() or "it failed without a message", where="ptxas", reproduce=command)
