"""The hook on the import of mpi4py.MPI, by which communicators of mpicoll's come in the place of its own two.

Programs set `mpi4py.rc` before they import MPI, and mpicoll imports it, too.  So MPI starts as it would without the
hook, and the two names are replaced when a program first asks for one of them:

    from mpi4py import MPI   the module's own loader runs it; then it gets the class `Unasked`
    MPI.COMM_WORLD           puts the stand-ins in place, and gives the module its own class back
"""

from __future__ import annotations

import copyreg
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mpicoll.settings import settings

MODULE = "mpi4py.MPI"
NAMES = ("COMM_WORLD", "COMM_SELF")


class Unasked(ModuleType):
    """The module mpi4py.MPI, until a program asks it for one of the two communicators."""

    def __getattribute__(self, name: str) -> Any:
        if name in NAMES and not _is_loading():
            _put(self)
        return ModuleType.__getattribute__(self, name)  # super() would ask for this class, which may be gone


class Finder:
    """The finder of mpi4py.MPI: another one's spec, whose loader calls `hold` in the end."""

    looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of mpi4py.MPI, None for any other module; arguments as importlib gives them."""
        if name != MODULE or self.looking:
            return None
        self.looking = True  # the others are asked, among them this one, and those that ask it
        try:
            found = (finder.find_spec(name, path, target) for finder in list(sys.meta_path))
            spec = next((one for one in found if one is not None), None)
        finally:
            self.looking = False
        if spec is not None:
            _hold_after(spec.loader)
        return spec


finder = Finder()


def install() -> None:
    """Wait for the import of mpi4py.MPI; where that was imported already, for the question for a communicator."""
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
    module = sys.modules.get(MODULE)
    if module is not None:
        hold(module)


def hold(module: Any) -> None:
    """Let a module mpi4py.MPI that has started wait for the question for a communicator."""
    if type(module) is ModuleType:
        module.__class__ = Unasked


def _hold_after(loader: Any) -> None:
    """Let a loader call `hold` when it has run the module."""
    own = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        own(module)
        hold(module)

    loader.exec_module = exec_module  # of this instance, which loads nothing else


def _is_loading() -> bool:
    """Tell whether the class of stand-ins is being made: who asks meanwhile is mpicoll, and gets MPI's own."""
    home = sys.modules.get("mpicoll.communicator")
    return home is not None and not hasattr(home, "Communicator")


def _put(module: Any) -> None:
    """Put stand-ins in the place of the two communicators."""
    kind = _kind(module) if settings.standin and not module.Is_finalized() else None
    module.__class__ = ModuleType
    for name in NAMES:
        own = getattr(module, name)
        if kind is not None and type(own) is module.Intracomm:  # else a program has put its own there
            setattr(module, name, kind(own))
    if kind is not None:  # mpi4py's own two are pickled by their names, which are the stand-ins' now
        copyreg.pickle(module.Intracomm, _reduced)


def _reduced(comm: Any) -> Any:
    """Return what a communicator of mpi4py's is pickled as."""
    module = import_module(MODULE)
    named = (name for name in NAMES if comm == getattr(module, name))
    found = next(named, None)
    return comm.__reduce__() if found is None else (own_named, (found,))


def own_named(name: str) -> Any:
    """Return mpi4py's communicator that is behind a name, for a pickle."""
    module = import_module(MODULE)
    return module.Intracomm(getattr(module, name))


def _kind(module: Any) -> Any:
    """Return the class of the stand-ins; with a report, that begins to count."""
    if settings.standin is True:
        from mpicoll.communicator import Communicator

        return Communicator
    from mpicoll.standin.ending import report_at_end
    from mpicoll.standin.reported import ReportedCommunicator

    report_at_end(module)
    return ReportedCommunicator
