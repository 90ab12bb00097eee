"""Do all ranks make the same call?  Asked before the call starts, where a setting demands it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from mpicoll.dispatch.plan import Plan
from mpicoll.errors import MismatchError
from mpicoll.runtime.channel import Channel
from mpicoll.runtime.operands import Operands
from mpicoll.settings import settings

#: powers of two by which the scratch limit shrinks from one try to the next
SHRINK = (0, 3, 6, 9)


@dataclass(frozen=True)
class Fingerprint:
    """What must be equal on all ranks that make a call together.

    Attributes:
        form: blocking, nonblocking or persistent.
        collective: the call's name.
        dtype: of the arrays.
        count: elements of the vector; -1 where ranks may differ.
        op: the operator's name.
        root: the root, -1 where there is none.
        algorithm: what was chosen, with segments and path.
    """

    form: str
    collective: str
    dtype: str
    count: int
    op: str
    root: int
    algorithm: str

    @staticmethod
    def of(form: str, operands: Operands, plan: Plan) -> Fingerprint:
        """Return a call's fingerprint."""
        known = operands.nbytes is not None and operands.dtype.itemsize
        return Fingerprint(
            form,
            operands.method,
            operands.dtype.name if operands.row.name != "barrier" else "",
            (operands.nbytes or 0) // operands.dtype.itemsize if known else -1,
            operands.op.name if operands.op else "",
            operands.root if operands.row.rooted else -1,
            f"{plan.algorithm}/{plan.segments}@{plan.path}",
        )

    def __str__(self) -> str:
        count = "" if self.count < 0 else f"[{self.count}]"
        root = "" if self.root < 0 else f" root {self.root}"
        form = "" if self.form == "blocking" else f"{self.form} "
        return f"{form}{self.collective} {self.dtype}{count} {self.op}{root}".replace("  ", " ").strip()


def agreed(
    channel: Channel, form: str, method: str, decide: Callable[[int], tuple[Operands, Plan]], compare: bool
) -> tuple[Operands, Plan]:
    """Return what `decide(scratch limit)` returns, if all ranks can make the call, and (with `compare`) the same one.

    Where memory is short on a rank, all ranks try again with a smaller limit, that is with more segments.

    Raises:
        MismatchError: on every rank, if calls differ, or where another rank raised something.
        Exception: what `decide` raises on this rank, once the others know of it.
    """
    for limit in (settings.scratch_limit >> shift for shift in SHRINK):
        mine: Fingerprint | None = None
        trouble: Exception | None = None
        try:
            operands, plan = decide(limit)
            mine = Fingerprint.of(form, operands, plan)
        except Exception as error:
            trouble = error
        everyone = channel.exchange((mine, repr(trouble), isinstance(trouble, MemoryError)))
        if not any(short for _, _, short in everyone):
            break
    _settle(channel, method, everyone, trouble, compare)
    return operands, plan


def announced(
    channel: Channel, method: str, mine: Fingerprint | None, trouble: Exception | None, compare: bool
) -> None:
    """Tell the other ranks of a call whose arguments are not complete yet, or of what keeps this rank from it."""
    _settle(channel, method, channel.exchange((mine, repr(trouble), False)), trouble, compare)


def _settle(channel: Channel, method: str, everyone: list[Any], trouble: Exception | None, compare: bool) -> None:
    """Raise what this rank has met, or what another one has, or that calls differ."""
    if trouble is not None:
        raise trouble
    called = next((found.collective for found, _, _ in everyone if found is not None), method.lower())
    name = f"{called} #{channel.calls}"
    refused = [f"rank {r} raised {text}" for r, (found, text, _) in enumerate(everyone) if found is None]
    if refused:
        raise MismatchError(f"{name}: {'; '.join(refused)}")
    if compare:
        _compare(name, [found for found, _, _ in everyone])


def _compare(name: str, calls: list[Fingerprint]) -> None:
    different = [rank for rank, call in enumerate(calls) if call != calls[0]]
    if different:
        rank = different[0]
        first, other = asdict(calls[0]), asdict(calls[rank])
        fields = ", ".join(f"{k} {first[k]} and {other[k]}" for k in first if first[k] != other[k])
        raise MismatchError(
            f"{name}: rank 0 calls {calls[0]}, rank {rank} calls {calls[rank]} "
            f"(they differ in {fields}; ranks unlike rank 0: {different})"
        )
