"""Groups: calls and messages that are collected, and made as one when the group ends."""

from __future__ import annotations

from functools import cache
from itertools import chain
from types import TracebackType
from typing import Any, NoReturn, cast

from mpi4py import MPI

from mpicoll.communicator import Communicator
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.groups.calls import GroupedCall, each_of, run_calls
from mpicoll.runtime.groups.first import connect, is_connected
from mpicoll.runtime.groups.letters import GroupedMessage
from mpicoll.runtime.groups.messages import run_messages


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
        self._comm, self._kind = comm, type(comm)
        self.calls: list[GroupedCall] = []
        self.messages: list[GroupedMessage] = []

    def __enter__(self) -> group:
        """Collect from now on."""
        comm: Any = self._comm
        if isinstance(comm, _Collecting):
            raise RuntimeError("the communicator is in a group already")
        comm._group, comm.__class__ = self, _collecting(cast(Any, self._kind))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Make what was collected, unless the block has raised."""
        comm: Any = self._comm
        comm._group, comm.__class__ = None, self._kind
        calls, messages, self.calls, self.messages = self.calls, self.messages, [], []
        if error is not None:
            return
        context = comm._get_context()
        if not is_connected(context):
            connect(context, [*chain.from_iterable(call[1] for call in calls), *(message[1] for message in messages)])
        if calls:
            run_calls(calls, context, comm)
        if messages:
            run_messages(messages, context, comm)


class _Collecting:
    """Mixin of a communicator in a group: its calls and messages are collected."""

    _group: group

    def _run(self, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> None:
        call = method, arguments, algorithm, stream
        self._group.calls += each_of(call) if list in map(type, arguments) or tuple in map(type, arguments) else (call,)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        if dest != MPI.PROC_NULL:
            self._group.messages.append((True, buf, dest, tag))

    def Recv(
        self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG, status: MPI.Status | None = None
    ) -> None:
        if source == MPI.ANY_SOURCE or status is not None:
            raise ValueError("Recv in a group: name the source; there is no status")
        if source != MPI.PROC_NULL:
            self._group.messages.append((False, buf, source, 0 if tag == MPI.ANY_TAG else tag))

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = MPI.ANY_SOURCE,
        recvtag: int = MPI.ANY_TAG,
        status: MPI.Status | None = None,
    ) -> None:
        self.Recv(recvbuf, source, recvtag, status)
        self.Send(sendbuf, dest, sendtag)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError("in a group there are blocking collectives, Send, Recv and Sendrecv only")

    _begin = _prepare = _refuse
    Isend = Issend = Ibsend = Irsend = Irecv = Isendrecv = Isendrecv_replace = _refuse
    Ssend = Bsend = Rsend = Sendrecv_replace = _refuse
    Dup = Dup_with_info = Idup = Idup_with_info = Clone = Split = Split_type = Create = Create_group = _refuse
    Create_cart = Create_graph = Create_dist_graph = Create_dist_graph_adjacent = Create_intercomm = Sub = _refuse
    Neighbor_allgather = Neighbor_allgatherv = Neighbor_alltoall = Neighbor_alltoallv = _refuse
    Alltoallw = Neighbor_alltoallw = Ialltoallw = Ineighbor_alltoallw = _refuse
    Free = Disconnect = _refuse


@cache
def _collecting(kind: type[Communicator]) -> type[Communicator]:
    """Return the class of a communicator of some class while it is in a group."""
    return type(kind.__name__, (_Collecting, kind), {})
