"""A call that one rank alone refuses or fails in, with no setting: the others raise, too, and the program goes on."""

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
        if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            return True
        last_words("no threads")
        last_words()
        sys.exit()

    def check_refused(call, x, y, odd):
        error, seconds = raised(lambda: call(x, odd if rank == 1 else y))
        if rank == 1:
            assert isinstance(error, (TypeError, ValueError)), error
        else:
            assert isinstance(error, mpicoll.MismatchError), error
            assert "rank 1 raised" in str(error) and "Error('allreduce: recvbuf" in str(error), error
        assert seconds < 10, seconds

    def check_served(call, x, y):
        y[:] = 0
        call(x, y)
        assert (y == size * (size + 1) / 2).all(), y

    listens()
"""


@pytest.mark.case("HANG-EXC")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
def test_the_others_raise_and_the_next_call_works(job, form, ranks):
    """Whatever one rank refuses, at calls of 8 bytes and of 800 kB, the first ones and those that are remembered."""
    body = f"""
        for n in (2, 100_000):
            x, y = np.full(n, rank + 1.0), np.zeros(n)
            for name, odd in ODD.items():
                check_refused({form}, x, y, odd(n))
                for _ in range(4):
                    check_served({form}, x, y)
        last_words()
    """
    job(REFUSED, body, ranks=ranks).is_clean(ranks)


@pytest.mark.case("HANG-EXC")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("n", [2, 100_000])
def test_a_program_ends_that_makes_no_call_after_it(plain, n, ranks):
    body = f"""
        x, y = np.full({n}, rank + 1.0), np.zeros({n})
        check_refused(blocking, x, y, ODD["too small"]({n}))
        last_words()
    """
    plain(REFUSED, body, ranks=ranks).is_clean(ranks)


@pytest.mark.case("HANG-EXC")
def test_a_late_rank_hears_of_it(job):
    """Before it makes the call, and whether the rank that refused it has left or goes on."""
    body = """
        x, y = np.full(5, rank + 1.0), np.zeros(5)
        blocking(x, y)
        if rank == 2:
            time.sleep(2)
        check_refused(blocking, x, y, np.zeros(4))
        check_served(blocking, x, y)
        if rank == 2:
            time.sleep(2)
        check_refused(blocking, x, y, np.zeros(4))
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
def test_what_all_ranks_refuse_is_forgotten(job):
    """The next call works, however late a rank comes to it."""
    body = """
        x, y = np.full(5, rank + 1.0), np.zeros(5)
        for turn in range(3):
            error, _ = raised(lambda: comm.Allreduce(x, y[:4]))
            assert isinstance(error, ValueError), error
            if rank == 1:
                time.sleep(1)
            check_served(blocking, x, y)
        kept = comm.Allreduce_init(x, y)
        error, _ = raised(lambda: comm.Allreduce(x, y[:4]))
        kept.Start()
        kept.Wait()
        own = comm.Dup()
        own.Allreduce(x, y)
        error, _ = raised(lambda: own.Allreduce(x, y[:4]))
        begin = time.monotonic()
        own.Free()
        assert time.monotonic() - begin < 0.9
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
def test_an_operator_that_raises_on_one_rank_is_heard(job):
    body = """
        def broken(a, b):
            if rank == 1:
                raise ZeroDivisionError("of the user")
            return a + b

        op = mpicoll.Op(broken, commute=True)
        for algorithm in ("ring", "recursive_doubling", "linear"):
            for n in (4, 100_000):
                x, y = np.full(n, rank + 1.0), np.zeros(n)
                error, _ = raised(lambda: comm.Allreduce(x, y, op, algorithm=algorithm))
                if rank == 1:
                    assert isinstance(error, ZeroDivisionError) or algorithm != "ring", error
                else:
                    assert error is None or "rank 1 raised ZeroDivisionError('of the user')" in str(error), error
                check_served(blocking, x, y)
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
def test_a_root_that_has_gone_ahead_is_told_that_it_has(job):
    """Messages of its calls are lost: all ranks raise, and the program ends."""
    body = """
        x, y = np.full(4, rank + 1.0), np.zeros(4)
        blocking(x, y)
        if rank == 1:
            time.sleep(1)
            error, _ = raised(lambda: comm.Bcast(readonly(4), root=0, algorithm="linear"))
            assert isinstance(error, ValueError), error
        for _ in range(2 if rank == 1 else 3):
            raised(lambda: comm.Bcast(x, root=0, algorithm="linear"))
        error, seconds = raised(lambda: blocking(x, y))
        assert isinstance(error, (mpicoll.MismatchError, mpicoll.StalledError)), error
        assert "rank 1 raised ValueError('bcast: buf is read-only" in str(error), error
        assert seconds < 10, seconds
        last_words()
    """
    job(REFUSED, body).is_clean()


@pytest.mark.case("HANG-EXC")
def test_a_persistent_call_that_one_rank_has_not_is_not_started(job):
    """The others have it, and raise whenever they start it; later ones work."""
    body = """
        x, y, made = np.full(4, rank + 1.0), np.zeros(4), []
        error, _ = raised(lambda: made.append(comm.Allreduce_init(x, y[:3] if rank == 1 else y)))
        assert (rank == 1) == isinstance(error, ValueError), error
        time.sleep(1)  # they need not wait for rank 1, so that they may not have heard yet
        check_served(blocking, x, y)
        for request in 2 * made:
            error, _ = raised(request.Start)
            assert isinstance(error, mpicoll.MismatchError), error
            assert "rank 1 raised ValueError('allreduce: recvbuf has 3" in str(error), error
        check_served(persistent, x, y)
        last_words()
    """
    job(REFUSED, body).is_clean()
