"""Contestants: mpicoll here; baselines (`baselines.py`) are other classes with the same two methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from mpicoll.bench.measure.arrays import Arrays
from mpicoll.communicator import Communicator


@dataclass(frozen=True)
class Way:
    """Algorithm, segments and path by which a call is carried out.

    `str(Way("ring", 2, "host"))` is "ring/2@host".

    Attributes:
        algorithm: the algorithm's name.
        segments: number of segments, 0 where there is no such thing.
        path: name of a path; "" where there is no such thing.
        reason: who chose.
    """

    algorithm: str
    segments: int = 0
    path: str = ""
    reason: str = ""

    def __str__(self) -> str:
        segments = f"/{self.segments}" if self.segments else ""
        return self.algorithm + segments + (f"@{self.path}" if self.path else "")


class Contestant(Protocol):
    """Something that carries out collective calls.

    Attributes:
        exact: it has a result, which can be validated.
    """

    exact: bool

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Return the way of a call; raise ValueError, TypeError or UnsupportedError if there is none."""

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return the call."""


class Mpicoll:
    """This library's calls."""

    exact = True

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Return the way of a call; raise ValueError, TypeError or UnsupportedError if there is none."""
        plan = self.comm.Get_plan(arrays.case.call.method, *arrays.arguments, algorithm=algorithm)
        return Way(plan.algorithm, plan.choice.segments, plan.choice.path, plan.reason)

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return the call, on views of its own: the shortcut knows one call for the same two objects.

        Other calls on the same arrays, by other algorithms, would be a few microseconds slower than that one.
        """
        views = [_view(argument) for argument in arrays.arguments]
        return partial(getattr(self.comm, arrays.case.call.method), *views, algorithm=algorithm)


def _view(argument: Any) -> Any:
    """Return another object with an argument's memory; what is no array, or list with one, is returned as it is."""
    if isinstance(argument, list) and argument and hasattr(argument[0], "dtype"):
        return [argument[0][:], *argument[1:]]
    return argument[:] if hasattr(argument, "dtype") else argument
