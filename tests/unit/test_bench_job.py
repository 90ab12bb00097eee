"""The benchmark as a job: how it ends."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
FEW = "--op allreduce,barrier --max 64 --iters 2"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MPIRUN is None, reason="no mpirun on the PATH")]


def job(arguments, before=""):
    """Run the benchmark on 3 ranks, after some code on each."""
    script = textwrap.dedent(before) + "\nfrom mpicoll.bench.__main__ import main\nmain()\n"
    program = ["-c", script] if before else ["-m", "mpicoll.bench"]
    return subprocess.run(
        [MPIRUN, "-n", "3", sys.executable, *program, *arguments.split()],
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
