"""The introductions of a communicator's ranks: each tells all others of itself, in a record of 64 bytes.

Most of what a rank would say the others would say, too, such as settings.  So a record has a digest of that.  Only
where digests differ, or rank 0 has tuning tables, or hosts must be named, some ranks say more, in a second exchange.
On 65,536 ranks that start alike, a rank receives 4 MiB in one exchange.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.context.first_call import RankFacts
from mpicoll.runtime.mpi.roll_call import Address
from mpicoll.runtime.progress.exchange import Routine, heard

#: bytes of a record
LENGTH = 64
_PACKED = struct.Struct("<8s8s8s16s?4sH8sIH")


@dataclass(frozen=True)
class Introduction:
    """A rank's record.

    Attributes:
        id: a random name.
        host: digest of its host's name.
        place: digest of what tells its host from others.
        common: digest of settings, awareness, machine and tables.
        is_named: its calls have a time limit, so that ranks must know the names of hosts.
        ip: of the address where its calls are asked for.
        port: of that address, 0 for none.
        token: of that address.
        says: bytes that it would add, to tell all.
        name: bytes of its host's name.
    """

    id: bytes
    host: bytes
    place: bytes
    common: bytes
    is_named: bool
    ip: bytes
    port: int
    token: bytes
    says: int
    name: int

    @staticmethod
    def of(own: RankFacts, said: bytes) -> Introduction:
        """Return a rank's record; `said` is what it would add."""
        address = own.address or Address("", "0.0.0.0", 0, "00" * 8)
        common = repr((sorted(own.settings.items()), own.awareness, own.machine, own.tables))
        return Introduction(
            bytes.fromhex(own.id),
            _digest(_name(own)),
            _digest(own.place),
            _digest(common, 16),
            own.settings["timeout"] > 0,
            socket.inet_aton(address.ip),
            address.port,
            bytes.fromhex(address.token),
            len(said),
            len(_name(own).encode()),
        )

    def packed(self) -> bytes:
        """Return it as bytes."""
        return _PACKED.pack(*vars(self).values()).ljust(LENGTH, b"\0")

    @staticmethod
    def unpacked(data: bytes) -> Introduction:
        """Return it from its bytes."""
        return Introduction(*_PACKED.unpack_from(data))


def introduced(comm: MPI.Intracomm, own: RankFacts) -> Routine[list[RankFacts]]:
    """Return the facts of all ranks; hosts have their names where there are time limits, else digests of them.

    Args:
        comm: a private communicator, on which all ranks do this at the same place.
        own: this rank's facts.
    """
    said, name = pickle.dumps((own.settings, own.awareness, own.machine, own.tables)), _name(own).encode()
    sent = np.frombuffer(Introduction.of(own, said).packed(), "u1")
    received = np.empty((comm.size, LENGTH), "u1")
    yield comm.Iallgather(sent, received).Test
    records = [Introduction.unpacked(row.tobytes()) for row in received]
    kinds, hosts = _firsts(one.common for one in records), _firsts(one.host for one in records)
    kinds = kinds if len(kinds) > 1 else {}
    hosts = hosts if any(one.is_named for one in records) else {}
    sizes = [one.says * (kinds.get(one.common) == r) for r, one in enumerate(records)]
    lengths = [one.name * (hosts.get(one.host) == r) for r, one in enumerate(records)]
    kept, names = {records[comm.rank].common: own}, {records[comm.rank].host: _name(own)}
    if any(sizes) or any(lengths):
        text = said * (sizes[comm.rank] > 0) + name * (lengths[comm.rank] > 0)
        texts = yield from heard(comm, text, [a + b for a, b in zip(sizes, lengths, strict=True)])
        kept = {common: _said(texts[r][: sizes[r]], own) for common, r in kinds.items()} or kept
        names = {host: texts[r][sizes[r] :].decode() for host, r in hosts.items()} or names
    return [_fact(one, kept[one.common], names) for one in records]


def _name(own: RankFacts) -> str:
    """Return the name of a rank's host, by which it is asked where it is."""
    return own.address.host if own.address else own.host


def _firsts(values: Iterable[bytes]) -> dict[bytes, int]:
    """Return the first rank that has each value."""
    found: dict[bytes, int] = {}
    for rank, value in enumerate(values):
        found.setdefault(value, rank)
    return found


def _said(text: bytes, own: RankFacts) -> RankFacts:
    """Return facts with what a rank has said for all that have the same to say."""
    values, awareness, machine, tables = pickle.loads(text)
    return replace(own, settings=values, awareness=awareness, machine=machine, tables=tables)


def _fact(one: Introduction, kept: RankFacts, names: dict[bytes, str]) -> RankFacts:
    """Return a rank's facts: its own, and those that it shares with others."""
    name = names.get(one.host, one.host.hex())
    address = Address(name, socket.inet_ntoa(one.ip), one.port, one.token.hex()) if one.port else None
    return replace(kept, host=name, place=one.place.hex(), id=one.id.hex(), address=address)


def _digest(text: str, size: int = 8) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()
