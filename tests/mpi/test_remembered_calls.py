"""Calls that look like an earlier one: each is read anew, unless it means the same."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import bound_plans
from mpicoll.algorithms import registry
from mpicoll.schedule import Recv, Schedule, Send, out, step

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
#: how a call is made
FORMS = ("Allgatherv", "Iallgatherv")


def made(comm, form, *arguments, **named):
    """Make a call to its end."""
    request = getattr(comm, form)(*arguments, **named)
    if request is not None:
        request.Wait()


@pytest.mark.ranks(2)  # a pair of numbers means two things only there
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", ["list", "tuple"])
def test_two_numbers_are_counts_in_a_list_but_count_and_place_in_a_tuple(comm, form, first):
    """[array, [1, 3]] has blocks of 1 and 3 elements, [array, (1, 3)] two of 1 element at 0 and at 3."""
    y, x = np.zeros(8), np.full(3, 5.0 + RANK)
    wanted = {"list": [5, 6, 6, 6, 0, 0, 0, 0], "tuple": [5, 0, 0, 6, 0, 0, 0, 0]}
    for spelling in (first, "tuple" if first == "list" else "list", first):
        y[:] = 0
        counts = [1, 3] if spelling == "list" else (1, 3)
        made(comm, form, x[: 1 + 2 * RANK] if spelling == "list" else x[:1], [y, counts])
        assert y.tolist() == wanted[spelling], spelling


@pytest.mark.parametrize("form", ["Bcast", "Ibcast"])
def test_a_root_is_read_by_its_type(comm, form):
    """0.0 equals 0, but is no rank, also after the same call with 0."""
    x = np.full(3, float(RANK))
    for _ in range(2):
        x[:] = RANK
        made(comm, form, x, 0)
        assert x.tolist() == [0] * 3
        with pytest.raises((TypeError, ValueError)):
            made(comm, form, x, 0.5)


LAYOUTS = [
    np.dtype([("value", "i4"), ("index", "f4")]),
    np.dtype([("value", "f4"), ("index", "i4")]),
]


@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce"])
def test_records_of_equal_size_are_compared_by_their_own_fields(comm, form):
    """The same bytes: as integers the larger one wins, as floating numbers the smaller one."""
    raw = np.zeros(8, "u1")
    result = np.zeros(8, "u1")
    for dtype in LAYOUTS * 2:
        x, y = raw.view(dtype), result.view(dtype)
        x["value"], x["index"] = (RANK - SIZE if dtype is LAYOUTS[0] else -RANK - 1), RANK
        made(comm, form, x, y, MPI.MAXLOC)
        best = SIZE - 1 if dtype is LAYOUTS[0] else 0
        assert y["value"][0] == -1
        assert y["index"][0] == best


@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce"])
def test_another_byte_order_is_another_type(comm, form):
    """What is refused stays refused after the same memory was reduced in this machine's order."""
    raw, y = np.ones(32, "u1"), np.zeros(32, "u1")
    for _ in range(2):
        made(comm, form, raw.view("i4"), y.view("i4"))
        assert (y.view("i4") == SIZE * 0x01010101).all()
        with pytest.raises(TypeError, match="byte order"):
            made(comm, form, raw.view("i4").view(">i4"), y.view(">i4"))


@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce"])
def test_operators_of_one_function_may_differ_in_what_they_promise(comm, form):
    """The same function, once on single elements, once on pairs that are never cut apart."""
    seen = []

    def add(a, b):
        seen.append(len(a) % 2)
        return a + b

    single, pairs = mpicoll.Op(add, commute=True), mpicoll.Op(add, commute=True, width=2)
    x, y = np.ones(2 * (SIZE + 1)), np.zeros(2 * (SIZE + 1))
    for op in (single, pairs, single, pairs):
        seen.clear()
        made(comm, form, x, y, op, algorithm="two_shot/1")
        assert (y == SIZE).all()
        assert op is single or not any(seen)


def always_from(first):
    """Return an algorithm for Bcast; the wrong root's data, so that it can be told which one ran."""

    def schedule(rank, size, root):
        source = (root + first) % size
        if rank != source:
            return Schedule.of([step(Recv(out(0), source))], blocks=1)
        return Schedule.of([step(Send(out(0), q)) for q in range(size) if q != source], blocks=1, window=1)

    return schedule


def register(first):
    mpicoll.algorithm("bcast", name="from_somewhere", verified=False)(always_from(first))


@pytest.fixture
def registered():
    """An algorithm that sends from the root."""
    register(0)
    yield
    if any(card.name == "from_somewhere" for card in registry.known("bcast")):
        registry.unregister("bcast", "from_somewhere")


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("form", ["Bcast", "Ibcast"])
def test_a_replaced_algorithm_runs_no_more(comm, registered, form):
    x = np.zeros(3)
    for first in (0, 1, 0):
        registry.unregister("bcast", "from_somewhere")
        register(first)
        for _ in range(2):
            x[:] = RANK
            made(comm, form, x, 0, algorithm="from_somewhere")
            assert x.tolist() == [first] * 3


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("form", ["Bcast", "Ibcast"])
def test_an_algorithm_that_was_taken_away_is_unknown(comm, registered, form):
    x = np.full(3, float(RANK))
    made(comm, form, x, 0, algorithm="from_somewhere")
    registry.unregister("bcast", "from_somewhere")
    with pytest.raises(ValueError, match="from_somewhere"):
        made(comm, form, x, 0, algorithm="from_somewhere")
    made(comm, form, x, 0)


@pytest.mark.mpi(min_size=2)
def test_rules_of_an_algorithm_that_was_replaced(comm, registered):
    """Named by a setting instead of in the call."""
    x = np.zeros(3)
    with mpicoll.override(algorithms="bcast:from_somewhere"):
        for first in (0, 1):
            registry.unregister("bcast", "from_somewhere")
            register(first)
            x[:] = RANK
            comm.Bcast(x, 0)
            assert x.tolist() == [first] * 3


def test_equal_calls_are_remembered(comm):
    """All this costs an equal call nothing: it is found again, in every form."""
    x, y = np.ones(4 * SIZE), np.zeros(4 * SIZE)
    for _ in range(3):
        comm.Allgatherv(x[:4], [y, [4] * SIZE])
        comm.Iallreduce(x, y).Wait()
        comm.Reduce(x, y, MPI.MAX, SIZE - 1)
    assert len(bound_plans(comm)) == 2
    assert len(comm._get_context().cache.calls) == 3


@pytest.mark.mpi(min_size=2)
def test_an_empty_buffer_says_nothing_of_where_the_other_one_is(comm):
    """Where it does not matter, it may begin where the other does in one call, and elsewhere in the next."""
    kept = []
    for number in range(4):
        x, y, other = np.full(5, number + RANK + 1.0), np.zeros(5), np.zeros(5)
        kept += [x, y, other]
        empty = (other if number % 2 else x)[:0]
        comm.Reduce(x, empty if RANK else y, root=0)
        assert RANK or y.tolist() == [SIZE * number + SIZE * (SIZE + 1) / 2] * 5
        blocks, mine = np.repeat(np.arange(SIZE) + float(number), 3), np.zeros(3)
        kept += [blocks, mine]
        empty = (other if number % 2 else mine)[:0]
        comm.Scatter(empty if RANK else blocks, mine, root=0)
        assert mine.tolist() == [RANK + number] * 3
