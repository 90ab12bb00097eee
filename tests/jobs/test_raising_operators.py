"""A user's operator that raises: on every rank on which it did, and the job goes on."""

import pytest

OPERATORS = """
    class Broken(Exception):
        pass

    calls = 0

    def broken(a, b):
        global calls
        calls += 1
        raise Broken("of the user")

    op = mpicoll.Op(broken, commute=True)
"""


@pytest.mark.case("UDOP-GPU")
@pytest.mark.parametrize("algorithm", ["ring/3", "one_shot", "linear"])
def test_what_an_operator_raises_is_raised(job, algorithm):
    """On every rank on which it did, in every form; another communicator goes on, and the job ends."""
    body = f"""
        def blocking(own):
            own.Allreduce(x, y, op, algorithm={algorithm!r})

        def nonblocking(own):
            own.Iallreduce(x, y, op, algorithm={algorithm!r}).Wait()

        def persistent(own):
            request = own.Allreduce_init(x, y, op, algorithm={algorithm!r})
            request.Start()
            request.Wait()

        for call in (blocking, nonblocking, persistent):
            calls, raised = 0, 0
            try:
                call(comm.Dup())
            except Broken as error:
                assert str(error) == "of the user"
                raised = 1
            except (mpicoll.StalledError, mpicoll.MismatchError):  # it waits for a rank that raised
                pass
            assert calls == 0 or raised, "an exception was lost"
            assert MPI.COMM_WORLD.allreduce(raised) > 0
            used()
        last_words()
    """
    job(OPERATORS, body, MPICOLL_TIMEOUT="1").is_clean()


def test_an_operator_that_raises_everywhere_leaves_a_communicator_that_works(job):
    """All messages of one_shot have arrived when the operator runs."""
    body = """
        for turn in range(3):
            calls = 0
            try:
                comm.Allreduce(x, y, op, algorithm="one_shot/1")
            except Broken:
                used()
            else:
                raise AssertionError
        last_words()
    """
    job(OPERATORS, body).is_clean()


def test_an_operator_whose_result_does_not_fit_raises(job):
    body = """
        for wrong in (lambda a, b: (a + b)[:3], lambda a, b: None, lambda a, b: "text"):
            own = comm.Dup()
            try:
                own.Allreduce(x, y, mpicoll.Op(wrong), algorithm="one_shot/1")
            except Exception as error:
                pass
            else:
                raise AssertionError("accepted")
            used()
        last_words()
    """
    job(body).is_clean()


def test_an_operator_that_calls_its_own_communicator_is_refused(job):
    """It would wait for itself."""
    body = """
        def inner(a, b):
            comm.Allreduce(np.ones(1), np.zeros(1))
            return a + b

        try:
            comm.Allreduce(x, y, mpicoll.Op(inner), algorithm="one_shot/1")
        except RuntimeError as error:
            assert "in use" in str(error)
            last_words()
    """
    job(body).is_clean()
