"""Nonblocking calls that tests begin, and the ways in which they end."""

from mpi4py import MPI

import mpicoll
from mpi.calling import Call
from mpi.cases import VECTOR, Case
from mpicoll.algorithms import registry
from mpicoll.request import Request

METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
#: elements: one message that MPI sends at once, and one for which it waits for the receiver
COUNTS = (5, 9_000)


def wait(request):
    assert request.Wait() is True


def keep_testing(request):
    while not request.Test():
        pass


def waitall(request):
    Request.Waitall([request])


ENDS = {"Wait": wait, "Test": keep_testing, "Waitall": waitall}


class Ended:
    """A communicator's nonblocking collectives under the names of the blocking ones, for `check`."""

    def __init__(self, comm, end="Wait"):
        self.comm, self.rank, self.size, self.end = comm, comm.rank, comm.size, ENDS[end]

    def __getattr__(self, method):
        form = getattr(self.comm, f"I{method.lower()}")

        def call(*arguments, **named):
            request = form(*arguments, **named)
            self.end(request)
            assert not request
            assert request.Test()
            wait(request)

        return call


def begin(comm, case, memory):
    """Start a call; returns it and its request."""
    call = Call(case, comm.rank, comm.size, memory)
    with mpicoll.override(path=memory.path):
        form = getattr(comm, f"I{case.method.lower()}")
        return call, form(*call.arguments(), algorithm=case.algorithm)


def mixed(number):
    """Return the case of one of many calls: the methods in turn, small and large."""
    method = METHODS[number % len(METHODS)]
    pattern = "uneven" if method in VECTOR else ""
    return Case(method, None, COUNTS[number // 3 % 2], pattern, dtype="float64", root=number)


def late(comm, start, meanwhile):
    """Start calls, which the last rank does only after the others have done something; returns their requests.

    Nobody's call can be complete before the last rank has started it.
    """
    last = comm.rank == comm.size - 1
    requests = None if last else start()
    if not last:
        meanwhile(requests)
    MPI.COMM_WORLD.Barrier()
    return start() if last else requests
