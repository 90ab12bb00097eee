"""Cases of users: what arrays are, where they lie, and what comes back.

Each test names the cases it covers by id.  Where it makes sense the same test runs on NumPy arrays
and, on a machine with a GPU, on CuPy arrays with both paths.
"""

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.calling import VECTOR, Case, check, each_that_serves, forms
from mpicoll.algorithms import registry

METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
SIZE = MPI.COMM_WORLD.Get_size()
#: dtypes of 1, 2, 4, 8 and 16 bytes
WIDTHS = ("int8", "int16", "uint16", "float16", "float32", "int64", "complex128")


@pytest.fixture(autouse=True)
def on_path(request):
    """Use the path of the memory, in tests that have one."""
    memory = request.getfixturevalue("memory") if "memory" in request.fixturenames else None
    with mpicoll.override(path=memory.path if memory else None):
        yield


def total(values):
    return sum(values(r) for r in range(SIZE))


# Layout.


@pytest.mark.case("LAYOUT-STRIDED-SEND")
def test_slices_and_transposed_slices(world, memory):
    """Every second column is reduced, rows of a transposed matrix are sent."""
    xp, rank = memory.xp, world.rank
    x = xp.arange(24.0).reshape(4, 6) + rank
    y = xp.zeros((4, 3))
    world.Allreduce(x[:, ::2], y)
    host = np.arange(24.0).reshape(4, 6)
    assert (memory.to_host(y) == SIZE * host[:, ::2] + SIZE * (SIZE - 1) / 2).all()
    world.Bcast(x.T[1:3], root=SIZE - 1)
    sent = host + rank
    sent[:, 1:3] = host[:, 1:3] + SIZE - 1
    assert (memory.to_host(x) == sent).all()


@pytest.mark.case("LAYOUT-FC")
@pytest.mark.parametrize("orders", ["FC", "CF", "FF"])
def test_the_order_in_memory_changes_no_element(world, memory, orders):
    """One order where it is sent and another where it is received, in every kind of call."""
    xp, rank = memory.xp, world.rank
    matrix = np.arange(6.0).reshape(2, 3)
    mine = xp.asarray(matrix + 10 * rank, order=orders[0])
    out = xp.asarray(np.zeros((2, 3)), order=orders[1])
    world.Allreduce(mine, out)
    assert (memory.to_host(out) == total(lambda r: matrix + 10 * r)).all()
    both = mine if rank == 0 else out
    world.Bcast(both)
    assert (memory.to_host(both) == matrix).all()
    many = xp.asarray(np.zeros((SIZE * 2, 3)), order=orders[1])
    mine[...] = xp.asarray(matrix + 10 * rank)
    world.Gather(mine, many if rank == SIZE - 1 else None, root=SIZE - 1)
    if rank == SIZE - 1:
        assert (memory.to_host(many) == np.concatenate([matrix + 10 * r for r in range(SIZE)])).all()


@pytest.mark.case("LAYOUT-OFFSET")
def test_slices_that_start_elsewhere(world, memory):
    """A slice is sent from its own start, into another's own start."""
    xp, rank = memory.xp, world.rank
    x, y = xp.arange(20.0) + rank, xp.full(30, -1.0)
    world.Allreduce(x[7:19], y[11:23])
    host = np.full(30, -1.0)
    host[11:23] = total(lambda r: np.arange(7.0, 19.0) + r)
    assert (memory.to_host(y) == host).all()
    world.Allreduce(x[1:2], y[:1])
    assert float(y[0]) == total(lambda r: 1 + r)
    view = x[1:2]
    x += 5
    world.Allreduce(view, y[:1])
    assert float(y[0]) == total(lambda r: 6 + r)


@pytest.mark.case("VIEW-ODD")
def test_reversed_broadcast_and_overlapping_views(world, memory):
    """Whatever can be read can be sent; a view whose elements share memory cannot be received."""
    xp = memory.xp
    x, y = xp.arange(4.0), xp.zeros(4)
    world.Allreduce(x[::-1], y)
    assert memory.to_host(y).tolist() == [3.0 * SIZE, 2.0 * SIZE, 1.0 * SIZE, 0.0]
    world.Allreduce(x, y[::-1])
    assert memory.to_host(y).tolist() == [3.0 * SIZE, 2.0 * SIZE, 1.0 * SIZE, 0.0]
    z = xp.zeros((3, 4))
    world.Allreduce(xp.broadcast_to(x, (3, 4)), z)
    assert (memory.to_host(z) == SIZE * np.arange(4.0)).all()
    windows = xp.lib.stride_tricks.as_strided(x, (3, 2), (8, 8))
    w = xp.zeros((3, 2))
    world.Allreduce(windows, w)
    assert memory.to_host(w).tolist() == [[0, SIZE], [SIZE, 2 * SIZE], [2 * SIZE, 3 * SIZE]]


