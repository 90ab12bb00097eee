"""Hot calls: one kernel launch, repeated with the very same CuPy arrays, in as little Python as can be.

A call on the path mapped is one launch of about 2 us.  What comes before it in Python delays the
kernel on every rank, so the look-up of `runtime/call/recent.py` is cut short where the arrays are the
same objects: a CuPy array cannot be given other memory, another dtype or another size.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from operator import is_
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from mpicoll.algorithms import registry
from mpicoll.runtime.call.recent import MOST
from mpicoll.runtime.progress import turns
from mpicoll.settings import settings

if TYPE_CHECKING:
    from mpicoll.communicator import Communicator
    from mpicoll.runtime.context.context import Context
    from mpicoll.runtime.program.bound import Bound

#: method, and the identity of its first two arguments
Key = tuple[str, int, int]


class HotCalls:
    """The hot calls of one communicator.

    Attributes:
        calls: by method and identity of the buffers: the other arguments, all else that the call depends on, what
            makes it (`run` names them), and what sees to it that the buffers live as long as the call is here.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.calls: dict[Key, tuple[Any, ...]] = {}

    def note(
        self,
        context: Context,
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
        key = method, id(buffers[0]), id(buffers[1])
        kept = tuple(self._watched(b, key) if type(b) is cupy.ndarray else b for b in buffers)
        rest = arguments[2:]
        exact = any(isinstance(item, int) for item in rest)  # 0.0 would be equal, but is no root
        asked = rest, exact, algorithm, stream, settings.scope(), settings.assigned, registry.changes[0]
        stream_of_now, device_of_now = cupy.cuda.get_current_stream, cupy.cuda.runtime.getDevice
        where = stream_of_now, stream_of_now(), device_of_now, device_of_now()
        self.calls[key] = asked, where, (context, context.turn, bound, self.steps(bound)), kept

    @staticmethod
    def steps(bound: Bound) -> list[Callable[[], object]]:
        """Return what a program consists of: the list itself, which is emptied when the program is freed."""
        return bound.calls

    def _watched(self, array: Any, key: Key) -> weakref.ref[Any]:
        """Return a reference that drops the call when the array goes: another one may then have its identity."""
        here = weakref.ref(self)

        def gone(_: object) -> None:
            hot = here()
            if hot is not None:
                hot.calls.pop(key, None)

        return weakref.ref(array, gone)


def run(
    comm: Communicator,
    method: str,
    arguments: tuple[Any, ...],
    algorithm: str | None,
    stream: Any,
    scope_of_now: Callable[[], object] = settings.scope,
    setting: dict[str, Any] = settings.__dict__,  # its attributes take ten times as long
    in_flight: list[Any] = turns.in_flight,
    is_finalized: Callable[[], bool] = MPI.Is_finalized,
    get_ident: Callable[[], int] = threading.get_ident,
    changes: list[int] = registry.changes,
) -> None:
    """Do a blocking call of buffers: in the short way if it is hot and nothing is in the way.

    One function, in which everything is at hand: each look-up and each call of another one takes time.
    """
    known = comm._hot.calls.get((method, id(arguments[0]), id(arguments[1])))
    if known is not None:
        asked, where, (context, turn, bound, steps), _ = known
        rest, exact, wanted, given, scope, assigned, registered = asked
        get_stream, current, get_device, device = where
        if (
            arguments[2:] == rest
            and (not exact or all(map(is_, arguments[2:], rest)))
            and algorithm == wanted
            and stream is given
            and scope_of_now() is scope
            and setting["assigned"] == assigned
            and changes[0] == registered
            and get_stream() is current
            and get_device() == device
            and not in_flight
            and not is_finalized()
            and not turn.locked()  # by this thread, from within a call; for another one it may wait a moment
        ):
            with turn:
                if bound.alive and not context.broken:  # looked at now, for another thread may have had its turn
                    context.caller = get_ident()
                    context.calls += 1
                    try:
                        for step in steps:
                            step()
                    except BaseException as error:
                        context.spoiled(bound, 0, error)
                        raise
                    finally:
                        context.caller = 0
                    return
    comm._run_in_turn(method, arguments, algorithm, stream)
