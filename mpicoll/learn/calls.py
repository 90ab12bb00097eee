"""The calls of the patterns; those that are messages return what each rank did, in words."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.communicator import Communicator


def everyone(comm: Communicator) -> Communicator | None:
    """Return the communicator of all ranks."""
    return comm


def even_ranks(comm: Communicator) -> Communicator | None:
    """Return a communicator of the even ranks, None on the others; collective."""
    made = comm.Split(0 if comm.rank % 2 == 0 else MPI.UNDEFINED, comm.rank)
    return None if made == MPI.COMM_NULL else made


def collective(method: str, arguments: tuple[Any, ...], comm: Communicator, algorithm: str | None) -> list[str]:
    """Make a collective call; its steps are its schedule's.

    Args:
        method: its name.
        arguments: its arrays.
        comm: who calls it.
        algorithm: its algorithm, None to leave the choice to mpicoll.
    """
    getattr(comm, method)(*arguments, algorithm=algorithm)
    return []


def chain(comm: Communicator, x: Any, y: Any) -> list[str]:
    """Send x to the next rank and receive y from the one before, with blocking messages."""
    did = []
    if comm.rank + 1 < comm.size:
        comm.Send(x, comm.rank + 1)
        did.append(f"sends x to rank {comm.rank + 1}")
    if comm.rank > 0:
        comm.Recv(y, comm.rank - 1)
        did.append(f"receives y from rank {comm.rank - 1}")
    return did


def halo(comm: Communicator, x: Any, y: Any) -> list[str]:
    """Exchange the edges of x with both neighbours in a ring, with messages that are all in flight together."""
    # on 2 ranks both neighbours are one, whose messages match in the order in which they are started
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    requests = [
        comm.Irecv(y[:1], left),
        comm.Irecv(y[1:], right),
        comm.Isend(x[-1:], right),
        comm.Isend(x[:1], left),
    ]
    for request in requests:
        request.Wait()
    return [f"receives y[0] from {left} and y[1] from {right}, sends x[-1] to {right} and x[0] to {left}"]


def meeting(comm: Communicator, x: Any, y: Any, algorithm: str | None) -> list[str]:
    """Work for x milliseconds, come to a barrier, and put into y by how many microseconds this rank goes on too early.

    Only clocks of one machine are compared.

    Args:
        comm: who meets.
        x: milliseconds of work.
        y: microseconds; 0 where the barrier is right.
        algorithm: of the barrier, None to leave the choice to mpicoll.
    """
    comm.barrier()
    time.sleep(int(x[0]) / 1e3)
    came = time.monotonic_ns()
    comm.Barrier(algorithm=algorithm)
    went = time.monotonic_ns()
    here = MPI.Get_processor_name()
    times = [came for came, where in comm.allgather((came, here)) if where == here]
    y[0] = int(np.maximum(max(times) - went, 0) // 1000)
    return [f"comes at {(came - min(times)) // 10**6} ms, goes on at {(went - min(times)) // 10**6} ms"]
