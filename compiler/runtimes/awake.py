"""A GPU is woken while a process still imports what it will use it with: driver and context take half a second to start.

`ctypes` alone does it, as `libcuda.py` is among what is imported meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


def wake(options: Mapping[str, Any]) -> None:
    """Start the driver and the primary context of GPU `ordinal`.  What fails is told by those who then use it."""
    with suppress(OSError):
        driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), int(options.get("ordinal", 0))) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
