"""Displacements of buffers that are one block, or equal blocks: mpi4py's meaning, by its own results."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

pytestmark = pytest.mark.many_ranks

P = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
LAST = P - 1
DOUBLE = MPI.DOUBLE


def numbers(count):
    return np.arange(float(count)) + 100 * RANK


#: name -> method, elements of both arrays, how they become arguments, and the arguments behind them
CALLS = {
    "bcast": ("Bcast", 8, 0, lambda x, y: ([x, 3, 4, DOUBLE],), (LAST,)),
    "bcast of what is left": ("Bcast", 8, 0, lambda x, y: ([x, None, 6, DOUBLE],), (0,)),
    "allreduce, send": ("Allreduce", 8, 3, lambda x, y: ([x, 3, 2, DOUBLE], y), ()),
    "allreduce, a pair": ("Allreduce", 8, 8, lambda x, y: ([x, (3, 2)], [y, (3, 5)]), ()),
    "allreduce, a typed pair": ("Allreduce", 8, 8, lambda x, y: ([x, (3, 2), DOUBLE], [y, (3, 5), "d"]), ()),
    "allreduce in place": ("Allreduce", 0, 8, lambda x, y: (MPI.IN_PLACE, [y, 2, 5, DOUBLE]), ()),
    "allreduce of one array's parts": ("Allreduce", 8, 0, lambda x, y: ([x, 3, 0, DOUBLE], [x, 3, 4, DOUBLE]), ()),
    "reduce": ("Reduce", 8, 8, lambda x, y: ([x, 3, 2, DOUBLE], [y, 3, 1, DOUBLE]), (MPI.SUM, LAST)),
    "scan": ("Scan", 8, 8, lambda x, y: ([x, 3, 2, DOUBLE], [y, 3, 1, DOUBLE]), ()),
    "exscan": ("Exscan", 8, 8, lambda x, y: ([x, 3, 2, DOUBLE], [y, 3, 1, DOUBLE]), ()),
    "gather": ("Gather", 4, 2 * P + 3, lambda x, y: ([x, 2, 1, DOUBLE], [y, 2, 3, DOUBLE]), (LAST,)),
    "gather of what is left": ("Gather", 4, 2 * P + 3, lambda x, y: ([x, 2, 1, DOUBLE], [y, None, 3, DOUBLE]), (LAST,)),
    "gatherv": ("Gatherv", 4, 5 * P, lambda x, y: ([x, 2, 1, DOUBLE], [y, (2, 5), DOUBLE]), (0,)),
    "allgather": ("Allgather", 4, 2 * P + 3, lambda x, y: ([x, 2, 1, DOUBLE], [y, (2, 3), DOUBLE]), ()),
    "allgatherv": ("Allgatherv", 4, 5 * P, lambda x, y: ([x, 2, 1, DOUBLE], [y, (2, 5), DOUBLE]), ()),
    "scatter": ("Scatter", 2 * P + 3, 8, lambda x, y: ([x, 2, 3, DOUBLE], [y, 2, 5, DOUBLE]), (LAST,)),
    "scatterv": ("Scatterv", 5 * P, 8, lambda x, y: ([x, (2, 5), DOUBLE], [y, 2, 5, DOUBLE]), (0,)),
    "alltoall": ("Alltoall", 2 * P + 3, 2 * P + 3, lambda x, y: ([x, 2, 3, DOUBLE], [y, 2, 1, DOUBLE]), ()),
    "reduce_scatter": (
        "Reduce_scatter",
        2 * P + 3,
        8,
        lambda x, y: ([x, 2 * P, 3, DOUBLE], [y, 2, 5, DOUBLE]),
        ([2] * P,),
    ),
    "reduce_scatter_block": (
        "Reduce_scatter_block",
        2 * P + 3,
        8,
        lambda x, y: ([x, 2, 3, DOUBLE], [y, 2, 5, DOUBLE]),
        (),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_block_starts_at_its_displacement(world, name):
    method, sends, receives, arguments, rest = CALLS[name]
    found = []
    for comm in (MPI.COMM_WORLD, world):
        x, y = numbers(sends), numbers(receives) + 50
        getattr(comm, method)(*arguments(x, y), *rest)
        found.append((x.tolist(), y.tolist()))
    assert found[0] == found[1]


def test_a_displacement_counts_elements_of_an_array_that_is_not_contiguous(world):
    """Logical order, as for everything that is packed; mpi4py refuses such arrays."""
    x, y = np.arange(12.0).reshape(3, 4).T, np.zeros((3, 4)).T
    world.Allreduce([x, 3, 4], [y, 3, 2], MPI.MAX)
    assert y.ravel().tolist() == [0, 0, *x.ravel()[4:7], *[0] * 7]


@pytest.mark.gpu
def test_a_displacement_on_the_device(world, memory):
    x, y = memory.xp.arange(8.0), memory.xp.zeros(8)
    with mpicoll.override(path=memory.path):
        world.Allreduce([x, 3, 2], [y, 3, 5])
    assert memory.to_host(y).tolist() == [0] * 5 + [2.0 * P, 3.0 * P, 4.0 * P]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([np.zeros(8), 3, 6], np.zeros(3)), "sendbuf has 8 elements, count is 3 from 6 on"),
        (([np.zeros(8), None, 9], np.zeros(0)), "sendbuf has 8 elements, count is 0 from 9 on"),
        ((np.zeros(3), [np.zeros(8), 3, 6, DOUBLE]), "recvbuf has 8 elements, count is 3 from 6 on"),
        (([np.zeros(8), (3, 6)], np.zeros(3)), "sendbuf has 8 elements, count is 3 from 6 on"),
        (([np.zeros(8), 3, -1], np.zeros(3)), r"sendbuf has negative counts or displacements \[-1\]"),
        (([np.zeros(8), 3, [1, 2]], np.zeros(3)), "sendbuf is one block, but 2 displacements are given"),
    ],
)
def test_a_block_that_is_not_all_in_its_array_is_refused(world, arguments, text):
    with pytest.raises(ValueError, match=f"^allreduce: {text}$"):
        world.Allreduce(*arguments)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("method", ["Allgatherv", "Gatherv", "Alltoallv"])
@pytest.mark.parametrize("where", ["list", "number"])
def test_receive_blocks_that_overlap_are_refused(world, method, where):
    """Whatever the algorithm, for each would give another result."""
    displs = 2 if where == "number" else [2 * (P - 1 - q) for q in range(P)]
    x = [np.zeros(3 * P), [3] * P] if method == "Alltoallv" else np.zeros(3)
    blocks = "0 and 1" if where == "number" else f"{P - 1} and {P - 2}"
    root = (RANK,) if method == "Gatherv" else ()  # each rank finds it alone
    with pytest.raises(ValueError, match=f"^{method.lower()}: blocks {blocks} of recvbuf overlap$"):
        getattr(world, method)(x, [np.zeros(3 * P + 9), [3] * P, displs], *root)


def test_blocks_of_no_elements_may_lie_anywhere_and_neighbours_may_touch(world):
    """Only ranks 0 and the last send, side by side; the others' blocks are inside theirs."""
    counts = [2 if q in (0, P - 1) else 0 for q in range(P)]
    displs = [0 if q == 0 else 2 if q == P - 1 else 1 for q in range(P)]
    y = np.full(4, -1.0)
    world.Allgatherv(np.full(counts[RANK], RANK + 1.0), [y, counts, displs])
    assert y.tolist() == ([1, 1, P, P] if P > 1 else [1, 1, -1, -1])


