"""The numbers of the examples: what each rank has before a pattern, and by NumPy what it must have after it.

What a rank has is a function of (rank, size, n), with n numbers in the vector or in each block.  What all ranks must
have is a function of all their inputs.  The allreduce of 4 ranks with n = 2:

    has    [1, 2]    [3, 4]    [2, 6]    [4, 8]
    must   [10, 20]  [10, 20]  [10, 20]  [10, 20]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.int64]
#: (rank, size, n) -> the rank's input, None where it has none
Has = Callable[[int, int, int], Row | None]
#: inputs of all ranks (None where there is none) -> outputs that they must have, None for no output
Must = Callable[[list[Any]], list[Row | None]]

#: stands in every output for a number that is not there yet
MISSING = -1
#: milliseconds that the last rank is late at the barrier
LATE = 40
#: the summands of an allreduce on 4 ranks that are easy to add up
SUMMANDS = ((1, 2), (3, 4), (2, 6), (4, 8))


def own(rank: int, size: int, n: int) -> Row:
    """Return numbers that no other rank has: 4, 5, 6, 7 on rank 1."""
    return np.arange(n) + rank * n


def summands(rank: int, size: int, n: int) -> Row:
    """Return numbers whose sums are round on 4 ranks."""
    return np.array(SUMMANDS[rank]) if (size, n) == (len(SUMMANDS), 2) else own(rank, size, n) + 1


def block(rank: int, size: int, n: int) -> Row:
    """Return one block: 10 on rank 0, 20 on rank 1."""
    return 10 * (rank + 1) + np.arange(n)


def blocks_of_root(rank: int, size: int, n: int) -> Row | None:
    """Return a block for each rank on rank 0: 10, 20, 30, 40."""
    return np.concatenate([block(target, size, n) for target in range(size)]) if rank == 0 else None


def counted(rank: int, size: int, n: int) -> Row:
    """Return a block for each rank, counted from the rank's number on: 2, 3, 4, 5 on rank 1."""
    return np.arange(1, size * n + 1) + rank


def pairs(rank: int, size: int, n: int) -> Row:
    """Return a block for each rank, named by sender and receiver: 10, 11, 12, 13 on rank 1."""
    tens = 10 if size <= 10 else 100
    return np.repeat(tens * rank + np.arange(size), n) * (1 if n == 1 else n) + np.tile(np.arange(n), size)


def delay(rank: int, size: int, n: int) -> Row:
    """Return the milliseconds that a rank works before it comes to the barrier."""
    return np.array([LATE * rank // max(size - 1, 1)])


def nobody_early(inputs: list[Any]) -> list[Row | None]:
    """Return 0 microseconds by which each rank goes on too early."""
    return [np.zeros(1, np.int64) for _ in inputs]


def from_the_left(inputs: list[Any]) -> list[Row | None]:
    """Return the left neighbour's numbers; rank 0 has none."""
    return [None, *inputs[:-1]]


def halos(inputs: list[Any]) -> list[Row | None]:
    """Return the numbers at the edges of both neighbours, in a ring."""
    size = len(inputs)
    return [np.array([inputs[rank - 1][-1], inputs[(rank + 1) % size][0]]) for rank in range(size)]


def of_rank_0(inputs: list[Any]) -> list[Row | None]:
    """Return rank 0's numbers for all."""
    return [inputs[0] for _ in inputs]


def total(inputs: list[Any]) -> list[Row | None]:
    """Return the sum of all for all."""
    return [np.sum(inputs, axis=0) for _ in inputs]


def together(inputs: list[Any]) -> list[Row | None]:
    """Return all ranks' numbers, one after the other, for all."""
    return [np.concatenate(inputs) for _ in inputs]


def at_rank_0(must: Must) -> Must:
    """Return what must come out where only rank 0 has an output."""
    return lambda inputs: [must(inputs)[0], *([None] * (len(inputs) - 1))]


def parts_of_rank_0(inputs: list[Any]) -> list[Row | None]:
    """Return each rank's block of rank 0's."""
    return [*np.split(inputs[0], len(inputs))]


def parts_of_total(inputs: list[Any]) -> list[Row | None]:
    """Return each rank's block of the sum."""
    return [*np.split(np.sum(inputs, axis=0), len(inputs))]


def transposed(inputs: list[Any]) -> list[Row | None]:
    """Return the blocks that are for each rank, by sender."""
    size = len(inputs)
    table = [np.split(row, size) for row in inputs]
    return [np.concatenate([table[source][target] for source in range(size)]) for target in range(size)]


def running(inputs: list[Any]) -> list[Row | None]:
    """Return the sums of ranks 0 to r."""
    return [*np.cumsum(inputs, axis=0)]


def running_before(inputs: list[Any]) -> list[Row | None]:
    """Return the sums of ranks 0 to r-1; rank 0's output is left alone."""
    return [np.full_like(inputs[0], MISSING), *np.cumsum(inputs, axis=0)[:-1]]
