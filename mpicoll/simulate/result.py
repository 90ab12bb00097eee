"""The result of a simulation: messages, local work, links, and the critical path."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mpicoll.simulate.network import Network

#: the cause of what happens at the start
NOTHING = -1


@dataclass(frozen=True)
class Message:
    """A message.

    Attributes:
        source: rank that sends it.
        target: rank that receives it.
        nbytes: its bytes.
        ready: second at which both ranks have started it.
        start: second at which it begins.
        freed: second at which it leaves its links.
        end: second at which it has arrived.
        sent: its number among the source's messages.
        received: its number among the target's messages.
    """

    source: int
    target: int
    nbytes: float
    ready: float
    start: float
    freed: float
    end: float
    sent: int
    received: int


@dataclass(frozen=True)
class LocalWork:
    """Local work of a rank, its number among the rank's; seconds of its start and end."""

    rank: int
    number: int
    start: float
    end: float


def _numbers() -> array[int]:
    return array("q")


def _seconds() -> array[float]:
    return array("d")


@dataclass
class Run:
    """Messages and local work of a simulation, in columns: there are millions of messages.

    Attributes:
        network: that it ran on.
        ranks: number of ranks.
        extra: seconds that a message holds its links besides its bytes.
        begun: second at which all ranks began to act.
        seconds: until all has ended.
        link_bytes: bytes that went by each link.
    """

    network: Network
    ranks: int
    extra: float = 0.0
    begun: float = 0.0
    seconds: float = 0.0
    source: array[int] = field(default_factory=_numbers)
    target: array[int] = field(default_factory=_numbers)
    nbytes: array[float] = field(default_factory=_seconds)
    _ready: array[float] = field(default_factory=_seconds)
    _start: array[float] = field(default_factory=_seconds)
    _freed: array[float] = field(default_factory=_seconds)
    _end: array[float] = field(default_factory=_seconds)
    _sent: array[int] = field(default_factory=_numbers)
    _received: array[int] = field(default_factory=_numbers)
    _cause: array[int] = field(default_factory=_numbers)
    works: list[LocalWork] = field(default_factory=list)
    _work_causes: list[int] = field(default_factory=list)
    _last_work: dict[int, int] = field(default_factory=dict)
    link_bytes: list[float] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with links that nothing went by."""
        self.link_bytes = [0.0] * len(self.network.links)

    def add_message(
        self, source: int, target: int, nbytes: float, ready: float, cause: int, sent: int, received: int
    ) -> int:
        """Add a message that both ranks have started; return its number.

        Args:
            source: rank that sends it.
            target: rank that receives it.
            nbytes: its bytes.
            ready: the second now.
            cause: what let the later rank start it: see `critical_path`.
            sent: its number among the source's messages.
            received: its number among the target's messages.
        """
        self.source.append(source)
        self.target.append(target)
        self.nbytes.append(nbytes)
        self._ready.append(ready)
        self._cause.append(cause)
        self._sent.append(sent)
        self._received.append(received)
        self._start.append(0.0)
        self._freed.append(0.0)
        self._end.append(0.0)
        return len(self.source) - 1

    def begin_message(
        self, message: int, start: float, freed: float, end: float, links: Sequence[int], after: int
    ) -> None:
        """Note when a message begins and ends.

        Args:
            message: its number.
            start: second at which it begins.
            freed: second at which it leaves its links.
            end: second at which it has arrived.
            links: that it takes.
            after: the message that made room for it.
        """
        self._start[message], self._freed[message], self._end[message] = start, freed, end
        if after != NOTHING and start > self._ready[message]:
            self._cause[message] = after
        nbytes = self.nbytes[message]
        for link in links:
            self.link_bytes[link] += nbytes

    def add_work(self, rank: int, number: int, start: float, end: float, cause: int) -> None:
        """Add local work.

        Args:
            rank: whose it is.
            number: among the rank's.
            start: second.
            end: second.
            cause: what let the rank start it: see `critical_path`.
        """
        before = self._last_work.get(rank)
        waited = before is not None and self.works[before].end == start
        self._work_causes.append(-2 - before if waited and before is not None else cause)
        self._last_work[rank] = len(self.works)
        self.works.append(LocalWork(rank, number, start, end))

    def last_work(self, rank: int) -> int:
        """Return a rank's local work so far, as a cause."""
        return -2 - self._last_work[rank]

    def __len__(self) -> int:
        return len(self.source)

    def message(self, number: int) -> Message:
        """Return a message by its number."""
        return Message(
            self.source[number],
            self.target[number],
            self.nbytes[number],
            self._ready[number],
            self._start[number],
            self._freed[number],
            self._end[number],
            self._sent[number],
            self._received[number],
        )

    def messages(self) -> Iterator[Message]:
        """Yield all messages, in the order in which they were ready."""
        return map(self.message, range(len(self)))

    def critical_path(self) -> list[Message | LocalWork]:
        """Return the chain of messages and local work that took the whole time, the first one first.

        Each was let begin by the one before it: by its end, or by the links that it left.  A cause is the number of a
        message, or -2 minus that of local work.
        """
        last = [(end, n) for n, end in enumerate(self._end)]
        last += [(work.end, -2 - n) for n, work in enumerate(self.works)]
        cause = max(last)[1] if last else NOTHING
        path: list[Message | LocalWork] = []
        while cause != NOTHING:
            if cause >= 0:
                path.append(self.message(cause))
                cause = self._cause[cause]
            else:
                path.append(self.works[-2 - cause])
                cause = self._work_causes[-2 - cause]
        return path[::-1]
