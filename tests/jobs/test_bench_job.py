"""The benchmark as a job: how it ends."""

import signal
import textwrap
import time

import pytest

from jobs.runner import Job, python
from mpicoll.bench.output.results import read

FEW = "--op allreduce,barrier --max 64 --iters 2"


@pytest.fixture
def start(tmp_path):
    """Start the benchmark on 3 ranks, after some code on each."""

    def run(arguments, before=""):
        script = textwrap.dedent(before) + "\nfrom mpicoll.bench.__main__ import main\nmain()\n"
        program = ["-c", script] if before else ["-m", "mpicoll.bench"]
        return Job(tmp_path, python(3, *program, *arguments.split()))

    return run


@pytest.fixture
def bench(start):
    """Run the benchmark to its end."""
    return lambda arguments, before="": start(arguments, before).end()


def test_all_right_is_status_0(bench):
    done = bench(FEW)
    assert done.code == 0, done.output
    assert "wrong elements: 0 OK" in done.output
    assert "\x1b" not in done.output


@pytest.mark.case("BENCH-TOL")
def test_wrong_elements_are_status_1(bench):
    """A benchmark that finds wrong elements says so to its caller."""
    before = """
    import mpicoll

    right = mpicoll.Communicator.Allreduce

    def wrong(self, sendbuf, recvbuf, op, **named):
        right(self, sendbuf, recvbuf, op, **named)
        recvbuf[0] += self.rank == 1

    mpicoll.Communicator.Allreduce = wrong
    """
    done = bench(FEW, before)
    assert done.code == 1, done.output
    assert "wrong elements: 8 FAILED" in done.output  # 2 sizes, 2 forms, 2 validated calls


@pytest.mark.parametrize("arguments", ["--op nothing", "--op exscan --algorithm nothing"])
def test_a_request_that_cannot_be_served_is_status_2(bench, arguments):
    done = bench(arguments)
    assert done.code == 2, done.output
    assert done.output.count("nothing'") == 1


def test_help_is_printed_once(bench):
    done = bench("--help")
    assert done.code == 0, done.output
    assert done.output.count("usage:") == 1


@pytest.fixture
def interrupted(start, tmp_path):
    """Send the launcher a signal once a row is in the file; return the job and the file's rows."""

    def run(number, arguments, before=""):
        file = tmp_path / "run.json"
        job = start(f"{arguments} --json {file}", before)
        deadline = time.monotonic() + 60
        while not (file.exists() and '"kind": "row"' in file.read_text()):
            assert job.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        job.process.send_signal(number)
        return job.end(), read(file)

    return run


@pytest.mark.parametrize(
    ("number", "ranks"), [(signal.SIGINT, ""), (signal.SIGTERM, ""), (signal.SIGINT, "--ranks 2,3")]
)
def test_an_interrupted_run_leaves_what_it_measured_and_says_so(interrupted, number, ranks):
    """Open MPI's launcher makes SIGTERM of each signal, and passes on no words after it."""
    ended, found = interrupted(number, f"--op allreduce --algorithm all --iters 200 {ranks}")
    assert ended.code != 0
    end = found["end"]
    assert (end["verdict"], end["measured"], end["of"]) == ("interrupted", len(found["rows"]), found["measurements"])
    assert 0 < end["measured"] < end["of"]
    if found["facts"]["mpi"].startswith("MPICH"):
        assert f"# interrupted after {end['measured']} of {end['of']} measurements ({end['reason']})" in ended.output
        assert end["reason"] == number.name


def test_a_signal_is_heard_while_a_call_waits_in_mpi_for_ever(interrupted):
    """Where Python itself would run no handler: the others wait for the last rank's message."""
    before = """
    import mpicoll
    from mpi4py import MPI

    right = mpicoll.Communicator.Allreduce

    def wait(self, sendbuf, *arguments, **named):
        if sendbuf is not MPI.IN_PLACE and sendbuf.nbytes > 8 * self.size:
            MPI.COMM_WORLD.recv(source=(self.rank + 1) % self.size, tag=77)
        right(self, sendbuf, *arguments, **named)

    mpicoll.Communicator.Allreduce = wait
    """
    ended, found = interrupted(signal.SIGTERM, "--op allreduce --max 512 --iters 3", before)
    assert ended.code != 0
    assert (found["end"]["verdict"], found["end"]["measured"]) == ("interrupted", len(found["rows"]))


def test_a_failing_rank_leaves_what_was_measured(bench, tmp_path):
    before = """
    import mpicoll

    right = mpicoll.Communicator.Bcast

    def fail(self, *arguments, **named):
        if self.rank == 2:
            raise RuntimeError("out of luck")
        right(self, *arguments, **named)

    mpicoll.Communicator.Bcast = fail
    """
    file = tmp_path / "run.json"
    done = bench(f"--op allreduce,bcast --max 8 --iters 2 --json {file}", before)
    assert done.code != 0
    assert "interrupted after 2 of 3 measurements (rank 2 failed)" in done.output
    assert [row["op"] for row in read(file)["rows"]] == ["allreduce"] * 2


def test_an_exception_on_one_rank_ends_the_job(bench):
    before = """
    import mpicoll

    right = mpicoll.Communicator.Allreduce

    def fail(self, *arguments, **named):
        if self.rank == 2:
            raise RuntimeError("out of luck")
        right(self, *arguments, **named)

    mpicoll.Communicator.Allreduce = fail
    """
    done = bench(FEW, before)
    assert done.code != 0
    assert "rank 2 failed" in done.output
    assert "out of luck" in done.output
