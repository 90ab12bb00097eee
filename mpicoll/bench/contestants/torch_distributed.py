"""PyTorch's collectives as baselines: NCCL as PyTorch calls it, and both with symmetric memory.

On NumPy's arrays PyTorch's own library for the host, gloo, stands in NCCL's place.
"""

from __future__ import annotations

import atexit
import socket
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mpi4py import MPI

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.errors import anywhere
from mpicoll.bench.measure.arrays import Arrays, Buffer
from mpicoll.bench.measure.backends import Backend
from mpicoll.errors import UnsupportedError

#: calls that PyTorch has, by their names here
_SERVED = ("Allreduce", "Bcast", "Allgather", "Reduce_scatter_block", "Alltoall")
#: those of them for which NCCL has kernels that use symmetric memory
_SYMMETRIC = ("Allreduce", "Allgather", "Reduce_scatter_block")
_OPS = {"SUM": "SUM", "PROD": "PRODUCT", "MAX": "MAX", "MIN": "MIN", "AVG": "AVG"}
#: bytes up to which PyTorch's one-shot kernel is taken, and not the two-shot one
ONE_SHOT = 256 << 10


class Pytorch:
    """PyTorch's collectives on the same arrays.

    Attributes:
        version: PyTorch's.
        dist: the module torch.distributed, whose default group is all ranks.
    """

    exact = True

    def __init__(self, world: MPI.Intracomm, backend: Backend) -> None:
        """Make PyTorch's group of all ranks; collective.

        Raises:
            UnsupportedError: on every rank, if it cannot be made on one.
        """
        some = (
            "" if world.size == MPI.COMM_WORLD.size else "PyTorch's group is all ranks of a launch; leave out --ranks"
        )
        why = anywhere(world, some or _why_not(backend))
        if why:
            raise UnsupportedError(why)
        self.torch, self.backend, self.size = import_module("torch"), backend, world.size
        self.version = str(self.torch.__version__)
        self.dist = _group(world, backend.device)

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Raise UnsupportedError for what PyTorch does not have."""
        case = arrays.case
        if case.call.method == "Reduce":
            raise UnsupportedError("PyTorch's call writes the other ranks' arrays, too")
        if case.call.method not in _SERVED:
            raise UnsupportedError("PyTorch has no such call")
        if case.call.method == "Allreduce" and not arrays.in_place:
            raise UnsupportedError("PyTorch's call works in place")
        if case.call.method not in ("Allreduce", "Bcast") and arrays.in_place:
            raise UnsupportedError("PyTorch's call does not work in place")
        if case.redop and case.redop not in _OPS:
            raise UnsupportedError(f"PyTorch has no {case.redop}")
        try:
            self._tensor(arrays.send or arrays.recv)
        except (TypeError, RuntimeError, BufferError) as error:
            raise UnsupportedError(f"PyTorch has no {case.dtype} ({error})") from None
        return Way("nccl" if self.backend.device >= 0 else "gloo")

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return the call."""
        return self.call(arrays, self._tensor(arrays.send), self._tensor(arrays.recv))

    def call(self, arrays: Arrays, send: Any, recv: Any) -> Callable[[], object]:
        """Return the call on tensors.

        Args:
            arrays: of the case.
            send: what is sent, None for nothing.
            recv: what is received, None for nothing.
        """
        case, dist = arrays.case, self.dist
        op = getattr(dist.ReduceOp, _OPS[case.redop]) if case.redop else None
        both = send if recv is None else recv
        gather = _either("all_gather_single", "all_gather_into_tensor", dist)
        scatter = _either("reduce_scatter_single", "reduce_scatter_tensor", dist)
        calls: dict[str, Callable[[], object]] = {
            "Allreduce": partial(dist.all_reduce, both, op),
            "Bcast": partial(dist.broadcast, both, case.root),
            "Allgather": partial(gather, recv, send),
            "Reduce_scatter_block": partial(scatter, recv, send, op),
            "Alltoall": partial(dist.all_to_all_single, recv, send),
        }
        return calls[case.call.method]

    def _tensor(self, buffer: Buffer | None) -> Any:
        """Return a buffer's array as a tensor over the same memory."""
        return None if buffer is None else self.torch.from_dlpack(buffer.array)


