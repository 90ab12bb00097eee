"""The roll call: ranks are asked by UDP whether they have made a call, and told which calls others have refused.

Neither a dead rank nor a stuck MPI is in the way.  A process has one desk: a thread that answers at any time for this
process's own calls.  A rank that has waited too long asks the desks of the others.

    question   {"to": token, "nonce": n, "id": communicator, "birth": [group, ordinal]}
    answer     {"nonce": n, "calls": 7, "moved": 1203, "busy": false, "waiting": true, "outside": 12.5,
                "last": [a row for each of the last calls]}
    goodbye    {"to": token, "left": 3}
    notice     {"to": token, "id": communicator, "notice": [fields of a Notice]}
"""

from __future__ import annotations

import json
import math
import secrets
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

from mpicoll.recorder.history import CallRecord
from mpicoll.recorder.recorder import Recorder

#: seconds that a rank waits for the others' answers, and between two questions to the same rank
GRACE, AGAIN = 0.5, 0.1
#: ranks up to which each tells all others that it is at its end: more would drown each other
MOST_TOLD = 512
#: bytes of the longest question or answer
LONGEST = 4096


@dataclass(frozen=True)
class Address:
    """The network address of a desk: host name, IP, port, and the token that a question must carry."""

    host: str
    ip: str
    port: int
    token: str


@dataclass(frozen=True)
class Answer:
    """A rank's word on itself.

    Attributes:
        calls: calls that it has made on the communicator, -1 if not even the first.
        moved: steps that its calls there have made.
        busy: it is in local work of a call there, such as an operator.
        waiting: it waits in a call there that has a limit of its own.
        outside: seconds since a call there ended on it, inf if none has.
        last: the calls that it has made last there, and a later one elsewhere, as `CallRecord.row` gives them.
    """

    calls: int
    moved: int = 0
    busy: bool = False
    waiting: bool = False
    outside: float = math.inf
    last: tuple[list[Any], ...] = ()

    def records(self, now: float) -> list[CallRecord]:
        """Return its last calls, in seconds of this host's clock."""
        return [CallRecord.from_row(row, now) for row in self.last]


class Asked(Protocol):
    """The part of a communicator's context that a desk tells of."""

    calls: int
    moved: int
    busy: bool
    ended: float
    recorder: Recorder

    @property
    def waiting(self) -> bool:
        """True while a call on it waits here that has a limit of its own."""

    def hear(self, *notice: Any) -> None:
        """Hear another rank's notice, given by its fields."""


