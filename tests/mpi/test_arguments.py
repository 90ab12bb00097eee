"""Mistakes in arguments: each by its text, on every rank, before the first message.

After each one the same communicator is used, which would go wrong if anything had been sent.  A
mistake that only the root can see is made by the root alone: the others do not call at all.
"""

import re

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll import UnsupportedError

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
PAIRS = MPI.FLOAT.Create_contiguous(2)


def f4(count, start=0, memory=None):
    """Zeros; or a part of an array that is already there."""
    return np.zeros(count, "f4") if memory is None else memory[start : start + count]


def frozen(count):
    array = f4(count)
    array.flags.writeable = False
    return array


def _wrong_number(counts, displs, name="recvbuf"):
    return f"{name} has {counts} counts and {displs} displacements for {P} ranks"


#: one array, of which arguments take overlapping parts
M = f4(10 * P)
NAMES = ", ".join(sorted(mpicoll.algorithms("allreduce")["allreduce"]))
OWN = np.lib.stride_tricks.as_strided(f4(3), (4, 3), (0, 4))

#: error -> method, arguments and text (without the method) of a mistake that all ranks make
MISTAKES = {
    ValueError: [
        # sizes
        ("Allreduce", (f4(100), f4(96)), "recvbuf has 96 elements, sendbuf has 100"),
        ("Scan", (f4(3), f4(4)), "recvbuf has 4 elements, sendbuf has 3"),
        ("Exscan", (f4(3), f4(0)), "recvbuf has 0 elements, sendbuf has 3"),
        ("Alltoall", (f4(2 * P), f4(3 * P)), f"recvbuf has {3 * P} elements, sendbuf has {2 * P}"),
        ("Allgather", (f4(2), f4(3 * P)), f"sendbuf has 2 elements, recvbuf's block {RANK} has 3"),
        ("Reduce_scatter_block", (f4(2 * P), f4(3)), f"recvbuf has 3 elements, sendbuf's block {RANK} has 2"),
        ("Reduce_scatter", (f4(P + 1), f4(1), [1] * P), f"sendbuf has {P + 1} elements, recvcounts sum to {P}"),
        ("Bcast", ([f4(3), 4],), "buf has 3 elements, count is 4"),
        ("Allreduce", ([f4(3), 2], [f4(3), 5]), "recvbuf has 3 elements, count is 5"),
        # counts and displacements
        ("Allgatherv", (f4(1), [f4(P), [1] * (P + 1)]), _wrong_number(P + 1, P + 1)),
        ("Allgatherv", (f4(1), [f4(P), [1] * P, [0] * (P + 2)]), _wrong_number(P, P + 2)),
        ("Reduce_scatter", (f4(P), f4(1), [1] * (P + 1)), _wrong_number(P + 1, P + 1, "sendbuf")),
        ("Allgatherv", (f4(1), [f4(P), [-1] * P]), f"recvbuf has negative counts or displacements {[-1] * P}"),
        ("Allgatherv", (f4(1), [f4(P), [1] * P, [-2] * P]), f"recvbuf has negative counts or displacements {[-2] * P}"),
        (
            "Allgatherv",
            (f4(1), [f4(P), [1] * P, [*range(1, P + 1)]]),
            f"recvbuf has {P} elements, its blocks need {P + 1}",
        ),
        ("Allgatherv", (f4(1), [f4(P), (None, [0] * P)]), "recvbuf has displacements but no counts"),
        ("Allgather", (f4(1), [f4(P), [1] * P, [0] * P]), "recvbuf has counts of its own; use Allgatherv"),
        (
            "Alltoallv",
            ([f4(2 * P), [2] * P], [f4(3 * P), [3] * P]),
            "recvbuf expects 3 elements from this rank itself, sendbuf has 2 for it",
        ),
        # overlap
        ("Allreduce", (f4(6, 0, M), f4(6, 2, M)), "recvbuf overlaps sendbuf; use MPI.IN_PLACE"),
        ("Scan", (f4(6, 2, M), f4(6, 0, M)), "recvbuf overlaps sendbuf; use MPI.IN_PLACE"),
        ("Alltoall", (f4(P, 0, M), f4(P, 0, M)), "recvbuf overlaps sendbuf; use MPI.IN_PLACE"),
        (
            "Allgather",
            (f4(2, 2 * RANK + 1, M), f4(2 * P, 0, M)),
            "recvbuf overlaps sendbuf; use MPI.IN_PLACE or recvbuf's own block",
        ),
        (
            "Reduce_scatter_block",
            (f4(2 * P, 0, M), f4(2, 2 * RANK + 1, M)),
            "recvbuf overlaps sendbuf; use MPI.IN_PLACE or sendbuf[rank*n:(rank+1)*n]",
        ),
        # what cannot be written
        ("Allreduce", (f4(3), frozen(3)), "recvbuf is read-only"),
        ("Allreduce", (MPI.IN_PLACE, frozen(3)), "recvbuf is read-only"),
        ("Allgather", (f4(1), frozen(P)), "recvbuf is read-only"),
        ("Allreduce", (f4(12), OWN), "recvbuf overlaps itself (shape (4, 3), strides (0, 4))"),
        # where the root is
        ("Bcast", (f4(1), P), f"root {P} is out of range for {P} ranks"),
        ("Gather", (f4(1), f4(P), -1), f"root -1 is out of range for {P} ranks"),
        ("Scatterv", (f4(P), f4(1), P), f"root {P} is out of range for {P} ranks"),
        ("Reduce", (f4(1), f4(1), MPI.SUM, P), f"root {P} is out of range for {P} ranks"),
        # MPI.IN_PLACE and None
        ("Bcast", (MPI.IN_PLACE,), "buf cannot be MPI.IN_PLACE"),
        ("Allreduce", (f4(1), MPI.IN_PLACE), "recvbuf cannot be MPI.IN_PLACE"),
        ("Allgather", (f4(1), MPI.IN_PLACE), "recvbuf cannot be MPI.IN_PLACE"),
        ("Allreduce", (f4(1), None), f"recvbuf is None, but significant on rank {RANK}"),
        ("Reduce_scatter", (MPI.IN_PLACE, f4(P)), "recvcounts is needed where recvbuf is not an array of its own"),
    ],
    TypeError: [
        # dtypes
        ("Allgather", (f4(1), np.zeros(P)), "sendbuf is float32, recvbuf is float64"),
        ("Allreduce", (f4(1), np.zeros(1, "i4")), "sendbuf is float32, recvbuf is int32"),
        ("Allreduce", (np.zeros(1, ">f8"), np.zeros(1)), "sendbuf is >f8, recvbuf is float64"),
        ("Bcast", (np.array([None]),), "buf holds Python objects; use the lower-case methods of mpi4py"),
        ("Allgatherv", (f4(1), [f4(P), [1.5] * P]), "counts and displacements of recvbuf are float64, not integers"),
        # what is no array
        ("Bcast", ("text",), "buf is a str, not an array"),
        ("Allreduce", (1.5, f4(1)), "sendbuf is a float, not an array"),
        ("Allreduce", ([1.5, 2.5], f4(1)), "sendbuf is a float, not an array"),
        ("Bcast", ([f4(1), 1, 2, 3, 4],), "buf has 5 items, not array, counts, displacements and type"),
    ],
}

