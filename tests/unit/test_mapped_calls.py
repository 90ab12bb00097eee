"""Calls on the path mapped, of all forms, from the communicator to what is enqueued."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import struct

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.errors import StalledError
from unit.recorded_cuda import CALLER, OTHER, bound_for, comm, late, made, mapped, peers, peers_of, x, y


def test_blocking_calls(made, comm, x, y):
    """On the caller's stream, bound once for each."""
    for stream in (CALLER, CALLER, CALLER, OTHER, OTHER):
        made.current = stream
        comm.Allreduce(x, y)
    done = [one for one in made.taken() if one[0] in ("launch", "graph", "wait")]
    switch = ("wait", OTHER, comm._get_context().attached["mapped"].order.event.ptr)
    assert done[:3] == [("launch", "collective", CALLER)] * 2 + [("graph", "graph", CALLER)]
    assert done[3:] == [switch] + [("launch", "collective", OTHER)] * 2
    found = comm._get_context().cache.calls.values()
    assert [list(one.programs) for one in found] == [[(id(comm._get_context().slot(0)), s)] for s in (CALLER, OTHER)]


def test_a_call_that_does_not_block_goes_through_its_flight(made, comm, peers, x, y):
    side = peers.side.ptr
    for again in range(3):
        request = comm.Iallreduce(x, y)
        (begin, *_), middle, (*_, end, waited) = made.log[:1], made.log[1:-2], made.log
        request.Wait()
        log = made.taken()
        assert (begin[0], begin[2]) == ("record", CALLER)
        assert middle[0] == ("wait", side, begin[1])
        assert middle[-1][:1] + middle[-1][2:] in [("launch", side), ("captured", made.last), ("graph", side)], again
        assert (end[0], end[2], waited) == ("record", side, ("await", end[1]))
        assert log[-1] == waited  # the caller's stream need not wait, for the host has
    (one,) = comm._get_context().cache.calls.values()
    assert list(one.programs) == [(id(comm._get_context().slot(0)), side)]
    comm.Allreduce(x, y)
    assert len(one.programs) == 2
    assert ("wait", CALLER, peers.order.event.ptr) in made.taken()


def test_a_call_that_does_not_block_waits_for_its_kernel(made, comm, x, y):
    made.ready = False
    request = comm.Iallreduce(x, y)
    assert not request.Test()
    assert made.taken()[-1][0] == "record"
    made.ready = True
    assert request.Test()
    assert [what for what, *_ in made.taken()] == ["await"]


def test_a_persistent_call_is_bound_once(made, comm, peers, x, y):
    side = peers.side.ptr
    request = comm.Allreduce_init(x, y)
    prepared = request._prepared
    assert (prepared.side, prepared.plan.path, prepared.lane) == (side, "mapped", 0)
    assert made.taken() == []
    begun = set()
    for times in range(4):
        made.current = CALLER if times < 3 else OTHER
        request.Start()
        request.Wait()
        log = made.taken()
        assert (log[0][0], log[0][2], log[1]) == ("record", made.current, ("wait", side, log[0][1]))
        kind = ("launch", "launch", "graph", "graph")[times]
        assert [one for one in log if one[0] in ("launch", "graph")] == [(kind, log[2][1], side)]
        assert (log[-2][0], log[-2][2], log[-1]) == ("record", side, ("await", log[-2][1]))
        begun.add(log[0][1])
    assert len(begun) == 4
    request.Free()
    assert prepared.bound.actions == []
    assert not any(call.programs for call in comm._get_context().cache.calls.values())


def test_a_late_rank_ends_a_call_that_does_not_block(made, comm, peers, x, y):
    late(peers, 1)
    context, request = comm._get_context(), comm.Iallreduce(x, y)
    with pytest.raises(StalledError, match="rank 1 did not come"):
        request.Wait()
    assert context.broken
    context.broken = ""


def test_a_communicator_gives_back_what_is_mapped(made, mapped):
    comm = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    comm._get_context().attached |= {"other": "there is none", "mapped": peers_of(2)}
    comm.Free()
    assert made.taken() == [("device",), ("unmap", 2 << 30), ("free", 1 << 30)]


def test_a_stalled_communicator_tells_its_kernels(mapped, comm, peers):
    context = comm._get_context()
    error = context.stalled("a call", "nobody came")
    assert str(error) == "a call; nobody came"
    assert bytes(peers._view[:4]) == struct.pack("=I", 1)
    context.broken = ""


