"""What passes and code generation must know about the GPU that a kernel is for."""

from __future__ import annotations

from dataclasses import dataclass

from sparseditto.dialects.errors import InputError, did_you_mean

# The lowest PTX ISA version that knows each chip (LLVM's NVPTX.td), never below 6.3, which has `.nc` and shfl.sync.
_PTX = {
    "sm_70": 63,
    "sm_75": 63,
    "sm_80": 70,
    "sm_86": 71,
    "sm_89": 78,
    "sm_90": 78,
    "sm_90a": 80,
    "sm_100": 86,
    "sm_100a": 86,
    "sm_120": 87,
    "sm_120a": 87,
}

CHIPS = tuple(_PTX)
"""Every chip that we compile for."""

# Resident threads of a multiprocessor where they are not 2048 (CUDA C++ Programming Guide 13, table of compute capabilities).
_THREADS = {"sm_75": 1024, "sm_86": 1536, "sm_89": 1536, "sm_120": 1536, "sm_120a": 1536}

# Multiprocessors of the GPUs that have one chip in common: V100, A100, H100 SXM and H200 and GH200, B200 (a smaller part of the
# same chip, such as the H100 PCIe with 114, gets a few blocks more than it needs).  Cards with the other chips differ too much.
_MULTIPROCESSORS = {"sm_70": 80, "sm_80": 108, "sm_90": 132, "sm_90a": 132, "sm_100": 148, "sm_100a": 148}


@dataclass(frozen=True)
class Target:
    """One NVIDIA chip, as LLVM's `-mcpu` spells it, and the limits that hold for all of them.

    `multiprocessors` is None where GPUs with that chip have no number in common.  A wrong one costs time, never a result.
    """

    chip: str = "sm_90"
    warp_size: int = 32
    threads_per_multiprocessor: int = 2048
    multiprocessors: int | None = _MULTIPROCESSORS["sm_90"]
    load_bytes: int = 16  # the widest load of one thread

    @property
    def ptx(self) -> int:
        """The version of PTX, times ten."""
        return _PTX[self.chip]

    @property
    def features(self) -> str:
        """LLVM's feature string: the PTX version."""
        return f"+ptx{self.ptx}"

    @staticmethod
    def named(chip: str) -> Target:
        """The target for `chip` (sm_90).  Raises `InputError` on a chip that we cannot compile for."""
        if chip not in _PTX:
            raise InputError(f"'{chip}' is no known target{did_you_mean(chip, _PTX)} (there are {', '.join(_PTX)})")
        return Target(chip, threads_per_multiprocessor=_THREADS.get(chip, 2048), multiprocessors=_MULTIPROCESSORS.get(chip))
