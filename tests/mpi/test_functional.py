"""Functions: arrays in, arrays of the same shape, dtype and kind out."""

import gc

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.functions import EXPECTED, everyones, mine, same

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
LAST = SIZE - 1
SHAPE = (2 * SIZE, 3)
REDUCING = ("allreduce", "reduce", "scan", "exscan", "reduce_scatter")
ROOTED = ("reduce", "gather", "scatter", "bcast", "gatherv")


@pytest.mark.case("SHAPE-KEEP")
@pytest.mark.parametrize("dtype", ["i4", "u8", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("name", EXPECTED)
def test_shape_and_dtype_are_kept(name, dtype):
    """The result has the input's dtype, and the input stays as it was."""
    x = mine(dtype=dtype)
    found = getattr(mpicoll, name)(x)
    same(found, EXPECTED[name]())
    if found is not None:
        assert found.dtype == np.dtype(dtype)
    if name != "bcast":
        np.testing.assert_array_equal(x, mine(dtype=dtype))


@pytest.mark.case("SHAPE-KEEP")
@pytest.mark.parametrize("name", [n for n in EXPECTED if n != "bcast"])
def test_out_is_what_is_returned(name):
    """The given array is returned, and holds the result."""
    wanted = EXPECTED[name]()
    out = None if wanted is None else np.full(wanted.shape, -1, "f4")
    found = getattr(mpicoll, name)(mine(), out=out)
    assert found is out
    if name == "exscan" and RANK == 0:
        wanted = np.full(SHAPE, -1, "f4")  # left as it is
    same(found, wanted)


@pytest.mark.parametrize("name", [n for n in EXPECTED if n != "bcast"])
def test_out_may_be_strided(name):
    wanted = EXPECTED[name]()
    if wanted is None:
        getattr(mpicoll, name)(mine())
        return
    out = np.zeros((*wanted.shape, 2), "f4")[..., 1]
    assert getattr(mpicoll, name)(mine(), out=out) is out
    np.testing.assert_array_equal(out, wanted)


def test_bcast_is_in_place():
    x = mine()
    assert mpicoll.bcast(x, root=LAST) is x
    same(x, mine(LAST))


@pytest.mark.parametrize("order", ["F", "strided", "reversed"])
@pytest.mark.parametrize("name", EXPECTED)
def test_any_layout(name, order):
    x = mine()
    x = {"F": np.asfortranarray(x), "strided": np.repeat(x, 2, 1)[:, ::2], "reversed": x[::-1].copy()[::-1]}[order]
    found = getattr(mpicoll, name)(x)
    wanted = EXPECTED[name]()
    if wanted is not None:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["reduce", "gather", "scatter", "bcast"])
def test_any_root(name):
    found = getattr(mpicoll, name)(mine(), root=LAST)
    if name in ("reduce", "gather") and RANK != LAST:
        assert found is None
        return
    wanted = {
        "reduce": lambda: everyones().sum(0),
        "gather": everyones,
        "scatter": lambda: mine(LAST)[2 * RANK : 2 * RANK + 2],
        "bcast": lambda: mine(LAST),
    }[name]()
    same(found, wanted)


@pytest.mark.parametrize("name", REDUCING)
def test_any_operator(name):
    found = getattr(mpicoll, name)(mine(), MPI.MAX)
    if name == "allreduce":
        same(found, everyones().max(0))
    second = mpicoll.Op(lambda a, b: b)
    found = getattr(mpicoll, name)(mine(), op=second)
    if name == "allreduce":
        same(found, mine(LAST))


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_scalars(kind):
    """Python's own numbers are arrays without dimension."""
    x = kind(1)
    found = mpicoll.allreduce(x)
    assert found.shape == ()
    assert found.dtype == np.asarray(x).dtype
    assert found == (SIZE if kind is not bool else True)
    assert mpicoll.allgather(x).tolist() == [x] * SIZE
    assert mpicoll.scan(kind(1)).dtype == found.dtype
    gathered = mpicoll.gather(x)
    assert (gathered is None) if RANK else gathered.shape == (SIZE,)


@pytest.mark.case("ZEROD")
@pytest.mark.parametrize("make", [np.float32, lambda x: np.asarray(x, "f4")])
def test_no_dimension(make):
    """A 0-d array gives a 0-d array."""
    found = mpicoll.allreduce(make(RANK))
    assert (found.shape, found.dtype) == ((), np.float32)
    assert found == sum(range(SIZE))
    assert mpicoll.allgather(make(RANK)).tolist() == list(range(SIZE))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (SIZE, 0)])
