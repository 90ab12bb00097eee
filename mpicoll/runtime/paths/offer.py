"""The offer: which paths a call can take on a communicator, and why not the others."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from mpicoll.dispatch.paths import wanted
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.context.context import Context
from mpicoll.runtime.cuda.streams import CAPTURED, bus_address
from mpicoll.runtime.paths.table import path, serving
from mpicoll.runtime.progress.exchange import Routine, exchanged
from mpicoll.schedule.collectives import COLLECTIVES
from mpicoll.settings import settings


def reasons(context: Context, operands: Operands) -> dict[str, str]:
    """Return for each path of a call's memory why the call cannot take it, "" where it can; best first."""
    memory = "host" if operands.device < 0 else "device"
    return {way.name: way.unoffered(context, operands) for way in serving(memory)}


def plainly(context: Context, device: int) -> dict[str, str]:
    """Return the reasons for a call without an operator, on arrays of a device."""
    return reasons(context, Operands(COLLECTIVES["bcast"], "bcast", np.dtype("u1"), device))


def described(context: Context, device: int, name: str) -> str:
    """Return in words whether a call without an operator can take a path, and how it is there."""
    why = plainly(context, device)[name]
    return f"no: {why}" if why else f"yes, on {context.size} ranks{path(name).remark(context)}"


def offered(context: Context, operands: Operands, *, captured: bool = False) -> tuple[str, ...]:
    """Return the paths that a call can take, best first; the one that is set, if it is among them.

    Args:
        context: the communicator's.
        operands: the call.
        captured: it is captured into a CUDA graph.

    Raises:
        UnsupportedError: no path can be captured.
    """
    why = reasons(context, operands)
    usable = tuple(name for name, reason in why.items() if not reason)
    if (name := wanted()) in usable:
        usable = (name,)
    return _capturable(operands, usable, why) if captured else usable


def _capturable(operands: Operands, usable: tuple[str, ...], why: dict[str, str]) -> tuple[str, ...]:
    """Return the paths on which a call can be captured: a graph has kernels, but no messages and no packing."""
    refused = f"{operands.method}: {CAPTURED}"
    if operands.before or operands.after:
        refuse_copies(operands)
    names = [way.name for way in serving("device") if way.captures]
    found = tuple(name for name in names if name in usable)
    if not found:
        reason = next((why[name] for name in names if why[name]), f"path={settings.path!r} is set")
        raise UnsupportedError(
            f"{refused}, which only the path {' or '.join(names)} can be, and that is not offered: {reason}"
        )
    return found


def refuse_copies(operands: Operands) -> None:
    """Raise UnsupportedError for a call that is captured and whose arrays are copied around it."""
    what = "and the arrays must be copied around the call: pass contiguous ones, apart"
    raise UnsupportedError(f"{operands.method}: {CAPTURED}, {what}")


def is_connected(context: Context) -> bool:
    """Tell whether all that device arrays need of all ranks is there."""
    return all(way.is_prepared(context) for way in serving("device"))


def connecting(context: Context, device: int) -> Routine[None]:
    """Get what device arrays need of all ranks, before a communicator's first call with some."""
    if not context.gpus:
        own = MPI.Get_processor_name(), bus_address(device)
        context.gpus = len(set((yield from exchanged(context.comm, own))))
    for way in serving("device"):
        if not way.is_prepared(context):
            yield from way.prepare(context, device)


def connect(context: Context, device: int) -> None:
    """Get what device arrays need of all ranks; collective the first time."""
    if not is_connected(context):
        context.complete(lambda _: connecting(context, device))


def home(context: Context) -> int:
    """Return the device on which a communicator's calls work, -1 for any."""
    return max((way.home(context) for way in serving("device")), default=-1)
