"""The table of collectives: who has which blocks before, who must have what after.

Argument checks, verifier, test oracle and benchmark all read these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: block id -> ranks whose input the block must be made of
Expected = dict[int, Iterable[int]]


@dataclass(frozen=True)
class Collective:
    """One row: a collective defined by the blocks before and after.

    Allgather on 4 ranks: rank 1 has block 1 before, and blocks 0 to 3 after, block q made of rank q.

    Attributes:
        name: the row's name; v-variants and the MPI method are given in `methods`.
        methods: mpi4py's names of the calls that this row serves.
        before: (rank, size, root, blocks) -> ids in the rank's input.
        after: (rank, size, root, blocks) -> ids in the rank's output, each with the
            ranks whose values it is combined from (one rank: moved, several: reduced).
        rooted: the call has a root argument.
        reducing: the call has an operator.
        free: the vector may be cut into any number of blocks; otherwise blocks are the
            ranks' own parts (size of them, or size*size pairs source*size+target).
        shared: input and output are one buffer in every call (Bcast).
        idempotent: combining a rank twice is harmless (Barrier's zero elements).
        bus: (size) -> bus bandwidth over algorithm bandwidth, as nccl-tests define it.
    """

    name: str
    methods: tuple[str, ...]
    before: Callable[[int, int, int, int], Iterable[int]]
    after: Callable[[int, int, int, int], Expected]
    rooted: bool = False
    reducing: bool = False
    free: bool = False
    shared: bool = False
    idempotent: bool = False
    bus: Callable[[int], float] = lambda p: 1.0

    def blocks(self, size: int) -> int:
        """Return the number of blocks where the collective fixes it."""
        return size * size if self.name == "alltoall" else size


def _all(r: int, p: int, root: int, blocks: int) -> range:
    return range(blocks)


def _own(r: int, p: int, root: int, blocks: int) -> range:
    return range(r, r + 1)


def _at_root(r: int, p: int, root: int, blocks: int) -> range:
    return range(blocks if r == root else 0)


def _every(ids: Iterable[int], ranks: Iterable[int]) -> Expected:
    return dict.fromkeys(ids, ranks)


def _each(ids: Iterable[int]) -> Expected:
    return {i: (i,) for i in ids}


def _most(p: int) -> float:
    return (p - 1) / p


_ROWS = (
    Collective(
        "barrier",
        ("Barrier",),
        before=_all,
        after=lambda r, p, root, b: _every(range(b), range(p)),
        free=True,
        idempotent=True,
    ),
    Collective(
        "bcast",
        ("Bcast",),
        before=_at_root,
        after=lambda r, p, root, b: _every(range(b), (root,)),
        rooted=True,
        free=True,
        shared=True,
    ),
    Collective(
        "reduce",
        ("Reduce",),
        before=_all,
        after=lambda r, p, root, b: _every(_at_root(r, p, root, b), range(p)),
        rooted=True,
        reducing=True,
        free=True,
    ),
    Collective(
        "allreduce",
        ("Allreduce",),
        before=_all,
        after=lambda r, p, root, b: _every(range(b), range(p)),
        reducing=True,
        free=True,
        bus=lambda p: 2 * _most(p),
    ),
    Collective(
        "gather",
        ("Gather", "Gatherv"),
        before=_own,
        after=lambda r, p, root, b: _each(_at_root(r, p, root, b)),
        rooted=True,
        bus=_most,
    ),
    Collective(
        "scatter",
        ("Scatter", "Scatterv"),
        before=_at_root,
        after=lambda r, p, root, b: _every((r,), (root,)),
        rooted=True,
        bus=_most,
    ),
    Collective(
        "allgather",
        ("Allgather", "Allgatherv"),
        before=_own,
        after=lambda r, p, root, b: _each(range(b)),
        bus=_most,
    ),
    Collective(
        "reduce_scatter",
        ("Reduce_scatter_block", "Reduce_scatter"),
        before=_all,
        after=lambda r, p, root, b: _every((r,), range(p)),
        reducing=True,
        bus=_most,
    ),
    Collective(
        "alltoall",
        ("Alltoall", "Alltoallv"),
        before=lambda r, p, root, b: range(r * p, r * p + p),
        after=lambda r, p, root, b: {s * p + r: (s,) for s in range(p)},
        bus=_most,
    ),
    Collective(
        "scan",
        ("Scan",),
        before=_all,
        after=lambda r, p, root, b: _every(range(b), range(r + 1)),
        reducing=True,
        free=True,
    ),
    Collective(
        "exscan",
        ("Exscan",),
        before=_all,
        after=lambda r, p, root, b: _every(range(b if r else 0), range(r)),
        reducing=True,
        free=True,
    ),
)

COLLECTIVES: dict[str, Collective] = {row.name: row for row in _ROWS}

#: other spellings of a row: lower-case method names ("gatherv", "reduce_scatter_block")
ALIASES: dict[str, str] = {m.lower(): row.name for row in _ROWS for m in row.methods}


def collective(name: str) -> Collective:
    """Return the row for a collective's name in any spelling of its MPI method."""
    key = name.lower()
    if key not in ALIASES:
        raise ValueError(f"no collective {name!r}; known: {', '.join(COLLECTIVES)}")
    return COLLECTIVES[ALIASES[key]]
