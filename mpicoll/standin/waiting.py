"""The wait for mpi4py.MPI in a process that does not know mpicoll yet; run by its path when Python starts.

Importing mpicoll takes a tenth of a second, which most processes that a job starts need not spend.
So nothing of it is imported before the process imports mpi4py.MPI.
"""

from __future__ import annotations

import os
import sys

#: values of the variable for which there are no stand-ins
OFF = ("", "no", "false", "0")


class Finder:
    """The finder of mpi4py.MPI that leaves all to the hook, once it is asked."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Return what the hook's finder does; arguments as importlib gives them."""
        if name != "mpi4py.MPI":
            return None
        try:
            from mpicoll.standin.hook import finder
        except ModuleNotFoundError as error:  # a Python of its own, in which mpicoll is not installed
            if error.name != "mpicoll":
                raise
            return None
        return finder.find_spec(name, path, target)


if os.environ.get("MPICOLL_STANDIN", "").strip().lower() not in OFF:
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]  # the protocol has more than Python asks for
