"""The rescuer: the thread that ends calls which wait in MPI for a rank that has refused them."""

from __future__ import annotations

import threading
import time
from typing import Any

from mpi4py import MPI

from mpicoll.runtime.progress import turns
from mpicoll.runtime.progress.refusals import Refusals

#: seconds between two looks, at first and at most
SOON, SELDOM = 2e-3, 50e-3
#: seconds after which a refusal is told once more: whoever has heard it knows it, and words can be lost
AGAIN = (0.1, 0.5, 2.0)
#: seconds after a refusal to the last look
LAST = 10.0


class Rescuer(threading.Thread):
    """Looks after communicators on which a call was refused, until their ranks meet again.

    It sleeps before the first refusal, and makes no call of MPI's without one.

    Attributes:
        cases: the communicators' traffic, with the times that each was told of again.
    """

    _only: Rescuer | None = None
    _starts = threading.Lock()
    _ended = False

    def __init__(self) -> None:
        super().__init__(name="mpicoll-rescuer", daemon=True)
        self.cases: dict[Any, int] = {}
        self._work = threading.Event()

    @classmethod
    def wake(cls, traffic: Any) -> None:
        """Look after a communicator's traffic."""
        with cls._starts:
            if cls._ended:
                return
            if cls._only is None or not cls._only.is_alive():
                cls._only = cls()
                cls._only.start()
            cls._only.cases.setdefault(traffic, 0)
        cls._only._work.set()

    @classmethod
    def end(cls) -> None:
        """Leave MPI alone: for the end of a program."""
        with turns.lock:
            cls._ended = True

    def run(self) -> None:
        """Look, and sleep while there is no case."""
        while not self._ended:
            self._work.wait()
            self._work.clear()
            pause = SOON
            while self.cases and not self._ended:
                for traffic in tuple(self.cases):
                    if not self._look_after(traffic):
                        del self.cases[traffic]
                time.sleep(pause)
                pause = SOON if self._work.is_set() else min(1.1 * pause, SELDOM)
                self._work.clear()

    def _look_after(self, traffic: Any) -> bool:
        """End what waits in vain, and throw away what was sent in vain; tell whether to come back."""
        with turns.lock:
            refusals: Refusals = traffic.refusals
            pending = refusals.pending
            if pending is None or traffic.broken or self._ended or MPI.Is_finalized():
                return False
            waited = time.monotonic() - refusals.since
            self._tell_again(traffic, waited)
            if turns.of(traffic) or traffic.attempts < pending.number:
                return waited < LAST  # operations hear of it themselves; and earlier calls are not through
            if not traffic.caller:
                traffic.drain()
                return waited < LAST
            if refusals.is_due(traffic.attempts):
                traffic.rescue(pending)
            return True

    def _tell_again(self, traffic: Any, waited: float) -> None:
        """Tell the other ranks once more what this one has refused, where it is time to."""
        times = self.cases[traffic]
        if times < len(AGAIN) and waited > AGAIN[times] and not traffic.refusals.all_out:
            self.cases[traffic] = times + 1
            traffic.tell_again()
