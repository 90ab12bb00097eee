"""Cases: calls and their buffers' contents, derived from the table of collectives, without arrays or MPI."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from mpicoll.bench.request.numbers import Recipe, dtype_named
from mpicoll.schedule.collectives import COLLECTIVES, Collective
from mpicoll.schedule.partition import offsets, split


@dataclass(frozen=True)
class Method:
    """A call of mpi4py's.

    Attributes:
        method: its name.
        row: the collective.
        uneven: blocks have counts of their own.
        local: not all ranks know all ranks' counts.
    """

    method: str
    row: Collective
    uneven: bool
    local: bool

    @property
    def name(self) -> str:
        """The method in lower case."""
        return self.method.lower()

    @property
    def forms(self) -> tuple[bool, ...]:
        """Forms that there are: out of place (False) and in place (True)."""
        if self.row.shared:
            return (True,)
        return (False,) if self.method == "Barrier" else (False, True)


def _calls() -> Iterable[Method]:
    for row in COLLECTIVES.values():
        for method in row.methods:
            uneven = method in ("Gatherv", "Scatterv", "Allgatherv", "Alltoallv", "Reduce_scatter")
            yield Method(method, row, uneven, method in ("Gatherv", "Scatterv", "Alltoallv"))


CALLS: dict[str, Method] = {call.name: call for call in _calls()}
#: one call for each row of the table
DEFAULT_CALLS = tuple(row.methods[0].lower() for row in COLLECTIVES.values())
#: calls whose blocks are uneven
UNEVEN = tuple(name for name, call in CALLS.items() if call.uneven)


def calls_named(words: Iterable[str]) -> tuple[str, ...]:
    """Return names of calls; `all` are all, `default` one for each collective."""
    groups = {"all": tuple(CALLS), "default": DEFAULT_CALLS}
    found: list[str] = []
    for word in (w.lower() for w in words):
        if word not in groups and word not in CALLS:
            raise ValueError(f"no call {word!r}; known: all, default, {', '.join(CALLS)}")
        found += groups.get(word, (word,))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Case:
    """One call with one kind and number of elements.

    Attributes:
        call: what is called.
        count: elements of the full vector.
        dtype: name of the dtype.
        size: number of ranks.
        redop: name of the operator, "" where there is none.
        root: the root, 0 where there is none.
    """

    call: Method
    count: int
    dtype: str
    size: int
    redop: str = ""
    root: int = 0

    @property
    def nbytes(self) -> int:
        """Message size, as mpicoll.dispatch.plan defines it."""
        return self.count * dtype_named(self.dtype).itemsize

    @property
    def recipe(self) -> Recipe:
        """Recipe of its numbers."""
        return Recipe(self.dtype, self.redop, self.size)

    def counts(self) -> tuple[int, ...]:
        """Return the elements of every block."""
        row, size = self.call.row, self.size
        if row.free:
            return (self.count,)
        each = uneven(self.count, size) if self.call.uneven else split(self.count, size)
        if row.name == "alltoall":  # by source and target; each rank sends and receives `count` in all
            return tuple(each[(source + target) % size] for source in range(size) for target in range(size))
        return each


def make_case(call: Method, nbytes: int, dtype: str, size: int, redop: str, root: int) -> Case:
    """Return the case of about a message size.  Even blocks are equal, and only 0 bytes have no element.

    On 4 ranks an Allgather of 1,000 bytes of float32 has 248 elements, 62 in each block.

    Args:
        call: what is called.
        nbytes: message size in bytes.
        dtype: name of the dtype.
        size: number of ranks.
        redop: name of the operator, "" where there is none.
        root: the root, 0 where there is none.
    """
    elements = nbytes // dtype_named(dtype).itemsize
    count = 0 if nbytes == 0 or call.method == "Barrier" else max(elements, 1)
    if count and not call.row.free and not call.uneven:
        count = max(count - count % size, size)
    if call.method == "Barrier":
        dtype = "uint8"
    return Case(call, count, dtype, size, redop if call.row.reducing else "", root if call.row.rooted else 0)


def in_equal_blocks(case: Case) -> Case:
    """Return a case whose vector can be cut into equal blocks, one for each rank; uneven blocks stay as they are."""
    return replace(case, count=case.count + -case.count % case.size) if case.call.row.free else case


def uneven(count: int, parts: int) -> tuple[int, ...]:
    """Return counts that sum to `count`, of about 1, 2, 3 ... equal shares."""
    shares = offsets((*split(count, parts * (parts + 1) // 2), 0))
    ends = accumulate(range(parts + 1))
    return tuple(shares[end] - shares[start] for start, end in pairwise(ends))


@dataclass(frozen=True)
class Piece:
    """One block in a buffer.

    Attributes:
        at: its first element in the buffer.
        count: number of elements.
        start: its first element in the collective's vector.
        ranks: whose contributions it is combined from.
    """

    at: int
    count: int
    start: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Contents:
    """A buffer before and after the call.

    Attributes:
        length: number of elements.
        inputs: what is there before; the rest is poisoned.
        outputs: what must be there after; the rest must stay.
        defined: elements at the front that the call defines; the others may hold anything after it.
    """

    length: int
    inputs: tuple[Piece, ...] = ()
    outputs: tuple[Piece, ...] = ()
    defined: int | None = None

    @property
    def partly(self) -> bool:
        """The call writes some elements, and not others."""
        return 0 < sum(piece.count for piece in self.outputs) < self.length


def contents(case: Case, rank: int, in_place: bool) -> tuple[Contents | None, Contents | None]:
    """Return (contents of sendbuf, contents of recvbuf); the same object twice is one buffer, None is none."""
    row, size, root = case.call.row, case.size, case.root
    if case.call.method == "Barrier":
        return None, None
    blocks = 1 if row.free else row.blocks(size)
    ids: dict[int, tuple[int, ...]] = {i: (rank,) for i in row.before(rank, size, root, blocks)}
    results = {i: tuple(ranks) for i, ranks in row.after(rank, size, root, blocks).items()}
    inputs, outputs = _pieces(case, ids), _pieces(case, results)
    if row.shared or (in_place and (not row.rooted or rank == root)):
        both = _one_buffer(case, inputs, outputs)
        return both, both
    send = Contents(_length(case, inputs), inputs) if inputs or not row.rooted else None
    recv = Contents(_length(case, outputs), outputs=outputs) if outputs or not row.rooted else None
    return send, recv


def counted(row: Collective) -> tuple[bool, bool]:
    """Return (sendbuf, recvbuf): true for one that has a block for every rank."""
    blocks = row.blocks(2)
    sent, received = row.before(0, 2, 0, blocks), row.after(0, 2, 0, blocks)
    return len(list(sent)) > 1, len(received) > 1


def _pieces(case: Case, blocks: dict[int, tuple[int, ...]]) -> tuple[Piece, ...]:
    """Lay blocks one after the other."""
    counts = case.counts()
    starts = offsets(counts)
    at = offsets(tuple(counts[i] for i in blocks))
    return tuple(Piece(a, counts[i], starts[i], ranks) for a, (i, ranks) in zip(at, blocks.items(), strict=True))


def _length(case: Case, pieces: tuple[Piece, ...]) -> int:
    return case.count if case.call.row.free else sum(piece.count for piece in pieces)


def _one_buffer(case: Case, inputs: tuple[Piece, ...], outputs: tuple[Piece, ...]) -> Contents:
    """The larger side is the buffer; a single block lies at its place there, or at the front."""
    length = max(_length(case, inputs), _length(case, outputs))
    if len(inputs) == 1 < len(outputs):  # gather, allgather: block r is r's
        inputs = _moved(inputs, outputs)
    elif len(outputs) == 1 < len(inputs):
        if case.call.row.reducing:  # reduce_scatter
            return Contents(length, inputs, outputs, outputs[0].count)
        outputs = _moved(outputs, inputs)  # scatter
    return Contents(length, inputs, outputs)


def _moved(one: tuple[Piece, ...], many: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Put the only block of one side where the other side has it; both lie in the order of the vector."""
    at = one[0].start - many[0].start
    return (Piece(at, one[0].count, one[0].start, one[0].ranks),)
