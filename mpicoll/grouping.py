"""Groups: calls and messages that are collected, and made as one when the group ends."""

from __future__ import annotations

from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, NoReturn

from mpi4py import MPI

from mpicoll.communicator import Communicator
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.groups.calls import GroupedCall, run_calls
from mpicoll.runtime.groups.first import connect
from mpicoll.runtime.groups.messages import GroupedMessage, run_messages

#: methods that would not wait for the end of the group, or that only one of its messages could answer
_REFUSED = (
    *("_begin", "_prepare", "Isend", "Issend", "Ibsend", "Irsend", "Irecv", "Isendrecv", "Isendrecv_replace"),
    *("Ssend", "Bsend", "Rsend", "Sendrecv_replace"),
)


class group:  # noqa: N801  # used as a function, as `with` statements are
    """Collect a communicator's blocking collectives and messages, and make them as one at the end.

        with mpicoll.group(comm):
            for gradient in gradients:
                comm.Allreduce(MPI.IN_PLACE, gradient)
            comm.Send(edge, right)
            comm.Recv(halo, left)

    Collectives that are alike (method, operator, root, dtype) are one call over all their arrays, so that many small
    ones take little more time than one.  Messages do not wait for each other, whatever their order.  What was
    received may be used after the group, as after a blocking call.  If the block raises, nothing is made.

    All ranks make the same collectives in the same order, and the first group of a communicator together.  A message
    must be received in a group, with the same tag (0 where none is given) and as many bytes.  What is received into
    must not be used otherwise in the group.

    Between device arrays on one host messages travel through peers' memory, by one kernel, which can be captured
    into a CUDA graph; both ends must be on devices then.

    Args:
        comm: the communicator; other threads must not use it in the meantime.

    Raises:
        UnsupportedError: a method in the block that does not wait, or Ssend, Bsend, Rsend, Sendrecv_replace.
        RuntimeError: the communicator has a group already.
        ValueError: messages from any source or with a status.
    """

    def __init__(self, comm: Communicator) -> None:
        """Belong to a communicator."""
        self._comm = comm
        self._calls: list[GroupedCall] = []
        self._messages: list[GroupedMessage] = []

    def __enter__(self) -> group:
        """Collect from now on."""
        methods = vars(self._comm)
        if "_run" in methods:
            raise RuntimeError("the communicator is in a group already")
        methods["_run"] = methods["_run_in_turn"] = self._collect
        methods["Send"], methods["Recv"], methods["Sendrecv"] = self._send, self._receive, self._sendrecv
        methods.update({name: partial(_refuse, name) for name in _REFUSED})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Make what was collected, unless the block has raised."""
        for name in ("_run", "_run_in_turn", "Send", "Recv", "Sendrecv", *_REFUSED):
            del vars(self._comm)[name]
        calls, messages, self._calls, self._messages = self._calls, self._messages, [], []
        if error is None:
            context = self._comm._get_context()
            connect(context, [*chain.from_iterable(call[1] for call in calls), *(message[1] for message in messages)])
            run_calls(calls, context, self._make)
            run_messages(messages, context, self._comm)

    def _make(self, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> None:
        run = self._comm._run if len(arguments) > 1 else self._comm._run_in_turn  # a barrier has no arrays
        run(method, arguments, algorithm, stream)

    def _collect(self, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> None:
        self._calls.append((method, arguments, algorithm, stream))

    def _send(self, buf: Any, dest: int, tag: int = 0) -> None:
        if dest != MPI.PROC_NULL:
            self._messages.append((True, buf, dest, tag))

    def _receive(
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: MPI.Status | None = None
    ) -> None:
        if source == MPI.ANY_SOURCE or status is not None:
            raise ValueError("Recv in a group: name the source; there is no status")
        if source != MPI.PROC_NULL:
            self._messages.append((False, buf, source, 0 if tag == MPI.ANY_TAG else tag))

    def _sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: MPI.Status | None = None,
    ) -> None:
        self._receive(recvbuf, source, recvtag, status)
        self._send(sendbuf, dest, sendtag)


def _refuse(name: str, *arguments: Any, **named: Any) -> NoReturn:
    """Refuse a method within a group."""
    what = "a call that does not block" if name.startswith("_") else name
    raise UnsupportedError(f"{what} in a group: it has blocking collectives, Send, Recv and Sendrecv only")
