"""Classes made from ndarray are taken as their elements: nothing of a class is called."""

import functools

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()

pytestmark = pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")


class Tagged(np.ndarray):
    """An array with a unit, whose constructor takes no shape."""

    def __new__(cls, data, unit="m"):
        self = np.asarray(data).view(cls)
        self.unit = unit
        return self

    def __array_finalize__(self, other):
        self.unit = getattr(other, "unit", None)


class Stubborn(np.ndarray):
    """An array that refuses every function of NumPy."""

    def __array_ufunc__(self, *arguments, **named):
        raise AssertionError("called")

    def __array_function__(self, *arguments, **named):
        raise AssertionError("called")


def memmap(data, folder):
    """Return an array mapped from a file of its own: two maps of one file would be the same memory."""
    mapped = np.memmap(folder / f"file{len(list(folder.iterdir()))}", data.dtype, "w+", shape=data.shape)
    mapped[...] = data
    return mapped


KINDS = {
    "memmap": memmap,
    "matrix": lambda data, folder: np.matrix(data, copy=False),
    "masked": lambda data, folder: np.ma.MaskedArray(data, mask=np.arange(data.size) % 2),
    "recarray": lambda data, folder: data.view(np.recarray),
    "tagged": lambda data, folder: Tagged(data),
    "stubborn": lambda data, folder: data.view(Stubborn),
}


@pytest.fixture(params=KINDS)
def kind(request, tmp_path):
    """Return what makes an array one of a class."""
    return functools.partial(KINDS[request.param], folder=tmp_path)


def elements(array):
    return np.asarray(array).ravel().tolist()


def numbers(count):
    return np.arange(float(count)) + 100 * RANK


def test_in_place(world, kind):
    """Calls that need memory of their own beside the array."""
    x = kind(numbers(3 * P))
    world.Alltoall(MPI.IN_PLACE, x)
    assert elements(x) == [3 * RANK + k + 100 * q for q in range(P) for k in range(3)]
    x = kind(numbers(3 * P))
    world.Reduce_scatter_block(MPI.IN_PLACE, x)
    assert elements(x)[:3] == [(3 * RANK + k) * P + 100 * sum(range(P)) for k in range(3)]
    x = kind(numbers(3))
    world.Allreduce(MPI.IN_PLACE, x)
    assert elements(x) == [k * P + 100 * sum(range(P)) for k in range(3)]


def test_sent_and_received(world, kind):
    """Contiguous, and every second element, which is packed."""
    x, y = kind(numbers(4)), kind(numbers(4 * P))
    world.Allgather(x, y)
    assert elements(y) == [k + 100 * q for q in range(P) for k in range(4)]
    z = kind(np.zeros(4 * P))
    world.Allreduce(y.T[::2], z.T[::2])
    assert elements(z.T[::2]) == [P * v for v in elements(y.T[::2])]


def test_in_the_functional_layer(world, kind):
    x = kind(numbers(4))
    assert elements(mpicoll.allreduce(x, comm=world)) == [k * P + 100 * sum(range(P)) for k in range(4)]
    assert elements(mpicoll.allgather(x, comm=world)) == [k + 100 * q for q in range(P) for k in range(4)]
    assert mpicoll.bcast(x, comm=world) is x
    assert elements(x) == [0, 1, 2, 3]


@pytest.mark.gpu
def test_classes_made_from_arrays_of_the_device(world):
    """CuPy's can be made into others, too."""
    import cupy

    class Mine(cupy.ndarray):
        pass

    memory = cupy.arange(3.0 * P)
    x = Mine(memory.shape, memory.dtype, memory.data)
    world.Alltoall(MPI.IN_PLACE, x)
    assert cupy.asnumpy(x).tolist() == [3 * RANK + k for q in range(P) for k in range(3)]
    world.Reduce_scatter_block(MPI.IN_PLACE, x)
    assert cupy.asnumpy(x)[:3].tolist() == [sum(3 * rank + k for rank in range(P)) for k in range(3)]
