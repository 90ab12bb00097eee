"""A call that one rank alone refuses or fails in, with no setting: nobody waits for ever, and nobody waits in vain."""

import pytest

REFUSED = """
    def readonly(n):
        found = np.zeros(n)
        found.flags.writeable = False
        return found

    ODD = {
        "objects": lambda n: np.array([object()] * n),
        "read-only": readonly,
        "too small": lambda n: np.zeros(n - 1),
    }

    def blocking(x, y):
        comm.Allreduce(x, y)

    def nonblocking(x, y):
        comm.Iallreduce(x, y).Wait()

    def persistent(x, y):
        request = comm.Allreduce_init(x, y)
        request.Start()
        request.Wait()
        request.Free()

    def listens():
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            last_words("no threads")
            last_words()
            sys.exit()

    def check_refused(call, odd):
        error, _ = raised(lambda: call(x, odd))
        assert isinstance(error, (TypeError, ValueError)), error

    def check_in_vain(call, text="rank 1 raised"):
        error, seconds = raised(lambda: call(x, y))
        assert isinstance(error, mpicoll.MismatchError) and text in str(error), error
        assert "Error('allreduce: recvbuf" in str(error), error
        assert seconds < 10, seconds
        error, _ = raised(lambda: call(x, y))
        assert isinstance(error, mpicoll.StalledError) and "cannot be used after: rank" in str(error), error

    def check_served(call):
        y[:] = 0
        call(x, y)
        assert (y == total).all(), y

    def arrays(n):
        return np.full(n, rank, "f8"), np.zeros(n)

    listens()
"""

FORMS = pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
ranks_of = pytest.mark.parametrize("ranks", [2, 3])


def ended(job, ranks):
    """All ranks have said their last words, and the job ended soon; MPI may not have, for messages are left."""
    assert job.done == list(range(ranks)), job.output
    assert "Traceback" not in job.output, job.output
    job.ends_soon()


@pytest.mark.case("HANG-EXC")
@ranks_of
@FORMS
def test_a_rank_may_repeat_a_call_that_it_has_refused(job, form, ranks):
    """Whatever it refuses, at calls of 8 bytes and of 800 kB, the first ones and those that are remembered."""
    body = f"""
        for n in (2, 100_000):
            x, y = arrays(n)
            for name, odd in ODD.items():
                if rank == 1:
                    check_refused({form}, odd(n))
                for _ in range(4):
                    check_served({form})
        last_words()
    """
    job(REFUSED, body, ranks=ranks).is_clean(ranks)


@pytest.mark.case("HANG-EXC")
def test_a_rank_may_refuse_a_call_that_the_others_do_not_make(job):
    """They make other ones, and it is late for those: they wait for it, and are not told that it is in vain."""
    body = """
        for turn in range(3):
            if rank == 1:
                check_refused(blocking, np.zeros(4))
                time.sleep(1)
            comm.Barrier()
            comm.Bcast(x, root=1)
            assert (x == 1).all()
            x[:] = rank
            check_served(blocking)
            comm.Ibarrier().Wait()
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
def test_what_cannot_be_planned_on_one_rank_is_not_made_either(job, form):
    """Ranks number their calls alike afterwards."""
    body = f"""
        methods = {{"blocking": comm.Allreduce, "nonblocking": comm.Iallreduce, "persistent": comm.Allreduce_init}}
        for turn in range(3):
            if rank == 1:
                error, _ = raised(lambda: methods[{form!r}](x, y, algorithm="ring@mapped"))
                assert isinstance(error, mpicoll.UnsupportedError), error
            check_served({form})
            comm.Barrier()
        assert len(set(world.allgather(comm.history(1)[-1].sequence))) == 1
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
@pytest.mark.parametrize("caller", [0, 2])
@pytest.mark.parametrize("form", ["blocking", "nonblocking"])
def test_a_rank_that_makes_another_call_is_known_before_the_first_message(plain, form, caller):
    """Else the messages of two different calls would be taken for each other's.

    One other rank calls: the first that raises breaks the communicator, which the second may hear of before it calls.
    """
    body = f"""
        x, y = arrays(2)
        for _ in range(5):
            check_served({form})
        if rank == 1:
            check_refused({form}, ODD["too small"](2))
            error, _ = raised(comm.Barrier)
            assert isinstance(error, mpicoll.MismatchError), error
        elif rank == {caller}:
            time.sleep(1)
            error, _ = raised(lambda: {form}(x, y))
            assert isinstance(error, mpicoll.MismatchError), error
            assert str(error).startswith("allreduce #7: rank 1 raised ValueError("), error
            assert str(error).endswith("in call #7, and makes barrier instead"), error
        world.Barrier()
        last_words()
    """
    ended(plain(REFUSED, body), 3)


