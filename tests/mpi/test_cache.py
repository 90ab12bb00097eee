"""What is kept between calls: bound plans, recent calls, scratch.  Never a wrong result for it."""

import gc

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import bound_plans, check
from mpi.cases import Case

SIZE = MPI.COMM_WORLD.Get_size()


def summed(comm, memory, x, y, value):
    """Fill x with a value, reduce, and compare."""
    x[...] = value
    with mpicoll.override(path=memory.path):
        comm.Allreduce(x, y)
    assert (memory.to_host(y) == value * comm.size).all()


def test_the_same_arrays_again(comm, memory):
    """Nothing new is bound, and what is bound stays the same."""
    x, y = memory.xp.zeros(5), memory.xp.zeros(5)
    summed(comm, memory, x, y, 1)
    first = bound_plans(comm)
    for value in range(2, 6):
        summed(comm, memory, x, y, value)
    assert bound_plans(comm) == first
    assert len(first) == 1


def test_the_same_memory_again(comm):
    """Other array objects, but at the same place: nothing new is bound."""
    x, y = np.zeros(9), np.zeros(9)
    comm.Allreduce(x[2:6], y[1:5])
    first = bound_plans(comm)
    comm.Allreduce(x[2:6], y[1:5].reshape(2, 2))
    assert bound_plans(comm) == first
    comm.Allreduce(x[3:7], y[1:5])
    assert len(bound_plans(comm)) == 2


def test_the_same_shape_elsewhere_has_the_same_plan(comm):
    """Plans are keyed by size, bound plans by address."""
    plans = [comm.Get_plan("Allreduce", np.zeros(7), np.zeros(7)) for _ in range(3)]
    assert plans[0] is plans[1] is plans[2]


@pytest.mark.parametrize("most", [1, 4])
def test_more_arrays_than_are_kept(comm, memory, most):
    arrays = [(memory.xp.zeros(5), memory.xp.zeros(5)) for _ in range(7)]
    with mpicoll.override(plan_cache=most):
        for turn in range(2):
            for number, (x, y) in enumerate(arrays):
                summed(comm, memory, x, y, 10 * turn + number)
                assert len(bound_plans(comm)) <= most


@pytest.mark.parametrize("most", [1, 2, 3])
def test_calls_in_flight_that_are_forgotten(comm, most):
    """Programs of calls that run, or wait for their turn, live to their end."""
    arrays = [(np.zeros(1000 + k), np.zeros(1000 + k)) for k in range(9)]
    x, y = np.ones(5), np.zeros(5)
    with mpicoll.override(plan_cache=most):
        for turn in range(6):
            comm.Allreduce(x, y)
            y[:] = -1
            for k, (source, target) in enumerate(arrays):
                source[:], target[:] = turn + k, -1
            requests = [comm.Iallreduce(*pair, algorithm="recursive_doubling") for pair in arrays]
            comm.Allreduce(x, y)
            assert (y == comm.size).all()
            for k, ((_, target), request) in enumerate(zip(arrays, requests, strict=True)):
                request.Wait()
                assert (target == comm.size * (turn + k)).all()
    cache = comm._get_context().cache
    assert len(cache.calls) <= most
    programs = [bound for call in cache.calls.values() for bound in call.programs.values()]
    assert cache.requests == sum(len(bound.requests) for bound in programs)


def test_arrays_that_come_and_go(comm, memory):
    """Memory is used again by other arrays, of other sizes and dtypes too."""
    for turn in range(60):
        dtype = ("f4", "f8", "i8", "c16")[turn % 4]
        x, y = memory.xp.zeros(4 + turn % 3, dtype), memory.xp.zeros(4 + turn % 3, dtype)
        summed(comm, memory, x, y, turn)
    assert len(bound_plans(comm)) <= mpicoll.settings.plan_cache


def test_many_different_calls(comm):
    """More calls than any cache has room for, each of them twice."""
    with mpicoll.override(plan_cache=8):
        for _ in range(2):
            for count in range(1, 20):
                for method in ("Allreduce", "Bcast", "Alltoall"):
                    check(comm, Case(method, count=count, root=count))


def test_scratch_that_grows(comm):
    """Larger arrays need more scratch, which moves: what was bound to the old place must not run."""
    arrays = [(np.zeros(count), np.zeros(count)) for count in (10, 200_000, 10, 400_000, 20)]
    for value in range(2):
        for x, y in arrays:
            x[:] = value
            comm.Allreduce(x, y, algorithm="recursive_doubling")
            assert (y == value * comm.size).all()


