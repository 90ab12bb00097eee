"""MPI's own collectives, chosen by name, by a rule or by the setting: they do what mpicoll's do, or are not taken."""

import itertools
from contextlib import nullcontext

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.calling import check
from mpi.calls_in_flight import InFlight
from mpi.cases import COMMUNICATORS, REDUCING, VECTOR, Case, forms
from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.operators import MPI_OPS, OPERATORS
from mpicoll.runtime.paths.native import ALIKE

pytestmark = [
    pytest.mark.many_ranks,
    pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="calls in flight need MPI.THREAD_MULTIPLE"),
]

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
NATIVE = "native"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_in_every_form(comms, method):
    """Around the blocks, and in the gaps between them, nothing is written."""
    layouts = [("uneven", "permuted"), ("zero", "gaps")] if method in VECTOR else [("", "dense")]
    axes = itertools.product((0, 1, 5, 700), (0, SIZE - 1), forms(method), layouts, COMMUNICATORS)
    for count, root, form, (pattern, layout), name in axes:
        case = Case(method, NATIVE, count, pattern, layout, root=root, form=form)
        for _ in range(2):
            check(comms[name], case)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_only_moved_may_be_anything(world, method):
    if method in REDUCING:
        return
    for dtype in data.HOST_DTYPES:
        check(world, Case(method, NATIVE, 6, dtype=dtype, root=1))


@pytest.mark.parametrize("op", OPERATORS)
def test_reductions_are_mpi_s_where_it_combines_alike(world, op):
    """Elsewhere the name is refused, and a rule is passed over."""
    for dtype in ("int8", "uint16", "int64", "float16", "float32", "complex128", "bool"):
        x = np.ones(6, dtype)
        if np.dtype(dtype).kind in ALIKE.get(op, "") and dtype != "float16":
            check(world, Case("Allreduce", NATIVE, 6, dtype=dtype, op=op))
        elif np.dtype(dtype).kind in OPERATORS[op].kinds:
            with pytest.raises(mpicoll.UnsupportedError, match=r"^allreduce: 'native' would not do the same: "):
                world.Allreduce(x, x.copy(), MPI_OPS[op], algorithm=NATIVE)
            with mpicoll.override(algorithms="allreduce:native"):
                assert world.Get_plan("Allreduce", x, x.copy(), MPI_OPS[op]).algorithm != NATIVE


def test_ranks_may_differ_in_whether_they_are_in_place(world):
    mine = np.arange(3.0 * SIZE) + RANK
    total = SIZE * np.arange(3.0 * SIZE) + SIZE * (SIZE - 1) / 2
    for _ in range(3):
        x, y = mine.copy(), np.zeros(3 * SIZE)
        world.Allreduce(*((MPI.IN_PLACE, x) if RANK % 2 else (x, y)), algorithm=NATIVE)
        assert ((x if RANK % 2 else y) == total).all()
        x, y = mine.copy(), np.zeros(3 * SIZE)
        world.Alltoall(*((MPI.IN_PLACE, x) if RANK % 2 else (x, y)), algorithm=NATIVE)
        found = (x if RANK % 2 else y).reshape(SIZE, 3)
        assert (found == np.arange(3.0) + 3 * RANK + np.arange(SIZE)[:, None]).all()
        x = np.where(np.arange(3 * SIZE) // 3 == RANK, RANK, -1.0)
        own = np.full(3, float(RANK))
        world.Allgather(*((MPI.IN_PLACE, x) if RANK % 2 else (own, x)), algorithm=NATIVE)
        assert (x == np.arange(3 * SIZE) // 3).all()


def test_calls_in_flight_advance_while_mpi_s_own_waits(world):
    """Even ranks wait for the call in flight first, odd ones come to MPI's own."""
    x, y = np.ones(50), np.zeros(50)
    for _ in range(3):
        flight = InFlight(world)
        if RANK % 2 == 0:
            flight.request.Wait()
        world.Allreduce(x, y, algorithm=NATIVE)
        flight.finish()
        assert (y == SIZE).all()


@pytest.mark.parametrize("beside", [False, True])
def test_a_message_that_is_too_long_is_a_mismatch(world, beside):
    """Alone, and with a call in flight, where a thread makes MPI's call."""
    flight = InFlight(world) if beside else None
    if SIZE > 1 and RANK < 2:
        part = MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.group.Incl([0, 1]))
        pair = mpicoll.Communicator(part)
        pair.Barrier()
        said = r"^bcast #2 'native': rank 1, waiting for a message in MPI's own collective, which came longer"
        with pytest.raises(mpicoll.MismatchError, match=said) if RANK else nullcontext():
            pair.Bcast(np.zeros(20 - 15 * RANK), algorithm=NATIVE)
    if flight:
        flight.finish()


def test_all_forms_on_the_same_arrays(world):
    """Only blocking calls are MPI's own: each form takes what is its on all ranks, whichever rank came first."""
    x, y = np.full(40, RANK + 1.0), np.zeros(40)
    total = SIZE * (SIZE + 1) / 2
    with mpicoll.override(native=True):
        request = world.Allreduce_init(x, y)
        for turn in range(6):
            if (turn + RANK) % 2:  # another array on every other rank: one call is known, the other is not
                x, y = x.copy(), np.zeros(40)
            y[:] = 0
            world.Allreduce(x, y)
            assert (y == total).all()
            y[:] = 0
            world.Iallreduce(x, y).Wait()
            assert (y == total).all()
        request.Start()
        request.Wait()
        request.Free()


def test_the_setting_takes_mpi_s_own_where_no_table_has_measured_it(world):
    x, y = np.ones(1000), np.zeros(1000)
    with mpicoll.override(native=True):
        plan = world.Get_plan("Allreduce", x, y)
        assert (plan.algorithm, plan.reason) == (NATIVE, "the setting native")
        assert "native: MPI's own collective; calls that do not block: " in str(plan)
        assert world.Get_plan("Allreduce", x, y, MPI.MAX).algorithm != NATIVE
        with mpicoll.override(reproducible="runs"):
            assert world.Get_plan("Allreduce", x, y).algorithm != NATIVE
    assert world.Get_plan("Allreduce", x, y).algorithm != NATIVE


@pytest.mark.parametrize("setting", [{"timeout": 30}, {"errors": "agree"}])
def test_what_mpi_does_not_know_keeps_calls_from_it(world, setting):
    x, y = np.ones(10), np.zeros(10)
    with mpicoll.override(**setting, native=True):
        assert world.Get_plan("Allreduce", x, y).algorithm != NATIVE
        world.Allreduce(x, y)
        assert (y == SIZE).all()
        with pytest.raises(mpicoll.UnsupportedError, match="no time limit"):
            world.Allreduce(x, y, algorithm=NATIVE)


def test_barriers(world):
    for _ in range(3):
        world.Barrier(algorithm=NATIVE)
    assert world.history(1)[-1].algorithm == NATIVE


def test_strided_arrays_and_groups(world):
    """Packed around the call."""
    x, y = np.ones((20, 2)), np.zeros((20, 2))
    with mpicoll.override(native=True):
        world.Allreduce(x[:, 0], y[:, 1])
        assert (y[:, 1] == SIZE).all()
        with mpicoll.group(world):
            world.Allreduce(x[:, 1].copy(), a := np.zeros(20))
            world.Allreduce(np.ones(7), b := np.zeros(7))
        assert (a == SIZE).all()
        assert (b == SIZE).all()
