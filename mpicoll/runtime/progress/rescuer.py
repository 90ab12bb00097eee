"""The rescuer: the thread that looks after communicators on which a rank has refused a call."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
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
#: seconds for which calls are looked for that may have begun when it was found that they wait in vain
LINGER = 1.0


@dataclass
class Rescue:
    """A communicator that is looked after.

    Attributes:
        state: calls and steps made on it at the last look.
        looks: times that somebody had advanced operations then.
        since: when somebody began to wait in that state, in seconds of time.monotonic().
        told: ordinal of this rank's own notice that is told, and how often it was.
        began: when that was told first.
        vain: when it was found that calls wait in vain.
    """

    state: tuple[int, int] = (-1, -1)
    looks: int = -1
    since: float = 0.0
    told: tuple[int, int] = (0, 0)
    began: float = field(default_factory=time.monotonic)
    vain: float | None = None

    def waited(self, traffic: Any) -> float | None:
        """Return the seconds for which this rank has waited in a call and not gone on, None while it is in none.

        What is in flight while the program does something else does not wait.
        """
        now, state, looks = time.monotonic(), (traffic.calls, traffic.moved), turns.looks[0]
        if state != self.state or not (traffic.caller or looks != self.looks):
            self.state, self.since = state, now
        self.looks = looks
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
                rescuer = cls()
                try:
                    rescuer.start()
                except RuntimeError:  # there can be no more threads: the caller has an error of its own to raise
                    return
                cls._only = rescuer
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
                for traffic in tuple(self.rescues):
                    rescue = self.rescues.pop(traffic)  # so that one that comes again meanwhile is looked at again
                    with suppress(Exception):  # of one communicator, which the others must not suffer from
                        if self._look_after(traffic, rescue):
                            self.rescues[traffic] = rescue
                time.sleep(pause)
                pause = min(1.1 * pause, SELDOM)

    def _look_after(self, traffic: Any, rescue: Rescue) -> bool:
        """Tell what is to be told, and end what waits in vain; tell whether to come back."""
        with turns.lock:
            if self._ended or traffic.freed or MPI.Is_finalized():
                return False
            more = rescue.tell(traffic)
            waited = rescue.waited(traffic)
            traffic.find_out(waited)
            if traffic.vain is not None:
                return self._ends(traffic, rescue, waited) or more
            return more or (bool(traffic.notices.heard) and not traffic.broken)

    @staticmethod
    def _ends(traffic: Any, rescue: Rescue, waited: float | None) -> bool:
        """End the blocking call that waits in vain, if there is one; operations end themselves.

        Tell whether to come back: a call may have begun while it was found out.
        """
        now = time.monotonic()
        rescue.vain = rescue.vain or now
        if traffic.caller and waited is not None:
            if waited > LAST:
                traffic.end_job()
            if not turns.of(traffic):
                traffic.rescue()
        return waited is not None or now - rescue.vain < LINGER
