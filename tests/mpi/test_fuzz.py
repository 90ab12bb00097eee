"""Random calls: Hypothesis draws everything about a call, NumPy says what must come out.

All ranks draw the same cases.  A failure ends the job and prints the case, `check(comms, Drawn(...))`
makes the same call again; so does a call that hangs.

MPICOLL_TEST_EXAMPLES says how many cases, MPICOLL_TEST_SEED which ones (`make fuzz` goes on with new
seeds); without a seed they are always the same, and more than 2,000 over the numbers of ranks that
`make test-mpi` runs.
"""

import functools
import os
from dataclasses import dataclass
from functools import cached_property

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mpi4py import MPI

import data
import mpicoll
import oracle
from mpi.calling import HOST, PATTERNS, REDUCING, SENTINEL, UNKNOWN_COUNTS, VECTOR, Call, Case, Part, forms
from mpicoll.algorithms import registry

SIZE = MPI.COMM_WORLD.Get_size()
#: many ranks on few cores are slow
EXAMPLES = int(os.environ.get("MPICOLL_TEST_EXAMPLES", 0)) or {4: 300, 5: 300}.get(SIZE, 400 if SIZE < 4 else 150)
SEED = os.environ.get("MPICOLL_TEST_SEED")
#: calls that are in flight together, at most
TOGETHER = 4
#: elements before and behind an array
AROUND = 3

METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
COMMS = ("world", "reversed", "halves", "self", "dup")
MODES = ("blocking", "nonblocking", "persistent")
MOVED = (*data.DTYPES, *data.BFLOAT16, *data.RECORDS)
REDUCED = (*data.DTYPES, *data.BFLOAT16)
#: of the operator USER, which works on integers of any width
USERS = ("int8", "uint8", "int16", "int32", "uint64")


def compose(a, b):
    """Affine maps modulo 16, three bits of factor and four of summand: associative, not commutative."""
    m, c, n, d = a >> 4 & 7, a & 15, b >> 4 & 7, b & 15
    return (2 * m * n + m + n & 7) << 4 | (2 * n + 1) * c + d & 15


USER = mpicoll.Op(compose)


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
}
#: whose blocks are views, too
FLAT = ("C", "strided", "reversed", "unaligned")


@dataclass(frozen=True)
class Drawn(Case):
    """A case, and what else is drawn.

    Attributes:
        comm: one of COMMS.
        mode: one of MODES; a persistent call is started twice.
        number: among the algorithms that can serve; None leaves the choice to the library.
        segments: with an algorithm.
        memory: layouts of what is sent and received, of MEMORY.
    """

    comm: str = "world"
    mode: str = "blocking"
    number: int | None = None
    segments: int = 1
    memory: tuple[str, str] = ("C", "C")

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
        self.inner[start:] = self.array.reshape(-1)[start:]

    def compare(self, tolerance):
        found = self.array.reshape(-1)
        assert found.tobytes() == self.inner.tobytes(), f"found {found}, expected {self.inner}"
        self.array[...] = self._sentinels(self.blocks.length).reshape(self.array.shape)
        assert (self.raw == SENTINEL).all(), "written outside the array"


class DrawnCall(Call):
    """A drawn case on one rank."""

    def __init__(self, case, rank, size):
        self.layouts = list(case.memory)
        plain = Case(**{name: getattr(case, name) for name in Case.__dataclass_fields__})
        self.user = plain.op == "USER"
        if self.user:
            plain = Case(**{**vars(plain), "op": "BOR"})  # for its inputs
        super().__init__(plain, rank, size)
        if self.user:
            self.expected = self._composed()

    def _part(self, counts, many):
        layout = self.layouts.pop(0)
        return None if counts is None else Laid(self.case.dtype, super()._part(counts, many).blocks, many, layout)

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
        given = super().arguments()
        return tuple(USER if isinstance(a, MPI.Op) else a for a in given) if self.user else given

    def again(self):
        for part in (self.source, self.target):
            if part is not None and "array" in vars(part):
                part.again()


