"""Launches of kernels that are a whole call; those that come again with the same arrays become graphs of one kernel.

A graph's launch takes the host half the time of a kernel's, and the kernel starts earlier (`docs/measurements.md`).
But making a graph takes as long as several launches, so the third launch is the first of a graph.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable
from typing import Any

import cupy

from mpicoll.runtime.cuda.launch import Launch
from mpicoll.runtime.cuda.streams import is_captured
from mpicoll.runtime.paths.mapped.order import Order
from mpicoll.runtime.paths.mapped.residents import Residents
from mpicoll.runtime.program.local_work import Action

_runtime, _driver = cupy.cuda.runtime, cupy.cuda.driver
#: launches after which a graph is made
PLAIN = 2
#: graphs that there are at most, of about 110 KB of device memory each
MOST = 512


def mobile_launcher(
    plain: Launch,
    most: int,
    packed: Any,
    memory: list[tuple[str, int]],
    stream: int,
    order: Order,
    residents: Residents | None,
    owner: object,
) -> tuple[Action, Callable[[int, int], None]]:
    """Return an action that launches a call's kernel in the order of the calls, and what aims it beforehand.

    CUDA copies a kernel's argument at the launch, so that one is enough for all arrays.

    Args:
        plain: launches the kernel on a stream.
        most: its blocks, where the device has room for them.
        packed: the kernel's argument, which begins with the addresses of cells in memory.
        memory: buffer of each of these cells, and bytes from the buffer's start.
        stream: address of the stream.
        order: where the call takes its turn.
        residents: of the device, None for a call that is captured: questions to other streams could end the capture.
        owner: keeps the stream alive.
    """
    cells = [(int(buffer == "output"), start) for buffer, start in memory]
    write = struct.Struct(f"{len(cells)}Q").pack_into

    def aim(*bases: int) -> None:
        write(packed, 0, *[bases[buffer] + start for buffer, start in cells])

    def call() -> None:
        if order.stream != stream:
            order.switch(stream, owner)
        if residents is None:
            plain(stream)
            return
        room = residents.blocks
        if residents.stream != stream or most > room:
            room = residents.switch(stream, owner)
        plain(stream, min(most, room))

    return call, aim


def call_launcher(
    plain: Launch, most: int, stream: int, device: int, order: Order, residents: Residents, owner: object
) -> Action:
    """Return an action that launches a call's kernel in the order of the calls.

    Args:
        plain: launches the kernel on a stream.
        most: its blocks, where the device has room for them.
        stream: address of the stream.
        device: number of the device.
        order: where the call takes its turn.
        residents: of the device.
        owner: keeps the stream alive.
    """
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
            plain(stream)  # what is captured is the kernel itself, and no other stream is asked
            return
        room = residents.blocks
        if residents.stream != stream or most > room:
            room = residents.switch(stream, owner)
        if most > room:
            plain(stream, room)
        elif graph is not None:
            launch(graph.executable, stream)
        else:
            plain(stream)
            launched += 1
            graph = _graph(plain, device) if launched == PLAIN else None

    return call


class _Graph:
    """An executable graph, as long as somebody wants it."""

    def __init__(self, graph: Any) -> None:
        self.graph, self.executable = graph, graph.graphExec
        _graphs.add(self)


_graphs: weakref.WeakSet[_Graph] = weakref.WeakSet()


def _graph(launch: Launch, device: int) -> _Graph | None:
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
