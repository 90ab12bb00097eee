"""What advances programs, and where."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from mpicoll.runtime.program.bound import SYNC, Bound
from mpicoll.runtime.progress import operations, running, turns


@pytest.mark.parametrize("device", [0, 3])
def test_whoever_advances_a_blocking_call_does_so_on_its_device(monkeypatch, device):
    current, seen = [None], []

    @contextmanager
    def on_device(number):
        current.append(number)
        yield
        current.pop()

    monkeypatch.setattr(operations, "on_device", on_device)
    context = SimpleNamespace(calls=1, last={}, moved=0, check=lambda: None, refusals=None, spoiled=None)
    bound = Bound(device=device, limited=True)
    bound.add(SYNC, lambda: seen.append(current[-1]), poll=lambda: not seen.append(current[-1]))
    running.run(bound, context)
    assert seen == [device, device]
    assert not turns.in_flight
