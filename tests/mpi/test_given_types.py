"""Buffers with a type of MPI: their memory is taken as elements of that type, whatever it was before, as in mpi4py."""

import re

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
PLAIN = MPI.Intracomm(MPI.COMM_WORLD)


def raised(kind, text):
    return pytest.raises(kind, match=re.escape(text))


def both(world, call, *buffers):
    """Make a call on mpi4py's communicator and on ours, each with copies; return what each has made of them."""
    results = []
    for comm in (PLAIN, world):
        mine = [buffer.copy() for buffer in buffers]
        call(comm, *mine)
        results.append([buffer.tobytes() for buffer in mine])
    return results


def raw(array):
    """Return an array's memory without its type."""
    return MPI.memory.fromaddress(array.ctypes.data, array.nbytes)


def ramp(count, dtype="f8"):
    return (np.arange(count) + 100 * RANK).astype(dtype)


CALLS = {
    "memory, reduced": lambda c, x, y: c.Allreduce((raw(x), 4, MPI.DOUBLE), (raw(y), 4, MPI.DOUBLE)),
    "memory, in place": lambda c, x, y: c.Allreduce(MPI.IN_PLACE, (raw(y), 4, MPI.DOUBLE)),
    "memory, from the root": lambda c, x, y: c.Bcast([raw(y), 3, MPI.DOUBLE], P - 1),
    "memory, blocks": lambda c, x, y: c.Allgatherv(
        [raw(x), (2, 0), MPI.INT], [raw(y), ([2] * P, [2 * r for r in range(P)]), MPI.INT]
    ),
    "another type": lambda c, x, y: c.Bcast((y, MPI.INT), 0),
    "half of it, displaced": lambda c, x, y: c.Bcast([y, 3, 2, MPI.FLOAT], 0),
    "a type's name": lambda c, x, y: c.Allreduce([x, "i"], [y, 2 * x.size, "i"], MPI.BXOR),
    "bytes and doubles": lambda c, x, y: c.Gather([x, 8, MPI.BYTE], [y, 1, MPI.DOUBLE], 0),
    "characters": lambda c, x, y: c.Allgather([x, 2, MPI.CHAR], [y, 2, MPI.CHAR]),
    "Fortran's order": lambda c, x, y: c.Bcast([y[:6].reshape(2, 3).T, MPI.FLOAT], 0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_memory_is_taken_as_the_given_type(world, call):
    plain, ours = both(world, call, ramp(4), ramp(4 * P + 4))
    assert ours == plain


def test_bytearrays_hold_what_their_type_says(world):
    data = bytearray(np.full(3, RANK + 1.0).tobytes())
    world.Allreduce(MPI.IN_PLACE, [data, MPI.DOUBLE])
    assert np.frombuffer(data).tolist() == [sum(range(P + 1))] * 3
    text = bytearray(b"abc" if RANK == 0 else b"...")
    world.Bcast([text, MPI.CHAR], 0)
    assert text == b"abc"


def test_ranks_may_have_other_arrays_of_the_given_type(world):
    array = np.array([7]) if RANK == 0 else np.empty(1)
    world.Ibcast((array, MPI.INT), root=0).Wait()
    assert array.view("i8").tolist() == [7]


def test_what_is_moved_may_change_its_type(world):
    received = np.zeros(2 * P)
    world.Allgather(np.full(2, RANK), received)
    assert received.view("i8").tolist() == [r for r in range(P) for _ in range(2)]
    with raised(TypeError, "sendbuf is int64, recvbuf is float64"):
        world.Allreduce(np.full(2, RANK), np.zeros(2))


def test_memory_that_is_no_multiple_of_the_type_is_refused(world):
    with raised(ValueError, "bcast: buf has 7 bytes, not a multiple of its type's 4"):
        world.Bcast([bytearray(7), MPI.INT], 0)
    with raised(ValueError, "bcast: buf has 1 elements, count is 2"):
        world.Bcast([bytearray(7), 2, MPI.INT], 0)
    with raised(ValueError, "is taken as float32, but is float64, and not contiguous"):
        world.Bcast([np.zeros(8)[::2], MPI.FLOAT], 0)


PAIRS = np.dtype([("value", "f8"), ("place", "i4")], align=True)


def test_pairs_may_be_records_with_fields_of_any_names(world):
    x, y = np.zeros(2, PAIRS), np.zeros(2, np.dtype([("a", "f8"), ("b", "i4")], align=True))
    x["value"], x["place"] = [RANK, -RANK], RANK
    world.Allreduce([x, MPI.DOUBLE_INT], [y, MPI.DOUBLE_INT], MPI.MAXLOC)
    assert (y["a"].tolist(), y["b"].tolist()) == ([P - 1, 0], [P - 1, 0])
    world.Allreduce(x, y, MPI.MINLOC)
    assert (y["a"].tolist(), y["b"].tolist()) == ([0, 1 - P], [0, P - 1])


def test_pairs_of_integers(world):
    plain, ours = both(
        world,
        lambda c, x, y: c.Allreduce([x, 2, MPI.INT_INT], [y, 2, MPI.INT_INT], MPI.MAXLOC),
        np.array([RANK, 5, 3, RANK], "i4"),
        np.zeros(4, "i4"),
    )
    assert ours == plain


@pytest.mark.parametrize("commute", [True, False])
def test_operators_made_by_mpi(world, commute):
    """Matrices of 2 x 2 in vectors, whose function sees whole vectors."""

    def multiply(a, b, kind):
        x, y = np.frombuffer(a), np.frombuffer(b)
        y[:] = (x.reshape(2, 2) @ y.reshape(2, 2)).ravel() if not commute else np.maximum(x, y)

    op = MPI.Op.Create(multiply, commute)
    x = np.array([1.0, RANK + 1, RANK, 1])
    for call in ("Allreduce", "Scan", "Reduce"):
        plain, ours = both(world, lambda c, x, y, call=call: getattr(c, call)(x, y, op), x, np.zeros(4))
        assert ours == plain
    blocks, mine = np.ones(4 * P) * (RANK + 1), np.zeros(4)
    if commute:
        world.Reduce_scatter_block(blocks, mine, op)
        assert mine.tolist() == [P] * 4
    op.Free()


def test_operators_made_by_mpi_see_whole_vectors(world):
    """However the algorithm would cut them."""
    seen = set()

    def add(a, b, kind):
        x, y = np.frombuffer(a), np.frombuffer(b)
        seen.add(x.size)
        y += x

    op, y = MPI.Op.Create(add, True), np.zeros(1000)
    world.Allreduce(np.ones(1000), y, op, algorithm="ring")
    assert y.tolist() == [P] * 1000
    assert seen <= {1000}
    op.Free()


def test_ranks_agree_on_the_size_of_what_is_taken_in_bytes(world):
    x, y = np.zeros(2), np.zeros(2 * P)
    plans = [
        world.Get_plan("Allgather", [x, 16, MPI.BYTE], [y, 2, MPI.DOUBLE]),
        world.Get_plan("Allgather", x, y),
        world.Get_plan("Alltoall", [y, 16, MPI.BYTE], [y.copy(), 2, MPI.DOUBLE]),
    ]
    assert [plan.key.facts.nbytes for plan in plans] == [16 * P] * 3


def test_operators_of_mpi_without_a_meaning_here_are_refused(world):
    with raised(mpicoll.UnsupportedError, "op MPI.REPLACE is not supported"):
        world.Allreduce(np.ones(1), np.ones(1), MPI.REPLACE)


def test_an_operator_made_by_mpi_is_bound_once(world):
    """A loop with one operator and the same arrays has one program, and makes no requests of its own each time."""
    op = MPI.Op.Create(lambda a, b, kind: None, True)
    x, y = np.ones(8), np.zeros(8)
    world.Allreduce(x, y, op)
    slot = world._get_context().slot(0)
    programs = len(slot.programs)
    for _ in range(5):
        world.Allreduce(x, y, op)
    assert len(slot.programs) == programs
    op.Free()
