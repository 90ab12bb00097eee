"""The types of what calls are given, for type checkers; none of them needs CuPy or PyTorch to be installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypedDict, TypeVar

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments.operators import Average, Op


class PythonBuffer(Protocol):
    """An object that gives its memory by Python's buffer protocol, such as bytearray and memoryview."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return the memory."""


class DLPackArray(Protocol):
    """An object that shares its memory through DLPack, as PyTorch's tensors do."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """Return the memory as a capsule."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Return (kind of device, its number)."""


class CUDAArray(Protocol):
    """An object that shares its memory through the CUDA array interface, as CuPy's and Numba's arrays do."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Address, shape and dtype."""


class CuPyArray(CUDAArray, Protocol):
    """A CuPy array, by what others than CuPy's do not have."""

    def get(self, *arguments: Any, **named: Any) -> Any:
        """Return a copy on the host."""


class Tensor(DLPackArray, Protocol):
    """A PyTorch tensor, by what others than PyTorch's do not have."""

    def new_empty(self, *arguments: Any, **named: Any) -> Any:
        """Return a tensor of the same kind."""


class Options(TypedDict, total=False):
    """Keywords of every function of the functional layer but `barrier`."""

    algorithm: str | None
    stream: Any


#: an array, or anything else whose memory is shared; a scalar of NumPy's can be sent, but not received into
Buffer = np.ndarray[Any, Any] | np.generic | MPI.buffer | PythonBuffer | DLPackArray | CUDAArray
#: a buffer; a list of array, counts, displacements and type, as mpi4py's; or a list of arrays, for many calls as one
BufferSpec = Buffer | list[Any] | tuple[Any, ...]
#: MPI.IN_PLACE, or None, which means the same where MPI does not ignore the argument
InPlace = MPI.InPlaceType | None
#: a buffer, or MPI.IN_PLACE where the call takes what it needs from the other argument
OrInPlace = BufferSpec | InPlace
#: a buffer, or None on ranks that have none
OrNone = BufferSpec | None
#: numbers of elements, one for each rank
Counts = Sequence[int] | np.ndarray[Any, Any] | CUDAArray
#: an operator of MPI's, `mpicoll.AVG`, or a user's own
AnyOp = MPI.Op | Op | Average
#: a communicator; None is COMM_WORLD
Comm = MPI.Intracomm | None
#: a number that a function takes in the place of an array; int and float are such, too
Number = complex

#: dtype of a NumPy array
S = TypeVar("S", bound=np.generic)
#: kind of array that a function returns as it gets it
A = TypeVar("A", bound=CuPyArray | Tensor)
#: array or number that is returned itself
B = TypeVar("B", bound=Buffer | Number)
