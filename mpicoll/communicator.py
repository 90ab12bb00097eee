"""`Communicator`: mpi4py's intracommunicator, with collectives that run on the arrays' device."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any, NoReturn

from mpi4py import MPI

from mpicoll.blocking import Blocking
from mpicoll.dispatch.plan import Plan
from mpicoll.dispatch.rules import parse_rules
from mpicoll.nonblocking import Nonblocking
from mpicoll.persistent import Persistent
from mpicoll.request import PersistentRequest, Request
from mpicoll.runtime import execute, hot, progress
from mpicoll.runtime.agreement import Fingerprint, agreed, announced
from mpicoll.runtime.arrays import device_of_argument
from mpicoll.runtime.calls import read_call
from mpicoll.runtime.channel import Channel, channel_of
from mpicoll.runtime.operands import Operands
from mpicoll.runtime.recent import Decision, address_of, frozen, state
from mpicoll.runtime.spec import is_in_place, read_spec
from mpicoll.settings import settings

#: CuPy, if it was imported and has no device
_no_device: object = None


class Communicator(Blocking, Nonblocking, Persistent, MPI.Intracomm):  # type: ignore[misc]  # other requests than MPI's
    """An intracommunicator whose upper-case collective methods take NumPy and CuPy arrays.

    It shares the handle of the communicator that it is made from.  Private messages travel on
    one duplicate, made at the first collective call and freed with the communicator.

    Args:
        comm: the communicator.
        algorithms: rules for this communicator, such as "allreduce:0-64K:recursive_doubling".

    Raises:
        TypeError: not an intracommunicator.
        ValueError: the null communicator, or rules that cannot be read.
    """

    _rules: str
    _channel: Channel | None
    _hot: hot.HotCalls

    def __new__(cls, comm: MPI.Intracomm = MPI.COMM_WORLD, *, algorithms: str | None = None) -> Communicator:
        if not isinstance(comm, MPI.Comm):
            raise TypeError(f"comm is a {type(comm).__name__}, not a communicator")
        if comm == MPI.COMM_NULL:
            raise ValueError("comm is the null communicator")
        if not isinstance(comm, MPI.Intracomm):
            raise TypeError(f"comm is a {type(comm).__name__}; collectives need an intracommunicator")
        self = super().__new__(cls, comm)
        self._rules = algorithms if algorithms is not None else getattr(comm, "_rules", "")
        parse_rules(self._rules)
        self._channel = None
        self._hot = hot.HotCalls()
        return self

    def Get_plan(self, method: str, *arguments: Any, algorithm: str | None = None, **named: Any) -> Plan:
        """Return what a call would do, and why; print it.

        Collective only if it is the first call, or the first with device arrays.

        Args:
            method: the call, such as "Allreduce".
            arguments: as in the call.
            algorithm: as in the call.
            named: as in the call.
        """
        operands, channel = self._read(method, arguments, named)
        _connect(channel, operands.device)
        operands = _at_home(operands, channel)
        return execute.plan_for(operands, channel, algorithm, self._rules)

    _run = hot.run

    def _run_in_turn(self, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any) -> None:
        """Do a blocking call: the one way to the executor."""
        channel = self._get_channel()
        channel.take_turn()
        try:
            self._do(channel, method, arguments, algorithm, stream)
        finally:
            channel.end_turn()

    def _do(
        self, channel: Channel, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any
    ) -> None:
        """Run a remembered call, or decide and remember."""
        key, rest, where = self._asked_for(method, arguments, algorithm, stream)
        known = channel.recent.find(key, rest)
        if known is not None:
            channel.calls += 1
            progress.run(known, channel)
            self._hot.note(channel, method, arguments, algorithm, stream, known)
            return
        operands, plan = self._decide("blocking", channel, method, arguments, algorithm)
        with _on(operands, stream) as pointer:
            bound = execute.run(plan, operands, channel, pointer)
        if _repeatable(operands, where):
            channel.recent.remember(key, rest, bound)

    def _asked_for(
        self, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any
    ) -> tuple[tuple[Any, ...], ...]:
        """Return a call's key among the remembered ones, what is compared beside it, and where the call would run."""
        where = _where(stream)
        key = (method, *map(state, arguments[:2]), algorithm, self._rules, *where, settings.version)
        return key, frozen(arguments[2:]), where

    def _begin(self, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any) -> Request:
        """Start a nonblocking call."""
        channel = self._get_channel()
        key, rest, where = self._asked_for(f"I{method}", arguments, algorithm, stream)
        known = channel.recent.find(key, rest)
        if known is not None:
            channel.calls += 1
            operands, plan = known.operands, known.plan
        else:
            operands, plan = self._decide("nonblocking", channel, method, arguments, algorithm)
            if _repeatable(operands, where):
                channel.recent.remember(key, rest, Decision.of(operands, plan))
        with _on(operands, stream) as pointer:
            return Request(plan, lambda: execute.begin(plan, operands, channel, pointer, arguments))

    def _prepare(
        self, method: str, arguments: tuple[Any, ...], algorithm: str | None, stream: Any
    ) -> PersistentRequest:
        """Make a persistent call."""
        channel = self._get_channel()
        operands, plan = self._decide("persistent", channel, method, arguments, algorithm)
        with _on(operands, stream) as pointer:
            start, free = execute.prepare(plan, operands, channel, pointer)
        return PersistentRequest(plan, start, free)

    def _decide(
        self, form: str, channel: Channel, method: str, arguments: tuple[Any, ...], algorithm: str | None
    ) -> tuple[Operands, Plan]:
        """Read a call and plan it, and ask the other ranks where a setting demands it."""
        channel.calls += 1
        if _asked() and channel.peers is None:  # a rank that fails must not leave the others in `connect`
            devices = channel.exchange(max(map(device_of_argument, arguments[:2]), default=-1))
            if min(devices) >= 0:
                channel.connect(devices[channel.rank])

        def decide(limit: int) -> tuple[Operands, Plan]:
            operands = read_call(method, channel.rank, channel.size, arguments, {})
            if not _asked():
                _connect(channel, operands.device)
            operands = _at_home(operands, channel)
            plan = execute.plan_for(operands, channel, algorithm, self._rules, limit)
            if form == "blocking" and _asked():
                execute.reserve(plan, operands, channel)
            return operands, plan

        if not _asked():
            return decide(settings.scratch_limit)
        operands, plan = agreed(channel, form, method, decide, compare=settings.debug > 0)
        if settings.debug > 1:
            print(f"[mpicoll rank {channel.rank}] {plan}", file=sys.stderr, flush=True)
        return operands, plan

    def _gathered_counts(self, sendbuf: Any, recvbuf: Any) -> list[int]:
        """Return every rank's number of elements of recvbuf, for Reduce_scatter without recvcounts."""
        mine, trouble, count, channel = None, None, 0, self._get_channel()
        try:
            if is_in_place(sendbuf) or sendbuf is None or is_in_place(recvbuf) or recvbuf is None:
                raise ValueError("reduce_scatter: recvcounts is needed where recvbuf is not an array of its own")
            spec = read_spec("reduce_scatter", "recvbuf", recvbuf)
            assert spec.array is not None
            count = int(spec.count if spec.count is not None else spec.array.size)
            mine = Fingerprint("", "reduce_scatter", spec.array.dtype.name, -1, "", -1, "")
        except Exception as error:
            trouble = error
        if _asked():
            channel.calls += 1
            announced(channel, "Reduce_scatter", mine, trouble, compare=settings.debug > 0)
        elif trouble is not None:
            raise trouble
        return channel.exchange(count)

    def _tell(self, error: Exception) -> NoReturn:
        """Tell the other ranks that this one cannot make a call, where a setting demands it; raises the error."""
        if _asked():
            channel = self._get_channel()
            channel.calls += 1
            announced(channel, "", None, error, compare=False)
        raise error

    def _get_channel(self) -> Channel:
        channel = self._channel
        if channel is None:
            channel = self._channel = channel_of(self, self._rules)
        channel.check()
        return channel

    def _read(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Operands, Channel]:
        channel = self._get_channel()
        return read_call(method, channel.rank, channel.size, arguments, named), channel

    def _wrap(self, comm: MPI.Comm) -> Any:
        """Return a derived communicator as this type; the null communicator as it is."""
        if comm == MPI.COMM_NULL or not isinstance(comm, MPI.Intracomm):
            return comm
        return type(self)(comm, algorithms=self._rules)

    def Dup(self, info: MPI.Info | None = None) -> Any:
        """Duplicate; as mpi4py's, but of this type."""
        return self._wrap(MPI.Intracomm(self).Dup(info))

    def Clone(self) -> Any:
        """Duplicate without the attributes; as mpi4py's, but of this type."""
        return self._wrap(MPI.Intracomm(self).Clone())

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Split by color; as mpi4py's, but of this type."""
        return self._wrap(MPI.Intracomm(self).Split(color, key))

    def Split_type(self, split_type: int, key: int = 0, info: MPI.Info = MPI.INFO_NULL) -> Any:
        """Split by type; as mpi4py's, but of this type."""
        return self._wrap(MPI.Intracomm(self).Split_type(split_type, key, info))

    def Create(self, group: MPI.Group) -> Any:
        """Make a communicator of a group; as mpi4py's, but of this type."""
        return self._wrap(MPI.Intracomm(self).Create(group))

    def Create_group(self, group: MPI.Group, tag: int = 0) -> Any:
        """Make a communicator of a group, called by its members only; as mpi4py's, but of this type."""
        return self._wrap(MPI.Intracomm(self).Create_group(group, tag))


