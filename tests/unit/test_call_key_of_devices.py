"""Keys of remembered calls with device arrays: where they are, on which stream, in which memory."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mpicoll.runtime.call import call_key as keys
from mpicoll.runtime.context.call_cache import CallCache
from mpicoll.runtime.cuda.streams import where
from unit.keyed import MEMORY, at, device_array, key_of

X, Y = MEMORY[:32].view("f8"), MEMORY[32:64].view("f8")


class Machine:
    """CuPy's current device and stream."""

    def __init__(self, monkeypatch):
        self.device, self.address, self.captured = 0, 5, False
        runtime = SimpleNamespace(
            getDevice=lambda: self.device,
            streamIsCapturing=lambda address: self.captured and address == self.address,
            CUDARuntimeError=OSError,
        )
        current = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=self.address), runtime=runtime)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=current))


@pytest.mark.parametrize(("name", "value"), [("device", 1), ("address", 6), ("captured", True)])
def test_where_device_arrays_would_be_worked_on(monkeypatch, name, value):
    machine = Machine(monkeypatch)
    before = key_of(X, Y, place=where(None))
    assert key_of(X, Y, place=where(None)) == before
    setattr(machine, name, value)
    assert key_of(X, Y, place=where(None)) != before


def test_the_stream_that_is_given(monkeypatch):
    """By its address, and that it was given: with arrays on the host none may be."""
    Machine(monkeypatch)
    given = (None, SimpleNamespace(ptr=5), SimpleNamespace(cuda_stream=7))
    first, again = [[key_of(X, Y, place=where(stream)) for stream in given] for _ in range(2)]
    assert first == again
    assert len(set(first)) == 3


@pytest.mark.parametrize("cupy", [True, False])
@pytest.mark.parametrize("nonsense", [[], 5, "stream", SimpleNamespace(ptr="five"), SimpleNamespace(cuda_stream=None)])
def test_what_is_no_stream_is_left_to_reading(monkeypatch, cupy, nonsense):
    """A key can be made and looked up; nothing is remembered by it, for no arrays go with such a stream."""
    if cupy:
        Machine(monkeypatch)
    place = where(nonsense)
    assert place[0] is None
    assert key_of(X, Y, place=place) != key_of(X, Y, place=where(None))
    assert CallCache().find(key_of(X, Y, place=place)) is None


@pytest.mark.parametrize("nonsense", [[], 5, {}, b"ring"])
def test_what_is_no_algorithm_is_left_to_reading(nonsense):
    assert CallCache().find(key_of(X, Y, algorithm=nonsense)) is None


def cupy_class(**members):
    """Return a class that passes for CuPy's, such as `cupy._core.core.ndarray`."""
    return type("ndarray", (SimpleNamespace,), {"__module__": "cupy._core.core", **members})


@pytest.mark.parametrize("members", [{"_c_contiguous": True}, {}], ids=["known", "unknown"])
@pytest.mark.parametrize(
    "changed",
    [
        {"ptr": 8192},
        {"device": 1},
        {"dtype": np.dtype("i8")},
        {"dtype": np.dtype(">f8")},
        {"size": 7, "shape": (7,), "strides": (8,)},
        {"contiguous": False, "strides": (8, 16)},
    ],
)
def test_a_device_array_that_differs_in_one_thing(members, changed):
    """Whether the class tells at once that it is contiguous, or not."""
    kind = cupy_class(**members)
    before = key_of(device_array(kind), Y)
    assert key_of(device_array(kind), Y) == before is not None
    assert key_of(device_array(kind, **changed), Y) != before


@pytest.mark.parametrize("changed", [{"shape": (3, 2)}, {"strides": (8, 24)}])
def test_a_device_array_that_is_packed_in_another_way(changed):
    kind = cupy_class(_c_contiguous=False)
    strided = {"contiguous": False} | changed
    assert key_of(device_array(kind, contiguous=False), Y) != key_of(device_array(kind, **strided), Y)


def test_managed_memory_has_one_address_on_host_and_device():
    """Even where all numbers are the same by chance."""
    host, address = at(0, "f8", 1), keys._address(MEMORY)
    device = device_array(cupy_class(_c_contiguous=True), ptr=address, device=1, size=host.flags.num & 0x500)
    assert keys._numpy_array(host) == ((1, np.dtype("f8"), device.size), address, 8)
    assert key_of(host, Y) != key_of(device, Y)
