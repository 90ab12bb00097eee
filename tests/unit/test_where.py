"""Where a call on device arrays would run, on machines that have no device."""

import sys
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.cuda import streams


class CUDARuntimeError(RuntimeError):
    pass


def test_cupy_without_a_driver_does_not_disturb_calls_on_numpy_arrays(monkeypatch):
    asked = []

    def get_device():
        asked.append(1)
        raise CUDARuntimeError("cudaErrorInsufficientDriver")

    runtime = SimpleNamespace(getDevice=get_device, CUDARuntimeError=CUDARuntimeError)
    monkeypatch.setitem(
        sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), ndarray=type("a", (), {}))
    )
    monkeypatch.setattr(streams, "_no_device", None)
    comm = mpicoll.Communicator(MPI.COMM_SELF)
    for value in (1.0, 2.0):
        result = np.zeros(3)
        comm.Allreduce(np.full(3, value), result)
        assert (result == value).all()
    assert len(asked) == 1
