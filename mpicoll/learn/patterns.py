"""The patterns of the demo: a row each, with example data, the call, and what it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpicoll.communicator import Communicator
from mpicoll.learn import calls, numbers
from mpicoll.learn.numbers import Has, Must
from mpicoll.schedule.collectives import Collective
from mpicoll.schedule.collectives import collective as row_of

#: (comm, x, y, algorithm) -> what the rank did, in words
Act = Callable[[Communicator, Any, Any, str | None], list[str]]


@dataclass(frozen=True)
class Pattern:
    """A way in which ranks exchange data.

    Attributes:
        name: as the command line has it.
        title: as books have it.
        idea: what it does.
        code: the call in Python.
        use: what it is for, in training and in simulation codes.
        has: input of a rank.
        must: outputs that NumPy finds for all ranks.
        method: the collective that is called, "" for messages.
        n: numbers in the vector, or in each block.
        act: makes the call, where it is not just the method.
        team: returns the communicator that makes the call, None on ranks that do not; collective.
    """

    name: str
    title: str
    idea: str
    code: str
    use: str
    has: Has
    must: Must
    method: str = ""
    n: int = 1
    act: Act | None = None
    team: Callable[[Communicator], Communicator | None] = calls.everyone

    @property
    def row(self) -> Collective | None:
        """The collective's row, None for messages."""
        return row_of(self.method) if self.method else None

    def arguments(self, x: Any, y: Any) -> tuple[Any, ...]:
        """Return the arrays that the method takes."""
        return {"Barrier": (), "Bcast": (y,)}.get(self.method, (x, y))

    def make(self, comm: Communicator, x: Any, y: Any, algorithm: str | None) -> list[str]:
        """Make the call, and return what the rank did besides a schedule's steps.

        Args:
            comm: who makes it.
            x: input; None where the rank has none.
            y: output; None where the rank has none.
            algorithm: None to leave the choice to mpicoll.
        """
        if self.act is not None:
            return self.act(comm, x, y, algorithm)
        return calls.collective(self.method, self.arguments(x, y), comm, algorithm)


