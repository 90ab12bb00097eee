"""Calls of several threads."""

import pytest

THREADS = """
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        last_words("no threads")
        last_words()
        sys.exit()
    troubles = []

    def guarded(work):
        def run():
            try:
                work()
            except BaseException as error:
                troubles.append(repr(error))
        return run

    def together(*works):
        threads = [threading.Thread(target=guarded(work)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
"""


@pytest.mark.case("THREADS")
@pytest.mark.parametrize("setting", [{}, {"MPICOLL_TIMEOUT": "30"}, {"MPICOLL_PROGRESS": "thread"}])
def test_threads_with_communicators_of_their_own(job, setting):
    """At the same time, each thread with its own form of the call."""
    body = """
        def work(own, number):
            def run():
                for turn in range(60):
                    count = 1 + (turn * 37) % 400
                    x = np.full(count, number * 1000 + turn + rank, "f8")
                    y = np.zeros(count)
                    if number % 2:
                        own.Allreduce(x, y)
                    else:
                        request = own.Iallreduce(x, y)
                        request.Wait()
                    assert (y == size * (number * 1000 + turn) + total).all(), (number, turn, y[0])
            return run

        for numbers in ((1, 3), (2, 4), (1, 2, 3, 4)):
            together(*(work(comm.Dup(), number) for number in numbers))
            assert not troubles, troubles
        used()
        last_words()
    """
    job(THREADS, body, ranks=2, **setting).is_clean(2)


@pytest.mark.case("THREADS")
def test_first_calls_of_threads_in_another_order_on_every_rank(job):
    """A first call waits for the other ranks; it must not keep this rank's other threads from theirs."""
    body = """
        made = [comm.Dup(), comm.Dup()]

        def first(number):
            def run():
                time.sleep(0.3 * (number ^ rank))
                x = np.full(5, number + 1.0)
                y = np.zeros(5)
                made[number].Allreduce(x, y)
                assert (y == size * (number + 1)).all(), y[0]
            return run

        together(first(0), first(1))
        assert not troubles, troubles
        used()
        last_words()
    """
    job(THREADS, body, ranks=2).is_clean(2)


@pytest.mark.case("THREADS")
def test_one_communicator_in_two_threads_is_never_wrong(job):
    """While one thread is inside a call on every rank, another's is refused everywhere, or comes after it."""
    body = """
        def slow(a, b):
            inside.set()
            time.sleep(1)
            return a + b

        def first():
            comm.Allreduce(x, result, mpicoll.Op(slow, commute=True), algorithm="one_shot/1")

        def blocking():
            comm.Allreduce(np.full(50, 7.0), z)

        def nonblocking():
            comm.Iallreduce(np.full(50, 7.0), z).Wait()

        def persistent():
            request = comm.Allreduce_init(np.full(50, 7.0), z)
            request.Start()
            request.Wait()

        def second():
            inside.wait()
            try:
                call()
            except RuntimeError as error:
                refused.append(str(error))

        for call in (blocking, nonblocking, persistent):
            inside, refused = threading.Event(), []
            result, z = np.zeros(50), np.zeros(50)
            together(first, second)
            assert not troubles, troubles
            assert (result == total).all(), result
            assert MPI.COMM_WORLD.allreduce(len(refused)) in (0, size)
            assert refused or (z == 7 * size).all(), z
        used()
        last_words()
    """
    job(THREADS, body, ranks=2).is_clean(2)


def test_many_calls_on_one_communicator_from_two_threads(job):
    """Alone on a communicator: nothing but right results and refusals."""
    body = """
        own = mpicoll.Communicator(MPI.COMM_SELF)
        refused = []

        def work(number):
            def run():
                for turn in range(400):
                    x, y = np.full(200, 1000.0 * number + turn), np.zeros(200)
                    try:
                        own.Allreduce(x, y) if turn % 2 else own.Iallreduce(x, y).Wait()
                    except RuntimeError as error:
                        refused.append(str(error))
                    else:
                        assert (y == x).all(), (number, turn)
            return run

        together(work(1), work(2), work(3))
        assert not troubles, troubles
        used()
        last_words()
    """
    job(THREADS, body, ranks=2).is_clean(2)


@pytest.mark.case("COMM-LAZYDUP", "THREADS")
def test_two_threads_that_make_the_first_call(job):
    """The first call of a communicator comes from two threads at once: right, or refused."""
    body = """
        sys.setswitchinterval(1e-5)

        def work():
            x, y = np.ones(5000), np.zeros(5000)
            start.wait()
            try:
                own.Allreduce(x, y)
            except RuntimeError as error:
                assert "in use" in str(error), error
            else:
                assert (y == size).all(), y

        for attempt in range(5):
            own = mpicoll.Communicator(world.Dup())
            start = threading.Barrier(2)
            together(work, work)
            assert not troubles, troubles
            world.Barrier()
        last_words()
    """
    job(THREADS, body, ranks=2).is_clean(2)
