"""The nonblocking collectives: each is derived from its blocking method, and ends in `Communicator._begin`.

A call starts at once and goes on inside `Test`, `Wait` and every other call of mpicoll that waits.
The arrays must not be touched until it is complete; the request holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, cast

from mpicoll.blocking import Algorithm, Blocking
from mpicoll.forms import Form
from mpicoll.request import Request

P = ParamSpec("P")

_FORM = Form(__name__, "Nonblocking", "_begin", Request)


def started(blocking: Callable[Concatenate[Any, P], None]) -> Callable[Concatenate[Any, P], Request]:
    """Return the nonblocking method of a blocking one, with the same parameters."""
    method = blocking.__name__
    made = _FORM.derive(blocking, f"I{method.lower()}", f"Start a nonblocking {method}.")
    return cast("Callable[Concatenate[Any, P], Request]", made)


class Nonblocking:
    """Mixin of the 16 nonblocking collectives."""

    def _begin(self, method: str, arguments: tuple[Any, ...], algorithm: Algorithm, stream: Any) -> Request:
        raise NotImplementedError

    Ibarrier = started(Blocking.Barrier)
    Ibcast = started(Blocking.Bcast)
    Igather = started(Blocking.Gather)
    Igatherv = started(Blocking.Gatherv)
    Iscatter = started(Blocking.Scatter)
    Iscatterv = started(Blocking.Scatterv)
    Iallgather = started(Blocking.Allgather)
    Iallgatherv = started(Blocking.Allgatherv)
    Ialltoall = started(Blocking.Alltoall)
    Ialltoallv = started(Blocking.Alltoallv)
    Ireduce = started(Blocking.Reduce)
    Iallreduce = started(Blocking.Allreduce)
    Ireduce_scatter_block = started(Blocking.Reduce_scatter_block)
    Ireduce_scatter = started(Blocking.Reduce_scatter)
    Iscan = started(Blocking.Scan)
    Iexscan = started(Blocking.Exscan)
