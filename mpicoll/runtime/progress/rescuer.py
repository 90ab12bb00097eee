"""The rescuer: the thread that looks after communicators on which a rank has refused a call."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from mpi4py import MPI

from mpicoll.runtime.progress import turns

#: seconds between two looks, at first and at most
SOON, SELDOM = 2e-3, 50e-3
#: seconds after which a rank's own notice is told once more: words can be lost
AGAIN = (0.1, 0.5, 2.0)
#: seconds for which a call that waits in vain is tried to be ended, before the job is
LAST = 10.0


@dataclass
class Rescue:
    """A communicator that is looked after.

    Attributes:
        state: calls and steps made on it at the last look.
        since: when they were as many for the first time, in seconds of time.monotonic().
        told: ordinal of this rank's own notice that is told, and how often it was.
        began: when that was told first.
        vain: when a call was found that waits in vain.
    """

    state: tuple[int, int] = (-1, -1)
    since: float = 0.0
    told: tuple[int, int] = (0, 0)
    began: float = field(default_factory=time.monotonic)
    vain: float | None = None

    def waited(self, traffic: Any) -> float | None:
        """Return the seconds for which this rank has not gone on in a call, None while it is in none."""
        now, state = time.monotonic(), (traffic.calls, traffic.moved)
        if state != self.state:
            self.state, self.since = state, now
        return now - self.since if traffic.caller or turns.of(traffic) else None

    def tell(self, traffic: Any) -> bool:
        """Tell this rank's own notice, if it is time to; tell whether there is more to be told."""
        own = traffic.notices.own
        if own is None:
            return False
        if own.ordinal != self.told[0]:
            self.told, self.began = (own.ordinal, 0), time.monotonic()
        times = self.told[1]
        if times < len(AGAIN) and time.monotonic() - self.began >= AGAIN[times] and traffic.tell_own():
            self.told = own.ordinal, times + 1
        return self.told[1] < len(AGAIN)


class Rescuer(threading.Thread):
    """Looks after communicators of which there is a notice, until it does not matter any more.

    It sleeps before the first notice, and makes no call of MPI's before one waits in vain.

    Attributes:
        rescues: by communicator's traffic.
    """

    _only: Rescuer | None = None
    _starts = threading.Lock()
    _ended = False

    def __init__(self) -> None:
        super().__init__(name="mpicoll-rescuer", daemon=True)
        self.rescues: dict[Any, Rescue] = {}
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
            cls._only.rescues.setdefault(traffic, Rescue())
        cls._only._work.set()

    @classmethod
    def end(cls) -> None:
        """Leave MPI alone: for the end of a program."""
        with turns.lock:
            cls._ended = True

    def run(self) -> None:
        """Look, and sleep while there is no rescue."""
        while not self._ended:
            self._work.wait()
            self._work.clear()
            pause = SOON
            while self.rescues and not self._ended:
                if self._work.is_set():  # there is news
                    self._work.clear()
                    pause = SOON
                for traffic, rescue in tuple(self.rescues.items()):
                    if not self._look_after(traffic, rescue):
                        self.rescues.pop(traffic, None)
                time.sleep(pause)
                pause = min(1.1 * pause, SELDOM)

    def _look_after(self, traffic: Any, rescue: Rescue) -> bool:
        """Tell what is to be told, and end what waits in vain; tell whether to come back."""
        with turns.lock:
            if self._ended or traffic.freed or MPI.Is_finalized():
                return False
            more = rescue.tell(traffic)
            waited = rescue.waited(traffic)
            if rescue.vain is None and traffic.find_out(waited):
                rescue.vain = time.monotonic()
            if rescue.vain is not None:
                return self._ends(traffic, waited, time.monotonic() - rescue.vain) or more
            return more or (bool(traffic.notices.heard) and not traffic.broken)

    @staticmethod
    def _ends(traffic: Any, waited: float | None, seconds: float) -> bool:
        """End the blocking call that waits in vain, for so long; operations end themselves.  Tell whether one waits."""
        if waited is None:
            return False
        if seconds > LAST:
            traffic.end_job()
        if not turns.of(traffic):
            traffic.rescue()
        return True
