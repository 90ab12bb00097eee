"""Segments: into how many pieces blocks are cut, so that a cost is least.

A broadcast of 1 MiB by the ring on 8 ranks of the path host, whose segments have 32 KiB at least, has 16 segments.
"""

from __future__ import annotations

from mpicoll.algorithms.card import Algorithm
from mpicoll.analysis.cost import CostModel, pipelined

#: numbers of segments that the cost model tries
SEGMENTS = (1, 2, 4, 8, 16, 32)


def pieces(card: Algorithm, model: CostModel, p: int, n: int, smallest: int = 0, wave: int = 1 << 62) -> int:
    """Return the number of pieces of a block with which an algorithm takes the least time.

    Args:
        card: the algorithm.
        model: the machine.
        p: number of ranks.
        n: bytes of the full vector.
        smallest: bytes of a block below which a segment is not worth a message; 0 where only whole blocks are sent.
        wave: bytes that move at a time where only whole blocks are sent.
    """
    if not pipelined(card.cost):
        return 1
    block = block_bytes(card, p, n)
    if not smallest:
        return max(block // wave, 1)
    most = max(block // smallest, 1)
    return min((s for s in SEGMENTS if s <= most), key=lambda s: model.seconds(card.cost, p, n, s))


def block_bytes(card: Algorithm, p: int, n: int) -> int:
    """Return the bytes of a block of a vector of n bytes on p ranks."""
    return -(-n // card.vector_blocks(p))
