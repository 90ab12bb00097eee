"""`--regret` on every rank: a row for each cell, and what is said of all of them at the end."""

import pytest
from mpi4py import MPI

from mpicoll.bench.output.results import read
from mpicoll.bench.request.cases import CALLS
from mpicoll.bench.request.jobs import BETWEEN
from mpicoll.bench.run import run

WORLD = MPI.COMM_WORLD
SIZE = WORLD.size
pytestmark = pytest.mark.ranks(2, 3)


def regret(folder, arguments):
    """Measure regret; return the status and the file on all ranks."""
    file = folder / "results.json"
    status = run([*arguments.split(), "--regret", "--buffers", "numpy", "--json", str(file)])
    assert WORLD.allgather(status) == [status] * SIZE
    return status, WORLD.bcast(read(file) if WORLD.rank == 0 else None, root=0)


def test_each_cell_has_a_row_on_each_number_of_ranks(folder, capfd):
    numbers = sorted({2, SIZE})
    status, found = regret(
        folder, f"--op allreduce,bcast --bytes 24,1200 --budget 12 --ranks {','.join(map(str, numbers))}"
    )
    assert (status, found["end"]["verdict"]) == (0, "measured")
    cells = [(n, op, nbytes) for n in numbers for op in ("allreduce", "bcast") for nbytes in (24, 1200)]
    assert [(row["ranks"], row["op"], row["bytes"]) for row in found["rows"]] == cells
    for row in found["rows"]:
        assert row["in_place"] == CALLS[row["op"]].forms[0]
        assert (row["asked"], row["mode"], row["wrong"]) == ("auto", "regret", None)
        assert len(row["times"]) > 1
        assert row["figures"]["regret"]["value"] >= row["figures"]["regret, ties as 0"]["value"] >= 0
    title = f"{len(cells)} cells; regret in %: mean, 95 % of the cells, worst (goals 3, 10, 25)"
    assert found["end"]["notes"][0] == title
    if WORLD.rank == 0:
        assert capfd.readouterr().out.count(f"# {title}") == 1


def test_what_is_measured_before_the_budget_is_spent_is_summed_up(folder):
    status, found = regret(folder, "--op allreduce,reduce,allgather,scan --budget 0.5")
    assert (status, found["end"]["verdict"]) == (3, "interrupted")
    assert found["end"]["of"] == 4 * len(BETWEEN)
    assert found["end"]["notes"][0].startswith(f"{found['end']['measured']} cells; ")
