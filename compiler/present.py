"""The architecture of the GPU at hand, as its driver describes it."""

from __future__ import annotations

from sparseditto.agent.architecture.architecture import Architecture
from sparseditto.agent.architecture.building import Correction, from_driver
from sparseditto.compiler.runtimes import cuda, libcuda
from sparseditto.dialects.errors import DeviceError


def present(device: int = 0) -> tuple[Architecture, list[Correction]]:
    """The graph of GPU `device`, and where its driver says something else than the table.  Raises `DeviceError` without one."""
    reason = cuda.available()
    if reason is not None:
        raise DeviceError(reason)
    versions = cuda.versions(device)
    major, _, minor = versions["compute_capability"].partition(".")
    return from_driver(versions["gpu"], (int(major), int(minor)), libcuda.device_attributes(device))
