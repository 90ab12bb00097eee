"""PyTorch's tensors: arrays over their memory, and what is read of them; importable without PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.errors import UnsupportedError


def is_tensor_class(kind: type) -> bool:
    """Tell whether this is PyTorch's own class of tensors, and none made from it, which may behave otherwise."""
    torch = sys.modules.get("torch")
    return torch is not None and kind is getattr(torch, "Tensor", None)


def array_of(collective: str, name: str, tensor: Any) -> Any:
    """Return a NumPy or CuPy array over a tensor's memory, which does not keep a tensor on the host alive.

    Args:
        collective: the call's name, for messages.
        name: the argument's name, for messages.
        tensor: on the host or a CUDA device.

    Raises:
        ValueError: it requires grad, or its elements are conjugated or negated only when they are read.
    """
    if tensor.requires_grad:
        raise ValueError(f"{collective}: {name} requires grad; pass {name}.detach()")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"{collective}: {name} is a conjugate or a negative; pass {name}.resolve_conj().resolve_neg()")
    bfloat = str(tensor.dtype) == "torch.bfloat16"
    if bfloat:
        tensor = tensor.view(sys.modules["torch"].int16)
    array = _on_host(tensor) if tensor.device.type == "cpu" else _on_device(collective, tensor)
    if not bfloat:
        return array
    from ml_dtypes import bfloat16

    return array.view(bfloat16)


def _on_host(tensor: Any) -> np.ndarray:
    """Return an array over a tensor's memory; its own `numpy()` would keep its storage from ever being resized."""
    dtype, shape = np.dtype(str(tensor.dtype).removeprefix("torch.")), tuple(tensor.shape)
    if not tensor.numel():
        return np.empty(shape, dtype)
    strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    memory: Any = MPI.buffer.fromaddress(tensor.data_ptr(), last + dtype.itemsize)
    return np.ndarray(shape, dtype, memory, 0, strides)


def _on_device(collective: str, tensor: Any) -> Any:
    """Return an array over a tensor's memory; what is on PyTorch's current stream comes before what is on CuPy's."""
    import cupy

    torch = sys.modules["torch"].cuda
    if torch.is_current_stream_capturing() and torch.current_stream().cuda_stream != cupy.cuda.get_current_stream().ptr:
        raise UnsupportedError(
            f"{collective}: PyTorch's current stream is being captured into a CUDA graph, and the call is on another "
            "one: pass stream=torch.cuda.current_stream()"
        )
    return cupy.from_dlpack(tensor)


def _current_stream(device: int) -> int:
    """Return the address of PyTorch's current stream of a device."""
    torch = sys.modules["torch"]
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # 0.1 us instead of 5; Triton relies on it, too
    return int(raw(device) if raw else torch.cuda.current_stream(device).cuda_stream)


def check_of(tensor: Any) -> Callable[[Any], bool]:
    """Return what tells whether a tensor is as this one, of which `state_of` says all, in less time than that."""
    kind, dtype, count, address = type(tensor), tensor.dtype, tensor.numel(), tensor.data_ptr()
    device, is_complex, cuda = tensor.get_device(), tensor.is_complex(), tensor.device.type == "cuda"
    stream_of_now = sys.modules["cupy"].cuda.get_current_stream if cuda else None
    return lambda now: (
        type(now) is kind
        and now.data_ptr() == address
        and now.numel() == count
        and now.dtype is dtype
        and now.get_device() == device
        and now.is_contiguous()
        and not (now.requires_grad or now.is_neg() or (is_complex and now.is_conj()))
        and (stream_of_now is None or _current_stream(device) == stream_of_now().ptr)
    )


def state_of(tensor: Any) -> tuple[Any, int, int] | None:
    """Return (what reading sees of a tensor but its address, address, bytes); None where more could matter.

    On a device that is the order of PyTorch's current stream and CuPy's, where these differ.
    """
    if tensor.requires_grad or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return None
    device = tensor.device
    if device.type == "cuda":
        cupy = sys.modules.get("cupy")
        if cupy is None or _current_stream(device.index) != cupy.cuda.get_current_stream().ptr:
            return None
    elif device.type != "cpu":
        return None
    count = tensor.numel()
    return (tensor.dtype, device, count), count and tensor.data_ptr(), count * tensor.element_size()