def _repeatable(operands: Operands, where: tuple[Any, ...]) -> bool:
    """Tell whether an equal call need not be decided again."""
    packed = operands.before or operands.after
    elsewhere = operands.device >= 0 and operands.device != where[0]
    return not (packed or elsewhere or _asked())


def _connect(channel: Channel, device: int) -> None:
    """Map the peers' memory before the first call with device arrays is planned."""
    if device >= 0:
        channel.connect(device)


def _at_home(operands: Operands, channel: Channel) -> Operands:
    """Return the call on the device of the communicator's inboxes, if it has any."""
    if operands.device < 0 or channel.mapped is None or operands.device == channel.mapped.device:
        return operands
    from mpicoll.runtime.elsewhere import moved

    return moved(operands, channel.mapped.device)


def _asked() -> bool:
    """Tell whether ranks ask each other before a call."""
    return bool(settings.debug or settings.errors)


def _where(stream: Any) -> tuple[Any, ...]:
    """Return the device and the stream's address that a call on device arrays would use."""
    global _no_device
    cupy = sys.modules.get("cupy")
    if cupy is None or cupy is _no_device:
        return (stream,)
    try:
        return cupy.cuda.runtime.getDevice(), address_of(stream or cupy.cuda.get_current_stream())
    except cupy.cuda.runtime.CUDARuntimeError:  # CuPy on a machine without a driver
        _no_device = cupy
        return (stream,)


def _on(operands: Operands, stream: Any) -> Any:
    """Make the arrays' device and stream current; gives the stream's address."""
    if operands.device < 0:
        if stream is not None:
            raise ValueError(f"{operands.method}: stream is given, but the arrays are on the host")
        return nullcontext(0)
    from mpicoll.runtime.device import on_stream

    return on_stream(operands.device, None if operands.moved else stream)
