"""`Communicator`: mpi4py's intracommunicator, with collectives that run on the arrays' device."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from operator import is_
from typing import Any, NoReturn

from mpi4py import MPI

from mpicoll.algorithms import registry
from mpicoll.blocking import Blocking
from mpicoll.derived import Derived, copied, same_type
from mpicoll.dispatch.plan import Plan
from mpicoll.dispatch.rules import parse_rules
from mpicoll.native import begun, made
from mpicoll.neighbours import Neighbours
from mpicoll.nonblocking import Nonblocking
from mpicoll.persistent import Persistent
from mpicoll.point_to_point import PointToPoint
from mpicoll.recorder.history import History
from mpicoll.recorder.recent import MASK
from mpicoll.recorder.recorder import LAST
from mpicoll.request import PersistentRequest, Request
from mpicoll.runtime.arguments.bufspec import is_in_place, read_spec
from mpicoll.runtime.call import conductor, shortcut, starting
from mpicoll.runtime.call.agreement import Word, asked
from mpicoll.runtime.call.decision import Call
from mpicoll.runtime.call.shortcut import noted
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.context.contexts import context_of, known_context_of, started_context_of
from mpicoll.runtime.context.remembered import Identity
from mpicoll.runtime.groups.calls import run_lists
from mpicoll.runtime.progress import turns
from mpicoll.runtime.progress.modes import modes
from mpicoll.runtime.progress.traffic import refuse_after_finalize
from mpicoll.settings import settings
from mpicoll.typed import Typed


class Communicator(Blocking, Nonblocking, Persistent, PointToPoint, Typed, Derived, MPI.Intracomm):  # type: ignore[misc]  # other requests than MPI's
    """An intracommunicator whose upper-case collective methods take NumPy and CuPy arrays.

    It shares the handle of the communicator that it is made from.  Private messages travel on
    one duplicate, made at the first collective call and freed with the communicator.
    Of an MPI.Cartcomm, Graphcomm or Distgraphcomm it makes the class below with that topology.

    Args:
        comm: the communicator.
        algorithms: rules for this communicator, such as "allreduce:0-64K:recursive_doubling".

    Raises:
        TypeError: not an intracommunicator, or, for a class with a topology, one without that.
        ValueError: the null communicator, or rules that cannot be read.
        RuntimeError: MPI was finalized.
    """

    _rules: str
    _context: Context | None
    #: calls by the identity of their arrays (see `runtime/call/shortcut.py`)
    _identities: dict[Identity, tuple[Any, ...]]

    def __new__(cls, comm: MPI.Intracomm = MPI.COMM_WORLD, *, algorithms: str | None = None) -> Communicator:
        if not isinstance(comm, MPI.Comm):
            raise TypeError(f"comm is a {type(comm).__name__}, not a communicator")
        refuse_after_finalize()
        if comm == MPI.COMM_NULL:
            raise ValueError("comm is the null communicator")
        if not isinstance(comm, MPI.Intracomm):
            raise TypeError(f"comm is a {type(comm).__name__}; collectives need an intracommunicator")
        if MPI.Is_initialized():
            kind = cls._kind_for(comm) if cls is Communicator else cls
            _check_topology(kind._own, comm)
            self = MPI.Intracomm.__new__(kind, comm)  # mpi4py's class of the topology is not the first base
        else:
            self = copied(super().__new__(cls), comm)
        self._rules = algorithms if algorithms is not None else getattr(comm, "_rules", "")
        parse_rules(self._rules)
        self._context = None
        self._identities = {}
        return self

    def __repr__(self) -> str:
        kind = type(self).__name__
        if MPI.Is_finalized() or self == MPI.COMM_NULL:
            return f"{kind}({'MPI was finalized' if MPI.Is_finalized() else 'null'})"
        name = self.Get_name() or f"handle {MPI._handleof(self):#x}"
        rules = f", algorithms={self._rules!r}" if self._rules else ""
        return f"{kind}(rank {self.rank} of {self.size}, {name}{rules})"

    @classmethod
    def _kind_for(cls, comm: MPI.Intracomm) -> type[Communicator]:
        own, kind = next(row for row in KINDS.items() if isinstance(comm, row[0]))
        return cls if cls._own is own else kind

    def Get_plan(self, method: str, *arguments: Any, algorithm: str | None = None, **named: Any) -> Plan:
        """Return the plan of a call, with the reasons; print it.

        Collective only if it is the first call, or the first with device arrays.

        Args:
            method: the call, such as "Allreduce".
            arguments: as in the call.
            algorithm: as in the call.
            named: as in the call.
        """
        return conductor.plan(replace(self._call("plan", method, arguments, algorithm, None), named=named))

    def _run(
        self,
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
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Do a blocking call of buffers; by the shortcut if its arrays' identity is known and nothing has changed.

        The first four arguments are as in `Call`, the others are functions and tables.  This is one function, in which
        everything is at hand: each look-up and each call of another one takes time.
        """
        identities = {} if is_finalized() else self._identities  # MPI could not be asked for an address
        try:
            known = identities.get((method, algorithm, id(arguments[0]), id(arguments[1])))
        except TypeError:  # a list for an algorithm's name, which is refused below
            known, identities = None, {}
        if known is None or not (
            (checks := known[2][4]) is None or (checks[0](arguments[0]) and checks[1](arguments[1]))
        ):
            known = noted(identities, method, arguments, algorithm)
        if known is not None:
            asked, where, (context, turn, bound, actions, _), remembered, _ = known
            rest, exact, wanted, given, rules, scope, assigned, registered = asked
            get_stream, current, get_device, device = where
            if (
                arguments[2:] == rest
                and (not exact or all(map(is_, arguments[2:], rest)))
                and algorithm == wanted
                and stream is given
                and self._rules is rules
                and scope_of_now() is scope
                and setting["assigned"] == assigned
                and changes[0] == registered
                and get_stream() is current
                and get_device() == device
                and not in_flight
                and not turn.locked()  # by this thread, from within a call; for another one it may wait a moment
            ):
                with turn:
                    if bound.alive and not context.barred:  # looked at now, for another thread may have had its turn
                        context.caller = get_ident()
                        number = context.calls + 1
                        place = number & MASK
                        context.recent[place] = remembered
                        context.began[place] = now()
                        context.calls = number  # last, as `count` has it
                        try:
                            for action in actions:
                                action()
                        except BaseException as error:
                            conductor.failed(context, bound, arguments, error)
                            raise
                        finally:
                            context.caller = 0
                        return
        self._run_in_turn(method, arguments, algorithm, stream)

    def _run_in_turn(self, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> None:
        """Do a blocking call: the one way to the executor; arguments as in `Call`."""
        context = self._get_context()
        if run_lists((method, arguments, algorithm, stream), context, self):
            return
        context.take_turn()
        try:
            conductor.blocking(context, (method, arguments, algorithm, stream, self._rules))
        finally:
            context.end_turn()

    def _begin(self, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> Request:
        """Start a nonblocking call; local; arguments as in `Call`."""
        context = self._context
        if context is None:
            context = self._context = started_context_of(self, self._rules)
            self._identities = context.cache.identities
        call = Call(context, "nonblocking", method, arguments, algorithm, stream, self._rules)
        known = shortcut.looked_up(self._identities, method, arguments, algorithm)
        found = shortcut.found(known, arguments, algorithm, stream, self._rules)
        return begun(call, starting.nonblocking(call, found))

    def _prepare(self, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> PersistentRequest:
        """Make a persistent call; arguments as in `Call`."""
        return made(starting.persistent(self._call("persistent", method, arguments, algorithm, stream)))

    def _call(self, form: str, method: str, arguments: tuple[Any, ...], algorithm: Any, stream: Any) -> Call:
        return Call(self._get_context(), form, method, arguments, algorithm, stream, self._rules)

    def _gathered_counts(self, sendbuf: Any, recvbuf: Any) -> list[int]:
        """Return every rank's number of elements of recvbuf, for Reduce_scatter without recvcounts."""
        context = self._get_context()
        what, count, trouble = "the counts of reduce_scatter", 0, None
        try:
            if is_in_place(sendbuf) or sendbuf is None or is_in_place(recvbuf) or recvbuf is None:
                raise ValueError("reduce_scatter: recvcounts is needed where recvbuf is not an array of its own")
            spec = read_spec("reduce_scatter", "recvbuf", recvbuf)
            assert spec.array is not None
            count = spec.count if spec.count is not None else int(spec.array.size) - (spec.displ or 0)
        except Exception as error:
            trouble = error
        word = Word.refusing(what, trouble) if trouble else Word(what, told=count)
        return [said.told for said in conductor.tell(context, word, trouble)]

    def _tell(self, what: str, error: Exception) -> NoReturn:
        """Tell the other ranks that this one cannot make a call, where a setting demands it; raises the error."""
        if asked():
            context = self._get_context()
            number = context.count()
            with context.recorder.begin("blocking", what.capitalize(), number, None, modes().trace):
                conductor.tell(context, Word.refusing(what, error), error)
        elif self._context is not None:
            self._context.refuse(error)
        raise error

    def _get_context(self) -> Context:
        context = self._context
        if context is None or not context.ready:
            context = self._context = context_of(self, self._rules)
            self._identities = context.cache.identities
        context.check()
        return context

    def Synchronize(self) -> None:
        """Return when this rank's calls so far are complete, those on the path mapped on the device, too; local.

        Raises:
            StalledError: a rank did not come to one of them within the time limit.
        """
        if self._context is not None:
            self._context.synchronize()

    def history(self, n: int = LAST) -> History:
        """Return the calls that this rank made last on the communicator, the latest one last; print it for a table.

        Local, and always on: 1,000 calls are kept, without their arrays.  Where the state is "enqueued", on the path
        mapped, the host only enqueued the call: its end is the host's.

        Args:
            n: how many at most.
        """
        context = self._context or known_context_of(self)
        return context.recorder.history(n) if context is not None else History()


_TOPOLOGIES = {MPI.Cartcomm: MPI.CART, MPI.Graphcomm: MPI.GRAPH, MPI.Distgraphcomm: MPI.DIST_GRAPH}


def _check_topology(own: type[MPI.Intracomm], comm: MPI.Intracomm) -> None:
    """Raise TypeError if a communicator has not the topology of one of mpi4py's classes."""
    if own in _TOPOLOGIES and comm.Get_topology() != _TOPOLOGIES[own]:
        raise TypeError(f"comm is a {type(comm).__name__} without the topology of a {own.__name__}")


class CartCommunicator(Neighbours, Communicator, MPI.Cartcomm):  # type: ignore[misc]  # as Communicator
    """A Communicator with mpi4py's methods of a Cartesian grid, and neighbour collectives."""

    _own = MPI.Cartcomm
    Sub = same_type(MPI.Cartcomm.Sub)


class GraphCommunicator(Neighbours, Communicator, MPI.Graphcomm):  # type: ignore[misc]  # as Communicator
    """A Communicator with mpi4py's methods of a graph, and neighbour collectives."""

    _own = MPI.Graphcomm


class DistGraphCommunicator(Neighbours, Communicator, MPI.Distgraphcomm):  # type: ignore[misc]  # as Communicator
    """A Communicator with mpi4py's methods of a distributed graph, and neighbour collectives."""

    _own = MPI.Distgraphcomm


#: our class for each of mpi4py's, the one without a topology last, for it is the others' base
KINDS: dict[type[MPI.Intracomm], type[Communicator]] = {
    kind._own: kind for kind in (CartCommunicator, GraphCommunicator, DistGraphCommunicator, Communicator)
}
