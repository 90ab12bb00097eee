"""Communicators for tests of the path mapped; a test that asks for one is skipped where there can be none."""

from __future__ import annotations

from typing import Any

import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.paths import offer

SIZE = MPI.COMM_WORLD.Get_size()
#: bytes of inboxes so small that calls of some 10 KB have several waves
NARROW = SIZE << 20
#: how tiles travel: the longest block of the protocol `lines`, and bytes of the inboxes
KINDS = {"lines": (1 << 62, 0), "slices": (-1, 0), "narrow lines": (1 << 62, NARROW), "narrow slices": (-1, NARROW)}

_why: list[str] = []


def connected(nbytes: int = 0, **values: Any) -> Any:
    """Return a new communicator whose inboxes are there; skips, on all ranks alike, if they cannot be."""
    import cupy

    if _why:
        pytest.skip(_why[0])
    values |= {"mapped_bytes": nbytes} if nbytes else {}
    with mpicoll.override(path="mapped", **values):
        comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        context = comm._get_context()
        offer.connect(context, cupy.cuda.Device().id)
    if nbytes and not isinstance(context.attached["mapped"], str):
        context.attached["mapped"].larger = "it is to be narrow"
    if isinstance(context.attached["mapped"], str):
        _why.append(f"path mapped is not offered: {context.attached['mapped']}")
        comm.Free()
        pytest.skip(_why[0])
    return comm


class Kinds:
    """One communicator of each kind, made when it is wanted."""

    def __init__(self) -> None:
        self.comms: dict[str, Any] = {}

    def comm(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Return it; its calls must be made while the test lasts, for the protocol is forced."""
        from mpicoll.runtime.paths.mapped import protocols

        limit, nbytes = KINDS[kind]
        if kind not in self.comms:
            self.comms[kind] = connected(nbytes)
        monkeypatch.setattr(protocols, "LINES_LIMIT", limit)
        return self.comms[kind]

    def free(self) -> None:
        for comm in self.comms.values():
            comm.Free()


def names(method: str) -> list[str]:
    """Return the algorithms of a method."""
    (found,) = mpicoll.algorithms(method).values()
    return found
