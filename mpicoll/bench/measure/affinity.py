"""The cores of ranks that outnumber them: which ranks share one.

A call's time depends on it, and the system keeps one order for seconds, often for a whole launch: with 4 ranks on 2
cores a reduce of 24 B by a k-nomial tree took 0.82 to 1.06 of a ring's time in 7 launches, in each sure within 2 %.  So
the ranks are dealt onto the cores anew for each block of timed calls, as many onto each as onto the others, and a
median is one over many orders.  Ranks that have a core each, or that were bound to cores of their own, are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType

import numpy as np
from mpi4py import MPI

#: of the order in which ranks are dealt, the same on all
SEED = 17


class Affinity:
    """The cores of a host's ranks; as a context it lets this rank run on all of them again.

    Args:
        rank: of this rank among those of its host.
        number: of these ranks.
        cores: on which each of them may run; empty where they may not all run on the same.
    """

    def __init__(self, rank: int, number: int, cores: Sequence[int]) -> None:
        self.rank, self.number, self.cores = rank, number, list(cores)
        self.random = np.random.default_rng(SEED)

    @classmethod
    def of(cls, world: MPI.Intracomm) -> Affinity:
        """Return this rank's among the ranks of a communicator; collective."""
        here = world.Split_type(MPI.COMM_TYPE_SHARED)
        mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        alike = all(cores == mine for cores in here.allgather(mine))
        found = cls(here.rank, here.size, mine if alike else [])
        here.Free()
        return found

    @property
    def dealt(self) -> bool:
        """True where ranks share cores, and could do so in several ways."""
        return 1 < len(self.cores) < self.number

    def deal(self) -> None:
        """Give each rank a core at random; on all ranks of the host."""
        if self.dealt:
            place = int(self.random.permutation(self.number)[self.rank])
            os.sched_setaffinity(0, {self.cores[place % len(self.cores)]})

    def __enter__(self) -> Affinity:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.dealt:
            os.sched_setaffinity(0, self.cores)
