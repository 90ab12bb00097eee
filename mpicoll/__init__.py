"""Collectives for arrays on GPUs, built from MPI point-to-point messages.

Import it before mpi4py.MPI where there is a GPU: it then puts a CUDA-capable UCX under the MPI
library.  Importing it starts neither MPI nor CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpicoll.algorithms import catalogue as _catalogue
from mpicoll.analysis.registration import algorithm
from mpicoll.analysis.verify import verify
from mpicoll.dispatch.plan import Plan, plan
from mpicoll.errors import Error, MismatchError, ScheduleError, StalledError, TransportError, UnsupportedError
from mpicoll.runtime.mpi.environment import prepare as _prepare
from mpicoll.schedule.collectives import collective as _collective
from mpicoll.settings import override, settings
from mpicoll.version import __version__ as __version__

if TYPE_CHECKING:  # what `__getattr__` finds, for type checkers and editors
    from mpicoll import buffers as buffers
    from mpicoll import request as request
    from mpicoll.communicator import Communicator
    from mpicoll.functional import (
        allgather,
        allgatherv,
        allreduce,
        alltoall,
        barrier,
        bcast,
        exscan,
        gather,
        gatherv,
        reduce,
        reduce_scatter,
        scan,
        scatter,
    )
    from mpicoll.grouping import group
    from mpicoll.runtime.arguments.operators import AVG, Op
    from mpicoll.training.gradient_buckets import GradientBuckets

__all__ = [
    "AVG",
    "Communicator",
    "Error",
    "GradientBuckets",
    "MismatchError",
    "Op",
    "Plan",
    "ScheduleError",
    "StalledError",
    "TransportError",
    "UnsupportedError",
    "algorithm",
    "algorithms",
    "allgather",
    "allgatherv",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "exscan",
    "gather",
    "gatherv",
    "group",
    "override",
    "plan",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "settings",
    "verify",
]

#: names that need MPI, and where they are
_LATE = {
    "Communicator": "mpicoll.communicator",
    "group": "mpicoll.grouping",
    "AVG": "mpicoll.runtime.arguments.operators",
    "GradientBuckets": "mpicoll.training.gradient_buckets",
    "Op": "mpicoll.runtime.arguments.operators",
}
#: modules that need MPI, and can be had without an import of their own
_MODULES = ("buffers", "request")

if settings.prepare is not False:
    _prepare()

if settings.standin:
    from mpicoll.standin.hook import install as _install

    _install()


def algorithms(collective: str | None = None) -> dict[str, list[str]]:
    """Return the names of the algorithms, by collective.

    Args:
        collective: only this one, in any spelling of its MPI method.
    """
    names = _catalogue()
    return names if collective is None else {(row := _collective(collective).name): names[row]}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


if not TYPE_CHECKING:  # to a checker it would say that every name exists

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"mpicoll.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'mpicoll' has no attribute {name!r}")
        found = getattr(import_module(_LATE.get(name, "mpicoll.functional")), name)
        globals()[name] = found  # so that it is asked for once
        return found
