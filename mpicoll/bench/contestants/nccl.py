"""NCCL as a baseline, through CuPy: the same arrays, the same stream, one GPU for each rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mpi4py import MPI

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.errors import anywhere
from mpicoll.bench.measure.arrays import Arrays, Buffer
from mpicoll.bench.measure.backends import Backend
from mpicoll.bench.request.numbers import dtype_named
from mpicoll.errors import UnsupportedError

#: as nccl.h numbers them, since NCCL 2.10; CuPy names only some
DTYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
OPS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3, "AVG": 4}
BYTES = DTYPES["uint8"]

#: reductions over NVLink multicast need rights that containers often lack, and would hang or fail without
NVLS = "NCCL_NVLS_ENABLE"

#: calls that are made of sends and receives in one group
_GROUPED = ("gather", "scatter", "alltoall")
_SERVED = ("Allreduce", "Bcast", "Reduce", "Allgather", "Reduce_scatter_block")


def without_nvls() -> bool:
    """Switch NVLS off before NCCL is initialised, unless the user has decided; tell whether that was done."""
    if NVLS in os.environ:
        return False
    os.environ[NVLS] = "0"
    return True


class Nccl:
    """NCCL's collectives.

    Attributes:
        version: NCCL's.
    """

    exact = True

    def __init__(self, world: MPI.Intracomm, backend: Backend, library: Any = None) -> None:
        """Make NCCL's communicator; collective.

        Args:
            world: all ranks; a communicator of mpi4py's own.
            backend: where this rank's arrays live.
            library: cupy.cuda.nccl, or what stands in for it.

        Raises:
            UnsupportedError: on every rank, if NCCL cannot serve on one.
        """
        why = ""
        try:
            library = _library(world, backend) if library is None else library
        except UnsupportedError as error:
            why = str(error)
        why = anywhere(world, why)
        if why:
            raise UnsupportedError(why)
        self.backend, self.library, self.size = backend, library, world.size
        self.rank, self.stream = world.rank, backend.stream_pointer
        version = library.get_version()
        self.version = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
        uid = world.bcast(library.get_unique_id() if world.rank == 0 else None, root=0)
        self.comm = library.NcclCommunicator(world.size, uid, world.rank)

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Raise UnsupportedError for what NCCL does not have."""
        case, row = arrays.case, arrays.case.call.row
        if row.name not in _GROUPED and case.call.method not in _SERVED:
            raise UnsupportedError("NCCL has no such call")
        if arrays.in_place and row.name == "alltoall":
            raise UnsupportedError("NCCL's sends and receives must not overlap, in place they would")
        if arrays.in_place and row.name == "reduce_scatter":
            raise UnsupportedError("NCCL leaves the result of this call in place elsewhere than MPI")
        if row.reducing and (case.dtype not in DTYPES or case.redop not in OPS):
            raise UnsupportedError(f"NCCL has no {case.redop} of {case.dtype}")
        if case.redop == "AVG" and self.library.get_version() < 21000:
            raise UnsupportedError("NCCL has AVG from 2.10 on")
        return Way("nccl")

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return the call."""
        case, row = arrays.case, arrays.case.call.row
        if row.name in _GROUPED:
            return partial(self._together, list(self._messages(arrays)))
        send, recv = self._pointer(arrays.send), self._pointer(arrays.recv)
        dtype, width = _packed(case.dtype)
        count = case.count * width
        block = count // self.size
        comm, stream = self.comm, self.stream
        if row.name == "bcast":
            return partial(comm.bcast, send, count, dtype, case.root, stream)
        if row.name == "allgather":
            own = self.rank * (case.nbytes // self.size) if arrays.in_place else 0
            return partial(comm.allGather, send + own, recv, block, dtype, stream)
        op = OPS[case.redop]
        if row.name == "reduce":
            return partial(comm.reduce, send, recv, count, dtype, op, case.root, stream)
        if row.name == "reduce_scatter":
            return partial(comm.reduceScatter, send, recv, block, dtype, op, stream)
        return partial(comm.allReduce, send, recv, count, dtype, op, stream)

    def _pointer(self, buffer: Buffer | None) -> int:
        """Return the address of a buffer; a receive buffer that is not significant may be null."""
        return self.backend.pointer(buffer.array) if buffer else 0

    def _together(self, calls: list[Callable[[], object]]) -> None:
        self.library.groupStart()
        for call in calls:
            call()
        self.library.groupEnd()

    def _messages(self, arrays: Arrays) -> Iterator[Callable[[], object]]:
        """Yield this rank's sends and receives; a block that is in its place already does not move."""
        case, row = arrays.case, arrays.case.call.row
        dtype, width = _packed(case.dtype)
        itemsize = dtype_named(case.dtype).itemsize
        for name, buffer, out in (("send", arrays.send, False), ("recv", arrays.recv, True)):
            if buffer is None:
                continue
            pieces = buffer.what.outputs if out else buffer.what.inputs
            with_all = row.name == "alltoall" or row.name == ("gather" if out else "scatter")
            peers = range(self.size) if with_all else (case.root,)
            for peer, piece in zip(peers, pieces, strict=True):
                if not (arrays.send is arrays.recv and peer == self.rank):
                    at = self._pointer(buffer) + piece.at * itemsize
                    yield partial(getattr(self.comm, name), at, piece.count * width, dtype, peer, self.stream)


def _packed(dtype: str) -> tuple[int, int]:
    """Return (NCCL's number of a dtype, how many of it an element is); bytes for a dtype that NCCL does not know."""
    return (DTYPES[dtype], 1) if dtype in DTYPES else (BYTES, dtype_named(dtype).itemsize)


def _library(world: MPI.Intracomm, backend: Backend) -> Any:
    """Return CuPy's NCCL; raises UnsupportedError where it cannot serve. Collective where arrays are CuPy's."""
    if backend.kind != "cupy":
        raise UnsupportedError("buffers are NumPy's, and NCCL needs CuPy's")
    places = world.allgather((MPI.Get_processor_name(), backend.xp.cuda.Device(backend.device).pci_bus_id))
    if len(set(places)) < len(places):
        raise UnsupportedError(f"{len(places)} ranks share {len(set(places))} GPUs, and NCCL needs one for each")
    try:
        from cupy.cuda import nccl
    except Exception as error:  # whatever loading a library can raise is a reason
        raise UnsupportedError(f"CuPy has no NCCL ({type(error).__name__}: {error})") from None
    if not getattr(nccl, "available", False):
        raise UnsupportedError("CuPy found no NCCL library (pip install nvidia-nccl-cu13, or -cu12)")
    return nccl
