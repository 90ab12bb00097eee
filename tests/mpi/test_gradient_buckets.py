"""Gradients in buckets: averages in place, in one order on all ranks."""

import warnings

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.cases import HOST

SIZE, RANK = MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank()
#: what is added to a number on rank r is r + 1
MEAN = (SIZE + 1) / 2
STEPS = 3

pytestmark = pytest.mark.many_ranks


class Watched(mpicoll.Communicator):
    """Notes the address and length of each array that is reduced."""

    def __new__(cls, comm):
        self = super().__new__(cls, comm)
        self.reduced = []
        return self

    def Iallreduce(self, sendbuf, recvbuf, op=MPI.SUM, **options):
        self.reduced.append((recvbuf.ctypes.data, recvbuf.size))
        return super().Iallreduce(sendbuf, recvbuf, op, **options)


@pytest.fixture
def watched():
    made = Watched(MPI.COMM_WORLD.Dup())
    yield made
    made.Free()


def arrays(np=np):
    """Arrays of all kinds: mixed dtypes, strided, of other orders, without elements, larger than a bucket."""
    return [
        np.empty(5, "f4"),
        np.empty((4, 6), "f8"),
        np.empty((6, 10), "f4")[:, ::3],
        np.empty((3, 4), "f8", order="F"),
        np.empty(1000, "f4"),
        np.empty((3, 0), "f4"),
        np.empty((), "f8"),
        np.empty(7, "f2"),
        np.empty(33, "c8"),
        np.empty(1, "f4"),
        np.empty((50, 8), "f4")[::2],
    ]


def numbers(array, offset, xp=np):
    return (xp.arange(array.size).reshape(array.shape) % 50 + offset).astype(array.dtype)


def step(buckets, some, turn, memory=HOST):
    """Make a step, and look at all averages."""
    for k, array in enumerate(some):
        values = numbers(array, k + turn + RANK + 1, memory.xp)
        array[...] = values
        values.fill(0)  # the next array may be in its memory
        buckets.add(array)
    buckets.finish()
    for k, array in enumerate(some):
        wanted = numbers(array, k + turn + MEAN)
        np.testing.assert_allclose(memory.to_host(array), wanted, rtol=1e-6)  # complex numbers are divided inexactly


@pytest.mark.parametrize("nbytes", [1, 100, 300, 25 << 20])
def test_averages_are_in_the_arrays_after_each_step(world, memory, on_path, nbytes):
    buckets, some = mpicoll.GradientBuckets(world, bucket_bytes=nbytes), arrays(memory.xp)
    for turn in range(STEPS):
        step(buckets, some, turn, memory)


def test_arrays_may_be_elsewhere_in_each_step(world, memory, on_path):
    """Those before are kept, so that none has the address of an old one."""
    buckets, kept = mpicoll.GradientBuckets(world, bucket_bytes=300), []
    for turn in range(STEPS):
        kept.append(arrays(memory.xp))
        step(buckets, kept[-1], turn, memory)


def test_a_bucket_is_reduced_as_soon_as_it_is_full(watched):
    buckets = mpicoll.GradientBuckets(watched, bucket_bytes=100)
    started = []
    for _ in range(2):
        some = [np.ones(n, "f4") for n in (10, 10, 5, 100, 3, 2)]
        for array in some:
            buckets.add(array)
            started.append(len(watched.reduced))
        buckets.finish()
        started.append(len(watched.reduced))
    assert started == [0, 0, 1, 2, 2, 2, 3, 3, 3, 4, 5, 5, 6, 6]  # the last one is known to be full from then on
    assert watched.reduced[1][1] == 100  # in place


def test_the_memory_of_buckets_stays(watched):
    buckets, some = mpicoll.GradientBuckets(watched, bucket_bytes=100), [np.ones(9, "f4") for _ in range(10)]
    for _ in range(STEPS):
        for array in some:
            buckets.add(array)
        buckets.finish()
    assert len(watched.reduced) == STEPS * 4
    assert len(set(watched.reduced)) == 4


