"""Kernel launches with everything packed beforehand."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, Protocol

import cupy

from mpicoll.runtime.program.local_work import Action

_runtime, _driver = cupy.cuda.runtime, cupy.cuda.driver
#: CUDA_ERROR_INVALID_CONTEXT
_INVALID_CONTEXT = 201


def launcher(
    function: int, packed: Any, grid: tuple[int, int], stream: int, device: int, keep: object
) -> Action:
    """Return an action that launches a kernel on a stream.

    Args:
        function: address of the kernel.
        packed: its argument, a ctypes buffer.
        grid: blocks, and threads of a block.
        stream: address of the stream.
        device: number of the device.
        keep: what must live as long as the launch.
    """
    return partial(plain_launch(function, packed, grid, device, keep), stream)


class Launch(Protocol):
    """Launches a kernel on a stream, with so many blocks; with all of them if none are given."""

    def __call__(self, stream: int, blocks: int = ...) -> None: ...


def plain_launch(function: int, packed: Any, grid: tuple[int, int], device: int, keep: object) -> Launch:
    """Return a function that launches a kernel, whose one argument is a packed structure, on a stream.

    Args:
        function: address of the kernel.
        packed: its argument, a ctypes buffer.
        grid: blocks, and threads of a block.
        device: number of the device.
        keep: what must live as long as the launch.
    """
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(packed))
    where, kept = ctypes.addressof(pointers), (packed, pointers, keep)
    (most, threads), launch = grid, _driver.launchKernel

    def plain(stream: int, blocks: int = most) -> None:
        kept  # noqa: B018  (the launch reads memory that these own)
        try:
            launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, where, 0)
        except _driver.CUDADriverError as error:
            if error.status != _INVALID_CONTEXT:
                raise
            _runtime.setDevice(device)  # this thread has not used the device before
            launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, where, 0)

    return plain
