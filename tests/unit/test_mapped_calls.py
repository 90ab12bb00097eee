"""Calls on the path mapped, of all forms, from the communicator to what is enqueued."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import ctypes
import gc
import struct
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.errors import StalledError
from mpicoll.runtime.call import execute
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


def test_calls_on_arrays_that_were_never_there_before(made, comm, peers):
    """The kernel of their signature is aimed at them; what comes again has a program of its own, a graph soon."""
    held = [np.ones(8) for _ in range(8)]
    for pair in zip(held[::2], held[1::2], strict=True):
        comm.Allreduce(*pair)
    cache = comm._get_context().cache
    assert (len(cache.calls), len(cache.decided)) == (1, 1)
    found = []
    for _ in range(5):
        made.taken()
        comm.Allreduce(held[2], held[3])
        found += [one[0] for one in made.taken() if one[0] in ("launch", "graph")]
    assert found == ["launch", "launch", "graph", "graph", "graph"]
    assert len(cache.calls) == 2


def test_the_kernel_is_aimed_at_each_calls_arrays(made, comm, monkeypatch):
    """For all forms; a call that is launched later has its own."""
    memory, launched = np.zeros(64), []

    def launch(function, *rest):
        packed = ctypes.c_void_p.from_address(rest[8]).value
        launched.append(sorted((ctypes.c_uint64 * 2).from_address(packed)))

    made.launch = launch
    made.module.cuda.driver.launchKernel = launch
    for k in range(6):
        comm.Allreduce(memory[k : k + 8], memory[k + 10 : k + 18])
        comm.Iallreduce(memory[k : k + 8], memory[k + 20 : k + 28]).Wait()
    base = memory.ctypes.data
    assert launched == [[base + 8 * k, base + 8 * (k + far)] for k in range(6) for far in (10, 20)]


def test_where_no_more_calls_can_be_remembered_the_kernel_is_aimed_each_time(made, comm, monkeypatch):
    """So that more arrays than that do not drive each other out."""
    held, made_anew, bind_new = [np.ones(8) for _ in range(8)], [], execute.bind_new
    monkeypatch.setattr(execute, "bind_new", lambda *given, **named: made_anew.append(1) or bind_new(*given, **named))
    with mpicoll.override(plan_cache=2):
        for _ in range(6):
            for pair in zip(held[::2], held[1::2], strict=True):
                for _ in range(2):
                    comm.Allreduce(*pair)
    assert len(made_anew) <= 3
    assert len([one for one in made.taken() if one[0] in ("launch", "graph")]) == 48


def test_an_average_is_divided_where_its_arrays_are(made, comm):
    """What comes behind the kernel is bound to addresses, so such a call is not aimed."""
    held = [np.ones(8) for _ in range(4)]
    for pair in zip(held[::2], held[1::2], strict=True):
        comm.Allreduce(*pair, op=mpicoll.AVG)
    assert len(comm._get_context().cache.calls) == 2


def test_a_communicator_gives_back_what_is_mapped(made, mapped):
    comm = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    comm._get_context().attached |= {"other": "there is none", "mapped": peers_of(2)}
    comm.Free()
    assert made.taken() == [("device",), ("unmap", 2 << 30), ("free", 1 << 30)]


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
    for _ in range(2):
        comm.Allreduce(held[2], held[3])
    found = [np.frombuffer(one, "u8", len(one) // 8).tolist() for one in (packed[0], packed[-1])]
    assert [sorted(one[:2]) for one in found] == [sorted(a.ctypes.data for a in pair) for pair in (held[:2], held[2:])]
    assert found[0][2:] == found[-1][2:]


def test_a_table_of_kernels_that_is_full_is_begun_anew(made, comm, peers, monkeypatch):
    from mpicoll.runtime.paths.mapped import kernel

    monkeypatch.setattr(kernel, "MOST_KERNELS", 2)
    x, y = np.ones(8), np.ones(8)
    for count in (8, 7, 6):
        comm.Allreduce(x[:count], y[:count])
    assert len(peers.kernels) == 1


@pytest.fixture
def copies(mapped, monkeypatch):
    """A path whose calls in place have a copy, as where blocks of input and output do not start together."""
    monkeypatch.setattr(type(mapped), "needs_no_copy", lambda *_: False)


def test_what_must_be_refused_in_a_capture_takes_no_shortcut(made, comm, copies):
    """A program's own copy would be freed with it, while the graph is still there."""
    y = np.ones(8)
    for _ in range(4):
        comm.Alltoall(MPI.IN_PLACE, y)
    assert not comm._identities
    made.capturing.add(CALLER)
    with pytest.raises(mpicoll.UnsupportedError, match="must be copied around the call"):
        comm.Alltoall(MPI.IN_PLACE, y)


def test_a_copy_of_a_call_in_place_is_enqueued_before_its_kernel(made, comm, copies):
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


@pytest.mark.parametrize("method", ["Alltoall", "Reduce_scatter_block"])
def test_a_call_in_place_is_its_kernel(made, comm, method):
    """Each thread has read what it writes over: nothing is copied, and the call can be captured."""
    x, y = np.ones(8), np.ones(8)
    for _ in range(3):
        getattr(comm, method)(MPI.IN_PLACE, y)
    assert [one[0] for one in made.taken() if one[0] != "captured"] == ["launch", "launch", "graph"]
    assert comm._identities
    made.capturing.add(CALLER)
    getattr(comm, method)(MPI.IN_PLACE, y)
    getattr(comm, method)(MPI.IN_PLACE, x)
    assert [one[0] for one in made.taken()] == ["captured"] * 2


def test_what_is_captured_asks_no_other_stream(made, comm):
    """The question would end a capture in CUDA's global mode, as PyTorch's are."""
    held = [np.ones(8) for _ in range(10)]
    for stream in (OTHER, CALLER, OTHER):
        made.current = stream
        comm.Allreduce(held[0], held[1])
    assert made.asked
    made.current = CALLER
    made.capturing.add(CALLER)
    made.asked.clear()
    for pair in zip(held[::2], held[1::2], strict=True):
        for _ in range(3):
            comm.Allreduce(*pair)
    assert not made.asked
    assert len([one for one in made.taken() if one[0] == "captured" and one[2] == CALLER]) == 15