_ROWS = (
    Pattern(
        "send",
        "Point-to-point, blocking",
        "Each rank sends its numbers to the next one, which waits for them.",
        "if rank + 1 < size: comm.Send(x, rank + 1)\nif rank > 0: comm.Recv(y, rank - 1)",
        "Training passes activations to the next stage of a pipeline; simulation codes hand on a sweep from one "
        "part of the grid to the next.",
        has=numbers.own,
        must=numbers.from_the_left,
        n=4,
        act=lambda comm, x, y, algorithm: calls.chain(comm, x, y),
    ),
    Pattern(
        "isend",
        "Point-to-point, nonblocking",
        "Each rank gets the numbers at the edges of its two neighbours in a ring; no message waits for another.",
        "requests = [comm.Irecv(y[:1], left), comm.Irecv(y[1:], right),\n"
        "            comm.Isend(x[-1:], right), comm.Isend(x[:1], left)]\n"
        "for request in requests: request.Wait()",
        "Training sends one batch's activations while it computes the next; simulation codes exchange halos, the "
        "cells at the edges, while they compute the inner ones.",
        has=numbers.own,
        must=numbers.halos,
        n=4,
        act=lambda comm, x, y, algorithm: calls.halo(comm, x, y),
    ),
    Pattern(
        "barrier",
        "Barrier",
        "No rank goes on before all have come.  Before: ms that the rank works; after: us that it went on too early.",
        "comm.Barrier()",
        "Training waits so before ranks read a checkpoint that one of them wrote; simulation codes do before they "
        "take a time.",
        has=numbers.delay,
        must=numbers.nobody_early,
        method="Barrier",
        act=calls.meeting,
    ),
    Pattern(
        "bcast",
        "Broadcast",
        "Rank 0's numbers replace those of all others.",
        "comm.Bcast(y, root=0)",
        "Training gives all ranks the same first weights; simulation codes give all the parameters that one has read.",
        has=numbers.own,
        must=numbers.of_rank_0,
        method="Bcast",
        n=4,
    ),
    Pattern(
        "reduce",
        "Reduce",
        "Rank 0 gets the sum of all ranks' numbers.",
        "comm.Reduce(x, y, root=0)",
        "Training adds up the loss for the rank that logs it; simulation codes add up an energy for the rank that "
        "writes it.",
        has=numbers.own,
        must=numbers.at_rank_0(numbers.total),
        method="Reduce",
        n=4,
    ),
    Pattern(
        "allreduce",
        "All-reduce",
        "All ranks get the sum of all ranks' numbers.",
        "comm.Allreduce(x, y)",
        "Training averages the gradients of data-parallel ranks; simulation codes add up the dot products of their "
        "solvers, and agree on a time step.",
        has=numbers.summands,
        must=numbers.total,
        method="Allreduce",
        n=2,
    ),
    Pattern(
        "gather",
        "Gather",
        "Rank 0 gets all ranks' blocks, in rank order.",
        "comm.Gather(x, y, root=0)",
        "Training collects predictions on the rank that evaluates them; simulation codes collect a field on the "
        "rank that writes it.",
        has=numbers.block,
        must=numbers.at_rank_0(numbers.together),
        method="Gather",
    ),
    Pattern(
        "allgather",
        "All-gather",
        "All ranks get all ranks' blocks, in rank order.",
        "comm.Allgather(x, y)",
        "Training collects sharded parameters before a layer is computed (FSDP, ZeRO-3); simulation codes collect "
        "a distributed vector, or all particles' positions.",
        has=numbers.block,
        must=numbers.together,
        method="Allgather",
    ),
    Pattern(
        "scatter",
        "Scatter",
        "Each rank gets its block of rank 0's numbers.",
        "comm.Scatter(x, y, root=0)",
        "Training hands out the parts of a batch that one rank has loaded; simulation codes hand out the parts of "
        "a grid.",
        has=numbers.blocks_of_root,
        must=numbers.parts_of_rank_0,
        method="Scatter",
    ),
    Pattern(
        "reduce_scatter",
        "Reduce-scatter",
        "The sum of all ranks' numbers is cut into blocks, and each rank gets its own.",
        "comm.Reduce_scatter_block(x, y)",
        "Training adds up gradients of which each rank keeps its shard (FSDP, ZeRO-2); simulation codes multiply "
        "by matrices that are distributed by columns.",
        has=numbers.counted,
        must=numbers.parts_of_total,
        method="Reduce_scatter_block",
    ),
    Pattern(
        "alltoall",
        "All-to-all",
        "Each rank sends another block to each rank; the table of blocks is transposed.",
        "comm.Alltoall(x, y)",
        "Training routes tokens to experts, and changes between sequence and head parallel attention; simulation "
        "codes transpose the grid between the steps of an FFT.",
        has=numbers.pairs,
        must=numbers.transposed,
        method="Alltoall",
    ),
    Pattern(
        "scan",
        "Scan",
        "Each rank gets the sum of all ranks up to itself.",
        "comm.Scan(x, y)",
        "Training finds where packed sequences of different lengths end; simulation codes share out work along a "
        "curve through the grid.",
        has=numbers.summands,
        must=numbers.running,
        method="Scan",
        n=2,
    ),
    Pattern(
        "exscan",
        "Exclusive scan",
        "Each rank gets the sum of the ranks before it; rank 0's numbers stay as they were.",
        "comm.Exscan(x, y)",
        "Training finds where a rank's samples begin among all; simulation codes find where a rank's part begins "
        "in a shared file.",
        has=numbers.summands,
        must=numbers.running_before,
        method="Exscan",
        n=2,
    ),
    Pattern(
        "split",
        "A group by Split",
        "Only the even ranks make a communicator, and an all-reduce on it; the others go on.",
        "even = comm.Split(0 if rank % 2 == 0 else MPI.UNDEFINED)\nif rank % 2 == 0: even.Allreduce(x, y)",
        "Training has groups for tensor, pipeline and data parallelism in one job; simulation codes have one for "
        "each row and column of their process grid.",
        has=numbers.own,
        must=numbers.total,
        method="Allreduce",
        n=4,
        team=calls.even_ranks,
    ),
)

PATTERNS: dict[str, Pattern] = {row.name: row for row in _ROWS}


def named(text: str) -> Pattern:
    """Return a pattern by its name or title, in any spelling: all-reduce, AllReduce, broadcast."""
    for pattern in PATTERNS.values():
        if _bare(text) in map(_bare, (pattern.name, pattern.title)):
            return pattern
    raise ValueError(f"no pattern {text!r}; known: {', '.join(PATTERNS)}")


def _bare(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))
