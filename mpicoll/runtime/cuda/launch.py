"""Kernel launches, packed beforehand; those that are a whole call become graphs of one kernel when they come again.

A graph's launch takes the host half the time of a kernel's, and the kernel starts earlier
(`docs/performance.md`), but it must be made, which takes as long as several launches.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import cupy

from mpicoll.runtime.cuda.streams import is_captured
from mpicoll.runtime.host.work import Call

if TYPE_CHECKING:
    from mpicoll.runtime.paths.mapped.inboxes import Order

_runtime, _driver = cupy.cuda.runtime, cupy.cuda.driver
#: CUDA_ERROR_INVALID_CONTEXT
_INVALID_CONTEXT = 201
#: launches after which a graph is made
PLAIN = 2
#: graphs that there are at most, of about 110 KB of device memory each
MOST = 512


def launcher(
    function: int,
    packed: Any,
    grid: tuple[int, int],
    stream: int,
    device: int,
    keep: object,
    order: Order | None = None,
    owner: object = None,
) -> Call:
    """Return a call that launches a function whose one argument is a packed structure.

    Args:
        function: address of the kernel.
        packed: its argument, a ctypes buffer.
        grid: blocks, and threads of a block.
        stream: address of the stream.
        device: number of the device.
        keep: what must live as long as the call.
        order: the launch is a call, which takes its turn there; from the third time on it is that of a graph.
        owner: keeps the stream alive.
    """
    plain = _plain(function, packed, grid, device, keep)
    if order is None:
        return partial(plain, stream)
    launch, captured = _runtime.graphLaunch, _runtime.streamIsCapturing
    graph: _Graph | None = None
    launched = 0

    def call() -> None:
        nonlocal graph, launched
        if order.stream != stream:
            order.switch(stream, owner)
        try:
            into_graph = captured(stream)
        except RuntimeError:
            into_graph = is_captured(stream)  # raises what explains it
        if into_graph:
            plain(stream)  # what is captured is the kernel itself
        elif graph is not None:
            launch(graph.executable, stream)
        else:
            plain(stream)
            launched += 1
            if launched == PLAIN:
                graph = _graph(plain, device)

    return call


def _plain(function: int, packed: Any, grid: tuple[int, int], device: int, keep: object) -> Callable[[int], None]:
    """Return a call that launches the kernel on a stream."""
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(packed))
    where, kept = ctypes.addressof(pointers), (packed, pointers, keep)
    (blocks, threads), launch = grid, _driver.launchKernel

    def plain(stream: int) -> None:
        kept  # noqa: B018  (the launch reads memory that these own)
        try:
            launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, where, 0)
        except _driver.CUDADriverError as error:
            if error.status != _INVALID_CONTEXT:
                raise
            _runtime.setDevice(device)  # this thread has not used the device before
            launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, where, 0)

    return plain


class _Graph:
    """An executable graph, as long as somebody wants it."""

    def __init__(self, graph: Any) -> None:
        self.graph, self.executable = graph, graph.graphExec
        _graphs.add(self)


_graphs: weakref.WeakSet[_Graph] = weakref.WeakSet()


def _graph(launch: Callable[[int], None], device: int) -> _Graph | None:
    """Return the graph of one launch, None where there are too many or none can be made."""
    if len(_graphs) >= MOST:
        return None
    try:
        with cupy.cuda.Device(device):
            stream = cupy.cuda.Stream(non_blocking=True)
            stream.begin_capture()
            launch(stream.ptr)
            return _Graph(stream.end_capture())
    except (_runtime.CUDARuntimeError, _driver.CUDADriverError):  # such as beside a capture in another thread
        return None
