"""Hot calls, with stand-ins for CuPy: what is the same call, and what is not."""

import gc
import sys
import threading
from types import SimpleNamespace

import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.hot import HotCalls


class Array:
    """What a CuPy array is to this code."""

    def __init__(self, device=0):
        self.data, self.dtype, self.device = object(), "f4", SimpleNamespace(id=device)


class Machine:
    """A communicator's hot calls on a made-up device, and a channel that counts."""

    def __init__(self, monkeypatch):
        self.stream, self.device, self.launched = object(), 0, 0
        runtime = SimpleNamespace(getDevice=lambda: self.device)
        cuda = SimpleNamespace(get_current_stream=lambda: self.stream, runtime=runtime)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=Array, cuda=cuda))
        self.turn = threading.Lock()
        self.channel = SimpleNamespace(calls=0, turn=self.turn, usable=lambda: True, spoiled=lambda *_: None)
        self.hot = HotCalls()

    def bound(self, **changed):
        return SimpleNamespace(**{"alive": True, "run": self.launch, "polls": [None], "requests": []} | changed)

    def launch(self):
        self.launched += 1

    def note(self, arguments, algorithm=None, stream=None, **changed):
        self.hot.note("Allreduce", arguments, algorithm, stream, self.bound(**changed))

    def ran(self, arguments, algorithm=None, stream=None, method="Allreduce"):
        return self.hot.ran(self.channel, method, arguments, algorithm, stream)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


@pytest.mark.parametrize("first", [None, MPI.IN_PLACE])
def test_the_same_call_is_launched_at_once(machine, first):
    x, y = Array(), Array()
    for arguments in ((x, y, MPI.SUM), (first, y, MPI.SUM), (x, 0)):
        machine.note(arguments)
        assert machine.ran(arguments)
    assert (machine.launched, machine.channel.calls) == (3, 3)


def test_another_call_is_not(machine):
    x, y, given = Array(), Array(), object()
    machine.note((x, y, MPI.SUM), "ring", given)
    assert machine.ran((x, y, MPI.SUM), "ring", given)
    for arguments, algorithm, stream, method in (
        ((x, Array(), MPI.SUM), "ring", given, "Allreduce"),
        ((x, y, MPI.MAX), "ring", given, "Allreduce"),
        ((x, y, MPI.SUM), None, given, "Allreduce"),
        ((x, y, MPI.SUM), "ring", None, "Allreduce"),
        ((x, y, MPI.SUM), "ring", given, "Reduce"),
        ((), None, None, "Barrier"),
    ):
        assert not machine.ran(arguments, algorithm, stream, method)


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


def test_arrays_are_not_kept_alive_and_their_number_is_no_name(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    (hot,) = machine.hot.calls.values()
    del y
    gc.collect()
    assert hot.second() is None
    assert not machine.ran((x, None, MPI.SUM))


def test_what_may_change_in_place_or_has_to_wait_is_never_hot(machine):
    x, y, counts = Array(), Array(), [1, 2]
    machine.note((x, y, counts))
    machine.note((x, y, MPI.SUM), polls=[lambda: True])
    machine.note((x, y, MPI.SUM), requests=["one"])
    machine.note(([x, counts], y, MPI.SUM))
    machine.note((x, Array(device=1), MPI.SUM))
    machine.note((None, None, MPI.SUM))
    assert not machine.hot.calls


def test_a_call_in_progress_or_a_dropped_program_is_left_to_the_long_way(machine):
    x, y = Array(), Array()
    machine.note((x, y, MPI.SUM))
    with machine.turn:
        assert not machine.ran((x, y, MPI.SUM))
    next(iter(machine.hot.calls.values())).bound.alive = False
    assert not machine.ran((x, y, MPI.SUM))
