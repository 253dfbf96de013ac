"""Launches with every size known: what both runtimes take from a package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparseditto.compiler.package import KernelPackage, Launch
from sparseditto.compiler.sizes import evaluate
from sparseditto.dialects.errors import DeviceError, InputError

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
BLOCK_THREADS = 1024


@dataclass(frozen=True)
class ResolvedLaunch:
    """A launch whose expressions are numbers.  `arguments` are buffer names (str), sizes (int) and scalars of their type."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[str | int | np.floating[Any], ...]
    shared_bytes: int
    overlap: bool = False

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return math.prod(self.block)

    @property
    def format(self) -> str:
        """The arguments' types, as `struct` and pycuda spell them: pointers, 64-bit integers, floats and doubles."""
        return "".join(map(_letter, self.arguments))


def _letter(argument: str | int | np.floating[Any]) -> str:
    if isinstance(argument, np.floating):
        return argument.dtype.char
    return "P" if isinstance(argument, str) else "q"


def resolve(
    package: KernelPackage, sizes: Mapping[str, int], scalars: Mapping[str, float] | None = None
) -> tuple[ResolvedLaunch, ...]:
    """The package's launches with every expression worked out, in order; those with an empty grid are left out.

    Raises `InputError` for a size or a scalar that is missing, and `DeviceError` for a grid or block that no GPU takes.
    """
    known: dict[str, str | np.floating[Any]] = {buffer.name: buffer.name for buffer in package.buffers}
    known |= _typed(package, scalars or {})
    launches = (_resolved(launch, known, sizes) for launch in package.launches)
    return tuple(launch for launch in launches if 0 not in launch.grid)


def _typed(package: KernelPackage, scalars: Mapping[str, float]) -> dict[str, np.floating[Any]]:
    """The package's scalars as their types hold them."""
    missing = [scalar.name for scalar in package.scalars if scalar.name not in scalars]
    if missing:
        raise InputError(f"the scalars {', '.join(missing)} have no value; give one to each")
    return {scalar.name: np.dtype(scalar.dtype).type(scalars[scalar.name]) for scalar in package.scalars}


def _resolved(launch: Launch, known: Mapping[str, str | np.floating[Any]], sizes: Mapping[str, int]) -> ResolvedLaunch:
    x, y, z = (evaluate(extent, sizes) for extent in launch.grid)
    arguments = tuple(known[name] if name in known else evaluate(name, sizes) for name in launch.arguments)
    resolved = ResolvedLaunch(launch.kernel, (x, y, z), launch.block, arguments, launch.shared_bytes, launch.overlap)
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