def test_nothing(shape):
    x = np.zeros(shape)
    assert mpicoll.allreduce(x).shape == shape
    assert mpicoll.allgather(x).shape == (SIZE, *shape)
    assert mpicoll.alltoall(x).shape == shape
    assert mpicoll.reduce_scatter(x).shape == (shape[0] // SIZE, *shape[1:])


def test_barrier_and_options(world):
    mpicoll.barrier()
    mpicoll.barrier(comm=world, algorithm="linear")
    same(mpicoll.allreduce(mine(), algorithm="ring/2"), everyones().sum(0))
    with pytest.raises(ValueError, match="no algorithm 'nothing'"):
        mpicoll.allreduce(mine(), algorithm="nothing")


@pytest.mark.case("UNEVEN-GATHER")
@pytest.mark.parametrize("shape", [lambda r: (r + 1, 2), lambda r: (3 * (r % 2), 2), lambda r: (5 * (r == LAST),)])
def test_uneven_arrays_are_joined(shape):
    """Ranks need not know what the others bring."""
    x = np.full(shape(RANK), RANK, "i8")
    parts = [np.full(shape(r), r, "i8") for r in range(SIZE)]
    extents = [part.shape[0] for part in parts]
    found, counts = mpicoll.allgatherv(x)
    same(found, np.concatenate(parts))
    assert list(counts) == extents
    for root in {0, LAST}:
        found, counts = mpicoll.gatherv(x, root=root)
        same(found, np.concatenate(parts) if root == RANK else None)
        assert list(counts) == extents


@pytest.mark.parametrize("name", ["allgatherv", "gatherv"])
@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (
            lambda: np.zeros((2, 4)),
            "{name}: x is of shape (2, 3), float64 on rank 0, of shape (2, 4), float64 on rank {last}",
        ),
        (
            lambda: np.zeros((2, 3), "f4"),
            "{name}: x is of shape (2, 3), float64 on rank 0, of shape (2, 3), float32 on rank {last}",
        ),
    ],
)
@pytest.mark.mpi(min_size=2)
def test_arrays_that_do_not_fit_are_refused_everywhere(name, odd, text):
    x = odd() if RANK == LAST else np.zeros((2, 3))
    with pytest.raises(ValueError, match="x is ") as caught:
        getattr(mpicoll, name)(x)
    assert str(caught.value) == text.format(name=name, last=LAST)
    same(mpicoll.allreduce(mine()), everyones().sum(0))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["allgatherv", "gatherv"])
def test_a_scalar_on_one_rank_is_an_error_on_all(name):
    """Nothing to join along: the others must not wait for that rank."""
    x = np.float64(1) if RANK == LAST else np.zeros(3)
    with pytest.raises(ValueError, match=f"{name}: x "):
        getattr(mpicoll, name)(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mpicoll.reduce_scatter(np.zeros(SIZE + 1)),
        lambda: mpicoll.alltoall(np.zeros((SIZE + 1, SIZE))),
        lambda: mpicoll.scatter(np.zeros(SIZE + 1)),
        lambda: mpicoll.alltoall(np.float64(1)),
    ],
)
@pytest.mark.mpi(min_size=2)
def test_parts_that_do_not_divide_are_refused(call):
    with pytest.raises(ValueError, match=f"the first axis of x, of shape .* is not a multiple of {SIZE} ranks"):
        call()


@pytest.mark.parametrize("x", ["text", None, {1: 2}, object()])
def test_what_is_no_array_is_refused(x):
    with pytest.raises(TypeError, match=r"^allreduce: x is a .*, not an array$"):
        mpicoll.allreduce(x)


@pytest.mark.parametrize(("out", "error"), [(np.zeros(SHAPE), TypeError), (np.zeros(3, "f4"), ValueError)])
def test_out_that_does_not_fit_is_refused(out, error):
    with pytest.raises(error, match="allreduce: "):
        mpicoll.allreduce(mine(), out=out)


def test_out_that_overlaps_is_refused():
    x = np.zeros(9)
    with pytest.raises(ValueError, match="overlaps"):
        mpicoll.allreduce(x[:6], out=x[3:])
    x[:] = 1
    assert mpicoll.allreduce(x, out=x) is x
    assert (x == SIZE).all()


def test_buffers_of_others():
    """What has a buffer is taken like an array."""
    found = mpicoll.allreduce(bytearray([1, 2]))
    assert found.tolist() == [SIZE, 2 * SIZE]
    assert mpicoll.allgather(memoryview(np.arange(3))).shape == (SIZE, 3)


def test_other_communicators(comms):
    for comm in comms.values():
        for given in (comm, MPI.Intracomm(comm)):
            assert mpicoll.allreduce(1, comm=given) == comm.size


def test_communicators_that_come_and_go():
    """A handle may be used again by the MPI library for another communicator."""
    for turn in range(8):
        comm = MPI.COMM_WORLD.Split(0, RANK if turn % 2 else -RANK)
        assert mpicoll.allgather(RANK, comm=comm).tolist() == comm.allgather(RANK)
        x = np.arange(3.0) + RANK
        np.testing.assert_array_equal(mpicoll.allreduce(x, comm=comm), comm.allreduce(x))
        comm.Free()
        part = MPI.COMM_WORLD.Split(RANK % 2, RANK)
        assert mpicoll.allreduce(1, comm=part) == part.size
        part.Free()
        gc.collect()
