"""What goes wrong in a process, and how it ends: each test here runs a job of its own.

A job that is all right ends with exit code 0 within seconds, whatever it left open; one that
is not, ends with another code instead of hanging.
"""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
#: seconds for a job to end by itself, on a busy machine
LIMIT = 60
#: seconds from the last line that a rank prints to the end of the job
SOON = 15
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore::DeprecationWarning",  # of fork in a process that has threads
}
START = """
import os, sys, time
import numpy as np
import mpicoll
from mpi4py import MPI

comm = mpicoll.Communicator(MPI.COMM_WORLD)
rank, size = comm.rank, comm.size
x, y = np.full(50, rank, "f8"), np.zeros(50)
total = sum(range(size))

def used():
    comm.Allreduce(x, y)
    assert (y == total).all()

def last_words(text="done"):
    sys.stdout.write(f"{text} {rank} {time.time()}\\n")
    sys.stdout.flush()

used()
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MPIRUN is None, reason="no mpirun on the PATH")]


class Job:
    """A script on some ranks: exit code, what it printed, and how long it took to end after the last words."""

    def __init__(self, folder, body, ranks=3, **environment):
        script = folder / "script.py"
        script.write_text(START + textwrap.dedent(body))
        command = [MPIRUN, "-n", str(ranks), sys.executable, str(script)]
        with subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                self.output, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.terminate()  # mpirun ends its ranks
                try:
                    self.output, _ = process.communicate(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    self.output = "(nothing could be read)"
                pytest.fail(f"the job did not end in {LIMIT} s\n{self.output}")
        self.code, ended = process.returncode, time.time()
        words = [line.split() for line in self.output.splitlines() if line.startswith("done ")]
        self.done = sorted(int(rank) for _, rank, _ in words)
        self.ending = ended - max((float(when) for _, _, when in words), default=ended)

    def is_clean(self, ranks=3):
        """Check that nothing was wrong, and that it ended soon."""
        assert self.code == 0, self.output
        assert self.done == list(range(ranks)), self.output
        assert "Traceback" not in self.output, self.output
        assert self.ending < SOON, f"{self.ending:.1f} s\n{self.output}"


#: what a program leaves behind when it ends
LEFT = {
    "complete": """
        request = comm.Iallreduce(x, y)
        request.Wait()
        kept = comm.Allreduce_init(x, y)
        kept.Start()
        kept.Wait()
        never = comm.Bcast_init(x)
        plans = [comm.Allreduce(x[:n], y[:n]) for n in range(1, 50)]
        made = [comm.Dup(), comm.Split(rank % 2, -rank)]
        calls = [c.Allreduce(x, y) for c in made]
        freed = comm.Dup()
        freed.Allreduce(x, y)
        freed.Free()
        mpicoll.allreduce(1)
        mpicoll.allreduce(1, comm=MPI.COMM_SELF)
    """,
    "nonblocking": "request = comm.Iallreduce(x, y)",
    "persistent": "request = comm.Allreduce_init(x, y); request.Start()",
    "several": "requests = [comm.Iallreduce(x, np.zeros(50)) for _ in range(9)]; p = comm.Bcast_init(x); p.Start()",
    "elsewhere": "own = comm.Dup(); request = own.Iallreduce(x, y)",
    "cycle": """
        class Holder:
            pass

        holder = Holder()
        holder.me, holder.request = holder, comm.Ibarrier()
        del holder
    """,
}
#: how it ends
ENDS = {
    "sys.exit": "sys.exit()",
    "sys.exit in the middle": "def deep():\n    sys.exit(0)\ntry:\n    deep()\nfinally:\n    gone = 1",
    "MPI.Finalize": "MPI.Finalize()",
    "MPI.Finalize in atexit": "import atexit; atexit.register(MPI.Finalize)",
}


@pytest.mark.parametrize("left", LEFT)
def test_the_end_of_a_program(tmp_path, left):
    """FINALIZE."""
    Job(tmp_path, f"{textwrap.dedent(LEFT[left])}\nlast_words()").is_clean()


@pytest.mark.parametrize("end", ENDS)
def test_ways_to_end(tmp_path, end):
    """FINALIZE: With all that is complete; and, unless MPI forbids it, with a call on its way."""
    left = textwrap.dedent(LEFT["complete"]) + ("" if "Finalize" in end else "on_its_way = comm.Iallreduce(x, y)")
    Job(tmp_path, f"{left}\nlast_words()\n{ENDS[end]}").is_clean()


def test_calls_after_finalize_are_refused(tmp_path):
    """FINALIZE."""
    body = """
        MPI.Finalize()
        try:
            comm.Allreduce(x, y)
        except Exception as error:
            last_words()
    """
    Job(tmp_path, body).is_clean()


def test_an_exit_code_is_kept(tmp_path):
    job = Job(tmp_path, "request = comm.Allreduce_init(x, y)\nlast_words()\nsys.exit(7)")
    assert job.code == 7, job.output
    assert "Traceback" not in job.output
    assert job.ending < SOON


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


@pytest.mark.parametrize("algorithm", ["ring/3", "one_shot", "linear"])
def test_what_an_operator_raises_is_raised(tmp_path, algorithm):
    """UDOP-GPU: On every rank on which it did, in every form; another communicator goes on, and the job ends."""
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
            except mpicoll.StalledError as error:  # it waits for a rank that raised
                pass
            assert calls == 0 or raised, "an exception was lost"
            assert MPI.COMM_WORLD.allreduce(raised) > 0
            used()
        last_words()
    """
    text = textwrap.dedent(OPERATORS) + textwrap.dedent(body)
    Job(tmp_path, text, MPICOLL_TIMEOUT="2").is_clean()


