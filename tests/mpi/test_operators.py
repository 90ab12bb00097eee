"""Reductions: every operator on every dtype, and what each promises about odd values.

All (operator, dtype) pairs of every method, the algorithms going along so that each meets every
operator and every dtype; one count, for counts are test_matrix's.  Inputs are such that the result is
exact in any order of operands; only AVG, which divides, is compared with a tolerance.
"""

import functools
import zlib

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
import oracle
from mpi.calling import check
from mpi.cases import REDUCING, Case, refusal
from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.operators import MPI_OPS

#: elements: some more than 8 ranks, so that blocks differ
COUNT = 11


def names(method):
    return next(iter(mpicoll.algorithms(method).values()))


def usable(method, size):
    return [a for a in names(method) if not refusal(Case(method, a), size)]


def rows(method, dtypes):
    axes = {"op": data.OPERATORS, "dtype": dtypes, "algorithm": names(method)}
    return data.pairwise(axes, lambda row: not {"op", "dtype"} <= set(row) or oracle.supports(row["op"], row["dtype"]))


ALL = [(m, a) for m in REDUCING for a in names(m)]
SUPPORTED = ", ".join([*data.OPERATORS, "MAXLOC", "MINLOC", "AVG"])


@pytest.mark.parametrize("method", REDUCING)
def test_every_operator_on_every_dtype(world, memory, method):
    for row in rows(method, data.DTYPES):
        check(world, Case(method, count=COUNT, **row), memory)


@pytest.mark.parametrize("method", REDUCING)
def test_dtypes_that_only_the_host_has(world, method):
    for row in rows(method, data.HOST_DTYPES):
        check(world, Case(method, count=COUNT, **row))


@pytest.mark.many_ranks
@pytest.mark.parametrize("method", REDUCING)
@pytest.mark.parametrize("form", ["apart", "in place"])
def test_average(comms, memory, method, form):
    """The mean of what is combined: of all ranks, or of those up to this one."""
    for dtype in (*data.FLOATS, *data.COMPLEX):
        for name in ("world", "halves"):
            case = Case(method, names(method)[-1] + "/2", COUNT, dtype=dtype, op="AVG", form=form)
            check(comms[name], case, memory)


@pytest.mark.many_ranks
@pytest.mark.case("NAN-MAX")
@pytest.mark.parametrize(("method", "algorithm"), ALL)
def test_nan_is_kept(world, memory, method, algorithm):
    """A NaN on the first, the last or any rank makes MAX and MIN NaN, whatever the order of operands."""
    if refusal(Case(method, algorithm), world.size):
        return
    p, rank = world.size, world.rank
    x = np.arange(p * p, dtype="f4").reshape(p, p) + rank
    x[:, rank] = np.nan
    inputs = [r + np.where(np.arange(p) == r, np.nan, np.arange(p * p).reshape(p, p)).astype("f4") for r in range(p)]
    expected = oracle.EXPECTED[method]
    for op in ("MAX", "MIN"):
        y = memory.xp.zeros(p if method.startswith("Reduce_scatter") else p * p, "f4")
        arguments = {"Reduce_scatter": ([p] * p, MPI_OPS[op])}.get(method, (MPI_OPS[op],))
        with mpicoll.override(path=memory.path):
            getattr(world, method)(memory.xp.asarray(x), y, *arguments, algorithm=algorithm)
        wanted = expected([i.ravel() for i in inputs], rank, root=0, op=op, counts=[p] * p)
        if wanted is not None:
            np.testing.assert_array_equal(memory.to_host(y), wanted)


@pytest.mark.case("INT-WRAP")
@pytest.mark.parametrize("algorithm", names("Allreduce"))
def test_integers_wrap_around(world, memory, algorithm):
    """A sum that does not fit in its dtype wraps."""
    y = memory.xp.zeros(3, "i1")
    with mpicoll.override(path=memory.path):
        world.Allreduce(memory.xp.full(3, 100, "i1"), y, algorithm=algorithm)
    assert memory.to_host(y).tolist() == [(100 * world.size + 128) % 256 - 128] * 3


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("op", ["LAND", "LOR", "LXOR"])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float32", "complex64"])
def test_logical_results_are_0_or_1(world, memory, op, dtype):
    for algorithm in names("Allreduce"):
        y = memory.xp.zeros(3, dtype)
        world.Allreduce(memory.xp.asarray([0, 7, world.rank], dtype=dtype), y, MPI_OPS[op], algorithm=algorithm)
        assert set(memory.to_host(y).tolist()) <= {0, 1}


