"""Messages that wait while calls are in flight: those go on, and errors and interrupts lose nothing."""

import signal
import threading

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calls_in_flight import LARGE, InFlight

RANK = MPI.COMM_WORLD.Get_rank()
everybody = MPI.COMM_WORLD
TAG = 7

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("late", [(0,), (1,)])
@pytest.mark.parametrize("name", ["Recv", "Irecv", "Sendrecv"])
def test_a_message_that_is_too_long_is_an_error_of_mpi(comm, name, late):
    """As with nothing in flight, and nothing of it is left."""
    flight = InFlight(comm, late)
    if RANK == 0:
        comm.Send(np.ones(4), 1, TAG)
        comm.Send(np.full(2, 5.0), 1, TAG)
    if RANK == 1:
        y = np.zeros(2)
        calls = {
            "Recv": lambda: comm.Recv(y, 0, TAG),
            "Irecv": lambda: comm.Irecv(y, 0, TAG).Wait(),
            "Sendrecv": lambda: comm.Sendrecv(y, MPI.PROC_NULL, 0, y, 0, TAG),
        }
        with pytest.raises(MPI.Exception) as caught:
            calls[name]()
        assert caught.value.Get_error_class() == MPI.ERR_TRUNCATE
        comm.Recv(y, 0, TAG)
        assert y.tolist() == [5.0] * 2
    flight.finish()


@pytest.mark.parametrize("name", ["Recv", "recv", "Probe", "Mprobe"])
def test_what_is_interrupted_can_be_received_again(comm, name):
    """With a call in flight, a handler may raise: the message comes to the next receive."""
    flight = InFlight(comm, late=(0,))
    y = np.zeros(1)
    calls = {
        "Recv": lambda: comm.Recv(y, 0, TAG),
        "recv": lambda: comm.recv(source=0, tag=TAG),
        "Probe": lambda: comm.Probe(0, TAG),
        "Mprobe": lambda: comm.Mprobe(0, TAG),
    }
    if RANK == 1:

        def handler(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGUSR1, handler)
        main = threading.main_thread().ident
        timer = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGUSR1))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            calls[name]()
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    everybody.Barrier()
    if RANK == 0:
        comm.send("thing", 1, TAG) if name == "recv" else comm.Send(np.ones(1), 1, TAG)
    if RANK == 1:
        found = calls[name]()
        assert found == "thing" if name == "recv" else True
        if name == "Mprobe":
            found.Recv(y)
        elif name == "Probe":
            comm.Recv(y, 0, TAG)
        assert name == "recv" or y[0] == 1
    flight.finish()


def large():
    return np.arange(float(LARGE))


#: what rank 0 waits in -> what rank 1 does about it, once a call has completed that goes through rank 0
WAITING = {
    "Send": (lambda c: c.Send(large(), 1, TAG), lambda c: c.Recv(large(), 0, TAG)),
    "Ssend": (lambda c: c.Ssend(np.zeros(1), 1, TAG), lambda c: c.Recv(np.zeros(1), 0, TAG)),
    "Recv": (lambda c: c.Recv(np.zeros(1), 1, TAG), lambda c: c.Send(np.zeros(1), 0, TAG)),
    "Sendrecv": (
        lambda c: c.Sendrecv(np.zeros(1), 1, TAG, np.zeros(1), 1, TAG),
        lambda c: c.Sendrecv(np.zeros(1), 0, TAG, np.zeros(1), 0, TAG),
    ),
    "Sendrecv_replace": (
        lambda c: c.Sendrecv_replace(np.zeros(1), 1, TAG, 1, TAG),
        lambda c: c.Sendrecv(np.zeros(1), 0, TAG, np.zeros(1), 0, TAG),
    ),
    "Probe": (lambda c: (c.Probe(1), c.Recv(np.zeros(1), 1)), lambda c: c.Send(np.zeros(1), 0, TAG)),
    "Mprobe": (lambda c: c.Mprobe(1, TAG).Recv(np.zeros(1)), lambda c: c.Send(np.zeros(1), 0, TAG)),
    "send": (lambda c: c.send(large(), 1, TAG), lambda c: c.recv(None, 0, TAG)),
    "ssend": (lambda c: c.ssend("thing", 1, TAG), lambda c: c.recv(None, 0, TAG)),
    "recv": (lambda c: c.recv(None, 1, TAG), lambda c: c.send("thing", 0, TAG)),
    "sendrecv": (lambda c: c.sendrecv("a", 1, source=1), lambda c: c.sendrecv("b", 0, source=0)),
    "probe": (lambda c: (c.probe(1), c.recv(None, 1)), lambda c: c.send("thing", 0, TAG)),
    "mprobe": (lambda c: c.mprobe(1).recv(), lambda c: c.send("thing", 0, TAG)),
    "Isend": (lambda c: c.Isend(large(), 1, TAG).Wait(), lambda c: c.Recv(large(), 0, TAG)),
    "Issend": (lambda c: c.Issend(np.zeros(1), 1, TAG).Wait(), lambda c: c.Recv(np.zeros(1), 0, TAG)),
    "Irecv": (lambda c: c.Irecv(np.zeros(1), 1, TAG).Wait(), lambda c: c.Send(np.zeros(1), 0, TAG)),
    "Isendrecv": (
        lambda c: c.Isendrecv(np.zeros(1), 1, TAG, np.zeros(1), 1, TAG).Wait(),
        lambda c: c.Sendrecv(np.zeros(1), 0, TAG, np.zeros(1), 0, TAG),
    ),
    "isend": (lambda c: c.isend(large(), 1, TAG).wait(), lambda c: c.recv(None, 0, TAG)),
    "issend": (lambda c: c.issend("thing", 1, TAG).wait(), lambda c: c.recv(None, 0, TAG)),
    "irecv": (lambda c: c.irecv(None, 1, TAG).wait(), lambda c: c.send("thing", 0, TAG)),
    "Test": (lambda c: until(c.Irecv(np.zeros(1), 1, TAG).Test), lambda c: c.Send(np.zeros(1), 0, TAG)),
    "test": (lambda c: until_received(c.irecv(None, 1, TAG)), lambda c: c.send("thing", 0, TAG)),
    "Request.Waitall": (
        lambda c: mpicoll.request.Request.Waitall([c.Irecv(np.zeros(1), 1, TAG)]),
        lambda c: c.Send(np.zeros(1), 0, TAG),
    ),
}


def until(done):
    while not done():
        pass


def until_received(request):
    until(lambda: request.test()[0])


@pytest.mark.parametrize("name", WAITING)
def test_calls_go_on_while_a_message_waits(comm, name):
    """Rank 0 is a way station of a call that the others complete before they answer."""
    flight = InFlight(comm)
    wait, answer = WAITING[name]
    if RANK == 0:
        wait(comm)
    else:
        flight.request.Wait()
    if RANK == 1:
        answer(comm)
    flight.finish()
