"""The exception types of mpicoll, and nothing else."""

from typing import Any

__all__ = ["Error", "MismatchError", "ScheduleError", "StalledError", "TransportError", "UnsupportedError"]


class Error(Exception):
    """The base of all errors that mpicoll alone raises, each of which is of one of Python's kinds, too."""


class ScheduleError(Error, ValueError):
    """A schedule does not do what its collective promises, or could race or deadlock."""


class UnsupportedError(Error, NotImplementedError):
    """The request is well formed, but this algorithm, operator or array kind cannot serve it."""


class MismatchError(Error, RuntimeError):
    """Ranks that should agree (on settings or on a call) do not."""


class StalledError(Error, TimeoutError):
    """A collective made no progress within the time limit; its communicator cannot be used any more.

    Attributes:
        history: the last calls of each rank that answered, and of this one (see `Communicator.history`).
    """

    def __init__(self, *arguments: object, history: dict[int, list[Any]] | None = None) -> None:
        super().__init__(*arguments)
        self.history = history or {}


class TransportError(Error, RuntimeError):
    """MPI could not deliver a message of a call; its communicator cannot be used any more."""
