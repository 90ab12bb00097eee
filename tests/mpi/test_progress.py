"""Who lets calls in flight go on: every call of mpicoll that waits or tests, and messages of its communicators."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

pytestmark = pytest.mark.many_ranks

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.Get_size(), WORLD.Get_rank()
#: elements, so many that a message of them is not sent before it is received
COUNT = 1 << 15


@pytest.mark.mpi(min_size=2)
def test_testing_one_request_advances_all(comm):
    """Rank 0 tests the second one only; the others start it when the first one is complete."""
    x, first, second = np.ones(100), np.zeros(100), np.zeros(100)
    a = comm.Iallreduce(x, first, algorithm="ring")
    if RANK:
        a.Wait()
    b = comm.Iallreduce(x, second, algorithm="ring")
    while not b.Test():
        pass
    a.Wait()
    assert (first == SIZE).all()
    assert (second == SIZE).all()


def received(comm, source):
    buffer = np.zeros(1, "i8")
    comm.Recv(buffer, source)
    return buffer[0]


def started(comm, source, wait):
    buffer = np.zeros(1, "i8")
    wait(comm.Irecv(buffer, source))
    return buffer[0]


def polled(request):
    while not request.Test():
        pass


def probed(comm, source):
    comm.Probe(source)
    return received(comm, source)


def matched(comm, source):
    buffer = np.zeros(1, "i8")
    comm.Mprobe(source).Recv(buffer)
    return buffer[0]


def exchanged(comm, source):
    buffer = np.zeros(1, "i8")
    comm.Sendrecv(np.zeros(1, "i8"), RANK, 9, buffer, source, 0)
    comm.Recv(np.zeros(1, "i8"), RANK, 9)
    return buffer[0]


#: how the way station waits for a number, sent as an array
ARRAYS = {
    "Recv": received,
    "Irecv and Wait": lambda comm, source: started(comm, source, lambda request: request.Wait()),
    "Irecv and Test": lambda comm, source: started(comm, source, polled),
    "Irecv and Waitall": lambda comm, source: started(comm, source, lambda q: mpicoll.request.Request.Waitall([q])),
    "Probe": probed,
    "Mprobe": matched,
    "Sendrecv": exchanged,
}
#: and as an object
OBJECTS = {
    "recv": lambda comm, source: comm.recv(source=source),
    "irecv and wait": lambda comm, source: comm.irecv(source=source).wait(),
    "probe": lambda comm, source: comm.probe(source) and comm.recv(source=source),
    "mprobe": lambda comm, source: comm.mprobe(source).recv(),
}


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("way", [*ARRAYS, *OBJECTS])
def test_a_way_station_that_waits_for_a_message(comm, way):
    """The others send it when they have the broadcast, which goes through the rank that waits."""
    station, x = 1, np.full(COUNT, 7.0 if RANK == 0 else 0.0)
    request = comm.Ibcast(x, root=0, algorithm="ring")
    others = [rank for rank in range(SIZE) if rank != station]
    if station == RANK:
        wait = (ARRAYS | OBJECTS)[way]
        assert [wait(comm, source) for source in others] == others
    request.Wait()
    if station != RANK:
        comm.Send(np.full(1, RANK), station) if way in ARRAYS else comm.send(RANK, station)
    assert (x == 7).all()


#: how the way station waits until a message is taken, which is of this length where it must be long
LONG = np.zeros(8 * COUNT)
SENDS = {
    "Ssend": lambda comm, to: comm.Ssend(LONG[:1], to),
    "Issend and Wait": lambda comm, to: comm.Issend(LONG[:1], to).Wait(),
    "Send": lambda comm, to: comm.Send(LONG, to),
    "Sendrecv": lambda comm, to: comm.Sendrecv(LONG, to, 0, np.zeros(0), RANK, 9),
    "ssend": lambda comm, to: comm.ssend(None, to),
    "issend and wait": lambda comm, to: comm.issend(None, to).wait(),
    "send": lambda comm, to: comm.send(LONG, to),
    "sendrecv": lambda comm, to: comm.sendrecv(LONG, to, 0, None, RANK, 9),
}


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("way", SENDS)
def test_a_way_station_that_waits_until_its_message_is_taken(comm, way):
    """The last rank takes it when it has the broadcast."""
    x = np.full(COUNT, 7.0 if RANK == 0 else 0.0)
    request = comm.Ibcast(x, root=0, algorithm="ring")
    if RANK == 1:
        itself = comm.isend(None, RANK, 9) if way == "sendrecv" else comm.Isend(np.zeros(0), RANK, 9)
        SENDS[way](comm, SIZE - 1)
        if not way.lower().endswith("recv"):
            comm.Recv(np.zeros(64), RANK, 9)
        itself.Wait()
    request.Wait()
    if RANK == SIZE - 1:
        comm.recv(source=1) if way.islower() else comm.Recv(np.empty_like(LONG), 1)
    assert (x == 7).all()
