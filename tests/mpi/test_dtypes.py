"""Dtypes: what is moved, what is reduced, and what each promises."""

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.calling import check
from mpi.cases import VECTOR, Case, each_that_serves
from mpicoll.algorithms import registry

pytestmark = pytest.mark.usefixtures("on_path")

METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
SIZE = MPI.COMM_WORLD.Get_size()
#: dtypes of 1, 2, 4, 8 and 16 bytes
WIDTHS = ("int8", "int16", "uint16", "float16", "float32", "int64", "complex128")


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
    named = {"f8": MPI.DOUBLE, "i4": MPI.INT}[dtype[1:]]
    x, y = np.arange(3).astype(dtype), np.zeros(3, dtype)
    with pytest.raises(TypeError, match=f"^allreduce: {dtype} is not in this machine's byte order"):
        world.Allreduce(x, y)
    for arguments in (([x, named], [y, named]), ([x, named], y)):
        with pytest.raises(TypeError, match=f"^allreduce: {dtype} is not in this machine's byte order"):
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


@pytest.mark.case("DTYPE-BOOL")
@pytest.mark.parametrize("op", data.OPERATORS)
def test_truth_values(world, memory, op):
    """Every operator is defined for them, and stores only 0 and 1; they are moved as well."""
    check(world, Case("Allreduce", None, 8, dtype="bool", op=op), memory)
    check(world, Case("Reduce_scatter_block", None, 3, dtype="bool", op=op), memory)
    check(world, Case("Bcast", None, 8, dtype="bool"), memory)


@pytest.mark.case("DTYPE-ENDIAN", "DTYPE-STRUCT")
@pytest.mark.parametrize("dtype", ["f8", ">f8", "i4", "datetime64[s]"])
def test_bytes_of_numbers_are_not_added(world, dtype):
    """MPI.BYTE is for what is moved; MPI has no SUM for it, either."""
    x, y = np.ones(3, dtype), np.zeros(3, dtype)
    with pytest.raises((TypeError, mpicoll.UnsupportedError), match=r"^allreduce: "):
        world.Allreduce([x, MPI.BYTE], [y, MPI.BYTE])
    check(world, Case("Allreduce"))


@pytest.mark.case("ROOT-DIFF")
def test_no_operator(world):
    """None is no operator, and the result would be what was there."""
    for method in ("Allreduce", "Reduce", "Scan"):
        with pytest.raises((TypeError, mpicoll.UnsupportedError), match=f"^{method.lower()}: op None "):
            getattr(world, method)(np.ones(3), np.zeros(3), None)
