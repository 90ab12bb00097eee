"""Calls from several threads."""

import threading

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
needs_threads = pytest.mark.skipif(MPI.Query_thread() < MPI.THREAD_MULTIPLE, reason="MPI is not thread-safe")


def in_threads(*functions):
    """Run functions at the same time; what one raises is raised."""
    raised = []

    def run(function):
        try:
            function()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@pytest.mark.case("THREADS")
@needs_threads
def test_threads_with_communicators_of_their_own(world):
    """Two threads, each with a communicator, at the same time."""
    comms = [mpicoll.Communicator(MPI.COMM_WORLD.Dup()) for _ in range(2)]

    def work(comm, factor):
        y = np.zeros(50)
        for turn in range(40):
            comm.Allreduce(np.full(50, float(turn * factor)), y)
            assert (y == turn * factor * SIZE).all()
            comm.Iallreduce(np.full(50, float(turn)), y).Wait()
            assert (y == turn * SIZE).all()

    in_threads(*(lambda c=comm, f=factor: work(c, f) for factor, comm in enumerate(comms, 1)))
    for comm in comms:
        comm.Free()


@pytest.mark.case("COMM-LAZYDUP")
@needs_threads
def test_the_first_call_from_a_thread(comm):
    """The private duplicate is made by a worker thread while the main thread is in MPI."""
    y, met = np.zeros(3), threading.Event()

    def work():
        comm.Allreduce(np.ones(3), y)
        met.set()

    thread = threading.Thread(target=work)
    thread.start()
    requests = [MPI.COMM_WORLD.Irecv(np.zeros(1), (RANK - 1) % SIZE, 99)]
    requests.append(MPI.COMM_WORLD.Isend(np.ones(1), (RANK + 1) % SIZE, 99))
    MPI.Request.Waitall(requests)
    MPI.COMM_WORLD.Barrier()
    thread.join(60)
    assert met.is_set()
    assert y.tolist() == [SIZE] * 3
