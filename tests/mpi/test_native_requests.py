"""Requests in the hands of mpi4py's own methods: a thread advances the calls, and completes their handles."""

import time
import warnings

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.native import NativeRequest
from mpicoll.request import PersistentRequest, Request
from mpicoll.runtime.progress import handles, turns

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.Get_size(), WORLD.Get_rank()
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE
#: elements: in messages that are sent at once, and in such that are not
COUNTS = (7, 100_000)
TAG = 5
several = pytest.mark.mpi(min_size=2)
pytestmark = pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="MPI is not thread-safe")


class Mixture:
    """Calls and messages in one list, of which nothing is complete before the last rank comes."""

    def __init__(self, comm, count):
        self.sums, self.copy, self.got = np.zeros(count), np.full(count, float(RANK)), np.zeros(count)
        self.kept, self.sent = np.zeros(count), np.full(count, float(RANK))
        self.persistent = comm.Allreduce_init(np.full(count, 2.0), self.kept)
        last = RANK == SIZE - 1
        if last:
            WORLD.Barrier()
            time.sleep(0.02)
        self.requests = [
            comm.Irecv(self.got, LEFT, TAG),
            comm.Iallreduce(np.ones(count), self.sums, algorithm="ring/2"),
            MPI.REQUEST_NULL,
            comm.Isend(self.sent, RIGHT, TAG),
            comm.Ibcast(self.copy, SIZE - 1),
            self.persistent,
        ]
        self.persistent.Start()
        if not last:
            for some in (self.requests, self.requests[1:2], self.requests[-1:]):
                assert not Request.Testall(some)
                assert not MPI.Request.Testall(some)
            WORLD.Barrier()

    def compare(self):
        assert (self.sums == SIZE).all()
        assert (self.copy == SIZE - 1).all()
        assert (self.got == LEFT).all()
        assert (self.kept == 2 * SIZE).all()
        assert not any(self.requests)
        assert not turns.in_flight
        self.persistent.Start()
        MPI.Request.Waitall([self.persistent])
        self.persistent.Free()


ACTIVE = [0, 1, 3, 4, 5]


def until(look):
    while not (found := look()):
        pass
    return found


def by_any(requests):
    found = [MPI.Request.Waitany(requests) for _ in ACTIVE]
    assert MPI.Request.Waitany(requests) == MPI.UNDEFINED
    return found


def by_testing_any(requests):
    found = []
    while len(found) < len(ACTIVE):
        index, done = MPI.Request.Testany(requests)
        assert done is (index != MPI.UNDEFINED)
        found += [index] * done
    assert MPI.Request.Testany(requests) == (MPI.UNDEFINED, True)
    return found


def by_some(cls, name):
    def wait(requests):
        found = []
        while (some := getattr(cls, name)(requests)) is not None:
            assert some or name == "Testsome"
            found += some
        return found

    return wait


def all_of(wait):
    return lambda requests: ACTIVE if wait(requests) else []


