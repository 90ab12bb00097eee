"""The protocol of local work: what a binder asks of the memory in which reductions and copies happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from mpicoll.runtime.arguments.operators import Operator

#: (address, number of bytes)
Run = tuple[int, int]
#: (address of the target, address of the source, number of bytes)
Copy = tuple[int, int, int]
#: an instruction with everything packed
Action = Callable[[], object]
#: tells whether an action would return at once
Poll = Callable[[], bool]


class LocalWork(Protocol):
    """Binds reductions and copies in one kind of memory: `host.work.Host` or `cuda.work.Device`."""

    def reduce(self, op: Operator, dtype: np.dtype, target: Run, sources: list[Run]) -> Action:
        """Return an action that combines the sources, in order, into the target.

        Args:
            op: the operator.
            dtype: of the elements.
            target: (address, bytes) of the result.
            sources: (address, bytes) of each operand.
        """

    def copy(self, target: Run, source: Run) -> Action:
        """Return an action that copies bytes."""

    def divide(self, dtype: np.dtype, target: Run, divisor: int) -> Action:
        """Return an action that divides in place."""

    def launched(self, work: int) -> Action | None:
        """Return an action that marks the point after a work, None where work is done at once."""

    def sync(self, work: int, last: bool) -> Action | None:
        """Return an action that waits for a work, or for all so far if it is the last; None where none is needed."""

    def poll(self, work: int, last: bool) -> Poll | None:
        """Return a function that tells whether `sync` would return at once; None where none is needed."""
