"""Keys of remembered calls: whatever reading looks at is changed alone, and the key must differ."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.runtime.call import call_key as keys
from mpicoll.runtime.context.call_cache import CallCache
from mpicoll.runtime.context.remembered import Remembered
from mpicoll.settings import settings
from unit.keyed import MEMORY, at, device_array, key_of

X, Y = MEMORY[:32].view("f8"), MEMORY[32:64].view("f8")


def larger(a, b):
    return np.maximum(a, b)


ONE, OTHER = mpicoll.Op(larger), mpicoll.Op(larger)


def record(**fields):
    """Return a record of 16 bytes."""
    return np.dtype({"itemsize": 16, **fields})


def read_only(array):
    array.flags.writeable = False
    return array


def memory(start, nbytes, readonly=False):
    return MPI.memory.fromaddress(MEMORY.ctypes.data + start, nbytes, readonly)


#: what is changed -> the two values of a buffer argument, made anew for each key
BUFFERS = {
    "address": (lambda: at(0, "f8", 4), lambda: at(8, "f8", 4)),
    "size": (lambda: at(0, "f8", 4), lambda: at(0, "f8", 3)),
    "kind of number": (lambda: at(0, "f8", 4), lambda: at(0, "i8", 4)),
    "precision": (lambda: at(0, "f4", 4), lambda: at(0, "f8", 4)),
    "byte order": (lambda: at(0, "<f8", 4), lambda: at(0, ">f8", 4)),
    "sign": (lambda: at(0, "i8", 2), lambda: at(0, "u8", 2)),
    "unit of a date": (lambda: at(0, "M8[s]", 2), lambda: at(0, "M8[ms]", 2)),
    "fields' types": (
        lambda: at(0, record(names=["a", "b"], formats=["f8", "i8"]), 2),
        lambda: at(0, record(names=["a", "b"], formats=["i8", "f8"]), 2),
    ),
    "fields' names": (
        lambda: at(0, record(names=["a", "b"], formats=["f8", "i8"]), 2),
        lambda: at(0, record(names=["b", "a"], formats=["f8", "i8"]), 2),
    ),
    "fields' places": (
        lambda: at(0, record(names=["a", "b"], formats=["f4", "f4"], offsets=[0, 4]), 2),
        lambda: at(0, record(names=["a", "b"], formats=["f4", "f4"], offsets=[0, 8]), 2),
    ),
    "fields' byte order": (
        lambda: at(0, record(names=["a"], formats=["<f8"]), 2),
        lambda: at(0, record(names=["a"], formats=[">f8"]), 2),
    ),
    "fields' shape": (
        lambda: at(0, record(names=["a"], formats=["(2,)f4"]), 2),
        lambda: at(0, record(names=["a"], formats=["(1,2)f4"]), 2),
    ),
    "record or bytes": (lambda: at(0, record(names=["a"], formats=["f8"]), 2), lambda: at(0, "V16", 2)),
    "read-only": (lambda: at(0, "f8", 4), lambda: read_only(at(0, "f8", 4))),
    "in place": (lambda: X, lambda: MPI.IN_PLACE),
    "none": (lambda: X, lambda: None),
    "none or in place": (lambda: None, lambda: MPI.IN_PLACE),
    "number or in place": (lambda: int(MPI.IN_PLACE), lambda: MPI.IN_PLACE),
    "array or list": (lambda: X, lambda: [X]),
    "list or tuple": (lambda: [X, [2, 2]], lambda: (X, [2, 2])),
    "array within": (lambda: [at(0, "f8", 4), 4], lambda: [at(8, "f8", 4), 4]),
    "dtype within": (lambda: [at(0, "f8", 4), 4], lambda: [at(0, "i8", 4), 4]),
    "counts": (lambda: [X, [2, 2]], lambda: [X, [1, 3]]),
    "number of counts": (lambda: [X, [2, 2]], lambda: [X, [2, 2, 0]]),
    "counts' form": (lambda: [X, [2, 2]], lambda: [X, (2, 2)]),
    "counts or one": (lambda: [X, [4]], lambda: [X, 4]),
    "counts in an array": (lambda: [X, [2, 2]], lambda: [X, np.array([2, 2])]),
    "counts' dtype": (lambda: [X, np.array([2, 2], "i4")], lambda: [X, np.array([2, 2], "f4")]),
    "counts' shape": (lambda: [X, np.array([2])], lambda: [X, np.array(2)]),
    "counts' values in an array": (lambda: [X, np.array([2, 2])], lambda: [X, np.array([1, 3])]),
    "displacements": (lambda: [X, [2, 2], [0, 2]], lambda: [X, [2, 2], [2, 0]]),
    "displacements or none": (lambda: [X, [2, 2], [0, 2]], lambda: [X, [2, 2]]),
    "displacements' form": (lambda: [X, [2, 2], [0, 2]], lambda: [X, [2, 2], (0, 2)]),
    "displacements within": (lambda: [X, ([2, 2], [0, 2])], lambda: [X, ([2, 2], [2, 0])]),
    "nesting": (lambda: [X, [2, 2], [0, 2]], lambda: [X, ([2, 2], [0, 2])]),
    "given type": (lambda: [X, 4, MPI.DOUBLE], lambda: [X, 4, MPI.BYTE]),
    "given type or none": (lambda: [X, 4, MPI.DOUBLE], lambda: [X, 4]),
    "given type's form": (lambda: [X, 4, MPI.DOUBLE], lambda: [X, 4, "d"]),
    "memory's address": (lambda: [memory(0, 32), 4, "d"], lambda: [memory(8, 32), 4, "d"]),
    "memory's length": (lambda: [memory(0, 32), 4, "d"], lambda: [memory(0, 40), 4, "d"]),
    "memory's address alone": (lambda: [memory(0, 0), 4, "d"], lambda: [memory(8, 0), 4, "d"]),
    "memory with an end or none": (lambda: [MPI.memory(MEMORY[:0]), 0], lambda: [memory(0, 0), 0]),
    "memory that is read-only": (lambda: [memory(0, 32), 4], lambda: [memory(0, 32, True), 4]),
    "given letter": (lambda: [X, 4, "d"], lambda: [X, 4, "f"]),
}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("changed", BUFFERS)
def test_a_buffer_that_differs_in_one_thing(changed, place):
    def key(make):
        arguments = [Y, Y, MPI.SUM]
        arguments[place] = make()
        return key_of(*arguments)

    one, other = BUFFERS[changed]
    assert key(one) == key(one) is not None, "an equal call must be found again"
    assert key(one) != key(other)
    assert hash(key(one)) == hash(key(one))


def test_buffers_that_change_places():
    assert key_of(X, Y, MPI.SUM) != key_of(Y, X, MPI.SUM)
    assert key_of(X, Y, MPI.SUM) != key_of(X, X, MPI.SUM)


#: what is changed -> two values of an argument that is no buffer
OTHERS = {
    "root": (0, 1),
    "root's type": (0, False),
    "root as one": (1, True),
    "root of NumPy": (1, np.int64(1)),
    "root's width": (np.int64(1), np.int32(1)),
    "operator": (MPI.SUM, MPI.MAX),
    "operator or average": (MPI.SUM, mpicoll.AVG),
    "operator or a user's": (MPI.MAX, ONE),
    "equal functions of two users' operators": (ONE, OTHER),
    "counts": ([2, 2], [1, 3]),
    "counts or none": ([2, 2], None),
    "counts' form": ([2, 2], (2, 2)),
    "numbers in counts": ([1, 1], [True, True]),
    "counts' dtype": (np.array([2, 2], "i4"), np.array([2, 2], "f4")),
}


@pytest.mark.parametrize("changed", OTHERS)
def test_another_argument_that_differs_in_one_thing(changed):
    one, other = OTHERS[changed]
    assert key_of(X, Y, one) == key_of(X, Y, one) is not None
    assert key_of(X, Y, one) != key_of(X, Y, other)
    assert key_of(X, one) != key_of(X, other), "the second argument of Bcast is no buffer"


def test_one_argument_less():
    assert key_of(X, Y) != key_of(X, Y, MPI.SUM)
    assert key_of(X) != key_of(X, None)


NAMED = {
    "method": ("Allreduce", "Scan"),
    "algorithm": (None, "ring"),
    "rules": ("", "allreduce:ring"),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_said_beside_the_arguments(name):
    one, other = NAMED[name]
    assert key_of(X, Y, **{name: one}) == key_of(X, Y, **{name: one})
    assert key_of(X, Y, **{name: one}) != key_of(X, Y, **{name: other})


#: a value that is not the default, of a setting that is not tested itself
OTHER_VALUE = {"debug": 2}, {"plan_cache": 7}


@pytest.mark.parametrize("name", settings.as_dict())
def test_a_setting_that_is_changed(name):
    """Within a block, and for good, whatever the value."""
    before, value = key_of(X, Y), getattr(settings, name)
    with mpicoll.override(**{name: value}):
        assert key_of(X, Y) != before
        within = key_of(X, Y)
        assert key_of(X, Y) == within
        with mpicoll.override(**{name: value}, **OTHER_VALUE[name == "debug"]):
            assert key_of(X, Y) not in (before, within)
    assert key_of(X, Y) == before
    with mpicoll.override(**{name: value}):
        assert key_of(X, Y) == within, "the same values again"
    setattr(settings, name, value)
    assert key_of(X, Y) != before


def test_an_algorithm_that_is_registered_or_taken_away():
    seen = [key_of(X, Y)]
    mpicoll.algorithm("barrier", name="waits_for_nobody", verified=False)(lambda rank, size: None)
    seen.append(key_of(X, Y))
    registry.unregister("barrier", "waits_for_nobody")
    seen.append(key_of(X, Y))
    assert len(set(seen)) == 3


class Whole(int):
    pass


class Pair(tuple):
    __slots__ = ()


def derived():
    return MPI.DOUBLE.Create_contiguous(2).Commit()


#: arguments of which more could change than a key says
UNREADABLE = {
    "strided": lambda: MEMORY.view("f8")[::2],
    "transposed": lambda: np.zeros((3, 2)).T,
    "subclass": lambda: np.zeros((2, 2)).view(np.matrix),
    "bytes": lambda: bytearray(8),
    "NumPy's number": lambda: np.float64(1),
    "list's subclass": lambda: Pair((X, 4)),
    "derived type": lambda: [X, 2, derived()],
    "fractional count": lambda: [X, 4.0],
    "counts with a fraction": lambda: [X, [2.0, 2]],
    "counts in a range": lambda: [X, range(2)],
    "counts in a buffer": lambda: [X, memoryview(np.array([2, 2]))],
    "counts of a subclass": lambda: [X, np.array([2, 2]).view(np.matrix)],
    "counts in an own number": lambda: [X, Whole(4)],
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_a_key_cannot_say_is_not_remembered(what):
    assert key_of(UNREADABLE[what](), Y) is None
    assert key_of(X, UNREADABLE[what]()) is None


@pytest.mark.parametrize("argument", [0.0, 1.5, np.float64(1), Whole(1), object(), np.bool_(True), {}])
def test_another_argument_that_a_key_cannot_say(argument):
    assert key_of(X, Y, argument) is None
    assert key_of(X, argument) is None


def test_an_operator_of_mpi_whose_handle_may_be_given_out_again():
    made = MPI.Op.Create(lambda a, b, t: None)
    assert key_of(X, Y, made) is None
    made.Free()


class Own(mpicoll.Op):
    pass


def test_an_operator_of_a_class_that_may_decide_otherwise():
    assert key_of(X, Y, Own(larger)) is None


def test_a_call_without_a_key_is_neither_kept_nor_found():
    cache, call = CallCache(), Remembered(None, None)
    cache.remember(None, call)
    assert cache.find(None) is None
    assert not cache.calls
    cache.remember(key_of(X, Y), call)
    assert cache.find(key_of(X, Y)) is call


def test_keys_do_not_keep_arrays_alive():
    array = np.zeros(4)
    gone, key = weakref.ref(array), key_of(array, [array, 4], None)
    del array
    gc.collect()
    assert gone() is None
    assert key is not None


def test_readers_are_found_by_type_and_not_by_name():
    """A class of the user that is named as CuPy's is read as any other object."""
    kind = type("ndarray", (SimpleNamespace,), {"__module__": "mine"})
    assert key_of(device_array(kind), Y) is None
    assert keys._buffers.pop(kind)
