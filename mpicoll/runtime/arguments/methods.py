"""The one place of validation: the meaning of each argument of every collective method on this rank.

Every check here needs no message, so a mistake is found before the first one is sent.
Blocking, nonblocking and persistent calls, and plans, all come through here.

Every function takes `rank`, `size` (number of ranks) and then the arguments of its method, as in `mpicoll.blocking`;
`vector` says that it is the v-variant.  It returns the operands.  On rank 1 of 4, with float64:

    read_call("Allreduce", 1, 4, (x, y), {}) of 1000 elements each -> count 1000, nbytes 8000, device -1
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.arguments.arrays import empty, flatten
from mpicoll.runtime.arguments.bufspec import is_in_place
from mpicoll.runtime.arguments.neighbours import NEIGHBOUR_CALLS
from mpicoll.runtime.arguments.operands import CallReader, Operands
from mpicoll.runtime.arguments.reader import in_bytes
from mpicoll.schedule.collectives import COLLECTIVES


def barrier(rank: int, size: int, *buffers: None) -> Operands:
    """Barrier: no arguments; two that are None, so that it is remembered as a call of two buffers is."""
    return Operands(COLLECTIVES["barrier"], "barrier", np.dtype("u1"))


def bcast(rank: int, size: int, buf: Any, root: int = 0) -> Operands:
    """Bcast: n elements on all ranks, read at the root and written elsewhere."""
    call = CallReader("bcast", "bcast", rank, size, root)
    both = call.one("buf", buf, writes=rank != call.root)
    return call.operands(both, both, count=both.size, nbytes=both.size, aliased=True)


def reduction(
    name: str, rank: int, size: int, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, root: int = 0
) -> Operands:
    """Reduce, Allreduce, Scan, Exscan: n elements each; Reduce's recvbuf only at the root."""
    call = CallReader(name, name, rank, size, root)
    receives = name != "reduce" or rank == call.root
    if not receives:
        call.refuse_in_place("sendbuf", sendbuf)
        source = call.one("sendbuf", sendbuf)
        return call.operands(source, None, count=source.size, nbytes=source.size, op=op)
    if is_in_place(sendbuf) or sendbuf is None or sendbuf is recvbuf:
        both = call.one("recvbuf", recvbuf, writes=True)
        return call.operands(both, both, count=both.size, nbytes=both.size, op=op, aliased=True)
    source = call.one("sendbuf", sendbuf)
    target = call.one("recvbuf", recvbuf, writes=True)
    call.same("recvbuf", target.size, "sendbuf", source.size)
    aliased = call.same_start(source, target)
    if not aliased:
        call.apart(source, target, "MPI.IN_PLACE")
    return call.operands(source, target, count=source.size, nbytes=source.size, op=op, aliased=aliased)


def gather(vector: bool, rank: int, size: int, sendbuf: Any, recvbuf: Any, root: int = 0) -> Operands:
    """Gather, Gatherv: each rank's block, all of them at the root."""
    call = CallReader("gather", "gatherv" if vector else "gather", rank, size, root)
    if rank != call.root:
        call.refuse_in_place("sendbuf", sendbuf)
        source = call.one("sendbuf", sendbuf)
        nbytes = None if vector else source.size * size
        return call.operands(source, None, in_blocks=((source.size,), (0,)), nbytes=nbytes)
    in_place = is_in_place(sendbuf) or sendbuf is None
    target, blocks = call.blocks("recvbuf", recvbuf, vector, writes=True)
    nbytes = None if vector else sum(blocks[0])
    if in_place:
        return call.own_block_of(target, blocks, nbytes=nbytes)
    source = call.one("sendbuf", sendbuf)
    return call.into_blocks(source, target, blocks, nbytes=nbytes)


