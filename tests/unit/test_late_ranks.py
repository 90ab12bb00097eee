"""Ranks that do not come to a kernel of the path mapped: who tells, and when."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import struct

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.errors import StalledError
from unit.recorded_cuda import CALLER, comm, late, made, mapped, peers, peers_of, x, y


def synchronized_in_vain(comm, peers):
    """A kernel has noted that rank 1 did not come; that is raised."""
    context = comm._get_context()
    late(peers, 1)
    with pytest.raises(StalledError, match="waiting in its kernel for 5 s; rank 1 did not come"):
        comm.Synchronize()
    context.broken = ""


def test_a_rank_that_does_not_come_is_told_by_a_thread(made, comm, peers, x, y, caplog, monkeypatch):
    """Once, also where no call is made any more; the next one raises."""
    from mpicoll.runtime.paths.mapped import watchdog

    context = comm._get_context()
    monkeypatch.setattr(watchdog, "PAUSE", 0.001)
    with mpicoll.override(timeout=5):
        for _ in range(4):
            comm.Allreduce(x, y)
        (thread,) = watchdog._threads
        late(peers, 1)
        thread.join(10)
    assert not thread.is_alive()
    (told,) = [one.getMessage() for one in caplog.records]
    assert "rank 0, waiting in its kernel for 5 s; rank 1 did not come" in told
    with pytest.raises(StalledError, match="rank 1 did not come"), mpicoll.override(timeout=5):
        comm.Allreduce(x, y)
    context.broken = ""


def test_the_host_can_wait_for_all_calls(made, comm, peers, x, y):
    """On the stream of the last one, which comes after all others; it raises what they have met."""
    comm.Synchronize()
    with mpicoll.override(timeout=5):
        comm.Allreduce(x, y)
        comm.Iallreduce(x, y).Wait()
    made.taken()
    comm.Synchronize()
    marked, waited = made.taken()
    assert (marked[0], marked[2], waited) == ("record", peers.side.ptr, ("await", marked[1]))
    synchronized_in_vain(comm, peers)


def test_calls_with_a_time_limit_take_the_shortcut(made, comm, peers, x, y):
    """And look there, too."""
    context = comm._get_context()
    with mpicoll.override(timeout=5):
        for _ in range(4):
            comm.Allreduce(x, y)
        assert comm._identities
        assert made.taken()
        late(peers, 1)
        with pytest.raises(StalledError, match="rank 1 did not come"):
            comm.Allreduce(x, y)
    assert not made.taken()
    context.broken = ""


def test_a_late_rank_ends_a_call_that_does_not_block(made, comm, peers, x, y):
    context = comm._get_context()
    with pytest.raises(StalledError, match="rank 1 did not come"), mpicoll.override(timeout=5):
        made.ready = False
        request = comm.Iallreduce(x, y)
        late(peers, 1)
        made.ready = True
        request.Wait()
    assert context.broken
    context.broken = ""


def test_a_stalled_communicator_tells_its_kernels(mapped, comm, peers):
    context = comm._get_context()
    error = context.stalled("a call", "nobody came")
    assert str(error).splitlines()[0] == "a call; nobody came"
    assert bytes(peers._view[:4]) == struct.pack("=I", 1)
    context.broken = ""


def test_a_communicator_whose_kernel_has_waited_in_vain_is_freed_without_the_others(made, mapped):
    """Nobody has noticed so far; a rank that did not come then may not come now."""
    comm = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    context = comm._get_context()
    context.size, context.attached["mapped"] = 2, peers_of(2)
    with mpicoll.override(timeout=5):
        comm.Allreduce(np.ones(8), np.ones(8))
    late(context.attached["mapped"], 1)
    made.taken()
    comm.Free()
    assert "rank 0, waiting in its kernel for 5 s" in context.broken
    assert made.taken() == []


def test_a_captured_kernel_with_a_time_limit_is_watched(made, comm, peers, x, y):
    """A replay may wait in vain; nothing but its note tells."""
    comm.Allreduce(x, y)
    made.capturing.add(CALLER)
    with mpicoll.override(timeout=5):
        comm.Allreduce(x, y)
    made.capturing.clear()
    synchronized_in_vain(comm, peers)


def test_waiting_for_no_calls(made, mapped):
    """Local, before the first call, too."""
    comm = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    comm.Synchronize()
    assert comm._context is None
    comm.Free()