WAYS = {
    "Waitall": all_of(MPI.Request.Waitall),
    "waitall": all_of(MPI.Request.waitall),
    "Testall": all_of(lambda requests: until(lambda: MPI.Request.Testall(requests))),
    "Waitany": by_any,
    "Testany": by_testing_any,
    "Waitsome": by_some(MPI.Request, "Waitsome"),
    "Testsome": by_some(MPI.Request, "Testsome"),
    "own Waitsome": by_some(Request, "Waitsome"),
    "own Testsome": by_some(Request, "Testsome"),
    "own Waitall": all_of(Request.Waitall),
    "Prequest.Waitall": all_of(MPI.Prequest.Waitall),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("way", WAYS)
def test_a_mixed_list_is_complete_by_mpi4pys_own_methods(comm, way, count):
    """Each request once, and not before the last rank has come."""
    for _ in range(3):
        mixture = Mixture(comm, count)
        assert sorted(WAYS[way](mixture.requests)) == ACTIVE
        mixture.compare()


@pytest.mark.parametrize("cls", [MPI.Request, Request])
@pytest.mark.parametrize("method", ["Waitall", "Testall", "Waitsome"])
def test_statuses(comm, cls, method):
    """A message's says where it came from; a collective's is the empty one; lists grow as mpi4py's."""
    got, y = np.zeros(3), np.zeros(3)
    first = MPI.Status()
    first.Set_source(77)
    statuses = [first]
    send = WORLD.Isend(np.full(3, float(RANK)), RIGHT, TAG)
    requests = [comm.Iallreduce(np.ones(3), y), WORLD.Irecv(got, LEFT, TAG)]
    if method == "Waitsome":
        time.sleep(0.05)
        WORLD.Barrier()
        found = {}
        while (some := getattr(cls, method)(requests, statuses := [MPI.Status()])) is not None:
            assert len(statuses) >= len(some)
            found |= dict(zip(some, statuses, strict=False))
        statuses = [found[k] for k in range(2)]
    else:
        until(lambda: getattr(cls, method)(requests, statuses))
        assert len(statuses) == 2
        assert statuses[0] is first
    send.Wait()
    assert is_empty(statuses[0]) or cls is MPI.Request
    assert statuses[0].Get_count(MPI.BYTE) == 0
    assert (statuses[1].Get_source(), statuses[1].Get_tag(), statuses[1].Get_count(MPI.DOUBLE)) == (LEFT, TAG, 3)
    assert (got == LEFT).all()
    assert (y == SIZE).all()


def is_empty(status):
    told = status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE), status.Is_cancelled()
    return told == (MPI.ANY_SOURCE, MPI.ANY_TAG, 0, False)


def used():
    status = MPI.Status()
    status.Set_source(3)
    status.Set_tag(4)
    status.Set_elements(MPI.BYTE, 5)
    return status


def test_statuses_of_a_request_by_itself(comm):
    of_mpis = lambda q, s: MPI.Request.Waitany([q], s) == 0, lambda q, s: MPI.Request.Wait(q, s)
    for take in (
        *of_mpis,
        lambda q, s: q.Wait(s),
        lambda q, s: q.wait(s),
        lambda q, s: until(lambda: q.Test(s)),
        lambda q, s: until(lambda: q.test(status=s)),
        lambda q, s: Request.Waitany([q], s) == 0,
        lambda q, s: until(lambda: Request.Testany([q], s)[1]),
    ):
        for status in (used(), None):
            y = np.zeros(3)
            request = comm.Iallreduce(np.ones(3), y)
            assert take(request, status)
            assert (y == SIZE).all()
            assert status is None or status.Get_count(MPI.BYTE) == 0
            assert status is None or is_empty(status) or take in of_mpis
            assert not request
    status = used()
    assert request.Wait(status)  # which is null
    assert is_empty(status)


@several
def test_get_status_leaves_the_request_as_it_is(comm):
    y, status = np.zeros(3), used()
    request = comm.Iallreduce(np.ones(3), y) if RANK < SIZE - 1 else None
    if request:
        assert request.Get_status() is False
        assert request.Get_status(status) is False
        assert not is_empty(status)
    WORLD.Barrier()
    request = request or comm.Iallreduce(np.ones(3), y)
    until(lambda: request.Get_status(status))
    assert is_empty(status)
    assert request.get_status()
    assert request, "it is still to be waited for"
    assert (y == SIZE).all()
    assert request.Test()
    assert not request
    assert request.Get_status()


def test_what_is_no_status_is_refused_before_anything_is_waited_for(comm):
    request = comm.Iallreduce(np.ones(3), np.zeros(3))
    for ask in (request.Wait, request.Test, request.Get_status):
        with pytest.raises(TypeError, match=r"Allreduce: \w+: status is a int, not an MPI.Status"):
            ask(5)
    assert request
    request.Wait()


