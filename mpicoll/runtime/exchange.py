"""Objects exchanged among all ranks without blocking, as routines that whoever waits can drive.

A routine is a generator: it yields a condition wherever it cannot go on by itself, and is
resumed once the condition is true.  Its result is what it returns.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

T = TypeVar("T")
#: a call that tells whether a routine can go on; it may be asked again after it said so
Condition = Callable[[], bool]
Routine = Generator[Condition, None, T]


def exchanged(comm: MPI.Intracomm, mine: Any) -> Routine[list[Any]]:
    """Return every rank's object.

    Args:
        comm: a private communicator, on which all ranks do this in the same order.
        mine: this rank's object, which can be pickled.
    """
    sent = np.frombuffer(pickle.dumps(mine), "u1")
    sizes = np.zeros(comm.size, "i8")
    yield comm.Iallgather(np.array([sent.size], "i8"), sizes).Test
    ends = np.cumsum(sizes)
    received = np.zeros(int(ends[-1]), "u1")
    yield comm.Iallgatherv(sent, [received, sizes.tolist()]).Test
    parts = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
    return [pickle.loads(received[start:end].tobytes()) for start, end in parts]


def met(comm: MPI.Intracomm) -> Routine[None]:
    """Return once all ranks have come here."""
    yield comm.Ibarrier().Test
