"""`python -m mpicoll warm`: every kind of call is made, here on host arrays, where nothing is compiled."""

import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.__main__ import main
from mpicoll.bench import warm
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.request.cases import CALLS

WORLD = MPI.COMM_WORLD
SIZE = WORLD.Get_size()


def test_every_kind_of_call_is_there():
    """Movement once; reductions with each dtype and operator."""
    todo = list(warm.cases(("float32", "int64"), ("SUM", "MAX"), 1 << 10, SIZE))
    kinds = {(case.call.method, case.dtype, case.redop, in_place) for case, in_place in todo}
    combined = [(dtype, op) for dtype in ("float32", "int64") for op in ("SUM", "MAX")]
    for call in CALLS.values():
        types = combined if call.row.reducing else [("float32", "")] if call.method != "Barrier" else []
        assert {kind[1:] for kind in kinds if kind[0] == call.method} == {(*t, f) for t in types for f in call.forms}
    assert {case.nbytes for case, _ in todo if case.call.method == "Bcast"} == {8 << k for k in range(8)}


def test_all_calls_are_made(monkeypatch):
    comm, made = mpicoll.Communicator(WORLD.Dup()), []

    def noted(name, call):
        return lambda *given, **named: made.append(name) or call(*given, **named)

    for name in {call.method for call in CALLS.values()}:
        monkeypatch.setattr(comm, name, noted(name, getattr(comm, name)))
    todo = list(warm.cases(("float32",), ("SUM",), 64, SIZE))
    assert warm.warm(comm, HostBackend(), todo, quiet=True) == len(todo)
    assert made == [case.call.method for case, _ in todo]
    comm.Free()


def test_without_a_gpu_there_is_nothing_to_compile(monkeypatch, capsys):
    from mpicoll.bench.measure import backends

    monkeypatch.setattr(backends, "devices", lambda: (0, "no NVIDIA driver on this machine"))
    assert main(["warm"]) == 2
    said = capsys.readouterr().err
    assert ("no NVIDIA driver on this machine): there is nothing to compile" in said) == (not WORLD.rank)


@pytest.mark.parametrize("wrong", [["--dtype", "float33"], ["--redop", "times"], ["--max", "much"]])
def test_what_is_misspelt_is_refused(wrong, capsys):
    assert main(["warm", *wrong]) == 2
    assert "mpicoll: " in capsys.readouterr().err
