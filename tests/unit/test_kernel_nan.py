"""Of NaN in kernels: one for all that a reduction stores, where the adder's choice could differ."""

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mpicoll.runtime.cuda import kernels

HERE = Path(__file__).parent
PROBE = """
#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT void stored(const T* in, T* out, int n) { for (int i = 0; i < n; i++) out[i] = store(load(in[i])); }
"""

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_kernels_store_one_nan_of_doubles_whatever_its_payload(dtype, tmp_path):
    """The prelude is what fused kernels and the path mapped share."""
    numbers = [1.5, -0.0, float("inf"), 5e-324]
    nans = [struct.unpack("d", struct.pack("Q", bits))[0] for bits in (0x7FF8000000000007, 0xFFF8000000000001)]
    source = np.array([*numbers, *nans], "f8")
    text = f'#include "{HERE}/cuda_on_host.h"\n{kernels.prelude(np.dtype(dtype))}\n{PROBE}'
    (tmp_path / "probe.cpp").write_text(text, encoding="utf-8")
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-w", "-o", tmp_path / "probe.so", tmp_path / "probe.cpp"]
    subprocess.run(command, check=True, timeout=60)
    target = np.zeros_like(source)
    stored = ctypes.CDLL(str(tmp_path / "probe.so")).stored
    stored.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    stored(source.ctypes.data, target.ctypes.data, source.nbytes // np.dtype(dtype).itemsize)
    assert target[:4].tobytes() == source[:4].tobytes()
    assert target[4:].view("u8").tolist() == [0x7FF8000000000000] * 2
