"""The call cache: what is remembered and for how long, what it keeps alive, and what becomes of its programs."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.dispatch.plan import _planned
from mpicoll.runtime.arguments.arrays import Flat
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.call import planning
from mpicoll.runtime.call.flight import Flight
from mpicoll.runtime.context import call_cache
from mpicoll.runtime.context.call_cache import CallCache
from mpicoll.runtime.context.remembered import Remembered
from mpicoll.runtime.program.bound import LAUNCH, START, WAIT, Bound
from mpicoll.runtime.progress.operations import Operation, steps
from mpicoll.schedule.collectives import COLLECTIVES


class Message:
    """A persistent request."""

    def __init__(self, complete=True):
        self.freed, self.complete = False, complete

    def Free(self):
        self.freed = True

    def Get_status(self):
        return self.complete


class Array:
    """What a CuPy array is to the cache."""


@pytest.fixture
def comm():
    made = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    made.Barrier()  # the first call is behind it
    cache_of(made).clear()
    yield made
    made.Free()


def cache_of(comm):
    return comm._get_context().cache


def call():
    return Remembered(Operands(COLLECTIVES["bcast"], "bcast", np.dtype("f8")), None)


def program(messages=1, complete=True):
    bound = Bound(requests=[Message(complete) for _ in range(messages)])
    bound.add(START, lambda: None)
    return bound


def kept(cache, key, *places, messages=1):
    """Return the programs of a new call, one for each slot and stream."""
    one = cache.remember(key, call())
    found = [program(messages) for _ in places]
    for place, bound in zip(places, found, strict=True):
        cache.keep(one, place, bound)
    return found


def freed(*programs):
    return [not bound.requests for bound in programs]


def gate(comm, looks=3, then=lambda: None):
    """Put an operation in front of all calls to come, which starts no message before it has been looked at so often."""
    left = [looks]

    def look():
        left[0] -= 1
        if left[0] == 0:
            then()
        return left[0] <= 0

    def routine():
        yield look

    return Operation(comm._get_context(), lambda _: routine(), name="a gate")


def test_the_least_recently_used_call_goes_first(comm):
    arrays = [np.zeros(3) for _ in range(3)]
    with mpicoll.override(plan_cache=2):
        for number in (0, 1, 0, 2):
            comm.Bcast(arrays[number])
        left = [one.operands.input.pointer for one in cache_of(comm).calls.values()]
    assert left == [arrays[0].ctypes.data, arrays[2].ctypes.data]


def test_a_call_whose_program_is_new_counts_as_used():
    cache = CallCache()
    one, other = cache.remember("one", call()), cache.remember("other", call())
    assert other.used > one.used
    cache.keep(one, (0, 0), program())
    assert one.used > other.used


def test_where_many_must_go_the_oldest_sixteenth_goes_at_once(monkeypatch):
    cache = CallCache()
    for number in range(64):
        cache.remember(number, call())
    cache.find(0)
    with mpicoll.override(plan_cache=63):
        cache.remember("new", call())
    assert list(cache.calls) == [0, *range(5, 64), "new"]


def test_the_plan_cache_counts_calls_and_not_programs_or_slots():
    cache = CallCache()
    with mpicoll.override(plan_cache=2):
        first = kept(cache, "first", (0, 0), (1, 0), (2, 5))
        second = kept(cache, "second", (0, 0), (1, 0))
        assert freed(*first, *second) == [False] * 5
        kept(cache, "third", (0, 0))
        assert freed(*first, *second) == [True] * 3 + [False] * 2
    assert (list(cache.calls), cache.requests) == (["second", "third"], 3)


def test_requests_are_bound(monkeypatch):
    monkeypatch.setattr(call_cache, "MOST_REQUESTS", 10)
    cache = CallCache()
    programs = [bound for key in range(4) for bound in kept(cache, key, (0, 0), messages=4)]
    assert freed(*programs) == [True, True, False, False]
    assert cache.requests == 8
    (large,) = kept(cache, "large", (0, 0), messages=50)
    assert (list(cache.calls), freed(large), cache.requests) == (["large"], [False], 50)


def test_a_program_in_the_place_of_a_dead_one_is_counted_in_its_place():
    cache = CallCache()
    (bound,) = kept(cache, "call", (0, 0), messages=4)
    one = cache.find("call")
    bound.free()  # as where scratch has moved
    assert one.program((0, 0)) is None
    cache.keep(one, (0, 0), program(3))
    assert cache.requests == 3
    cache.clear()
    assert cache.requests == 0


def test_a_program_that_runs_is_freed_at_its_end(comm):
    cache, bound, seen = CallCache(), program(), []
    bound.add(LAUNCH, cache.clear)
    bound.add(LAUNCH, lambda: seen.append(bound.alive or len(bound.requests)))
    cache.keep(cache.remember("call", call()), (0, 0), bound)
    Operation(comm._get_context(), lambda operation: steps(operation, bound)).wait()
    assert (seen, freed(bound), bound.running) == ([1], [True], False)


def test_a_program_that_runs_by_itself_is_freed_at_its_end():
    """Another thread's call may forget it meanwhile."""
    cache, bound, seen = CallCache(), program(), []
    bound.add(LAUNCH, cache.clear)
    bound.add(LAUNCH, lambda: seen.append(len(bound.requests)))
    cache.keep(cache.remember("call", call()), (0, 0), bound)
    bound.run()
    assert (seen, freed(bound), bound.running) == ([1], [True], False)


