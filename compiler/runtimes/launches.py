"""Launches with every size known: what both runtimes take from a package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sparseditto.compiler.package import KernelPackage, Launch
from sparseditto.compiler.sizes import evaluate
from sparseditto.dialects.errors import DeviceError

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
BLOCK_THREADS = 1024


@dataclass(frozen=True)
class ResolvedLaunch:
    """A launch whose expressions are numbers.  `arguments` are buffer names (str) and sizes (int)."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[str | int, ...]
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return math.prod(self.block)

    @property
    def format(self) -> str:
        """The arguments' types, as `struct` and pycuda spell them: pointers and 64-bit integers."""
        return "".join("P" if isinstance(argument, str) else "q" for argument in self.arguments)


def resolve(package: KernelPackage, sizes: Mapping[str, int]) -> tuple[ResolvedLaunch, ...]:
    """The package's launches with every expression worked out, in order; those with an empty grid are left out.

    Raises `InputError` for a size that is missing, and `DeviceError` for a grid or block that no GPU takes.
    """
    buffers = {buffer.name for buffer in package.buffers}
    launches = (_resolved(launch, buffers, sizes) for launch in package.launches)
    return tuple(launch for launch in launches if 0 not in launch.grid)


def _resolved(launch: Launch, buffers: set[str], sizes: Mapping[str, int]) -> ResolvedLaunch:
    x, y, z = (evaluate(extent, sizes) for extent in launch.grid)
    arguments = tuple(name if name in buffers else evaluate(name, sizes) for name in launch.arguments)
    resolved = ResolvedLaunch(launch.kernel, (x, y, z), launch.block, arguments, launch.shared_bytes)
    _check_limits("grid", resolved.grid, 0, GRID_LIMITS, launch.kernel)
    _check_limits("block", resolved.block, 1, BLOCK_LIMITS, launch.kernel)
    if resolved.threads > BLOCK_THREADS:
        message = f"a block of {resolved.threads} threads is too large: at most {BLOCK_THREADS} fit"
        raise DeviceError(message, where=launch.kernel)
    return resolved


def _check_limits(what: str, value: tuple[int, ...], least: int, most: tuple[int, ...], kernel: str) -> None:
    if any(not least <= extent <= limit for extent, limit in zip(value, most, strict=True)):
        message = f"a {what} of {value} cannot be launched: each must be at least {least} and at most {most}"
        raise DeviceError(message, where=kernel)
