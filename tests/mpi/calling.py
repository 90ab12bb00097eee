"""One call of a collective, from data to comparison: `check(comm, Case(...))`.

Every array is part of a larger one that is filled with a sentinel, at an odd address; after the
call all of it must be as the oracle says, around the array and in the gaps between its blocks too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
import oracle
from mpi.cases import HOST, MANY_RECEIVED, MANY_SENT, PATTERNS, REDUCING, ROOTED, VECTOR, Blocks, Case, Memory, refusal
from mpicoll.runtime.arguments.operators import MPI_OPS

#: elements of sentinel before and behind every array
GUARD = 3
SENTINEL = 0xA5


class Part:
    """An array inside a larger one; `model` is what the larger one must be."""

    def __init__(self, memory: Memory, dtype: str, blocks: Blocks, many: bool) -> None:
        self.memory, self.blocks, self.many = memory, blocks, many
        size = blocks.length + 2 * GUARD
        self.model = np.full(size * np.dtype(dtype).itemsize, SENTINEL, "u1").view(dtype)
        self.inner = self.model[GUARD : GUARD + blocks.length]

    @cached_property
    def array(self) -> Any:
        """The array that is passed, made from what the model is by then."""
        self.whole = self.memory.xp.asarray(self.model.copy())
        return self.whole[GUARD : GUARD + self.blocks.length]

    def block(self, number: int) -> Any:
        return self.array[self.blocks.slice(number)]

    def write(self, dense: np.ndarray) -> None:
        """Say what all blocks hold."""
        for number, block in enumerate(oracle.cut(dense, self.blocks.counts)):
            self.write_block(number, block)

    def write_block(self, number: int, block: np.ndarray) -> None:
        self.inner[self.blocks.slice(number)] = block

    def allow_from(self, start: int) -> None:
        """Allow any contents from an element of the array on."""
        self.inner[start:] = self.memory.to_host(self.array)[start:]

    def compare(self, tolerance: float) -> None:
        found = self.memory.to_host(self.whole)
        if tolerance:
            wide = "c16" if found.dtype.kind == "c" else "f8"
            inner = found[GUARD : GUARD + self.blocks.length]
            np.testing.assert_allclose(inner.astype(wide), self.inner.astype(wide), rtol=tolerance)
            found = found.copy()
            found[GUARD : GUARD + self.blocks.length] = self.inner
        padded = found.dtype == np.longdouble != np.dtype("f8")  # bytes that mean nothing
        same = np.array_equal(found, self.model) if padded else found.tobytes() == self.model.tobytes()
        assert same, f"found {found}, expected {self.model}"


class Call:
    """A case on one rank: its arguments, and what must be there afterwards."""

    def __init__(self, case: Case, rank: int, size: int, memory: Memory = HOST) -> None:
        self.case, self.rank, self.size, self.memory = case, rank, size, memory
        self.root = case.root % size
        self.counts = self._counts()
        op = case.op if case.method in REDUCING else ""
        inputs = [data.values(case.dtype, sum(self._sent(r) or ()), r, op) for r in range(size)]
        self.input = inputs[rank]
        oracles = oracle.EXPECTED[case.method]
        self.expected = oracles(inputs, rank, root=self.root, op=op, counts=self.counts)
        self.source = self._part(self._sent(rank), case.collective in MANY_SENT)
        self.target = self._part(self._received(), case.collective in MANY_RECEIVED)
        significant = rank == self.root or case.method not in ROOTED
        one = case.method == "Bcast" or (case.form != "apart" and significant)
        self.sendbuf, self.recvbuf = ONE_BUFFER[case.collective](self) if one else self._two_buffers()

    def arguments(self) -> tuple[Any, ...]:
        """What the method is called with."""
        op = MPI_OPS[self.case.op]
        match self.case.method:
            case "Bcast":
                return self.recvbuf, self.root
            case "Reduce":
                return self.sendbuf, self.recvbuf, op, self.root
            case "Reduce_scatter":
                return self.sendbuf, self.recvbuf, self._numbers(self.counts), op
            case method if method in REDUCING:
                return self.sendbuf, self.recvbuf, op
            case method if method in ROOTED:
                return self.sendbuf, self.recvbuf, self.root
        return self.sendbuf, self.recvbuf

    def compare(self) -> None:
        """Compare all memory, gaps and surroundings too."""
        if self.expected is not None:
            self.expect(self.expected)
        tolerance = 4 * _epsilon(self.case.dtype) if self.case.op == "AVG" else 0.0
        for part in (self.source, self.target):
            if part is not None and "array" in vars(part):
                part.compare(tolerance)

    def expect(self, result: np.ndarray) -> None:
        """Say where the result must be."""
        assert self.target is not None
        self.target.write(result)

    def _counts(self) -> Any:
        p, pair = self.size, self.case.method.startswith("Alltoall")
        count = PATTERNS[self.case.pattern] if self.case.pattern else lambda r, p: self.case.count
        if not pair:
            return [count(r, p) for r in range(p)]
        weight = 1 if self.case.form == "in place" else 2  # in place MPI demands symmetry
        return [[count(weight * s + r, p) for r in range(p)] for s in range(p)]

    def _sent(self, rank: int) -> list[int] | None:
        """Return the counts of what a rank sends, None where it sends nothing."""
        match self.case.collective:
            case "scatter":
                return self.counts if rank == self.root else None
            case "reduce_scatter":
                return self.counts
            case "gather" | "allgather" | "alltoall":
                return self.counts[rank] if self.case.collective == "alltoall" else [self.counts[rank]]
        return [self.case.count]

    def _received(self) -> list[int] | None:
        """Return the counts of what this rank receives, None where it receives nothing."""
        collective, counts = self.case.collective, self.counts
        if collective in ("gather", "reduce") and self.rank != self.root:
            return None
        match collective:
            case "gather" | "allgather":
                return counts
            case "alltoall":
                return [row[self.rank] for row in counts]
            case "scatter" | "reduce_scatter":
                return [counts[self.rank]]
        return [self.case.count]

    def _part(self, counts: list[int] | None, many: bool) -> Part | None:
        if counts is None:
            return None
        layout = self.case.layout if many else "dense"
        return Part(self.memory, self.case.dtype, Blocks.of(counts, layout), many)

    def _two_buffers(self) -> tuple[Any, Any]:
        """Buffers of their own: the input stays, the output is as expected, None is not looked at."""
        if self.source:
            self.source.write(self.input)
        return self.spelled(self.source), self.spelled(self.target)

    def spelled(self, part: Part | None) -> Any:
        """Return a buffer argument: an array, with counts and displacements where it has several blocks."""
        if part is None:
            return None
        if not part.many or self.case.method not in VECTOR:
            return part.array
        counts, displs = self._numbers(part.blocks.counts), self._numbers(part.blocks.displs)
        match self.case.spelling:
            case "counts" if self.case.layout == "dense":
                return [part.array, counts]
            case "tuple":
                return part.array, (counts, displs)
            case "typed":
                return [part.array, counts, displs, MPI.FLOAT]
        return [part.array, counts, displs]

    def _numbers(self, numbers: Any) -> Any:
        make = {"array": lambda n: np.array(n, "i8"), "tuple": tuple}.get(self.case.spelling, list)
        return make(numbers)


def _bcast(call: Call) -> tuple[Any, Any]:
    if call.rank == call.root:
        call.target.write(call.input)
    return None, call.target.array


def _reduction(call: Call) -> tuple[Any, Any]:
    call.target.write(call.input)
    buffer = call.target.array
    return MPI.IN_PLACE if call.case.form == "in place" else buffer[:], buffer


def _gathering(call: Call) -> tuple[Any, Any]:
    call.target.write_block(call.rank, call.input)
    own = call.target.block(call.rank)
    return MPI.IN_PLACE if call.case.form == "in place" else own, call.spelled(call.target)


def _scattering(call: Call) -> tuple[Any, Any]:
    call.source.write(call.input)
    call.expect = lambda result: None  # it is there already
    own = call.source.block(call.rank)
    return call.spelled(call.source), MPI.IN_PLACE if call.case.form == "in place" else own


def _reduce_scattering(call: Call) -> tuple[Any, Any]:
    part = call.source
    part.write(call.input)

    def at_front(result: np.ndarray) -> None:
        part.inner[: len(result)] = result
        part.allow_from(len(result))

    if call.case.form == "in place":
        call.expect = at_front
        return MPI.IN_PLACE, part.array
    call.expect = lambda result: part.write_block(call.rank, result)
    return part.array, part.block(call.rank)


def _replacing(call: Call) -> tuple[Any, Any]:
    call.target.write(call.input)
    return MPI.IN_PLACE, call.spelled(call.target)


#: how the one buffer of a call that is in place is filled, and (sendbuf, recvbuf)
ONE_BUFFER: dict[str, Callable[[Call], tuple[Any, Any]]] = {
    "bcast": _bcast,
    "gather": _gathering,
    "allgather": _gathering,
    "scatter": _scattering,
    "reduce_scatter": _reduce_scattering,
    "alltoall": _replacing,
    **dict.fromkeys(("reduce", "allreduce", "scan", "exscan"), _reduction),
}


def check(comm: Any, case: Case, memory: Memory = HOST, **named: Any) -> None:
    """Make the call; compare everything.  An algorithm that refuses must say so on all ranks."""
    why = refusal(case, comm.size)
    try:
        call = Call(case, comm.rank, comm.size, memory)
        arguments = call.arguments()
        method = getattr(comm, case.method)
        with mpicoll.override(path=memory.path):
            if why:
                text = re.escape(f"{case.collective}: {case.algorithm_name!r} {why}; usable: ")
                with pytest.raises(mpicoll.UnsupportedError, match=text):
                    method(*arguments, algorithm=case.algorithm, **named)
                return
            method(*arguments, algorithm=case.algorithm, **named)
        call.compare()
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"{case} on rank {comm.rank} of {comm.size}") from error


def bound_plans(comm: Any) -> list[tuple[Any, Any]]:
    """Return (plan, program) of what is bound for blocking calls on a communicator."""
    context = comm._get_context()
    calls, slot = context.cache.calls.values(), id(context.slot(0))
    return [(call.plan, bound) for call in calls for where, bound in call.programs.items() if where[0] == slot]


def _epsilon(dtype: str) -> float:
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(dtype) or float(np.finfo(dtype).eps)


def on_all(value):
    """The value of all ranks, which must be the same."""
    found = MPI.COMM_WORLD.allgather(value)
    assert len(set(found)) == 1, found
    return found[0]