def test_arrays_are_not_kept_alive(comm):
    import weakref

    x, y = np.zeros(1000), np.zeros(1000)
    comm.Allreduce(x, y)
    refs = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_other_arguments_for_the_same_arrays(comm):
    """Operator, root, algorithm and form decide too."""
    rank, size = comm.rank, comm.size
    x, y = np.full(3, rank + 1.0), np.zeros(3)
    total = size * (size + 1) / 2
    wanted = ((MPI.SUM, total), (MPI.MAX, size), (MPI.MIN, 1), (mpicoll.AVG, total / size))
    for _ in range(2):
        for op, value in wanted:
            comm.Allreduce(x, y, op)
            assert np.allclose(y, value)
            comm.Reduce(x, y, op, root=size - 1)
            assert rank < size - 1 or np.allclose(y, value)
        for root in range(size):
            y[:] = rank
            comm.Bcast(y, root)
            assert (y == root).all()
        y[:] = rank + 1
        comm.Allreduce(MPI.IN_PLACE, y)
        assert (y == total).all()
        comm.Allreduce(x, y, algorithm="linear")
        assert (y == total).all()


def test_another_algorithm_for_the_same_arrays(comm):
    x, y = np.zeros(3), np.zeros(3)
    comm.Allreduce(x, y, algorithm="linear")
    comm.Allreduce(x, y, algorithm="one_shot")
    with mpicoll.override(algorithms="allreduce:binomial"):
        comm.Allreduce(x, y)
    with mpicoll.override(algorithms="allreduce:two_shot"):
        comm.Allreduce(x, y)
    assert [key[0].algorithm for key in bound_plans(comm)] == ["linear", "one_shot", "binomial", "two_shot"]


def test_two_wrappers_with_rules_of_their_own(comm):
    """They share what is private to the communicator, but not what they choose."""
    x, y = np.zeros(3), np.zeros(3)
    for rules in ("allreduce:linear", "allreduce:binomial"):
        mpicoll.Communicator(comm, algorithms=rules).Allreduce(x, y)
    assert [key[0].algorithm for key in bound_plans(comm)] == ["linear", "binomial"]


def test_counts_that_were_changed_in_place(comm):
    """The list of counts is the same object, but not what it says."""
    rank, size = comm.rank, comm.size
    counts = [1] * size + [0]
    for turn in range(3):
        counts[:] = [(r + turn) % 2 + 1 for r in range(size)]
        x, y = np.arange(8 * size)[: sum(counts)] + 0.0, np.zeros(counts[rank])
        comm.Reduce_scatter(x, y, counts)
        start = sum(counts[:rank])
        assert y.tolist() == [size * v for v in range(start, start + counts[rank])]


def test_counts_that_were_changed_for_the_same_arrays(comm):
    """Two ranks exchange their counts; the others' arrays and counts stay as they are."""
    rank, size = comm.rank, comm.size
    counts = [2, *[3] * (size - 2), 4] if size > 1 else [2]
    x, ys = np.arange(float(sum(counts))), {n: np.zeros(n) for n in (2, 3, 4)}
    for _ in range(3):
        y = ys[counts[rank]]
        comm.Reduce_scatter(x, y, counts)
        start = sum(counts[:rank])
        assert y.tolist() == [size * v for v in range(start, start + counts[rank])]
        counts.reverse()


def test_counts_in_new_arrays(comm):
    """Equal counts, each time in an array of their own."""
    size = comm.size
    x, y = np.ones(2 * size), np.zeros(2)
    for _ in range(3):
        comm.Reduce_scatter(x, y, np.full(size, 2))
        assert y.tolist() == [size] * 2


def test_blocks_that_were_changed_in_place(comm):
    """[array, counts, displs] is the same list, but not what it says."""
    rank, size = comm.rank, comm.size
    y = np.zeros(2 * size)
    spec = [y, [1] * size, list(range(size))]
    for step in (1, 2):
        y[:] = -1
        spec[2][:] = [step * r for r in range(size)]
        comm.Allgatherv(np.full(1, float(rank)), spec)
        assert y[: step * size : step].tolist() == list(range(size))


def test_an_array_that_became_another(comm):
    """Read-only, or of another shape, since the last call."""
    x, y = np.ones(4), np.zeros(4)
    comm.Allreduce(x, y)
    y.flags.writeable = False
    with pytest.raises(ValueError, match=r"^allreduce: recvbuf is read-only$"):
        comm.Allreduce(x, y)
    y.flags.writeable = True
    x.shape = (2, 2)
    comm.Allreduce(x, y)
    assert y.tolist() == [comm.size] * 4


def test_an_array_can_be_resized_between_calls(comm):
    """What is remembered of an array must not keep the user from changing it."""
    x, y = np.ones(4), np.zeros(4)
    comm.Allreduce(x, y)
    x.resize(6, refcheck=False)
    y.resize(6, refcheck=False)
    x[:] = 2
    comm.Allreduce(x, y)
    assert y.tolist() == [2 * comm.size] * 6


def test_debug_prints_every_call(comm, capfd):
    x, y = np.zeros(4), np.zeros(4)
    comm.Allreduce(x, y, algorithm="linear")
    with mpicoll.override(debug=2):
        for _ in range(2):
            comm.Allreduce(x, y, algorithm="linear")
    text = capfd.readouterr().err
    assert text.count(f"[mpicoll rank {comm.rank}] allreduce of 32 bytes on {comm.size} ranks") == 2
    assert "because of algorithm= in the call" in text
