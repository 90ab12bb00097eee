"""The ranks' words on a call: that they make it, the same one, or why they cannot.

Where a setting demands it, each rank says one `Word` before a call, and hears all others' before it starts.
So every error of reading, planning and binding is every rank's, whatever call each of them makes.  An error
that comes later travels as a refusal (see `refusals.py`).
"""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, field
from types import CodeType
from typing import Any

import numpy as np

from mpicoll.dispatch.plan import Plan
from mpicoll.errors import MismatchError
from mpicoll.kinds import PLAN
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.progress.notices import LONGEST
from mpicoll.settings import settings


@dataclass(frozen=True)
class Fingerprint:
    """The facts that must be equal on all ranks that make a call together.

    Attributes:
        form: "persistent" or "call": blocking and nonblocking calls match each other.
        collective: the call's name.
        dtype: of the arrays: name, byte order, fields.
        count: elements of the vector; -1 where ranks may differ.
        op: the operator's name, and "(in rank order)" if it does not commute.
        root: the root, -1 where there is none.
        algorithm: what was chosen, with segments and path.
        counts: elements of each block, where all ranks must name the same.
        function: checksum of a user's operator.
    """

    form: str
    collective: str
    dtype: str
    count: int
    op: str
    root: int
    algorithm: str
    counts: tuple[int, ...] = ()
    function: int = 0

    @staticmethod
    def of(form: str, operands: Operands, plan: Plan) -> Fingerprint:
        """Return a call's fingerprint."""
        known = operands.nbytes is not None and operands.dtype.itemsize
        op = operands.op
        return Fingerprint(
            "persistent" if form == "persistent" else "call",
            operands.method,
            _described(operands.dtype) if operands.row.name != "barrier" else "",
            (operands.nbytes or 0) // operands.dtype.itemsize if known else -1,
            f"{op.name}{'' if op.commutative else ' (in rank order)'}" if op else "",
            operands.root if operands.row.rooted else -1,
            f"{plan.algorithm}/{plan.segments}@{plan.path}",
            _common_counts(operands),
            _checksum(op.function, op.cuda) if op and op.users else 0,
        )

    def __str__(self) -> str:
        count = "" if self.count < 0 else f"[{self.count}]"
        root = "" if self.root < 0 else f" root {self.root}"
        form = "persistent " if self.form == "persistent" else ""
        counts = f" counts {list(self.counts)}" if self.counts else ""
        return f"{form}{self.collective} {self.dtype}{count} {self.op}{root}{counts}".replace("  ", " ").strip()


def _described(dtype: np.dtype) -> str:
    """Return a dtype in words: name, byte order where it is not this machine's, and a record's fields."""
    if dtype.names:
        places = [] if dtype.fields is None else [dtype.fields[name][1] for name in dtype.names]
        fields = (f"{n} {_described(dtype[n])} at {at}" for n, at in zip(dtype.names, places, strict=True))
        return f"record of {dtype.itemsize} B ({', '.join(fields)})"
    if dtype.subdtype:
        return f"{_described(dtype.base)}{list(dtype.shape)}"
    return dtype.name if dtype.isnative else f"{dtype.name} (other byte order)"


def _checksum(function: Any, cuda: str) -> int:
    """Return a number that differs where users' operators do: of the code, as far as it is Python's."""
    return zlib.crc32(f"{cuda}\n{_spelled(getattr(function, '__code__', None))}".encode())


def _spelled(constant: Any) -> str:
    """Return code and its constants as a text that is the same in every process: no addresses, no order of sets."""
    if isinstance(constant, CodeType):
        parts = constant.co_code.hex(), constant.co_names, [_spelled(one) for one in constant.co_consts]
        return str(parts)
    if isinstance(constant, tuple | frozenset):
        items = [_spelled(one) for one in constant]
        return str(items if isinstance(constant, tuple) else sorted(items))
    return repr(constant)


