"""How a job begins and ends on a machine with GPUs."""

import pytest

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


@pytest.mark.case("AWARE-SEGV")
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "value"),
    [("MPICOLL_CUDA_AWARE", "no"), ("UCX_TLS", "tcp,sm,self"), ("OMPI_MCA_opal_cuda_support", "0"), ("PLAIN", "1")],
)
def test_no_crash_where_mpi_is_not_aware(job, name, value):
    """CUDA switched off in different places; results are right, by whatever path."""
    done = job(WORK, start=DEVICE + LATER, ranks=2, limit=100, **{name: value})
    assert done.code == 0, done.output


@pytest.mark.case("AWARE-SEGV", "AWARE-DETECT")
@pytest.mark.gpu
def test_no_crash_without_the_loaded_library(job):
    """The MPI as its wheel brings it; the probe is asked, and the answer is safe."""
    done = job(WORK, start=DEVICE + LATER, ranks=2, limit=110, MPICOLL_PREPARE="no")
    assert done.code == 0, done.output


@pytest.mark.case("IPC-VISIBLE")
@pytest.mark.gpu
def test_one_visible_device_for_each_rank(job):
    """Each rank sees a device of its own only; 8 MB arrive, and the plan says by which path."""
    only = 'import subprocess\nseen = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout\n'
    only += 'count = max(seen.count("GPU "), 1)\nos.environ["CUDA_VISIBLE_DEVICES"] = str(LOCAL % count)\n'
    body = WORK + "\nx, y = cupy.ones(1 << 21, 'f4'), cupy.zeros(1 << 21, 'f4')\n"
    body += "comm.Allreduce(x, y)\nassert (y == size).all()\nprint(comm.Get_plan('Allreduce', x, y))\n"
    done = job(body, start=DEVICE + only + LATER, ranks=2, limit=100)
    assert done.code == 0, done.output
    assert "path " in done.output


@pytest.mark.case("MEMTYPE-EARLY")
@pytest.mark.gpu
@pytest.mark.parametrize("order", ["array, mpicoll, MPI", "array, MPI, mpicoll", "mpicoll, MPI, array"])
def test_arrays_that_are_older_than_mpi(job, order):
    """Device memory that was there before MPI started, in any order of imports."""
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
    done = job(body, start=start, ranks=2, limit=110)
    assert done.code == 0, done.output


@pytest.mark.case("FINALIZE")
@pytest.mark.gpu
@pytest.mark.parametrize("how", ["end", "finalize", "exit", "request"])
def test_the_end_with_device_arrays(job, how):
    """Device arrays, plans, streams and a request are still there when the program ends."""
    body = """
    x, y = cupy.ones(100_000), cupy.zeros(100_000)
    comm.Allreduce(x, y)
    kept = [comm.Iallreduce(x, y)]
    kept[0].Wait()
    """
    end = {"end": "", "finalize": "MPI.Finalize()", "exit": "sys.exit(0)", "request": "kept = comm.Iallreduce(x, y)"}
    done = job(body, end[how], start=DEVICE + LATER, ranks=2, launch=(), limit=100)
    assert done.code == 0, done.output
