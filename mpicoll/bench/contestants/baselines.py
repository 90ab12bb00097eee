"""Baselines: what else the same call could be done with, measured in turn with ours.

`Native`, `Staged` and `Limit` are here, NCCL is in `nccl.py`, PyTorch in `torch_distributed.py`.  Each may refuse a
call, in words; its results are validated as ours are, and one that is wrong is not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from mpicoll.bench.contestants.contestant import Contestant, Way
from mpicoll.bench.contestants.nccl import Nccl
from mpicoll.bench.contestants.torch_distributed import NcclSymmetric, Pytorch, PytorchSymmetric
from mpicoll.bench.errors import anywhere
from mpicoll.bench.measure.arrays import Arrays
from mpicoll.bench.measure.backends import Backend, HostBackend, PinnedBackend
from mpicoll.bench.request.numbers import dtype_named
from mpicoll.dispatch.limits import LARGEST_MESSAGE
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.mpi import cuda_aware

#: tag of the ring's messages; nothing else is in flight on the benchmark's communicator
RING_TAG = 7


class Native:
    """The MPI library's own collective on the same arrays.

    DeviceBackend arrays are given to it only if the library itself says that it knows CUDA: a UCX with CUDA under
    a library without moves device memory, but the library's own reductions and copies would touch it on the host.
    """

    exact = True

    def __init__(self, world: MPI.Intracomm, backend: Backend) -> None:
        """Ask the library; raises UnsupportedError where arrays are on devices and it does not know CUDA."""
        self.world = world
        if backend.kind != "numpy":
            own = cuda_aware.library_answer()
            if own is None or not own.aware:
                raise UnsupportedError("the MPI library itself does not say that it knows CUDA; its call could crash")

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Try the dtype and the operator on one element, alone; raises UnsupportedError for what MPI does not have."""
        case = arrays.case
        if case.redop == "AVG":
            raise UnsupportedError("MPI has no operator AVG")
        if arrays.in_place and case.call.method == "Reduce_scatter":
            raise UnsupportedError("with uneven blocks in place, MPICH 5.0.2 ends the job")
        one, alone = np.zeros(1, dtype_named(case.dtype)), MPI.Intracomm(MPI.COMM_SELF)
        try:
            if case.redop:
                alone.Allreduce(one, one.copy(), arrays.op)
            else:
                alone.Bcast(one)
        except Exception as error:  # MPI's, mpi4py's KeyError or NumPy's BufferError: this dtype is not known to one
            what = " of ".join(filter(None, (case.redop, case.dtype)))
            why = str(error).partition(", error stack")[0].partition("\n")[0]
            raise UnsupportedError(f"no {what} in this MPI ({type(error).__name__}: {why})") from None
        return Way("native")

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return the call."""
        return partial(getattr(MPI.Intracomm, arrays.case.call.method), self.world, *arrays.arguments)


class Staged:
    """The MPI library's own collective on host arrays, between copies from the device and back to it."""

    exact = True

    def __init__(self, world: MPI.Intracomm, backend: Backend) -> None:
        """Raise UnsupportedError where arrays are on the host already."""
        if backend.kind == "numpy":
            raise UnsupportedError("buffers are NumPy's: there is nothing to copy")
        self.backend, self.host = backend, PinnedBackend() if backend.device >= 0 else HostBackend()
        self.native = Native(world, self.host)

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Raise UnsupportedError for what MPI does not have."""
        self.native.way(arrays, algorithm)
        return Way("staged")

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return the copies and the call between them."""
        host = Arrays(arrays.case, arrays.in_place, arrays.rank, self.host)
        pairs = [(one, host.buffers[name]) for name, one in arrays.buffers.items()]
        away = [(one.bits, other.bits) for one, other in pairs if one.what.inputs or one.what.partly]
        back = [(one.bits, other.bits) for one, other in pairs if one.what.outputs]
        call, backend = self.native.bind(host, algorithm), self.backend

        def staged() -> None:
            for here, there in away:
                backend.fetch(here, there)
            call()
            for here, there in back:
                backend.store(here, there)

        return staged


class Limit:
    """A lower bound: every rank sends to its right, at once, what the busiest rank must send in the collective.

    That is the message size times the bus factor, in one message (cut where MPI's counts end), between arrays
    of the same kind.  A path that needs no messages can be faster.
    """

    exact = False  # there is no result

    def __init__(self, world: MPI.Intracomm, backend: Backend, aware: cuda_aware.Awareness) -> None:
        """Raise UnsupportedError where arrays of this kind cannot be sent."""
        self.world, self.backend = world, backend
        if backend.kind != "numpy" and not aware.aware:
            raise UnsupportedError(f"device arrays cannot be given to MPI ({aware.reason})")
        if world.size == 1:
            raise UnsupportedError("one rank sends no message")

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Nothing is refused."""
        return Way("ring exchange")

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return one exchange."""
        nbytes = round(arrays.case.nbytes * arrays.case.call.row.bus(self.world.size))
        return _Ring(self.world, self.backend, nbytes)


class _Ring:
    """Persistent messages to the right and from the left."""

    def __init__(self, world: MPI.Intracomm, backend: Backend, nbytes: int) -> None:
        """Allocate the arrays and make the messages."""
        self.requests: list[MPI.Prequest] = []
        self.arrays = away, here = [backend.xp.zeros(max(nbytes, 1), "u1") for _ in range(2)]
        right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
        for at in range(0, max(nbytes, 1), LARGEST_MESSAGE):
            length = min(LARGEST_MESSAGE, nbytes - at)
            sent, received = (
                [MPI.buffer.fromaddress(backend.pointer(array) + at, length), length, MPI.BYTE]
                for array in (away, here)
            )
            self.requests.append(world.Recv_init(received, left, RING_TAG))
            self.requests.append(world.Send_init(sent, right, RING_TAG))

    def __call__(self) -> None:
        MPI.Prequest.Startall(self.requests)
        MPI.Request.Waitall(self.requests)

    def __del__(self) -> None:
        for request in self.requests:
            request.Free()


def make(
    names: tuple[str, ...], world: MPI.Intracomm, backend: Backend, aware: cuda_aware.Awareness
) -> tuple[dict[str, Contestant], dict[str, str]]:
    """Return (baselines that can serve at all, reasons why others cannot), each by name; collective.

    Args:
        names: keys of reading.BASELINES.
        world: all ranks; a communicator of mpi4py's own.
        backend: where this rank's arrays live.
        aware: whether device arrays may be given to MPI.
    """
    makers: dict[str, Callable[[], Contestant]] = {
        "nccl": lambda: Nccl(world, backend),
        "native": lambda: Native(world, backend),
        "staged": lambda: Staged(world, backend),
        "limit": lambda: Limit(world, backend, aware),
        "torch": lambda: Pytorch(world, backend),
        "nccl-symmetric": lambda: NcclSymmetric(world, backend),
        "torch-symmetric": lambda: PytorchSymmetric(world, backend),
    }
    made: dict[str, Contestant] = {}
    refused: dict[str, str] = {}
    for name in names:
        why = ""
        try:
            made[name] = makers[name]()
        except UnsupportedError as error:
            why = str(error)
        why = anywhere(world, why)
        if why:
            made.pop(name, None)
            refused[name] = why
    return made, refused
