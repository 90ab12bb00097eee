"""Calls that Hypothesis has drawn: arrays in any layout, any form of the call, what must be there afterwards."""

import functools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from mpi4py import MPI

import data
import mpicoll
import oracle
from mpi.calling import SENTINEL, Call, Part
from mpi.cases import HOST, UNKNOWN_COUNTS, Blocks, Case
from mpicoll.algorithms import registry

#: elements before and behind an array
AROUND = 3


def compose(a, b):
    """Affine maps modulo 16, three bits of factor and four of summand: associative, not commutative."""
    m, c, n, d = a >> 4 & 7, a & 15, b >> 4 & 7, b & 15
    return (2 * m * n + m + n & 7) << 4 | (2 * n + 1) * c + d & 15


USER = mpicoll.Op(compose)
#: types that may be given with a buffer
TYPES = {name: getattr(MPI, f"{name.upper()}_T") for name in data.INTEGERS} | {
    "float32": MPI.FLOAT,
    "float64": MPI.DOUBLE,
    "complex128": MPI.DOUBLE_COMPLEX,
}


class Subclass(np.ndarray):
    """An array whose class has a constructor of its own."""

    def __new__(cls):
        raise AssertionError("nobody makes one")


def rectangle(view, order):
    """Give a flat view two dimensions, of which one may be 1."""
    rows = next(k for k in (4, 3, 2, 1) if view.size % k == 0)
    shape = (rows, view.size // rows)
    return view.reshape(shape[::-1]).T if order == "F" else view.reshape(shape)


def aligned(raw, dtype, count):
    return raw[: raw.size // dtype.itemsize * dtype.itemsize].view(dtype)[AROUND : AROUND + count]


def every_second(raw, dtype, count):
    start = AROUND * dtype.itemsize
    return raw[start : start + 2 * count * dtype.itemsize].view(dtype)[::2]


#: name -> (bytes, dtype, count) -> a view of so many elements
MEMORY = {
    "C": aligned,
    "rectangle": lambda *of: rectangle(aligned(*of), "C"),
    "F": lambda *of: rectangle(aligned(*of), "F"),
    "strided": every_second,
    "reversed": lambda *of: aligned(*of)[::-1],
    "unaligned": lambda raw, dtype, count: raw[1 : 1 + count * dtype.itemsize].view(dtype),
    "subclass": lambda *of: aligned(*of).view(Subclass),
    "matrix": lambda *of: rectangle(aligned(*of), "C").view(np.matrix),
}
#: whose blocks are views, too
FLAT = ("C", "strided", "reversed", "unaligned", "subclass")


@dataclass(frozen=True)
class Drawn(Case):
    """A case, and what else is drawn.

    Attributes:
        comm: one of COMMS.
        mode: one of MODES; a persistent call is started twice.
        number: among the algorithms that can serve; None leaves the choice to the library.
        segments: with an algorithm.
        memory: layouts of what is sent and received, of MEMORY.
        displ: where a buffer that is one block starts, in elements.
        typed: one block's type is given, too.
    """

    comm: str = "world"
    mode: str = "blocking"
    number: int | None = None
    segments: int = 1
    memory: tuple[str, str] = ("C", "C")
    displ: int = 0
    typed: bool = False

    def name_for(self, size):
        """Return the algorithm for a communicator of that size."""
        if self.number is None:
            return None
        needs = {"commutative": self.op != "USER", "counts_known": self.method not in UNKNOWN_COUNTS}
        usable = registry.usable(self.method, size, **needs)
        return f"{usable[self.number % len(usable)].name}/{self.segments}"


class Laid(Part):
    """An array in a layout; `inner` is what its elements must be, in their logical order."""

    def __init__(self, dtype, blocks, many, layout):
        self.memory, self.blocks, self.many, self.layout = HOST, blocks, many, layout
        self.dtype = np.dtype(dtype)
        self.inner = self._sentinels(blocks.length)

    def _sentinels(self, count):
        return np.full(count * self.dtype.itemsize, SENTINEL, "u1").view(self.dtype)

    @cached_property
    def array(self):
        length = (2 * self.blocks.length + 2 * AROUND) * self.dtype.itemsize
        self.raw = np.full(length, SENTINEL, "u1")
        view = MEMORY[self.layout](self.raw, self.dtype, self.blocks.length)
        view[...] = self.inner.reshape(view.shape)
        self.first = self.raw.copy()
        return view

    def again(self):
        """Take the memory back to what it was when it was passed."""
        self.raw[...] = self.first

    def allow_from(self, start):
        self.inner[start:] = np.asarray(self.array).reshape(-1)[start:]

    def compare(self, tolerance):
        found = np.asarray(self.array).reshape(-1)
        assert found.tobytes() == self.inner.tobytes(), f"found {found}, expected {self.inner}"
        self.array[...] = self._sentinels(self.blocks.length).reshape(self.array.shape)
        assert (self.raw == SENTINEL).all(), "written outside the array"


class DrawnCall(Call):
    """A drawn case on one rank."""

    def __init__(self, case, rank, size):
        self.layouts, self.displ, self.typed = list(case.memory), case.displ, case.typed
        plain = Case(**{name: getattr(case, name) for name in Case.__dataclass_fields__})
        self.user = plain.op == "USER"
        if self.user:
            plain = Case(**{**vars(plain), "op": "BOR"})  # for its inputs
        super().__init__(plain, rank, size)
        if self.user:
            self.expected = self._composed()

    def _part(self, counts, many):
        layout = self.layouts.pop(0)
        if counts is None:
            return None
        blocks = super()._part(counts, many).blocks
        if not many:
            blocks = Blocks(blocks.counts, (self.displ,), blocks.length + self.displ)
        return Laid(self.case.dtype, blocks, many, layout)

    def _displaced(self, argument):
        """Return a buffer that is one block with its count, its place and its type."""
        for part in (self.source, self.target):
            if part is not None and not part.many and argument is vars(part).get("array"):
                given = TYPES.get(self.case.dtype) if self.typed else None
                spec = [argument, part.blocks.counts[0], self.displ]
                return argument if not (self.displ or given) else spec if given is None else [*spec, given]
        return argument

    def _composed(self):
        case, rank = self.case, self.rank
        count = sum(self.counts) if case.collective == "reduce_scatter" else case.count
        inputs = [data.values(case.dtype, count, r, "BOR") for r in range(self.size)]
        combined = {"Scan": inputs[: rank + 1], "Exscan": inputs[:rank]}.get(case.method, inputs)
        if not combined or (case.method == "Reduce" and rank != self.root):
            return None
        result = functools.reduce(compose, combined)
        return oracle.cut(result, self.counts)[rank] if case.collective == "reduce_scatter" else result

    def arguments(self):
        given = [self._displaced(argument) for argument in super().arguments()]
        return tuple(USER if isinstance(a, MPI.Op) and self.user else a for a in given)

    def again(self):
        for part in (self.source, self.target):
            if part is not None and "array" in vars(part):
                part.again()


class Started:
    """A drawn case that was started; `finish` completes it and compares."""

    def __init__(self, comm, case):
        self.comm = comm
        self.case, self.call = case, DrawnCall(case, comm.rank, comm.size)
        named = {"algorithm": case.name_for(comm.size)}
        name = {"blocking": case.method, "persistent": f"{case.method}_init"}
        name["mixed"] = case.method if comm.rank % 2 else f"I{case.method.lower()}"
        name = name.get(case.mode, f"I{case.method.lower()}")
        self.request = getattr(comm, name)(*self.call.arguments(), **named)
        if case.mode == "persistent":
            self.request.Start()
        if case.mode == "freed":
            self.comm.Free()

    def finish(self):
        if self.request is not None:
            self.request.Wait()
        self.call.compare()
        if self.case.mode == "first":
            self.comm.Free()
        if self.case.mode == "persistent":
            self.call.again()
            self.request.Start()
            self.request.Wait()
            self.call.compare()
            self.request.Free()
