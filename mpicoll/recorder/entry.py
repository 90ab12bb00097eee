"""Entries: what is written down of one call while it is made."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple

#: the end of a call that is over, where nobody looked at the clock
UNKNOWN = -1.0
#: characters of an error that are kept
LONGEST_ERROR = 200


class Decision(NamedTuple):
    """A call that is decided, without its arrays.

    Attributes:
        operands: without arrays.
        plan: what was chosen.
        form: as in `Entry`.
        sequence: of a start: number of the persistent call; else 0.
    """

    operands: Any
    plan: Any
    form: str = "blocking"
    sequence: int = 0


class Entry:
    """One call, on its way or over.

    As a context manager it is a call, or the part of one, in which the host works without a break.

    Attributes:
        form: "blocking", "nonblocking", "persistent" (the call that makes a request), or "start" (of such a request).
        method: such as "Allreduce".
        sequence: number of the call on its communicator.
        known: what has its operands and its plan, a remembered call or a `Decision`; None before it is decided.
        bound: its program is there, so that it is made; until then it may be taken back.
        began: when it began, in seconds of time.monotonic().
        ended: when it ended, 0.0 before that, `UNKNOWN` where that was not measured.
        error: with which it has failed, "" if it has not.
        ranges: CuPy's module of NVTX ranges, None where none are wanted.
    """

    __slots__ = "began", "bound", "ended", "error", "form", "known", "method", "ranges", "sequence"

    def __init__(self, form: str, method: str, sequence: int, known: Any, *, bound: bool = False) -> None:
        """Begin; arguments as in the attributes."""
        self.bound = bound
        self.form, self.method, self.sequence, self.known = form, method, sequence, known
        self.ended, self.error = 0.0, ""
        self.ranges: Any = None
        self.began = monotonic()

    def end(self, error: BaseException | None = None) -> None:
        """Note that the call is over, and the error that it raised, if any."""
        if error is not None:  # first, for another thread may look at any time
            self.error = f"{type(error).__name__}: {error}".partition("\n")[0][:LONGEST_ERROR]
        self.ended = monotonic()

    def __enter__(self) -> None:
        if self.ranges is not None:
            self.ranges.RangePush(self.title)

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self.ranges is not None:
            self.ranges.RangePop()
        self.end(error)

    @property
    def title(self) -> str:
        """Name of its range, such as "mpicoll.allreduce #17 ring@mapped 4096", the last in bytes."""
        head = f"mpicoll.{self.method.lower()} #{self.sequence}"
        if self.known is None:
            return head
        plan = self.known.plan
        return f"{head} {plan.algorithm}@{plan.path} {nbytes_of(self.known.operands)}"


def nbytes_of(operands: Any) -> int:
    """Return the message size of a call in bytes, this rank's own bytes where not all ranks know it."""
    return int(operands.count * operands.dtype.itemsize if operands.nbytes is None else operands.nbytes)