def _common_counts(operands: Operands) -> tuple[int, ...]:
    """Return the counts that all ranks give, where they do: of Allgatherv and Reduce_scatter."""
    blocks = {"allgatherv": operands.out_blocks, "reduce_scatter": operands.in_blocks}
    return blocks.get(operands.method, ((), ()))[0]


@dataclass(frozen=True)
class Flow:
    """Elements that a rank sends to each rank, and expects from each, in a v-variant, as far as it knows.

    On rank 0 of 3, Gatherv of 1, 2 and 3 elements to rank 0 has the flow

        sent {0: 1}, expected {0: 1, 1: 2, 2: 3}
    """

    sent: dict[int, int] = field(default_factory=dict)
    expected: dict[int, int] = field(default_factory=dict)

    @staticmethod
    def of(operands: Operands, size: int) -> Flow:
        """Return a call's flow; an empty one where counts are no affair of pairs."""
        if operands.method not in ("gatherv", "scatterv", "alltoallv", "alltoallw"):
            return Flow()
        into, out_of = operands.in_blocks[0], operands.out_blocks[0]
        return Flow(_by_rank(into, size, operands.root), _by_rank(out_of, size, operands.root))


def _by_rank(counts: tuple[int, ...], size: int, root: int) -> dict[int, int]:
    """Return counts by rank: one for each, or one that is the root's affair."""
    if len(counts) == size:
        return dict(enumerate(counts))
    return {root: counts[0]} if counts else {}


@dataclass(frozen=True)
class Word:
    """A rank's word on a call that it is about to make.

    Attributes:
        what: what it is about to do, such as "allreduce"; ranks whose words differ make different calls.
        fingerprint: of the call, None if it was not read.
        flow: counts of a v-variant.
        trouble: what keeps this rank from the call, "" if nothing does.
        short: that is too little memory; with less scratch it might go.
        unconnected: the call needs the peers' memory mapped first.
        told: what else the others must know, such as a count.
    """

    what: str
    fingerprint: Fingerprint | None = None
    flow: Flow = field(default_factory=Flow)
    trouble: str = ""
    short: bool = False
    unconnected: bool = False
    told: Any = None

    @staticmethod
    def refusing(what: str, error: Exception) -> Word:
        """Return the word of a rank that an error keeps from the call."""
        return Word(what, trouble=repr(error)[:LONGEST], short=isinstance(error, MemoryError))


def asked() -> bool:
    """Tell whether ranks ask each other before a call."""
    return compares() or bool(settings.errors)


def compares() -> bool:
    """Tell whether every call is compared over the ranks before it starts."""
    return settings.debug not in (0, PLAN)


def settle(name: str, words: list[Word], trouble: Exception | None) -> None:
    """Raise what this rank has met, or what another one has, or that calls differ.

    Raises:
        MismatchError: the calls differ, or another rank raised something.
        Exception: `trouble` itself.
    """
    if trouble is not None:
        raise trouble
    refused = [f"rank {rank} raised {word.trouble}" for rank, word in enumerate(words) if word.trouble]
    if refused:
        raise MismatchError(f"{name}: {'; '.join(refused)}")
    if compares():
        _compare(name, [word.fingerprint for word in words if word.fingerprint is not None])
        _compare_flows(name, [word.flow for word in words])
    whats = [word.what for word in words]
    if len(set(whats)) > 1:
        rank = next(rank for rank, what in enumerate(whats) if what != whats[0])
        raise MismatchError(f"{name}: rank 0 calls {whats[0]}, rank {rank} calls {whats[rank]}")
    if any(word.unconnected for word in words):
        places = [f"rank {rank} on a {'device' if w.unconnected else 'host'}" for rank, w in enumerate(words)]
        raise MismatchError(f"{name}: arrays are not all in the same memory: {', '.join(places)}")


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


def _compare_flows(name: str, flows: list[Flow]) -> None:
    for sender, flow in enumerate(flows):
        for receiver, count in flow.sent.items():
            expected = flows[receiver].expected.get(sender, count)
            if count != expected:
                raise MismatchError(
                    f"{name}: rank {sender} sends {count} elements to rank {receiver}, which expects {expected}"
                )
