"""Arguments, arrays, time and bytes: what all examples share.  The patterns themselves are in their own files."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import mpicoll
from mpi4py import MPI
from mpicoll.schedule import Send

#: a NumPy or CuPy array, or the module of either
Array = Any
Module = Any
P = ParamSpec("P")
Result = TypeVar("Result")


def arguments(pattern: str | None, **numbers: float) -> argparse.Namespace:
    """Return the arguments: `--buffers`, and one for each number that is given here with its default.

    Args:
        pattern: the example's docstring, which `--help` prints.
        numbers: names and defaults, such as `width=256` for `--width 256`.
    """
    parser = argparse.ArgumentParser(description=pattern, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buffers", choices=("numpy", "cupy"), default="numpy", help="where arrays live")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default {default}")
    return parser.parse_args()


def array_module(buffers: str, comm: MPI.Intracomm) -> Module:
    """Return NumPy, or CuPy with a GPU of this host for each rank in turn."""
    if buffers == "numpy":
        import numpy

        return numpy
    import cupy

    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    cupy.cuda.Device(host.rank % cupy.cuda.runtime.getDeviceCount()).use()
    host.Free()
    return cupy


def finish(xp: Module) -> None:
    """Return when all work on this rank's device is done; NumPy's is done at once."""
    if xp.__name__ == "cupy":
        xp.cuda.get_current_stream().synchronize()


def timed(
    comm: MPI.Intracomm, xp: Module, work: Callable[P, Result], *arguments: P.args, **named: P.kwargs
) -> tuple[Result, float]:
    """Return (what the work returns, milliseconds of the slowest rank); all ranks start together.

    Args:
        comm: the ranks.
        xp: NumPy or CuPy.
        work: a function.
        arguments: its arguments.
        named: those with names.
    """
    finish(xp)
    comm.Barrier()
    start = time.perf_counter()
    result = work(*arguments, **named)
    finish(xp)
    return result, comm.allreduce((time.perf_counter() - start) * 1e3, MPI.MAX)


def sent(plan: mpicoll.Plan) -> list[list[tuple[int, float]]]:
    """Return the messages of a plan's rank: for each step of its schedule (peer, bytes) of each message.

    Where the blocks of a vector are not equally long, the bytes are those of their mean.
    """
    blocks = plan.key.facts.size if plan.key.facts.collective == "alltoall" else plan.schedule.blocks
    block = (plan.key.facts.nbytes or 0) / blocks
    steps = [[m for m in step.messages if isinstance(m, Send)] for step in plan.schedule.steps]
    return [[(m.peer, len(m.source) * block) for m in messages] for messages in steps]


def sent_bytes(plan: mpicoll.Plan) -> int:
    """Return the bytes that a plan's rank sends."""
    return round(sum(nbytes for messages in sent(plan) for _, nbytes in messages))


def say(comm: MPI.Intracomm, *lines: str) -> None:
    """Print lines on rank 0."""
    if comm.rank == 0:
        print(*lines, sep="\n", flush=True)


def readable(nbytes: float) -> str:
    """Return bytes as text: 1,536 is "1.5 KiB"."""
    unit = 0
    while nbytes >= 1024:
        nbytes, unit = nbytes / 1024, unit + 1
    return f"{nbytes:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"
