"""The runner of jobs: a program on some ranks, or alone, from its start to its end."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
#: seconds for a job to end by itself, on a busy machine
LIMIT = 60
#: seconds from the last line that a rank prints to the end of the job
SOON = 15
ENVIRONMENT = {
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore::DeprecationWarning",  # of fork in a process that has threads
}
#: options of Python with which an exception on one rank ends all of them
TOGETHER = ("-m", "mpi4py")

#: how a program begins that makes the first call itself
FRESH = """
import os, signal, sys, threading, time
import numpy as np
import mpicoll
from mpi4py import MPI

world = MPI.COMM_WORLD
comm = mpicoll.Communicator(world)
rank, size = comm.rank, comm.size
x, y = np.full(50, rank, "f8"), np.zeros(50)
total = sum(range(size))

def used():
    comm.Allreduce(x, y)
    assert (y == total).all()

def raised(call):
    begin = time.monotonic()
    try:
        call()
    except Exception as error:
        return error, time.monotonic() - begin
    return None, time.monotonic() - begin

def last_words(text="done"):
    sys.stdout.write(f"{text} {rank} {time.time()}\\n")
    sys.stdout.flush()
"""
#: how the others begin
START = f"{FRESH}\nused()\n"


class Job:
    """A command: its exit code, what it printed, and which ranks said the last words, how long before the end."""

    def __init__(self, folder: Path, command: list[Any], **environment: str) -> None:
        """Start."""
        self.folder = folder
        self.process = subprocess.Popen(
            list(map(str, command)),
            cwd=folder,
            env=os.environ | ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def end(self, limit: float = LIMIT) -> Job:
        """Return the job once it has ended; the test fails if that takes too long."""
        try:
            self.output, _ = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job did not end in {limit:g} s\n{self._stopped()}")
        ended = time.time()
        self.code = self.process.returncode
        words = [line.split() for line in self.output.splitlines() if line.startswith("done ")]
        self.done = sorted(int(rank) for _, rank, _ in words)
        self.ending = ended - max((float(when) for _, _, when in words), default=ended)
        return self

    def told(self, name: str) -> str:
        """Return the text of a file that the job writes; the test fails if that takes too long."""
        file, end = self.folder / name, time.monotonic() + LIMIT
        while not file.exists():
            ended = self.process.poll() is not None and not file.exists()
            if ended or time.monotonic() > end:
                pytest.fail(f"the job did not write {name} {'at all' if ended else f'in {LIMIT} s'}\n{self._stopped()}")
            time.sleep(0.02)
        return file.read_text()

    def _stopped(self) -> str:
        """Return what a job printed that is ended by force, if it has not ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)  # mpirun ends its ranks
        try:
            return self.process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired as late:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            return (late.stdout or b"").decode(errors="replace")

    def is_clean(self, ranks: int = 3) -> None:
        """Check that nothing was wrong, and that it ended soon."""
        assert self.code == 0, self.output
        assert self.done == list(range(ranks)), self.output
        assert "Traceback" not in self.output, self.output
        self.ends_soon()

    def ends_soon(self, beyond: float = 0.0) -> None:
        """Check that it ended soon after the last words, or so many seconds later."""
        assert self.ending < beyond + SOON, f"{self.ending:.1f} s\n{self.output}"


def python(ranks: int, *arguments: Any, options: Sequence[str] = ()) -> list[Any]:
    """Return the command of Python on some ranks, on 0 without mpirun; the test is skipped where there is none."""
    if ranks and MPIRUN is None:
        pytest.skip("no mpirun on the PATH")
    launcher = [MPIRUN, *options, "-n", ranks] if ranks else []
    return [*launcher, sys.executable, *arguments]


@functools.cache
def is_mpich() -> bool:
    """Tell whether this environment's mpirun is MPICH's."""
    return "HYDRA" in subprocess.run([str(MPIRUN), "--version"], capture_output=True, text=True, check=False).stdout


def script(folder: Path, *parts: str, start: str = START) -> Path:
    """Return the file of a program, written from its parts."""
    file = folder / "program.py"
    file.write_text(start + "\n".join(textwrap.dedent(part) for part in parts))
    return file
