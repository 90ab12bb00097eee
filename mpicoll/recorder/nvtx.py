"""Ranges of NVTX, which NVIDIA's profilers show above the kernels that were launched within them."""

from __future__ import annotations

import sys
from typing import Any


def module() -> Any:
    """Return CuPy's module of ranges, None where the program does not use CuPy or there is no NVTX."""
    cupy: Any = sys.modules.get("cupy")
    return getattr(cupy.cuda, "nvtx", None) if cupy is not None else None