@pytest.mark.case("VIEW-ODD")
@pytest.mark.parametrize("strides", [(0, 8), (8, 0), *(pytest.param(s) for s in ((8, 8), (-8, 8), (16, 8)))])
def test_receiving_into_a_view_that_overlaps_itself(world, memory, strides):
    """Two elements at one address have no value of their own."""
    xp = memory.xp
    own = xp.zeros(8)
    view = xp.lib.stride_tricks.as_strided(own[2:], (2, 3), strides)
    with pytest.raises(ValueError, match=r"^allreduce: recvbuf (overlaps itself|is read-only)"):
        world.Allreduce(xp.ones((2, 3)), view)
    check(world, Case("Allreduce"), memory)


# Sizes.


@pytest.mark.case("ZERO-ALL")
@pytest.mark.parametrize("method", METHODS)
def test_every_collective_of_nothing(world, memory, method):
    """Empty blocks everywhere; the ranks still match up."""
    check(world, Case(method, None, 0, pattern="zero" if method in VECTOR else ""), memory)
    check(world, Case(method, None, 2, root=1), memory)


@pytest.mark.case("ZERO-ALL")
def test_empty_views(world, memory):
    """Arrays of no elements in several shapes, as views and as arrays, in and out."""
    x = memory.xp.arange(10.0)
    for empty in (x[5:5], memory.xp.empty(0), memory.xp.zeros((1, 0, 2)), x.reshape(2, 5)[:, 3:3]):
        world.Allreduce(empty, memory.xp.empty_like(empty))
        world.Bcast(empty, root=SIZE - 1)
        world.Allgather(empty, memory.xp.zeros((SIZE, *empty.shape)))
        assert mpicoll.allreduce(empty, comm=world).shape == empty.shape
    assert memory.to_host(x).tolist() == list(range(10))


@pytest.mark.case("ZEROD")
def test_arrays_without_dimensions(world, memory):
    """0-d in, 0-d out, of the same kind; scalars of Python and NumPy can be given."""
    found = mpicoll.allreduce(memory.xp.asarray(1.0), comm=world)
    assert (type(found), found.shape, found.dtype) == (memory.xp.ndarray, (), np.dtype("f8"))
    assert float(found) == SIZE
    for scalar in (np.float64(2), np.float32(2), 2, 2.0, True):
        found = mpicoll.allreduce(scalar, MPI.MAX, comm=world)
        assert np.shape(found) == ()
        assert found.dtype == np.asarray(scalar).dtype
        assert found == scalar
    assert mpicoll.allgather(memory.xp.asarray(3), comm=world).shape == (SIZE,)


@pytest.mark.case("ZEROD")
def test_a_scalar_cannot_receive(world):
    """What cannot be changed cannot be received into, rather than keep its old value silently."""
    for call in (
        lambda: world.Allreduce(np.ones(()), np.float64(0)),
        lambda: world.Allreduce(MPI.IN_PLACE, np.float64(1)),
    ):
        with pytest.raises((TypeError, ValueError), match=r"^allreduce: recvbuf "):
            call()
    check(world, Case("Allreduce"))


@pytest.mark.case("ALGO-SMALLCOUNT")
@pytest.mark.parametrize("algorithm", ["ring", "reduce_scatter_allgather", "two_shot"])
def test_fewer_elements_than_ranks(world, memory, algorithm):
    """Algorithms that scatter the vector, with less of it than there are ranks."""
    for count in sorted({0, 1, SIZE - 1, SIZE + 1}):
        check(world, Case("Allreduce", algorithm, count), memory)
        check(world, Case("Allreduce", f"{algorithm}/3", count, form="in place"), memory)


