"""Objects among all ranks, and refusals: what carries every rank's word to all others."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.progress.exchange import HEADER, SHORT, exchanged, met
from mpicoll.runtime.progress.refusals import Refusals

pytestmark = pytest.mark.many_ranks

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
everybody = MPI.COMM_WORLD
#: bytes that pickling adds to a short text
PICKLED = 20
several = pytest.mark.mpi(min_size=2)


@pytest.fixture(scope="module")
def comm():
    made = everybody.Dup()
    yield made
    made.Free()


def driven(routine):
    """Drive a routine to its end; return its result, and how many conditions it waited for."""
    waited = 0
    try:
        while True:
            condition = next(routine)
            waited += 1
            while not condition():
                pass
            assert condition(), "a condition may be asked again after it said yes"
    except StopIteration as end:
        return end.value, waited


OBJECTS = [None, 0, "text", {"a": [1, 2]}, np.arange(5), mpicoll.MismatchError("no")]


@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_short_objects_need_one_round(comm, number):
    found, rounds = driven(exchanged(comm, (RANK, OBJECTS[number])))
    assert [rank for rank, _ in found] == list(range(SIZE))
    assert all(repr(thing) == repr(OBJECTS[number]) for _, thing in found)
    assert rounds == 1


@pytest.mark.parametrize("long", ["all", "the first", "the last", "all but one", "none"])
def test_long_objects_come_whole(comm, long):
    """Whoever has a long one: all ranks take part in a second round, and nothing is cut."""
    which = {"all": range(SIZE), "the first": [0], "the last": [SIZE - 1], "all but one": range(1, SIZE), "none": []}
    texts = [f"{rank}" * (50_000 + rank if rank in which[long] else 3) for rank in range(SIZE)]
    found, rounds = driven(exchanged(comm, texts[RANK]))
    assert found == texts
    assert rounds == 1 + bool(which[long])


@pytest.mark.parametrize("excess", range(-PICKLED, 3))
def test_objects_at_the_limit_of_short(comm, excess):
    """One byte less, the same, one more: as bytes, so that their pickled length is known."""
    mine = bytes([RANK % 256]) * (SHORT - 2 * PICKLED + excess + PICKLED)
    found, _ = driven(exchanged(comm, mine))
    assert found == [bytes([rank % 256]) * len(mine) for rank in range(SIZE)]
    assert HEADER == 8


@several
def test_a_short_word_may_be_enough(comm):
    """Then the long ones are not sent; they are None."""
    mine = "stop" if RANK == 1 else "x" * 5000
    found, rounds = driven(exchanged(comm, mine, enough=lambda word: word == "stop"))
    assert found == [("stop" if rank == 1 else None) for rank in range(SIZE)]
    assert rounds == 1
    found, rounds = driven(exchanged(comm, mine, enough=lambda word: word == "go"))
    assert [len(word) for word in found] == [4 if rank == 1 else 5000 for rank in range(SIZE)]
    assert rounds == 2


@several
def test_exchanges_follow_each_other_on_one_communicator(comm):
    """Each is started before the one before has ended, on some ranks; the order tells them apart."""
    for turn in range(5):
        found, _ = driven(exchanged(comm, (turn, "x" * (3000 * (turn % 2)), RANK)))
        assert [(t, rank) for t, _, rank in found] == [(turn, rank) for rank in range(SIZE)]


@several
def test_meeting_waits_for_the_last_one(comm):
    """It is driven by whoever waits: here, rank 0 comes when it is told that nobody has got through."""
    if RANK == 0:
        for other in range(1, SIZE):
            assert everybody.recv(source=other, tag=3) is False
        assert driven(met(comm))[1] == 1
    else:
        routine = met(comm)
        condition = next(routine)
        everybody.send(condition(), 0, 3)
        while not condition():
            pass
        with pytest.raises(StopIteration):
            next(routine)


@pytest.fixture
def refusals():
    """Refusals on a communicator of their own; nothing of them is left."""
    made = everybody.Dup()
    yield Refusals(made, 77)
    everybody.Barrier()
    made.Free()


def heard(refusals, number):
    """Return the text of a refusal of a call, once there is one."""
    for _ in range(1_000_000):
        error = refusals.look(number, f"call #{number}")
        if error is not None:
            return str(error)
    return ""


@several
def test_a_refusal_reaches_all_others(refusals):
    if RANK == 1:
        refusals.post(4, ValueError("no"), final=False)
        assert refusals.look(4, "call #4") is None, "not the one who posted it"
    else:
        assert heard(refusals, 4) == "call #4: rank 1 raised ValueError('no') in call #4"
    everybody.Barrier()


@several
def test_a_refusal_is_of_one_call_unless_it_is_final(refusals):
    """Calls before it are not refused; the next one neither, unless messages were lost."""
    if RANK == 1:
        refusals.post(4, ValueError("no"), final=False)
    everybody.Barrier()
    if RANK != 1:
        assert refusals.look(3, "call #3") is None
        assert heard(refusals, 4)
        assert refusals.look(5, "call #5") is None
        assert refusals.look(4, "call #4") is None, "it is forgotten once a later call asks"
    everybody.Barrier()
    if RANK == 1:
        refusals.post(6, KeyError("lost"), final=True)
    everybody.Barrier()
    if RANK != 1:
        assert refusals.look(5, "call #5") is None
        for number in (6, 7, 900):
            assert heard(refusals, number) == f"call #{number}: rank 1 raised KeyError('lost') in call #6"


@several
def test_a_refusal_waits_for_a_call_that_is_made_later(refusals):
    """It may come while an earlier call waits, which hears it and goes on."""
    if RANK == 1:
        refusals.post(9, ValueError("later"), final=False)
    everybody.Barrier()
    if RANK != 1:
        for number in range(2, 9):
            assert refusals.look(number, f"call #{number}") is None
        assert "later" in heard(refusals, 9)


@pytest.mark.mpi(min_size=3)
def test_refusals_of_several_ranks(refusals):
    """The first one that is heard is told; a rank hears of the others, not of itself."""
    if RANK in (0, 1):
        refusals.post(2, ValueError(f"of rank {RANK}"), final=False)
    everybody.Barrier()
    others = [rank for rank in (0, 1) if rank != RANK]
    text = heard(refusals, 2)
    assert text in [f"call #2: rank {r} raised ValueError('of rank {r}') in call #2" for r in others]
    everybody.Barrier()


@several
def test_posting_waits_for_nobody(refusals):
    """However long the text is, and though nobody looks."""
    if RANK == 1:
        for number in range(5):
            refusals.post(number, ValueError("x" * 100), final=False)
        assert len(refusals.posted) == 5 * (SIZE - 1)
    everybody.Barrier()
    if RANK != 1:
        assert heard(refusals, 4).endswith("in call #4")
        assert [r.number for r in refusals.heard] == [4]
