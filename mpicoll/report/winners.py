"""Winners of a contest: the fastest algorithm at each size, and the sizes at which another one takes over."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpicoll.report.contest import Contest, Timing


@dataclass(frozen=True)
class Winner:
    """The fastest algorithm of a cell.

    Attributes:
        name: of the algorithm.
        timing: its time.
        equal: others whose intervals overlap with its own.
        auto: what mpicoll chose; None where it was not asked to.
    """

    name: str
    timing: Timing
    equal: tuple[str, ...]
    auto: Timing | None

    @property
    def regret(self) -> float | None:
        """The part by which mpicoll's choice is slower; 0 where it is not, None where it is not known."""
        return max(self.auto.median / self.timing.median - 1, 0.0) if self.auto else None

    @property
    def shown(self) -> bool:
        """Whether the choice is slower by more than its interval."""
        return self.auto is not None and self.auto.low > self.timing.high


@dataclass(frozen=True)
class Takeover:
    """The size at which one algorithm takes over from another."""

    nbytes: float
    before: str
    after: str


def winner(contest: Contest, nbytes: int) -> Winner | None:
    """Return the winner at a size, None where nothing was timed."""
    found = contest.candidates(nbytes)
    if not found:
        return None
    name = min(found, key=lambda name: found[name].median)
    equal = tuple(other for other, one in found.items() if other != name and one.low <= found[name].high)
    return Winner(name, found[name], equal, contest.auto.get(nbytes))


def takeovers(contest: Contest) -> list[Takeover]:
    """Return the takeovers; an algorithm stays the fastest while its interval overlaps with the fastest one's."""
    found: list[Takeover] = []
    holder, last = "", 0
    for nbytes in (size for size in contest.sizes if size):
        best = winner(contest, nbytes)
        if best is None or holder in (best.name, *best.equal):
            last = nbytes if best else last
            continue
        if holder:
            found.append(Takeover(_meeting(contest, (holder, best.name), (last, nbytes)), holder, best.name))
        holder, last = best.name, nbytes
    return found


def _meeting(contest: Contest, names: tuple[str, str], sizes: tuple[int, int]) -> float:
    """Return the size at which two curves meet, on straight lines between two sizes of a plot with logarithmic axes."""
    at = [contest.candidates(nbytes) for nbytes in sizes]
    if not all(name in found for name in names for found in at):
        return math.sqrt(sizes[0] * sizes[1])
    before, after = (math.log(found[names[0]].median / found[names[1]].median) for found in at)
    part = before / (before - after) if before < 0 < after else 0.5
    return float(sizes[0] * (sizes[1] / sizes[0]) ** part)