@pytest.mark.case("DDT-SLOW")
def test_sub_blocks_of_a_cube(world, memory):
    """Blocks inside a larger array travel packed, in one message each, not row by row."""
    xp, p = memory.xp, SIZE
    cube = xp.arange(float((p + 2) * 6 * 5)).reshape(p + 2, 6, 5) + 1000 * world.rank
    out = xp.full((p + 2, 6, 5), -1.0)
    world.Alltoall(cube[1 : p + 1, 1:5, 1:4], out[1 : p + 1, 1:5, 1:4])
    sent = np.arange(float((p + 2) * 6 * 5)).reshape(p + 2, 6, 5)
    found = memory.to_host(out)
    for r in range(p):
        assert (found[1 + r, 1:5, 1:4] == sent[1 + world.rank, 1:5, 1:4] + 1000 * r).all()
    found[1 : p + 1, 1:5, 1:4] = -1
    assert (found == -1).all()


@pytest.mark.case("UNEVEN-GATHER")
@pytest.mark.mpi(min_size=2)
def test_ranks_bring_different_amounts(world, memory):
    """Counts are found, and the pieces are joined in the order of the ranks."""
    rank, last = world.rank, SIZE - 1
    mine = memory.xp.full((rank + 1, 3), float(rank))
    joined = np.repeat(np.arange(float(SIZE)), np.arange(1, SIZE + 1))
    everything, counts = mpicoll.allgatherv(mine, comm=world)
    assert counts == list(range(1, SIZE + 1))
    assert (memory.to_host(everything) == joined[:, None]).all()
    assert everything.shape == (SIZE * (SIZE + 1) // 2, 3)
    everything, counts = mpicoll.gatherv(mine, root=last, comm=world)
    assert counts == list(range(1, SIZE + 1))
    assert everything is None if rank < last else (memory.to_host(everything) == joined[:, None]).all()
    empty = memory.xp.zeros((0 if rank == 0 else 2, 2))
    assert mpicoll.allgatherv(empty, comm=world)[1] == [0] + [2] * last


@pytest.mark.case("UNEVEN-GATHER")
@pytest.mark.mpi(min_size=2)
def test_equal_blocks_that_are_not_equal(world):
    """The call for equal blocks refuses others, on every rank when calls are compared."""
    rank = world.rank
    with mpicoll.override(debug=1):
        with pytest.raises(mpicoll.MismatchError, match=r"^allgather #\d+: "):
            mpicoll.allgather(np.zeros((rank + 1, 3)), comm=world)
        with pytest.raises(mpicoll.MismatchError, match=r"^gather #\d+: "):
            world.Gather(np.zeros(rank + 1), np.zeros(SIZE) if rank == 0 else None)
    odd = np.zeros((2, 3 if rank else 4))
    with pytest.raises(ValueError, match=r"^allgatherv: x is .* on rank 0, .* on rank 1$"):
        mpicoll.allgatherv(odd, comm=world)
    check(world, Case("Allgather"))


@pytest.mark.case("COUNTS-FORM")
@pytest.mark.parametrize("kind", ["list", "tuple", "int32", "int64", "numbers"])
def test_counts_of_any_kind(world, memory, kind):
    """Lists, tuples, arrays, NumPy numbers; in elements, displacements left out or not."""
    rank, counts = world.rank, [2 * (r + 1) for r in range(SIZE)]
    if kind == "tuple" and SIZE == 2:
        pytest.skip("a tuple of two is counts and displacements, as in mpi4py")
    make = {
        "list": list,
        "tuple": tuple,
        "int32": lambda n: np.array(n, "i4"),
        "int64": lambda n: np.array(n, "i8"),
        "numbers": lambda n: [np.int64(v) for v in n],
    }[kind]
    starts = [sum(counts[:r]) for r in range(SIZE)]
    whole = np.repeat(np.arange(float(SIZE)), counts)
    for spec in ([make(counts)], [make(counts), make(starts)], [(make(counts), make(starts))]):
        gathered = memory.xp.zeros((sum(counts) // 2, 2))
        world.Gatherv(memory.xp.full(counts[rank], float(rank)), [gathered, *spec] if rank == 0 else None)
        mine = memory.xp.zeros((rank + 1, 2))
        world.Scatterv([gathered, *spec] if rank == 0 else None, mine)
        assert (memory.to_host(mine) == rank).all()
        if rank == 0:
            assert (memory.to_host(gathered).ravel() == whole).all()


# Dtypes.


@pytest.mark.case("DTYPE-F16")
@pytest.mark.parametrize("method", ["Bcast", "Allgather", "Alltoall", "Gather", "Scatter"])
def test_half_precision_is_moved(world, memory, method):
    """Movement needs no type of MPI's."""
    check(world, Case(method, None, 7, dtype="float16", root=1), memory)


@pytest.mark.case("DTYPE-F16")
def test_half_precision_sums(world, memory):
    """Near the largest number; what is too large becomes infinite, as it does in NumPy."""
    y = memory.xp.zeros(4, "f2")
    world.Allreduce(memory.xp.asarray([60000, 1, 0.5, -2], "f2") / (SIZE if SIZE > 1 else 1), y)
    assert np.allclose(memory.to_host(y).astype("f4"), [60000, 1, 0.5, -2], rtol=SIZE * 2.0**-10)
    with np.errstate(over="ignore"):
        world.Allreduce(memory.xp.asarray([60000, 1, 2, 3], "f2"), y)
    assert np.isinf(memory.to_host(y)[0]) == (SIZE > 1)


@pytest.mark.case("DTYPE-CPLX")
def test_complex_numbers(world, memory):
    """Sums and products are right, an order there is not."""
    for dtype in data.COMPLEX:
        for op in ("SUM", "PROD"):
            check(world, Case("Allreduce", None, 9, dtype=dtype, op=op), memory)
        x, y = memory.xp.ones(3, dtype), memory.xp.zeros(3, dtype)
        for op in (MPI.MAX, MPI.MIN):
            with pytest.raises(TypeError, match=r"^allreduce: op M.. is not defined for complex"):
                world.Allreduce(x, y, op)
    check(world, Case("Allreduce"), memory)


@pytest.mark.case("DTYPE-ENDIAN")
@pytest.mark.parametrize("dtype", [">f8", ">i4"])
def test_the_other_byte_order_in_both_spellings(world, dtype):
    """Refused by name with and without MPI's type; moved as it is."""
    native = np.dtype(dtype).newbyteorder("=")
    named = {"f8": MPI.DOUBLE, "i4": MPI.INT}[native.str[1:]]
    x, y = np.arange(3).astype(dtype), np.zeros(3, dtype)
    with pytest.raises(TypeError, match=f"^allreduce: {dtype} is not in this machine's byte order"):
        world.Allreduce(x, y)
    for arguments in (([x, named], [y, named]), ([x, named], y)):
        with pytest.raises(TypeError, match=f"^allreduce: ...?.?buf is {dtype}, its given type is {native}"):
            world.Allreduce(*arguments)
    z = x if world.rank == 0 else y
    world.Bcast(z)
    assert z.tolist() == [0, 1, 2]
    assert z.dtype == np.dtype(dtype)


@pytest.mark.case("DTYPE-STRUCT")
def test_records_dates_and_objects(world):
    """What has a fixed size moves as bytes; it is not reduced, and objects are refused."""
    pair = np.dtype([("a", "i4"), ("b", "f8")])
    for array in (np.array([(1, 2.5), (3, 4.5)], pair), np.array(["2020-01-02", "2021-03-04"], "datetime64[D]")):
        x = array.copy() if world.rank == SIZE - 1 else np.zeros_like(array)
        world.Bcast(x, root=SIZE - 1)
        assert x.tolist() == array.tolist()
        assert mpicoll.allgather(x, comm=world).tolist() == [array.tolist()] * SIZE
        for op in (MPI.SUM, MPI.MAX, MPI.LOR):
            with pytest.raises(TypeError, match=r"^allreduce: op [A-Z]+ is not defined for "):
                world.Allreduce(x, np.zeros_like(x), op)
    objects = np.array([{}, None], object)
    for method, arguments in (("Bcast", (objects,)), ("Allreduce", (objects, objects.copy()))):
        with pytest.raises(TypeError, match=r"holds Python objects; use the lower-case methods of mpi4py$"):
            getattr(world, method)(*arguments)
    check(world, Case("Bcast"))


@pytest.mark.case("INT-WRAP")
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_sums_of_integers_wrap(world, memory, dtype):
    """Results have the dtype of the arrays, and what does not fit wraps around."""
    top = np.iinfo(dtype).max
    y = memory.xp.zeros(5, dtype)
    world.Allreduce(memory.xp.full(5, top, dtype), y)
    bits = 8 * np.dtype(dtype).itemsize
    wanted = (top * SIZE) % (1 << bits)
    wanted -= (1 << bits) if wanted > top else 0
    assert memory.to_host(y).tolist() == [wanted] * 5


@pytest.mark.case("NAN-MAX")
@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("op", ["MAX", "MIN"])
def test_not_a_number_stays(world, memory, op):
    """A NaN on one rank is a NaN on all, with every algorithm, in half precision too."""
    ops = {"MAX": MPI.MAX, "MIN": MPI.MIN}
    x = np.ones(3)
    x[1] = np.nan if world.rank == 0 else 1
    x[2] = np.nan if world.rank == SIZE - 1 else 1
    for dtype in ("f2", "f4", "f8"):

        def reduce(algorithm, dtype=dtype):
            y = memory.xp.zeros(3, dtype)
            world.Allreduce(memory.xp.asarray(x.astype(dtype)), y, ops[op], algorithm=algorithm)
            assert np.isnan(memory.to_host(y)).tolist() == [False, True, True], algorithm

        assert {"linear", "ring"} <= set(each_that_serves("allreduce", SIZE, reduce))


@pytest.mark.case("GUARD-OVERRUN")
@pytest.mark.parametrize("method", METHODS)
def test_nothing_around_the_arrays_is_written(world, memory, method):
    """Sentinels before, behind and between the blocks are as they were, for every width."""
    for dtype in WIDTHS:
        for count in (1, 5):
            check(world, Case(method, None, count, pattern="uneven" if method in VECTOR else "", dtype=dtype), memory)


# One buffer for both.


@pytest.mark.case("ALIAS")
def test_one_array_for_both_sides(world, memory):
    """Exactly the same memory is in place; a part of it is refused before anything is sent."""
    xp, rank = memory.xp, world.rank
    x = xp.full(6, rank + 1.0)
    world.Allreduce(x, x)
    assert memory.to_host(x).tolist() == [SIZE * (SIZE + 1) / 2] * 6
    many = xp.full(SIZE, -1.0)
    many[rank] = rank
    world.Allgather(many[rank : rank + 1], many)
    assert memory.to_host(many).tolist() == list(range(SIZE))
    x = xp.arange(8.0)
    for send, recv in ((x[0:6], x[2:8]), (x[2:8], x[0:6])):
        with pytest.raises(ValueError, match=r"^allreduce: recvbuf overlaps sendbuf; use MPI.IN_PLACE$"):
            world.Allreduce(send, recv)
    assert memory.to_host(x).tolist() == list(range(8))


@pytest.mark.case("INPLACE-RS", "INPLACE-DISPL", "INPLACE-ROOT")
@pytest.mark.parametrize("method", METHODS)
def test_in_place_with_every_method_that_has_it(world, memory, method):
    """Own blocks are read where they are, for any root."""
    for form in forms(method)[1:]:
        for root in {0, SIZE - 1}:
            vector = method in VECTOR
            case = Case(method, None, 5, "uneven" if vector else "", "permuted" if vector else "dense", root=root)
            check(world, Case(**{**vars(case), "form": form}), memory)


@pytest.mark.case("INPLACE-RS")
def test_in_place_at_the_front(world, memory):
    """The whole input is read, and the result lies at the front, as in MPI."""
    x = memory.xp.arange(3.0 * SIZE) + world.rank
    world.Reduce_scatter_block(MPI.IN_PLACE, x)
    mine = np.arange(3.0 * SIZE)[3 * world.rank : 3 * world.rank + 3]
    assert memory.to_host(x)[:3].tolist() == total(lambda r: mine + r).tolist()
    counts = [2 * r + 1 for r in range(SIZE)]
    x = memory.xp.arange(float(sum(counts))) + world.rank
    world.Reduce_scatter(MPI.IN_PLACE, x, counts)
    start = sum(counts[: world.rank])
    mine = np.arange(float(sum(counts)))[start : start + counts[world.rank]]
    assert memory.to_host(x)[: len(mine)].tolist() == total(lambda r: mine + r).tolist()


@pytest.mark.case("GATHER-NONE")
@pytest.mark.parametrize("method", ["Gather", "Gatherv", "Reduce", "Scatter", "Scatterv"])
@pytest.mark.parametrize("root", {0, SIZE - 1})
def test_none_where_it_does_not_matter(world, memory, method, root):
    """Off the root the other buffer may be None, whoever is the root."""
    rank = world.rank
    one = memory.xp.full(2, float(rank))
    many = memory.xp.arange(2.0 * SIZE) if rank == root else None
    if method == "Reduce":
        world.Reduce(one, many[:2] if rank == root else None, root=root)
    elif method.startswith("Gather"):
        getattr(world, method)(one, many, root)
    else:
        getattr(world, method)(many, one, root)
        assert memory.to_host(one).tolist() == [2 * rank, 2 * rank + 1]
    if rank == root and method.startswith("Gather"):
        assert memory.to_host(many).tolist() == np.repeat(range(SIZE), 2).tolist()


@pytest.mark.case("READONLY")
def test_arrays_that_must_not_be_written(world):
    """Fine where they are only read; refused where they are received into."""
    frozen = np.full(3, 2.0)
    frozen.flags.writeable = False
    assert mpicoll.allreduce(frozen, comm=world).tolist() == [2.0 * SIZE] * 3
    mpicoll.bcast(frozen if world.rank == 0 else np.zeros(3), comm=world)
    for arguments in ((np.ones(3), frozen), (MPI.IN_PLACE, frozen)):
        with pytest.raises(ValueError, match=r"^allreduce: recvbuf is read-only$"):
            world.Allreduce(*arguments)
    assert frozen.tolist() == [2.0] * 3
    world.Bcast(memoryview(b"abc") if world.rank == 0 else bytearray(3))


# What comes back.


@pytest.mark.case("SHAPE-KEEP")
def test_shape_dtype_and_kind_are_kept(world, memory):
    """Of a new result; and a given one is the one that is returned."""
    x = memory.xp.ones((3, 4), "f4")
    for function in (mpicoll.allreduce, mpicoll.scan, mpicoll.exscan):
        found = function(x, comm=world)
        assert (type(found), found.shape, found.dtype) == (type(x), x.shape, x.dtype)
        out = memory.xp.zeros((3, 4), "f4")
        assert function(x, comm=world, out=out) is out
        assert (
            float(out.sum())
            == 12 * {"allreduce": SIZE, "scan": world.rank + 1, "exscan": world.rank}[function.__name__]
        )
    assert mpicoll.bcast(x, comm=world) is x
    assert mpicoll.allgather(x, comm=world).shape == (SIZE, 3, 4)
    found = mpicoll.allreduce(memory.xp.ones((3, 4), "f4"), MPI.MIN, comm=world)
    assert found.shape == (3, 4)


@pytest.mark.case("PICKLE-PATH")
def test_arrays_are_never_pickled(world, memory):
    """No array is given to a method for objects, and shapes are as they were."""

    def fail(self, *arguments, **named):
        raise AssertionError("an array is sent as an object")

    names = ("bcast", "allreduce", "reduce", "gather", "allgather", "scatter", "alltoall", "send", "recv")
    comm = type("Buffers", (mpicoll.Communicator,), dict.fromkeys(names, fail))(world)
    x = memory.xp.ones((2, 1))
    assert mpicoll.allreduce(x, comm=comm).shape == (2, 1)
    assert mpicoll.bcast(x, comm=comm) is x
    assert mpicoll.allgather(x, comm=comm).shape == (SIZE, 2, 1)
    comm.Alltoall(memory.xp.ones(SIZE), memory.xp.zeros(SIZE))


@pytest.mark.case("PICKLE-PATH")
@pytest.mark.mpi(min_size=2)
def test_shapes_do_not_broadcast(world):
    """(3,) and (2, 1) are no call together, and do not become (2, 3)."""
    x = np.ones(3) if world.rank == 0 else np.ones((2, 1))
    with mpicoll.override(debug=1), pytest.raises(mpicoll.MismatchError, match="differ in count 3 and 2"):
        mpicoll.allreduce(x, comm=world)


@pytest.mark.case("SIZE1")
@pytest.mark.ranks(1)
@pytest.mark.parametrize("method", METHODS)
def test_alone(world, memory, method):
    """One rank fills its results too, in every form."""
    for form in forms(method):
        check(world, Case(method, None, 4, form=form), memory)


@pytest.mark.case("SIZE1")
def test_alone_makes_the_same_mistakes(comms):
    """What is refused among several is refused alone."""
    alone = comms["self"]
    for error, call in (
        (TypeError, lambda: alone.Allreduce(np.ones(3), np.zeros(3, "f4"))),
        (TypeError, lambda: alone.Allreduce(np.ones(3, "c8"), np.zeros(3, "c8"), MPI.MAX)),
        (ValueError, lambda: alone.Allgather(np.ones(3), np.zeros(4))),
        (ValueError, lambda: alone.Bcast(np.ones(3), root=1)),
        (TypeError, lambda: alone.Bcast(np.array([None], object))),
        (mpicoll.UnsupportedError, lambda: alone.Allreduce(np.ones(3), np.zeros(3), MPI.REPLACE)),
    ):
        with pytest.raises(error):
            call()


# Kinds of arrays.


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def torch_device(request):
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    if request.param == "cpu":
        return torch, "cpu"
    import cupy

    return torch, f"cuda:{cupy.cuda.Device().id}"


@pytest.mark.case("TORCH")
def test_tensors(world, torch_device):
    """The result is seen in the tensor; bool, strided and many calls; grad is refused by name."""
    torch, device = torch_device
    x = torch.ones(4, device=device)
    for _ in range(200):
        x.fill_(1)
        world.Allreduce(MPI.IN_PLACE, x)
    assert x.tolist() == [SIZE] * 4
    y = mpicoll.allreduce(torch.ones((2, 3), dtype=torch.float64, device=device), comm=world)
    assert (type(y), tuple(y.shape), y.dtype, y.device) == (torch.Tensor, (2, 3), torch.float64, x.device)
    truth = torch.tensor([world.rank == 0, True, False], device=device)
    assert mpicoll.allreduce(truth, MPI.LOR, comm=world).tolist() == [True, True, False]
    wide = torch.zeros((4, 6), device=device)
    world.Allreduce(torch.ones((4, 3), device=device), wide[:, ::2])
    assert wide.sum().item() == 12 * SIZE
    with pytest.raises(ValueError, match=r"^allreduce: .* requires grad; pass .*\.detach\(\)$"):
        world.Allreduce(torch.ones(3, device=device, requires_grad=True), torch.zeros(3, device=device))
    check(world, Case("Allreduce"))


@pytest.mark.case("TORCH")
def test_tensor_of_another_library(world):
    """A stand-in for a CPU tensor, since the library itself may be missing: only its names are used."""

    class Tensor:
        __module__ = "torch"
        dtype, requires_grad = "torch.float64", False

        def __init__(self, array):
            self.array = array
            self.device = type("Device", (), {"type": "cpu"})

        def numpy(self):
            return self.array

    x, y = Tensor(np.full(3, 2.0)), Tensor(np.zeros(3))
    world.Allreduce(x, y)
    assert y.array.tolist() == [2.0 * SIZE] * 3
    x.requires_grad = True
    with pytest.raises(ValueError, match=r"^allreduce: sendbuf requires grad; pass sendbuf\.detach\(\)$"):
        world.Allreduce(x, y)


@pytest.mark.case("MIXED-HOSTDEV")
@pytest.mark.gpu
@pytest.mark.mpi(min_size=2)
def test_host_arrays_on_one_rank_and_device_arrays_on_others(world):
    """The same error on every rank when calls are compared, and no rank hangs."""
    import cupy

    xp = np if world.rank == 0 else cupy
    x, y = xp.ones(8), xp.zeros(8)
    with mpicoll.override(debug=1), pytest.raises(mpicoll.MismatchError, match=r"^allreduce #\d+: rank 0 calls"):
        world.Allreduce(x, y)
    check(world, Case("Allreduce"))


@pytest.mark.case("DTYPE-BOOL")
@pytest.mark.parametrize("op", data.OPERATORS)
def test_truth_values(world, memory, op):
    """Every operator is defined for them, and stores only 0 and 1; they are moved as well."""
    check(world, Case("Allreduce", None, 8, dtype="bool", op=op), memory)
    check(world, Case("Reduce_scatter_block", None, 3, dtype="bool", op=op), memory)
    check(world, Case("Bcast", None, 8, dtype="bool"), memory)
