"""Patterns: an allreduce as programs call it, not always with the same arrays as a benchmark does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from typing import Any

from mpi4py import MPI

import mpicoll
from mpicoll.bench.contestants.torch_distributed import Pytorch, tensors_on, why_no_tensors
from mpicoll.bench.measure.backends import Backend
from mpicoll.communicator import Communicator

#: arrays and sizes that take turns
ARRAYS, SIZES = 500, 600
#: sizes that are new, before the first one comes again
NEW = 4000
#: bytes of all arrays that take turns at most
MOST_BYTES = 1 << 30
#: bytes of an element
ITEM = 4

Call = Callable[[], object]


@dataclass(frozen=True)
class Pattern:
    """A way to make a call again and again.

    Attributes:
        name: of the pattern.
        call: makes the call, with all that the program does for it.
        besides: does what the program does besides the call, such as slicing; None for nothing.
        rival: makes the same call through PyTorch; None where it has none.
        beside: name of the pattern that it is compared with.
        known: calls after which all of its arrays are known.
    """

    name: str
    call: Call
    besides: Call | None = None
    rival: Call | None = None
    beside: str = "same arrays"
    known: int = 4


def patterns(comm: Communicator, backend: Backend, nbytes: int, rival: Pytorch | None = None) -> list[Pattern]:
    """Return the patterns, the one with which others are compared first; local.

    Args:
        comm: the communicator.
        backend: where the arrays live.
        nbytes: bytes of the vector, of float32.
        rival: PyTorch's calls, None for none.

    Raises:
        MemoryError: there is too little for the arrays.
    """
    xp, count = backend.xp, max(nbytes // ITEM, 1)
    x, y = xp.zeros(count, "f4"), xp.zeros(count, "f4")
    xp.empty(count, "f4")  # as large as a temporary
    request = cache(lambda: comm.Allreduce_init(x, y))

    def temporary() -> None:
        comm.Allreduce(x, xp.empty(count, "f4"))

    def restarted() -> None:
        request().Start()
        request().Wait()

    def specified() -> None:
        comm.Allreduce([x, count, MPI.FLOAT], [y, count, MPI.FLOAT])

    own = _PytorchCalls(rival, backend, count) if rival else None
    found = [
        Pattern("same arrays", lambda: comm.Allreduce(x, y)),
        Pattern("fresh views", lambda: comm.Allreduce(x[:], y[:]), lambda: (x[:], y[:])),
        Pattern("list of array, count, type", specified),
        Pattern("in place", lambda: comm.Allreduce(MPI.IN_PLACE, y)),
        Pattern("into a temporary", temporary, lambda: xp.empty(count, "f4")),
        *_in_turn(comm, backend, count),
        Pattern("function", lambda: mpicoll.allreduce(x, comm=comm), lambda: xp.empty(count, "f4")),
        *_tensors(comm, backend, count),
        Pattern("Iallreduce, Wait", lambda: comm.Iallreduce(x, y).Wait()),
        Pattern("persistent Start, Wait", restarted),
        *_alltoall(comm, backend, count),
    ]
    return [replace(one, rival=own.call(one.name)) for one in found] if own else found


class _PytorchCalls:
    """The same calls as PyTorch's users make them."""

    def __init__(self, torch: Pytorch, backend: Backend, count: int) -> None:
        """Make the tensors.

        Args:
            torch: PyTorch's calls.
            backend: where the tensors live.
            count: elements of the vector.
        """
        zeros, reduce = tensors_on(backend), torch.dist.all_reduce
        x, y, whole = zeros(count), zeros(count), zeros(count + SIZES)
        block = count + -count % torch.size
        sent, received = zeros(block), zeros(block)
        sizes = cycle(range(count, count + SIZES))
        arrays = cycle([zeros(count) for _ in range(ARRAYS if _has_room(count) else 1)])
        self.calls: dict[str, Call] = {
            "same arrays": lambda: reduce(x),
            "fresh views": lambda: reduce(x[:]),
            "in place": lambda: reduce(x),
            "into a temporary": lambda: reduce(torch.torch.empty_like(x)),
            f"{SIZES} sizes in turn": lambda: reduce(whole[: next(sizes)]),
            f"{ARRAYS} arrays in turn": lambda: reduce(next(arrays)),
            "function": lambda: reduce(x.clone()),
            "tensors": lambda: reduce(x),
            "fresh views of tensors": lambda: reduce(y[:]),
            f"{ARRAYS} tensors in turn": lambda: reduce(next(arrays)),
            "Iallreduce, Wait": lambda: reduce(x, async_op=True).wait(),
            "alltoall": lambda: torch.dist.all_to_all_single(received, sent),
        }

    def call(self, name: str) -> Call | None:
        """Return the call of a pattern, None if PyTorch has none."""
        return self.calls.get(name)


