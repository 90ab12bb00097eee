"""The tuner, and the tables that ranks find again: rank 0's user's tables are in force on all ranks."""

import re
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check, on_all
from mpi.cases import Case
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.measure.clock import Clock
from mpicoll.dispatch import tuning as dispatch_tuning
from mpicoll.dispatch.machine_facts import FACTS
from mpicoll.dispatch.table import parse_table
from mpicoll.runtime.context.contexts import context_of
from mpicoll.tuning.contenders import PROBES
from mpicoll.tuning.run import TunerOptions, run
from mpicoll.tuning.tuner import Tuner

everybody = MPI.COMM_WORLD
RANK, SIZE = everybody.rank, everybody.size
X, Y = np.zeros(16, "f4"), np.zeros(16, "f4")

pytestmark = pytest.mark.ranks(2, 3)


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch):
    """No table is set, and one is packaged, however many there are."""
    one = {"h200": dispatch_tuning.packaged()["h200"]}
    monkeypatch.setattr(dispatch_tuning, "packaged", lambda: one)
    dispatch_tuning.in_force.cache_clear()
    with mpicoll.override(tuning=""):
        yield
    dispatch_tuning.in_force.cache_clear()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of configuration for each rank; that of tables is made, and returned, on rank 0."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    tables = tmp_path / "mpicoll" / "tuning"
    if RANK == 0:
        tables.mkdir(parents=True)
    return tables if RANK == 0 else None


def first_plan():
    """The algorithm and the reason on a communicator that has made no call yet."""
    comm = mpicoll.Communicator(everybody.Dup())
    try:
        plan = comm.Get_plan("Allreduce", X, Y)
        return plan.algorithm, plan.reason
    finally:
        comm.Free()


def write(home, text, name="mine.rules"):
    if RANK == 0:
        (home / name).write_text(text, encoding="utf-8")
    everybody.Barrier()


def options(**changed):
    asked = {"calls": ("allreduce", "bcast"), "ranks": (), "seconds": 2.0, "longest": 1 << 14, "file": None}
    return TunerOptions(**{**asked, "buffers": "numpy", **changed})


# The tables in force.


def test_rank_0s_table_is_in_force_on_all_ranks_from_the_next_communicator_on(home):
    assert "tuning table" not in on_all(first_plan())[1]
    write(home, "allreduce:linear/3")
    file = everybody.bcast(str(home / "mine.rules") if RANK == 0 else None)
    assert on_all(first_plan()) == ("linear", f"tuning table {file}: allreduce:linear/3")


def test_tables_of_other_ranks_are_not_looked_at(home, tmp_path):
    if RANK > 0:
        mine = tmp_path / "mpicoll" / "tuning"
        mine.mkdir(parents=True)
        (mine / "mine.rules").write_text("allreduce:rings")
    assert "tuning table" not in on_all(first_plan())[1]


def test_a_table_of_another_machine_is_listed_and_not_used(home, comm):
    write(home, "machine:hosts=77\nallreduce:linear")
    comm.Barrier()
    tuning = context_of(comm).tuning()
    assert tuning.unused[0][1] == "hosts 77, here 1"
    assert "tuning table" not in on_all(comm.Get_plan("Allreduce", X, Y).reason)


def test_a_mistake_is_raised_on_all_ranks_until_it_is_mended(home, comm):
    write(home, "# mine\nallreduce:rings\n")
    file = everybody.bcast(str(home / "mine.rules") if RANK == 0 else None)
    text = f"{file}, line 2: 'allreduce:rings': allreduce: no algorithm 'rings'"
    for _ in range(2):
        with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
            comm.Allreduce(X, Y)
        everybody.Barrier()
    write(home, "# mine\nallreduce:linear\n")
    check(comm, Case("Allreduce"))
    assert on_all(comm.Get_plan("Allreduce", X, Y).algorithm) == "linear"


def test_a_mistake_in_a_file_that_is_set_is_raised_on_all_ranks(folder, comm):
    file = folder / "set"
    if RANK == 0:
        file.write_text("allreduce:8-64:p=two:ring")
    everybody.Barrier()
    text = f"the setting `tuning`, {file}, line 1: 'allreduce:8-64:p=two:ring': 'two' is not a number of ranks"
    with mpicoll.override(tuning=file), pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        comm.Allreduce(X, Y)
    check(comm, Case("Allreduce"))


@pytest.mark.parametrize("other", ["allreduce:ring\n", "\xff", None])
def test_files_of_one_name_with_other_contents_are_found(tmp_path, monkeypatch, comm, other):
    """As on hosts that do not share a disk; None: the last rank has no file."""
    monkeypatch.chdir(tmp_path)
    mine = "allreduce:linear\n" if RANK < SIZE - 1 else other
    if mine is not None:
        Path("mine.rules").write_bytes(mine.encode("latin-1"))
    text = "^setting 'content of the tuning table' is '1 lines, checksum [0-9a-f]{8}' on rank 0, "
    last = "'No such file or directory'" if other is None else "'1 lines, checksum [0-9a-f]{8}'"
    with (
        mpicoll.override(tuning="mine.rules"),
        pytest.raises(mpicoll.MismatchError, match=f"{text}{last} on rank {SIZE - 1}$"),
    ):
        comm.Barrier()
    Path("mine.rules").write_text("allreduce:linear\n")
    with mpicoll.override(tuning="mine.rules"):
        assert on_all(comm.Get_plan("Allreduce", X, Y).reason) == "tuning table mine.rules: allreduce:linear"


