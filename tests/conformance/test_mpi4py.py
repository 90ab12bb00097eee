"""mpi4py's own tests of collectives, on `mpicoll.Communicator` instead of its communicators.

`make conformance` fetches them from mpi4py's source distribution (`fetch.py`).  Every test class of
theirs that has a communicator becomes one here whose communicator is ours; the bodies are theirs.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import TestCase

import mpicoll

TESTS = Path(os.environ["MPICOLL_TEST_CONFORMANCE"]) / f"mpi4py-{version('mpi4py')}"

#: mpi4py's files, and how many tests of each must pass: all that mpi4py 4.1 has
LEAST = {
    "test_cco_buf": 70,
    "test_cco_vec": 62,
    "test_cco_nb_buf": 70,
    "test_cco_nb_vec": 62,
    "test_cco_pr_buf": 70,
    "test_cco_pr_vec": 62,
    "test_cco_ngh_buf": 16,
    "test_cco_pr_ngh_buf": 12,
}

#: kinds of arrays that mpi4py's tests do without here, and why
ARRAYS = {
    "FakeGPUArrayBasic": "host memory that says it is a device's",
    "FakeGPUArrayNumPy": "host memory that says it is a device's",
    "DLPackArray": "frees its managed tensor with the capsule: numpy.from_dlpack alone crashes",
    "DLPackNumPy": "frees its managed tensor with the capsule; DLPack below stands for it",
}


def ours(source: str, theirs: type) -> type:
    """Return a test class of mpi4py with our communicator."""

    def set_up(self: Any) -> None:
        theirs.setUp(self)  # makes a duplicate where the class wants one
        self.COMM = mpicoll.Communicator(self.COMM)

    return type(f"{source}_{theirs.__name__}", (theirs,), {"source": source, "setUp": set_up})


sys.path.insert(0, str(TESTS))
arrays = importlib.import_module("arrayimpl")


class DLPack(arrays.ArrayNumPy):  # type: ignore[misc, name-defined]
    """An array that is only seen through NumPy's DLPack."""

    backend = "dlpack-numpy"
    TypeMap = arrays.make_typemap(arrays.ArrayNumPy.TypeMap.items())

    def as_raw(self) -> Any:
        return self

    def __dlpack__(self, **named: Any) -> Any:
        return self.array.__dlpack__(**named)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


DLPack.TypeMap.pop("g")  # DLPack has no long double
DLPack.TypeMap.pop("G")
arrays.ArrayBackends[:] = [kind for kind in arrays.ArrayBackends if kind.__name__ not in ARRAYS] + [DLPack]


def suite() -> dict[str, type]:
    """Return all test classes, by name."""
    modules = {source: vars(importlib.import_module(source)).values() for source in LEAST}
    classes = [(source, x) for source, values in modules.items() for x in values if isinstance(x, type)]
    tests = [ours(source, x) for source, x in classes if issubclass(x, TestCase) and hasattr(x, "COMM")]
    return {made.__name__: made for made in tests}


globals().update(suite())
