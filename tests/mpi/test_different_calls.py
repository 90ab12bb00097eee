"""Ranks that do not make the same call.  Nobody hangs, and all are told the same."""

import time

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll.algorithms import registry

SIZE = MPI.COMM_WORLD.Get_size()
LAST = SIZE - 1
several = pytest.mark.mpi(min_size=2)


def compared(world, call, text):
    """All ranks raise the same error, behind the name of their call; afterwards all is as it was."""
    with mpicoll.override(debug=1), pytest.raises(mpicoll.MismatchError, match=text) as info:
        call()
    assert len(set(MPI.COMM_WORLD.allgather(str(info.value).partition(": ")[2]))) == 1
    check(world, Case("Allreduce"))


def agreed(world, call, who, error, text):
    """One rank makes a mistake: it raises that, all others raise an error that quotes it."""
    kind = error if world.rank == who else mpicoll.MismatchError
    with mpicoll.override(errors="agree"), pytest.raises(kind, match=text):
        call()
    check(world, Case("Allreduce"))


@pytest.mark.case("MISMATCH-COUNT")
@several
def test_different_sizes(world):
    """One rank has more elements than the others."""
    count = 4 if world.rank == LAST else 3
    text = rf"^allreduce #\d+: rank 0 calls allreduce float64\[3\] SUM, rank {LAST} calls allreduce float64\[4\] SUM"
    compared(world, lambda: world.Allreduce(np.zeros(count), np.zeros(count)), text)
    compared(world, lambda: world.Bcast(np.zeros(count)), r"differ in count 3 and 4; ranks unlike rank 0: \[")
    compared(world, lambda: mpicoll.allreduce(np.zeros(count), comm=world), "differ in count 3 and 4")
    with mpicoll.override(debug=1):
        request = world.Iscan(np.zeros(count), np.zeros(count))  # its start is local, so that it tells later
        with pytest.raises(mpicoll.MismatchError, match=r"^scan #\d+: .* scan float64\[4\]"):
            request.Wait()


@pytest.mark.case("MISMATCH-DTYPE")
@several
def test_different_dtypes(world):
    """Single and double precision; also where both are the same number of bytes."""
    x = np.zeros(3, "f4" if world.rank == 0 else "f8")
    compared(world, lambda: world.Allreduce(x, x.copy()), "differ in dtype float32 and float64")
    buffer = np.zeros(4, "f4") if world.rank == 0 else np.zeros(2, "f8")
    compared(world, lambda: world.Bcast(buffer), "differ in dtype float32 and float64, count 4 and 2")
    whole = np.zeros(3, "i4" if world.rank == LAST else "f4")
    compared(world, lambda: world.Allreduce(whole, whole.copy()), "differ in dtype float32 and int32")


@pytest.mark.case("ROOT-DIFF")
@several
def test_different_roots_operators_and_calls(world):
    """Who is the root, which operator, which collective, which algorithm."""
    rank, x = world.rank, np.zeros(2 * SIZE)
    compared(world, lambda: world.Bcast(x, root=min(rank, 1)), r"rank 0 calls bcast .* root 0, rank 1 calls .* root 1")
    op = MPI.MAX if rank == LAST else MPI.SUM
    compared(world, lambda: world.Allreduce(x, x.copy(), op), "differ in op SUM and MAX")

    def one_or_the_other():
        if rank == 0:
            world.Reduce(x, x.copy())
        else:
            world.Allreduce(x, x.copy())

    compared(world, one_or_the_other, r"^a?l?l?reduce #\d+: rank 0 calls reduce .*, rank 1 calls allreduce")
    algorithm = "linear" if rank else "binomial"
    compared(world, lambda: world.Bcast(x, algorithm=algorithm), "differ in algorithm")


@pytest.mark.case("ROOT-DIFF")
def test_equal_calls_pass(world):
    """Comparing changes nothing of a right call, whatever its form."""
    with mpicoll.override(debug=1):
        for method in (m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"):
            check(world, Case(method, None, 3, root=1))
        world.Barrier()
        y = np.zeros(3)
        world.Iallreduce(np.ones(3), y).Wait()
        assert y.tolist() == [SIZE] * 3


@pytest.mark.case("NB-ORDER")
@several
def test_started_in_another_order(world):
    """Of two calls in flight, one rank starts the other one first."""
    x, y = np.ones(3), np.zeros(3)
    order = (MPI.SUM, MPI.MAX) if world.rank else (MPI.MAX, MPI.SUM)
    with mpicoll.override(debug=1):
        requests = [world.Iallreduce(x, y.copy(), op) for op in order]
        for request, words in zip(requests, ("MAX and SUM", "SUM and MAX"), strict=True):
            with pytest.raises(mpicoll.MismatchError, match=f"differ in op {words}"):
                request.Wait()
    check(world, Case("Allreduce"))


@pytest.mark.case("INPLACE-ROOT")
@several
def test_in_place_on_every_rank(world):
    """The wrong form is refused where it is said, and everywhere if errors are shared."""
    x, root = np.ones(3), LAST
    for method, buffer in (("Reduce", x), ("Gather", np.ones(3 * SIZE))):
        with (
            mpicoll.override(errors="agree"),
            pytest.raises((ValueError, mpicoll.MismatchError), match=r"MPI.IN_PLACE on rank \d; only root"),
        ):
            getattr(world, method)(MPI.IN_PLACE, buffer, root=root)
    if world.rank != root:
        with pytest.raises(
            ValueError, match=f"^reduce: sendbuf is MPI.IN_PLACE on rank {world.rank}; only root {root}"
        ):
            world.Reduce(MPI.IN_PLACE, x, root=root)
    x = np.full(3, world.rank + 1.0)
    world.Reduce(MPI.IN_PLACE if world.rank == root else x, x if world.rank == root else None, root=root)
    assert x.tolist() == [SIZE * (SIZE + 1) / 2 if world.rank == root else world.rank + 1] * 3


@pytest.mark.case("HANG-EXC")
@several
def test_a_mistake_of_one_rank(world):
    """A wrong size, a wrong dtype, an unknown algorithm on one rank; all ranks raise."""
    x = np.zeros(4)
    for wrong, error, text in (
        (lambda: world.Allreduce(x, np.zeros(3)), ValueError, "recvbuf has 3 elements, sendbuf has 4"),
        (lambda: world.Allreduce(x, np.zeros(4, object)), TypeError, "holds Python objects"),
        (lambda: world.Allreduce(x, x.copy(), algorithm="rings"), ValueError, "no algorithm 'rings'"),
        (lambda: world.Allreduce(x, x.copy(), MPI.REPLACE), mpicoll.UnsupportedError, "op MPI.REPLACE"),
        (lambda: world.Iallreduce(x, np.zeros(5)), ValueError, "recvbuf has 5 elements"),
    ):
        right = (lambda *of: world.Iallreduce(*of).Wait()) if "5" in text else world.Allreduce
        agreed(world, wrong if world.rank == LAST else lambda call=right: call(x, x.copy()), LAST, error, text)


@pytest.mark.case("HANG-EXC")
@several
def test_a_mistake_of_one_rank_is_found_before_any_message(world):
    """Without shared errors the others wait; the rank that raised can still make the right call."""
    if world.rank == LAST:
        with pytest.raises(ValueError, match="recvbuf has 3 elements"):
            world.Allreduce(np.ones(4), np.zeros(3))
        time.sleep(0.05)
    y = np.zeros(4)
    world.Allreduce(np.ones(4), y)
    assert y.tolist() == [SIZE] * 4
