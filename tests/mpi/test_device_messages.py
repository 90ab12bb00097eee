"""Messages of device arrays: in order with their stream, direct and staged; on the made-up device."""

import sys

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calls_in_flight import InFlight
from mpi.exchanges import BUFFERS, LEFT, RIGHT, TAG, waited
from mpi.made_up_device import install
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.mpi.cuda_aware import Awareness
from mpicoll.runtime.point_to_point import parcel
from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
COUNTS = (0, 1, 5000)
JUNK = -7.0
several = pytest.mark.mpi(min_size=2)

#: more ways than host arrays have: by requests that are started again, buffered, and replacing
MORE = {
    "Sendrecv_replace": lambda c, x, y: (copied(y, x), c.Sendrecv_replace(y, RIGHT, TAG, LEFT, TAG)),
    "Isendrecv_replace": lambda c, x, y: (copied(y, x), c.Isendrecv_replace(y, RIGHT, TAG, LEFT, TAG).Wait()),
    "Bsend": lambda c, x, y: (c.Bsend(x, RIGHT, TAG), c.Recv(y, LEFT, TAG)),
    "Ibsend": waited(lambda c, x, y: [c.Ibsend(x, RIGHT, TAG), c.Irecv(y, LEFT, TAG)]),
    "persistent": lambda c, x, y: persistent(c, x, y),
    "by a list": lambda c, x, y: c.Sendrecv([x, len(x), MPI.DOUBLE], RIGHT, TAG, [y, MPI.DOUBLE], LEFT, TAG),
}
WAYS = BUFFERS | MORE


class DeviceArray(np.ndarray):
    """An array that stands for one in a device's memory."""

    __cuda_array_interface__ = None


def enqueue(made_up, call):
    made_up.streams.enqueue(made_up.streams.current, lambda: call() or True)


def copied(target, source):
    """Copy on the stream, as CuPy does."""
    runtime = sys.modules["cupy"].cuda.runtime
    runtime.memcpyAsync(target.ctypes.data, source.ctypes.data, source.nbytes, 4, 0)


def persistent(comm, x, y):
    """Start both three times; the last array goes and comes."""
    sending, coming = comm.Send_init(x, RIGHT, TAG), comm.Recv_init(y, LEFT, TAG)
    for _ in range(3):
        sending.Startall([coming, sending])
        with pytest.raises(RuntimeError, match="Send_init: the persistent request is still active"):
            sending.Start()
        sending.Wait()
        while not coming.Test():
            pass
    sending.Free()


def on_device(array):
    return array.view(DeviceArray)


@pytest.fixture(params=["early", "late", "random"])
def made_up(request, monkeypatch):
    return install(monkeypatch, request.param)


@pytest.fixture(params=["direct", "staged", "unmappable"])
def comm(request, made_up, monkeypatch):
    """A communicator whose messages take a path; what cannot be mapped is staged."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    comm._get_context().cuda_aware = Awareness(request.param != "staged", "made up")
    monkeypatch.setattr(parcel, "can_be_mapped", lambda address: request.param != "unmappable")
    memory = MPI.Alloc_mem(1 << 20)
    MPI.Attach_buffer(memory)
    yield comm
    MPI.Detach_buffer()
    MPI.Free_mem(memory)
    made_up.streams.finish()
    comm.Free()


@pytest.fixture
def at_once(made_up):
    """Only where work is done at once, as packing always is on the made-up device."""
    if made_up.streams.manner != "early":
        pytest.skip("packing would come before what it packs")


@pytest.fixture(params=["nothing", "calls"])
def in_flight(request, made_up, comm):
    """Nothing in flight, or a call of another communicator that cannot complete meanwhile."""
    if request.param == "nothing":
        yield
        return
    other = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    with mpicoll.override(path="staged"):
        flight = InFlight(other, (0,))
    MPI.COMM_WORLD.Barrier()
    yield
    MPI.COMM_WORLD.Barrier()
    with mpicoll.override(path="staged"):
        (flight.request or flight.start()).Wait()
    made_up.streams.finish()
    other.Free()


@pytest.mark.parametrize("how", WAYS)
def test_a_message_comes_after_what_is_on_its_stream(made_up, comm, in_flight, how):
    """What is sent was written on the stream, what is received into was used there; later work sees what has come."""
    if SIZE == 1 and ("," in how or how == "Bsend"):
        pytest.skip("nobody is there to receive")
    for count in COUNTS:
        x, y, got = (on_device(np.full(count, JUNK)) for _ in range(3))
        enqueue(made_up, lambda x=x, count=count: x.__setitem__(slice(None), np.arange(count) + 1000.0 * RANK))
        enqueue(made_up, lambda y=y: y.fill(JUNK))
        WAYS[how](comm, x, y)
        copied(got, y)
        enqueue(made_up, lambda x=x: x.fill(JUNK))
        made_up.streams.finish()
        assert (got == np.arange(count) + 1000.0 * LEFT).all()


@several
def test_either_end_may_be_on_the_host(comm):
    """Also with a communicator of mpi4py's own."""
    plain = MPI.Intracomm(comm)
    x, y = np.arange(40.0) + RANK, np.zeros(40)
    for sender, ours, receiver, theirs in (
        (comm, on_device(x), plain, y),
        (plain, x, comm, on_device(y)),
        (comm, on_device(x), comm, y),
    ):
        y[:] = 0
        if RANK == 0:
            sender.Send(ours, 1, TAG)
        if RANK == 1:
            receiver.Recv(theirs, 0, TAG)
            assert (y == np.arange(40.0)).all()


