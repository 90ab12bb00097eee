"""The event simulator: when each message and each local work of all ranks begins and ends.

A message begins when both ranks have started it and all links of its route have room for it.  It holds them for the
machine's `extra` and its bytes at the rate of the slowest link; it arrives the route's latency after its start and
its bytes.  So k messages in a row out of one port arrive after alpha + (k-1) * extra + k * bytes / bandwidth: the
cost model of `analysis/cost.py`.  A link that is faster than a message has room for others beside it, which begin if
they get at least half of the rate that they have alone.  A rate is that of the message's start: it does not grow when
others leave a link that they shared, so that shared links are not always filled.

What happens at one time is done in this order: messages end, ranks go on, messages begin.  Of a rank's messages the
one that it started first begins first, unless another one has room and it has not.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from mpicoll.errors import ScheduleError
from mpicoll.simulate.actions import Action, Post
from mpicoll.simulate.network import Network
from mpicoll.simulate.occupancy import SAME, Occupancy
from mpicoll.simulate.result import NOTHING, Run

#: events: a rank goes on, a link that others wait for has room again
WAKE, ROOM = range(2)
#: a message that can begin: number among the source's, message, target, number among the target's
Ready = tuple[int, int, int, int]


def simulate(actions: Sequence[Iterator[Action]], network: Network, extra: float = 0.0, start: float = 0.0) -> Run:
    """Run all ranks' actions to their end.

    Args:
        actions: of each rank.
        network: that the messages take.
        extra: seconds that a message holds its links besides its bytes.
        start: second at which all ranks begin to act.

    Raises:
        ScheduleError: ranks wait for messages for ever.
    """
    engine = _Engine(actions, network, extra)
    engine.go(start)
    return engine.run


class _Rank:
    """A rank: what it waits for, until when, and why it goes on then."""

    __slots__ = ("actions", "cause", "ended", "ends", "finish", "next", "until", "waits", "working")

    def __init__(self, actions: Iterator[Action]) -> None:
        self.actions = actions
        self.ends: dict[int, tuple[float, int]] = {}  # messages that have begun and are not awaited: (end, message)
        self.waits: set[int] = set()  # messages that are awaited and have not begun
        self.until = 0.0  # when all others that are awaited have ended
        self.next = NOTHING  # that of them which ends last
        self.finish: dict[int, float] = {}  # local work -> when it ends
        self.working = 0.0
        self.cause = NOTHING
        self.ended = False


class _Engine:
    def __init__(self, actions: Sequence[Iterator[Action]], network: Network, extra: float) -> None:
        self.ranks = [_Rank(a) for a in actions]
        self.route, self.extra = network.route, extra
        self.run = Run(network, len(actions), extra)
        self.occupancy = Occupancy(network)
        self.posted: dict[tuple[int, int, int], list[Post]] = {}  # messages that one of the two ranks has started
        self.ready: list[list[Ready]] = [[] for _ in actions]  # by source
        self.waiting: dict[int, dict[int, None]] = {}  # link -> sources that wait for room on it
        self.does = {
            "exchange": self._exchange,
            "start": self._start,
            "wait": self._wait,
            "work": self._work,
            "sync": self._sync,
        }
        self.retry: dict[int, int] = {}  # source -> message that made room for it
        self.awake: list[int] = []
        self.events: dict[float, list[tuple[int, int]]] = defaultdict(list)  # time -> (kind, rank or link)
        self.times: list[float] = []  # a heap of the keys: many events have the same time

    def go(self, now: float) -> None:
        """Run from this second on, until nothing happens any more."""
        self.awake = list(range(len(self.ranks)))
        self.run.begun = now
        while True:
            for rank in self.awake:
                self._advance(rank, now)
            self.awake.clear()
            self._begin_all(now)
            if not self.times:
                break
            now = self.times[0]
            until = now + now * SAME
            while self.times and self.times[0] <= until:
                for kind, subject in self.events.pop(heappop(self.times)):
                    self._happen(kind, subject)
        self._check()
        self.run.seconds = max(now, max((r.working for r in self.ranks), default=0.0))

    def _check(self) -> None:
        stuck = next((n for n, rank in enumerate(self.ranks) if not rank.ended), None)
        if stuck is not None:
            raise ScheduleError(f"rank {stuck} waits for messages for ever")

    def _at(self, time: float, kind: int, subject: int) -> None:
        found = self.events[time]
        if not found:
            heappush(self.times, time)
        found.append((kind, subject))

    def _happen(self, kind: int, subject: int) -> None:
        if kind == WAKE:
            rank = self.ranks[subject]
            rank.cause = rank.next
            self.awake.append(subject)
        else:
            _, message = self.occupancy.next_free(subject)
            self.retry.update(dict.fromkeys(self.waiting.pop(subject), message))

    def _advance(self, number: int, now: float) -> None:
        """Let a rank act until it must wait."""
        does = self.does
        for action in self.ranks[number].actions:
            if does[action[0]](number, action, now):
                return
        self.ranks[number].ended = True

    def _exchange(self, number: int, action: Action, now: float) -> bool:
        """Start messages and wait for them; each of these five tells whether the rank must wait."""
        rank = self.ranks[number]
        rank.until, rank.next = now, rank.cause
        waits = rank.waits
        for post in action[1]:
            self._post(number, post, now)
            waits.add(post[4])  # nothing begins before all ranks have acted
        return True

    def _start(self, number: int, action: Action, now: float) -> bool:
        for post in action[1]:
            self._post(number, post, now)
        return False

    def _wait(self, number: int, action: Action, now: float) -> bool:
        rank = self.ranks[number]
        rank.until, rank.next = now, rank.cause
        for handle in action[1]:
            if handle not in rank.ends:
                rank.waits.add(handle)
            else:
                end, message = rank.ends.pop(handle)
                if end > rank.until:
                    rank.until, rank.next = end, message
        if rank.waits:
            return True
        return self._wake(number, now)

    def _wake(self, number: int, now: float) -> bool:
        """Let a rank go on when all that it waits for has ended; tell whether that is later."""
        until = self.ranks[number].until
        if until > now:
            self._at(until, WAKE, number)
        return until > now

    def _work(self, number: int, action: Action, now: float) -> bool:
        rank = self.ranks[number]
        begin = max(now, rank.working)
        rank.working = rank.finish[action[2]] = begin + action[1]
        self.run.add_work(number, action[2], begin, rank.working, rank.cause)
        return False

    def _sync(self, number: int, action: Action, now: float) -> bool:
        rank = self.ranks[number]
        rank.until, rank.next = rank.finish.pop(action[1]), self.run.last_work(number)
        return self._wake(number, now)

    def _post(self, number: int, post: Post, now: float) -> None:
        sends, peer, tag, _, _ = post
        name = (number, peer, tag) if sends else (peer, number, tag)
        waiting = self.posted.get(name)
        if waiting is None:
            self.posted[name] = [post]
            return
        if waiting[0][0] == sends:
            waiting.append(post)
            return
        other = waiting.pop(0)
        if not waiting:
            del self.posted[name]
        sent, received = (post, other) if sends else (other, post)
        source = name[0]
        message = self.run.add_message(source, name[1], sent[3], now, self.ranks[number].cause, sent[4], received[4])
        one, ready = (sent[4], message, name[1], received[4]), self.ready[source]
        if not ready or ready[-1] < one:
            ready.append(one)
        else:
            insort(ready, one)
        if source not in self.retry:
            self.retry[source] = NOTHING

    def _begin_all(self, now: float) -> None:
        """Begin all messages that have room, those first that have been ready for longest."""
        retry, self.retry = self.retry, {}
        for source in sorted((s for s in retry if self.ready[s]), key=lambda s: self.ready[s][0][1]):
            kept: list[Ready] = []
            ready = self.ready[source]
            for place, one in enumerate(ready):
                full = self._begin(source, one, now, retry[source])
                if full < 0:
                    continue
                self._wait_for_room(full, source)
                kept.append(one)
                if full == 2 * source:  # the port: nothing of this rank has room
                    kept += ready[place + 1 :]
                    break
            self.ready[source] = kept

    def _begin(self, source: int, one: Ready, now: float, freed: int) -> int:
        """Begin a message; return a link that has no room for it, -1 if all have."""
        sent, message, target, received = one
        latency, links = self.route(source, target)
        rate, full = self.occupancy.rate(links, now)
        if full >= 0:
            return full
        flow = self.run.nbytes[message] / rate
        end = now + self.extra + flow
        arrival = max(end, now + latency + flow)
        self.occupancy.hold(links, rate, end, message)
        self.run.begin_message(message, now, end, arrival, links, freed)
        self._ends(source, sent, end, message)
        self._ends(target, received, arrival, message)
        return -1

    def _ends(self, number: int, handle: int, end: float, message: int) -> None:
        """Note when a message ends on a rank, which goes on then if it waits for nothing later.

        Args:
            number: the rank.
            handle: the message's number among the rank's.
            end: the second.
            message: its number.
        """
        rank = self.ranks[number]
        if handle not in rank.waits:
            rank.ends[handle] = end, message
            return
        rank.waits.discard(handle)
        if end > rank.until:
            rank.until, rank.next = end, message
        if not rank.waits:
            self._at(rank.until, WAKE, number)

    def _wait_for_room(self, link: int, source: int) -> None:
        waiting = self.waiting.get(link)
        if waiting is None:
            self.waiting[link] = {source: None}
            self._at(self.occupancy.next_free(link)[0], ROOM, link)
        else:
            waiting[source] = None
