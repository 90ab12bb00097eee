"""Test arrays of a case on one rank: their numbers, the arguments of the call, and what is wrong after it."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.bench.measure.backends import Backend
from mpicoll.bench.request.cases import Case, Contents, Piece, contents, counted
from mpicoll.bench.request.numbers import Recipe, combined, dtype_named, pattern, raw, repeated
from mpicoll.runtime.arguments.operators import MPI_OPS

#: bytes before and after each array that no call may touch; keeps the alignment of device memory
GUARD = 512
_MARK = 0x5A


class Buffer:
    """An array between guards, what must be in it, and what is."""

    def __init__(self, backend: Backend, recipe: Recipe, what: Contents) -> None:
        """Allocate it."""
        self.xp, self.recipe, self.what = backend.xp, recipe, what
        dtype = dtype_named(recipe.dtype)
        self.raw = raw(dtype)
        guard = GUARD // dtype.itemsize
        self.whole = self.xp.empty(what.length + 2 * guard, self.raw)
        self.whole.view(np.uint8)[...] = _MARK
        self.guards = self.whole[:guard], self.whole[guard + what.length :]
        self.bits = self.whole[guard : guard + what.length]
        self.array = self.bits.view(dtype)
        self.expected: Any = None

    def load(self, rank: int, iteration: int) -> None:
        """Write the input, poison the rest with the opposite of what is expected, and keep that for later."""
        expected = self.expected = self.xp.zeros_like(self.bits)
        for piece in self.what.outputs:
            self._write(expected, piece, combined(self.recipe, piece.ranks, iteration))
        self.xp.invert(expected.view(np.uint8), out=self.bits.view(np.uint8))
        for piece in self.what.inputs:
            self._write(self.bits, piece, pattern(self.recipe, rank, iteration))
        kept = self.xp.ones(self.what.length, bool)
        for piece in self.what.outputs:
            kept[piece.at : piece.at + piece.count] = False
        self.xp.copyto(expected, self.bits, where=kept)

    def _write(self, bits: Any, piece: Piece, period: Any) -> None:
        numbers = repeated(self.xp, period.view(self.raw), piece.start, piece.count)
        bits[piece.at : piece.at + piece.count] = numbers

    def wrong(self) -> int:
        """Return the number of elements that are not as expected, those in the guards included."""
        touched = sum(int((guard.view(np.uint8) != _MARK).sum()) for guard in self.guards)
        return int(self._differ().sum()) + -(-touched // self.raw.itemsize)

    def _differ(self) -> Any:
        defined = slice(self.what.defined)
        found, expected = self.bits[defined], self.expected[defined]
        if self.raw.kind == "u":
            return found != expected
        return (found != expected) & ((found == found) | (expected == expected))  # what is kept may be NaN

    def first_wrong(self) -> str:
        """Describe the first wrong element."""
        at = self.xp.flatnonzero(self._differ())
        if not at.size:
            return "memory beside the array was written"
        one = slice(int(at[0]), int(at[0]) + 1)
        dtype = self.array.dtype
        found, expected = (_on_host(bits[one]).view(dtype)[0] for bits in (self.bits, self.expected))
        return f"element {one.start} is {found!s}, not {expected!s}"


def _on_host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()


def _described(buffer: Buffer) -> str:
    """Describe the first wrong element, which takes memory that there may not be."""
    try:
        return buffer.first_wrong()
    except MemoryError:
        return "no memory to find the first"


class Arrays:
    """Test arrays of a case in one form on this rank.

    Attributes:
        case: the case.
        in_place: its form.
        arguments: of the method.
    """

    def __init__(self, case: Case, in_place: bool, rank: int, backend: Backend) -> None:
        """Allocate the arrays.

        Args:
            case: the case.
            in_place: its form.
            rank: this rank.
            backend: where the arrays live.
        """
        self.case, self.in_place, self.rank = case, in_place, rank
        send, recv = contents(case, rank, in_place)
        self.send = Buffer(backend, case.recipe, send) if send else None
        self.recv = self.send if recv is send else Buffer(backend, case.recipe, recv) if recv else None
        self.buffers = {"sendbuf": self.send} if self.send else {}
        if self.recv and self.recv is not self.send:
            self.buffers["recvbuf"] = self.recv
        self.arguments = self._arguments()

    @property
    def op(self) -> Any:
        """The operator, as the method takes it."""
        return MPI_OPS[self.case.redop]

    def _arguments(self) -> tuple[Any, ...]:
        case, row = self.case, self.case.call.row
        if case.call.method == "Barrier":
            return ()
        found = self._sides()
        if case.call.method == "Reduce_scatter":
            found += (list(case.counts()),)
        if row.reducing:
            found += (self.op,)
        return (*found, case.root) if row.rooted else found

    def _sides(self) -> tuple[Any, ...]:
        row, both = self.case.call.row, self.send is self.recv
        if row.shared:
            return (self._side(self.send, False, ()),)
        sent = self._side(self.send, counted(row)[0], self.send.what.inputs if self.send else ())
        received = self._side(self.recv, counted(row)[1], self.recv.what.outputs if self.recv else ())
        if both and row.name == "scatter":
            return sent, MPI.IN_PLACE
        return (MPI.IN_PLACE if both else sent), received

    def _side(self, buffer: Buffer | None, many: bool, blocks: tuple[Piece, ...]) -> Any:
        if buffer is None:
            return None
        if many and self.case.call.uneven and not self.case.call.row.reducing:
            return [buffer.array, [piece.count for piece in blocks]]
        return buffer.array

    def load(self, iteration: int) -> None:
        """Write the inputs of an iteration and poison the outputs."""
        for buffer in self.buffers.values():
            buffer.load(self.rank, iteration)

    def wrong(self) -> tuple[int, str]:
        """Return (wrong elements on this rank, the first of them in words)."""
        wrong = {name: number for name, buffer in self.buffers.items() if (number := buffer.wrong())}
        words = [f"{name}: {_described(self.buffers[name])}" for name in wrong]
        return sum(wrong.values()), "".join(words[-1:])  # the output's, where both are wrong