def allgather(vector: bool, rank: int, size: int, sendbuf: Any, recvbuf: Any) -> Operands:
    """Allgather, Allgatherv: each rank's block, all of them everywhere."""
    call = CallReader("allgather", "allgatherv" if vector else "allgather", rank, size)
    in_place = is_in_place(sendbuf) or sendbuf is None
    target, blocks = call.blocks("recvbuf", recvbuf, vector, writes=True)
    if in_place:
        return call.own_block_of(target, blocks, nbytes=sum(blocks[0]))
    source = call.one("sendbuf", sendbuf)
    return call.into_blocks(source, target, blocks, nbytes=sum(blocks[0]))


def scatter(vector: bool, rank: int, size: int, sendbuf: Any, recvbuf: Any, root: int = 0) -> Operands:
    """Scatter, Scatterv: the root's blocks, each to its rank."""
    call = CallReader("scatter", "scatterv" if vector else "scatter", rank, size, root)
    if rank != call.root:
        call.refuse_in_place("recvbuf", recvbuf)
        target = call.one("recvbuf", recvbuf, writes=True)
        nbytes = None if vector else target.size * size
        return call.operands(None, target, out_blocks=((target.size,), (0,)), nbytes=nbytes)
    source, blocks = call.blocks("sendbuf", sendbuf, vector)
    nbytes = None if vector else sum(blocks[0])
    own = (blocks[0][rank],), (blocks[1][rank],)
    if is_in_place(recvbuf) or recvbuf is None:
        return call.operands(source, source, in_blocks=blocks, out_blocks=own, nbytes=nbytes, aliased=True)
    target = call.one("recvbuf", recvbuf, writes=True)
    return call.from_blocks(source, target, blocks, nbytes=nbytes)


def reduce_scatter(
    rank: int, size: int, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Any = MPI.SUM
) -> Operands:
    """Reduce_scatter(_block): sum(counts) elements in, counts[rank] out; None: equal blocks.

    In place (sendbuf=MPI.IN_PLACE) recvbuf holds the input, and the result is put at its front.
    """
    method = "reduce_scatter_block" if recvcounts is None else "reduce_scatter"
    call = CallReader("reduce_scatter", method, rank, size)
    in_place = is_in_place(sendbuf) or sendbuf is None
    name, buffer = ("recvbuf", recvbuf) if in_place else ("sendbuf", sendbuf)
    source, blocks = call.counted(name, buffer, recvcounts, writes=in_place)
    nbytes = sum(blocks[0])
    if in_place:  # the result goes to the front at the end; what comes after it stays as it was
        front, own = call.copy_of(source, blocks[0][rank]), ((blocks[0][rank],), (0,))
        if front is not None:
            return call.operands(
                source, front, in_blocks=blocks, out_blocks=own, nbytes=nbytes, op=op, held="output"
            )
        result = empty((blocks[0][rank],), source.array)
        target = flatten(call.method, "recvbuf", result, writes=True)
        done = call.operands(source, target, in_blocks=blocks, out_blocks=own, nbytes=nbytes, op=op)
        done.after.insert(0, lambda: source.array.__setitem__(slice(result.size), result))
        return done
    target = call.one("recvbuf", recvbuf, writes=True)
    return call.from_blocks(source, target, blocks, nbytes=nbytes, op=op)


