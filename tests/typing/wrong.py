"""A program of mistakes, each of which type checkers must find: one that is not found is an unused `ignore`."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import mpicoll


def misspelt(comm: mpicoll.Communicator, x: NDArray[np.float32]) -> None:
    mpicoll.allredcue(x)  # type: ignore[attr-defined]
    mpicoll.Comunicator(MPI.COMM_WORLD)  # type: ignore[attr-defined]
    mpicoll.requests.Request.Waitall([])  # type: ignore[attr-defined]
    mpicoll.allreduce(x, algoritm="ring")  # type: ignore[call-overload]
    comm.Allreduce(x, x, algoritm="ring")  # type: ignore[call-arg]
    comm.Iallreduce(x, x, algoritm="ring")  # type: ignore[call-arg]
    comm.Allredcue(x, x)  # type: ignore[attr-defined]
    comm.Dup().Allredcue(x, x)  # type: ignore[attr-defined]
    mpicoll.settings.timeuot = 60  # type: ignore[attr-defined]
    print(mpicoll.settings.timeuot)  # type: ignore[attr-defined]
    with mpicoll.override(timeuot=60):  # type: ignore[call-arg]
        pass


def wrong_arguments(comm: mpicoll.Communicator, x: NDArray[np.float32], y: NDArray[np.int32]) -> None:
    comm.Allreduce("x", x)  # type: ignore[arg-type]
    comm.Bcast(3)  # type: ignore[arg-type]
    comm.Bcast(None)  # type: ignore[arg-type]
    comm.Allreduce(x, x, "SUM")  # type: ignore[arg-type]
    comm.Bcast(x, root="0")  # type: ignore[arg-type]
    comm.Split("colour")  # type: ignore[arg-type]
    mpicoll.allreduce("x")  # type: ignore[call-overload]
    summed = mpicoll.allreduce(x)
    number: NDArray[np.int32] = summed  # type: ignore[assignment]
    everywhere: NDArray[np.float32] = mpicoll.gather(x)  # type: ignore[assignment]
    print(number, everywhere, y)
