"""Same bits: on all ranks always, and more with the setting `reproducible`.

Inputs are random numbers, so that nearly every order of operands gives other bits.
"""

import zlib
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.cases import REDUCING, ROOTED
from mpicoll.algorithms import registry
from mpicoll.dispatch.rules import parse_choice
from mpicoll.runtime.arguments.operators import MPI_OPS

pytestmark = pytest.mark.many_ranks

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
DTYPES = ("float16", *data.BFLOAT16, "float32", "complex64", "float64")
HALVES = ("float16", *data.BFLOAT16)
#: elements of every rank's block whose bits are compared
FEW = 24
TEXT = "does not combine ranks from left to right, as reproducible='ranks' demands"


def random(dtype, count, rank, seed=0):
    """Numbers of many magnitudes; the first ones do not depend on the count."""
    chance = np.random.default_rng([seed, rank])
    numbers = np.concatenate([chance.standard_normal(FEW), chance.standard_normal(max(count - FEW, 0))])[:count]
    numbers = numbers * 2.0 ** (np.arange(count) % 9 - 4)
    return (numbers * (1 - 0.3j) if np.dtype(dtype).kind == "c" else numbers).astype(dtype)


def left_fold(inputs, op=np.add):
    total = inputs[0]
    for other in inputs[1:]:
        total = op(total, other)
    return total


def reduced(comm, method, x, algorithm=None, op=MPI.SUM, root=0):
    """Return what a method makes of x: of one block on every rank, so that all methods compare."""
    scattering = method.startswith("Reduce_scatter")
    sent = np.tile(x, SIZE) if scattering else x
    y = np.zeros_like(x)
    rest = {"Reduce_scatter": ([x.size] * SIZE, op), "Reduce": (op, root)}.get(method, (op,))
    getattr(comm, method)(sent, y, *rest, algorithm=algorithm)
    return y


def has_all(method, root=0):
    """Tell whether this rank's result combines all ranks."""
    return {"Reduce": root == RANK, "Scan": RANK == SIZE - 1, "Exscan": False}.get(method, True)


def usable(method, **needs):
    return [card.name for card in registry.usable(method, SIZE, **needs)]


def same_everywhere(array):
    return len(set(MPI.COMM_WORLD.allgather(zlib.crc32(array.tobytes())))) == 1


@pytest.mark.parametrize("algorithm", next(iter(mpicoll.algorithms("allreduce").values())))
@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
def test_all_ranks_have_the_same_bits(world, dtype, algorithm):
    """Whatever the algorithm, the operator, the count and the segments, in place or not."""
    if algorithm not in usable("Allreduce"):
        return
    for row in data.pairwise({"op": ("SUM", "PROD"), "count": (1, SIZE + 1, 777), "segments": (1, 4)}):
        op, name = MPI_OPS[row["op"]], f"{algorithm}/{row['segments']}"
        x = random(dtype, row["count"], RANK)
        if row["op"] == "PROD":
            x = (1 + x / 32).astype(dtype)  # else it overflows
        y = reduced(world, "Allreduce", x, name, op)
        assert same_everywhere(y), row
        world.Allreduce(MPI.IN_PLACE, x, op, algorithm=name)
        assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("method", REDUCING)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_from_left_to_right(world, method, dtype):
    """reproducible="ranks": the same bits for every algorithm, count, number of segments, and form."""
    found = {}
    with mpicoll.override(reproducible="ranks"):
        for algorithm in (None, *usable(method, left_fold=True)):
            for count in (FEW, 1000, 20_000):
                for segments in (1, 3) if algorithm else (1,):
                    name = f"{algorithm}/{segments}" if algorithm else None
                    y = reduced(world, method, random(dtype, count, RANK), name)
                    found[algorithm, segments, count] = y[:FEW].tobytes()
    assert len(set(found.values())) == 1, {key: zlib.crc32(bits) for key, bits in found.items()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_methods_have_the_same_bits(world, dtype):
    """reproducible="ranks": Reduce to any root, Allreduce, Reduce_scatter and the last rank's Scan agree.

    A Scan needs the result of every rank on the way, so it rounds half precision once for each.
    """
    found = {}
    with mpicoll.override(reproducible="ranks"):
        for method in REDUCING:
            if method == "Scan" and dtype in HALVES:
                continue
            for root in (0, SIZE - 1) if method in ROOTED else (0,):
                y = reduced(world, method, random(dtype, FEW, RANK), root=root)
                if has_all(method, root):
                    found[method, root] = y.tobytes()
    everywhere = {bits for part in MPI.COMM_WORLD.allgather(list(found.values())) for bits in part}
    assert len(everywhere) == 1, {key: zlib.crc32(bits) for key, bits in found.items()}


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in HALVES])
def test_it_is_the_left_fold(world, dtype):
    """reproducible="ranks": the bits of a loop over the ranks."""
    inputs = [random(dtype, FEW, r) for r in range(SIZE)]
    with mpicoll.override(reproducible="ranks"):
        for method in REDUCING:
            combined = {"Scan": inputs[: RANK + 1], "Exscan": inputs[:RANK]}.get(method, inputs)
            for algorithm in usable(method, left_fold=True):
                y = reduced(world, method, inputs[RANK], algorithm)
                if combined and not (method == "Reduce" and RANK):
                    assert y.tobytes() == left_fold(combined).tobytes(), f"{method} {algorithm}"


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_is_near(world, dtype):
    """reproducible="ranks": bits that agree, and within a rounding for each rank of the exact sum."""
    inputs = [abs(random(dtype, FEW, r)) for r in range(SIZE)]
    with mpicoll.override(reproducible="ranks"):
        y = reduced(world, "Allreduce", inputs[RANK])
    exact = np.sum([x.astype("f8") for x in inputs], axis=0)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert (abs(y.astype("f8") - exact) <= SIZE * unit * exact).all()


