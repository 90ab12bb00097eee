"""The event simulator: when each message and each local work of all ranks begins and ends.

A message begins when both ranks have started it and all links of its route have room for it.  It holds them for the
machine's `extra` and its bytes at the rate of the slowest link; it arrives the route's latency after its start and
its bytes.  So k messages in a row out of one port arrive after alpha + (k-1) * extra + k * bytes / bandwidth: the
cost model of `analysis/cost.py`.  A link that is faster than a message has room for others beside it, which begin if
they get at least half of the rate that they have alone.

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
from mpicoll.simulate.result import NOTHING, Run

#: events: a message leaves its links, a message has arrived, a rank's local work is done
FREED, ARRIVED, WORKED = range(3)
#: part of its own rate with which a message begins at least
LEAST = 0.5
#: times that differ by less than this part of them are one
SAME = 1e-12


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
    """A rank: what it waits for, and why it went on last."""

    __slots__ = ("actions", "cause", "done", "ended", "exchanging", "finish", "waits", "working")

    def __init__(self, actions: Iterator[Action]) -> None:
        self.actions = actions
        self.done: set[int] = set()  # messages that are complete and were not awaited yet
        self.waits: set[int] = set()
        self.exchanging = 0  # messages of an exchange that are not complete
        self.finish: dict[int, float] = {}  # local work -> when it ends
        self.working = 0.0
        self.cause = NOTHING
        self.ended = False


class _Engine:
    def __init__(self, actions: Sequence[Iterator[Action]], network: Network, extra: float) -> None:
        self.ranks = [_Rank(a) for a in actions]
        self.network, self.extra = network, extra
        self.run = Run(network, len(actions))
        self.bandwidth = [link.bandwidth for link in network.links]
        self.room = [1.0] * len(network.links)
        self.posted: dict[tuple[int, int, int], list[Post]] = {}  # messages that one of the two ranks has started
        self.ready: list[list[tuple[int, int]]] = [[] for _ in actions]  # by source: (number among its own, message)
        self.waiting: dict[int, dict[int, None]] = defaultdict(dict)  # link -> sources that wait for room on it
        self.held: dict[int, list[tuple[int, float]]] = {}  # message -> the part that it holds of each link
        self.handles: dict[int, tuple[int, int]] = {}
        self.does = {
            "exchange": self._exchange,
            "start": self._start,
            "wait": self._wait,
            "work": self._work,
            "sync": self._sync,
        }
        self.retry: dict[int, int] = {}  # source -> message that made room for it
        self.awake: list[int] = []
        self.events: dict[float, list[tuple[int, int]]] = defaultdict(list)  # time -> (kind, message or rank)
        self.times: list[float] = []  # a heap of the keys: many events have the same time

    def go(self, now: float) -> None:
        """Run from this second on, until nothing happens any more."""
        self.awake = list(range(len(self.ranks)))
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
        if kind == WORKED:
            self.awake.append(subject)
            self.ranks[subject].cause = self.run.last_work(subject)
            return
        if kind == ARRIVED:
            self._complete(self.run.target[subject], self.handles.pop(subject)[1], subject)
            return
        source = self.run.source[subject]
        for link, share in self.held.pop(subject):
            self.room[link] += share
            if link in self.waiting:
                self.retry.update(dict.fromkeys(self.waiting.pop(link), subject))
        if self.ready[source]:
            self.retry[source] = subject
        self._complete(source, self.handles[subject][0], subject)

    def _complete(self, number: int, handle: int, message: int) -> None:
        rank = self.ranks[number]
        if rank.exchanging:
            rank.exchanging -= 1
            if not rank.exchanging:
                rank.cause = message
                self.awake.append(number)
        elif handle in rank.waits:
            rank.waits.discard(handle)
            if not rank.waits:
                rank.cause = message
                self.awake.append(number)
        else:
            rank.done.add(handle)

    def _advance(self, number: int, now: float) -> None:
        """Let a rank act until it must wait."""
        rank, does = self.ranks[number], self.does
        for action in rank.actions:
            if does[action[0]](number, action, now):
                return
        rank.ended = True

    def _exchange(self, number: int, action: Action, now: float) -> bool:
        """Start messages; tell whether the rank must wait, as the other three do."""
        self.ranks[number].exchanging = len(action[1])
        self._start(number, action, now)
        return True

    def _start(self, number: int, action: Action, now: float) -> bool:
        for post in action[1]:
            self._post(number, post, now)
        return False

    def _wait(self, number: int, action: Action, now: float) -> bool:
        rank = self.ranks[number]
        rank.waits = {handle for handle in action[1] if handle not in rank.done}
        rank.done.difference_update(action[1])
        return bool(rank.waits)

    def _work(self, number: int, action: Action, now: float) -> bool:
        rank = self.ranks[number]
        begin = max(now, rank.working)
        rank.working = rank.finish[action[2]] = begin + action[1]
        self.run.add_work(number, action[2], begin, rank.working, rank.cause)
        return False

    def _sync(self, number: int, action: Action, now: float) -> bool:
        finish = self.ranks[number].finish[action[1]]
        if finish > now:
            self._at(finish, WORKED, number)
        return finish > now

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
        self.handles[message] = (sent[4], received[4])
        insort(self.ready[source], (sent[4], message))
        self.retry.setdefault(source, NOTHING)

    def _begin_all(self, now: float) -> None:
        """Begin all messages that have room, those first that have been ready for longest."""
        retry, self.retry = self.retry, {}
        for source in sorted((s for s in retry if self.ready[s]), key=lambda s: self.ready[s][0][1]):
            self._begin(source, now, retry[source])

    def _begin(self, source: int, now: float, freed: int) -> None:
        ready = self.ready[source]
        kept = []
        for place, one in enumerate(ready):
            full = self._take(source, one[1], now, freed)
            if full is not None:
                self.waiting[full][source] = None
                kept.append(one)
                if full == 2 * source:  # the port: nothing of this rank has room
                    kept += ready[place + 1 :]
                    break
        self.ready[source] = kept

    def _take(self, source: int, message: int, now: float, freed: int) -> int | None:
        """Begin a message; return a link that has no room for it, None if all have."""
        latency, links = self.network.route(source, self.run.target[message])
        alone = rate = self.network.most
        full = links[0]
        for link in links:
            bandwidth, room = self.bandwidth[link], self.room[link]
            alone = min(alone, bandwidth)
            left = bandwidth if room == 1.0 else bandwidth * room if room else 0.0
            if left < rate:
                rate, full = left, link
        if rate < alone * LEAST:
            return full
        held = self.held[message] = []
        for link in links:
            bandwidth = self.bandwidth[link]
            share = 1.0 if rate == bandwidth else rate / bandwidth
            held.append((link, share))
            left = self.room[link] - share
            self.room[link] = left if left > 0.0 else 0.0
        flow = self.run.nbytes[message] / rate
        end = now + self.extra + flow
        arrival = max(end, now + latency + flow)
        self.run.begin_message(message, now, end, arrival, links, freed)
        self._at(end, FREED, message)
        self._at(arrival, ARRIVED, message)
        return None
