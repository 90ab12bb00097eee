"""What is measured: mpicoll here; a baseline is another class with the same two methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mpicoll.communicator import Communicator


@dataclass(frozen=True)
class Way:
    """How a call is carried out.

    Attributes:
        algorithm: the algorithm's name.
        segments: number of segments, 0 where there is no such thing.
        path: "host", "direct" or "staged"; "" where there is no such thing.
        reason: who chose.
    """

    algorithm: str
    segments: int = 0
    path: str = ""
    reason: str = ""

    def __str__(self) -> str:
        segments = f"/{self.segments}" if self.segments else ""
        return self.algorithm + segments + (f"@{self.path}" if self.path else "")


class Subject(Protocol):
    """Something that carries out collective calls."""

    def way(self, method: str, arguments: tuple[Any, ...], algorithm: str | None) -> Way:
        """Return how a call would be carried out; raise ValueError or UnsupportedError if it cannot be."""

    def bind(self, method: str, arguments: tuple[Any, ...], algorithm: str | None) -> Callable[[], object]:
        """Return the call."""


class Mpicoll:
    """This library's calls."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def way(self, method: str, arguments: tuple[Any, ...], algorithm: str | None) -> Way:
        """Return how a call would be carried out; raise ValueError or UnsupportedError if it cannot be."""
        plan = self.comm.Get_plan(method, *arguments, algorithm=algorithm)
        return Way(plan.algorithm, plan.segments, plan.path, plan.reason)

    def bind(self, method: str, arguments: tuple[Any, ...], algorithm: str | None) -> Callable[[], object]:
        """Return the call."""
        return partial(getattr(self.comm, method), *arguments, algorithm=algorithm)