class Desk(threading.Thread):
    """This process's answers, given by a thread of its own.

    Attributes:
        address: where it is asked.
        directory: addresses of desks that were heard of, by rank in COMM_WORLD.
        left: ranks in COMM_WORLD that are at the end of their program: from MPI's end nobody answers.
    """

    _only: Desk | None = None
    _making = threading.Lock()

    def __init__(self) -> None:
        """Open a socket; `open` starts the thread."""
        super().__init__(name="mpicoll-roll-call", daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("", 0))
        host = socket.gethostname()
        self.address = Address(host, _ip_of(host), self.socket.getsockname()[1], secrets.token_hex(8))
        self.directory: dict[int, Address] = {}
        self.contexts: WeakValueDictionary[str, Asked] = WeakValueDictionary()
        self.births: Counter[int] = Counter()
        self.left: set[int] = set()

    @classmethod
    def open(cls) -> Desk:
        """Return the process's desk, which is opened at the first call."""
        with cls._making:
            if cls._only is None:
                cls._only = cls()
                cls._only.start()
            return cls._only

    @classmethod
    def leave(cls, rank: int) -> None:
        """Tell all desks, if this process has one, that its program is at its end; `rank` is its own in COMM_WORLD."""
        if cls._only is not None and len(cls._only.directory) <= MOST_TOLD:
            here = socket.gethostname()
            for desk in [one for other, one in list(cls._only.directory.items()) if other != rank]:
                _send(cls._only.socket, desk, here, {"left": rank})

    def tell(self, desks: Iterable[Address], context_id: str, notice: tuple[Any, ...]) -> None:
        """Tell other desks of a notice; returns at once.

        Args:
            desks: that are told.
            context_id: the communicator.
            notice: fields of the notice.
        """
        here = socket.gethostname()
        for desk in desks:
            _send(self.socket, desk, here, {"id": context_id, "notice": notice})

    def born(self, ranks: tuple[int, ...]) -> tuple[int, int]:
        """Return (group, ordinal) of a communicator that was used for the first time, and count it.

        Its birth tells it from others of the same ranks, before all ranks have agreed on a name.

        Args:
            ranks: its ranks in COMM_WORLD.
        """
        group = zlib.crc32(repr(ranks).encode())
        self.births[group] += 1
        return group, self.births[group]

    def run(self) -> None:
        """Answer for ever."""
        while True:
            with suppress(OSError):  # no way back to whoever asked
                data, sender = self.socket.recvfrom(LONGEST)
                answer = self._answer(data)
                if answer is not None:
                    self.socket.sendto(answer, sender)

    def _answer(self, data: bytes) -> bytes | None:
        try:
            question = json.loads(data)
            if question["to"] != self.address.token:
                return None
            if "left" in question:
                self.left.add(question["left"])
                return None
            context = self.contexts.get(question["id"])
            if "notice" in question:
                if context is not None:
                    context.hear(*question["notice"])
                return None
            birth = question["birth"]
            if context is not None:
                now, calls = time.monotonic(), context.calls  # first, so that what is told of them is not older
                last = tuple(context.recorder.told(now))
                said = Answer(calls, context.moved, context.busy, context.waiting, now - context.ended, last)
            else:
                said = Answer(0 if birth and self.births[birth[0]] >= birth[1] else -1)
            return _encoded(question["nonce"], said)
        except Exception:  # whatever came, it was not one of ours, and the desk stays open
            return None


def _encoded(nonce: Any, said: Answer) -> bytes:
    """Return an answer, with as many of the last calls as there is room for."""
    while len(data := json.dumps({"nonce": nonce, **asdict(said)}).encode()) > LONGEST and said.last:
        said = replace(said, last=said.last[1:])
    return data


def _ip_of(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"


def ask(desks: dict[int, Address], context_id: str, birth: tuple[int, int] | None) -> dict[int, Answer]:
    """Return the answers of ranks, those that came within the grace.

    Args:
        desks: address of each rank that is asked.
        context_id: the communicator, "" if it has no name yet.
        birth: what the communicator is known by as long as it has none.
    """
    answers: dict[int, Answer] = {}
    nonces = {secrets.randbits(62): rank for rank in desks}
    here, end, sent = socket.gethostname(), time.monotonic() + GRACE, 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.settimeout(AGAIN / 4)
        while len(answers) < len(desks) and time.monotonic() < end:
            if time.monotonic() - sent > AGAIN:
                sent = time.monotonic()
                for nonce, rank in nonces.items():
                    if rank not in answers:
                        _send(own, desks[rank], here, {"nonce": nonce, "id": context_id, "birth": birth})
            _collect(own, nonces, answers)
    return answers


def _send(own: socket.socket, desk: Address, here: str, question: dict[str, Any]) -> None:
    ip = "127.0.0.1" if desk.host == here else desk.ip
    try:
        own.sendto(json.dumps({"to": desk.token, **question}).encode(), (ip, desk.port))
    except OSError:  # no way there now: it counts as no answer
        return


def _collect(own: socket.socket, nonces: dict[int, int], answers: dict[int, Answer]) -> None:
    try:
        said = json.loads(own.recv(LONGEST))
        rank = nonces[said["nonce"]]
        counts, states = (int(said["calls"]), int(said["moved"])), (bool(said["busy"]), bool(said["waiting"]))
        answer = Answer(*counts, *states, float(said["outside"]), tuple(said.get("last", ())))
        answer.records(0.0)  # whoever reads them must be able to
        answers[rank] = answer
    except Exception:  # nothing has come, or not one of ours
        return
