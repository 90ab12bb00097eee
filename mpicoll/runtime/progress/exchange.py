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

#: bytes of an object's length, and of an object that is sent at once
HEADER, SHORT = 8, 1016

T = TypeVar("T")
#: a call that tells whether a routine can go on; it may be asked again after it said so
Condition = Callable[[], bool]
Routine = Generator[Condition, None, T]


def finished(routine: Routine[T]) -> T:
    """Return the result of a routine that need not wait."""
    try:
        next(routine)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the routine waits")


class Later:
    """A condition that is true from the second question on."""

    asked = False

    def come(self) -> bool:
        """Tell whether it was asked before."""
        before, self.asked = self.asked, True
        return before


def exchanged(comm: MPI.Intracomm, mine: Any, enough: Callable[[Any], bool] = lambda _: False) -> Routine[list[Any]]:
    """Return every rank's object.

    Short objects need one round, which MPI completes even if this rank only waits in other calls of MPI.

    Args:
        comm: a private communicator, on which all ranks do this in the same order.
        mine: this rank's object, which can be pickled.
        enough: tells of a short object that the long ones need not be known; they are None then.
    """
    data = pickle.dumps(mine)
    sent = np.zeros(HEADER + SHORT, "u1")
    sent[:HEADER] = np.frombuffer(len(data).to_bytes(HEADER, "little"), "u1")
    sent[HEADER : HEADER + len(data)] = np.frombuffer(data[:SHORT], "u1")
    received = np.zeros((comm.size, HEADER + SHORT), "u1")
    yield comm.Iallgather(sent, received).Test
    sizes = [int.from_bytes(row[:HEADER].tobytes(), "little") for row in received]
    rows = zip(received, sizes, strict=True)
    found = [pickle.loads(row[HEADER : HEADER + n].tobytes()) if n <= SHORT else None for row, n in rows]
    if max(sizes) <= SHORT or any(enough(one) for one in found if one is not None):
        return found
    return list(map(pickle.loads, (yield from heard(comm, data, sizes))))


def heard(comm: MPI.Intracomm, data: bytes, sizes: list[int]) -> Routine[list[bytes]]:
    """Return every rank's bytes, whose numbers all ranks know; a rank may have none."""
    ends = np.cumsum(sizes).tolist()
    received = np.zeros(ends[-1], "u1")
    yield comm.Iallgatherv(np.frombuffer(data, "u1"), [received, sizes]).Test
    return [received[end - size : end].tobytes() for size, end in zip(sizes, ends, strict=True)]


def met(comm: MPI.Intracomm) -> Routine[None]:
    """Return once all ranks have come here."""
    yield comm.Ibarrier().Test
