"""Keys of bound programs: what a program depends on is changed alone, and another one must be bound."""

import gc
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.arguments.methods import read_call
from mpicoll.runtime.call import execute
from mpicoll.runtime.context.call_cache import CallCache
from mpicoll.runtime.context.slot import Slot
from mpicoll.runtime.paths.base import Path
from mpicoll.runtime.program.bound import Bound

MEMORY = np.zeros(512, "u1")
RANK, SIZE = 1, 2


def at(start, dtype, count):
    return MEMORY[start : start + count * np.dtype(dtype).itemsize].view(dtype)


def larger(a, b):
    return np.maximum(a, b)


ONE, OTHER = mpicoll.Op(larger), mpicoll.Op(larger)
PLANS = object(), object()
RECORDS = [
    np.dtype([("a", "f8"), ("b", "i8")]),
    np.dtype([("a", "i8"), ("b", "f8")]),
    np.dtype([("b", "f8"), ("a", "i8")]),
    np.dtype(">c16"),
    np.dtype("c16"),
    np.dtype("V16"),
]


@pytest.fixture
def binder(monkeypatch):
    """Return what binds a call, and counts what is made."""
    made, slot = [], Slot(0)

    def bind_new(*given, mobile):
        made.append(Bound())
        return made[-1]

    monkeypatch.setattr(execute, "bind_new", bind_new)
    context = SimpleNamespace(rank=RANK, size=SIZE, cache=CallCache())

    def bind(method, *arguments, plan=PLANS[0], stream=0, device=-1):
        operands = read_call(method, RANK, SIZE, arguments, {})
        operands.device = device
        return execute.bind(plan, operands, context, stream, slot)

    bind.made, bind.slot = made, slot
    return bind


X, Y = at(0, "f8", 4), at(32, "f8", 4)

#: what differs -> two calls that may not share a program
CALLS = {
    "input": (("Allreduce", X, Y), ("Allreduce", at(64, "f8", 4), Y)),
    "output": (("Allreduce", X, Y), ("Allreduce", X, at(64, "f8", 4))),
    "places": (("Allreduce", X, Y), ("Allreduce", Y, X)),
    "in place": (("Allreduce", X, Y), ("Allreduce", MPI.IN_PLACE, Y)),
    "count": (("Allreduce", X, Y), ("Allreduce", X[:3], Y[:3])),
    "dtype": (("Allreduce", X, Y), ("Allreduce", X.view("i8"), Y.view("i8"))),
    "operator": (("Allreduce", X, Y), ("Allreduce", X, Y, MPI.MAX)),
    "average": (("Allreduce", X, Y), ("Allreduce", X, Y, mpicoll.AVG)),
    "a user's operator": (("Allreduce", X, Y, ONE), ("Allreduce", X, Y, OTHER)),
    "counts": (("Allgatherv", X[:2], [Y, [1, 2]]), ("Allgatherv", X[:2], [Y, [2, 2]])),
    "displacements": (("Allgatherv", X[:1], [Y, [1, 1], [0, 1]]), ("Allgatherv", X[:1], [Y, [1, 1], [0, 2]])),
    "sent counts": (
        ("Alltoallv", [X, [1, 2]], [Y, [1, 2]]),
        ("Alltoallv", [X, [2, 2]], [Y, [1, 2]]),
    ),
    "name of the call": (("Allgather", X[:2], Y), ("Allgatherv", X[:2], [Y, [2, 2]])),
    "own block": (("Allgather", X[:2], Y), ("Allgather", Y[2:], Y)),
}


@pytest.mark.parametrize("differs", CALLS)
def test_calls_that_differ_in_one_thing(binder, differs):
    one, other = CALLS[differs]
    assert binder(*one) is binder(*one)
    assert binder(*one) is not binder(*other)
    assert binder(*other) is binder(*other)
    assert len(binder.made) == 2


def test_records_of_equal_size(binder):
    """What is packed, reduced or compared depends on fields, their order, and the order of bytes."""
    first, again = [[id(binder("Bcast", at(0, dtype, 2))) for dtype in RECORDS] for _ in range(2)]
    assert first == again
    assert len(set(first)) == len(RECORDS)


@pytest.mark.parametrize(
    ("name", "values"), [("plan", PLANS), ("stream", (0, 7)), ("device", (-1, 0)), ("device", (0, 1))]
)
def test_where_and_how_it_runs(monkeypatch, binder, name, values):
    runtime = SimpleNamespace(streamIsCapturing=lambda stream: False)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    one, other = [binder("Allreduce", X, Y, **{name: value}) for value in values]
    assert one is not other


def test_a_program_made_for_a_capture_is_not_used_outside_of_it(monkeypatch, binder):
    captured = []
    runtime = SimpleNamespace(streamIsCapturing=lambda stream: bool(captured))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    outside = binder("Allreduce", X, Y, device=0)
    captured.append(1)
    within = binder("Allreduce", X, Y, device=0)
    captured.clear()
    assert outside is not within
    assert binder("Allreduce", X, Y, device=0) is outside


@pytest.mark.parametrize(("name", "value"), [("timeout", 30.0), ("errors", "agree")])
def test_settings_that_a_program_has_seen(binder, name, value):
    """A program says of itself whether others advance it while it waits."""
    before = binder("Allreduce", X, Y)
    with mpicoll.override(**{name: value}):
        assert binder("Allreduce", X, Y) is not before
    assert binder("Allreduce", X, Y) is before


def test_an_operator_lives_as_long_as_the_program_that_is_known_by_it():
    """Its identity may be given out again."""
    operator = mpicoll.Op(larger)
    operands = read_call("Allreduce", RANK, SIZE, (X, Y, operator), {})
    plan = SimpleNamespace(path="host", algorithm="ring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "path", lambda _: Path())
        bound = execute.bind_new(plan, operands, SimpleNamespace(size=SIZE, rank=RANK), 0, Slot(0))
    gone = weakref.ref(operands.op)
    del operator, operands
    gc.collect()
    assert gone() is not None
    assert gone() in bound.keep


def test_a_program_that_was_freed_is_bound_anew(binder):
    first = binder("Allreduce", X, Y)
    first.free()
    assert binder("Allreduce", X, Y) is not first