def test_a_communicator_keeps_the_file_as_it_was_when_it_was_compared(folder, comm):
    file = folder / "set"

    def put(text):
        everybody.Barrier()
        if RANK == 0:
            file.write_text(text)
        everybody.Barrier()

    with mpicoll.override(tuning=file):
        put("allreduce:linear")
        assert comm.Get_plan("Allreduce", X, Y).algorithm == "linear"
        put("allreduce:one_shot")
        assert on_all(comm.Get_plan("Allreduce", X[:8], Y[:8]).algorithm) == "linear"
        assert on_all(first_plan())[0] == "one_shot"


# The tuner.


def test_all_ranks_get_the_same_table_of_what_they_measured(comm):
    tuner = Tuner(comm, HostBackend(), Clock(everybody, True, lambda: None), 2.0)
    table = tuner.run(["allreduce", "bcast"], 1 << 14)
    assert parse_table(on_all(table.text()), "again").text() == table.text()
    assert {timing.collective for timing in table.timings} == {"allreduce", "bcast"}
    assert {timing.nbytes for timing in table.timings} >= {8, 1024, 1 << 14}
    assert all(timing.size == SIZE for timing in table.timings)
    assert any(len(timing.times) > 1 for timing in table.timings)
    assert all(0 < seconds < 1 for timing in table.timings for seconds in timing.times.values())
    assert table.models.keys() == {"host"}
    assert (str(table.machine), table.machine.hosts) == (str(context_of(comm).machine), "1")
    assert all(getattr(table.machine, name) for name in FACTS)
    for name in ("allreduce", "bcast"):
        mine = [rule for rule in table.rules if rule.collective == name]
        assert (mine[0].low, mine[-1].high) == (0, 1 << 62)
        assert all(rule.ranks == (SIZE, SIZE) for rule in mine)


def test_each_probe_measures_its_own_algorithm(comm, monkeypatch):
    """Two of them are of one call and size."""
    tuner, made = Tuner(comm, HostBackend(), Clock(everybody, True, lambda: None), 2.0), []
    monkeypatch.setattr(Tuner, "_fit", lambda self: None)
    choose = Tuner._choices
    monkeypatch.setattr(Tuner, "_choices", lambda self, *given: made.append(given[1]) or choose(self, *given))
    tuner._probe()
    assert made == [algorithm for _, algorithm, nbytes in PROBES for _ in nbytes]
    assert not tuner.met


def test_a_visit_that_took_too_long_leaves_the_others_less(comm, monkeypatch):
    """All sizes are measured once; then the time is over."""
    tuner, begun = Tuner(comm, HostBackend(), Clock(everybody, True, lambda: None), 0.05), []
    measure = Tuner._measure

    def noted(self, *given, **named):
        begun.append((self.visit, given[1]))
        return measure(self, *given, **named)

    monkeypatch.setattr(Tuner, "_measure", noted)
    tuner.run(["bcast"], 1 << 12)
    assert {visit for visit, _ in begun} == {0}
    assert {nbytes for _, nbytes in begun} >= {nbytes for _, nbytes in tuner.plan} >= {8, 1024, 1 << 12}


def test_what_was_tuned_is_found_again(home, capfd):
    assert on_all(run(options())) == 0
    files = everybody.bcast(sorted(map(str, home.iterdir())) if RANK == 0 else None)
    (file,) = files
    out = capfd.readouterr().out
    assert (f"written to {file}" in out) is (RANK == 0)
    algorithm, reason = on_all(first_plan())
    assert reason.startswith(f"tuning table {file}: allreduce:")
    assert f"p={SIZE}:mem=host:{algorithm}" in reason
    assert "cost model" in mpicoll.plan("allreduce", size=SIZE + 9, nbytes=8).reason
    again = on_all(run(options(calls=("reduce",))))
    assert again == 0
    if RANK == 0:
        table = parse_table(Path(file).read_text(), file)
        assert {rule.collective for rule in table.rules} == {"allreduce", "bcast", "reduce"}


@pytest.mark.ranks(3)
def test_fewer_ranks_are_tuned_while_the_others_wait(home, folder, capfd):
    file = folder / "both.rules"
    assert on_all(run(options(ranks=(2, 3), calls=("bcast",), file=file))) == 0
    assert on_all(file.read_text()).startswith("# mpicoll ")
    table = parse_table(file.read_text(), str(file))
    assert {timing.size for timing in table.timings} == {2, 3}
    assert {rule.ranks for rule in table.rules} == {(2, 2), (3, 3)}
    if RANK == 0:
        assert not list(home.iterdir())
        assert f"MPICOLL_TUNING={file}" in capfd.readouterr().out


REFUSED = {
    "too many ranks": ({"ranks": (2, 99)}, "--ranks 99: there are "),
    "one rank": ({"ranks": (1,)}, "--ranks 1: there are "),
    "no folder": ({"file": Path("/dev/null/mine.rules")}, "File exists: '/dev/null'"),
    "something else": ({"file": Path(__file__)}, "line 1: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_on_all_ranks_before_anything_is_measured(name, capfd, monkeypatch):
    asked, why = REFUSED[name]
    monkeypatch.setattr(Tuner, "run", lambda *_: pytest.fail("it measures"))
    assert on_all(run(options(**asked))) == 2
    error = capfd.readouterr().err
    assert (error.startswith("mpicoll tune: ") and why in error) if RANK == 0 else not error


def test_the_budget_is_kept_even_if_it_is_hardly_any(folder, capfd):
    file = folder / "short.rules"
    begin = MPI.Wtime()
    assert on_all(run(options(seconds=0.01, calls=("bcast",), file=file))) == 0
    assert on_all(parse_table(file.read_text(), "").text())
    assert MPI.Wtime() - begin < 60
