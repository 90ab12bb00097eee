"""Alltoallw: a datatype for each block, as mpi4py's own does it, in three forms and beside calls in flight."""

import re

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.three_forms import forms_of

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
PLAIN = MPI.Intracomm(MPI.COMM_WORLD)


blocking, nonblocking, persistent = forms_of("Alltoallw")


def subarrays(shape, axis):
    """Return the types of each rank's part of an array of doubles, cut along an axis as evenly as can be."""
    kinds = []
    for part in np.array_split(np.arange(shape[axis]), P):
        sizes, starts = list(shape), [0] * len(shape)
        sizes[axis], starts[axis] = len(part), int(part[0]) if len(part) else 0
        kinds.append(MPI.DOUBLE.Create_subarray(shape, sizes, starts).Commit() if len(part) else MPI.DOUBLE)
    counts = [int(kind != MPI.DOUBLE) for kind in kinds]
    return kinds, (counts, [0] * P)


def transposed(comm, form):
    """Return a rank's part of a global array cut along axis 1, from its part along axis 0, as mpi4py-fft does it."""
    whole = np.arange(7.0 * 5 * 3).reshape(7, 5, 3)
    mine, wanted = (np.array_split(whole, P, axis)[RANK].copy() for axis in (0, 1))
    result = np.zeros_like(wanted)
    (sent, to), (received, of) = subarrays(mine.shape, 1), subarrays(result.shape, 0)
    form(comm, [mine, to, sent], [result, of, received])
    for kind in (*sent, *received):
        if not kind.is_predefined:
            kind.Free()
    return result, wanted


@pytest.mark.parametrize("form", [blocking, nonblocking, persistent], ids=lambda form: form.__name__)
def test_parts_of_an_array_change_their_axis(world, form):
    result, wanted = transposed(world, form)
    assert (result == wanted).all()


def test_blocks_of_other_types_at_any_byte(world):
    """A block of characters for one rank, of doubles for the next one."""
    kinds = [MPI.DOUBLE if r % 2 else MPI.CHAR for r in range(P)]
    results = []
    for comm in (PLAIN, world):
        x, y = np.arange(24 * P, dtype="u1") + RANK, np.zeros(24 * P, "u1")
        mine = MPI.DOUBLE if RANK % 2 else MPI.CHAR
        sent, received = ([24 * r + at for r in range(P)] for at in (1, 3))
        comm.Alltoallw([x, [2] * P, sent, kinds], [y, ([2] * P, received), [mine] * P])
        results.append(y.tolist())
    assert results[1] == results[0]


def test_in_place_and_without_counts(world):
    x = np.arange(P) + 10 * RANK
    world.Alltoallw(MPI.IN_PLACE, [x, [1] * P, [8 * r for r in range(P)], [MPI.INT64_T] * P])
    assert x.tolist() == [RANK + 10 * r for r in range(P)]
    kinds = [MPI.INT64_T.Create_indexed([1], [r]).Commit() for r in range(P)]
    y = np.zeros(P, int)
    world.Alltoallw([np.arange(P) + 10 * RANK, kinds], [y, kinds])
    assert y.tolist() == x.tolist()
    for kind in kinds:
        kind.Free()


def test_addresses_from_the_bottom_of_memory(world):
    x, y = np.arange(P) + 10 * RANK, np.zeros(P, int)
    places = [[MPI.Get_address(a[r:]) for r in range(P)] for a in (x, y)]
    specs = [[MPI.BOTTOM, [1] * P, at, [MPI.INT64_T] * P] for at in places]
    world.Alltoallw(*specs)
    assert y.tolist() == [RANK + 10 * r for r in range(P)]


def test_calls_in_flight_and_history(world):
    y = np.zeros(4)
    request = world.Iallreduce(np.ones(4), y)
    result, wanted = transposed(world, blocking)
    request.Wait()
    assert (result == wanted).all()
    assert y.tolist() == [P] * 4
    assert world.history(1)[-1].method == "Alltoallw"


def test_what_cannot_be_is_refused(world):
    def raises(kind, text):
        return pytest.raises(kind, match=re.escape(text))

    x, good = np.zeros(P), [[1] * P, [8 * r for r in range(P)], [MPI.DOUBLE] * P]
    with raises(ValueError, f"alltoallw: recvbuf has {8 * P} bytes, too few for 1 items from byte {8 * P} on"):
        world.Alltoallw([x, *good], [x.copy(), [1] * P, [8 * P] * P, [MPI.DOUBLE] * P])
    with raises(ValueError, f"alltoallw: sendbuf has {P + 1} counts, {P} displacements and {P} types for {P} ranks"):
        world.Alltoallw([x, [1] * (P + 1), *good[1:]], [x.copy(), *good])
    with raises(ValueError, "alltoallw: recvbuf expects 8 bytes from this rank itself, sendbuf has 0 for it"):
        world.Alltoallw([x, [0] * P, *good[1:]], [x.copy(), *good])
    with raises(TypeError, "alltoallw: sendbuf is not (array, (counts, displacements), types)"):
        world.Alltoallw(x, [x.copy(), *good])
    if P > 1:
        with raises(mpicoll.UnsupportedError, "bruck"):
            world.Alltoallw([x, *good], [x.copy(), *good], algorithm="bruck")


def test_addresses_inside_of_the_types(world):
    x, y = np.arange(P) + 10 * RANK, np.zeros(P, int)
    specs = []
    for array in (x, y):
        places = [MPI.Get_address(array[r:]) for r in range(P)]
        specs.append([None, [MPI.INT64_T.Create_hindexed([1], [at]).Commit() for at in places]])
    world.Alltoallw(*specs)
    assert y.tolist() == [RANK + 10 * r for r in range(P)]
    for kind in (*specs[0][1], *specs[1][1]):
        kind.Free()
