"""The history of a communicator: what it says of calls of all forms, while they are made and afterwards."""

import atexit
import gc
import json
import threading
import time
import weakref
from itertools import pairwise

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.raising import raised
from mpicoll.recorder import trace
from mpicoll.recorder.recorder import LAST

RANK, SIZE = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()


def arrays(count=40, dtype="f4"):
    return np.ones(count, dtype), np.zeros(count, dtype)


def told(comm, n=LAST):
    return [(one.sequence, one.name, one.state) for one in comm.history(n)]


def test_there_is_none_before_the_first_call(comm):
    assert comm.history() == []
    assert str(comm.history()).split()[0] == "#"


def test_blocking_calls_first_remembered_and_by_the_shortcut(comm):
    x, y = arrays()
    before = time.monotonic()
    for _ in range(5):
        comm.Allreduce(x, y, op=MPI.MAX, algorithm="ring")
    comm.Barrier()
    comm.Bcast(x[:7], root=SIZE - 1)
    history = comm.history()
    assert [(one.sequence, one.name, one.state) for one in history] == [
        *((number, "Allreduce", "complete") for number in range(1, 6)),
        (6, "Barrier", "complete"),
        (7, "Bcast", "complete"),
    ]
    for one in history[:5]:
        assert (one.count, one.nbytes, one.dtype, one.op, one.root) == (40, 160, "float32", "MAX", None)
        assert (one.form, one.algorithm, one.path) == ("blocking", "ring", "host")
    assert (history[6].root, history[6].count) == (SIZE - 1, 7)
    begins = [one.begin for one in history]
    assert begins == sorted(begins)
    assert before < begins[0] < begins[-1] < time.monotonic()
    assert history[0].seconds > 0, "the end of a call that is decided is known"
    assert [one.seconds for one in history[2:5]] == [None] * 3, "the shortcut has no time for it"


def test_calls_that_do_not_block_run_until_they_end(comm):
    x, y = arrays()
    for _ in range(3):  # planned, remembered, found by the shortcut
        MPI.COMM_WORLD.Barrier()
        request = comm.Iallreduce(x, y)
        request.Wait()
    assert told(comm) == [(number, "Iallreduce", "complete") for number in (1, 2, 3)]
    assert all(0 < one.seconds < 60 for one in comm.history())


@pytest.mark.mpi(min_size=2)
def test_a_call_that_waits_for_another_rank_is_running(comm):
    x, y = arrays()
    for again in (0, 1, 2):
        if RANK == SIZE - 1:
            MPI.COMM_WORLD.Barrier()
        request = comm.Iallreduce(x, y, algorithm="ring")
        if RANK != SIZE - 1:
            assert told(comm)[again:] == [(again + 1, "Iallreduce", "running" if again else "planning")]
            MPI.COMM_WORLD.Barrier()
        request.Wait()
        assert told(comm)[again:] == [(again + 1, "Iallreduce", "complete")]


def test_persistent_calls_and_their_starts(comm):
    x, y = arrays()
    request = comm.Allreduce_init(x, y)
    assert told(comm) == [(1, "Allreduce_init", "planned")]
    for _ in range(2):
        request.Start()
        request.Wait()
    comm.Barrier()
    request.Start()
    request.Wait()
    start = (1, "Allreduce.Start", "complete")
    assert told(comm) == [(1, "Allreduce_init", "planned"), start, start, (2, "Barrier", "complete"), start]
    assert all(one.seconds > 0 for one in comm.history())
    request.Free()


def test_calls_of_packed_arrays_are_there_too(comm):
    x, y = np.ones((8, 8)), np.zeros((8, 8))
    for _ in range(2):
        comm.Allreduce(x[:, ::2], y[:, ::2])
        comm.Iallreduce(x[:, ::2], y[:, ::2]).Wait()
    request = comm.Allreduce_init(x[:, ::2], y[:, ::2])
    request.Start()
    request.Wait()
    assert [one.count for one in comm.history()] == [32] * 6
    assert {one.state for one in comm.history()} == {"complete", "planned"}
    request.Free()


@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce"])
@pytest.mark.mpi(min_size=2)
def test_a_call_that_raises_has_failed(form):
    """Whether it is planned, remembered or found by the shortcut; on each rank."""
    breaks = []

    def operate(a, b):
        if breaks:
            raise KeyError("by hand")
        return a + b

    op = mpicoll.Op(operate, commute=True)
    for times in (0, 1, 2, 5):
        comm, (x, y) = mpicoll.Communicator(MPI.COMM_WORLD.Dup()), arrays()
        breaks.clear()

        def call(comm=comm, x=x, y=y):
            request = getattr(comm, form)(x, y, op, algorithm="one_shot")
            if request is not None:
                request.Wait()

        for _ in range(times):
            call()
        breaks.append(True)
        error, _ = raised(call)
        assert error is not None
        history = comm.history()
        assert [one.state for one in history] == ["complete"] * times + ["failed"]
        assert "by hand" in history[-1].error, history[-1]
        assert history[-1].sequence == times + 1
        MPI.COMM_WORLD.Barrier()
        comm._context.broken = ""
        comm.Free()


