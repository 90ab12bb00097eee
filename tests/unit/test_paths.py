"""A path from two rows and one class: everything else, from rules to persistent calls, takes it from there."""

import re
from pathlib import Path as File

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.analysis.cost import CostModel
from mpicoll.dispatch.paths import PATHS, PathRow, serving, wanted
from mpicoll.runtime.paths import table
from mpicoll.runtime.paths.base import Path
from mpicoll.runtime.program.bound import LAUNCH

#: what the path below was asked to do
DONE = []
ROOT = File(mpicoll.__file__).parent
#: the files in which a path has its rows; what it does is beside them
ROWS = {"dispatch/paths.py", "runtime/paths/table.py"}


class NothingPath(Path):
    """Moves nothing, and notes that it was asked to."""

    name = "nothing"

    def bind(self, bound, plan, operands, context, stream, slot, then):
        bound.add(LAUNCH, lambda: DONE.append((operands.method, slot.lane)), *then)


@pytest.fixture
def plugged(monkeypatch):
    """Plug it in."""
    row = PathRow("nothing", "host", CostModel(1.0, 0.0, 0.0, 0.0, 0.0, source="made up, never the best"))
    monkeypatch.setitem(PATHS, "nothing", row)
    monkeypatch.setitem(table.CLASSES, "nothing", (__name__, "NothingPath"))
    DONE.clear()
    yield
    table.path.cache_clear()


@pytest.fixture
def comm(plugged):
    made = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    yield made
    made.Free()


def test_a_call_that_names_it_takes_it(comm):
    x, y = np.ones(3), np.zeros(3)
    comm.Allreduce(x, y, algorithm="linear@nothing")
    assert (DONE, y.tolist()) == ([("allreduce", 0)], [0] * 3)
    comm.Allreduce(x, y, algorithm="linear@host")
    comm.Allreduce(x, y)  # the cost model does not choose it
    assert (DONE, y.tolist()) == ([("allreduce", 0)], [1] * 3)


def test_a_plan_names_it(comm):
    x, y = np.ones(3), np.zeros(3)
    plan = comm.Get_plan("Allreduce", x, y, algorithm="linear@nothing")
    assert (plan.path, plan.algorithm, plan.segments) == ("nothing", "linear", 1)
    assert "path nothing" in str(plan)
    assert {one.choice.path for one in plan.candidates() if one.seconds} == {"host", "nothing"}
    assert mpicoll.plan("allreduce", nbytes=8, size=4, algorithm="ring@nothing").path == "nothing"
    assert not DONE


def test_a_setting_chooses_it(comm):
    x, y = np.ones(3), np.zeros(3)
    with mpicoll.override(path="nothing"):
        comm.Allreduce(x, y)
        assert comm.Get_plan("Allreduce", x, y).path == "nothing"
    comm.Allreduce(x, y)
    assert (len(DONE), y.tolist()) == (1, [1] * 3)


def test_a_rule_chooses_it(comm):
    x, y = np.ones(3), np.zeros(3)
    with mpicoll.override(algorithms="allreduce:0-64:linear@nothing"):
        comm.Allreduce(x, y)
    assert len(DONE) == 1


@pytest.mark.parametrize("times", [1, 3])
def test_all_forms_run_through_it(comm, times):
    x, y, chosen = np.ones(3), np.zeros(3), {"algorithm": "linear@nothing"}
    for _ in range(times):
        comm.Allreduce(x, y, **chosen)
        comm.Iallreduce(x, y, **chosen).Wait()
    request = comm.Allreduce_init(x, y, **chosen)
    for _ in range(times):
        request.Start()
        request.Wait()
    request.Free()
    assert [lane for _, lane in DONE] == [0] * 2 * times + [1] * times
    assert y.tolist() == [0] * 3


def test_an_average_divides_after_it(comm):
    y = np.full(3, 6.0)
    comm.Allreduce(MPI.IN_PLACE, y, mpicoll.AVG, algorithm="linear@nothing")
    assert (len(DONE), y.tolist()) == (1, [6] * 3)  # by one rank


def test_a_path_that_cannot_take_a_call_says_why(comm, monkeypatch):
    monkeypatch.setattr(NothingPath, "unoffered", lambda *_: "there is nothing to do")
    x, y = np.ones(3), np.zeros(3)
    assert "path nothing is not offered: there is nothing to do" in str(comm.Get_plan("Allreduce", x, y))
    with pytest.raises(mpicoll.UnsupportedError, match="path 'nothing' cannot serve host arrays here; usable: host"):
        comm.Allreduce(x, y, algorithm="linear@nothing")
    with mpicoll.override(path="nothing"):  # which is taken where it can be
        comm.Allreduce(x, y)
    assert (DONE, y.tolist()) == ([], [1] * 3)


@pytest.mark.parametrize("errors", ["", "agree"])
@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce", "Allreduce_init", "Get_plan"])
def test_a_name_that_no_path_has_is_refused_where_it_is_read(form, errors):
    comm, x, y = mpicoll.Communicator(MPI.COMM_SELF.Dup()), np.ones(3), np.zeros(3)
    arguments = ("Allreduce", x, y) if form == "Get_plan" else (x, y)
    chosen = {"path": "nothing"} | ({"errors": errors} if errors else {})
    with mpicoll.override(**chosen), pytest.raises(ValueError, match=r"unknown path 'nothing'; known: host, mapped"):
        request = getattr(comm, form)(*arguments)
        request.Wait()
    comm.Allreduce(x, y)
    assert y.tolist() == [1] * 3
    comm.Free()


def test_a_name_of_a_path_is_known_by_its_row_alone(plugged):
    assert serving("host") == ("host", "nothing")
    with mpicoll.override(path="nothing"):
        assert wanted() == "nothing"
    assert set(PATHS) == set(table.CLASSES)


def test_no_other_file_names_a_path():
    """But the paths' own, and `host` for a kind of memory."""
    named = {}
    for file in ROOT.rglob("*.py"):
        where = file.relative_to(ROOT).as_posix()
        if where.startswith(("runtime/paths/", "bench/")) or where in ROWS:
            continue
        names = set(re.findall(r"[\"'](mapped|direct|staged)[\"']", file.read_text()))
        if names:
            named[where] = names
    assert not named
