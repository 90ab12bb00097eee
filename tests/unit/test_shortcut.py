"""The shortcut of equal calls, with stand-ins for CuPy: what is the same call, and what is not."""

import gc
import sys
import threading
import weakref
from contextlib import AbstractContextManager
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.communicator import Communicator
from mpicoll.recorder.recent import Recent
from mpicoll.runtime.call import shortcut
from mpicoll.runtime.context import contexts
from mpicoll.runtime.context.call_cache import CallCache
from mpicoll.runtime.context.remembered import Remembered
from mpicoll.runtime.program.bound import LAUNCH, Bound, observed
from mpicoll.runtime.progress import turns
from mpicoll.runtime.progress.traffic import Traffic
from mpicoll.settings import settings


class Array:
    """What a CuPy array is to this code."""

    _c_contiguous, size, dtype = True, 8, "f4"
    addresses = count(1 << 20, 1 << 10)

    def __init__(self, device=0):
        self.data, self.device = SimpleNamespace(ptr=next(self.addresses), device_id=device), SimpleNamespace(id=device)
        self.place = self.data.ptr, self.size


class Context(SimpleNamespace):
    """A context as far as the shortcut asks for it; what breaks it bars it."""

    broken = Traffic.broken


class Machine:
    """A communicator's calls on a made-up device, and a context that counts."""

    def __init__(self, monkeypatch):
        self.stream, self.device, self.launched = object(), 0, 0
        runtime = SimpleNamespace(getDevice=lambda: self.device)
        cuda = SimpleNamespace(get_current_stream=lambda: self.stream, runtime=runtime)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=Array, cuda=cuda))
        self.turn = threading.Lock()
        calls = Recent()
        kept = {"recorder": SimpleNamespace(calls=calls), "recent": calls.what, "began": calls.began}
        state = {"calls": 0, "rank": 0, "turn": self.turn, "_broken": "", "barred": False}
        self.context = Context(**state, spoiled=lambda *_: None, cache=CallCache(), **kept)
        self.known, self.left = self.context.cache.identities, 0
        self.comm = SimpleNamespace(_identities=self.known, _rules="", _run_in_turn=self.long_way)

    def bound(self, **changed):
        found = {"alive": True, "actions": [self.launch], "polls": [None], "requests": [], "reached": 0}
        found |= {"limited": False, "name": "", "pending": lambda position: ""} | changed
        self.last = SimpleNamespace(retire=lambda: None, **found)
        return self.last

    def launch(self):
        self.launched += 1

    def long_way(self, *_):
        self.left += 1

    def note(self, arguments, algorithm=None, stream=None, **changed):
        self.keep(arguments, self.bound(**changed), algorithm, stream)

    def keep(self, arguments, bound, algorithm=None, stream=None):
        call = self.context.cache.remember(
            object(), Remembered(SimpleNamespace(device=0, held="", method="allreduce"), None)
        )
        shortcut.note(self.context, ("Allreduce", arguments, algorithm, stream, ""), call, bound)
        return call

    def ran(self, arguments, algorithm=None, stream=None, method="Allreduce"):
        """Tell whether a call was made in the short way."""
        left = self.left
        Communicator._run(self.comm, method, arguments, algorithm, stream)
        return self.left == left


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


@pytest.mark.parametrize("first", [None, MPI.IN_PLACE])
def test_the_same_call_is_launched_at_once(machine, first):
    x, y = Array(), Array()
    for arguments in ((x, y, MPI.SUM), (first, y, MPI.SUM), (x, 0)):
        machine.note(arguments)
        assert machine.ran(arguments)
    assert (machine.launched, machine.context.calls) == (3, 3)


def test_another_call_is_not(machine):
    x, y, given = Array(), Array(), object()
    machine.note((x, y, MPI.SUM), "ring", given)
    assert machine.ran((x, y, MPI.SUM), "ring", given)
    for arguments, algorithm, stream, method in (
        ((x, Array(), MPI.SUM), "ring", given, "Allreduce"),
        ((Array(), y, MPI.SUM), "ring", given, "Allreduce"),
        ((y, x, MPI.SUM), "ring", given, "Allreduce"),
        ((x, y, MPI.MAX), "ring", given, "Allreduce"),
        ((x, y, MPI.SUM), None, given, "Allreduce"),
        ((x, y, MPI.SUM), "ring", None, "Allreduce"),
        ((x, y, MPI.SUM), "ring", given, "Reduce"),
    ):
        assert not machine.ran(arguments, algorithm, stream, method)


