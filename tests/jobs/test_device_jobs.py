"""Cases of users in which a job must die, end, fork or be alone: each test runs a job of its own."""

import os
import re
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
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
}
#: seconds that a job may take on a busy machine
LIMIT = 60

pytestmark = pytest.mark.slow
needs_mpirun = pytest.mark.skipif(MPIRUN is None, reason="no mpirun on the PATH")

START = """
import os, sys, time
import numpy as np
import mpicoll
from mpi4py import MPI
comm = mpicoll.Communicator(MPI.COMM_WORLD)
rank, size = comm.rank, comm.size
x, y = np.ones(1000), np.zeros(1000)
"""


def job(tmp_path, body, ranks=3, start=START, launch=("-m", "mpi4py"), limit=LIMIT, **variables):
    """Run a program on so many ranks (0: alone, without mpirun); returns the exit code and all that was printed."""
    script = tmp_path / "program.py"
    script.write_text(start + textwrap.dedent(body))
    command = [sys.executable, *launch, str(script)]
    if ranks:
        command = ["timeout", "--kill-after=5", str(limit), MPIRUN, "-n", str(ranks), *command]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | ENVIRONMENT | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=limit + 10,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout


@needs_mpirun
def test_an_exception_on_one_rank_ends_the_job(tmp_path):
    """HANG-EXC: with `-m mpi4py` the others are not left waiting, and the traceback is seen."""
    code, text = job(tmp_path, "comm.Allreduce(x, np.zeros(3) if rank == 1 else y)")
    assert code != 0, text
    assert "ValueError: allreduce: recvbuf has 3 elements, sendbuf has 1000" in text


@needs_mpirun
def test_errors_are_shared(tmp_path):
    """HANG-EXC: with errors=agree every rank raises, and a program can go on."""
    body = """
    try:
        comm.Allreduce(x, np.zeros(3) if rank == 1 else y)
    except (ValueError, mpicoll.MismatchError) as error:
        told = "recvbuf has 3 elements" in str(error)
    comm.Allreduce(x, y)
    assert MPI.COMM_WORLD.allreduce(told) == size and y[0] == size
    """
    code, text = job(tmp_path, body, MPICOLL_ERRORS="agree")
    assert code == 0, text


@needs_mpirun
@pytest.mark.parametrize("how", ["recvcounts", "functional"])
def test_errors_before_the_call_are_shared_too(tmp_path, how):
    """HANG-EXC: what is refused while arguments are gathered, or by the functional layer, on one rank."""
    body = f"""
    try:
        if "{how}" == "recvcounts":
            comm.Reduce_scatter(MPI.IN_PLACE if rank == 1 else np.ones(size), np.zeros(1))
        else:
            mpicoll.allreduce("text" if rank == 1 else x)
        raised = False
    except (ValueError, TypeError, mpicoll.MismatchError):
        raised = True
    assert raised
    comm.Allreduce(x, y)
    assert y[0] == size
    """
    code, text = job(tmp_path, body, MPICOLL_ERRORS="agree", MPICOLL_TIMEOUT="2")
    assert code == 0, text


@needs_mpirun
def test_a_rank_that_skips_a_call_is_named(tmp_path):
    """HANG-WHO: the others end with the call, its number, and who has not arrived."""
    body = """
    comm.Allreduce(x, y)
    if rank == 1:
        time.sleep(30)
    comm.Bcast(x)
    comm.Barrier()
    """
    code, text = job(tmp_path, body, MPICOLL_TIMEOUT="1")
    assert code != 0, text
    assert "StalledError" in text
    assert re.search(r"; rank 1 on \S+ has not made the call", text), text


@needs_mpirun
def test_two_threads_that_make_the_first_call(tmp_path):
    """COMM-LAZYDUP, THREADS: the first call of a communicator comes from two threads at once: right, or refused."""
    body = """
    import threading
    sys.setswitchinterval(1e-5)
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        sys.exit(0)
    wrong = []
    for attempt in range(5):
        comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        start = threading.Barrier(2)

        def work():
            x, y = np.ones(5000), np.zeros(5000)
            start.wait()
            try:
                comm.Allreduce(x, y)
                if (y != size).any():
                    wrong.append("wrong result")
            except RuntimeError as error:
                if "in use" not in str(error):
                    wrong.append(repr(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        MPI.COMM_WORLD.Barrier()
    assert not wrong, wrong
    """
    code, text = job(tmp_path, body, ranks=2, limit=25)
    assert code == 0, text


@needs_mpirun
def test_more_ranks_than_cores(tmp_path):
    """OVERSUB: many small calls of more ranks than there are cores end in time."""
    body = """
    y = np.zeros(8)
    for turn in range(250):
        comm.Allreduce(np.full(8, float(turn)), y)
        comm.Barrier()
        assert y[0] == turn * size
    """
    ranks = min(2 * len(os.sched_getaffinity(0)) + 2, 10)
    code, text = job(tmp_path, body, ranks=ranks)
    assert code == 0, text


@needs_mpirun
def test_importing_on_some_ranks_only(tmp_path):
    """COMM-LAZYDUP: importing and wrapping makes no collective call."""
    body = """
    from mpi4py import MPI
    if MPI.COMM_WORLD.rank == 1:
        import mpicoll
        mpicoll.Communicator(MPI.COMM_WORLD)
    assert MPI.COMM_WORLD.allreduce(1) == 3
    """
    code, text = job(tmp_path, body, start="")
    assert code == 0, text


