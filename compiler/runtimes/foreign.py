"""GPU arrays of other libraries (torch, CuPy): what they say of themselves, and which of them a kernel can use in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparseditto.compiler.dtypes import dtype_of
from sparseditto.compiler.package import Buffer
from sparseditto.dialects.errors import InputError


@dataclass(frozen=True)
class Foreign:
    """A GPU array of another library, known by its `__cuda_array_interface__`."""

    pointer: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    owner: Any


def foreign_array(buffer: Buffer, value: Any) -> Foreign | None:
    """`value` as another library's GPU array, or None when it is none.  Raises `InputError` when it cannot be used in place."""
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except RuntimeError as e:  # torch: a tensor that requires a gradient
        raise InputError(f"does not give out its memory: {e}", where=buffer.name) from e
    if interface is None:
        return None
    pointer, read_only = interface["data"]
    dtype, shape, strides = np.dtype(interface["typestr"]), tuple(interface["shape"]), interface.get("strides")
    if buffer.dtype == "bfloat16" and dtype.str[1:] == "V2":  # as the interface spells its bits
        dtype = dtype_of(buffer.dtype)
    if interface.get("mask") is not None:
        raise InputError("has a mask, which kernels do not read", where=buffer.name)
    if strides is not None and not _is_contiguous(shape, tuple(strides), dtype.itemsize):
        raise InputError("is not contiguous (row-major); make it so first", where=buffer.name)
    if read_only and buffer.access != "read":
        raise InputError("is read-only, and the kernel writes to it", where=buffer.name)
    return Foreign(int(pointer or 0), dtype, shape, value)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether byte strides are those of a row-major array without gaps; extents of 1 and empty arrays may have any."""
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected and 0 not in shape:
            return False
        expected *= extent
    return True