class Started:
    """A drawn case that was started; `finish` completes it and compares."""

    def __init__(self, comms, case):
        comm = comms[case.comm]
        self.case, self.call = case, DrawnCall(case, comm.rank, comm.size)
        named = {"algorithm": case.name_for(comm.size)}
        name = {"blocking": case.method, "nonblocking": f"I{case.method.lower()}", "persistent": f"{case.method}_init"}
        self.request = getattr(comm, name[case.mode])(*self.call.arguments(), **named)
        if case.mode == "persistent":
            self.request.Start()

    def finish(self):
        if self.case.mode != "blocking":
            self.request.Wait()
        self.call.compare()
        if self.case.mode == "persistent":
            self.call.again()
            self.request.Start()
            self.request.Wait()
            self.call.compare()
            self.request.Free()


def check(comms, case):
    """Make the call, and compare all memory."""
    Started(comms, case).finish()


@st.composite
def cases(draw, modes=MODES):
    """Draw a case; what does not matter for a method is left as it is."""
    method = draw(st.sampled_from(METHODS))
    drawn = {"method": method, "comm": draw(st.sampled_from(COMMS)), "mode": draw(st.sampled_from(modes))}
    drawn["number"] = draw(st.none() | st.integers(0, 9))
    drawn["segments"] = draw(st.integers(1, 4))
    drawn["form"] = draw(st.sampled_from(forms(method)))
    drawn["memory"] = tuple(
        draw(st.sampled_from(FLAT if drawn["form"] == "alias" else tuple(MEMORY))) for _ in range(2)
    )
    drawn["root"] = draw(st.integers(0, 7))
    drawn["count"] = draw(st.integers(0, 40) | st.integers(0, 3000))
    if method in REDUCING:
        op = drawn["op"] = draw(st.sampled_from((*data.OPERATORS, "USER", "USER")))
        usable = USERS if op == "USER" else tuple(d for d in REDUCED if oracle.supports(op, d))
        drawn["dtype"] = draw(st.sampled_from(usable))
    else:
        drawn["dtype"] = draw(st.sampled_from(MOVED))
    if method in VECTOR:
        drawn["pattern"] = draw(st.sampled_from(tuple(PATTERNS)))
        drawn["layout"] = draw(st.sampled_from(("dense", "gaps", "permuted")))
        drawn["spelling"] = draw(st.sampled_from(("counts", "list", "tuple", "array")))
    elif method == "Reduce_scatter":
        drawn["pattern"] = draw(st.sampled_from(("", *PATTERNS)))
        drawn["spelling"] = draw(st.sampled_from(("list", "tuple", "array")))
    return Drawn(**drawn)


def fuzzed(share):
    """Decorate a test: its share of the examples, and the seed."""

    def decorate(test):
        test = hypothesis.settings(max_examples=max(EXAMPLES * share // 100, 1))(test)
        return hypothesis.seed(int(SEED))(test) if SEED else test

    return decorate


@pytest.fixture(scope="session")
def fuzz_comms(comms):
    """COMMS."""
    made = comms["world"].Dup()
    yield {**comms, "dup": made}
    made.Free()


@pytest.fixture(scope="session")
def watch(pytestconfig):
    """Return what tells the watchdog which case is on its way: it is printed if it hangs."""
    plugins = pytestconfig.pluginmanager.get_plugins()
    return next(p.watchdog for p in plugins if hasattr(p, "watchdog")).watch


@fuzzed(80)
@hypothesis.given(case=cases())
def test_any_call(fuzz_comms, watch, case):
    watch(f"check(comms, {case})")
    check(fuzz_comms, case)


@fuzzed(20)
@hypothesis.given(together=st.lists(cases(), min_size=2, max_size=TOGETHER), order=st.permutations(range(TOGETHER)))
def test_calls_in_flight_together(fuzz_comms, watch, together, order):
    """Started in one order on all ranks, completed in another."""
    watch(f"together={together}, order={order}")
    started = [Started(fuzz_comms, case) for case in together]
    for number in order:
        if number < len(started):
            started[number].finish()
