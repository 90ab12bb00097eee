"""What communicators and requests tell of themselves."""

import re

import numpy as np
from mpi4py import MPI

import mpicoll


def test_a_communicator_tells_rank_name_and_rules(world):
    place = f"rank {world.rank} of {world.size}"
    assert repr(world) == f"Communicator({place}, MPI_COMM_WORLD)"
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup(), algorithms="allreduce:binomial")
    assert re.fullmatch(rf"Communicator\({place}, handle 0x[0-9a-f]+, algorithms='allreduce:binomial'\)", repr(comm))
    comm.Set_name("rows")
    assert repr(comm) == f"Communicator({place}, rows, algorithms='allreduce:binomial')"
    with mpicoll.group(comm):
        assert repr(comm).startswith(f"Communicator({place}, rows")
    comm.Free()
    assert repr(comm) == "Communicator(null)"


def test_a_class_made_from_it_has_its_own_name(world):
    class Mine(mpicoll.Communicator):
        pass

    assert repr(Mine(world)).startswith(f"Mine(rank {world.rank} of {world.size}, ")


def test_a_request_tells_call_and_state(world):
    x, y = np.ones(1000), np.zeros(1000)
    request = world.Iallreduce(x, y)
    assert repr(request) in ("Request(Iallreduce, in flight)", "Request(Iallreduce, complete)")
    request.Wait()
    assert repr(request) == "Request(Iallreduce, complete)"


def test_a_persistent_request_tells_whether_it_is_active(world):
    x, y = np.ones(1000), np.zeros(1000)
    request = world.Allreduce_init(x, y)
    assert repr(request) == "PersistentRequest(Allreduce_init, not active)"
    request.Start()
    assert repr(request).removeprefix("PersistentRequest(Allreduce_init, ") in ("in flight)", "complete)")
    request.Wait()
    assert repr(request) == "PersistentRequest(Allreduce_init, not active)"
    request.Free()
    assert repr(request) == "PersistentRequest(Allreduce_init, freed)"
