"""Calls on the path mapped that do not block: what is enqueued, and who waits for whom."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import ctypes
import gc
import struct
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.errors import StalledError
from mpicoll.recorder import trace
from mpicoll.runtime.arguments import arrays
from unit.recorded_cuda import CALLER, OTHER, bound_for, comm, late, made, mapped, peers, peers_of, x, y


def test_a_first_call_that_does_not_block_goes_through_its_flight(made, comm, peers, x, y):
    side = peers.side.ptr
    comm.Iallreduce(x, y).Wait()
    begin, ordered, *_, launched, end, waited = made.taken()
    assert (begin[0], begin[2], ordered) == ("record", CALLER, ("wait", side, begin[1]))
    assert (launched[0], launched[2]) == ("launch", side)
    assert (end[0], end[2], waited) == ("record", side, ("await", end[1]))
    # the caller's stream need not wait, for the host has


def test_a_call_that_does_not_block_is_enqueued(made, comm, peers, x, y):
    """Once it is remembered; the host waits for nothing, and two events serve any number of calls."""
    side = peers.side.ptr
    comm.Iallreduce(x, y).Wait()
    made.taken()
    used = set()
    for again in range(4):
        request = comm.Iallreduce(x, y)
        begin, ordered, *middle, end = made.taken()
        (kernel,) = [one[0] for one in middle if one[0] in ("launch", "graph")]
        assert kernel == ("launch", "graph", "graph", "graph")[again]
        assert (begin[0], begin[2], ordered) == ("record", CALLER, ("wait", side, begin[1]))
        assert (end[0], end[2]) == ("record", side)
        made.current = CALLER if again < 2 else OTHER
        request.Wait()
        made.current = CALLER
        assert sorted(made.taken()) == [("wait", s, end[1]) for s in ((CALLER,) if again < 2 else (CALLER, OTHER))]
        used |= {begin[1], end[1]}
    assert len(used) == 2
    (one,) = comm._get_context().cache.calls.values()
    assert list(one.programs) == [(id(comm._get_context().slot(0)), side)]
    comm.Allreduce(x, y)
    assert len(one.programs) == 2
    assert ("wait", CALLER, peers.order.event.ptr) in made.taken()


@pytest.mark.parametrize("again", [False, True])
def test_a_call_that_does_not_block_is_tested(made, comm, x, y, again):
    """It is complete when its kernel is."""
    if again:
        comm.Iallreduce(x, y).Wait()
    made.ready = False
    request = comm.Iallreduce(x, y)
    assert not request.Test()
    assert [one for one in made.taken() if one[0] != "captured"][-1][0] == "record"
    made.ready = True
    assert request.Test()
    assert [what for what, *_ in made.taken()] == ([] if again else ["await"])


@pytest.mark.parametrize("again", [False, True])
def test_the_host_can_wait_for_a_call_that_does_not_block(made, comm, peers, x, y, again):
    if again:
        comm.Iallreduce(x, y).Wait()
    request = comm.Iallreduce(x, y)
    ends = [one[1] for one in made.taken() if one[0] == "record"]
    request.Wait(synchronize=True)
    awaited = [one[1] for one in made.taken() if one[0] == "await"]
    assert awaited == ends[-1:] or not again


def test_the_callers_stream_is_captured_by_the_time_of_the_wait(made, comm, x, y):
    """It cannot wait for what is outside of the graph: the host does."""
    comm.Iallreduce(x, y).Wait()
    request = comm.Iallreduce(x, y)
    _, end, _ = made.taken()[-1]
    made.capturing.add(CALLER)
    request.Wait()
    assert made.taken() == [("await", end)]


def test_the_arrays_of_a_request_that_is_let_go_live_until_its_end(made, comm, peers):
    """And no longer; its event is used again."""
    x, y = np.ones(8), np.ones(8)
    gone = weakref.ref(y)
    comm.Iallreduce(x, y).Wait()
    made.ready = False
    comm.Iallreduce(x, y).Free()
    del y
    gc.collect()
    assert gone() is not None
    made.ready = True
    comm.Iallreduce(x, np.ones(8)).Wait()
    comm.Iallreduce(x, np.ones(8)).Wait()
    gc.collect()
    assert gone() is None
    assert not peers.hand.lingering


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
        *_, end, waited = log
        assert (end[0], end[2], waited) == ("record", side, ("wait", made.current, end[1]))
        begun.add(log[0][1])
    assert len(begun) == 1
    request.Free()
    assert prepared.bound.actions == []
    assert not any(call.programs for call in comm._get_context().cache.calls.values())


def test_the_arrays_device_is_current_while_a_call_is_enqueued_and_awaited(made, mapped, monkeypatch):
    """Streams of address 0 are the current device's; the one that is current at Wait waits, too."""
    monkeypatch.setattr(arrays, "device_of", lambda array: 1)
    comm = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    context = comm._get_context()
    context.size, context.attached["mapped"] = 2, peers_of(2, device=1)
    request = comm.Allreduce_init(np.ones(8), np.zeros(8))
    made.taken()
    made.devices.clear()
    request.Start()
    assert set(made.devices) == {1}
    made.taken()
    made.devices.clear()
    request.Wait()
    assert ([what for what, *_ in made.taken()], made.devices, made.device) == (["wait", "wait"], [1, 0], 0)
    request.Free()
    comm.Free()


def test_a_persistent_call_can_be_started_after_a_refusal(made, comm, x, y):
    """Its last call was on a stream that was being captured: another one could not wait for it."""
    request = comm.Allreduce_init(x, y)
    made.current = OTHER
    comm.Allreduce(np.ones(8), np.ones(8))
    made.capturing.add(OTHER)
    made.current = CALLER
    with pytest.raises(mpicoll.UnsupportedError, match="make it before or after the capture"):
        request.Start()
    made.capturing.clear()
    made.taken()
    request.Start()
    request.Wait()
    assert [one[0] for one in made.taken()].count("launch") == 1
    request.Free()


