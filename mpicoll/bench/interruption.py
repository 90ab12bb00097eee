"""A signal ends the run at once, and what was measured is said and kept."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

#: signals that end a run: Ctrl-C, and a launcher or a time limit that ends the job
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: seconds in which the launcher passes on what a rank printed: MPICH's drops what it has not read by the end
FORWARDED = 0.5


class Interruption:
    """Between `with` and its end, a signal calls a function and ends this process.

    A thread waits for it: the main one may be inside MPI, where Python runs no handlers.  It takes no time while
    it waits.

    Args:
        say: is told the signal's name, in that thread.
        patience: seconds until then: rank 0 is first, for the job ends with the first process.
    """

    def __init__(self, say: Callable[[str], None], patience: float = 0.0) -> None:
        self.say, self.patience, self.said = say, patience, False

    def __enter__(self) -> Interruption:
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)
        self._handlers = {number: signal.signal(number, self._stop) for number in SIGNALS}
        self._before = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()
        return self

    def _wait(self) -> None:
        while number := self._heard.recv(1)[0]:
            if number in SIGNALS:
                time.sleep(self.patience)
                self.say(signal.Signals(number).name)
                self.said = True
                signal.raise_signal(number)
                time.sleep(FORWARDED)
                os._exit(128 + number)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Hold the main thread once all is said, not before: it may hold a lock that is needed to say it."""
        if self.said:
            time.sleep(2 * FORWARDED)

    def __exit__(self, *exception: object) -> None:
        signal.set_wakeup_fd(self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._told.send(b"\0")
        self._thread.join()
        self._heard.close()
        self._told.close()
