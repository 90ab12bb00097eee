"""A bucket: arrays that are packed, reduced together, and unpacked into their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

from mpicoll.communicator import Communicator
from mpicoll.request import Request
from mpicoll.runtime.arguments.arrays import empty_on, pointer_of
from mpicoll.runtime.cuda.by_device import batch_of
from mpicoll.runtime.cuda.streams import on
from mpicoll.runtime.program.local_work import Action
from mpicoll.training.added import Added, stream_of
from mpicoll.training.bucket_layout import Member

#: bytes to which arrays are aligned in a bucket, so that they are moved 16 bytes at a time
ALIGNED = 16


class Bucket:
    """Arrays of one dtype and device.

    They are packed into memory of the bucket's own, which stays; a single array is reduced where it is.

    Example: arrays of 5 and 3 elements of float32 begin at bytes 0 and 32 of 48, and the gaps are zeros.
    """

    def __init__(self, numbers: tuple[int, ...], members: Sequence[Member]) -> None:
        """Take the numbers of the arrays in a step, and what they are."""
        self.numbers, self.device, self.dtype = numbers, members[0].device, members[0].dtype
        self._starts, end = [], 0
        for member in members:
            self._starts.append(end)
            end += -(-member.nbytes // ALIGNED) * ALIGNED
        self._nbytes = end
        self._memory: Any = None
        self._added: list[Added] = []
        self._stream: Any = None
        self._request: Request | None = None
        self._sources: list[int] = []
        self._batches: tuple[Any, Any] | None = None
        self._actions: tuple[int, Action, Action] | None = None

    def start(self, comm: Communicator, op: Any, values: list[Any], added: list[Added]) -> None:
        """Pack the arrays and start their reduction, after what is on the last one's stream.

        Args:
            comm: of the ranks.
            op: the operator.
            values: the arrays, in order.
            added: where they are.
        """
        array, self._added, self._stream = values[0], added, stream_of(values[-1])
        if len(added) > 1:
            with on(self.device, self._stream) as address:
                array = self._packed(address)
        self._request = comm.Iallreduce(MPI.IN_PLACE, array, op=op, stream=self._stream)

    def end(self) -> None:
        """Wait for the reduction and unpack its result, on the stream of its start."""
        assert self._request is not None
        self._request.Wait()
        if len(self._added) > 1:
            with on(self.device, self._stream):
                assert self._actions is not None
                self._actions[2]()
                for one in self._added:
                    for copy in one.after:
                        copy()
        self._request, self._stream, self._added = None, None, []

    def abandon(self) -> None:
        """Leave a reduction that may have been started, with the memory that it still needs."""
        if self._request is not None:
            self._request.Free()
        self._request, self._added, self._memory = None, [], None
        self._batches = self._actions = None

    def _packed(self, stream: int) -> Any:
        """Return the bucket's memory, with the arrays in it, packed on a stream, which is current."""
        for one in self._added:
            for copy in one.before:
                copy()
        if self._memory is None:
            self._memory = empty_on(self.device, self._nbytes // self.dtype.itemsize, self.dtype)
            self._memory.fill(0)
        self._aim(stream)
        if self._actions is None or self._actions[0] != stream:
            assert self._batches is not None
            pack, unpack = self._batches
            self._actions = stream, pack.action(stream), unpack.action(stream)
        self._actions[1]()
        return self._memory

    def _aim(self, stream: int) -> None:
        """Aim the batches at where the arrays are now."""
        sources = [one.pointer for one in self._added]
        if sources == self._sources and self._batches is not None:
            return
        base, self._sources = pointer_of(self._memory), sources
        lengths = [one.member.nbytes for one in self._added]
        into = [(base + start, source, n) for start, source, n in zip(self._starts, sources, lengths, strict=True)]
        back = [(source, target, n) for target, source, n in into]
        if self._batches is None:
            self._batches = batch_of(self.device, into, stream), batch_of(self.device, back, stream)
        else:
            for batch, copies in zip(self._batches, (into, back), strict=True):
                batch.aim(copies, stream)
