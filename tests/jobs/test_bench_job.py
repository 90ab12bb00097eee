"""The benchmark as a job: how it ends."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mpicoll.bench.results import read

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
FEW = "--op allreduce,barrier --max 64 --iters 2"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MPIRUN is None, reason="no mpirun on the PATH")]


def command(arguments, before=""):
    """Return the command line of the benchmark on 3 ranks, after some code on each."""
    script = textwrap.dedent(before) + "\nfrom mpicoll.bench.__main__ import main\nmain()\n"
    program = ["-c", script] if before else ["-m", "mpicoll.bench"]
    return [MPIRUN, "-n", "3", sys.executable, *program, *arguments.split()]


def job(arguments, before=""):
    """Run the benchmark on 3 ranks, after some code on each."""
    return subprocess.run(
        command(arguments, before),
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        text=True,
        check=False,
    )


def test_all_right_is_status_0():
    done = job(FEW)
    assert done.returncode == 0, done.stderr
    assert "wrong elements: 0 OK" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_wrong_elements_are_status_1():
    """BENCH-TOL."""
    before = """
    import mpicoll

    right = mpicoll.Communicator.Allreduce

    def wrong(self, sendbuf, recvbuf, op, **named):
        right(self, sendbuf, recvbuf, op, **named)
        recvbuf[0] += self.rank == 1

    mpicoll.Communicator.Allreduce = wrong
    """
    done = job(FEW, before)
    assert done.returncode == 1, done.stderr
    assert "wrong elements: 8 FAILED" in done.stdout  # 2 sizes, 2 forms, 2 validated calls


@pytest.mark.parametrize("arguments", ["--op nothing", "--op exscan --algorithm nothing"])
def test_a_request_that_cannot_be_served_is_status_2(arguments):
    done = job(arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("nothing'") == 1


def test_help_is_printed_once():
    done = job("--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage:") == 1


def interrupted(folder, number, arguments, before=""):
    """Send the launcher a signal once a row is in the file; return its status, its words and the file."""
    file = folder / "run.json"
    process = subprocess.Popen(
        command(f"{arguments} --json {file}", before),
        env=os.environ | ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (file.exists() and '"kind": "row"' in file.read_text()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    return process.returncode, said, read(file)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_what_it_measured_and_says_so(tmp_path, number):
    """Open MPI's launcher makes SIGTERM of each signal, and passes on no words after it."""
    status, said, found = interrupted(tmp_path, number, "--op allreduce --algorithm all --iters 200")
    assert status != 0
    end = found["end"]
    assert (end["verdict"], end["measured"], end["of"]) == ("interrupted", len(found["rows"]), found["measurements"])
    assert 0 < end["measured"] < end["of"]
    if found["facts"]["mpi"].startswith("MPICH"):
        assert f"# interrupted after {end['measured']} of {end['of']} measurements ({end['reason']})" in said
        assert end["reason"] == number.name


def test_a_signal_is_heard_while_a_call_waits_in_mpi_for_ever(tmp_path):
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
    status, _, found = interrupted(tmp_path, signal.SIGTERM, "--op allreduce --max 512 --iters 3", before)
    assert status != 0
    assert (found["end"]["verdict"], found["end"]["measured"]) == ("interrupted", len(found["rows"]))


def test_a_failing_rank_leaves_what_was_measured(tmp_path):
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
    done = job(f"--op allreduce,bcast --max 8 --iters 2 --json {file}", before)
    assert done.returncode != 0
    assert "interrupted after 2 of 3 measurements (rank 2 failed)" in done.stderr
    assert [row["op"] for row in read(file)["rows"]] == ["allreduce"] * 2


def test_an_exception_on_one_rank_ends_the_job():
    before = """
    import mpicoll

    right = mpicoll.Communicator.Allreduce

    def fail(self, *arguments, **named):
        if self.rank == 2:
            raise RuntimeError("out of luck")
        right(self, *arguments, **named)

    mpicoll.Communicator.Allreduce = fail
    """
    done = job(FEW, before)
    assert done.returncode != 0
    assert "rank 2 failed" in done.stderr
    assert "out of luck" in done.stderr
