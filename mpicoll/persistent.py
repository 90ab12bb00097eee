"""The persistent collectives: each is derived from its blocking method, and ends in `Communicator._prepare`.

A call is planned and bound once, and `Start`ed as often as it is needed.  The arrays stay the same;
the request holds them until it is freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, cast, overload

from mpicoll.blocking import Algorithm, Blocking
from mpicoll.forms import Form, with_info
from mpicoll.request import PersistentRequest

if TYPE_CHECKING:
    from mpi4py import MPI
    from typing_extensions import Unpack

P = ParamSpec("P")

_FORM = Form(__name__, "Persistent", "_prepare", PersistentRequest)


class PersistentCall(Protocol[P]):
    """A persistent method, as type checkers see it: the blocking one's parameters, and then `info`."""

    @overload
    def __call__(self, *arguments: P.args, **named: P.kwargs) -> PersistentRequest: ...
    @overload
    def __call__(self, *arguments: Any, info: MPI.Info, **named: Any) -> PersistentRequest: ...
    @overload
    def __call__(
        self,
        *arguments: Unpack[tuple[Unpack[tuple[Any, ...]], MPI.Info]],
        algorithm: Algorithm = None,
        stream: Any = None,
    ) -> PersistentRequest: ...


class PersistentMethod(Protocol[P]):
    """A persistent method as an attribute of the class."""

    def __get__(self, comm: object, owner: object = None) -> PersistentCall[P]: ...


def prepared(blocking: Callable[Concatenate[Any, P], None]) -> PersistentMethod[P]:
    """Return the persistent method of a blocking one, with `info` after its positional parameters."""
    method = blocking.__name__
    made = _FORM.derive(blocking, f"{method}_init", f"Make a persistent {method}; info is not used.")
    return cast("PersistentMethod[P]", with_info(made))


class Persistent:
    """Mixin of the 16 persistent collectives."""

    def _prepare(self, method: str, arguments: tuple[Any, ...], algorithm: Algorithm, stream: Any) -> PersistentRequest:
        raise NotImplementedError

    Barrier_init = prepared(Blocking.Barrier)
    Bcast_init = prepared(Blocking.Bcast)
    Gather_init = prepared(Blocking.Gather)
    Gatherv_init = prepared(Blocking.Gatherv)
    Scatter_init = prepared(Blocking.Scatter)
    Scatterv_init = prepared(Blocking.Scatterv)
    Allgather_init = prepared(Blocking.Allgather)
    Allgatherv_init = prepared(Blocking.Allgatherv)
    Alltoall_init = prepared(Blocking.Alltoall)
    Alltoallv_init = prepared(Blocking.Alltoallv)
    Reduce_init = prepared(Blocking.Reduce)
    Allreduce_init = prepared(Blocking.Allreduce)
    Reduce_scatter_block_init = prepared(Blocking.Reduce_scatter_block)
    Reduce_scatter_init = prepared(Blocking.Reduce_scatter)
    Scan_init = prepared(Blocking.Scan)
    Exscan_init = prepared(Blocking.Exscan)
