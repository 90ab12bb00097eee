"""The report on a program that runs on stand-ins: what was served, what was passed on, and who came to tell."""

import json

import pytest

#: what is counted, on each rank
CALLS = """
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
x, y = np.full(50, rank, "f8"), np.zeros(50)
for _ in range(10):
    comm.Allreduce(x, y, algorithm="ring")
comm.Dup().Bcast(x)
for _ in range(3):
    comm.Iallreduce(x, y).Wait()
start = comm.Allreduce_init(x, y)
for _ in range(4):
    start.Start()
    start.Wait()
start.Free()
comm.Barrier()
comm.bcast(1)
comm.allreduce(1)
comm.Create_cart([size]).Neighbor_allgather(x[:1], np.zeros(2))
comm.Sendrecv(x, (rank + 1) % size, 0, y, (rank - 1) % size, 0)
for _ in range(2):
    try:
        comm.Allreduce(x, np.zeros(49))
    except ValueError:
        pass
"""


def rows(file):
    """The rows of a report that was written, by what became of a call and its method."""
    report = json.loads(file.read_text())
    return report, {(row["what"], row["call"]): row for row in report["calls"]}


@pytest.mark.parametrize("end", ["", "MPI.Finalize()"])
def test_the_report_counts_what_was_called(run, tmp_path, end):
    """Calls and bytes of all ranks; the time is that of one rank, which is less than the job takes."""
    job = run(CALLS, end, ranks=3, launch=("-m", "mpicoll", "run", "--json", "report.json"))
    assert job.code == 0, job.output
    report, found = rows(tmp_path / "report.json")
    assert (report["ranks"], report["reported"]) == (3, 3)
    numbers = {key: (row["calls"], row["bytes"]) for key, row in found.items()}
    assert numbers == {
        ("served", "Allreduce"): (30, 30 * 400),
        ("served", "Bcast"): (3, 3 * 400),
        ("served", "Neighbor_allgather"): (3, 3 * 2 * 8),
        ("served", "Iallreduce"): (9, 9 * 400),
        ("served", "Allreduce_init"): (3, 0),
        ("served", "Allreduce.Start"): (12, 12 * 400),
        ("served", "Wait"): (21, 0),
        ("served", "Barrier"): (3, 0),
        ("passed", "bcast"): (3, 0),
        ("passed", "allreduce"): (3, 0),
        ("messages", "Send, Recv ..."): (3, 0),
        ("raised", "Allreduce"): (6, 0),
    }
    assert found["served", "Allreduce"]["algorithm"] == "ring@host"
    assert "ValueError" in found["raised", "Allreduce"]["why"]
    assert all(0 < row["seconds"] < 60 for row in found.values())
    line = next(line for line in job.output.splitlines() if line.startswith("served") and " Allreduce " in line)
    seconds = f"{found['served', 'Allreduce']['seconds']:.4f}"
    assert line.split() == ["served", "Allreduce", "30", "12000", seconds, "ring@host"]
    assert "84 calls served, 6 passed to mpi4py, 6 raised; 3 of 3 ranks reported" in job.output


def test_a_rank_that_comes_late_is_not_waited_for_without_end(run):
    body = """
        import time
        if rank == 1:
            time.sleep(4)
    """
    job = run(CALLS, body, launch=("-m", "mpicoll", "run", "--report"), MPICOLL_TIMEOUT="1")
    assert job.code == 0, job.output
    assert "; 1 of 2 ranks reported; the others did not come in time" in job.output


def test_without_a_report_nothing_is_said(run):
    job = run(CALLS)
    assert (job.code, job.output) == (0, "")


def test_calls_in_a_group_are_counted_as_such(run, tmp_path):
    body = """
        import mpicoll
        comm.Allreduce(x, y)
        with mpicoll.group(comm):
            comm.Allreduce(x, y)
            comm.Allreduce(MPI.IN_PLACE, x)
    """
    begin = CALLS.partition("for _")[0]
    job = run(begin, body, launch=("-m", "mpicoll", "run", "--json", "report.json"))
    assert job.code == 0, job.output
    report, _ = rows(tmp_path / "report.json")
    assert sorted(row["calls"] for row in report["calls"]) == [2, 4]
    assert [row["calls"] for row in report["calls"] if row["algorithm"] == "made with its group"] == [4]
