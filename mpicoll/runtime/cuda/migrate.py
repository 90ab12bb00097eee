"""Calls on arrays of another device than the communicator's: they are copied to it, and the results back.

The inboxes of a communicator are on one device of each rank.  Whether this rank's arrays are there is
a fact of this rank alone, so the choice of the path cannot depend on it.
"""

from __future__ import annotations

from dataclasses import replace

import cupy

from mpicoll.runtime.arguments.arrays import Flat, pointer_of
from mpicoll.runtime.arguments.operands import Operands

_runtime = cupy.cuda.runtime


def moved(operands: Operands, home: int) -> Operands:
    """Return the call on copies of its arrays on the device `home`; the host waits for the copies."""
    same, held = operands.output is operands.input, operands.held
    source = _empty_like(operands.input, home, held == "input")
    target = source if same else _empty_like(operands.output, home, held == "output")

    def bring() -> None:
        if held != "input":
            _copy(operands.input, source)
        if not same and held != "output":
            _copy(operands.output, target)  # what the call leaves as it is

    def take() -> None:
        if held == "output":
            _copy(source, operands.input)
        else:
            _copy(target, operands.output)

    return replace(
        operands,
        device=home,
        input=source,
        output=target,
        aliased=operands.aliased and same,
        before=[*operands.before, bring],
        after=[take, *operands.after],
        moved=True,
    )


def _empty_like(flat: Flat | None, device: int, held: bool) -> Flat | None:
    """Return an array on a device; of a copy that the program has for itself only its place is another one."""
    if flat is None or held:
        return flat and replace(flat, device=device)
    with cupy.cuda.Device(device):
        array = cupy.empty(flat.size, flat.array.dtype)
    return Flat(array, pointer_of(array), device)


def _copy(source: Flat | None, target: Flat | None) -> None:
    if source is None or target is None or not source.array.nbytes:
        return
    for flat in (source, target):
        with cupy.cuda.Device(flat.device):
            _runtime.deviceSynchronize()
    _runtime.memcpyPeer(target.pointer, target.device, source.pointer, source.device, source.array.nbytes)
