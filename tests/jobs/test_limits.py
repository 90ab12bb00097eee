"""Time limits: whatever waits for a rank that does not come raises in time, and names this rank and no other."""

import pytest

from jobs.runner import FRESH

#: seconds, of a call that nothing is expected of
AMPLE = "30"
STALLS = """
    mpicoll.settings.timeout = limit = 0.5  # a process takes longer to start on a busy machine
    host = MPI.Get_processor_name()

    def stalls(name, call, missing):
        error, seconds = raised(call)
        assert isinstance(error, mpicoll.StalledError), (name, error)
        said = str(error).splitlines()[0]
        assert said.endswith(f"; rank {missing} on {host} has not made the call"), (name, error)
        assert 0.9 * limit < seconds < limit + 5, (name, seconds)

    def fresh():
        own = comm.Dup()
        own.Allreduce(x, y)
        world.Barrier()
        return own
"""


def test_the_first_call_of_a_program_has_a_limit(plain):
    """Nobody can be asked yet; that is said, instead of naming ranks that may have come."""
    body = """
        if rank < 2:
            error, seconds = raised(used)
            assert isinstance(error, mpicoll.StalledError), error
            assert "ranks " in str(error) and "cannot be asked before the first call has been made" in str(error), error
            assert seconds < 5, seconds
        world.Barrier()
        last_words()
    """
    ended = plain(body, start=FRESH, MPICOLL_TIMEOUT="0.5")
    assert ended.done == [0, 1, 2], ended.output
    ended.ends_soon()


def test_the_first_call_on_a_new_communicator_has_a_limit(job):
    body = """
        own = comm.Split(0, rank)
        if rank < 2:
            stalls("first", lambda: own.Allreduce(x, y), 2)
        world.Barrier()
        last_words()
    """
    job(STALLS, body, MPICOLL_TIMEOUT=AMPLE).is_clean()


def test_any_number_of_calls_on_their_way_have_a_limit(job):
    """However they are waited for; and a call that has failed never looks complete afterwards."""
    body = """
        from mpicoll.request import Request

        def again_and_again(test):
            end = time.monotonic() + 20
            while not test():
                assert time.monotonic() < end, "nothing was raised"

        ways = {
            "wait for the last": (7, lambda requests: requests[-1].Wait()),
            "test the last": (3, lambda requests: again_and_again(requests[-1].Test)),
            "test all": (3, lambda requests: again_and_again(lambda: Request.Testall(requests))),
            "wait for any": (3, Request.Waitany),
            "wait for all": (3, Request.Waitall),
        }
        for name, (number, wait) in ways.items():
            own = fresh()
            if rank == 0:
                requests = [own.Iallreduce(x, np.zeros(50)) for _ in range(number)]
                stalls(name, lambda: wait(requests), 1)
                for request in requests:
                    for ask in (request.Test, request.Wait):
                        assert isinstance(raised(ask)[0], mpicoll.StalledError), name
                    assert request, name
            world.Barrier()
        used()
        last_words()
    """
    job(STALLS, body, ranks=2, MPICOLL_TIMEOUT=AMPLE).is_clean(2)


def test_only_the_missing_rank_is_named(job):
    """Not those that come late, have done their part, or compute after they have started theirs."""
    body = """
        def late(own):
            time.sleep(0.15 * rank)
            stalls("late", lambda: own.Allreduce(x, y), 3)

        def late_and_asked_before(own):
            with mpicoll.override(errors="agree"):
                time.sleep(0.15 * rank)
                stalls("late and asked before", lambda: own.Allreduce(x, y), 3)

        def done(own):
            if rank:
                own.Reduce(x, None, root=0, algorithm="linear")
            else:
                stalls("done", lambda: own.Reduce(x, y, root=0, algorithm="linear"), 3)

        def computing(own):
            if rank == 1:
                request = own.Iallreduce(x, np.zeros(50))
                time.sleep(3 * limit)
                request.Free()
            else:
                stalls("computing", lambda: own.Allreduce(x, y), 3)

        for call in (late, late_and_asked_before, done, computing):
            own = fresh()
            if rank < 3:
                call(own)
            world.Barrier()
        last_words()
    """
    job(STALLS, body, ranks=4, MPICOLL_TIMEOUT=AMPLE).is_clean(4)


def test_a_slow_operator_is_no_stall(job):
    """Of another rank, or of this one; the rank that computes says so when it is asked."""
    body = """
        def slow(a, b):
            time.sleep(3 * limit)
            return a + b

        op = mpicoll.Op(slow, commute=True)
        comm.Allreduce(x, y, op, algorithm="binomial/1")
        assert (y == total).all()
        comm.Iallreduce(x, y, op, algorithm="binomial/1").Wait()
        assert (y == total).all()
        last_words()
    """
    job(STALLS, body, ranks=2, MPICOLL_TIMEOUT=AMPLE).is_clean(2)


def test_a_rank_in_an_earlier_call_is_not_missing(job):
    """Rank 2 has done its part of a call; of the others, one computes in it, and one waits for that."""
    body = """
        def slow(a, b):
            time.sleep(4 * limit if rank == 1 else 0)
            return a + b

        y[:] = 0
        comm.Reduce(x, y, mpicoll.Op(slow, commute=True), root=0, algorithm="ring/1")
        comm.Barrier()
        assert rank or (y == total).all()
        last_words()
    """
    job(STALLS, body, MPICOLL_TIMEOUT=AMPLE).is_clean()


def test_a_program_that_catches_its_stalled_call_ends(plain):
    """Though a rank never comes to MPI's end: the process says why, and leaves."""
    body = """
        if rank == 1:
            last_words()
            time.sleep(1000)
        error, _ = raised(used)
        assert isinstance(error, mpicoll.StalledError), error
    """
    ended = plain(STALLS, body, ranks=2, MPICOLL_TIMEOUT=AMPLE)
    assert ended.code != 0, ended.output
    assert "mpicoll: this process leaves if MPI does not end within 1 s after: allreduce #2" in ended.output
    ended.ends_soon()


@pytest.mark.case("HANG-WHO")
def test_a_rank_that_skips_a_call_ends_the_job(job):
    """Where nobody catches it, the job ends with the call, its number, and who has not made it."""
    body = """
        if rank == 1:
            last_words()
            time.sleep(1000)
        comm.Bcast(x)
        comm.Barrier()
    """
    ended = job(STALLS, body, MPICOLL_TIMEOUT=AMPLE)
    assert ended.code != 0, ended.output
    assert "StalledError: bcast #2" in ended.output or "StalledError: barrier #3" in ended.output
    assert "; rank 1 on " in ended.output and " has not made the call" in ended.output, ended.output
    ended.ends_soon()


def test_everybody_goes_on_after_a_stalled_call(plain):
    """With another communicator, to MPI's end, at which all ranks are."""
    body = """
        own = fresh()
        if rank != 1:
            stalls("ring", lambda: own.Allreduce(x, y, algorithm="ring"), 1)
        world.Barrier()
        used()
        last_words()
    """
    plain(STALLS, body, MPICOLL_TIMEOUT=AMPLE).is_clean()
