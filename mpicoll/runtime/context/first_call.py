"""A communicator's first call: what its ranks must know of each other before they can choose alike."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from mpicoll.dispatch import tuning
from mpicoll.dispatch.machine_facts import MachineFacts, local
from mpicoll.dispatch.tuning import Text
from mpicoll.errors import MismatchError
from mpicoll.runtime.mpi import cuda_aware
from mpicoll.runtime.mpi.host import this_host
from mpicoll.runtime.mpi.roll_call import Address
from mpicoll.schedule.topology import AUTO, Topology, forced
from mpicoll.settings import settings

#: settings on which ranks must agree, since a choice or a tag depends on them
AGREED = (
    "algorithms",
    "tuning",
    "segment_bytes",
    "scratch_limit",
    "cuda_aware",
    "path",
    "mapped_bytes",
    "mapped_shared",
    "reproducible",
    "errors",
    "debug",
    "timeout",
    "native",
    "topology",
)


@dataclass(frozen=True)
class RankFacts:
    """A rank's word on itself, told once.

    Attributes:
        settings: those on which ranks must agree, and the communicator's rules.
        awareness: whether its MPI takes device pointers.
        host: name of its host.
        place: what tells its host from others; ranks of one host have the same.
        id: a random name; rank 0's becomes the communicator's.
        address: where its calls are asked for, None where the system has no sockets.
        machine: its host.
        tables: rank 0's user's tuning tables, with which all ranks choose.
    """

    settings: dict[str, Any]
    awareness: cuda_aware.Awareness
    host: str
    place: str
    id: str
    address: Address | None
    machine: MachineFacts
    tables: tuple[Text, ...]


def agreed_settings(rules: str, table: Text) -> dict[str, Any]:
    """Return all on which ranks must agree.

    Args:
        rules: the communicator's.
        table: the tuning table that is set.
    """
    found = {name: getattr(settings, name) for name in AGREED} | {"algorithms of the communicator": rules}
    return found | {"content of the tuning table": tuning.fingerprint(table)}


def own_facts(mine: dict[str, Any], address: Address | None, rank: int) -> RankFacts:
    """Return this rank's facts."""
    host, awareness = MPI.Get_processor_name(), cuda_aware.decide()
    tables = tuning.users_tables() if rank == 0 else ()
    name, machine = secrets.token_hex(8), local(MPI.get_vendor()[0])
    return RankFacts(mine, awareness, host, _place(), name, address, machine, tables)


def _place() -> str:
    """Return what tells this rank's host from others: the host's identity, or what the setting says.

    Raises:
        ValueError: the setting names the hosts of other numbers of ranks.
    """
    if settings.topology == AUTO:
        return this_host()
    world = MPI.COMM_WORLD
    hosts = forced(settings.topology, world.size).host_of
    return str(hosts[world.rank]) if hosts else ""


def topology_of(comm: MPI.Intracomm, places: list[str]) -> Topology:
    """Return the topology of a communicator.

    Args:
        comm: the communicator.
        places: what tells each rank's host from others; only the setting tells of racks, by ranks of the world.
    """
    if "/" not in settings.topology:
        return Topology.of(places)
    world, group = MPI.COMM_WORLD.Get_group(), comm.Get_group()
    ranks = MPI.Group.Translate_ranks(group, list(range(comm.size)), world)
    group.Free()
    world.Free()
    if MPI.UNDEFINED in ranks:  # of another world
        return Topology.of(places)
    return forced(settings.topology, MPI.COMM_WORLD.size).part(ranks)


def compare(all_settings: list[dict[str, Any]]) -> None:
    """Raise MismatchError on every rank if settings differ."""
    first = all_settings[0]
    for rank, other in enumerate(all_settings):
        if other is first:
            continue
        for name, value in other.items():
            if value != first[name]:
                raise MismatchError(f"setting {name!r} is {first[name]!r} on rank 0, {value!r} on rank {rank}")