@several
def test_a_status_says_how_much_has_come(made_up, comm, at_once):
    """The rest of a longer array stays as it was, strided or not."""
    for step in (1, 2):
        whole = on_device(np.full(40, JUNK))
        y = whole[::step]
        if RANK == 0:
            comm.Send(on_device(np.arange(7.0)), 1, TAG)
        if RANK == 1:
            status = MPI.Status()
            request = comm.Irecv(y, MPI.ANY_SOURCE, MPI.ANY_TAG)
            request.Wait(status)
            made_up.streams.finish()
            told = status.Get_source(), status.Get_tag(), status.Get_count(MPI.DOUBLE)
            assert told == (0, TAG, 7)
            assert y[:8].tolist() == [*np.arange(7.0), JUNK]
            assert (whole[1::2] == JUNK).all() or step == 1


@several
def test_strided_arrays_and_all_dtypes(made_up, comm, at_once):
    for dtype in ("?", "i1", "u2", "f2", "f4", "c16"):
        x, y = on_device(np.zeros((6, 8), dtype)), on_device(np.zeros((8, 12), dtype))
        x[:] = np.arange(48).reshape(6, 8) % 7 + RANK % 2
        comm.Sendrecv(x.T[::2], RIGHT, TAG, y[::2, ::2], LEFT, TAG)
        made_up.streams.finish()
        wanted = (np.arange(48).reshape(6, 8) % 7 + LEFT % 2).astype(dtype)
        assert (y[::2, ::2] == wanted.T[::2]).all()
        assert not y[1::2].any()


@several
def test_requests_of_device_messages_are_mpi_requests(comm, at_once):
    """MPI's own functions wait for them, and another thread brings what has come to its array."""
    x, y = on_device(np.arange(3000.0) + RANK), on_device(np.zeros(6000))
    strided = y[::2]
    MPI.Request.Waitall([comm.Irecv(strided, LEFT, TAG), comm.Isend(x, RIGHT, TAG)])
    assert (strided == np.arange(3000.0) + LEFT).all()
    assert not turns.in_flight


@several
def test_a_request_that_is_dropped_leaves_the_message_whole(comm, at_once):
    """What it reads lives until the message has gone."""
    x = on_device(np.arange(200_000.0))
    if RANK == 0:
        comm.Isend(x[::2], 1, TAG)
        for _ in range(5):
            comm.Isend(np.zeros(1), MPI.PROC_NULL).Wait()
            np.full(100_000, JUNK)
    comm.Barrier()
    if RANK == 1:
        y = on_device(np.zeros(100_000))
        comm.Recv(y, 0, TAG)
        assert (y == np.arange(0, 200_000.0, 2)).all()
    comm.Barrier()


@several
def test_a_message_that_is_too_long_is_an_error_of_the_receivers(comm):
    if RANK == 0:
        comm.Send(on_device(np.zeros(10)), 1, TAG)
    if RANK == 1:
        with pytest.raises(MPI.Exception):
            comm.Irecv(on_device(np.zeros(20))[::4], 0, TAG).Wait()
    comm.Barrier()
    assert not turns.in_flight


def test_what_is_captured_is_refused(made_up, comm):
    x = on_device(np.zeros(3))
    made_up.streams.capturing.add(0)
    try:
        for call in (comm.Send, comm.Isend):
            with pytest.raises(UnsupportedError, match=r"captured into a CUDA graph.*with mpicoll.group"):
                call(x, MPI.PROC_NULL)
    finally:
        made_up.streams.capturing.discard(0)


def test_nobody_sends_nothing(comm):
    x, status = on_device(np.full(3, 4.0)), MPI.Status()
    comm.Send(x, MPI.PROC_NULL)
    comm.Recv(x, MPI.PROC_NULL, TAG, status)
    assert (status.Get_source(), status.Get_count(MPI.BYTE)) == (MPI.PROC_NULL, 0)
    assert x.tolist() == [4.0] * 3
