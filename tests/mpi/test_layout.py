"""Arrays that are not C-contiguous, as what is sent and as what is received.

What counts is the logical order of elements, the same whatever the order in memory; what lies
between the elements of a strided receive array belongs to the user.
"""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
import oracle
from mpi.cases import ROOTED, VECTOR, forms
from mpicoll.algorithms import registry

METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier" and m not in VECTOR]
SENTINEL = -7.0

#: name -> (array module, number of elements, a multiple of 4) -> all memory, and a view of so many elements of it
LAYOUTS = {
    "C": lambda xp, n: whole(xp, (4, n // 4)),
    "F": lambda xp, n: (memory := xp.full((n // 4, 4), SENTINEL), memory.T),
    "strided": lambda xp, n: (memory := xp.full((4, 2 * (n // 4) + 1), SENTINEL), memory[:, 1::2]),
    "columns": lambda xp, n: (memory := xp.full((n, 3), SENTINEL), memory[:, 1]),
    "reversed": lambda xp, n: (memory := xp.full(n, SENTINEL), memory[::-1]),
    "transposed": lambda xp, n: (memory := xp.full((n // 4, 2, 2), SENTINEL), memory.transpose(1, 2, 0)),
    "offset": lambda xp, n: (memory := xp.full(n + 5, SENTINEL), memory[3 : 3 + n]),
}


def whole(xp, shape):
    memory = xp.full(shape, SENTINEL)
    return memory, memory


def inputs(count, size):
    return [np.arange(count, dtype="f8") + 1000 * r for r in range(size)]


def numbers(method, size):
    """Elements that are sent and received: equal blocks of 4."""
    block = 4 * size if method in ("Reduce_scatter_block", "Reduce_scatter", "Scatter", "Alltoall") else 4
    out = 4 * size if method in ("Gather", "Allgather", "Alltoall") else 4
    return block, out


class Exchange:
    """A call with a layout on each side."""

    def __init__(self, comm, memory, method, send, recv):
        self.comm, self.memory, self.method = comm, memory, method
        sent, received = numbers(method, comm.size)
        self.values = inputs(sent, comm.size)
        _, self.x = LAYOUTS[send](memory.xp, sent)
        self.around, self.y = LAYOUTS[recv](memory.xp, received)
        self.set(self.x, self.values[comm.rank])

    def set(self, array, values):
        array[...] = self.memory.xp.asarray(values.reshape(array.shape))

    def call(self, *buffers):
        extra = ([4] * self.comm.size,) if self.method == "Reduce_scatter" else ()
        with mpicoll.override(path=self.memory.path):
            getattr(self.comm, self.method)(*buffers, *extra)

    @property
    def expected(self):
        counts = [[4] * self.comm.size] * self.comm.size if self.method == "Alltoall" else [4] * self.comm.size
        find = oracle.EXPECTED[self.method]
        return find(self.values, self.comm.rank, root=0, op="SUM", counts=counts)

    def compare(self):
        found = self.memory.to_host(self.y).ravel()
        wanted = np.full(self.y.size, SENTINEL) if self.expected is None else self.expected
        assert found.tolist() == wanted.tolist()
        self.y[...] = SENTINEL
        assert (self.memory.to_host(self.around) == SENTINEL).all(), "written between the elements"


@pytest.mark.case("LAYOUT-STRIDED-SEND")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", [m for m in METHODS if m != "Bcast"])
def test_sent_and_received(world, memory, method, layout):
    """The layout is that of the input, of the output, or of both."""
    for send, recv in ((layout, "C"), ("C", layout), (layout, layout)):
        one = Exchange(world, memory, method, send, recv)
        one.call(one.x, one.y)
        one.compare()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_broadcast(world, memory, layout):
    """From one layout to another: the root's is C, then the others' is."""
    for send, recv in ((layout, "C"), ("C", layout)):
        one = Exchange(world, memory, "Bcast", send, recv)
        if world.rank == 0:
            one.y = one.x
        one.call(one.y)
        assert memory.to_host(one.y).ravel().tolist() == one.values[0].tolist()
        if world.rank:
            one.compare()


@pytest.mark.parametrize("layout", ["F", "strided", "reversed"])
@pytest.mark.parametrize("method", [m for m in METHODS if "in place" in forms(m) and m not in ROOTED])
def test_in_place(world, memory, method, layout):
    if method == "Allgather":
        one = Exchange(world, memory, method, "C", layout)
        flat = np.full(one.y.size, SENTINEL)
        flat[4 * world.rank : 4 * world.rank + 4] = one.values[world.rank]
        one.set(one.y, flat)
    else:
        one = Exchange(world, memory, method, layout, layout)
        one.around, one.y = None, one.x
    one.call(MPI.IN_PLACE, one.y)
    found, wanted = memory.to_host(one.y).ravel(), one.expected
    wanted = one.values[world.rank] if wanted is None else wanted
    assert found[: wanted.size].tolist() == wanted.tolist()


@pytest.mark.parametrize("method", ["Allreduce", "Scan", "Exscan"])
def test_the_same_strided_array_twice(world, memory, method):
    """Packed, then unpacked: the result replaces the input."""
    one = Exchange(world, memory, method, "strided", "C")
    one.call(one.x, one.x)
    wanted = one.values[world.rank] if one.expected is None else one.expected
    assert memory.to_host(one.x).ravel().tolist() == wanted.tolist()


@pytest.mark.case("LAYOUT-FC")
def test_c_and_f_order_mix(world, memory):
    """Ranks may differ: element (i, j) stays element (i, j)."""
    xp, rank = memory.xp, world.rank
    order = "CF"[rank % 2]
    x = xp.asarray(np.arange(12.0).reshape(3, 4) + rank, order=order)
    y = xp.zeros((3, 4), order="CF"[(rank + 1) % 2])
    world.Allreduce(x, y)
    p = world.size
    assert memory.to_host(y).tolist() == (np.arange(12.0).reshape(3, 4) * p + p * (p - 1) / 2).tolist()
    world.Bcast(x, root=p - 1)
    assert memory.to_host(x).tolist() == (np.arange(12.0).reshape(3, 4) + p - 1).tolist()


@pytest.mark.case("ZEROD")
def test_no_dimension(world, memory):
    """Arrays of one element without dimensions are sent and received."""
    x, y = memory.xp.asarray(2.0), memory.xp.asarray(0.0)
    world.Allreduce(x, y)
    assert y.shape == ()
    assert float(y) == 2 * world.size
    world.Bcast(x, root=world.size - 1)
    gathered = memory.xp.zeros((world.size, 1, 1))
    world.Allgather(x, gathered)
    assert memory.to_host(gathered).ravel().tolist() == [2] * world.size


@pytest.mark.case("ZERO-ALL")
@pytest.mark.parametrize("shape", [(0,), (1, 0, 2), (0, 3)])
def test_nothing(world, memory, shape):
    """No elements: returns, and ranks still match up."""
    x, y = memory.xp.zeros(shape), memory.xp.zeros(shape)
    world.Allreduce(x, y)
    world.Bcast(x[::-1])
    world.Allgather(x, y)
    world.Alltoall(x, y)
    world.Reduce_scatter_block(x, y)
    world.Scan(x, y)
    world.Gather(x, y if world.rank == 0 else None)


@pytest.mark.case("VIEW-ODD")
def test_a_broadcast_view_can_be_sent(world, memory):
    """Every element at one address: packed."""
    x = memory.xp.broadcast_to(memory.xp.asarray(3.0), (4, 3))
    y = memory.xp.zeros((4, 3))
    world.Allreduce(x, y)
    assert (memory.to_host(y) == 3 * world.size).all()


def test_the_rest_of_a_strided_array_is_left_alone(world, memory):
    """A count says how much of the array is received, strided or not."""
    xp, p = memory.xp, world.size
    strided = xp.full(2 * p + 8, SENTINEL)[::2]
    world.Allreduce(xp.ones(2), [strided, 2])
    assert memory.to_host(strided).tolist() == [p, p] + [SENTINEL] * (p + 2)
    strided[:] = SENTINEL
    world.Allgather(xp.ones(1), [strided, 1])
    assert memory.to_host(strided).tolist() == [1] * p + [SENTINEL] * 4
    strided[:] = world.rank
    world.Bcast([strided, 1])
    assert memory.to_host(strided).tolist() == [0] + [world.rank] * (p + 3)


def test_strided_blocks_with_gaps(world, memory):
    """Allgatherv into every second element, with a gap before every block."""
    xp, rank, p = memory.xp, world.rank, world.size
    around = xp.full(6 * p, SENTINEL)
    world.Allgatherv(xp.full(2, float(rank)), [around[::2], [2] * p, [3 * r + 1 for r in range(p)]])
    found = memory.to_host(around).reshape(p, 3, 2)
    assert (found[:, 1:, 0] == np.arange(p)[:, None]).all()
    assert (found[:, 0] == SENTINEL).all()
    assert (found[..., 1] == SENTINEL).all()


@pytest.mark.case("LAYOUT-OFFSET")
def test_the_address_is_taken_at_every_call(world, memory):
    """The same view again after its array was written, and another view of the same size."""
    xp, p = memory.xp, world.size
    x, y = xp.zeros(9), xp.zeros(3)
    view = x[2:5]
    for value in (1.0, 2.0):
        x[:] = value
        world.Allreduce(view, y)
        assert memory.to_host(y).tolist() == [value * p] * 3
    x[5:8] = 5.0
    world.Allreduce(x[5:8], y)
    assert memory.to_host(y).tolist() == [5.0 * p] * 3
