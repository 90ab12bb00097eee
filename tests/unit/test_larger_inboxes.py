"""Inboxes sized by use: which calls want more, when it is mapped, and what is bound to it."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import struct

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.call import conductor, planning
from unit.recorded_cuda import CALLER, comm, finished, made, mapped, peers, peers_of, x, y


def plan_of(comm, x, y):
    call = conductor.Call(comm._get_context(), "blocking", "Allreduce", (x, y, MPI.SUM), None, None, "")
    return planning.plan_for(call.read(), comm._get_context(), None, "")


@pytest.mark.parametrize(("count", "more"), [(8, False), (20_000, False), (1 << 18, True), (1 << 22, True)])
def test_a_call_with_more_tiles_than_slots_wants_more_memory(made, mapped, comm, peers, count, more):
    """Of inboxes of 8 MiB, two have 496 slots of 448 bytes in lines."""
    from mpicoll.runtime.paths.mapped.protocols import piece_for, wants_more

    plan, larger = plan_of(comm, np.ones(count), np.ones(count)), peers_of(2)
    assert wants_more(plan, peers) is more
    assert piece_for(plan, peers) is peers
    peers.larger = larger
    assert piece_for(plan, peers) is (larger if more else peers)
    peers.larger = None


def test_more_memory_is_mapped_once_for_the_first_call_that_wants_it(made, mapped, comm, peers, monkeypatch):
    """Beside what there is: programs and graphs that were made before stay as they are."""
    from mpicoll.runtime.paths.mapped import path

    larger, asked = peers_of(2), []

    def connect(*given):
        asked.append(given)
        yield lambda: True
        return larger

    monkeypatch.setattr(path, "connect", connect)
    context, long = comm._get_context(), np.ones(1 << 18)
    short, plan = plan_of(comm, np.ones(8), np.ones(8)), plan_of(comm, long, long.copy())
    assert finished(mapped.provide(context, short)) == (None, 0)
    with mpicoll.override(mapped_bytes=8 << 20):
        assert finished(mapped.provide(context, plan)) == (None, 0)  # there may be no more
    for waited in (1, 0):
        assert finished(mapped.provide(context, plan)) == (None, waited)
    assert asked == [(context.comm, 0, 128 << 20, False, peers)]
    assert mapped.remark(context) == "; inboxes of 16M on each GPU"
    peers.larger = None
    assert mapped.remark(context) == "; inboxes of 8M on each GPU"


def test_a_mapping_beside_another_shares_its_order(made, mapped, peers):
    from mpicoll.runtime.paths.mapped.inboxes import Peers

    larger = peers.larger = Peers(0, peers.layout, [3 << 30, 4 << 30], 0, True, peers)
    assert (larger.order, larger.side, larger.hand) == (peers.order, peers.side, peers.hand)
    assert larger.functions is peers.functions
    assert larger.kernels is not peers.kernels
    peers.abort()
    assert [bytes(one._view[:4]) for one in (peers, larger)] == [struct.pack("=I", 1)] * 2
    peers.close(lambda: None)
    assert [one[1] for one in made.taken() if one[0] in ("unmap", "free")] == [4 << 30, 3 << 30, 2 << 30, 1 << 30]
    peers.larger = None


@pytest.fixture
def more(made, mapped, peers, monkeypatch):
    """The larger mapping, which is made for the first call that wants it."""
    from mpicoll.runtime.paths.mapped import path

    larger = peers_of(2)

    def connect(*_):
        yield lambda: True
        return larger

    monkeypatch.setattr(path, "connect", connect)
    yield larger
    peers.larger = None


@pytest.mark.parametrize("errors", ["", "agree"])
def test_a_long_call_is_bound_to_the_larger_mapping_from_the_first_time_on(made, comm, peers, more, errors):
    """With the same arrays or others: a rank that binds anew must not write elsewhere than one that does not."""
    held = [np.ones(1 << 18) for _ in range(4)]
    with mpicoll.override(errors=errors):
        for pair in (held[:2], held[:2], held[2:]):
            comm.Allreduce(*pair)
    assert (len(peers.kernels), len(more.kernels)) == (0, 1)


def test_a_long_call_that_was_captured_first_is_bound_anew(made, comm, peers, more):
    """A capture can map nothing; once there is more, all ranks use it."""
    x, y = np.ones(1 << 18), np.ones(1 << 18)
    comm.Allreduce(x[:8], y[:8])
    made.capturing.add(CALLER)
    comm.Allreduce(x, y)
    assert (len(peers.kernels), len(more.kernels)) == (2, 0)
    bound = [list(one.programs.values()) for one in comm._get_context().cache.calls.values()]
    made.capturing.clear()
    comm.Allreduce(x, y)
    assert [[one.alive for one in programs] for programs in bound] == [[True], [False]]
    made.capturing.add(CALLER)
    for pair in ((x, y), (x.copy(), y.copy())):
        comm.Allreduce(*pair)
    assert (len(peers.kernels), len(more.kernels)) == (2, 2)


@pytest.mark.parametrize("size", [2, 8, 22, 64, 167])
def test_every_number_of_ranks_has_room_for_a_tile(mapped, size):
    from mpicoll.runtime.paths.mapped.inbox_layout import PLACES, InboxLayout, least_bytes
    from mpicoll.runtime.paths.mapped.source import PART

    least = least_bytes(size)
    assert InboxLayout(size, least).inbox_bytes("lines") == PART * PLACES
    assert InboxLayout(size, least - 1).inbox_bytes("lines") < PART * PLACES
