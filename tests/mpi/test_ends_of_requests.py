"""Requests among others: what ends several of them, and the exceptions that they bring."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.begun import ENDS, Ended, begin, late, mixed, wait
from mpi.calling import check
from mpi.cases import HOST, Case
from mpicoll.algorithms import registry
from mpicoll.request import Request
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()


def mixture(world):
    """Return requests of mpicoll and of mpi4py, and what they will have done."""
    rank, right, left = world.rank, (world.rank + 1) % SIZE, (world.rank - 1) % SIZE
    sums, got, copy = np.zeros(1000), np.zeros(40_000), np.full(7, float(rank))
    requests = [
        world.Irecv(got, left, 3),
        world.Iallreduce(np.full(1000, 1.0), sums),
        MPI.REQUEST_NULL,
        world.Isend(np.full(40_000, float(rank)), right, 3),
        world.Ibcast(copy, SIZE - 1),
        MPI.Intracomm(world).Ibarrier(),
        world.Ibarrier(),
    ]

    def compare():
        assert (sums == SIZE).all()
        assert (got == left).all()
        assert (copy == SIZE - 1).all()

    return requests, compare


def test_waitall(world):
    requests, compare = mixture(world)
    assert Request.Waitall(requests) is True
    compare()
    assert Request.Waitall(requests) is True
    assert Request.Waitall([]) is True


def test_testall(world):
    requests, compare = mixture(world)
    while not Request.Testall(requests):
        pass
    compare()
    assert Request.Testall(requests)
    assert Request.Testall([])


def test_waitany(world):
    """Each is returned once, then none is left."""
    requests, compare = mixture(world)
    found = [Request.Waitany(requests) for _ in range(6)]
    assert sorted(found) == [0, 1, 3, 4, 5, 6]
    compare()
    assert Request.Waitany(requests) == MPI.UNDEFINED
    assert Request.Waitany([]) == MPI.UNDEFINED


def test_testany(world):
    requests, compare = mixture(world)
    found = []
    while len(found) < 6:
        index, done = Request.Testany(requests)
        assert done is (index != MPI.UNDEFINED)
        found += [index] * done
    assert sorted(found) == [0, 1, 3, 4, 5, 6]
    compare()
    assert Request.Testany(requests) == (MPI.UNDEFINED, True)


def test_lower_case_words(world):
    x, y = np.ones(3), np.zeros(3)
    assert world.Iallreduce(x, y).wait() is True
    request = world.Iallreduce(x, y)
    while not request.test():
        pass
    assert (y == SIZE).all()


@pytest.mark.parametrize("algorithm", next(iter(mpicoll.algorithms("Allreduce").values())))
def test_only_tested(world, algorithm):
    """All ranks do nothing but test, now and then: that alone must bring every step of an algorithm."""
    call = Case("Allreduce", f"{algorithm}/3", 3000)
    if registry.get("Allreduce", algorithm).refuses(SIZE):
        return
    calculation, request = begin(world, call, HOST)
    for _ in range(20_000):
        if request.Test():
            break
        time.sleep(0.0005)
    calculation.compare()
    assert not request


def broken(comm):
    """Return calls that must raise, by what they say."""
    x, y, p = np.zeros(6), np.zeros(6), comm.size
    return {
        "Iallreduce": (ValueError, lambda: comm.Iallreduce(x, np.zeros(7))),
        "Ibcast": (ValueError, lambda: comm.Ibcast(x, p)),
        "Igather": (ValueError, lambda: comm.Igather(x, None, comm.rank)),
        "Iscatter": (TypeError, lambda: comm.Iscatter(np.zeros(6 * p, "f4"), x, comm.rank)),
        "Iallgatherv": (ValueError, lambda: comm.Iallgatherv(x, [y, [6] * (p + 1)])),
        "Ialltoall": (ValueError, lambda: comm.Ialltoall(np.zeros(p), np.zeros(2 * p))),
        "Ireduce": (TypeError, lambda: comm.Ireduce(x, y.astype("f4"), root=comm.rank)),
        "Ireduce_scatter": (ValueError, lambda: comm.Ireduce_scatter(x, y, [7] * p)),
        "Iscan": (mpicoll.UnsupportedError, lambda: comm.Iscan(x, y, MPI.REPLACE)),
        "Iexscan": (ValueError, lambda: comm.Iexscan(x, y, algorithm="none")),
        "stream": (ValueError, lambda: comm.Iallreduce(x, y, stream=1)),
    }


def test_mistakes_are_raised_at_the_call(world):
    """On one rank alone, and no message is sent: what follows is right, with calls in flight or without."""
    begun = [begin(world, mixed(k), HOST) for k in range(3)]
    for number, (error, call) in enumerate(broken(world).values()):
        if world.rank == number % world.size:
            with pytest.raises(error):
                call()
    check(Ended(world), Case("Allreduce"))
    for call, request in begun:
        wait(request)
        call.compare()


class OperatorError(Exception):
    pass


def failing(a, b):
    raise OperatorError("no such sum")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("end", ["Wait", "Test"])
def test_an_exception_of_the_users_operator(comm, memory, end):
    """It comes out of Wait or Test, never of the call, even where all messages are there, and whenever it is asked."""
    x, y, op = memory.xp.ones(5), memory.xp.zeros(5), mpicoll.Op(failing, commute=True)
    with mpicoll.override(path=memory.path):
        comm.Get_plan("Allreduce", x, y, op)  # the first call with device arrays is collective
        request = late(comm, lambda: comm.Iallreduce(x, y, op, algorithm="one_shot"), lambda _: time.sleep(0.02))
        assert request
        for again in (ENDS[end], Request.Wait, Request.Test, lambda q: Request.Waitany([q])):
            with pytest.raises(OperatorError, match=r"^no such sum$"):
                again(request)
    assert request, "a call that has failed is not complete"
    assert not turns.in_flight
