"""MPI's own collectives as a user gets them: `run --native`, and a table of `tune --native`."""

import json

PROGRAM = """
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
x, y = np.ones(500), np.zeros(500)
for _ in range(5):
    comm.Allreduce(x, y)
    assert (y == comm.size).all()
comm.Allreduce(x, y, MPI.MAX)
comm.Iallreduce(x, y).Wait()
assert (y == comm.size).all()
"""


def test_a_program_runs_on_mpi_s_own_collectives_where_they_do_the_same(run, tmp_path):
    """The setting reaches the program and its subprocesses by the environment."""
    job = run(PROGRAM, launch=("-m", "mpicoll", "run", "--native", "--json", "report.json"))
    assert job.code == 0, job.output
    calls = json.loads((tmp_path / "report.json").read_text())["calls"]
    found = {(one["call"], one["algorithm"]): one["calls"] for one in calls if one.get("algorithm")}
    assert found.pop(("Allreduce", "native@host")) == 10
    assert {call: number for (call, _), number in found.items()} == {"Allreduce": 2, "Iallreduce": 2, "Wait": 2}
    assert not any("native" in algorithm for _, algorithm in found)


def test_without_it_no_call_is_mpi_s_own(run, tmp_path):
    assert run(PROGRAM, launch=("-m", "mpicoll", "run", "--json", "report.json")).code == 0
    assert "native" not in (tmp_path / "report.json").read_text()


def test_a_table_of_tune_native_has_the_times_of_mpi_s_own(run, tmp_path):
    """The table is in force without the setting."""
    options = ["--native", "--op", "allreduce,bcast", "--max", "1K", "--budget", "2", "--write", "t.rules"]
    job = run("", launch=("-m", "mpicoll", "tune", *options), arguments=())
    assert job.code == 0, job.output
    table = (tmp_path / "t.rules").read_text()
    measured = [line for line in table.splitlines() if line.startswith("measured:")]
    assert len(measured) > 3
    assert all(":native=" in line for line in measured), table
    program = """
    import mpicoll, numpy as np
    from mpi4py import MPI

    comm = mpicoll.Communicator(MPI.COMM_WORLD)
    plan = comm.Get_plan("Allreduce", np.ones(500), np.zeros(500))
    assert plan.reason.startswith("tuning table"), plan
    print(plan.line)
    """
    job = run(program, launch=(), MPICOLL_TUNING=str(tmp_path / "t.rules"))
    assert job.code == 0, job.output