def test_send_blocks_may_overlap(world):
    """Scatterv and Alltoallv read them."""
    y = np.zeros(3)
    world.Scatterv([np.arange(P + 2.0), [3] * P, list(range(P))], y)
    assert y.tolist() == [RANK, RANK + 1, RANK + 2]
    z = np.zeros(3 * P)
    world.Alltoallv([np.full(3, RANK + 1.0), [3] * P, [0] * P], z)
    assert z.tolist() == np.repeat(np.arange(1.0, P + 1), 3).tolist()


@pytest.mark.parametrize("root", ["0", None, 0.5, 0.0, np.float64(0), np.True_, [0]])
@pytest.mark.parametrize("method", ["Bcast", "Reduce", "Gather", "Scatter", "Gatherv", "Scatterv"])
def test_a_root_that_is_no_integer_is_refused(world, method, root):
    buffers = {"Bcast": (np.zeros(1),), "Reduce": (np.zeros(1), np.zeros(1), MPI.SUM)}
    arguments = buffers.get(method, (np.zeros(P), np.zeros(P)))
    with pytest.raises(TypeError) as caught:
        getattr(world, method)(*arguments, root)
    assert str(caught.value) == f"{method.lower()}: root is {root!r}, not an integer"


@pytest.mark.parametrize("root", [np.int64(0), np.uint8(0), False])
def test_a_root_is_any_integer(world, root):
    y = np.full(2, float(RANK))
    world.Bcast(y, root)
    assert y.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("counts", "kind"), [([True] * P, "bool"), (["1"] * P, "<U1"), ([1.0] * P, "float64"), ([None] * P, "object")]
)
def test_counts_that_are_no_integers_are_refused(world, counts, kind):
    """A mask is no list of counts."""
    text = f"^allgatherv: counts and displacements of recvbuf are {kind}, not integers$"
    with pytest.raises(TypeError, match=text):
        world.Allgatherv(np.zeros(1), [np.zeros(P), counts])
    with pytest.raises(TypeError, match=text):
        world.Allgatherv(np.zeros(1), [np.zeros(P), [1] * P, counts])