def test_the_callers_stream_lives_until_the_wait(made, comm, x, y):
    held, current = [made.module.cuda.Stream()], made.module.cuda.get_current_stream
    made.current = address = held[0].ptr
    made.module.cuda.get_current_stream = lambda device=0: held[0] if made.current == address else current(device)
    for _ in range(2):
        comm.Iallreduce(x, y).Wait()  # now it is remembered, on this stream
    request, gone = comm.Iallreduce(x, y), weakref.ref(held[0])
    made.module.cuda.get_current_stream, made.current = current, CALLER
    held.clear()
    gc.collect()
    assert gone() is not None
    request.Wait()


def test_calls_in_flight_go_on_while_the_host_waits(made, comm, peers, x, y, monkeypatch):
    """Another rank may launch its kernel only after a message of theirs."""
    from mpicoll.runtime.paths.mapped import enqueued

    waited = []
    monkeypatch.setattr(enqueued, "wait_for", lambda condition: waited.append(condition()))
    monkeypatch.setattr(enqueued, "in_flight", ["another call"])
    comm.Iallreduce(x, y).Wait()
    request = comm.Iallreduce(x, y)
    request.Wait(synchronize=True)
    peers.synchronize()
    assert waited == [True, True]


def test_a_request_can_be_tested_after_its_communicator_was_freed(made, mapped, x, y):
    comm = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    context = comm._get_context()
    context.size, context.attached["mapped"] = 2, peers_of(2)
    comm.Iallreduce(x, y).Wait()
    requests = [comm.Iallreduce(x, y) for _ in range(2)]
    comm.Free()
    assert requests[0].Test()
    assert requests[1].Wait(synchronize=True)


def test_what_was_needed_is_let_go_when_the_host_has_waited(made, comm, peers, x, y):
    comm.Iallreduce(x, y).Wait()
    made.ready = False
    comm.Iallreduce(x, y).Free()
    assert len(peers.hand.lingering) == 1
    made.ready = True
    comm.Synchronize()
    assert not peers.hand.lingering


def test_a_call_that_is_launched_later_is_never_aimed(made, comm, monkeypatch):
    """Its program would have the arrays of the latest call by then."""
    monkeypatch.setattr("mpicoll.runtime.call.conductor.in_flight", ["another call"])
    monkeypatch.setattr("mpicoll.runtime.call.flight.in_flight", ["another call"])
    held = [np.ones(8) for _ in range(6)]
    for pair in zip(held[::2], held[1::2], strict=True):
        comm.Allreduce(*pair)
        comm.Iallreduce(*pair).Wait()
    cache = comm._get_context().cache
    assert not any(one.mobile for one in cache.decided.values())
    assert len(cache.calls) == 3


def test_a_call_is_aimed_at_its_own_arrays_whatever_another_thread_begins(made, comm, monkeypatch):
    """An operation of another communicator comes between the two questions."""
    launched, answers = [], iter([True, True, True, False, True, False])

    def launch(function, *rest):
        packed = ctypes.c_void_p.from_address(rest[8]).value
        launched.append(max((ctypes.c_uint64 * 2).from_address(packed)))

    made.module.cuda.driver.launchKernel = launch
    memory = np.zeros(64)
    comm.Iallreduce(memory[:4], memory[10:14]).Wait()
    monkeypatch.setattr("mpicoll.runtime.call.starting.nothing_waits", lambda: next(answers, True))
    for k in range(1, 4):
        comm.Iallreduce(memory[:4], memory[10 + k : 14 + k]).Wait()
    assert launched == [memory.ctypes.data + 8 * (10 + k) for k in range(4)]


def test_calls_on_the_path_mapped_are_enqueued_for_their_history(made, comm, x, y):
    """The host knows no more of them; an NVTX range is around each launch while there is a trace."""
    for _ in range(3):
        comm.Allreduce(x, y)
        comm.Iallreduce(x, y).Wait()
    request = comm.Allreduce_init(x, y)
    for _ in range(2):
        request.Start()
        request.Wait()
    states = [(one.name, one.state) for one in comm.history()[-9:]]
    once = [("Allreduce", "enqueued"), ("Iallreduce", "enqueued")]
    start = ("Allreduce.Start", "enqueued")
    assert states == [*(once * 3), ("Allreduce_init", "planned"), start, start]
    assert {one.path for one in comm.history()[-9:]} == {"mapped"}
    request.Free()


def test_a_range_is_around_each_launch_while_there_is_a_trace(made, comm, x, y, monkeypatch, tmp_path):
    ranges = SimpleNamespace(RangePush=lambda title: made.log.append(title), RangePop=lambda: made.log.append("end"))
    monkeypatch.setattr(sys.modules["cupy"].cuda, "nvtx", ranges, raising=False)
    monkeypatch.setattr(trace, "_traces", {})
    monkeypatch.setattr(trace.atexit, "register", lambda _: None)
    for _ in range(3):
        comm.Iallreduce(x, y).Wait()
    number = comm._get_context().calls
    with mpicoll.override(trace=tmp_path / "run.json"):
        for form in (comm.Allreduce, comm.Iallreduce):
            requests = []
            for _ in range(2):
                made.taken()
                requests.append(form(x, y))
                number += 1
            log, plan = made.taken(), comm.history(1)[0].plan
            assert log[0] == f"mpicoll.allreduce #{number} {plan} {x.nbytes}", log
            assert log[-1] == "end"
            assert any(kind[0] in ("launch", "graph") for kind in log if isinstance(kind, tuple)), log
            for request in filter(None, requests):
                request.Wait()
