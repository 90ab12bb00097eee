"""What a test calls: a case, the blocks of its arrays, and which algorithms serve it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

import mpicoll
from mpicoll.algorithms import registry

#: fixtures `comms`: ranks are those of the world, others, fewer, and one alone
COMMUNICATORS = ("world", "reversed", "halves", "self")
VECTOR = ("Gatherv", "Scatterv", "Allgatherv", "Alltoallv")
ROOTED = ("Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Reduce")
REDUCING = ("Reduce", "Allreduce", "Reduce_scatter_block", "Reduce_scatter", "Scan", "Exscan")
#: collectives in which a rank may send, or receive, a block for every rank
MANY_SENT = ("scatter", "reduce_scatter", "alltoall")
MANY_RECEIVED = ("gather", "allgather", "alltoall")
#: where not every rank knows every count
UNKNOWN_COUNTS = ("Gatherv", "Scatterv", "Alltoallv")
#: elements of rank r's block among p ranks; of the block from s to r, a mixture of both is taken as r
PATTERNS: dict[str, Callable[[int, int], int]] = {
    "uneven": lambda r, p: (5 * r + 3) % 7,
    "alternating": lambda r, p: r % 2 * 4,
    "last": lambda r, p: 6 * (r % p == p - 1),
    "zero": lambda r, p: 0,
    "equal": lambda r, p: 3,
}


@dataclass(frozen=True)
class Memory:
    """Where the arrays are: an array module, and the path that they shall take."""

    xp: Any = np
    path: str | None = None

    def to_host(self, array: Any) -> np.ndarray:
        return array if self.xp is np else array.get()


HOST = Memory()


@dataclass(frozen=True)
class Case:
    """What is called.

    Attributes:
        method: the method's name.
        algorithm: as in the call.
        count: elements of a vector, or of every block.
        pattern: where blocks differ, one of PATTERNS.
        layout: where blocks lie: "dense", "gaps" or "permuted".
        spelling: how counts and displacements are given: "counts", "list", "tuple", "array", "typed".
        dtype: of all arrays.
        op: the operator's name.
        root: taken modulo the number of ranks.
        form: "apart", "in place" as MPI has it, or "alias", where NCCL or mpi4py 4.2 see in place.
    """

    method: str
    algorithm: str | None = None
    count: int = 5
    pattern: str = ""
    layout: str = "dense"
    spelling: str = "counts"
    dtype: str = "float32"
    op: str = "SUM"
    root: int = 0
    form: str = "apart"

    @property
    def collective(self) -> str:
        return registry.collective(self.method).name

    @property
    def algorithm_name(self) -> str:
        return re.split("[/@]", self.algorithm or "")[0]


@dataclass(frozen=True)
class Blocks:
    """Blocks of an array: their counts, where they start, and the length of the array."""

    counts: tuple[int, ...]
    displs: tuple[int, ...]
    length: int

    @staticmethod
    def of(counts: Any, layout: str = "dense") -> Blocks:
        numbers = range(len(counts))
        gaps = [0 if layout == "dense" else 1 + b % 3 for b in numbers]
        order = numbers[::-1] if layout == "permuted" else numbers
        ends = list(accumulate(gaps[b] + counts[b] for b in order))
        starts = {b: end - counts[b] for b, end in zip(order, ends, strict=True)}
        return Blocks(tuple(counts), tuple(starts[b] for b in numbers), ends[-1])

    def slice(self, block: int) -> slice:
        return slice(self.displs[block], self.displs[block] + self.counts[block])


def forms(method: str) -> tuple[str, ...]:
    """Return the in-place forms that a method has."""
    if method == "Bcast":
        return ("apart",)
    return ("apart", "in place") if method.startswith("Alltoall") else ("apart", "in place", "alias")


def refusal(case: Case, size: int) -> str | None:
    """Return why the case's algorithm cannot serve, None if it can."""
    if case.algorithm in (None, "native"):
        return None
    card = registry.get(case.method, case.algorithm_name)
    return card.refuses(size, counts_known=case.method not in UNKNOWN_COUNTS)


def each_that_serves(collective: str, size: int, call: Callable[[str], object], **needs: bool) -> list[str]:
    """Make a call with every algorithm, and return those that ran; exactly the others must refuse, and say why."""
    ran = []
    for card in registry.known(collective):
        why = card.refuses(size, **needs)
        if why:
            with pytest.raises(mpicoll.UnsupportedError, match=re.escape(f"{card.name!r} {why}; usable: ")):
                call(card.name)
        else:
            call(card.name)
            ran.append(card.name)
    return ran
