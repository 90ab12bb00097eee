"""Compositions: the work of one collective by one or two others, one after the other, on the same arrays.

    allreduce = reduce + bcast                  vector of rank 0 <- inputs;  vectors <- that one
    allreduce = reduce_scatter + allgather      own block <- inputs;  vector <- blocks

The first collective should be no slower than any of them: these are self-consistent performance guidelines
(J. L. Träff, W. D. Gropp, R. Thakur, IEEE TPDS 21(5), 2010).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpi4py import MPI

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import Backend
from mpicoll.bench.request.cases import CALLS
from mpicoll.bench.request.numbers import dtype_named
from mpicoll.communicator import Communicator


@dataclass(frozen=True)
class Leg:
    """One call of a composition.

    Its arrays are the `input` of the collective that is composed, the whole `vector`, which holds the result, or this
    rank's `block` of that.

    Attributes:
        method: what is called.
        source: what it sends.
        target: what it receives.
    """

    method: str
    source: str
    target: str


#: by the name of a call: what does its work, too, if all blocks have as many elements
COMPOSITIONS: dict[str, tuple[tuple[Leg, ...], ...]] = {
    "allreduce": (
        (Leg("Reduce", "input", "vector"), Leg("Bcast", "vector", "vector")),
        (Leg("Reduce_scatter_block", "input", "block"), Leg("Allgather", "block", "vector")),
    ),
    "allgather": ((Leg("Gather", "input", "vector"), Leg("Bcast", "vector", "vector")),),
    "bcast": ((Leg("Scatter", "vector", "block"), Leg("Allgather", "block", "vector")),),
    "gather": ((Leg("Allgather", "input", "vector"),),),
    "reduce": ((Leg("Allreduce", "input", "vector"),),),
}


class Composition:
    """A contestant that makes other calls, as mpicoll chooses their ways.

    Attributes:
        legs: the calls.
    """

    exact = True

    def __init__(self, legs: tuple[Leg, ...], comm: Communicator, backend: Backend) -> None:
        """Keep what it is made of.

        Args:
            legs: the calls.
            comm: makes them.
            backend: where arrays live.
        """
        self.legs, self.comm, self.backend = legs, comm, backend

    def __str__(self) -> str:
        return " + ".join(leg.method.lower().removesuffix("_block") for leg in self.legs)

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Return the ways of its calls as one; raise ValueError, TypeError or UnsupportedError if one has none."""
        plans = [self.comm.Get_plan(method, *arguments) for method, arguments in self._calls(arrays)]
        names = " + ".join(str(Way(plan.algorithm, plan.segments)) for plan in plans)
        return Way(names, path=" + ".join(dict.fromkeys(plan.path for plan in plans)))

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return its calls as one."""
        calls = [partial(getattr(self.comm, method), *arguments) for method, arguments in self._calls(arrays)]

        def one_after_the_other() -> None:
            for call in calls:
                call()

        return one_after_the_other

    def _calls(self, arrays: Arrays) -> list[tuple[str, tuple[Any, ...]]]:
        """Return each call's method and arguments, on the arrays of a case out of place."""
        memory = _memory(arrays, self.backend)
        return [(leg.method, _arguments(leg, arrays, memory)) for leg in self.legs]


def _memory(arrays: Arrays, backend: Backend) -> dict[str, Any]:
    """Return the arrays that legs name; a rank whose result is no whole vector gets one."""
    case, sent, received = arrays.case, arrays.send, arrays.recv
    vector = received.array if received else backend.xp.empty(case.count, dtype_named(case.dtype))
    each = case.count // case.size
    return {
        "input": sent.array if sent else None,
        "vector": vector,
        "block": vector[arrays.rank * each :][:each],
    }


def _arguments(leg: Leg, arrays: Arrays, memory: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of a leg's call; a block that lies in the vector stays where it is."""
    row, root = CALLS[leg.method.lower()].row, arrays.case.root
    in_place = {leg.source, leg.target} == {"block", "vector"} and (not row.rooted or arrays.rank == root)
    sides = (leg.source,) if row.shared else (leg.source, leg.target)
    found = tuple(MPI.IN_PLACE if in_place and side == "block" else memory[side] for side in sides)
    if row.reducing:
        found += (arrays.op,)
    return (*found, root) if row.rooted else found
