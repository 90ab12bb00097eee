"""A signal's handler that raises, such as Ctrl-C, while a rank waits: raised at once, and nothing is lost."""

import pytest

#: rank 1 comes after the interrupt
WAITS = """
    class Interrupt(BaseException):
        pass

    def interrupt(*_):
        raise Interrupt

    def interrupted(call, after=0.2):
        try:
            signal.setitimer(signal.ITIMER_REAL, after)
            call()
        except Interrupt:
            return
        raise AssertionError("not interrupted")

    signal.signal(signal.SIGALRM, interrupt)
    late = lambda: time.sleep(0.6 if rank else 0)
    x += 1
    total += size
"""


def test_a_wait_that_is_interrupted_can_be_made_again(job):
    """The call is still active, is no complete one, and its result comes with the next wait."""
    body = """
        from mpicoll.request import Request

        def waits(name, requests, wait):
            for out in outs:
                out[:] = -1
            late()
            requests = requests()
            if rank == 0:
                interrupted(lambda: wait(requests))
                assert requests[0], name
                assert (outs[0] == -1).all(), name
            wait(requests)
            assert all((out == total).all() for out in outs), (name, outs)

        def started():
            for request in kept:
                request.Start()
            return kept

        outs = [np.zeros(50) for _ in range(2)]
        kept = [comm.Allreduce_init(x, out) for out in outs]
        waits("one", lambda: [comm.Iallreduce(x, out) for out in outs], lambda some: [q.Wait() for q in some])
        waits("all", lambda: [comm.Iallreduce(x, out) for out in outs], Request.Waitall)
        for _ in range(2):
            waits("persistent", started, Request.Waitall)
        used()
        last_words()
    """
    job(WAITS, body, ranks=2).is_clean(2)


@pytest.mark.parametrize("limit", ["", "30"])
def test_a_blocking_call_that_is_interrupted_spoils_no_other(job, limit):
    """The interrupt itself is raised, not an error about it; the next call is right."""
    body = """
        late()
        if rank == 0:
            interrupted(lambda: comm.Allreduce(x, y, algorithm="one_shot/1"))
        else:
            comm.Allreduce(x, y, algorithm="one_shot/1")
        z = np.zeros(50)
        comm.Allreduce(x, z)
        assert (z == total).all(), z
        last_words()
    """
    job(WAITS, body, ranks=2, **({"MPICOLL_TIMEOUT": limit} if limit else {})).is_clean(2)


def test_an_interrupt_in_another_calls_operator_is_raised_here(job):
    """By the call that waits; the one in whose operator it came says so, and is not taken for complete."""
    body = """
        def slow(a, b):
            if rank == 0:
                os.kill(os.getpid(), signal.SIGALRM)
                time.sleep(0.05)
            return a + b

        own = comm.Dup()
        own.Allreduce(x, y)
        late()
        request = comm.Iallreduce(x, np.zeros(50), mpicoll.Op(slow, commute=True), algorithm="one_shot/1")
        if rank == 0:
            interrupted(lambda: own.Allreduce(x, np.zeros(50)), after=0)
            for ask in (request.Test, request.Wait):
                error, _ = raised(ask)
                assert isinstance(error, RuntimeError) and "Interrupt() came in the middle" in str(error), error
        else:
            request.Wait()
            own.Allreduce(x, y)
        world.Barrier()
        own.Allreduce(x, y)
        assert (y == total).all(), y
        last_words()
    """
    job(WAITS, body, ranks=2).is_clean(2)
