"""A kernel that keeps a stream busy."""

import functools

import numpy as np


@functools.cache
def _spin():
    import cupy

    source = r'extern "C" __global__ void spin(long long n) { for (long long t = clock64(); clock64() - t < n;); }'
    return cupy.RawKernel(source, "spin")


def spin(cycles):
    """Keep CuPy's current stream busy for so many clock cycles of the device."""
    _spin()((1,), (1,), (np.int64(cycles),))