#: equal blocks that do not come out; possible from two ranks on
UNEVEN = [
    ("Allgather", (f4(1), f4(P + 1)), "recvbuf", "Allgatherv"),
    ("Alltoall", (f4(P + 1), f4(P + 1)), "recvbuf", "Alltoallv"),
    ("Alltoall", (f4(P + 1), f4(P)), "sendbuf", "Alltoallv"),
    ("Reduce_scatter_block", (f4(P + 1), f4(1)), "sendbuf", "Reduce_scatter"),
]

#: mistakes of the root, the last rank
OF_ROOT = [
    ("Reduce", (f4(3), f4(4), MPI.SUM), "recvbuf has 4 elements, sendbuf has 3"),
    ("Reduce", (f4(3), None, MPI.SUM), f"recvbuf is None, but significant on rank {P - 1}"),
    ("Reduce", (f4(6, 0, M), f4(6, 2, M), MPI.SUM), "recvbuf overlaps sendbuf; use MPI.IN_PLACE"),
    ("Gather", (f4(2), f4(3 * P)), f"sendbuf has 2 elements, recvbuf's block {P - 1} has 3"),
    ("Gather", (f4(2), frozen(2 * P)), "recvbuf is read-only"),
    (
        "Gather",
        (f4(2, 2 * P - 1, M), f4(2 * P, 0, M)),
        "recvbuf overlaps sendbuf; use MPI.IN_PLACE or recvbuf's own block",
    ),
    ("Gatherv", (f4(1), [f4(P), [1] * (P + 1)]), _wrong_number(P + 1, P + 1)),
    ("Scatter", (f4(2 * P), f4(3)), f"recvbuf has 3 elements, sendbuf's block {P - 1} has 2"),
    ("Scatter", (None, f4(3)), f"sendbuf is None, but significant on rank {P - 1}"),
    (
        "Scatter",
        (f4(2 * P, 0, M), f4(2, 2 * P - 1, M)),
        "recvbuf overlaps sendbuf; use MPI.IN_PLACE or sendbuf[rank*n:(rank+1)*n]",
    ),
    ("Scatterv", ([f4(P), [2] * P], f4(2)), f"sendbuf has {P} elements, its blocks need {2 * P}"),
]