def test_another_operator(world):
    buckets, x = mpicoll.GradientBuckets(world, op=MPI.MAX), np.full(5, RANK)
    for _ in range(2):
        with buckets:
            buckets.add(x)
    assert (x == SIZE - 1).all()


def test_any_intracommunicator_will_do():
    buckets, x = mpicoll.GradientBuckets(MPI.COMM_SELF), np.full(5, RANK, "f8")
    with buckets:
        buckets.add(x)
    assert (x == RANK).all()


@pytest.mark.ranks(2, 3, 4)
def test_an_order_that_differs_is_named_in_the_first_step(comm):
    """Also where each bucket has as many bytes on all ranks, so that no message would be too long."""
    buckets = mpicoll.GradientBuckets(comm, bucket_bytes=200)
    sizes = (5, 20) if RANK == SIZE - 1 else (20, 5)
    buckets.add(np.ones(sizes[0]))
    text = rf"^gradient buckets: array 0 is float64\[20\] on rank 0, but float64\[5\] on rank {SIZE - 1}$"
    with pytest.raises(mpicoll.MismatchError, match=text):
        buckets.add(np.ones(sizes[1]))


@pytest.mark.ranks(2, 3, 4)
def test_more_arrays_on_one_rank_are_named_in_the_first_step(comm):
    buckets = mpicoll.GradientBuckets(comm, bucket_bytes=100)
    text = rf"^gradient buckets: array 1 is float32\[3\] on rank 0, but not in this bucket on rank {SIZE - 1}$"
    with pytest.raises(mpicoll.MismatchError, match=text), buckets:
        buckets.add(np.ones(50, "f4"))
        if RANK != SIZE - 1:
            buckets.add(np.ones(3, "f4"))


def test_a_later_step_must_be_as_the_first_one(world):
    buckets, x, y = mpicoll.GradientBuckets(world), np.ones(3), np.ones(4)
    with buckets:
        buckets.add(x)
        buckets.add(y)
    buckets.add(x)
    with pytest.raises(ValueError, match=r"^gradient buckets: array 1 is float32\[4\], but was float64\[4\] in the"):
        buckets.add(y.astype("f4"))
    with pytest.raises(RuntimeError, match=r"^gradient buckets: array 1 was not added in this step$"):
        buckets.finish()
    buckets.add(y)
    with pytest.raises(ValueError, match=r"^gradient buckets: array 2 is one more than in the first step$"):
        buckets.add(y)
    buckets.finish()
    assert (x == 1).all()


def test_what_cannot_be_written_is_refused_by_its_number(world):
    buckets, fixed = mpicoll.GradientBuckets(world), np.ones(3)
    fixed.flags.writeable = False
    buckets.add(np.ones(3))
    for value, error in ((fixed, ValueError), ("text", TypeError), (np.array([None]), TypeError)):
        with pytest.raises(error, match=r"^gradient buckets: array 1 "):
            buckets.add(value)
    buckets.finish()
    with pytest.raises(ValueError, match="bucket_bytes is 0, not positive"):
        mpicoll.GradientBuckets(world, bucket_bytes=0)


@pytest.mark.parametrize("first", [True, False])
def test_a_step_that_fails_is_left_and_the_next_one_is_whole(comm, first):
    """All ranks fail at the same place, with a reduction on its way."""
    buckets, some = mpicoll.GradientBuckets(comm, bucket_bytes=100), arrays()
    if not first:
        step(buckets, some, 0)
    with pytest.raises(ZeroDivisionError), buckets:
        for array in some[:7]:
            buckets.add(np.zeros_like(array))
        raise ZeroDivisionError
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(buckets, some, 1)


@pytest.mark.ranks(2, 3)
def test_an_error_of_one_rank_is_that_of_all_where_a_setting_demands_it(comm):
    """And the step after it is whole."""
    with mpicoll.override(errors="agree"):
        buckets, x = mpicoll.GradientBuckets(comm), np.ones(3)
        for turn in range(2):
            with buckets:
                buckets.add(x)
            if turn:
                return
            error = ValueError if RANK == SIZE - 1 else mpicoll.MismatchError
            with pytest.raises(error, match="array 0 is float64"), buckets:
                buckets.add(np.ones(4 if RANK == SIZE - 1 else 3))


