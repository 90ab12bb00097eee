"""Turns: who makes progress with the operations in flight, and when.

Every call that waits advances all operations of this process in turn.  So no order of waiting
can make two ranks wait for each other.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

#: seconds that the helper thread leaves to others between two looks
PAUSE = 20e-6
lock = threading.RLock()


#: the operations in flight (see `progress.py`); always the same list
in_flight: list[Any] = []
#: True while operations are advanced for nobody who waits
aside = [False]
#: times that somebody has advanced operations and was not through
looks = [0]


class Helper(threading.Thread):
    """Makes progress while the program does something else; costs it the interpreter's lock now and then."""

    _only: Helper | None = None

    def __init__(self) -> None:
        super().__init__(name="mpicoll-progress", daemon=True)
        self.work = threading.Event()

    @classmethod
    def wake(cls) -> None:
        """Go on making progress until nothing is in flight."""
        if cls._only is None or not cls._only.is_alive():
            cls._only = cls()
            cls._only.start()
        cls._only.work.set()

    def run(self) -> None:
        """Advance all operations, and sleep while there are none."""
        while True:
            self.work.wait()
            while in_flight:
                advance_all()
                time.sleep(PAUSE)
            self.work.clear()


def of(traffic: Any) -> list[Any]:
    """Return the operations in flight on a communicator."""
    return [operation for operation in tuple(in_flight) if operation.traffic is traffic]


def advance_all() -> None:
    """Advance all operations in flight."""
    looks[0] += 1
    with lock:
        for operation in tuple(in_flight):
            operation.advance()


def advance_aside() -> None:
    """Advance all operations in flight, for nobody who waits: time limits do not count."""
    with lock:
        aside[0] = True
        try:
            advance_all()
        finally:
            aside[0] = False


def wait_for(done: Callable[[], bool]) -> None:
    """Make progress until done() is true."""
    while not done():
        advance_all()
        os.sched_yield()


def drain(seconds: float) -> None:
    """Go on for so long, or until nothing is in flight: for the end of a program."""
    end = time.monotonic() + seconds
    while in_flight and time.monotonic() < end:
        advance_all()
        os.sched_yield()
