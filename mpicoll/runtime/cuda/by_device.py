"""Local work by the device in whose memory it is, -1 for the host's; importable without CuPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpicoll.runtime.host.batch import Batch as HostBatch
from mpicoll.runtime.host.work import Host
from mpicoll.runtime.program.local_work import Copy, LocalWork


def work_on(device: int, stream: int) -> LocalWork:
    """Return what binds reductions and copies to a stream.

    Args:
        device: in whose memory they are, -1 for the host's.
        stream: address of the stream, 0 on the host.
    """
    if device < 0:
        return Host()
    from mpicoll.runtime.cuda.work import Device

    return Device(device, stream)


def batch_of(device: int, copies: Sequence[Copy], stream: int) -> Any:
    """Return copies that are done by one action.

    Args:
        device: in whose memory they are, -1 for the host's.
        copies: (address of the target, address of the source, bytes) of each.
        stream: address of the stream, 0 on the host.
    """
    if device < 0:
        return HostBatch(copies)
    from mpicoll.runtime.cuda.batch import Batch

    return Batch(device, copies, stream)
