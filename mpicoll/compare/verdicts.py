"""Verdicts: which cells became faster or slower, beyond what launches of one program differ in.

Launches differ by more than the samples of one launch: in the place of memory, and in other work on the machine.  So a
cell is slower only if all of this holds; faster likewise:

1. A rank-sum test on the medians of blocks of samples, corrected for the number of cells, does not see one
   distribution. Blocks, for samples that follow each other are alike.
2. Its change is larger than the threshold.  The change is the smaller one of two, the medians' and that of the fastest
   tenth: other work on the machine makes many samples longer, but seldom all.
3. Its change is far beyond noise: where a side has several launches, beyond what those of most cells differ in, and
   beyond its own; else beyond the changes that most cells have.

Where noise alone can double a time, nothing is told.  A change is the natural logarithm of new over old: 0.18 for
20 % more time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoll.compare.cells import Pair, Samples
from mpicoll.compare.ranksum import adjusted, rank_sum

#: blocks of consecutive samples of a launch
BLOCKS = 16
#: chance of the corrected test below which a difference counts
CHANCE = 0.01
#: part of the cells whose changes are taken for noise, and where it ends in standard deviations of normal noise
MOST, NORMAL = 0.85, 1.44
#: chance that any of the cells is farther away than the limit, where noise has the tails of an exponential distribution
FAR = 0.05
#: standard deviations of noise, as launches tell of it, beyond which a change counts
BEYOND = 4.0
#: the change by noise from which on nothing is told
NOISY = math.log(2)


@dataclass(frozen=True)
class Verdict:
    """The change of a cell.

    Attributes:
        pair: the cell.
        change: logarithm of new over old.
        limit: the change that can be seen in this cell.
        shown: the rank-sum test shows a change, too.
    """

    pair: Pair
    change: float
    limit: float
    shown: bool

    @property
    def word(self) -> str:
        """One of "slower", "faster" and "same"."""
        if not self.shown or abs(self.change) <= self.limit:
            return "same"
        return "slower" if self.change > 0 else "faster"


def verdicts(pairs: Sequence[Pair], threshold: float) -> list[Verdict]:
    """Return the verdict on each cell; the threshold is the part of its time by which it must differ, as 0.05."""
    chances = adjusted([rank_sum(blocks(pair.old), blocks(pair.new)) for pair in pairs])
    least, common = math.log1p(threshold), noise(pairs)
    found = []
    for pair, chance in zip(pairs, chances, strict=True):
        limit = max(least, common, BEYOND * math.sqrt(float((scatter(pair) ** 2).mean())))
        found.append(Verdict(pair, change(pair), limit, common < NOISY and chance < CHANCE))
    return found


def too_noisy(found: Sequence[Verdict]) -> bool:
    """Tell whether noise alone can double the time of each cell."""
    return min(one.limit for one in found) >= NOISY


def common_factor(pairs: Sequence[Pair]) -> float:
    """Return the median of new over old, of all cells."""
    return math.exp(float(np.median([change(pair) for pair in pairs])))


def normalized(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the cells without what all cells of a launch have in common: the machine was slower or faster then."""
    logs = np.array([levels([*pair.old, *pair.new])[:, 1] for pair in pairs])  # a row for each cell
    speeds = np.exp(np.median(logs - np.median(logs, axis=1, keepdims=True), axis=0))
    olds = len(pairs[0].old)
    return [
        Pair(
            pair.key,
            [one / speed for one, speed in zip(pair.old, speeds[:olds], strict=True)],
            [one / speed for one, speed in zip(pair.new, speeds[olds:], strict=True)],
        )
        for pair in pairs
    ]


def blocks(launches: Sequence[Samples]) -> NDArray[np.float64]:
    """Return the medians of the blocks of all launches."""
    parts = (np.array_split(one, min(BLOCKS, one.size)) for one in launches)
    return np.array([np.median(part) for launch in parts for part in launch])


def levels(launches: Sequence[Samples]) -> NDArray[np.float64]:
    """Return the logarithms of the fastest tenth and the median: a row for each launch."""
    return np.log([np.percentile(one, (10, 50)) for one in launches])


def change(pair: Pair) -> float:
    """Return the change of a cell, by the medians over the launches; 0 where the two kinds have other directions."""
    low, middle = np.median(levels(pair.new), axis=0) - np.median(levels(pair.old), axis=0)
    return float(min(low, middle, key=abs)) if low * middle > 0 else 0.0


def noise(pairs: Sequence[Pair]) -> float:
    """Return the change that no cell is expected to have by noise.

    It comes from the launches' differences.  Where there is one launch a side, it comes from the changes of most cells:
    of 60 cells of which 85 % have changed by 3 % at most, none is expected to have changed by 11 %.
    """
    own = np.concatenate([scatter(pair) for pair in pairs])
    if own.any():
        return BEYOND * float(np.quantile(abs(own), MOST)) / NORMAL
    changes = np.array([change(pair) for pair in pairs])
    most = float(np.quantile(abs(changes - np.median(changes)), MOST))
    return most * math.log(len(pairs) / FAR) / -math.log(1 - MOST)


def scatter(pair: Pair) -> NDArray[np.float64]:
    """Return the changes by noise that a cell's launches tell of, a number for each launch; 0 of one launch a side."""
    sides = [levels(side)[:, 1] for side in (pair.old, pair.new)]
    freedom = max(sum(side.size - 1 for side in sides), 1)
    scale = math.sqrt(sum(side.size for side in sides) / freedom * sum(1 / side.size for side in sides))
    return scale * np.concatenate([side - side.mean() for side in sides])
