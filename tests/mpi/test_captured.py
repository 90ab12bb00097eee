"""Calls on a stream that is being captured into a CUDA graph, on a device that is made up."""

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.made_up_device import install
from mpicoll.runtime.mpi.cuda_aware import Awareness

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
pytestmark = pytest.mark.ranks(1, 2, 3)
RANKS = SIZE * (SIZE + 1) // 2


@pytest.fixture(params=["early", "late", "random"])
def made_up(request, monkeypatch):
    return install(monkeypatch, request.param)


@pytest.fixture(params=["direct", "staged"])
def path(request):
    with mpicoll.override(path=request.param):
        yield request.param


@pytest.fixture
def comm(made_up, monkeypatch):
    from mpicoll.runtime.paths import mirror

    monkeypatch.setattr(mirror, "can_be_mapped", lambda address: True)
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    comm._get_context().cuda_aware = Awareness(True, "made up")
    yield comm
    made_up.streams.capturing.clear()
    made_up.streams.finish()
    comm.Free()


@pytest.fixture
def stream(made_up):
    import cupy

    with (found := cupy.cuda.Stream()):
        yield found


def refused(made_up, stream, reason, call):
    """Make a call while its stream is captured: it is refused, and nothing was done."""
    streams, done = made_up.streams, len(made_up.streams.log)
    streams.capturing.add(stream.ptr)
    with pytest.raises(mpicoll.UnsupportedError, match=f"captured into a CUDA graph.*{reason}"):
        call()
    streams.capturing.clear()
    assert (streams.graph, len(streams.log)) == ([], done)


def usable(made_up, comm, x, y):
    y.fill(0)
    comm.Allreduce(x, y)
    made_up.streams.finish()
    assert (y == RANKS).all()


@pytest.mark.parametrize("algorithm", [None, "ring@direct"])
def test_a_path_of_messages_is_refused_with_the_reason(made_up, comm, path, stream, algorithm):
    x, y = np.full(1000, RANK + 1.0), np.zeros(1000)
    for _ in range(2):
        reason = f"that is not offered: path='{path}' is set"
        refused(made_up, stream, reason, lambda: comm.Allreduce(x, y, algorithm=algorithm))
        usable(made_up, comm, x, y)


def test_the_reason_is_named_where_the_path_mapped_is_there(made_up, comm, stream, monkeypatch):
    """A setting, or the call, asks for messages."""
    monkeypatch.setitem(comm._get_context().attached, "mapped", SimpleNamespace(device=0, close=lambda meet: None))
    monkeypatch.setitem(comm._get_context().attached, "bridged", "all ranks are on one host")
    x, y = np.full(1000, RANK + 1.0), np.zeros(1000)
    with mpicoll.override(path="staged"):
        refused(made_up, stream, "not offered: path='staged' is set", lambda: comm.Allreduce(x, y))
    with pytest.raises(mpicoll.UnsupportedError, match=r"'direct' cannot serve .* captured into a CUDA graph"):
        made_up.streams.capturing.add(stream.ptr)
        comm.Allreduce(x, y, algorithm="ring@direct")


def test_the_first_call_with_device_arrays_is_refused(made_up, comm, stream):
    x, y = np.full(1000, RANK + 1.0), np.zeros(1000)
    for call in (comm.Allreduce, lambda x, y: comm.Get_plan("Allreduce", x, y)):
        refused(made_up, stream, "first call with device arrays", lambda call=call: call(x, y))
    with mpicoll.override(path="direct"):
        usable(made_up, comm, x, y)


def test_calls_that_do_not_block_are_refused(made_up, comm, path, stream):
    """New ones and known ones, and a persistent one that was prepared outside."""
    x, y = np.full(1000, RANK + 1.0), np.zeros(1000)
    prepared = comm.Allreduce_init(x, y)
    for _ in range(2):
        for call in (prepared.Start, lambda: comm.Iallreduce(x, y), lambda: comm.Allreduce_init(x, y)):
            refused(made_up, stream, "make a blocking one", call)
        prepared.Start()
        prepared.Wait()
        comm.Iallreduce(x, y).Wait()
        usable(made_up, comm, x, y)
    prepared.Free()


@pytest.mark.parametrize("step", [1, 2], ids=["contiguous", "strided"])
def test_a_call_in_flight_when_the_capture_begins_ends_outside_of_the_graph(made_up, comm, path, stream, step):
    x, y = np.full(2000, RANK + 1.0)[::step], np.zeros(2000)[::step]
    for _ in range(2):
        y.fill(0)
        request = comm.Iallreduce(x, y)
        made_up.streams.capturing.add(stream.ptr)
        request.Wait()
        made_up.streams.capturing.clear()
        assert made_up.streams.graph == []
        made_up.streams.finish()
        assert (y == RANKS).all()


def test_arrays_on_the_host_are_not_concerned(made_up, comm, stream, monkeypatch):
    from mpicoll.runtime.arguments import arrays

    monkeypatch.setattr(arrays, "device_of", lambda array: -1)
    made_up.streams.capturing.add(stream.ptr)
    usable(made_up, comm, np.full(10, RANK + 1.0), np.zeros(10))
    comm.Barrier()
    assert made_up.streams.graph == []


def test_an_array_is_exported_to_the_stream_of_the_call(made_up, comm, path, stream):
    """Its library orders it with the current stream, which may not be enqueued on, or not be captured."""
    import cupy

    seen = []

    class Exporter:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **named):
            seen.append(made_up.streams.current)
            return np.full(10, RANK + 1.0).__dlpack__(**named)

    other, y = cupy.cuda.Stream(), np.zeros(10)
    comm.Allreduce(Exporter(), y, stream=other)
    comm.Allreduce(Exporter(), y)
    made_up.streams.finish()
    assert seen == [other.ptr, stream.ptr]
    assert (y == RANKS).all()
