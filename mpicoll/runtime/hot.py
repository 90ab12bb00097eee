"""Hot calls: one kernel launch, repeated with the very same CuPy arrays, in as little Python as can be.

A call on the path mapped is one launch of about 4 us.  What comes before it in Python delays the
kernel on every rank, so the look-up of `runtime/recent.py` is cut short where the arrays are the
same objects: a CuPy array cannot be given other memory, another dtype or another size.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from mpicoll.runtime import progress
from mpicoll.runtime.recent import MOST
from mpicoll.settings import settings

if TYPE_CHECKING:
    from mpicoll.runtime.bound import Bound
    from mpicoll.runtime.channel import Channel


class Hot:
    """One repeated call: what it was asked with, and its launch."""

    __slots__ = ("algorithm", "bound", "current", "device", "first", "given", "rest", "second", "version")

    def __init__(self, arguments: tuple[Any, ...], algorithm: str | None, stream: Any, bound: Bound) -> None:
        """Remember a call; arrays are not kept alive."""
        cuda = sys.modules["cupy"].cuda
        self.first, self.second = _reference(arguments[0]), _reference(arguments[1])
        self.rest, self.algorithm, self.given, self.version = arguments[2:], algorithm, stream, settings.version
        self.current, self.device = cuda.get_current_stream(), cuda.runtime.getDevice()
        self.bound = bound

    def fits(self, arguments: tuple[Any, ...], algorithm: str | None, stream: Any, cuda: Any) -> bool:
        """Tell whether this call is asked for again; what is hard to compare is taken for another one."""
        return (
            self.first() is arguments[0]
            and self.second() is arguments[1]
            and self.algorithm == algorithm
            and self.given is stream
            and self.current is cuda.get_current_stream()
            and self.rest == arguments[2:]
            and self.version == settings.version
            and self.bound.alive
            and self.device == cuda.runtime.getDevice()
        )


class HotCalls:
    """The hot calls of one communicator, by method and identity of the buffers."""

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[tuple[str, int, int], Hot] = {}
        self.cuda: Any = None  # CuPy's, once there is a call

    def ran(
        self, channel: Channel, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any
    ) -> bool:
        """Make a call if it is hot and nothing else is in flight; tell whether that was so."""
        if len(arguments) < 2:
            return False
        hot = self.calls.get((method, id(arguments[0]), id(arguments[1])))
        if hot is None or progress.active() or not hot.fits(arguments, algorithm, stream, self.cuda):
            return False
        if not channel.usable() or not channel.turn.acquire(blocking=False):
            return False
        try:
            channel.calls += 1
            hot.bound.run()
        except BaseException as error:
            channel.spoiled(hot.bound, hot.bound.reached, error)
            raise
        finally:
            channel.turn.release()
        return True

    def note(self, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any, bound: Bound) -> None:
        """Keep a call that was just made, if it is one that can be hot."""
        cupy = sys.modules.get("cupy")
        if cupy is None or len(arguments) < 2 or bound.requests or any(poll is not None for poll in bound.polls):
            return
        if any(hasattr(item, "__len__") for item in arguments[2:]):  # counts could be changed in place
            return
        buffers = arguments[:2]
        arrays = [b for b in buffers if type(b) is cupy.ndarray]
        others = [b for b in buffers if not (b is None or b is MPI.IN_PLACE or type(b) is int)]
        if not arrays or len(arrays) != len(others) or any(a.device.id != arrays[0].device.id for a in arrays):
            return
        if len(self.calls) >= MOST:
            self.calls.clear()
        self.cuda = cupy.cuda
        self.calls[method, id(buffers[0]), id(buffers[1])] = Hot(arguments, algorithm, stream, bound)


def _reference(buffer: Any) -> Callable[[], Any]:
    """Return a call that gives the buffer, as long as it lives; None, numbers and MPI.IN_PLACE always do."""
    return weakref.ref(buffer) if hasattr(buffer, "data") and hasattr(buffer, "dtype") else lambda: buffer