class NcclSymmetric(Pytorch):
    """NCCL through PyTorch on symmetric memory, which the arrays of this benchmark are not in: it has its own."""

    exact = False

    def __init__(self, world: MPI.Intracomm, backend: Backend) -> None:
        """Make PyTorch's group; collective.

        Raises:
            UnsupportedError: on every rank, if it cannot be made on one, or arrays are on the host.
        """
        if backend.device < 0:
            raise UnsupportedError("buffers are NumPy's, and symmetric memory is a GPU's")
        super().__init__(world, backend)
        self.keep: list[Any] = []

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Raise UnsupportedError for what has no kernel that uses symmetric memory."""
        super().way(arrays, algorithm)
        if arrays.case.call.method not in _SYMMETRIC:
            raise UnsupportedError("NCCL has no symmetric kernel for this call")
        return Way("nccl, symmetric")

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return the call on tensors of its own, whose memory is registered with NCCL as symmetric; collective."""
        cuda, device = self.torch.cuda, self.torch.device("cuda", self.backend.device)
        group = self.dist.group.WORLD._get_backend(device)
        pool = cuda.MemPool(group.mem_allocator)
        with cuda.use_mem_pool(pool):
            send, recv = (_like(self._tensor(buffer)) for buffer in (arrays.send, arrays.recv))
        group.register_mem_pool(pool, symm=True)
        self.keep.append((pool, send, recv))  # as long as NCCL knows it
        return self.call(arrays, send, recv)


class PytorchSymmetric(NcclSymmetric):
    """PyTorch's own allreduce kernels on its symmetric memory."""

    def way(self, arrays: Arrays, algorithm: str | None) -> Way:
        """Raise UnsupportedError for anything but sums of all ranks."""
        Pytorch.way(self, arrays, algorithm)
        if arrays.case.call.method != "Allreduce" or arrays.case.redop != "SUM":
            raise UnsupportedError("PyTorch has such kernels for sums by allreduce")
        if arrays.case.dtype not in ("float32", "bfloat16"):
            raise UnsupportedError(f"PyTorch has no such kernel for {arrays.case.dtype}")
        return Way("one_shot" if arrays.case.nbytes <= ONE_SHOT else "two_shot")

    def bind(self, arrays: Arrays, algorithm: str | None) -> Callable[[], object]:
        """Return the call on a tensor of its own; collective."""
        memory = import_module("torch.distributed._symmetric_memory")
        like, kernels = self._tensor(arrays.recv), self.torch.ops.symm_mem
        tensor = memory.empty(like.numel(), dtype=like.dtype, device=like.device)
        name = self.dist.group.WORLD.group_name
        memory.rendezvous(tensor, name)
        tensor.fill_(0)
        way = self.way(arrays, algorithm).algorithm
        kernel = kernels.one_shot_all_reduce if way == "one_shot" else kernels.two_shot_all_reduce_
        return partial(kernel, tensor, "sum", name)


def _either(new: str, old: str, dist: Any) -> Any:
    """Return a function by the name that it has in this PyTorch."""
    return getattr(dist, new, None) or getattr(dist, old)


def _like(tensor: Any) -> Any:
    """Return a new tensor of the same size, full of zeros; None for None."""
    return None if tensor is None else tensor.new_zeros(tensor.shape)


def why_no_tensors(backend: Backend) -> str:
    """Return why there are no tensors where a backend's arrays live, "" if there are."""
    if find_spec("torch") is None:
        return "PyTorch is not installed"
    if backend.device >= 0 and not import_module("torch").cuda.is_available():
        return "this PyTorch has no CUDA"
    return ""


def tensors_on(backend: Backend) -> Callable[[int], Any]:
    """Return a function that makes a tensor of so many zeros, of float32, where a backend's arrays live."""
    return partial(import_module("torch").zeros, device="cpu" if backend.device < 0 else f"cuda:{backend.device}")


def _why_not(backend: Backend) -> str:
    """Return why PyTorch cannot serve, "" if it can."""
    why = why_no_tensors(backend)
    if why or backend.device < 0:
        return why
    same = backend.stream_pointer == import_module("torch").cuda.current_stream().cuda_stream
    return "" if same else "PyTorch's current stream is not CuPy's"


def _group(world: MPI.Intracomm, device: int) -> Any:
    """Return torch.distributed with a group of all ranks, made once for a process; collective."""
    torch, dist = import_module("torch"), import_module("torch.distributed")
    if dist.is_initialized():
        return dist
    hosts = world.allgather(MPI.Get_processor_name())
    with socket.socket() as free:
        free.bind(("", 0))
        host = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
        address = world.bcast(f"tcp://{host}:{free.getsockname()[1]}")
    if device >= 0:
        torch.cuda.set_device(device)
    library = {"backend": "nccl", "device_id": torch.device("cuda", device)} if device >= 0 else {"backend": "gloo"}
    dist.init_process_group(init_method=address, rank=world.rank, world_size=world.size, **library)
    atexit.register(dist.destroy_process_group)
    return dist
