"""Limits of a choice: no message longer than MPI counts, no more scratch than allowed."""

from __future__ import annotations

import math
from dataclasses import replace

from mpicoll.algorithms import registry
from mpicoll.algorithms.card import Algorithm
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.rules import MOST_SEGMENTS, Choice
from mpicoll.errors import UnsupportedError

#: segments in flight: enough that one moves while another is reduced and a third waits its turn
LANES = 4
#: bytes of the vector that one segment holds at most: MPI counts messages in 32 bits
LARGEST_MESSAGE = 1 << 30


def limited(choice: Choice, facts: Facts, limit: int) -> tuple[Choice, int]:
    """Return (choice with the segments with which it runs, segments in flight at the same time).

    Args:
        choice: with its path.
        facts: the call.
        limit: bytes of scratch at most.

    Raises:
        UnsupportedError: it would need more segments than there may be.
    """
    segments = lanes = 1
    if PATHS[choice.path].takes_segments:
        segments, lanes = bounded(registry.get(facts.collective, choice.algorithm), facts, choice.segments, limit)
    return replace(choice, segments=segments), lanes


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
        needed = nbytes * card.scratch_blocks(facts.size, segmented, facts.topology) / card.vector_blocks(facts.size)
        segments = max(segments, math.ceil(needed / limit))
        if segments > MOST_SEGMENTS:
            raise UnsupportedError(
                f"{facts.collective}: {card.name!r} needs {segments} segments to keep to scratch_limit={limit}, "
                f"more than {MOST_SEGMENTS}; raise the setting scratch_limit"
            )
        if needed:
            return segments, max(1, min(segments, LANES, int(limit * segments / needed)))
    return segments, min(segments, LANES)