@pytest.mark.case("HANG-EXC")
def test_what_all_ranks_refuse_is_forgotten(job):
    body = """
        for turn in range(20):
            check_refused(blocking, y[:4])
            if rank == turn % size:
                time.sleep(0.05)
            check_served(blocking)
        own = comm.Dup()
        check_refused(own.Allreduce, y[:4])
        own.Free()
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
@ranks_of
@FORMS
@pytest.mark.parametrize("n", [2, 3000])
def test_the_others_raise_once_it_makes_another_call(plain, n, form, ranks):
    """And so does it, in that call."""
    body = f"""
        x, y = arrays({n})
        check_served({form})
        if rank == 1:
            check_refused({form}, ODD["too small"]({n}))
            time.sleep(0.3)
            error, seconds = raised(comm.Barrier)
            assert isinstance(error, (mpicoll.MismatchError, mpicoll.StalledError)), error
            assert "rank 1 raised ValueError" in str(error), error
            assert seconds < 10, seconds
        else:
            check_in_vain({form}, text="and makes barrier instead")
        last_words()
    """
    ended(plain(REFUSED, body, ranks=ranks), ranks)


@pytest.mark.case("HANG-EXC")
@ranks_of
@pytest.mark.parametrize("form", ["blocking", "nonblocking"])
def test_the_others_raise_once_its_program_is_at_its_end(plain, form, ranks):
    body = f"""
        x, y = arrays(2)
        check_served({form})
        if rank == 1:
            check_refused({form}, np.zeros(1))
        else:
            check_in_vain({form})
        last_words()
    """
    ended(plain(REFUSED, body, ranks=ranks), ranks)


@pytest.mark.case("HANG-EXC")
def test_the_others_raise_once_it_was_silent_for_long(plain):
    """Its next call is on another communicator, where nobody comes."""
    body = """
        from mpicoll.runtime.progress import notices

        notices.PATIENCE = 1.0
        other = comm.Dup()
        other.Barrier()
        if rank == 1:
            check_refused(blocking, np.zeros(4))
        else:
            check_in_vain(blocking)
        other.Barrier()
        last_words()
    """
    ended(plain(REFUSED, body), 3)


@pytest.mark.case("HANG-EXC")
def test_a_late_rank_hears_of_it(plain):
    """It makes the call when the others have raised."""
    body = """
        if rank == 1:
            check_refused(blocking, np.zeros(4))
            raised(comm.Barrier)
        else:
            time.sleep(2 * (rank == 2))
            error, seconds = raised(lambda: blocking(x, y))
            assert isinstance(error, (mpicoll.MismatchError, mpicoll.StalledError)), error
            assert "rank 1 raised" in str(error), error
            assert seconds < 2, seconds
        world.Barrier()
        last_words()
    """
    ended(plain(REFUSED, body), 3)


@pytest.mark.case("HANG-EXC")
def test_ranks_that_have_refused_together_hear_of_the_one_that_has_not(plain):
    """Two of three refuse and make another call; the third one comes late, and all raise."""
    body = """
        if rank:
            check_refused(blocking, np.zeros(4))
            call = comm.Barrier
        else:
            time.sleep(1)
            call = lambda: blocking(x, y)
        error, seconds = raised(call)
        assert isinstance(error, mpicoll.MismatchError), error
        assert seconds < 10, seconds
        world.Barrier()
        last_words()
    """
    ended(plain(REFUSED, body), 3)


@pytest.mark.case("HANG-EXC")
def test_a_call_in_flight_ends_when_somebody_waits_for_it(plain):
    """The program does something else for longer than a call is tried to be ended."""
    body = """
        from mpicoll.runtime.progress import rescuer

        rescuer.LAST = 0.5
        if rank == 1:
            check_refused(blocking, np.zeros(4))
            raised(comm.Barrier)
        else:
            request = comm.Iallreduce(x, y)
            time.sleep(2)
            error, seconds = raised(request.Wait)
            assert isinstance(error, mpicoll.MismatchError) and seconds < 1, (error, seconds)
        world.Barrier()
        last_words()
    """
    ended(plain(REFUSED, body), 3)


@pytest.mark.case("HANG-EXC")
def test_a_call_that_begins_late_is_not_taken_for_a_later_one(job):
    """The communicator's first call waits for all ranks, when a second one is refused and made after all."""
    body = """
        own = mpicoll.Communicator(world.Dup())
        if rank == 0:
            time.sleep(0.5)
        first = own.Iallreduce(x, y)
        z = np.zeros(5)
        error, _ = raised(lambda: own.Ibcast(ODD["objects"](5)))
        assert isinstance(error, TypeError), error
        second = own.Ibcast(z)
        first.Wait()
        second.Wait()
        assert (y == total).all()
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
def test_calls_of_long_ago_are_not_taken_for_this_one(job):
    """A place among the calls made last comes again after 1,024 of them."""
    body = """
        z = np.zeros(5)
        for turn in range(1100):
            comm.Bcast(z) if turn % 2 else comm.Allreduce(x, y)
            if turn > 1000 and turn % 3 == 0:
                check_refused(blocking, np.zeros(4))
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
def test_a_first_call_that_cannot_be_planned_is_told_when_it_is_waited_for(plain):
    body = """
        own = mpicoll.Communicator(world.Dup())
        request = own.Iallreduce(x, y, algorithm="ring@mapped" if rank == 1 else None)
        error, _ = raised(request.Wait)
        if rank == 1:
            assert isinstance(error, mpicoll.UnsupportedError), error
            raised(own.Barrier)
        else:
            assert isinstance(error, mpicoll.MismatchError), error
        world.Barrier()
        last_words()
    """
    ended(plain(REFUSED, body), 3)