@pytest.mark.case("DTYPE-BOOL")
@pytest.mark.parametrize("op", data.OPERATORS)
def test_bool_stays_0_or_1(world, memory, op):
    """SUM, MAX and BOR are "or"; PROD, MIN and BAND are "and"."""
    x = [np.array([False, r == 0, r > 0, True]) for r in range(world.size)]
    y = memory.xp.zeros(4, "?")
    world.Allreduce(memory.xp.asarray(x[world.rank]), y, MPI_OPS[op])
    assert memory.to_host(y).view("u1").tolist() == oracle.fold(x, op).astype("u1").tolist()


def test_half_precision_is_combined_in_single(world, memory):
    """All vectors in one reduction: 2048 + 1 + 1 is 2050 in float32, but 2048 in float16."""
    x = memory.xp.full(5, 2048 if world.rank == 0 else 1, "f2")
    y = memory.xp.zeros(5, "f2")
    with mpicoll.override(path=memory.path):
        world.Allreduce(x, y, algorithm="one_shot")
    assert memory.to_host(y).tolist() == [np.float16(2048 + world.size - 1)] * 5


@pytest.mark.many_ranks
@pytest.mark.case("DTYPE-F16")
@pytest.mark.parametrize("algorithm", names("Allreduce"))
@pytest.mark.parametrize("dtype", ["float16", *data.BFLOAT16])
def test_half_precision_loses_at_most_a_rounding_per_step(world, algorithm, dtype):
    """The error is bounded by one rounding for each rank."""
    p = world.size
    x = [np.random.default_rng(r).random(50).astype(dtype) for r in range(p)]
    y = np.zeros(50, dtype)
    if refusal(Case("Allreduce", algorithm), p):
        return
    world.Allreduce(x[world.rank], y, algorithm=algorithm)
    exact = np.sum([v.astype("f8") for v in x], axis=0)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert (abs(y.astype("f8") - exact) <= p * unit * exact).all()


@pytest.mark.case("FP-CONSISTENT")
@pytest.mark.parametrize("algorithm", names("Allreduce"))
def test_all_ranks_have_the_same_bits(world, memory, algorithm):
    """Rounding depends on the order of operands, which must not depend on the rank."""
    p = world.size
    for count in (1, p, 5 * p + 2, 3000):
        for segments in (1, 3):
            x = np.random.default_rng(world.rank).standard_normal(count).astype("f4")
            y = memory.xp.zeros(count, "f4")
            with mpicoll.override(path=memory.path):
                world.Allreduce(memory.xp.asarray(x), y, algorithm=f"{algorithm}/{segments}")
            crc = zlib.crc32(memory.to_host(y).tobytes())
            assert len(set(MPI.COMM_WORLD.allgather(crc))) == 1, f"count {count}, {segments} segments"


@pytest.mark.case("DTYPE-CPLX")
@pytest.mark.parametrize("method", REDUCING)
def test_operators_that_a_dtype_has_not(world, memory, method):
    """Refused on all ranks before the first message."""
    extra = ([3] * world.size,) if method == "Reduce_scatter" else ()
    blocks = world.size if method.startswith("Reduce_scatter") else 1
    for op, dtype in (
        ("MAX", "c8"),
        ("MIN", "c16"),
        ("BAND", "f4"),
        ("BXOR", "f8"),
        ("BOR", "c8"),
        ("AVG", "i4"),
    ):
        x, y = memory.xp.zeros(3 * blocks, dtype), memory.xp.zeros(3, dtype)
        text = f"{method.lower()}: op {op} is not defined for {np.dtype(dtype)}"
        with pytest.raises(TypeError, match=f"^{text}$"):
            getattr(world, method)(x, y, *extra, MPI_OPS[op])
    check(world, Case(method, count=COUNT), memory)


@pytest.mark.parametrize("name", ["MAXLOC", "MINLOC"])
@pytest.mark.parametrize("method", ["Reduce", "Allreduce", "Scan", "Reduce_scatter_block"])
def test_locations(world, method, name):
    """Pairs of a value and an index, as records or one after the other: of equal values the lowest index."""
    p, rank = world.size, world.rank
    value = (3 * np.arange(p)[:, None] + np.arange(p)) % 4.0  # of rank and element; some are equal
    best = np.argmax if name == "MAXLOC" else np.argmin
    ranks = range(rank + 1) if method == "Scan" else range(p)
    where = best(value[list(ranks)], axis=0)
    wanted = [(value[r, i], r) for i, r in enumerate(where)]
    wanted = wanted[rank : rank + 1] if method == "Reduce_scatter_block" else wanted
    mine = [(v, rank) for v in value[rank]]
    for x in (np.array(mine, "f8,i4"), np.array(mine)):
        y = np.zeros_like(x)[: len(wanted)]
        for algorithm in usable(method, p):
            if not registry.get(method, algorithm).ordered:
                continue
            getattr(world, method)(x, y, getattr(MPI, name), algorithm=algorithm)
            assert (method == "Reduce" and rank) or [tuple(pair) for pair in y.tolist()] == wanted