@pytest.mark.parametrize("kind", ["device", "host"])
def test_calls_that_compare_algorithms_on_the_same_arrays_are_both_known(machine, kind):
    x, y = (Array(), Array()) if kind == "device" else (np.zeros(3), np.zeros(3))
    for algorithm in (None, "ring", "linear"):
        machine.note((x, y, MPI.SUM), algorithm)
    assert all(machine.ran((x, y, MPI.SUM), algorithm) for algorithm in ("ring", None, "linear", "ring"))


def test_a_list_for_the_name_of_an_algorithm_goes_the_long_way(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM), "ring")
    assert not machine.ran((x, y, MPI.SUM), ["ring"])
    assert shortcut.looked_up(machine.known, "Allreduce", (x, y), ["ring"]) is None


@pytest.mark.parametrize(("root", "other"), [(0, False), (1, True), (1, 1.0), (0, 0.0), (300, int("300"))])
def test_an_equal_number_is_not_the_same_argument(machine, root, other):
    """As a root it may be refused, or read differently."""
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM, root))
    assert machine.ran((x, y, MPI.SUM, root))
    assert not machine.ran((x, y, MPI.SUM, other))


def test_arguments_that_are_left_out_or_added(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    for arguments in ((x, y), (x, y, MPI.SUM, 0)):
        assert not machine.ran(arguments)


def test_equal_operators_of_the_user_are_not_the_same(machine):
    x, y, one, other = Array(), Array(), mpicoll.Op(max), mpicoll.Op(max)
    machine.note((x, y, one))
    assert machine.ran((x, y, one))
    assert not machine.ran((x, y, other))


def test_a_registered_algorithm_makes_it_another_call(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    mpicoll.algorithm("barrier", name="waits_for_nobody", verified=False)(lambda rank, size: None)
    assert not machine.ran((x, y, MPI.SUM))
    registry.unregister("barrier", "waits_for_nobody")
    assert not machine.ran((x, y, MPI.SUM))


@pytest.mark.parametrize("change", ["stream", "device"])
def test_what_is_current_counts(machine, change):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    setattr(machine, change, object())
    assert not machine.ran((x, y, MPI.SUM))


def test_a_changed_setting_makes_it_another_call(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    with mpicoll.override(debug=1):
        assert not machine.ran((x, y, MPI.SUM))
    assert machine.ran((x, y, MPI.SUM))
    settings.debug = settings.debug
    assert not machine.ran((x, y, MPI.SUM))


def test_no_call_after_the_end_of_mpi(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    Communicator._run(machine.comm, "Allreduce", (x, y, MPI.SUM), None, None, is_finalized=lambda: True)
    assert (machine.left, machine.launched) == (1, 0)


def test_no_call_in_a_forked_child(machine, monkeypatch):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    monkeypatch.setattr(contexts, "live", [machine.context])
    monkeypatch.setattr(contexts, "_forked", False)
    contexts._note_fork()
    assert contexts._forked
    assert not machine.ran((x, y, MPI.SUM))


@pytest.mark.parametrize("change", [("last", "alive", False), ("context", "broken", "a stall")])
def test_what_another_thread_did_in_its_turn_is_seen(machine, change):
    """It had the turn between the first look and this thread's turn."""
    x, y, (where, what, value) = Array(), Array(), change

    class Turn(AbstractContextManager):
        def locked(self):
            return False

        def __enter__(self):
            setattr(getattr(machine, where), what, value)

        def __exit__(self, *_):
            pass

    machine.context.turn = Turn()
    machine.note((x, y, MPI.SUM))
    assert not machine.ran((x, y, MPI.SUM))
    assert machine.launched == 0


def test_whose_turn_it_is_can_be_seen(machine):
    """So that a call from within is refused, and does not wait for itself."""
    x, y, seen = Array(), Array(), []
    machine.note((x, y, MPI.SUM), actions=[lambda: seen.append(machine.context.caller)])
    assert machine.ran((x, y, MPI.SUM))
    assert (seen, machine.context.caller) == ([threading.get_ident()], 0)


def test_a_freed_program_is_not_kept(machine):
    x, y, bound = Array(), Array(), Bound()

    def step():
        pass

    gone = weakref.ref(step)
    bound.add(LAUNCH, step)
    del step
    machine.keep((x, y, MPI.SUM), bound)
    bound.free()
    assert gone() is None
    assert not machine.ran((x, y, MPI.SUM))


def test_calls_go_with_their_cache(machine):
    """At once, for there is nothing in a circle."""
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    gone = weakref.ref(machine.context.cache)
    gc.disable()
    try:
        machine.context.cache = None
        assert gone() is None
    finally:
        gc.enable()
    del x


def test_a_call_that_is_forgotten_is_not_found_by_its_arrays(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    with mpicoll.override(plan_cache=1):
        machine.note((y, x, MPI.SUM))
    assert list(machine.known) == [("Allreduce", None, y.place, x.place), ("Allreduce", None, id(y), id(x))]


@pytest.mark.parametrize("goes", [0, 1])
def test_a_call_goes_with_its_arrays_whose_identity_another_one_may_get(machine, goes):
    arrays = [Array(), Array()]
    machine.note((*arrays, MPI.SUM))
    machine.note((arrays[1 - goes], 0))
    places = [array.place for array in arrays]
    gone = weakref.ref(arrays.pop(goes))
    gc.collect()
    assert gone() is None
    left = [places, [places[1 - goes], id(0)], [id(arrays[0]), id(0)]]
    assert set(machine.known) == {("Allreduce", None, *one) for one in left}


def test_a_root_that_is_a_large_number_keeps_its_identity(machine):
    x, root = Array(), int("1000")
    machine.note((x, root))
    _, key = machine.known
    del root
    assert [int(str(number)) for number in range(1000, 1100) if id(int(str(number))) == key[2]] == []
    assert not machine.ran((x, int("1000")))
    *_, (_, (kept,)) = machine.known[key]
    assert machine.ran((x, kept))


def test_a_program_of_several_calls_is_run_as_a_whole(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM), actions=[machine.launch, machine.launch], polls=[None, None])
    assert machine.ran((x, y, MPI.SUM))
    assert machine.launched == 2


def test_a_launch_that_raises_spoils_its_program(machine):
    x, y, spoiled = Array(), Array(), []
    machine.context.spoiled = lambda *what: spoiled.append(what)

    def failing():
        raise RuntimeError("no launch")

    machine.note((x, y, MPI.SUM), actions=[failing])
    with pytest.raises(RuntimeError, match="no launch"):
        machine.ran((x, y, MPI.SUM))
    ((_, position, error),) = spoiled
    assert (position, str(error)) == (0, "no launch")
    assert not machine.turn.locked()


def test_what_may_change_in_place_or_has_to_wait_is_never_found_by_identity(machine):
    x, y, counts = Array(), Array(), [1, 2]
    machine.note((x, y, counts))
    machine.note((x, y, MPI.SUM), polls=[lambda: True])
    machine.note((x, y, MPI.SUM), requests=["one"])
    machine.note(([x, counts], y, MPI.SUM))
    assert not machine.known


def test_a_call_in_progress_or_a_dropped_program_is_left_to_the_long_way(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    with machine.turn:
        assert not machine.ran((x, y, MPI.SUM))
    turns.in_flight.append(None)
    try:
        assert not machine.ran((x, y, MPI.SUM))
    finally:
        turns.in_flight.clear()
    machine.context.broken = "something"
    assert not machine.ran((x, y, MPI.SUM))
    machine.context.broken = ""
    assert machine.ran((x, y, MPI.SUM))
    machine.last.alive = False
    assert not machine.ran((x, y, MPI.SUM))


def test_an_observer_sees_what_is_run(machine):
    x, y, seen, bound = Array(), Array(), [], Bound()
    bound.add(LAUNCH, machine.launch)
    machine.keep((x, y, MPI.SUM), bound)
    with observed(SimpleNamespace(run=seen.append)):
        assert not machine.ran((x, y, MPI.SUM))
        machine.keep((x, y, MPI.SUM), bound)
        assert not machine.ran((x, y, MPI.SUM))  # the long way, on which it is seen
        bound.run()
    assert seen == [bound]
    assert machine.launched == 0
    machine.keep((x, y, MPI.SUM), bound)
    assert machine.ran((x, y, MPI.SUM))
    assert (len(seen), machine.launched) == (1, 1)


def test_the_first_call_may_be_one_that_does_not_block():
    """All forms find calls by the identities of the same cache."""
    comm = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    comm.Ibarrier().Wait()
    comm.Barrier()
    assert comm._identities is comm._get_context().cache.identities
    comm.Free()


@pytest.mark.parametrize("what", ["dtype", "size", "device", "contiguous", "address", "class", None])
def test_an_array_in_the_place_of_another_is_compared(machine, what):
    """All that reading sees; where nothing differs it is the same call, whatever object it is."""

    class Mine(Array):
        pass

    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    other = Mine() if what == "class" else Array(device=int(what == "device"))
    other.data.ptr = x.data.ptr + (what == "address")
    other.dtype = "f8" if what == "dtype" else x.dtype
    other.size = 8 - (what == "size")
    other._c_contiguous = what != "contiguous"
    assert machine.ran((other, y, MPI.SUM)) == (what is None)
