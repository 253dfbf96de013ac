"""The element types of operands by NumPy's names, among them bfloat16, which NumPy gets from the package `ml_dtypes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparseditto.dialects.errors import InputError

HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Limits:
    """`unit` is the largest relative error of rounding, `tiny` the least normal number, `least` the least above 0."""

    unit: float
    tiny: float
    least: float
    largest: float


def dtype_of(name: str) -> np.dtype[Any]:
    """The type of that name.  Raises `InputError` for bfloat16 where `ml_dtypes` is not installed."""
    if name == "bfloat16":
        _register()
    return np.dtype(name)


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether a type holds real numbers (NumPy counts bfloat16 among the types that it knows nothing of)."""
    return dtype.kind in "fiub" or dtype.name == "bfloat16"


def limits(name: str) -> Limits:
    """What a floating-point type can hold."""
    if name == "bfloat16":
        return Limits(2.0**-8, 2.0**-126, 2.0**-133, (2.0 - 2.0**-7) * 2.0**127)
    info = np.finfo(name)
    return Limits(float(info.eps) / 2, float(info.tiny), float(info.smallest_subnormal), float(info.max))


def arithmetic(name: str) -> str:
    """The type in which sums of values of that type are carried at least."""
    return "float32" if name in HALVES else name


def as_bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory as integers where it holds bfloat16, which NumPy gives out no buffer of."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def as_wanted(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """`array` as values of the type `name` where it holds the bits of bfloat16, as NumPy's files and torch name them."""
    return array.view(dtype_of(name)) if name == "bfloat16" and array.dtype.str[1:] == "V2" else array


def _register() -> None:
    """Make the name known to NumPy."""
    try:
        import ml_dtypes  # noqa: F401 (importing it registers its types)
    except ModuleNotFoundError as e:
        raise InputError(f"bfloat16 needs the package ml_dtypes ({e}): pip install ml_dtypes") from e