def test_a_program_that_waits_for_its_turn_is_not_freed(comm):
    """It would run without its actions, and say nothing."""
    x, y = np.ones(3), np.zeros(3)
    comm.Allreduce(x, y)
    y[:] = 0
    gate(comm, then=cache_of(comm).clear)
    comm.Allreduce(x, y)
    assert y.tolist() == [1] * 3
    assert not cache_of(comm).calls


def test_a_program_that_was_forgotten_and_raises_still_breaks_its_communicator(comm):
    """Its messages may still come, and be taken for those of later calls."""
    context, cache, bound = comm._get_context(), CallCache(), program(complete=False)

    def fail():
        cache.clear()
        raise RuntimeError("in between")

    bound.waits[2] = ()
    bound.add(WAIT, fail)
    bound.last_start = 2  # what raises is not behind the last message
    cache.keep(cache.remember("call", call()), (0, 0), bound)
    operation = Operation(context, lambda operation: steps(operation, bound))
    with pytest.raises(RuntimeError, match="in between"):
        operation.wait()
    broken, context.broken = context.broken, ""
    assert "in between" in broken
    assert freed(bound) == [False]


def test_one_key_for_all_forms(comm, monkeypatch):
    """The second form plans nothing, nor does the third, whose program is its own."""
    calls, make = [], planning.make_plan
    monkeypatch.setattr(planning, "make_plan", lambda key: calls.append(key) or make(key))
    x, y = np.ones(11), np.zeros(11)
    _planned.cache_clear()  # another test may have had the same plan
    for _ in range(2):
        comm.Allreduce(x, y)
        comm.Iallreduce(x, y).Wait()
    assert len(calls) == 1
    request = comm.Allreduce_init(x, y)
    request.Start()
    request.Wait()
    request.Free()
    assert len(calls) == 1
    assert _planned.cache_info().misses == 1
    (one,) = cache_of(comm).calls.values()
    assert len(one.programs) == 2


@pytest.mark.parametrize("part", [slice(None), slice(0, 0)], ids=["whole", "empty"])
def test_nothing_keeps_arrays_alive(comm, part):
    """A part of no elements would keep the whole array, too."""
    x, y = np.ones(1000), np.zeros(1000)
    comm.Allreduce(x[part], y[part])
    comm.Iallreduce(x[part], y[part]).Wait()
    comm.Iallreduce(MPI.IN_PLACE, y[part]).Wait()
    request = comm.Allreduce_init(x[part], y[part])
    request.Start()
    request.Wait()
    request.Free()
    gone = weakref.ref(x), weakref.ref(y)
    del x, y, request
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    assert len(cache_of(comm).calls) == 2


def test_equal_calls_that_are_planned_later_are_one(comm, monkeypatch):
    """Each is made before the other one is remembered; none of their programs is lost."""
    gate(comm)
    requests = [comm.Ibarrier(), comm.Ibarrier()]
    assert not cache_of(comm).calls
    found, remember = [], cache_of(comm).remember
    monkeypatch.setattr(cache_of(comm), "remember", lambda *given: found.append(remember(*given)) or found[-1])
    for request in requests:
        request.Wait()
    assert len(found) == 2
    (one,) = cache_of(comm).calls.values()
    assert found == [one, one]
    assert one.programs


