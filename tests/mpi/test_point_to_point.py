"""Messages on a communicator: as mpi4py's, whether calls are in flight or not."""

import inspect

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calls_in_flight import LARGE, InFlight
from mpi.exchanges import BUFFERS, LEFT, NOBODY, OBJECTS, TAG
from mpicoll.point_to_point import PointToPoint
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
everybody = MPI.COMM_WORLD
several = pytest.mark.mpi(min_size=2)
#: elements of a message that MPI sends at once
SMALL = 5


@pytest.fixture(scope="module")
def comms():
    """A communicator for messages, and one for calls."""
    made = [mpicoll.Communicator(everybody.Dup()) for _ in range(2)]
    yield made
    for comm in made:
        comm.Free()


@pytest.fixture
def comm(comms):
    return comms[0]


@pytest.fixture(params=["nothing", "calls", "calls on most ranks"])
def messages(request, comms):
    """A communicator for messages, with nothing in flight, or with a call that cannot complete meanwhile."""
    if request.param == "nothing":
        yield comms[0]
        return
    late = (SIZE - 1,) if request.param == "calls on most ranks" else (0,)
    flight = InFlight(comms[1], late)
    everybody.Barrier()
    assert bool(turns.in_flight) is (RANK not in late)
    yield comms[0]
    flight.finish()


@pytest.mark.parametrize("how", BUFFERS)
def test_a_buffer_goes_round(messages, how):
    for count in (0, SMALL, LARGE):
        if SIZE == 1 and "," in how:
            return  # nobody is there to receive
        x, y = np.arange(count) + 1000.0 * RANK, np.full(count, -1.0)
        BUFFERS[how](messages, x, y)
        assert (y == np.arange(count) + 1000.0 * LEFT).all()


@pytest.mark.parametrize("how", OBJECTS)
def test_an_object_goes_round(messages, how):
    for size in (1, LARGE):
        if SIZE == 1 and "," in how:
            return
        assert OBJECTS[how](messages, {"rank": RANK, "data": "x" * size}) == {"rank": LEFT, "data": "x" * size}


def test_nobody_sends_nothing(messages):
    for name, call in NOBODY.items():
        x = np.full(3, 4.0)
        wanted = call(MPI.Intracomm(messages), x.copy())
        assert call(messages, x) == wanted, name
        assert x.tolist() == [4.0] * 3, name


def test_the_status_of_a_message_from_nobody(messages):
    for name in ("Recv", "Probe", "Mprobe"):
        status, given = MPI.Status(), (np.zeros(3),) if name == "Recv" else ()
        getattr(messages, name)(*given, MPI.PROC_NULL, MPI.ANY_TAG, status)
        assert (status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)) == (MPI.PROC_NULL, MPI.ANY_TAG, 0)


@several
def test_messages_from_anybody_are_told_apart(messages):
    """Rank 0 receives from all, in the order in which they come; each says who it was."""
    if RANK:
        messages.Send(np.full(RANK, float(RANK)), 0, RANK)
        messages.send([RANK], 0, 100 + RANK)
        return
    heard = []
    for _ in range(SIZE - 1):
        y, status = np.zeros(SIZE), MPI.Status()
        messages.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        source = status.Get_source()
        messages.Recv(y, source, source, status)
        assert status.Get_count(MPI.DOUBLE) == source == status.Get_tag()
        assert y.tolist() == [source] * source + [0] * (SIZE - source)
        assert messages.recv(source=MPI.ANY_SOURCE, tag=100 + source, status=status) == [source]
        assert status.Get_source() == source
        heard.append(source)
    assert sorted(heard) == list(range(1, SIZE))


def mprobed(c, y, tag):
    c.Mprobe(0, tag).Recv(y)


def probed(c, y, tag):
    status = MPI.Status()
    c.Probe(0, tag, status)
    c.Recv(y, status.Get_source(), status.Get_tag())