@pytest.mark.many_ranks
@pytest.mark.case("ALGO-NONCOMM")
@pytest.mark.parametrize("method", REDUCING)
def test_operands_stay_in_rank_order(world, memory, method):
    """A product of matrices: not commutative, so only algorithms that keep the order serve."""
    p, rank = world.size, world.rank
    product = mpicoll.Op(lambda a, b: (a.reshape(-1, 2, 2) @ b.reshape(-1, 2, 2)).reshape(-1), width=4)
    scattered = method.startswith("Reduce_scatter")
    blocks = p if scattered else 3
    inputs = [np.array([[[1, r + 1], [b % 2, 1]] for b in range(blocks)], "f8") for r in range(p)]
    ranks = {"Scan": inputs[: rank + 1], "Exscan": inputs[:rank]}.get(method, inputs)
    wanted = functools.reduce(np.matmul, ranks) if ranks else None
    counts = ([4] * p,) if method == "Reduce_scatter" else ()
    for algorithm in usable(method, p):
        x, y = memory.xp.asarray(inputs[rank].ravel()), memory.xp.zeros(4 if scattered else 12)
        call = functools.partial(getattr(world, method), x, y, *counts, product, algorithm=f"{algorithm}/2")
        with mpicoll.override(path=memory.path):
            if not registry.get(method, algorithm).ordered:
                with pytest.raises(mpicoll.UnsupportedError, match="needs a commutative operator; usable: "):
                    call()
                continue
            call()
        if wanted is not None and not (method == "Reduce" and rank):
            found = memory.to_host(y).reshape(-1, 2, 2)
            assert (found == (wanted[rank] if scattered else wanted)).all(), algorithm


@pytest.mark.case("DTYPE-STRUCT")
@pytest.mark.parametrize("dtype", ["datetime64[s]", "S5", "i4,f4"])
def test_what_is_no_number_is_not_reduced(world, dtype):
    """Dates, strings and records have no sum."""
    x, y = np.zeros(3, dtype), np.zeros(3, dtype)
    with pytest.raises(TypeError, match="allreduce: op SUM is not defined for "):
        world.Allreduce(x, y)


@pytest.mark.case("DTYPE-ENDIAN")
@pytest.mark.parametrize("dtype", [">f8", ">i4"])
def test_the_other_byte_order_is_not_reduced(world, dtype):
    """The error names the byte order."""
    x, y = np.zeros(3, dtype), np.zeros(3, dtype)
    with pytest.raises(TypeError, match=r"allreduce: >.. is not in this machine's byte order; convert it first"):
        world.Allreduce(x, y)


@pytest.mark.parametrize("name", ["REPLACE", "NO_OP"])
def test_operators_of_mpi_that_are_not_served(world, name):
    x, y = np.zeros(3), np.zeros(3)
    text = f"^allreduce: op MPI.{name} is not supported; supported: {SUPPORTED}$"
    with pytest.raises(mpicoll.UnsupportedError, match=text):
        world.Allreduce(x, y, getattr(MPI, name))


def test_strings_are_no_operators(world):
    x, y = np.zeros(3), np.zeros(3)
    with pytest.raises((TypeError, mpicoll.UnsupportedError), match="op 'sum' is not supported"):
        world.Allreduce(x, y, "sum")


@pytest.mark.case("UDOP-GPU")
@pytest.mark.parametrize("method", ["Allreduce", "Reduce_scatter_block", "Scan"])
def test_an_expression_does_what_the_function_does(world, memory, method):
    """On device arrays it is part of the kernels; the product of (1 + x), less 1, is exact."""
    both = mpicoll.Op(lambda a, b: a + b + a * b, commute=True, cuda="a + b + a * b")
    p, rank = world.size, world.rank
    count = 11 * p if method == "Reduce_scatter_block" else 11
    inputs = [np.arange(count, dtype="f8") % 3 + r % 2 for r in range(p)]
    wanted = np.prod([1 + x for x in (inputs[: rank + 1] if method == "Scan" else inputs)], axis=0) - 1
    if method == "Reduce_scatter_block":
        wanted = wanted[11 * rank : 11 * rank + 11]
    for algorithm in usable(method, p):
        x, y = memory.xp.asarray(inputs[rank]), memory.xp.zeros(11)
        with mpicoll.override(path=memory.path):
            getattr(world, method)(x, y, both, algorithm=algorithm)
        assert (memory.to_host(y) == wanted).all(), algorithm