def test_a_call_that_is_refused_on_this_rank_is_none(comm):
    """No other rank has heard of it, and it has no number."""
    x, y = arrays()
    comm.Allreduce(x, y)
    error, _ = raised(lambda: comm.Allreduce(x, y[:3]))
    assert isinstance(error, ValueError)
    assert told(comm) == [(1, "Allreduce", "complete")]


def test_a_call_that_all_ranks_refuse_has_failed(comm):
    x, y = arrays()
    with mpicoll.override(errors="agree"):
        comm.Allreduce(x, y)
        error, _ = raised(lambda: comm.Allreduce(x, y[: 3 if RANK == 0 else 40]))
    assert error is not None
    assert told(comm) == [(1, "Allreduce", "complete"), (2, "Allreduce", "failed")]


def test_only_the_last_ones_are_kept(comm):
    x, y = arrays(1)
    for _ in range(LAST + 200):
        comm.Allreduce(x, y)
    comm.Barrier()
    history = comm.history()
    assert [one.sequence for one in history] == list(range(202, LAST + 202))
    assert told(comm, 2) == [(LAST + 200, "Allreduce", "complete"), (LAST + 201, "Barrier", "complete")]
    assert len(str(comm.history(5)).splitlines()) == 6


def test_each_communicator_has_its_own(pair):
    x, y = arrays()
    one, other = pair
    one.Allreduce(x, y)
    other.Bcast(x)
    assert [name for _, name, _ in told(one)] == ["Barrier", "Allreduce"]
    assert [name for _, name, _ in told(other)] == ["Barrier", "Bcast"]
    assert one.history()[0].communicator != other.history()[0].communicator
    again = mpicoll.Communicator(MPI.Intracomm(one))
    assert told(again) == told(one), "it belongs to the handle"


def test_it_can_be_read_after_the_communicators_end():
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    comm.Barrier()
    comm.Free()
    assert told(comm) == [(1, "Barrier", "complete")]


def test_two_threads_on_communicators_of_their_own(pair):
    def calls(comm, number):
        x, y = arrays(number)
        for _ in range(50):
            comm.Allreduce(x, y)
            assert comm.history(1)[0].count == number

    threads = [threading.Thread(target=calls, args=(comm, 3 + k)) for k, comm in enumerate(pair)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, comm in enumerate(pair):
        assert [one.count for one in comm.history(50)] == [3 + k] * 50
        assert len(comm.history()) == 51


def test_a_call_is_running_while_it_runs(comm):
    """Seen from its own operator; and complete afterwards."""
    seen = []

    def operate(a, b):
        seen.append(told(comm, 1))
        return a + b

    op, (x, y) = mpicoll.Op(operate, commute=True), arrays()
    for _ in range(5):
        comm.Allreduce(x, y, op, algorithm="one_shot")
    assert told(comm) == [(number, "Allreduce", "complete") for number in range(1, 6)]
    if SIZE > 1:
        numbers = [number for ((number, _, _),) in seen]
        assert sorted(set(numbers)) == [1, 2, 3, 4, 5]
        assert {state for ((_, _, state),) in seen} == {"running"}


def test_no_array_is_kept_alive(comm):
    alive = []

    def calls():
        x, y = arrays()
        alive.extend(map(weakref.ref, (x, y)))
        for _ in range(4):
            comm.Allreduce(x, y)
            comm.Iallreduce(x, y).Wait()
        request = comm.Allreduce_init(x, y)
        request.Start()
        request.Wait()
        request.Free()

    calls()
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    assert len(comm.history()) == 10


def test_a_trace_has_all_calls_and_the_end_of_each(comm, folder):
    """Of all forms, while the setting is on."""
    x, y = arrays()
    for _ in range(4):
        comm.Allreduce(x, y)
    with mpicoll.override(trace=folder / "run.json"):
        for _ in range(20):  # so many that they would take the shortcut
            comm.Allreduce(x, y)
        comm.Iallreduce(x, y).Wait()
        request = comm.Allreduce_init(x, y)
        request.Start()
        request.Wait()
    for _ in range(4):
        comm.Allreduce(x, y)
    assert all(one.seconds is not None for one in comm.history()[4:27])
    atexit.unregister(trace._traces[str(folder / "run.json")].write)
    trace._traces.pop(str(folder / "run.json")).write()
    events = [e for e in json.loads((folder / f"run.{RANK}.json").read_text())["traceEvents"] if e["ph"] != "M"]
    assert [(e["name"].split()[0], e["ph"], e["args"]["sequence"]) for e in events if e["ph"] != "e"] == [
        *(("Allreduce", "X", number) for number in range(5, 25)),
        ("Iallreduce", "b", 25),
        ("Allreduce_init", "X", 26),
        ("Allreduce.Start", "b", 26),
    ]
    slices = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(slices)), "one after the other"
    assert all(e["args"]["bandwidth (GB/s)"] > 0 for e in events if e["ph"] == "X" and e["args"]["state"] == "complete")
    request.Free()
