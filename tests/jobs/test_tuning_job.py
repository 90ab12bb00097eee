"""The tuner as a user calls it, and what `info` says of its table."""

import re

import pytest

from jobs.runner import Job, python

PROGRAM = """
import os
import numpy as np, mpicoll
from mpi4py import MPI
x = np.zeros(2, "f4")
reason = mpicoll.Communicator(MPI.COMM_WORLD).Get_plan("Bcast", x).reason
os.write(1, f"reason: {reason}\\n".encode())  # in one piece: the other rank writes, too
"""


def joined(text):
    """A text without spaces and ends of lines: Open MPI gives rank 0 a terminal of 80 columns."""
    return re.sub(r"\s+", "", text)


@pytest.fixture
def call(tmp_path):
    """Run Python on 2 ranks with a folder of configuration of the test's own, apart from where the job works.

    A folder `mpicoll` there would be imported.
    """

    def run(*arguments, ranks=2):
        home = str(tmp_path / "home")
        return Job(tmp_path, python(ranks, *arguments), XDG_CONFIG_HOME=home, MPICOLL_TUNING="").end()

    return run


def test_a_table_that_was_tuned_is_in_force_in_later_jobs(call, tmp_path):
    done = call("-m", "mpicoll", "tune", "--op", "bcast", "--max", "1K", "--budget", "1")
    assert done.code == 0, done.output
    (file,) = (tmp_path / "home" / "mpicoll" / "tuning").iterdir()
    assert f"written to {file}" in done.output
    program = call("-c", PROGRAM)
    assert program.output.count(f"reason: tuning table {file}: bcast:") == 2, program.output
    info = call("-m", "mpicoll", "info", ranks=1)  # of which no other rank's lines are among its own
    assert f"tuningtablesinforce{file}" in joined(info.output), info.output
    assert "machine fingerprint" in info.output


def test_info_and_tune_name_a_mistake_in_a_table_and_do_not_raise(call, tmp_path):
    file = tmp_path / "home" / "mpicoll" / "tuning" / "mine.rules"
    file.parent.mkdir(parents=True)
    file.write_text("bcast:rings\n")
    mistake = f"{file}, line 1: 'bcast:rings': bcast: no algorithm 'rings'"
    info = call("-m", "mpicoll", "info", ranks=1)
    assert info.code == 0, info.output
    assert joined(mistake) in joined(info.output), info.output
    tune = call("-m", "mpicoll", "tune", "--budget", "1")
    assert tune.code != 0
    assert tune.output.count(f"mpicoll tune: {mistake}") == 1, tune.output
    assert "Traceback" not in tune.output
