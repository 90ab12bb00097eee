"""Plans: a call's facts, the choice made for them, and the schedule, cached and self-explaining.

**Message size**, one definition for rules, models, benchmark and reports: the bytes of the
full vector.  That is the vector itself for bcast, reduce, allreduce, scan and exscan; all
ranks' blocks together for gather, scatter, allgather and reduce_scatter; and all that one
rank sends, its own block included, for alltoall.  For Gatherv, Scatterv and Alltoallv it is
unknown, because not all ranks know it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.paths import PATHS, serving
from mpicoll.dispatch.predict import UNTUNED
from mpicoll.dispatch.rules import MOST_SEGMENTS
from mpicoll.dispatch.select import Candidate, candidates, describe_size, select
from mpicoll.dispatch.tuning import Tuning, here
from mpicoll.errors import UnsupportedError
from mpicoll.schedule.collectives import collective
from mpicoll.schedule.ir import Schedule
from mpicoll.settings import settings

#: segments in flight: enough that one moves while another is reduced and a third waits its turn
LANES = 4
#: bytes of the vector that one segment holds at most: MPI counts messages in 32 bits
LARGEST_MESSAGE = 1 << 30


@dataclass(frozen=True)
class PlanKey:
    """The identity of a plan on one rank: the facts, this rank, and the rules in force."""

    facts: Facts
    rank: int
    root: int = 0
    call: str = ""
    communicator: str = ""
    setting: str = ""
    tuning: Tuning = UNTUNED
    scratch_limit: int = 1 << 28

    @property
    def asked(self) -> Facts:
        """All that a choice may depend on, the root included."""
        return replace(self.facts, root=self.root)


@dataclass(frozen=True, eq=False)
class Plan:
    """A call's choice with its schedule, and the reasons; print it.

    An allreduce of 4 KiB on 4 ranks, on the host: "one_shot, 1 segment, path host, 1 step".

    Attributes:
        key: what was asked.
        algorithm: the chosen algorithm's name.
        segments: number of segments of every block.
        lanes: segments in flight at the same time.
        path: how the arrays travel, a name of `dispatch/paths.py`.
        reason: who chose.
        schedule: this rank's schedule.
        unoffered: each path that the call could not take, and why.
    """

    key: PlanKey
    algorithm: str
    segments: int
    lanes: int
    path: str
    reason: str
    schedule: Schedule = field(repr=False)
    unoffered: tuple[tuple[str, str], ...] = ()

    def candidates(self) -> list[Candidate]:
        """Return every candidate with its predicted time, or why it cannot serve."""
        return candidates(self.key.asked, self.key.tuning)

    def __str__(self) -> str:
        facts = self.key.facts
        row = collective(facts.collective)
        root = f", root {self.key.root}" if row.rooted else ""
        head = (
            f"{facts.collective} of {describe_size(facts.nbytes)} on {facts.size} ranks "
            f"({facts.memory} arrays, rank {self.key.rank}{root})"
        )
        steps = len(self.schedule.steps)
        chosen = f"  {self.algorithm}, {_plural(self.segments, 'segment')}, path {self.path}, {_plural(steps, 'step')}"
        card = registry.get(facts.collective, self.algorithm)
        doubtful = "" if card.verified else ", which is not verified"
        lines = [head, chosen + doubtful, f"  because of {self.reason}", "  candidates:"]
        for one in sorted(self.candidates(), key=lambda c: (c.seconds is None, c.seconds or 0.0)):
            time = "" if one.seconds is None else f"{one.seconds * 1e6:10.1f} us predicted"
            mark = "*" if one.choice.algorithm == self.algorithm and one.choice.path in ("", self.path) else " "
            lines.append(f"  {mark} {one.choice!s:<32}{time}{one.why_not}")
        lines += [f"  path {name} is not offered: {why}" for name, why in self.unoffered]
        return "\n".join(lines)


def make_plan(key: PlanKey) -> Plan:
    """Return the plan for a key; the same object for the same key, until the registry changes."""
    return _planned(key, registry.revision())


@lru_cache(maxsize=4096)
def _planned(key: PlanKey, revision: int) -> Plan:
    choice, reason = select(key.asked, key.call, key.communicator, key.setting, key.tuning)
    card = registry.get(key.facts.collective, choice.algorithm)
    if PATHS[choice.path].takes_segments:
        segments, lanes = bounded(card, key.facts, choice.segments, key.scratch_limit)
    else:
        segments, lanes = 1, 1
    schedule = schedule_of(card, key.rank, key.facts.size, key.root)
    return Plan(key, choice.algorithm, segments, lanes, choice.path, reason, schedule)


@lru_cache(maxsize=256)
def schedule_of(card: Algorithm, rank: int, size: int, root: int) -> Schedule:
    """Return a rank's schedule, which calls of all message sizes share.

    Args:
        card: the algorithm.
        rank: whose schedule it is.
        size: number of ranks.
        root: the root, 0 where there is none.
    """
    return card.schedule(rank, size, root)


def bounded(card: Algorithm, facts: Facts, segments: int, limit: int) -> tuple[int, int]:
    """Return (segments, lanes) such that no message and no rank's scratch is too large.

    Equal on all ranks: computed from the most scratch that any rank needs, which the card declares.

    Args:
        card: the algorithm.
        facts: the call.
        segments: number of segments at least.
        limit: bytes of scratch at most.

    Raises:
        UnsupportedError: it would need more segments than there may be.
    """
    nbytes = facts.nbytes or 0
    segments = max(segments, -(-nbytes // LARGEST_MESSAGE))
    if nbytes > limit // facts.size:
        segmented = segments > 1 or nbytes > limit
        needed = nbytes * card.scratch_blocks(facts.size, segmented) / card.vector_blocks(facts.size)
        segments = max(segments, math.ceil(needed / limit))
        if segments > MOST_SEGMENTS:
            raise UnsupportedError(
                f"{facts.collective}: {card.name!r} needs {segments} segments to keep to scratch_limit={limit}, "
                f"more than {MOST_SEGMENTS}; raise the setting scratch_limit"
            )
        if needed:
            return segments, max(1, min(segments, LANES, int(limit * segments / needed)))
    return segments, min(segments, LANES)


def plan(
    name: str,
    *,
    size: int,
    nbytes: int | None,
    rank: int = 0,
    root: int = 0,
    commutative: bool = True,
    device: str = "cpu",
    algorithm: str | None = None,
) -> Plan:
    """Return the plan of a call; needs neither MPI nor arrays.

    Args:
        name: the collective, in any spelling of its MPI method.
        size: number of ranks.
        nbytes: message size in bytes (see this module), None where not all ranks know it.
        rank: whose schedule to show.
        root: the root, where there is one.
        commutative: whether the operator is.
        device: "cpu" or "cuda".
        algorithm: what `algorithm=` of the call would be.

    Raises:
        ValueError: unknown name, rank or root out of range.
        UnsupportedError: the forced algorithm cannot serve.
    """
    row = collective(name)
    for what, value in (("rank", rank), ("root", root)):
        if not 0 <= value < size:
            raise ValueError(f"{row.name}: {what} {value} is out of range for {size} ranks")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device {device!r} is neither cpu nor cuda")
    counts_known = name.lower() not in ("gatherv", "scatterv", "alltoallv")
    memory = "host" if device == "cpu" else "device"
    pinned = settings.reproducible if row.reducing else ""
    paths, segment = serving(memory), settings.segment_bytes
    facts = Facts(row.name, size, nbytes, memory, commutative, counts_known, paths, segment, pinned)
    return make_plan(
        PlanKey(facts, rank, root, algorithm or "", "", settings.algorithms, here(), settings.scratch_limit)
    )


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