@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce"])
def test_arrays_of_another_device_are_copied_around_the_call(made, comm, x, y, form):
    """Each time anew, and nothing of it is kept."""
    context = comm._get_context()
    context.attached["mapped"] = peers_of(2, device=1)
    side = context.attached["mapped"].side.ptr
    for _ in range(2):
        request = getattr(comm, form)(x, y)
        if request is not None:
            request.Wait()
        log = [one for one in made.taken() if one[0] in ("copy", "launch", "graph", "wait")]
        copies = [one for one in log if one[0] == "copy"]
        assert [(copy[2], copy[4]) for copy in copies] == [(1, 0), (1, 0), (0, 1)]  # to a device, from another
        assert [copies[0][3], copies[1][3], copies[2][1]] == [x.ctypes.data, y.ctypes.data, y.ctypes.data]
        stream = CALLER if request is None else side
        (kernel,) = [place for place, one in enumerate(log) if one[2:] == (stream,) and one[0] in ("launch", "graph")]
        assert log.index(copies[1]) < kernel < log.index(copies[2])
    assert not any(isinstance(key[0], str) for key in context.cache.calls)
    assert all(one.operands.input is None for one in context.cache.calls.values())


def test_calls_that_differ_in_addresses_share_a_kernel(made, comm, peers, monkeypatch):
    """And those that differ in size share what is compiled; another operator or dtype is another kernel."""
    from mpicoll.runtime.paths.mapped import kernel

    sources, write = [], kernel.kernel_source
    monkeypatch.setattr(kernel, "kernel_source", lambda *given: sources.append(write(*given)) or sources[-1])
    held = [np.ones(8) for _ in range(8)]
    for pair in zip(held[::2], held[1::2], strict=True):
        comm.Allreduce(*pair)
    assert (len(peers.kernels), len(peers.functions), len(sources)) == (1, 1, 1)
    comm.Allreduce(held[0][:6], held[1][:6])
    assert (len(peers.kernels), len(peers.functions), len(sources)) == (2, 1, 1)
    comm.Allreduce(held[0], held[1], MPI.MAX)
    comm.Allreduce(held[0].view("f4"), held[1].view("f4"))
    comm.Allreduce(MPI.IN_PLACE, held[1])
    assert len(peers.kernels) == 5
    assert len(sources) == 4


def test_the_arguments_of_a_shared_kernel_are_each_calls_own(made, comm, peers, monkeypatch):
    """The addresses of its arrays come first, and nothing else differs."""
    from mpicoll.runtime.paths.mapped import path

    packed, pack = [], path.packed_argument
    monkeypatch.setattr(path, "packed_argument", lambda *given: packed.append(pack(*given)) or packed[-1])
    held = [np.ones(8) for _ in range(4)]
    comm.Allreduce(held[0], held[1])
    comm.Allreduce(held[2], held[3])
    found = [np.frombuffer(one, "u8", len(one) // 8).tolist() for one in packed]
    assert [sorted(one[:2]) for one in found] == [sorted(a.ctypes.data for a in pair) for pair in (held[:2], held[2:])]
    assert found[0][2:] == found[1][2:]


def test_a_table_of_kernels_that_is_full_is_begun_anew(made, comm, peers, monkeypatch):
    from mpicoll.runtime.paths.mapped import kernel

    monkeypatch.setattr(kernel, "MOST_KERNELS", 2)
    x, y = np.ones(8), np.ones(8)
    for count in (8, 7, 6):
        comm.Allreduce(x[:count], y[:count])
    assert len(peers.kernels) == 1


@pytest.mark.parametrize("in_place", [False, True])
def test_what_must_be_refused_in_a_capture_takes_no_shortcut(made, comm, in_place):
    """A program's own copy would be freed with it, while the graph is still there."""
    x, y = np.ones(8), np.ones(8)
    for _ in range(4):
        comm.Alltoall(MPI.IN_PLACE if in_place else x, y)
    assert bool(comm._identities) is not in_place
    made.capturing.add(CALLER)
    if in_place:
        with pytest.raises(mpicoll.UnsupportedError, match="must be copied around the call"):
            comm.Alltoall(MPI.IN_PLACE, y)
    else:
        comm.Alltoall(x, y)


def test_a_copy_of_a_call_in_place_is_enqueued_before_its_kernel(made, comm):
    """Into memory of the program, on the call's stream; what is received is written where the input was."""
    y = np.ones(8)
    for _ in range(2):
        made.taken()
        comm.Alltoall(MPI.IN_PLACE, y)
        copied, launched = [one for one in made.taken() if one[0] in ("copy", "launch")]
        assert (copied[0], launched) == ("copy", ("launch", "collective", CALLER))
    made.taken()
    comm.Reduce_scatter_block(MPI.IN_PLACE, y)
    launched, copied = [one for one in made.taken() if one[0] in ("copy", "launch")]
    assert (launched[0], copied[0]) == ("launch", "copy")
