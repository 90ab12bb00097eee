"""A communicator's first call: what its ranks must know of each other before they can choose alike."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from mpicoll.errors import MismatchError
from mpicoll.runtime.mpi import cuda_aware
from mpicoll.runtime.mpi.roll_call import Address
from mpicoll.runtime.mpi.waiter import Waiter, cores
from mpicoll.runtime.progress.exchange import Routine, exchanged
from mpicoll.runtime.progress.refusals import Refusals
from mpicoll.schedule.program import TAGS
from mpicoll.settings import settings

if TYPE_CHECKING:
    from mpicoll.runtime.context.context import Context

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
)


@dataclass(frozen=True)
class Facts:
    """What a rank tells the others once: its settings and rules, its MPI's awareness, its host, where it is asked."""

    settings: dict[str, Any]
    awareness: cuda_aware.Awareness
    host: str
    id: str
    address: Address | None


def agreed_settings(rules: str) -> dict[str, Any]:
    """Return the settings on which ranks must agree, and a communicator's rules."""
    return {name: getattr(settings, name) for name in AGREED} | {"algorithms of the communicator": rules}


def set_up(context: Context, duplicated: MPI.Request, mine: dict[str, Any]) -> Routine[None]:
    """Exchange what ranks must know of each other, and make a context ready.

    Args:
        context: of the communicator.
        duplicated: completes when the private communicator is there.
        mine: the settings on which ranks must agree.

    Raises:
        MismatchError: they do not agree.
    """
    yield duplicated.Test
    host, watch = MPI.Get_processor_name(), context.watch
    name = secrets.token_hex(8)
    own = Facts(mine, cuda_aware.decide(), host, name, watch.address if watch else None)
    facts: list[Facts] = yield from exchanged(context.comm, own)
    try:
        _compare([one.settings for one in facts])
    except MismatchError as error:
        context.refused = error
        raise
    if watch:
        watch.agree(facts[0].id, [one.address for one in facts])
    context.refusals = Refusals(context.comm, (context.most_slots - 1) * TAGS)
    context.awareness = cuda_aware.agree([one.awareness for one in facts])
    here = [one.host for one in facts].count(host)
    yielding = settings.yield_wait
    context.waiter = Waiter(here > cores() if yielding is None else yielding)
    context.ready = True


def _compare(all_settings: list[dict[str, Any]]) -> None:
    """Raise on every rank if settings differ."""
    first = all_settings[0]
    for rank, other in enumerate(all_settings):
        for name, value in other.items():
            if value != first[name]:
                raise MismatchError(f"setting {name!r} is {first[name]!r} on rank 0, {value!r} on rank {rank}")
