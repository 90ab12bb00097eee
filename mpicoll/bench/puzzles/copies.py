"""Copies from the GPU of one rank to those of others, each on a stream of its own, as the puzzle makes them.

The targets' memory is mapped by CUDA's interprocess handles, so that only ranks of one host can be reached.  Events
around every copy give its time on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from mpi4py import MPI

from mpicoll.bench.errors import anywhere
from mpicoll.bench.measure.backends import DeviceBackend
from mpicoll.bench.puzzles.chains import Pair, Span

#: cudaIpcMemLazyEnablePeerAccess, cudaMemcpyDefault
_LAZY, _DEFAULT = 1, 4


class Copies:
    """Memory of some ranks, mapped on rank 0; made and closed by all ranks together.

    Args:
        world: all ranks; a communicator of mpi4py's own.
        backend: the device of this rank.
        nbytes: bytes of a copy.
        sent: arrays of rank 0 that are copied in turn.
        targets: ranks that get copies.
    """

    def __init__(
        self, world: MPI.Intracomm, backend: DeviceBackend, nbytes: int, sent: Sequence[Any], targets: Sequence[int]
    ) -> None:
        self.world, self.backend, self.nbytes, self.sent = world, backend, nbytes, sent
        self.runtime = backend.xp.cuda.runtime
        self.own, self.mapped, self.why = 0, dict[int, int](), ""
        handle, why = b"", ""
        try:
            if world.rank in targets:
                self.own = int(self.runtime.malloc(nbytes))
                handle = bytes(self.runtime.ipcGetMemHandle(self.own))
        except Exception as error:  # no memory, or no handles on this system
            why = f"rank {world.rank}: {type(error).__name__}: {error}"
        handles = world.allgather((MPI.Get_processor_name(), handle))
        why = anywhere(world, why)
        try:
            for target in targets if world.rank == 0 and not why else ():
                host, theirs = handles[target]
                if host != handles[0][0]:
                    raise RuntimeError(f"rank {target} is on another host")
                self.mapped[target] = int(self.runtime.ipcOpenMemHandle(theirs, _LAZY))
        except Exception as error:  # no peer access
            why = f"rank 0: {type(error).__name__}: {error}"
        self.why = anywhere(world, why)
        self.streams = {target: backend.xp.cuda.Stream(non_blocking=True) for target in self.mapped}

    def run(self, repeat: int) -> dict[Pair, list[Span]]:
        """Copy on rank 0, so many times to each target, all targets at once; return seconds from the start."""
        cuda = self.backend.xp.cuda
        self.backend.synchronize()
        origin, marks = cuda.Event(), dict[int, list[Any]]()
        origin.record(self.backend.stream)
        for target, stream in self.streams.items():
            stream.wait_event(origin)
            marks[target] = [cuda.Event() for _ in range(repeat + 1)]
            marks[target][0].record(stream)
        for number in range(repeat):  # the streams in turn, so that none waits for the host
            for target, stream in self.streams.items():
                source = self.backend.pointer(self.sent[number % len(self.sent)])
                self.runtime.memcpyAsync(self.mapped[target], source, self.nbytes, _DEFAULT, stream.ptr)
                marks[target][number + 1].record(stream)
        for stream in self.streams.values():
            stream.synchronize()
        since = partial(cuda.get_elapsed_time, origin)
        times = {target: [since(mark) / 1e3 for mark in found] for target, found in marks.items()}
        return {(0, target): list(pairwise(found)) for target, found in times.items()}

    def arrived(self) -> Any:
        """Return what has come to this rank, as an array; None for a rank that gets nothing."""
        if not self.own:
            return None
        found = self.backend.xp.empty(self.nbytes, "u1")
        self.runtime.memcpy(self.backend.pointer(found), self.own, self.nbytes, _DEFAULT)
        return found

    def close(self) -> None:
        """Unmap, and free; collective, for memory that is mapped must not be freed."""
        for address in self.mapped.values():
            self.runtime.ipcCloseMemHandle(address)
        self.world.Barrier()
        if self.own:
            self.runtime.free(self.own)