def test_a_collective_cannot_be_cancelled(comm):
    y = np.zeros(3)
    for request in (comm.Iallreduce(np.ones(3), y), comm.Allreduce_init(np.ones(3), y)):
        for cancel in (request.Cancel, request.cancel):
            with pytest.raises(mpicoll.UnsupportedError, match="Allreduce: Cancel: a collective cannot be cancelled"):
                cancel()
        request.Wait()
        request.Free()
    assert (y == SIZE).all()


class OperatorError(Exception):
    pass


def failing(a, b):
    raise OperatorError("no such sum")


@several
def test_an_error_is_mpis_and_stays_ours(capfd):
    """MPI's own Waitall raises what MPI can say; the error itself is on stderr, and is raised by our methods."""
    comm = mpicoll.Communicator(WORLD.Dup())
    op = mpicoll.Op(failing, commute=True)
    request = comm.Iallreduce(np.ones(5), np.zeros(5), op, algorithm="one_shot")
    with pytest.raises(MPI.Exception):
        MPI.Request.Waitall([request])
    assert "no such sum" in capfd.readouterr().err
    assert request, "a call that has failed is not complete"
    for ask in (request.Wait, request.Test, request.Get_status, lambda: Request.Waitall([request])):
        with pytest.raises(OperatorError, match=r"^no such sum$"):
            ask()
    WORLD.Barrier()


def test_one_handle_serves_call_after_call(comm, monkeypatch):
    """And is given back by all that ends a request."""
    y, made = np.zeros(3), []
    begin = handles.Handle.__init__
    monkeypatch.setattr(handles.Handle, "__init__", lambda self: (made.append(self), begin(self))[1])
    ends = Request.Wait, lambda q: until(q.Test), lambda q: Request.Waitall([q]), lambda q: Request.Waitany([q])
    with turns.lock:  # so that the attendant does not come, however long a call takes
        comm.Ibarrier().Wait()
        made.clear()
        for turn in range(40):
            request = comm.Iallreduce(np.ones(3), y)
            assert request != MPI.REQUEST_NULL
            ends[turn % len(ends)](request)
            assert request == MPI.REQUEST_NULL
        assert not made
        assert not handles.open_calls
    handle = handles.unused[-1]
    comm.Ibarrier().Free()
    assert handles.unused[-1] is handle
    turns.wait_for(lambda: not turns.in_flight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        late = RANK == SIZE - 1
        if late:
            WORLD.Barrier()
        request = comm.Ibarrier()
        del request
        if not late:
            WORLD.Barrier()
    turns.wait_for(lambda: not turns.in_flight)
    WORLD.Barrier()
    assert not handles.open_calls


def test_startall(comm):
    """Ours takes both kinds; MPI's own cannot start ours, and starts nothing."""
    got, y = np.zeros(3), np.zeros(3)
    send, receive = WORLD.Send_init(np.full(3, float(RANK)), RIGHT, TAG), WORLD.Recv_init(got, LEFT, TAG)
    ours = comm.Allreduce_init(np.ones(3), y)
    for _ in range(2):
        PersistentRequest.Startall([receive, ours, send])
        with pytest.raises(RuntimeError, match="allreduce: the persistent request is still active"):
            ours.Start()
        MPI.Request.Waitall([receive, ours, send])
        assert (got == LEFT).all()
        assert (y == SIZE).all()
        got[:] = y[:] = 0
    with pytest.raises(MPI.Exception):
        MPI.Prequest.Startall([receive, ours])
    assert receive.Test()
    assert not turns.in_flight
    for request in (send, receive, ours):
        request.Free()


def test_requests_are_mpis(comm):
    request = comm.Iallreduce(np.ones(3), np.zeros(3))
    assert isinstance(request, MPI.Request)
    assert type(request) is NativeRequest
    assert request != MPI.REQUEST_NULL
    assert len({request, request}) == 1
    request.Wait()
    assert request == MPI.REQUEST_NULL
    assert mpicoll.request.Request is Request