def _in_turn(comm: Communicator, backend: Backend, count: int) -> list[Pattern]:
    """Return the patterns in which calls differ."""
    xp = backend.xp
    memory = xp.zeros(count + SIZES + NEW, "f4")
    known, others = (cycle(range(count, count + SIZES)) for _ in range(2))
    new = cycle(range(count + SIZES + 1, count + SIZES + NEW))
    return [
        *_arrays_in_turn("arrays", comm, count, lambda: xp.zeros(count, "f4")),
        Pattern(
            f"{SIZES} sizes in turn",
            lambda: comm.Allreduce(MPI.IN_PLACE, memory[: next(known)]),
            lambda: memory[: next(others)],
            known=4 * SIZES,
        ),
        Pattern(
            "a new size",
            lambda: comm.Allreduce(MPI.IN_PLACE, memory[: next(new)]),
            lambda: memory[: next(others)],
        ),
    ]


def _tensors(comm: Communicator, backend: Backend, count: int) -> list[Pattern]:
    """Return the patterns of PyTorch's tensors, none where it is not installed, or has no such device."""
    if why_no_tensors(backend):
        return []
    zeros = tensors_on(backend)
    x, y = zeros(count), zeros(count)
    return [
        Pattern("tensors", lambda: comm.Allreduce(x, y)),
        Pattern("fresh views of tensors", lambda: comm.Allreduce(x[:], y[:]), lambda: (x[:], y[:])),
        *_arrays_in_turn("tensors", comm, count, lambda: zeros(count)),
    ]


def _arrays_in_turn(kind: str, comm: Communicator, count: int, make: Callable[[], Any]) -> list[Pattern]:
    """Return the pattern of many arrays, none where they would take too much memory.

    Args:
        kind: of the arrays, in the plural.
        comm: the communicator.
        count: elements of each.
        make: returns one.
    """
    if not _has_room(count):
        return []
    arrays = cycle([make() for _ in range(ARRAYS)])
    return [Pattern(f"{ARRAYS} {kind} in turn", lambda: comm.Allreduce(MPI.IN_PLACE, next(arrays)), known=4 * ARRAYS)]


def _has_room(count: int) -> bool:
    """Tell whether there is room for many arrays of so many elements."""
    return ARRAYS * count * ITEM <= MOST_BYTES


def _alltoall(comm: Communicator, backend: Backend, count: int) -> list[Pattern]:
    """Return the patterns of another call, whose result cannot be written where its input is."""
    whole = count + -count % comm.size
    x, y = backend.xp.zeros(whole, "f4"), backend.xp.zeros(whole, "f4")
    apart = "alltoall"
    return [
        Pattern(apart, lambda: comm.Alltoall(x, y), beside=apart),
        Pattern("alltoall in place", lambda: comm.Alltoall(MPI.IN_PLACE, y), beside=apart),
    ]


def make_known(pattern: Pattern) -> None:
    """Make a pattern's calls until all of its arrays are known."""
    for _ in range(pattern.known):
        pattern.call()
        if pattern.besides:
            pattern.besides()