def test_an_operator_that_raises_everywhere_leaves_a_communicator_that_works(tmp_path):
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
    Job(tmp_path, textwrap.dedent(OPERATORS) + textwrap.dedent(body)).is_clean()


def test_an_operator_whose_result_does_not_fit_raises(tmp_path):
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
    Job(tmp_path, body).is_clean()


def test_an_operator_that_calls_its_own_communicator_is_refused(tmp_path):
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
    Job(tmp_path, body).is_clean()


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_ends_the_job(tmp_path, victim):
    """HANG-WHO."""
    body = f"""
        import signal
        last_words()
        if rank == {victim}:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        used()
        last_words("too far")
    """
    job = Job(tmp_path, body, MPICOLL_TIMEOUT="5")
    assert job.code != 0, job.output
    assert "too far" not in job.output
    assert job.ending < 5 + SOON


def test_a_rank_that_leaves_early_is_missed(tmp_path):
    """HANG-EXC: An exception on one rank that the others do not have: they give up and the job ends."""
    body = """
        if rank == 1:
            time.sleep(0.1)
            last_words()
            MPI.COMM_WORLD.Abort(3)
        used()
    """
    job = Job(tmp_path, body, MPICOLL_TIMEOUT="5")
    assert job.code != 0
    assert job.ending < 5 + SOON


def test_the_end_after_a_stalled_call(tmp_path):
    """Rank 1 does not make the call; everybody goes on with another communicator, and ends."""
    body = """
        own = comm.Dup()
        own.Barrier()
        if rank != 1:
            try:
                own.Allreduce(x, y, algorithm="ring")
            except mpicoll.StalledError as error:
                assert "rank 1 on " in str(error) and "has not made the call" in str(error), error
            else:
                raise AssertionError
        MPI.COMM_WORLD.Barrier()
        used()
        last_words()
    """
    Job(tmp_path, body, MPICOLL_TIMEOUT="1").is_clean()


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


@pytest.mark.parametrize("fork", FORKS)
def test_a_forked_child_is_told(tmp_path, fork):
    """FORK: Whatever it calls; the parent goes on."""
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
    Job(tmp_path, textwrap.dedent(FORKS[fork]) + textwrap.dedent(body), ranks=2).is_clean(2)


def test_a_forked_child_may_end_as_it_likes(tmp_path):
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
    job = Job(
        tmp_path,
        "import mpi4py, atexit\natexit.register(lambda: os.getpid() != me and os._exit(code))\n"
        "me = os.getpid()\n" + textwrap.dedent(body),
        ranks=2,
    )
    job.is_clean(2)


def test_a_spawned_child_may_import_it(tmp_path):
    """FORK."""
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
    Job(tmp_path, body, ranks=2).is_clean(2)


THREADS = """
    import threading
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


@pytest.mark.parametrize("setting", [{}, {"MPICOLL_TIMEOUT": "30"}, {"MPICOLL_PROGRESS": "thread"}])
def test_threads_with_communicators_of_their_own(tmp_path, setting):
    """THREADS: At the same time, each thread with its own form of the call."""
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
    Job(tmp_path, textwrap.dedent(THREADS) + textwrap.dedent(body), ranks=2, **setting).is_clean(2)


def test_first_calls_of_threads_in_another_order_on_every_rank(tmp_path):
    """THREADS: A first call waits for the other ranks; it must not keep this rank's other threads from theirs."""
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
    Job(tmp_path, textwrap.dedent(THREADS) + textwrap.dedent(body), ranks=2).is_clean(2)


def test_one_communicator_in_two_threads_is_never_wrong(tmp_path):
    """THREADS: while one thread is inside a call on every rank, another's is refused everywhere, or comes after it."""
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
    Job(tmp_path, textwrap.dedent(THREADS) + textwrap.dedent(body), ranks=2).is_clean(2)


def test_many_calls_on_one_communicator_from_two_threads(tmp_path):
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
    Job(tmp_path, textwrap.dedent(THREADS) + textwrap.dedent(body), ranks=2).is_clean(2)
