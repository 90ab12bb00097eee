"""Which arrays of a step are reduced together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Member(NamedTuple):
    """Size and dtype of an array, which all ranks must have alike, and its device, -1 on the host."""

    size: int
    dtype: np.dtype
    device: int

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{self.size}]{' on a device' if self.device >= 0 else ''}"


class BucketLayout:
    """Buckets of arrays, which are numbered in the order in which they are added.

    A bucket has arrays of one dtype on one device.  It is closed as soon as it has `limit` bytes or more, and buckets
    are numbered as they are closed.  An array of `limit` bytes or more is a bucket of its own.

    Example: with a limit of 100, arrays of 60, 60, 200 and 8 bytes are in the buckets (0, 1), (2,) and (3,).
    """

    def __init__(self, limit: int) -> None:
        """Start without arrays; the limit is in bytes."""
        self.limit = limit
        self.members: list[Member] = []
        self._open: dict[tuple[np.dtype, int], list[int]] = {}

    def add(self, member: Member) -> tuple[int, ...]:
        """Add an array; return the numbers of the arrays of the bucket that is closed by it, or none."""
        number = len(self.members)
        self.members.append(member)
        if member.nbytes >= self.limit:
            return (number,)
        kind = member.dtype, member.device
        bucket = self._open.setdefault(kind, [])
        bucket.append(number)
        if sum(self.members[n].nbytes for n in bucket) < self.limit:
            return ()
        return tuple(self._open.pop(kind))

    def close(self) -> list[tuple[int, ...]]:
        """Close the buckets that are open, in the order in which they were opened."""
        closed = [tuple(bucket) for bucket in self._open.values()]
        self._open.clear()
        return closed
