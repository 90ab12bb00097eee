"""Waiting for messages: a rank tests them in a loop, gives its core away in between, and looks up from time to time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mpi4py import MPI

#: tests before a waiting rank gives its core away for the first time
PATIENCE = 4
#: tests before a rank that has a core of its own does anything else: some milliseconds
SPINS = 20_000
#: tests from one look up to the next
ROUNDS = 256


class Waiter:
    """Makes calls that wait for requests.

    Attributes:
        yielding: yield the core between tests, or spin.
        heed: is told now and then for how many seconds a call has waited; raises what there is to hear.
    """

    def __init__(self, yielding: bool, heed: Callable[[float], None] = lambda seconds: None) -> None:
        self.yielding, self.heed = yielding, heed

    def waiter(self, requests: list[MPI.Prequest]) -> Callable[[], object]:
        """Return a call that waits for all the requests."""
        test, wait, tests = self.poll(requests), self._wait, range(PATIENCE if self.yielding else SPINS)

        def waiting() -> None:
            for _ in tests:
                if test():
                    return
            wait(test)

        return waiting

    def poll(self, requests: list[MPI.Prequest]) -> Callable[[], bool]:
        """Return a call that tells whether the requests are complete."""
        if len(requests) == 1:
            return requests[0].Test
        test = MPI.Request.Testall
        return lambda: test(requests)

    def _wait(self, test: Callable[[], bool]) -> None:
        """Wait for somebody who is late."""
        begin = time.monotonic()
        while True:
            for _ in range(ROUNDS):
                if self.yielding:
                    os.sched_yield()
                if test():
                    return
            self.heed(time.monotonic() - begin)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