@pytest.mark.case("HANG-EXC")
@pytest.mark.parametrize("algorithm", ["ring", "linear"])
def test_an_operator_that_raises_on_one_rank_is_heard(plain, algorithm):
    body = f"""
        def broken(a, b):
            if rank == 1:
                raise ZeroDivisionError("of the user")
            return a + b

        op = mpicoll.Op(broken, commute=True)
        error, seconds = raised(lambda: comm.Allreduce(x, y, op, algorithm={algorithm!r}))
        if isinstance(error, ZeroDivisionError):
            assert rank == 1
        elif error is not None:
            assert "rank 1 raised ZeroDivisionError('of the user')" in str(error), error
        assert seconds < 10, seconds
        last_words()
    """
    ended(plain(REFUSED, body), 3)


@pytest.mark.case("HANG-EXC")
def test_a_message_that_nobody_receives_ends_the_job(plain):
    """MPI does not let go of what it has begun to send: ranks raise where they can, else the job is aborted."""
    body = """
        x, y = arrays(4_000_000)
        check_served(blocking)
        if rank == 1:
            check_refused(blocking, np.zeros(4))
            raised(comm.Barrier)
        else:
            error, _ = raised(lambda: blocking(x, y))
            assert isinstance(error, mpicoll.MismatchError), error
        last_words()
    """
    job = plain(REFUSED, body, ranks=2)
    if job.done != [0, 1]:
        assert "this job is aborted: allreduce #3 waits in vain: rank 1 raised ValueError(" in job.output, job.output
        assert job.code != 0
