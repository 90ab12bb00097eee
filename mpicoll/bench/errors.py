"""Errors of the benchmark: all ranks raise the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI


class RequestError(ValueError):
    """The request cannot be served; every rank finds the same."""


class RefusedError(Exception):
    """A call cannot be served and is left out; raised on all ranks."""


class ShortageError(RefusedError):
    """A rank has too little memory."""


def anywhere(world: MPI.Intracomm, why: str) -> str:
    """Return the first rank's reason against something, "" if no rank has one; collective."""
    return next(filter(None, world.allgather(why)), "")
