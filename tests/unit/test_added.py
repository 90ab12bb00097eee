"""Arrays that are added to buckets: where they are, and when they are read again."""

import gc
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from mpicoll.training import gradient_buckets
from mpicoll.training.added import added
from mpicoll.training.bucket_layout import Member

F4 = np.dtype("f4")


class DeviceArray:
    """What is used of CuPy's arrays."""

    def __init__(self, size, pointer):
        self.size, self.dtype, self.nbytes = size, F4, 4 * size
        self.flags = SimpleNamespace(c_contiguous=True)
        self.data, self.device = SimpleNamespace(ptr=pointer), SimpleNamespace(id=3)


@pytest.fixture
def cupy(monkeypatch):
    module = ModuleType("cupy")
    module.ndarray = DeviceArray
    monkeypatch.setitem(sys.modules, "cupy", module)


@pytest.fixture
def buckets(monkeypatch):
    """Buckets of one rank that reduce nothing; each reading of an array is noted."""
    read = []
    monkeypatch.setattr(gradient_buckets, "added", lambda name, value: read.append(name) or added(name, value))
    monkeypatch.setattr(gradient_buckets.Bucket, "start", lambda *_: None)
    monkeypatch.setattr(gradient_buckets.Bucket, "end", lambda *_: None)
    made = gradient_buckets.GradientBuckets(MPI.COMM_SELF)
    made.read = read
    return made


def step(buckets, *arrays):
    """Return the names of the arrays that were read in a step."""
    buckets.read.clear()
    with buckets:
        for array in arrays:
            buckets.add(array)
    return list(buckets.read)


def test_where_an_array_is():
    x = np.zeros((3, 4), "f4")
    assert added("x", x)[:3] == (Member(12, F4, -1), x.ctypes.data, None)
    columns = added("x", x[:, 1:3])
    assert columns.member == Member(6, F4, -1)
    assert columns.pointer != x[:, 1:3].ctypes.data
    assert (len(columns.before), len(columns.after)) == (1, 1)


def test_where_an_array_on_a_device_is(cupy):
    x = DeviceArray(5, 4096)
    found = added("x", x)
    assert found[:2] == (Member(5, F4, 3), 4096)
    assert found.array() is x
    del x
    gc.collect()
    assert found.array() is None


def test_an_array_on_a_device_is_read_once(cupy, buckets):
    """Until another one comes in its place, and that is compared with the first."""
    x, y = DeviceArray(5, 4096), DeviceArray(7, 8192)
    assert step(buckets, x, y) == ["array 0", "array 1"]
    assert step(buckets, x, y) == []
    assert step(buckets, x, DeviceArray(7, 16384)) == ["array 1"]
    with pytest.raises(ValueError, match=r"array 0 is float32\[6\] on a device, but was float32\[5\]"):
        buckets.add(DeviceArray(6, 4096))


def test_an_array_on_the_host_is_read_each_time(buckets):
    """For it can be changed in place."""
    x = np.zeros(5, "f4")
    assert step(buckets, x) == step(buckets, x) == ["array 0"]
    x.dtype = "i4"
    with pytest.raises(ValueError, match=r"array 0 is int32\[5\], but was float32\[5\]"):
        buckets.add(x)


def test_no_array_is_kept_after_a_step(cupy, buckets):
    some = [DeviceArray(5, 4096), np.zeros((4, 6))[:, ::2], np.zeros(3)]
    before = [sys.getrefcount(one) for one in some]
    step(buckets, *some)
    assert [sys.getrefcount(one) for one in some] == before
