"""What importing, wrapping and the report do, and a crowded machine."""

import os

import pytest

from jobs.runner import FRESH


@pytest.mark.case("OVERSUB")
def test_more_ranks_than_cores(job):
    """Many small calls of more ranks than there are cores end in time."""
    body = """
        y = np.zeros(8)
        for turn in range(250):
            comm.Allreduce(np.full(8, float(turn)), y)
            comm.Barrier()
            assert y[0] == turn * size
        last_words()
    """
    ranks = min(2 * len(os.sched_getaffinity(0)) + 2, 10)
    job(body, ranks=ranks).is_clean(ranks)


@pytest.mark.case("COMM-LAZYDUP")
def test_importing_on_some_ranks_only(job):
    """Importing and wrapping makes no collective call."""
    body = """
        from mpi4py import MPI
        if MPI.COMM_WORLD.rank == 1:
            import mpicoll
            mpicoll.Communicator(MPI.COMM_WORLD)
        assert MPI.COMM_WORLD.allreduce(1) == 3
    """
    done = job(body, start="")
    assert done.code == 0, done.output


@pytest.mark.case("GTL-CRAY")
@pytest.mark.parametrize("variable", ["MPICH_GPU_SUPPORT_ENABLED", "MPICOLL_DEBUG"])
def test_importing_starts_nothing(plain, variable):
    """An MPI that would abort in its start is not started by importing the library."""
    body = """
        import sys
        import mpicoll
        mpicoll.plan("allreduce", size=4, nbytes=100)
        mpicoll.verify
        started = {"mpi4py.MPI", "cupy"} & set(sys.modules)
        assert not started, started
    """
    done = plain(body, ranks=0, start="", **{variable: "1"})
    assert done.code == 0, done.output


@pytest.mark.case("ABI-MIX")
def test_the_report_under_mpirun(job):
    """Library, launcher and number of ranks are in the report, and agree here."""
    body = """
        from mpicoll import info
        text = "\\n".join(" ".join(row) for row in info.rows())
        assert "WARNING" not in text, text
        assert "MPI library" in text and f"{size}" in text
        last_words()
    """
    job(body, start=FRESH).is_clean()
