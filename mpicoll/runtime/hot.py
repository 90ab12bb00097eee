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

#: method, and the identity of its first two arguments
Key = tuple[str, int, int]
#: makes a call of these arguments, algorithm and stream again; false if it is another one, or not its turn
Again = Callable[[tuple[Any, ...], str | None, Any], bool]


class HotCalls:
    """The hot calls of one communicator.

    Attributes:
        calls: by method and identity of the buffers, which live as long as the call is here.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[Key, Again] = {}
        self.kept: dict[Key, tuple[Any, ...]] = {}

    def note(
        self,
        channel: Channel,
        method: str,
        arguments: tuple[Any, ...],
        algorithm: str | None,
        stream: Any,
        bound: Bound,
    ) -> None:
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
            self.kept.clear()
        key = method, id(buffers[0]), id(buffers[1])
        self.kept[key] = tuple(self._watched(b, key) if type(b) is cupy.ndarray else b for b in buffers)
        self.calls[key] = _again(channel, arguments[2:], algorithm, stream, bound, cupy.cuda)

    def _watched(self, array: Any, key: Key) -> weakref.ref[Any]:
        """Return a reference that drops the call when the array goes: another one may then have its identity."""

        def gone(_: object) -> None:
            self.calls.pop(key, None)
            self.kept.pop(key, None)

        return weakref.ref(array, gone)


def _again(
    channel: Channel, rest: tuple[Any, ...], algorithm: str | None, stream: Any, bound: Bound, cuda: Any
) -> Again:
    """Return what makes a call again; everything that it looks at is at hand, for each look-up takes time."""
    assigned, scope, scope_of_now = settings.assigned, settings.scope(), settings.scope
    stream_of_now, device_of_now = cuda.get_current_stream, cuda.runtime.getDevice
    current, device = stream_of_now(), device_of_now()
    turn, usable, in_flight = channel.turn, channel.usable, progress.in_flight
    launch = bound.calls[0] if len(bound.calls) == 1 else bound.run

    def again(arguments: tuple[Any, ...], wanted: str | None, given: Any) -> bool:
        if (
            arguments[2:] != rest
            or wanted != algorithm
            or given is not stream
            or stream_of_now() is not current
            or device_of_now() != device
            or scope_of_now() is not scope
            or settings.assigned != assigned
            or in_flight
            or not bound.alive
            or not usable()
            or not turn.acquire(False)  # by position: a keyword would take as long as all the rest
        ):
            return False
        try:
            channel.calls += 1
            launch()
        except BaseException as error:
            channel.spoiled(bound, bound.reached, error)
            raise
        finally:
            turn.release()
        return True

    return again