#: mistakes of all ranks but the root, which is rank 0
OF_OTHERS = [
    ("Reduce", (MPI.IN_PLACE, f4(3)), f"sendbuf is MPI.IN_PLACE on rank {RANK}; only root 0 may say so"),
    ("Gather", (MPI.IN_PLACE, f4(3)), f"sendbuf is MPI.IN_PLACE on rank {RANK}; only root 0 may say so"),
    ("Scatter", (f4(3), MPI.IN_PLACE), f"recvbuf is MPI.IN_PLACE on rank {RANK}; only root 0 may say so"),
    ("Scatter", (None, None), f"recvbuf is None, but significant on rank {RANK}"),
    ("Scatter", (None, frozen(3)), "recvbuf is read-only"),
    ("Bcast", (frozen(3),), "buf is read-only"),
]

#: keyword arguments of an Allreduce of host arrays
OPTIONS = {
    "unknown": ({"algorithm": "rings"}, ValueError, f"allreduce: no algorithm 'rings'; known: {NAMES}"),
    "no segments": ({"algorithm": "ring/0"}, ValueError, "the number of segments is at least 1 and at most 65536"),
    "capital": (
        {"algorithm": "Ring"},
        ValueError,
        "'Ring' is not of the form algorithm[(collective=algorithm,...)][/segments][@path]",
    ),
    "no path": (
        {"algorithm": "ring@cuda"},
        ValueError,
        "unknown path 'cuda'; known: host, mapped, bridged, direct, staged",
    ),
    "path of devices": (
        {"algorithm": "ring@direct"},
        UnsupportedError,
        "allreduce: path 'direct' cannot serve host arrays here; usable: host",
    ),
    "stream": ({"stream": object()}, ValueError, "allreduce: stream is given, but the arrays are on the host"),
}


def refused(method, arguments, error, text, **named):
    with pytest.raises(error, match="^" + re.escape(text) + "$"):
        method(*arguments, **named)


def each(mistakes):
    """Parameters with names that are the same on all ranks, though the texts name the rank."""
    return [pytest.param(*m, id=f"{m[0]}-{i}") for i, m in enumerate(mistakes)]