#: ways to receive a message of a tag from rank 0
OF_A_TAG = {
    "Recv": lambda c, y, tag: c.Recv(y, 0, tag),
    "Irecv": lambda c, y, tag: c.Irecv(y, 0, tag).Wait(),
    "Probe": probed,
    "Mprobe": mprobed,
    "Sendrecv": lambda c, y, tag: c.Sendrecv(y, MPI.PROC_NULL, 0, y, 0, tag),
    "Sendrecv_replace": lambda c, y, tag: c.Sendrecv_replace(y, MPI.PROC_NULL, 0, 0, tag),
    "recv": lambda c, y, tag: y.fill(c.recv(None, 0, tag)),
    "irecv": lambda c, y, tag: y.fill(c.irecv(None, 0, tag).wait()),
    "mprobe": lambda c, y, tag: y.fill(c.mprobe(0, tag).recv()),
    "sendrecv": lambda c, y, tag: y.fill(c.sendrecv(None, MPI.PROC_NULL, 0, None, 0, tag)),
}


@several
def test_the_tag_is_the_one_that_was_asked_for(messages):
    """The message that was sent last is received first."""
    for how, receive in OF_A_TAG.items():
        for tag in (1, 2) if RANK == 0 else ():
            (messages.send(tag, 1, tag) if how.islower() else messages.Send(np.full(1, float(tag)), 1, tag))
        for tag in (2, 1) if RANK == 1 else ():
            y = np.zeros(1)
            receive(messages, y, tag)
            assert y[0] == tag, how


@several
def test_messages_do_not_overtake_each_other(messages):
    """Of one sender and tag, by whatever method."""
    if RANK == 0:
        messages.Send(np.full(SMALL, 0.0), 1, TAG)
        messages.Isend(np.full(LARGE, 1.0), 1, TAG).Wait()
        messages.send("two", 1, TAG)
        messages.Ssend(np.full(SMALL, 3.0), 1, TAG)
        messages.isend("four", 1, TAG).wait()
    if RANK == 1:
        small, large = np.zeros(SMALL), np.zeros(LARGE)
        messages.Recv(small, 0, TAG)
        assert small[0] == 0
        messages.Irecv(large, 0, TAG).Wait()
        assert large[-1] == 1
        assert messages.recv(source=0, tag=TAG) == "two"
        messages.Mprobe(0, TAG).Recv(small)
        assert small[0] == 3
        assert messages.irecv(source=0, tag=TAG).wait() == "four"


def test_arguments_are_those_of_mpi4py():
    """Names, order and defaults."""
    for name in [name for name in vars(PointToPoint) if not name.startswith("_")]:
        ours = inspect.signature(getattr(PointToPoint, name)).parameters.values()
        theirs = inspect.signature(getattr(MPI.Comm, name)).parameters.values()
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs], name
        assert getattr(mpicoll.Communicator, name) is vars(PointToPoint)[name]


def test_all_that_waits_for_a_message_is_served():
    """What mpi4py has, and what is here; the rest returns at once, or is about windows, files and groups."""
    waits = {
        name
        for name in dir(MPI.Comm)
        if name.lower().startswith(("send", "ssend", "rsend", "recv", "probe", "mprobe", "isend", "irecv", "issend"))
        or name.lower().startswith(("irsend", "ibsend"))
    }
    waits -= {"Send_init", "Ssend_init", "Rsend_init", "Recv_init"}  # MPI's persistent requests, which are its own
    assert waits <= set(vars(PointToPoint))


@pytest.mark.mpi(min_size=2)
def test_a_message_with_nothing_in_flight_is_mpi4pys_own(monkeypatch, comm):
    """Nothing of ours runs: what would is made to fail."""
    comm.Barrier()
    assert not turns.in_flight
    for name in ("wait_for", "complete", "found_message"):
        monkeypatch.setattr(f"mpicoll.point_to_point.{name}", None)
    y = np.zeros(1)
    if RANK == 0:
        comm.Send(np.ones(1), 1)
        comm.send("thing", 1)
        comm.Sendrecv(np.ones(1), 1, 0, y, 1)
    if RANK == 1:
        comm.Probe()
        comm.Recv(y)
        comm.mprobe().recv()
        comm.Sendrecv(np.ones(1), 0, 0, y, 0)
