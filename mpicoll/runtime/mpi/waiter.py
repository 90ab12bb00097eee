"""Waiting for messages: a rank spins in MPI, or gives its core away in between."""

from __future__ import annotations

import os
from collections.abc import Callable

from mpi4py import MPI

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


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
