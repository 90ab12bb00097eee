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
from mpicoll.errors import MismatchError, ScheduleError, StalledError, TransportError, UnsupportedError
from mpicoll.runtime.mpi.environment import prepare as _prepare
from mpicoll.schedule.collectives import collective as _collective
from mpicoll.settings import override, settings
from mpicoll.version import __version__ as __version__

if TYPE_CHECKING:
    from mpicoll.communicator import Communicator
    from mpicoll.grouping import group
    from mpicoll.runtime.arguments.operators import AVG, Op
    from mpicoll.training.gradient_buckets import GradientBuckets

__all__ = [
    "AVG",
    "Communicator",
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
    "group",
    "override",
    "plan",
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

#: modules of which users take names
_MODULES = ("request",)

#: the functional layer: lower-case collectives that return arrays
_FUNCTIONS = (
    "allgather",
    "allgatherv",
    "allreduce",
    "alltoall",
    "barrier",
    "bcast",
    "exscan",
    "gather",
    "gatherv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
)

if settings.prepare is not False:
    _prepare()


def algorithms(collective: str | None = None) -> dict[str, list[str]]:
    """Return the names of the algorithms, by collective.

    Args:
        collective: only this one, in any spelling of its MPI method.
    """
    names = _catalogue()
    return names if collective is None else {(row := _collective(collective).name): names[row]}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"mpicoll.{name}")
    home = "mpicoll.functional" if name in _FUNCTIONS else _LATE.get(name)
    if home is None:
        raise AttributeError(f"module 'mpicoll' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)  # so that it is asked for once
    return found