def test_a_call_that_was_forgotten_while_it_waited_is_remembered_again():
    cache = CallCache()
    one = cache.remember("call", call())
    cache.clear()
    (other,) = kept(cache, "call", (1, 1), messages=2)
    bound = program(3)
    cache.keep(one, (0, 0), bound)
    assert (cache.find("call"), cache.requests) == (one, 3)
    assert freed(other, bound) == [True, False]
    cache.clear()
    assert (freed(bound), cache.requests) == ([True], 0)


def test_what_is_no_key_is_not_found():
    cache = CallCache()
    cache.remember(None, call())
    assert not cache.calls
    assert cache.find(None) is cache.find(["no", "key"]) is None


def test_a_call_knows_only_the_identities_that_live():
    """Such as those of views that are made for each call."""
    cache = CallCache()
    one, array = cache.remember("call", call()), Array()
    for _ in range(5):
        cache.note_identity(one, ("Bcast", id(array), 0), [array], [], ())
    assert len(one.identities) == 1
    del array
    gc.collect()
    assert (one.identities, cache.identities) == (set(), {})


def test_a_call_may_be_forgotten_while_its_arrays_go():
    cache, arrays = CallCache(), [Array(), Array()]
    one = cache.remember("call", call())
    for number, array in enumerate(arrays):
        cache.note_identity(one, ("Bcast", id(array), number), [array], [], ())

    class Going(dict):
        def pop(self, key, default=None):
            arrays.clear()
            return super().pop(key, default)

    cache.identities = Going(cache.identities)
    del array
    cache.clear()
    assert (one.identities, dict(cache.identities)) == (set(), {})


def flight(comm, **handover):
    call = SimpleNamespace(context=comm._get_context(), stream=None)
    made = Flight(call, None)
    made.handover = SimpleNamespace(device=0, side=7, synchronize=None, **handover)
    return made


def test_a_forgotten_call_still_hands_over_its_end(comm):
    """Its messages are freed with its program, and the caller's stream must wait all the same."""
    bound, log = program(), []
    bound.add(LAUNCH, bound.retire)
    made = flight(comm, ready=lambda: log.append("ready") or True, finish=lambda: log.append(freed(bound)))
    operands = Operands(COLLECTIVES["bcast"], "bcast", np.dtype("f8"), 0)
    Operation(comm._get_context(), lambda operation: made.run(operation, bound, operands)).wait()
    assert log == ["ready", [True]]


def test_a_program_that_waits_for_the_callers_stream_is_not_freed(comm):
    bound, log = program(), []
    bound.add(LAUNCH, lambda: log.append("launched"))
    made = flight(comm, ready=lambda: bound.retire() or True, finish=lambda: log.append("finished"))
    operands = Operands(COLLECTIVES["bcast"], "bcast", np.dtype("f8"), 0)
    Operation(comm._get_context(), lambda operation: made.run(operation, bound, operands)).wait()
    assert log == ["launched", "finished"]


def test_a_call_on_copies_is_not_remembered(comm, monkeypatch):
    """The copies hold the caller's arrays, which are on another device."""
    call, memory = SimpleNamespace(context=comm._get_context(), stream=None), np.zeros(2)
    made = Flight(call, None, key="key")
    flat = Flat(memory, memory.ctypes.data, -1)
    operands = Operands(COLLECTIVES["bcast"], "bcast", memory.dtype, input=flat, output=flat, moved=True)
    operands.count, operands.nbytes = 2, 16
    plan = planning.plan_for(operands, comm._get_context(), None, "")
    made._bound(plan, operands)
    assert "key" not in cache_of(comm).calls
    assert [one.operands.input for one in cache_of(comm).calls.values()] == [None]


def test_a_remembered_call_that_cannot_be_bound_again_is_not_made(comm, monkeypatch):
    """As one that is refused: other ranks number the next call as this one does."""
    x, y = np.ones(3), np.zeros(3)
    comm.Allreduce(x, y)
    context = comm._get_context()
    for bound in context.slot(0).programs:
        bound.free()  # as where scratch has moved

    def no_memory(*_, mobile):
        raise MemoryError

    before = context.calls
    with monkeypatch.context() as patch:
        patch.setattr("mpicoll.runtime.call.execute.bind_new", no_memory)
        with pytest.raises(MemoryError):
            comm.Allreduce(x, y)
    assert context.calls == before
    comm.Allreduce(x, y)
    assert (context.calls, y.tolist()) == (before + 1, [1] * 3)
