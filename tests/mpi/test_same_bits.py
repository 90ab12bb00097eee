"""Allreduce gives all ranks the same bits: of NaN the payload too, of zeros the sign, of locations the index."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.cases import Case, refusal
from mpicoll.runtime.arguments.operators import MPI_OPS

P = MPI.COMM_WORLD.Get_size()
ALGORITHMS = [a for a in mpicoll.algorithms("allreduce")["allreduce"] if not refusal(Case("Allreduce", a), P)]
#: elements, taken in turn
MORE = (2, 5, 17, 1001)
OPS = ("SUM", "PROD", "MAX", "MIN")
#: parts of a number: bits of a quiet NaN, to which a payload is added
NAN = {"f2": ("u2", 0x7E00), "f4": ("u4", 0x7FC00000), "f8": ("u8", 0x7FF8000000000000)}
PART = {"c8": "f4", "c16": "f8"}
#: a value and an index: as one finds them, with other names, with bytes between and behind them, of other types
RECORDS = [
    np.dtype("f8,i8"),
    np.dtype([("value", "f4"), ("where", "i8")]),
    np.dtype([("v", "f4"), ("i", "u1")], align=True),
    np.dtype({"names": ["i_th", "rank"], "formats": ["f4", "u2"], "offsets": [2, 10], "itemsize": 13}),
    np.dtype([("x", "f2"), ("i", "u1")]),
    np.dtype([("v", "f8"), ("i", "i4")], align=True),  # as long as the first
]


def nans(dtype, count, payload):
    kind, bits = NAN[PART.get(dtype, dtype)]
    numbers = count * np.dtype(dtype).itemsize // np.dtype(kind).itemsize
    return np.full(numbers, bits + payload, kind).view(dtype)


def zeros(dtype, count, negative):
    return np.full(count, -0.0 if negative else 0.0, dtype)


def combinations(dtypes):
    """Yield each dtype with each operator that it has, for one element, which is a case of its own, and for more."""
    pairs = [(d, op) for d in dtypes for op in OPS if d[0] != "c" or op in ("SUM", "PROD")]
    for turn, (dtype, op) in enumerate(pairs):
        yield dtype, op, 1
        yield dtype, op, MORE[turn % len(MORE)]


def results(world, x, op, algorithm):
    """Return the bits of a call with two buffers and of one in place."""
    y, z = np.empty_like(x), x.copy()
    world.Allreduce(x, y, op, algorithm=algorithm)
    world.Allreduce(MPI.IN_PLACE, z, op, algorithm=algorithm)
    return y.tobytes(), z.tobytes()


def differing(bits):
    """Return which of the results differ between ranks."""
    every = MPI.COMM_WORLD.allgather(bits)
    return {case for case in bits if any(other[case] != bits[case] for other in every)}


@pytest.mark.case("FP-CONSISTENT")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_payload_of_nan_is_the_same_on_all_ranks(world, algorithm):
    """Each rank has a NaN of its own."""
    bits = {
        (dtype, op, count): results(world, nans(dtype, count, world.rank + 1), MPI_OPS[op], algorithm)
        for dtype, op, count in combinations(("f2", "f4", "f8", "c8", "c16"))
    }
    assert differing(bits) == set()


@pytest.mark.case("FP-CONSISTENT")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_sign_of_zero_is_the_same_on_all_ranks(world, algorithm):
    """Even ranks have one zero, odd ranks the other."""
    bits = {
        (dtype, op, count, odd): results(world, zeros(dtype, count, world.rank % 2 == odd), MPI_OPS[op], algorithm)
        for dtype, op, count in combinations(("f2", "f4", "f8"))
        for odd in (0, 1)
    }
    assert differing(bits) == set()


@pytest.mark.case("NAN-MAX")
@pytest.mark.parametrize("name", ["MAXLOC", "MINLOC"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_of_several_nan_and_of_equal_values_the_lowest_index_is_located(world, algorithm, name):
    """Element 0 has NaN on all ranks, 1 on the last two, 2 nowhere, 3 on the first."""
    p, rank, op = world.size, world.rank, MPI_OPS[name]
    wanted, bits = [(True, 10), (True, 10 + max(p - 2, 0)), (False, 10), (True, 10)], {}
    for record in RECORDS:
        value, index = record.names
        for repeats in (1, 50):
            x = np.zeros(4 * repeats, record)
            x[index] = rank + 10
            x[value] = np.tile([np.nan, np.nan if rank >= p - 2 else 5, 5, 5 if rank else np.nan], repeats)
            y = np.zeros_like(x)
            world.Allreduce(x, y, op, algorithm=algorithm)
            found = [(bool(np.isnan(v)), int(i)) for v, i in zip(y[value], y[index], strict=True)]
            assert found == wanted * repeats, record
            bits[str(record), repeats] = results(world, x, op, algorithm)
    assert differing(bits) == set()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_indices_that_fall_with_the_rank_are_located_by_themselves(world, algorithm):
    """The index decides, not the rank: the last rank has the lowest."""
    x = np.zeros(7, "f8,i8")
    x["f0"], x["f1"] = np.nan, world.size - world.rank
    y = np.zeros_like(x)
    for op in (MPI.MAXLOC, MPI.MINLOC):
        world.Allreduce(x, y, op, algorithm=algorithm)
        assert y["f1"].tolist() == [1] * 7


@pytest.mark.parametrize(
    "dtype",
    ["f8,i4,i4", [("a", "f8")], [("a", "f8"), ("b", "S4")], [("a", "c16"), ("b", "i4")], [("a", "f8", 2), ("b", "i4")]],
)
def test_records_that_are_no_pair_of_numbers_are_not_located(world, dtype):
    x = np.zeros(2, dtype)
    with pytest.raises(TypeError, match=r"^allreduce: op MAXLOC is not defined for \["):
        world.Allreduce(x, x.copy(), MPI.MAXLOC)


def test_half_a_pair_is_not_located(world):
    """Values and indices one after the other come in pairs; so do the items of a user's operator."""
    with pytest.raises(ValueError, match=r"^allreduce: op MAXLOC combines items of 2 elements, not 3$"):
        world.Allreduce(np.zeros(3), np.zeros(3), MPI.MAXLOC)
    fours = mpicoll.Op(np.add, width=4, name="fours")
    with pytest.raises(ValueError, match=r"^reduce_scatter: op fours combines items of 4 elements, not 6$"):
        world.Reduce_scatter(np.zeros(6 * world.size), np.zeros(6), [6] * world.size, fours)
