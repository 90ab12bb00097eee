"""The reunion: what ranks do before the next call after one that a rank has refused."""

from __future__ import annotations

import os
import pickle
import time
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.progress import turns
from mpicoll.runtime.progress.exchange import Routine
from mpicoll.runtime.progress.operations import Operation
from mpicoll.runtime.progress.refusals import GRACE

#: lane of reunions, so that they wait for no operation that waits for them
LANE = -1
#: seconds that ranks are given to leave a call that was refused, at the end of the communicator
LEAVE = 5 * GRACE


def heed(traffic: Any) -> None:
    """Meet the other ranks again, where a call that was made is refused, and wait for them.

    Args:
        traffic: of the communicator.

    Raises:
        MismatchError: the ranks are at different calls.
    """
    with traffic.refusals.reunions:  # another thread may have come first
        meeting = begin(traffic)
        if meeting is not None:
            meeting.wait()


def begin(traffic: Any) -> Operation | None:
    """Begin a reunion where it is time to, and return it; None if it is not, or one is on its way.

    An operation may be here for a later call, waiting for the ranks' words on it: it has sent nothing.
    """
    refusals, pending = traffic.refusals, traffic.refusals.pending
    if pending is None or refusals.meeting:
        return None
    later = [one.attempt for one in turns.of(traffic) if not one.ran and one.attempt > pending.number]
    number = min(later, default=traffic.attempts + 1) - 1
    if number < pending.number:
        return None
    refusals.meeting = True
    earlier = [one for one in turns.of(traffic) if one.ran]
    name = "the call after a refused one"
    return Operation(traffic, lambda own: _reunion(own, earlier, number), name=name, lane=LANE)


def _reunion(operation: Operation, earlier: list[Operation], number: int) -> Routine[None]:
    """Meet the other ranks, and go on with a communicator without messages, if all are at the same call.

    Args:
        operation: that runs this.
        earlier: operations that end first.
        number: of this rank's latest call.
    """
    traffic: Any = operation.traffic
    refusals, pending = traffic.refusals, traffic.refusals.pending
    try:
        yield lambda: all(one.done for one in earlier)
        refusals.meet(number)
        traffic.barred = bool(traffic.broken)
        said = yield from _said(traffic.comm, traffic.mark, (number, pending), refusals.gone)
        yield lambda: free_left(traffic)
    finally:
        refusals.meeting = False
    for _, one in said.values():
        refusals.note(one)
    at = {rank: said[rank][0] for rank in sorted(said)}
    if len(set(at.values())) > 1 or len(at) < traffic.size:
        first = min((one for _, one in said.values()), key=lambda one: one.number)
        where = [f"rank {rank}: {f'#{at[rank]}' if rank in at else 'at its end'}" for rank in range(traffic.size)]
        error = first.error(f"ranks are at different calls ({', '.join(where)})")
        traffic.broken = str(error)
        operation._give_up(error)
        raise error


def _said(comm: MPI.Intracomm, mark: int, mine: Any, gone: set[int]) -> Routine[dict[int, Any]]:
    """Return the ranks' objects by rank, having thrown away whatever each of them sent before.

    Args:
        comm: a private communicator, on which nothing else is received.
        mark: tag that nothing else has.
        mine: this rank's object.
        gone: ranks that say nothing, which may become more.
    """
    data = np.frombuffer(pickle.dumps(mine), "u1")
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    sent = [comm.Isend([data, MPI.BYTE], other, mark) for other in others]
    said = {comm.rank: mine}

    def all_said() -> bool:
        for other in others:
            if other not in said and swept(comm, other, mark):
                said[other] = pickle.loads(_received(comm, other, mark))
        return len(said.keys() | gone) == comm.size

    yield all_said
    if len(said) == comm.size:
        yield lambda: MPI.Request.Testall(sent)
    return said


def swept(comm: MPI.Intracomm, source: int, mark: int) -> bool:
    """Throw away the messages of a rank that come before its mark; tell whether that has come."""
    status = MPI.Status()
    while comm.Iprobe(source, MPI.ANY_TAG, status):  # these come in the order in which they were sent
        if status.Get_tag() == mark:
            return True
        _received(comm, source, status.Get_tag())
    return False


def _received(comm: MPI.Intracomm, source: int, tag: int) -> bytes:
    """Return the bytes of a message that has come."""
    status = MPI.Status()
    comm.Probe(source, tag, status)
    data = np.empty(status.Get_count(MPI.BYTE), "u1")
    comm.Recv([data, MPI.BYTE], source, tag)
    return data.tobytes()


def free_left(traffic: Any) -> bool:
    """Free the programs that were left, if no message is under way; tell whether that is so."""
    left = traffic.refusals.left
    if not all(bound is None or bound.is_over() for bound, _ in left):
        return False
    for bound, _ in left:
        if bound is not None:
            bound.free()
    left.clear()
    return True


def part(traffic: Any) -> None:
    """Leave a communicator on which a call was refused: local, but the other ranks are given time to leave, too."""
    refusals = traffic.refusals
    if refusals.pending is not None and not traffic.broken:
        _leave(traffic)
    with turns.lock:  # which the rescuer has while it looks
        refusals.pending, refusals.possible = None, False


def _leave(traffic: Any) -> None:
    """Throw away what comes, until all ranks have left the call that was refused, or were given the time to."""
    refusals, late = traffic.refusals, False
    while not late:
        late = refusals.all_out or time.monotonic() > refusals.since + LEAVE
        with turns.lock:
            traffic.drain()
            late = (late and free_left(traffic)) or time.monotonic() > refusals.since + 2 * LEAVE
        os.sched_yield()
    if not free_left(traffic):
        traffic.broken = str(refusals.pending.error("messages of a call are left"))
