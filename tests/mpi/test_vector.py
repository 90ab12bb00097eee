"""Uneven blocks: Gatherv, Scatterv, Allgatherv, Alltoallv, and Reduce_scatter.

As in test_matrix, all pairs of values of any two axes for every algorithm; here the axes are what
v-variants have: how counts differ (zeros among them), where blocks lie (gaps whose sentinels must
survive, any order), and how both are written down.  Buffers that do not matter are None.
"""

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.calling import Call, check
from mpi.cases import COMMUNICATORS, PATTERNS, ROOTED, UNKNOWN_COUNTS, VECTOR, Case, forms, refusal

pytestmark = pytest.mark.many_ranks

SIZE = MPI.COMM_WORLD.Get_size()
LAYOUTS = ("dense", "gaps", "permuted")
SPELLINGS = ("counts", "list", "tuple", "array", "typed")


def algorithms(method, serving=True):
    """Those that can serve on some number of ranks, or those that never can."""
    names = next(iter(mpicoll.algorithms(method).values()))
    return [(method, a) for a in names if (refusal(Case(method, a), 1) is None) is serving]


def rows(method):
    roots = range(SIZE) if method in ROOTED else (0,)
    axes = {"pattern": PATTERNS, "form": forms(method), "comm": COMMUNICATORS, "segments": (1, 3)}
    blocks = {"layout": LAYOUTS} if method in VECTOR else {}
    return data.pairwise({"spelling": SPELLINGS, "root": roots, **axes, **blocks})


@pytest.mark.case("INPLACE-DISPL")
@pytest.mark.parametrize(("method", "algorithm"), [x for m in (*VECTOR, "Reduce_scatter") for x in algorithms(m)])
def test_pairs(comms, memory, method, algorithm):
    """Any two of pattern, layout, spelling, root, segments, form and communicator meet."""
    for row in rows(method):
        comm, name = comms[row.pop("comm")], f"{algorithm}/{row.pop('segments')}"
        check(comm, Case(method, name, **row), memory)


@pytest.mark.parametrize(("method", "algorithm"), [x for m in UNKNOWN_COUNTS for x in algorithms(m, serving=False)])
def test_algorithms_that_forward_are_refused(comms, method, algorithm):
    for comm in comms.values():
        check(comm, Case(method, algorithm, pattern="uneven"))


@pytest.mark.parametrize("method", VECTOR)
def test_chosen_algorithm(comms, memory, method):
    for name in ("world", "halves"):
        check(comms[name], Case(method, pattern="uneven", layout="permuted", root=-1), memory)


@pytest.mark.parametrize("method", VECTOR)
@pytest.mark.parametrize("dtype", ["int8", "float64", "complex128", "i4,f8"])
def test_displacements_are_in_elements(world, method, dtype):
    check(world, Case(method, pattern="uneven", layout="gaps", dtype=dtype, root=1))


@pytest.mark.parametrize("spelling", ["one count", "same for all", "no displacements"])
def test_other_ways_to_write_blocks(world, spelling):
    rank, size = world.rank, world.size
    counts = {"one count": 2, "same for all": [2] * size, "no displacements": ([2] * size, None)}[spelling]
    recv = np.zeros(2 * size, "f4")
    world.Allgatherv([np.full(2, rank, "f4"), 2], [recv, counts])
    assert recv.tolist() == np.repeat(range(size), 2).tolist()


def test_array_may_be_larger_than_its_blocks(world):
    """A count says how much of an array is used; the rest is left alone."""
    rank, size = world.rank, world.size
    send, recv = np.full(5, rank, "f4"), np.full(3 * size + 4, -1, "f4")
    for arguments in (
        ([send, 3], [recv, 3]),
        ([send, 3], [recv, [3] * size]),
        ((send, 3, MPI.FLOAT), (recv, 3, "f")),
    ):
        recv[:] = -1
        world.Allgatherv(*arguments)
        assert recv.tolist() == [*np.repeat(range(size), 3), -1, -1, -1, -1]


@pytest.mark.case("COUNTS-FORM")
def test_rows_of_matrices(world):
    """Counts are elements, not rows."""
    rank, size = world.rank, world.size
    counts = [3 * (r + 1) for r in range(size)]
    recv = np.zeros((sum(counts) // 3, 3))
    world.Allgatherv(np.full((rank + 1, 3), float(rank)), [recv, counts])
    assert recv[:, 1].tolist() == np.repeat(range(size), range(1, size + 1)).tolist()


def test_reduce_scatter_can_gather_its_counts(world):
    """Without recvcounts the sizes of the receive buffers are the counts."""
    call = Call(Case("Reduce_scatter", pattern="uneven"), world.rank, world.size)
    sendbuf, recvbuf, _, op = call.arguments()
    world.Reduce_scatter(sendbuf, recvbuf, op=op)
    call.compare()


@pytest.mark.case("COUNTS-FORM")
@pytest.mark.gpu
def test_counts_may_be_on_the_device(world, memory):
    """Counts in a device array are read."""
    rank, size = world.rank, world.size
    counts = memory.xp.arange(1, size + 1)
    recv = memory.xp.zeros(size * (size + 1) // 2)
    world.Allgatherv(memory.xp.full(rank + 1, float(rank)), [recv, counts])
    assert memory.to_host(recv).tolist() == np.repeat(range(size), range(1, size + 1)).tolist()
