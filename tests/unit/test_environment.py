"""What is set before MPI starts: on a machine with a driver and a UCX wheel, both made up."""

import os
import sys
from types import SimpleNamespace

import pytest

from mpicoll import info
from mpicoll.runtime.mpi import environment
from mpicoll.runtime.mpi.environment import VARIABLES, Preparation, Variable, prepare

FAST = Variable("UCX_MADE_UP", "fast", "UCX", "it is fast", "8 B in 10, not 21 us, 4 GPUs", needed=False)


@pytest.fixture
def loaded(monkeypatch):
    """Names of what was loaded; nothing is set, MPI has not started."""
    calls = []
    monkeypatch.setitem(sys.modules, "libucx", SimpleNamespace(load_library=lambda: calls.append("ucx")))
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    monkeypatch.setattr(environment, "has_driver", lambda: True)
    monkeypatch.setattr(environment, "_libucx_version", lambda: "1.22.0")
    monkeypatch.setattr(environment, "VARIABLES", (*VARIABLES, FAST))
    monkeypatch.setattr(info, "VARIABLES", (*VARIABLES, FAST))
    mine = Preparation()
    for module in (environment, info):
        monkeypatch.setattr(module, "prepared", mine)
    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k not in names()})
    return calls


def names():
    return [row.name for row in environment.VARIABLES]


def test_all_are_set_once(loaded):
    done = prepare()
    assert loaded == ["ucx"]
    assert done.variables == {row.name: os.environ[row.name] for row in environment.VARIABLES}
    assert done.variables["UCX_MADE_UP"] == "fast"
    assert prepare() is done
    assert loaded == ["ucx"]


def test_each_can_be_overridden(loaded):
    for name in names():
        os.environ[name] = "mine"
    done = prepare()
    assert done.overridden == dict.fromkeys(names(), "mine")
    assert not done.variables
    assert all(os.environ[name] == "mine" for name in names())


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("has_driver", lambda: False, "no NVIDIA driver"),
        ("_libucx_version", lambda: "", "no libucx wheel"),
    ],
)
def test_nothing_is_set_in_vain(loaded, monkeypatch, name, value, reason):
    monkeypatch.setattr(environment, name, value)
    assert reason in prepare().reason
    assert not loaded
    assert not set(names()) & set(os.environ)


@pytest.mark.case("MEMTYPE-EARLY")
def test_too_late(loaded, monkeypatch):
    """The reason says that MPI was imported first, and nothing is set."""
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace())
    assert "import mpicoll before mpi4py.MPI" in prepare().reason
    assert not set(names()) & set(os.environ)


def test_the_report_gives_the_reason_of_each(loaded):
    os.environ["UCX_MADE_UP"] = "slow"
    prepare()
    lines = dict(info._prepared())
    assert lines["  set OMPI_MCA_pml"].startswith("ucx (Open MPI: ")
    assert lines["  kept UCX_MADE_UP"].startswith("slow (set by you, not fast; UCX: it is fast; 8 B in 10")
    assert len(lines) == len(names())


def test_rows_say_why():
    assert all(row.why and row.reader in ("Open MPI", "MPICH", "UCX") for row in VARIABLES)
    assert len(set(names())) == len(VARIABLES)
    for row in VARIABLES:
        assert row.needed or row.measured, "what is set for speed was measured"