@pytest.mark.parametrize("variable", ["MPICH_GPU_SUPPORT_ENABLED", "MPICOLL_DEBUG"])
def test_importing_starts_nothing(tmp_path, variable):
    """GTL-CRAY: an MPI that would abort in its start is not started by importing the library."""
    body = """
    import sys
    import mpicoll
    mpicoll.plan("allreduce", size=4, nbytes=100)
    mpicoll.verify
    started = {"mpi4py.MPI", "cupy"} & set(sys.modules)
    assert not started, started
    """
    code, text = job(tmp_path, body, ranks=0, start="", launch=(), **{variable: "1"})
    assert code == 0, text


@needs_mpirun
def test_the_report_under_mpirun(tmp_path):
    """ABI-MIX: library, launcher and number of ranks are in the report, and agree here."""
    body = """
    from mpicoll.runtime import info
    text = "\\n".join(info.lines())
    assert "WARNING" not in text, text
    assert "MPI library" in text and f"{size}" in text
    """
    code, text = job(tmp_path, body)
    assert code == 0, text


# On a machine with GPUs.

DEVICE = """
import os, sys, time
LOCAL = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ.get("MPI_LOCALRANKID") or 0)
"""
WORK = """
for count in (1, 400, 1 << 18, 1 << 21):
    x, y = cupy.full(count, rank + 1.0), cupy.zeros(count)
    comm.Allreduce(x, y)
    assert (y == size * (size + 1) / 2).all()
    comm.Bcast(x, root=size - 1)
    assert (x == size).all()
"""
LATER = """
import cupy
import mpicoll
from mpi4py import MPI
comm = mpicoll.Communicator(MPI.COMM_WORLD)
rank, size = comm.rank, comm.size
cupy.cuda.Device(LOCAL % cupy.cuda.runtime.getDeviceCount()).use()
"""


@needs_mpirun
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "value"),
    [("MPICOLL_CUDA_AWARE", "no"), ("UCX_TLS", "tcp,sm,self"), ("OMPI_MCA_opal_cuda_support", "0"), ("PLAIN", "1")],
)
def test_no_crash_where_mpi_is_not_aware(tmp_path, name, value):
    """AWARE-SEGV: CUDA switched off in different places; results are right, by whatever path."""
    code, text = job(tmp_path, WORK, start=DEVICE + LATER, ranks=2, limit=100, **{name: value})
    assert code == 0, text


@needs_mpirun
@pytest.mark.gpu
def test_no_crash_without_the_loaded_library(tmp_path):
    """AWARE-SEGV, AWARE-DETECT: the MPI as its wheel brings it; the probe is asked, and the answer is safe."""
    code, text = job(tmp_path, WORK, start=DEVICE + LATER, ranks=2, limit=110, MPICOLL_PREPARE="no")
    assert code == 0, text


@needs_mpirun
@pytest.mark.gpu
def test_one_visible_device_for_each_rank(tmp_path):
    """IPC-VISIBLE: each rank sees a device of its own only; 8 MB arrive, and the plan says by which path."""
    only = 'import subprocess\nseen = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout\n'
    only += 'count = max(seen.count("GPU "), 1)\nos.environ["CUDA_VISIBLE_DEVICES"] = str(LOCAL % count)\n'
    body = WORK + "\nx, y = cupy.ones(1 << 21, 'f4'), cupy.zeros(1 << 21, 'f4')\n"
    body += "comm.Allreduce(x, y)\nassert (y == size).all()\nprint(comm.Get_plan('Allreduce', x, y))\n"
    code, text = job(tmp_path, body, start=DEVICE + only + LATER, ranks=2, limit=100)
    assert code == 0, text
    assert "path " in text


@needs_mpirun
@pytest.mark.gpu
@pytest.mark.parametrize("order", ["array, mpicoll, MPI", "array, MPI, mpicoll", "mpicoll, MPI, array"])
def test_arrays_that_are_older_than_mpi(tmp_path, order):
    """MEMTYPE-EARLY: device memory that was there before MPI started, in any order of imports."""
    lines = {
        "array": "import cupy\ncupy.cuda.Device(LOCAL % cupy.cuda.runtime.getDeviceCount()).use()\n"
        "early = cupy.ones(100_000)\ncupy.cuda.Device().synchronize()\n",
        "mpicoll": "import mpicoll\n",
        "MPI": "from mpi4py import MPI\n",
    }
    start = DEVICE + "".join(lines[word] for word in order.split(", "))
    start += "comm = mpicoll.Communicator(MPI.COMM_WORLD)\nrank, size = comm.rank, comm.size\n"
    body = """
    for count in (10, 400, 5000, 100_000):
        y = cupy.zeros(count)
        comm.Allreduce(early[:count], y)
        assert (y == size).all(), count
    """
    code, text = job(tmp_path, body, start=start, ranks=2, limit=110)
    assert code == 0, text


@needs_mpirun
@pytest.mark.gpu
@pytest.mark.parametrize("how", ["end", "finalize", "exit", "request"])
def test_the_end_with_device_arrays(tmp_path, how):
    """FINALIZE: device arrays, plans, streams and a request are still there when the program ends."""
    body = """
    x, y = cupy.ones(100_000), cupy.zeros(100_000)
    comm.Allreduce(x, y)
    kept = [comm.Iallreduce(x, y)]
    kept[0].Wait()
    """
    body = (
        textwrap.dedent(body)
        + {
            "end": "",
            "finalize": "MPI.Finalize()",
            "exit": "sys.exit(0)",
            "request": "kept = comm.Iallreduce(x, y)",
        }[how]
    )
    code, text = job(tmp_path, body, start=DEVICE + LATER, ranks=2, launch=(), limit=100)
    assert code == 0, text
