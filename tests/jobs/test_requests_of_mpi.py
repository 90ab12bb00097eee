"""Requests as MPI's own, at other levels of threads, with time limits, and at the end of a program."""

import pytest

from jobs.runner import FRESH

#: how a program begins that asks MPI for fewer threads
FUNNELED = "import mpi4py\nmpi4py.rc.thread_level = 'funneled'\n" + FRESH


def test_without_threads_a_request_is_none_of_mpis(job):
    """MPI's own Waitall would wait for ever, or take it for complete: it is refused, and ours takes it."""
    body = """
        assert MPI.Query_thread() < MPI.THREAD_MULTIPLE
        for request in (comm.Iallreduce(x, y), comm.Allreduce_init(x, y)):
            assert not isinstance(request, MPI.Request)
            for ask in (MPI.Request.Waitall, MPI.Request.Testall, MPI.Request.Waitany):
                error, _ = raised(lambda: ask([request]))
                assert isinstance(error, TypeError), error
            if request:
                status = MPI.Status()
                mpicoll.request.Request.Waitall([request, world.Ibarrier()], [status])
                assert status.Get_source() == MPI.ANY_SOURCE
        assert (y == total).all()
        assert not any("attendant" in thread.name for thread in threading.enumerate())
        last_words()
    """
    job(body, start=FUNNELED, ranks=2).is_clean(2)


def test_a_setting_makes_it_none_of_mpis(job):
    body = """
        for request in (comm.Iallreduce(x, y), comm.Allreduce_init(x, y)):
            assert not isinstance(request, MPI.Request)
            request.Wait()
        assert not any("attendant" in thread.name for thread in threading.enumerate())
        last_words()
    """
    job(body, ranks=2, MPICOLL_MPI_REQUESTS="no").is_clean(2)


def test_the_attendant_keeps_no_time_limit(job):
    """Nobody waits while a rank computes, whoever advances its calls meanwhile."""
    body = """
        for _ in range(2):
            if rank:
                time.sleep(2.5)
            request = comm.Iallreduce(x, y)
            if not rank:
                time.sleep(2.6)
            request.Wait()
            assert (y == total).all()
        last_words()
    """
    job(body, ranks=2, MPICOLL_TIMEOUT="1").is_clean(2)


def test_a_thread_of_the_users_keeps_it(job):
    """With `progress="thread"` a call that stalls ends MPI's own Waitall, too."""
    body = """
        if not rank:
            request = comm.Iallreduce(x, y)
            error, _ = raised(lambda: MPI.Request.Waitall([request]))
            assert isinstance(error, MPI.Exception), error
            error, _ = raised(request.Wait)
            assert isinstance(error, mpicoll.StalledError), error
        world.Barrier()
        last_words()
    """
    ended = job(body, ranks=2, MPICOLL_TIMEOUT="1", MPICOLL_PROGRESS="thread")
    assert ended.done == [0, 1], ended.output
    assert "StalledError" in ended.output


@pytest.mark.parametrize("end", ["", "MPI.Finalize()"])
def test_a_program_that_ends_while_the_attendant_is_at_work(job, end):
    body = f"""
        for count in (1, 100_000):
            x, y = np.ones(count), np.zeros(count)
            for _ in range(20):
                requests = [comm.Iallreduce(x, y, algorithm="ring"), comm.Ibarrier()]
                MPI.Request.Waitall(requests)
                assert (y == size).all()
        requests = [comm.Ibarrier() for _ in range(3)]
        world.Barrier()
        for request in requests:
            request.Free()
        last_words()
        {end}
    """
    job(body).is_clean()