class Parameter:
    """A stand-in for PyTorch's, which may be missing: only what is used of it, with NumPy arrays."""

    def __init__(self, size, dtype="f4", requires_grad=True):
        self.array, self.grad, self.requires_grad = np.zeros(size, dtype), None, requires_grad
        self.detach, self.hooks = lambda: self.array, []

    def register_post_accumulate_grad_hook(self, hook):
        self.hooks.append(hook)

    def accumulate(self, value):
        self.grad = np.full_like(self.array, value) if self.grad is None else self.grad + np.float32(value)
        for hook in self.hooks:
            hook(self)


class Model:
    def __init__(self):
        self.parameters = [Parameter(n) for n in (30, 7, 20, 2, 100)] + [Parameter(9, requires_grad=False)]

    def named_parameters(self):
        return [(f"p{k}", one) for k, one in enumerate(self.parameters)]

    def backward(self, order):
        for k in order:
            self.parameters[k].accumulate(k + RANK + 1)


def test_gradients_that_become_ready_in_another_order_are_reduced_in_one(watched):
    model, buckets = Model(), mpicoll.GradientBuckets(watched, bucket_bytes=100)
    buckets.watch(model)
    orders = [(4, 3, 2, 1, 0), (0, 1, 2, 3, 4), (2, 0, 4, 1, 3)]
    for turn in range(STEPS):
        for one in model.parameters:
            one.grad = None
        with buckets:
            model.backward(orders[(turn + RANK) % 3])
        for k, one in enumerate(model.parameters[:-1]):
            assert (one.grad == k + MEAN).all()
    assert [size for _, size in watched.reduced] == [100, 32, 30] * STEPS  # the second is packed
    assert model.parameters[5].grad is None


def test_accumulation_is_reduced_at_its_last_backward(world):
    model, buckets = Model(), mpicoll.GradientBuckets(world, bucket_bytes=100)
    buckets.watch(model)
    with buckets:
        with buckets.no_sync():
            model.backward(range(5))
        model.backward(range(5))
    assert all((one.grad == 2 * (k + MEAN)).all() for k, one in enumerate(model.parameters[:-1]))


def test_a_second_backward_in_a_step_and_a_missing_gradient_are_named(world):
    model, buckets = Model(), mpicoll.GradientBuckets(world)
    buckets.watch(model)
    model.backward([4, 3])
    with pytest.raises(RuntimeError, match=r"the gradient of p3 is ready a second time in a step: call finish\(\)"):
        model.backward([3])
    with pytest.raises(RuntimeError, match=r"the gradient of p2 was not added in this step"):
        buckets.finish()
    with pytest.raises(RuntimeError, match="watched"):
        buckets.add(np.ones(3))
    with pytest.raises(RuntimeError, match="before watch"):
        buckets.watch(model)
    model.backward([0, 1, 2])
    buckets.finish()


@pytest.mark.ranks(2, 3)
def test_models_that_differ_are_named(comm):
    model = Model()
    if RANK == SIZE - 1:
        model.parameters[1] = Parameter(8)
    text = rf"array 3 is float32\[7\] on rank 0, but float32\[8\] on rank {SIZE - 1}$"
    with pytest.raises(mpicoll.MismatchError, match=text):
        mpicoll.GradientBuckets(comm).watch(model)


def test_a_block_that_lacks_an_array_leaves_its_step(world):
    """The next one is whole again."""
    buckets, arrays = mpicoll.GradientBuckets(world), [np.full(n, RANK + 1.0) for n in (2, 3)]
    with buckets:
        for array in arrays:
            buckets.add(array)
    with pytest.raises(RuntimeError, match="was not added in this step"), buckets:
        buckets.add(arrays[0])
    arrays = [np.full(n, RANK + 1.0) for n in (2, 3)]
    with buckets:
        for array in arrays:
            buckets.add(array)
    assert all((array == (SIZE + 1) / 2).all() for array in arrays)
