"""Ranks introduce themselves in records of 64 bytes; who differs says more, and all ranks know the same then."""

from dataclasses import replace

import pytest
from mpi4py import MPI

from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.runtime.context.first_call import RankFacts
from mpicoll.runtime.context.introductions import LENGTH, introduced
from mpicoll.runtime.mpi.cuda_aware import Awareness
from mpicoll.runtime.mpi.roll_call import Address

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size


class Counted:
    """A communicator that counts the bytes that it receives in each exchange."""

    def __init__(self):
        self.rank, self.size, self.bytes = RANK, SIZE, []

    def Iallgather(self, sent, received):
        self.bytes.append(received.nbytes)
        return WORLD.Iallgather(sent, received)

    def Iallgatherv(self, sent, received):
        self.bytes.append(received[0].nbytes)
        return WORLD.Iallgatherv(sent, received)


def facts(**changed):
    own = RankFacts(
        {"path": None, "timeout": 0.0},
        Awareness(False, "no NVIDIA driver on this machine"),
        "node",
        "node 1",
        f"{RANK:016x}",
        None,
        MachineFacts("MPICH", "EPYC", "2", "1", "none"),
        (),
    )
    return replace(own, **changed)


def told(own):
    """Return (the facts of all ranks, bytes of each exchange)."""
    comm = Counted()
    routine = introduced(comm, own)
    while True:
        try:
            condition = next(routine)
        except StopIteration as end:
            return end.value, comm.bytes
        while not condition():
            pass


def test_ranks_that_are_alike_receive_64_bytes_of_each():
    found, received = told(facts())
    assert received == [LENGTH * SIZE] == [64 * SIZE]
    assert [one.id for one in found] == [f"{r:016x}" for r in range(SIZE)]
    assert len({one.host for one in found}) == len({one.place for one in found}) == 1
    assert all(one.settings == facts().settings and one.machine == facts().machine for one in found)
    assert all(one.address is None for one in found)


def test_hosts_are_told_apart_without_their_names():
    found, received = told(facts(host=f"node{RANK % 2}", place=f"node{RANK % 2} boot"))
    assert received == [64 * SIZE]
    assert [one.place for one in found] == [found[r % 2].place for r in range(SIZE)]
    assert len({one.place for one in found}) == len({one.host for one in found}) == min(SIZE, 2)


def test_where_there_are_time_limits_hosts_have_names_which_one_rank_of_each_says():
    host = f"node{RANK % 2}"
    address = Address(host, f"10.0.0.{RANK + 1}", 4000 + RANK, f"{RANK + 7:016x}")
    limited = {"path": None, "timeout": 1.0}
    found, received = told(facts(host=host, address=address, settings=limited))
    assert [one.address.host for one in found] == [f"node{r % 2}" for r in range(SIZE)]
    assert [one.address.ip for one in found] == [f"10.0.0.{r + 1}" for r in range(SIZE)]
    assert [one.address.port for one in found] == [4000 + r for r in range(SIZE)]
    assert [one.address.token for one in found] == [f"{r + 7:016x}" for r in range(SIZE)]
    assert received == [64 * SIZE, 5 * min(SIZE, 2)]


@pytest.mark.skipif(SIZE < 2, reason="one rank differs from none")
def test_settings_that_differ_are_known_to_all():
    last = RANK == SIZE - 1
    found, received = told(facts(settings={"path": "direct" if last else None, "timeout": 0.0}))
    assert [one.settings["path"] for one in found] == [None] * (SIZE - 1) + ["direct"]
    assert len(received) == 2


def test_rank_0s_tables_are_known_to_all():
    table = ("mine", "allreduce:ring")
    found, _ = told(facts(tables=(table,) if RANK == 0 else ()))
    assert found[0].tables == (table,)
    assert len({one.id for one in found}) == SIZE


def test_what_an_mpi_takes_is_each_ranks_own_word():
    aware = Awareness(RANK % 2 == 0, f"reason {RANK % 2}")
    found, _ = told(facts(awareness=aware))
    assert [one.awareness.reason for one in found] == [f"reason {r % 2}" for r in range(SIZE)]