def alltoall(vector: bool, rank: int, size: int, sendbuf: Any, recvbuf: Any) -> Operands:
    """Alltoall, Alltoallv: block q of the input goes to rank q, whose block becomes this rank's."""
    call = CallReader("alltoall", "alltoallv" if vector else "alltoall", rank, size)
    in_place = is_in_place(sendbuf) or sendbuf is None
    target, out_blocks = call.blocks("recvbuf", recvbuf, vector, writes=True)
    nbytes = None if vector else sum(out_blocks[0])
    if in_place:
        copy = call.copy_of(target, target.size)
        if copy is not None:
            return call.operands(
                copy, target, in_blocks=out_blocks, out_blocks=out_blocks, nbytes=nbytes, held="input"
            )
        held = empty(target.array.shape, target.array)  # recvbuf is replaced block by block
        source = flatten(call.method, "recvbuf", held, writes=False)
        done = call.operands(source, target, in_blocks=out_blocks, out_blocks=out_blocks, nbytes=nbytes)
        done.before.append(lambda: held.__setitem__(..., target.array))
        return done
    source, in_blocks = call.blocks("sendbuf", sendbuf, vector)
    sizes = [flat.array.dtype.itemsize for flat in (source, target)]
    if sizes[0] != sizes[1] and in_blocks[0][rank] * sizes[0] == out_blocks[0][rank] * sizes[1]:  # both in bytes
        (source, in_blocks), (target, out_blocks) = in_bytes(source, in_blocks), in_bytes(target, out_blocks)
        nbytes = nbytes and nbytes * sizes[1]
    if not vector:
        call.same("recvbuf", sum(out_blocks[0]), "sendbuf", sum(in_blocks[0]))
    call.same_own(in_blocks, out_blocks)
    call.apart(source, target, "MPI.IN_PLACE")
    return call.operands(source, target, in_blocks=in_blocks, out_blocks=out_blocks, nbytes=nbytes)


def alltoallw(rank: int, size: int, sendbuf: Any, recvbuf: Any) -> Operands:
    """Alltoallw: as Alltoallv, each block of a datatype of its own; what travels are the bytes of their elements."""
    call = CallReader("alltoall", "alltoallw", rank, size)
    target, out_blocks = call.of_types("recvbuf", recvbuf, writes=True)
    in_place = is_in_place(sendbuf) or sendbuf is None
    name, buffer = ("recvbuf", recvbuf) if in_place else ("sendbuf", sendbuf)
    source, in_blocks = call.of_types(name, buffer)
    call.same_own(in_blocks, out_blocks, "bytes")
    return call.operands(source, target, in_blocks=in_blocks, out_blocks=out_blocks, nbytes=None)


def reduce_scatter_block(rank: int, size: int, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Operands:
    """Reduce_scatter_block: Reduce_scatter with equal blocks."""
    return reduce_scatter(rank, size, sendbuf, recvbuf, None, op)


def reduce(rank: int, size: int, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM, root: int = 0) -> Operands:
    """Reduce: n elements each, the result at the root."""
    return reduction("reduce", rank, size, sendbuf, recvbuf, op, root)


def _everywhere(name: str, rank: int, size: int, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Operands:
    return reduction(name, rank, size, sendbuf, recvbuf, op)


#: method -> (rank, size, *arguments of the method) -> operands
CALLS: dict[str, Callable[..., Operands]] = {
    "Barrier": barrier,
    "Bcast": bcast,
    "Gather": partial(gather, False),
    "Gatherv": partial(gather, True),
    "Scatter": partial(scatter, False),
    "Scatterv": partial(scatter, True),
    "Allgather": partial(allgather, False),
    "Allgatherv": partial(allgather, True),
    "Alltoall": partial(alltoall, False),
    "Alltoallv": partial(alltoall, True),
    "Alltoallw": alltoallw,
    "Reduce": reduce,
    "Allreduce": partial(_everywhere, "allreduce"),
    "Reduce_scatter_block": reduce_scatter_block,
    "Reduce_scatter": reduce_scatter,
    "Scan": partial(_everywhere, "scan"),
    "Exscan": partial(_everywhere, "exscan"),
}


def read_call(method: str, rank: int, size: int, arguments: tuple[Any, ...], named: dict[str, Any]) -> Operands:
    """Return a call's operands.

    Args:
        method: the call, such as "Allreduce".
        rank: this rank.
        size: number of ranks.
        arguments: of the method, by position.
        named: of the method, by name.

    Raises:
        ValueError: the method is no collective, or sizes do not fit.
    """
    read = CALLS.get(method) or NEIGHBOUR_CALLS.get(method)
    if read is None:
        raise ValueError(f"no collective method {method!r}; known: {', '.join(CALLS)}")
    return read(rank, size, *arguments, **named)
