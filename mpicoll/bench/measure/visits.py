"""Visits: races of the same choices, far apart in time.

Which choice is fast can change with the machine's state, and that lasts for seconds to minutes: 2 ranks of a virtual
machine all-gathered 3 MB in 136 us by linear and in 335 us by ring in one minute, and as fast by both in another.  What
was raced once would be sure of its minute.  So a time is the geometric mean over visits, which count alike.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from mpicoll.bench.measure.race import Runner

#: visits to the same choices, spread over a run
VISITS = 3
#: times the fastest one's time in earlier visits beyond which a choice is not raced again
AGAIN = 2.0

C = TypeVar("C", bound=Hashable)


@dataclass
class Visits(Generic[C]):
    """The visits to one call.

    Attributes:
        found: what each race said of each choice in it.
    """

    found: list[Mapping[C, Runner]] = field(default_factory=list)

    def runners(self) -> dict[C, Runner]:
        """Return what all visits say of each choice, in seconds of a visit that is neither slow nor fast."""
        choices = dict.fromkeys(choice for visit in self.found for choice in visit)
        scaled = [
            {choice: replace(one, reference=one.reference * scale) for choice, one in visit.items()}
            for visit, scale in zip(self.found, self._scales(), strict=True)
        ]
        return {choice: Runner.of_visits([one[choice] for one in scaled if choice in one]) for choice in choices}

    def _scales(self) -> list[float]:
        """Return by what each visit's times are multiplied, so that a choice that missed a slow one is no faster."""
        common = set.intersection(*map(set, self.found)) if self.found else set()
        logs = [math.fsum(math.log(visit[choice].estimate) for choice in common) for visit in self.found]
        return [math.exp((float(np.median(logs)) - log) / max(len(common), 1)) for log in logs]

    def left(self, choices: Iterable[C]) -> list[C]:
        """Return those of which another visit may tell something."""
        found = self.runners()
        best = min((one.estimate for one in found.values()), default=0.0)
        slow = {choice for choice, one in found.items() if one.estimate > AGAIN * best}
        return [choice for choice in choices if choice not in slow]