@pytest.mark.parametrize(
    ("method", "arguments", "text", "error"), each((*m, error) for error, rows in MISTAKES.items() for m in rows)
)
def test_of_all_ranks(world, method, arguments, text, error):
    refused(getattr(world, method), arguments, error, f"{method.lower()}: {text}")
    check(world, Case(method, root=1))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("method", "arguments", "name", "use"), each(UNEVEN))
def test_of_equal_blocks(world, method, arguments, name, use):
    text = f"{method.lower()}: {name} has {P + 1} elements, not a multiple of {P} ranks; use {use}"
    refused(getattr(world, method), arguments, ValueError, text)
    check(world, Case(method))


@pytest.mark.parametrize(("method", "arguments", "text"), each(OF_ROOT))
def test_of_the_root(world, method, arguments, text):
    root = world.size - 1
    if world.rank == root:
        refused(getattr(world, method), (*arguments, root), ValueError, f"{method.lower()}: {text}")
    check(world, Case(method, root=root))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(("method", "arguments", "text"), each(OF_OTHERS))
def test_of_the_others(world, method, arguments, text):
    if world.rank:
        refused(getattr(world, method), arguments, ValueError, f"{method.lower()}: {text}")
    check(world, Case(method))


@pytest.mark.parametrize("name", OPTIONS)
def test_of_options(world, name):
    named, error, text = OPTIONS[name]
    refused(world.Allreduce, (f4(3), f4(3)), error, text, **named)
    check(world, Case("Allreduce"))


@pytest.mark.case("GATHER-NONE")
def test_nothing_is_looked_at_where_it_does_not_matter(world):
    """Insignificant arguments may be anything."""
    junk, rank, p = object(), world.rank, world.size
    mine, all_of_them = np.full(2, rank, "f4"), f4(2 * p) if rank == 0 else junk
    world.Gather(mine, all_of_them)
    world.Gatherv(mine, [all_of_them, [2] * p] if rank == 0 else junk)
    world.Scatter(all_of_them, mine)
    world.Scatterv([all_of_them, [2] * p] if rank == 0 else junk, mine)
    assert mine.tolist() == [rank] * 2
    world.Reduce(mine, all_of_them[:2] if rank == 0 else junk)
    if rank == 0:
        assert all_of_them[:2].tolist() == [sum(range(p))] * 2


def test_none_is_in_place(world):
    """Where a buffer is significant, None is MPI.IN_PLACE, as in mpi4py."""
    x = np.full(3, world.rank, "f4")
    world.Allreduce(None, x)
    assert x.tolist() == [sum(range(world.size))] * 3


@pytest.mark.case("READONLY")
def test_read_only_arrays_can_be_sent(world):
    """An array is only read where it is sent."""
    x, y = np.full(3, 1, "f4"), f4(3)
    x.flags.writeable = False
    world.Allreduce(x, y)
    assert y.tolist() == [world.size] * 3
    z = x if world.rank == 0 else f4(3)
    world.Bcast(z, root=0)
    assert z.tolist() == [1] * 3


def test_what_shares_its_memory_is_an_array(world):
    """bytearray, memoryview, array.array, NumPy scalars: whatever exports a buffer."""
    import array

    received = array.array("d", [0.0])
    world.Allreduce(np.float64(2), received)
    assert received[0] == 2 * world.size
    text = bytearray(b"abc" if world.rank == 0 else b"...")
    world.Bcast(memoryview(text))
    assert text == b"abc"


def test_types_may_be_named(world):
    """MPI's types and their letters, where they are the array's own; MPI.BYTE where nothing is added."""
    x, y = np.ones(3, "f8"), np.zeros(3, "f8")
    for named in ([y, MPI.DOUBLE], [y, 3, MPI.DOUBLE], [y, "d"], (y, (3, None), MPI.DOUBLE)):
        y[:] = 0
        world.Allreduce([x, MPI.DOUBLE], named)
        assert y.tolist() == [world.size] * 3
    z = np.full(3, world.rank, "f8")
    world.Bcast([z, MPI.BYTE])
    assert z.tolist() == [0] * 3
