"""Ranks that die, leave, or raise alone: the others are told, and the job ends."""

import pytest

from jobs.runner import is_mpich


@pytest.mark.case("HANG-WHO")
def test_a_killed_rank_ends_the_job(job):
    """The launcher ends the others."""
    body = """
        last_words()
        if rank == 0:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        used()
        last_words("too far")
    """
    ended = job(body, MPICOLL_TIMEOUT="5")
    assert ended.code != 0, ended.output
    assert "too far" not in ended.output
    ended.ends_soon()


@pytest.mark.case("HANG-WHO")
def test_a_killed_rank_is_named_where_the_launcher_lets_the_others_live(plain):
    """It does not answer; the message comes first, and then the process leaves."""
    if is_mpich():
        pytest.skip("MPICH's launcher ends all ranks of a host; test_lost_hosts.py has another host")
    body = """
        mpicoll.settings.timeout = 0.5
        last_words()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        error, _ = raised(used)
        print(f"rank {rank}: {error!r}", flush=True)
    """
    ended = plain(body, options=["--continuous"], ranks=2, MPICOLL_TIMEOUT="30")  # which is status 0 in any case
    assert "rank 0: StalledError" in ended.output
    assert "; no answer from rank 1 on " in ended.output
    ended.ends_soon()


def test_a_rank_that_is_at_its_end_is_not_missing(plain):
    """Whoever waited for it in vain ends with it, at once: it has told them, and MPI's end keeps it from answering."""
    body = """
        if rank != 1:
            mpicoll.settings.timeout = 0.5
            error, _ = raised(used)
            assert isinstance(error, mpicoll.StalledError), error
            assert "1 on " in str(error), error
            mpicoll.settings.timeout = 100  # after which the job would be aborted
        last_words()
    """
    plain(body, MPICOLL_TIMEOUT="30").is_clean()


@pytest.mark.case("HANG-EXC")
def test_a_rank_that_aborts_ends_the_job(job):
    """The others do not wait for their limit."""
    body = """
        last_words()
        if rank == 1:
            time.sleep(0.1)
            world.Abort(3)
        used()
    """
    ended = job(body, MPICOLL_TIMEOUT="60")
    assert ended.code != 0, ended.output
    ended.ends_soon()


@pytest.mark.case("HANG-EXC")
def test_an_exception_on_one_rank_ends_the_job(job):
    """With `-m mpi4py` the others are not left waiting, and the traceback is seen."""
    ended = job("comm.Allreduce(x, np.zeros(3) if rank == 1 else y)")
    assert ended.code != 0, ended.output
    assert "ValueError: allreduce: recvbuf has 3 elements, sendbuf has 50" in ended.output


@pytest.mark.case("HANG-EXC")
def test_errors_are_shared(job):
    """With errors=agree every rank raises what one has met, wherever that was, and a program can go on."""
    body = """
        calls = {
            "in reading": lambda: comm.Allreduce(x, np.zeros(3) if rank == 1 else y),
            "in counting": lambda: comm.Reduce_scatter(MPI.IN_PLACE if rank == 1 else np.ones(size), y[:1]),
            "in a function": lambda: mpicoll.allreduce("text" if rank == 1 else x),
        }
        for name, call in calls.items():
            error, _ = raised(call)
            assert type(error) in ((ValueError, TypeError) if rank == 1 else (mpicoll.MismatchError,)), (name, error)
            texts = world.allgather(str(error))
            assert texts[1] in texts[0] and texts[0] == texts[2], (name, texts)
            used()
        last_words()
    """
    job(body, MPICOLL_ERRORS="agree", MPICOLL_TIMEOUT="10").is_clean()
