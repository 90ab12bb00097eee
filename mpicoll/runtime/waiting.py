"""How a rank waits for messages: spinning in MPI, or giving its core away in between."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi4py import MPI

from mpicoll.settings import settings

if TYPE_CHECKING:
    from mpicoll.runtime.channel import Channel

#: tests before a waiting rank gives its core away for the first time
PATIENCE = 4


class Waiter:
    """Makes calls that wait for requests."""

    def __init__(self, yielding: bool) -> None:
        """Yield the core between tests, or spin."""
        self.yielding = yielding

    def waiter(self, requests: list[MPI.Prequest]) -> Callable[[], object]:
        """Return a call that waits for all the requests."""
        if self.yielding:
            return lambda: _wait_yielding(requests)
        if len(requests) == 1:
            return requests[0].Wait
        wait = MPI.Request.Waitall
        return lambda: wait(requests)

    def poll(self, requests: list[MPI.Prequest]) -> Callable[[], bool]:
        """Return a call that tells whether the requests are complete."""
        if len(requests) == 1:
            return requests[0].Test
        test = MPI.Request.Testall
        return lambda: test(requests)


def _wait_yielding(requests: list[MPI.Prequest]) -> None:
    test, patience = MPI.Request.Testall, PATIENCE
    while not test(requests):
        patience -= 1
        if patience < 0:
            os.sched_yield()


def wait_limited(done: Callable[[], bool], channel: Channel, what: Callable[[], str]) -> None:
    """Wait until done() is true; raises StalledError after the time limit, if there is one."""
    limit, watch = settings.timeout, channel.watch
    end = time.monotonic() + limit if watch and limit > 0 else math.inf
    while not done():
        if watch:
            watch.look()
            if time.monotonic() > end:
                raise channel.stalled(f"{what()} for {limit:g} s")
        os.sched_yield()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))
