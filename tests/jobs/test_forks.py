"""Calls in a forked or spawned child."""

import pytest

FORKS = {
    "os.fork": """
        def child_of(call):
            child = os.fork()
            if child == 0:
                os._exit(attempt(call))
            _, status = os.waitpid(child, 0)
            return os.waitstatus_to_exitcode(status)
    """,
    "multiprocessing": """
        import multiprocessing

        def child_of(call):
            process = multiprocessing.get_context("fork").Process(target=lambda: os._exit(attempt(call)))
            process.start()
            process.join(20)
            return process.exitcode
    """,
}


@pytest.mark.case("FORK")
@pytest.mark.parametrize("fork", FORKS)
def test_a_forked_child_is_told(plain, fork):
    """Whatever it calls; the parent goes on."""
    body = """
        old, late = comm.Allreduce_init(x, y), comm.Iallreduce(x, np.zeros(50))
        alone = mpicoll.Communicator(MPI.COMM_SELF)
        calls = {
            "blocking": lambda: comm.Allreduce(x, y),
            "other arrays": lambda: comm.Allreduce(x[1:], y[1:]),
            "nonblocking": lambda: comm.Iallreduce(x, y),
            "persistent": lambda: comm.Allreduce_init(x, y),
            "barrier": comm.Barrier,
            "function": lambda: mpicoll.allreduce(x),
            "new communicator": alone.Barrier,
            "old request": old.Start,
        }

        def attempt(call):
            try:
                calls[call]()
            except RuntimeError as error:
                return 42 if "forked" in str(error) else 43
            except BaseException as error:
                return 44
            return 45

        found = {call: child_of(call) for call in calls}
        assert set(found.values()) == {42}, found
        late.Wait()
        used()
        last_words()
    """
    plain(FORKS[fork], body, ranks=2).is_clean(2)


def test_a_forked_child_may_end_as_it_likes(plain):
    """Its end frees nothing of its parent's; the parent goes on."""
    body = """
        for code in (0, 5):
            child = os.fork()
            if child == 0:
                sys.exit(code)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == code
            used()
        last_words()
    """
    # The Python of the child would call MPI_Finalize, as in any program that uses mpi4py.
    before = """
        import atexit
        me = os.getpid()
        atexit.register(lambda: os.getpid() != me and os._exit(code))
    """
    plain(before, body, ranks=2).is_clean(2)


@pytest.mark.case("FORK")
def test_a_spawned_child_may_import_it(plain):
    """A new process that is no rank can import the library and ask for plans."""
    body = """
        import subprocess
        code = "import mpicoll; print(mpicoll.plan('allreduce', size=4, nbytes=1000).algorithm)"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "PMIX", "OMPI_", "HYDRA", "MPI_"))}
        done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, timeout=40)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() in mpicoll.algorithms("allreduce")["allreduce"]
        used()
        last_words()
    """
    plain(body, ranks=2).is_clean(2)