def test_rank_order_for_other_operators(world):
    """PROD, and an operator of the user's that rounds."""
    mean = mpicoll.Op(lambda a, b: a / 3 + b, commute=True)
    inputs = [1 + random("f4", FEW, r) / 32 for r in range(SIZE)]
    with mpicoll.override(reproducible="ranks"):
        for algorithm in usable("Allreduce", left_fold=True):
            y = reduced(world, "Allreduce", inputs[RANK], algorithm, MPI.PROD)
            assert y.tobytes() == left_fold(inputs, np.multiply).tobytes()
            y = reduced(world, "Allreduce", inputs[RANK], algorithm, mean)
            assert y.tobytes() == left_fold(inputs, lambda a, b: a / 3 + b).tobytes()


@pytest.mark.parametrize("form", ["Iallreduce", "Allreduce_init", "in place", "strided"])
def test_rank_order_in_every_form(world, form):
    inputs = [random("f4", FEW, r) for r in range(SIZE)]
    x, y = inputs[RANK].copy(), np.zeros(FEW, "f4")
    with mpicoll.override(reproducible="ranks"):
        if form == "in place":
            y[:] = x
            world.Allreduce(MPI.IN_PLACE, y)
        elif form == "strided":
            y = np.zeros(2 * FEW, "f4")[::2]
            world.Allreduce(np.repeat(x, 3)[::3], y)
        else:
            request = getattr(world, form)(x, y)
            if form == "Allreduce_init":
                request.Start()
            request.Wait()
    assert y.tobytes() == left_fold(inputs).tobytes()


@pytest.mark.parametrize("method", REDUCING)
def test_algorithms_that_combine_otherwise_are_refused(world, method):
    allowed = usable(method, left_fold=True)
    others = [a for a in usable(method) if a not in allowed]
    x = random("f4", FEW, RANK)
    with mpicoll.override(reproducible="ranks"):
        for name in others:
            text = f"{name!r} {TEXT}; usable: {', '.join(sorted(allowed))}"
            with pytest.raises(mpicoll.UnsupportedError, match=text):
                reduced(world, method, x, name)
        assert allowed
    for name in others:
        reduced(world, method, x, name)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("where", ["setting", "communicator"])
def test_rules_are_refused_alike(where):
    rules = "allreduce:ring"
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup(), algorithms=rules if where == "communicator" else None)
    settings = {"algorithms": rules} if where == "setting" else {}
    with mpicoll.override(reproducible="ranks", **settings), pytest.raises(mpicoll.UnsupportedError, match=TEXT):
        comm.Allreduce(np.ones(3), np.zeros(3))
    comm.Free()


@pytest.mark.parametrize("level", ["runs", "ranks"])
@pytest.mark.parametrize("method", REDUCING)
def test_the_choice_does_not_depend_on_the_size(world, method, level, tmp_path_factory):
    """Nor on what a tuner has measured, nor on the wanted size of segments."""
    table = MPI.COMM_WORLD.bcast(str(tmp_path_factory.mktemp("table") / "table.rules") if RANK == 0 else None)
    if RANK == 0:
        names = usable(method)
        collective = registry.collective(method).name
        rules = f"{collective}:0-64:{names[0]}/4\n{collective}:64-inf:{names[-1]}/3\n"
        Path(table).write_text(rules, encoding="utf-8")
    MPI.COMM_WORLD.Barrier()
    choices = set()
    for more in ({}, {"tuning": table}, {"segment_bytes": 64}):
        with mpicoll.override(reproducible=level, **more):
            for count in (1, 100, 10_000, 1_000_000):
                x, y = np.zeros(count * SIZE, "f4"), np.zeros(count if "scatter" in method else count * SIZE, "f4")
                rest = ([count] * SIZE,) if method == "Reduce_scatter" else ()
                plan = world.Get_plan(method, x, y, *rest)
                choices.add((plan.algorithm, plan.segments))
                assert f"reproducible={level!r}" in str(plan)
    assert len(choices) == 1, choices
    assert next(iter(choices))[1] == 1


def test_runs_may_be_forced(world):
    """reproducible="runs" pins what nobody asked for; what the call asks for is taken."""
    x, y = np.ones(3), np.zeros(3)
    with mpicoll.override(reproducible="runs"):
        for name in usable("Allreduce"):
            world.Allreduce(x, y, algorithm=f"{name}/2")
            assert (y == SIZE).all()
            choice = parse_choice(f"{name}/2")
            assert (choice.algorithm, choice.segments) == (name, 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_runs_have_the_same_bits_at_any_size(world, dtype):
    """reproducible="runs": an equal call has equal bits, on another communicator of that size too."""
    again = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    with mpicoll.override(reproducible="runs"):
        for count in (FEW, 5000):
            x = random(dtype, count, RANK)
            assert reduced(world, "Allreduce", x).tobytes() == reduced(again, "Allreduce", x.copy()).tobytes()
    again.Free()


def test_what_is_only_moved_is_not_restricted(world):
    """Gathering has no order of operands: the choice is free."""
    x, y = np.zeros(10_000), np.zeros(10_000 * SIZE)
    free = world.Get_plan("Allgather", x, y)
    with mpicoll.override(reproducible="ranks"):
        assert world.Get_plan("Allgather", x, y).algorithm == free.algorithm
