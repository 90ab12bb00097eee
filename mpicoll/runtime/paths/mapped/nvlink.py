"""The links between the GPUs of a host."""

from __future__ import annotations

import ctypes

import cupy

_runtime = cupy.cuda.runtime
#: CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: true over NVLink, false over PCI Express
_NATIVE_ATOMIC = 3
#: NVML_P2P_CAPS_INDEX_NVLINK
_NVLINK = 2


def identity(device: int) -> tuple[str, str]:
    """Return (UUID, address on the bus) of a GPU, the same in every process."""
    return bytes(_runtime.getDeviceProperties(device)["uuid"]).hex(), _runtime.deviceGetPCIBusId(device)


def linked(device: int, other: tuple[str, str]) -> bool:
    """Tell whether a GPU of any process is linked to ours by NVLink; False where nobody knows."""
    mine = identity(device)
    if mine == other:
        return True
    for visible in range(_runtime.getDeviceCount()):
        if identity(visible) == other:
            return _has_native_atomics(device, visible)
    return _nvml_knows(mine[1], other[1])  # one visible device a rank


def _has_native_atomics(device: int, other: int) -> bool:
    value = ctypes.c_int()
    status = ctypes.CDLL("libcuda.so.1").cuDeviceGetP2PAttribute(ctypes.byref(value), _NATIVE_ATOMIC, device, other)
    return status == 0 and bool(value.value)


def _nvml_knows(mine: str, other: str) -> bool:
    try:
        import pynvml  # nvidia-ml-py

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode()) for bus in (mine, other)]
        return bool(pynvml.nvmlDeviceGetP2PStatus(*handles, _NVLINK) == 0)
    except Exception:  # no NVML, or it does not see that GPU: nobody knows
        return False
