"""MPI's own collective in the place of messages: where it does the same, and the call.

What is only moved goes as bytes, so that ranks may name the same elements by other types, as they may elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from mpicoll.dispatch.plan import ON_A_DEVICE
from mpicoll.runtime.arguments.arrays import Flat
from mpicoll.runtime.arguments.operands import Operands
from mpicoll.runtime.arguments.operators import MPI_OPS, is_half
from mpicoll.runtime.arguments.reader import Blocks
from mpicoll.runtime.program.local_work import Action
from mpicoll.settings import settings

#: dtype kinds on which MPI's operator gives what ours does: its order of NaN is open, and its SUM of bool undefined
ALIKE = {
    **dict.fromkeys(("SUM", "PROD"), "iufc"),
    **dict.fromkeys(("MAX", "MIN", "BAND", "BOR", "BXOR"), "iu"),
    **dict.fromkeys(("LAND", "LOR", "LXOR"), "iub"),
}
#: bytes of the full vector beyond which some MPI libraries cannot count
MOST = (1 << 31) - 1


def not_native(operands: Operands) -> str:
    """Return why MPI's own collective would not do the same in a call, "" where it would; equal on all ranks."""
    if operands.device >= 0:
        return ON_A_DEVICE
    if operands.neighbours is not None or operands.method not in CALLS:
        return f"{operands.method} has no such form"
    if settings.timeout or settings.errors:
        return "MPI knows no time limit, and ranks do not share their errors in it"
    if (operands.nbytes or 0) > MOST:
        return "some MPI libraries cannot count so many bytes"
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return "calls in flight go on meanwhile, which needs MPI.THREAD_MULTIPLE"
    return _otherwise_combined(operands) if operands.row.reducing else ""


def _otherwise_combined(operands: Operands) -> str:
    """Return why MPI's own reduction would not do the same, "" where it would."""
    op, dtype = operands.op, operands.dtype
    assert op is not None
    if settings.reproducible:
        return f"reproducible={settings.reproducible!r} fixes the order of operands"
    if op.average or op.ufunc is None or op.name not in ALIKE:
        return f"op {op.name} is mpicoll's own"
    if dtype.kind not in ALIKE[op.name] or is_half(dtype):
        return f"op {op.name} of {dtype} is another one in MPI, or undefined"
    return ""


class NativeCall:
    """An action: the call of MPI's own collective.

    By itself it blocks.  Where calls are in flight, somebody else may wait for those before he comes to this one: so
    its first poll starts a thread for it, and they are advanced meanwhile.
    """

    def __init__(self, operands: Operands, comm: MPI.Intracomm) -> None:
        """Bind the call to its memory.

        Args:
            operands: the call.
            comm: on which it is made.
        """
        self.call = CALLS[operands.method](operands, comm)
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def __call__(self) -> None:
        """Make the call, or end the one that a thread makes."""
        thread, self.thread = self.thread, None
        if thread is None:
            self.call()
            return
        thread.join()
        error, self.error = self.error, None
        if error is not None:
            raise error

    def poll(self) -> bool:
        """Tell whether the call would return at once; the first time, start it."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name="mpicoll-native", daemon=True)
            self.thread.start()
        return not self.thread.is_alive()

    def _run(self) -> None:
        try:
            self.call()
        except BaseException as error:
            self.error = error


def _type(operands: Operands) -> tuple[MPI.Datatype, int]:
    """Return (MPI's type, its number in an element)."""
    if operands.row.reducing:
        return MPI.Datatype.fromcode(operands.dtype.char), 1
    return MPI.BYTE, operands.dtype.itemsize


def _whole(operands: Operands, flat: Flat | None, count: int) -> Any:
    """Return mpi4py's specification of an array's first elements, None for no array."""
    kind, number = _type(operands)
    return flat and [_memory(flat), count * number, kind]


def _blocks(operands: Operands, flat: Flat | None, blocks: Blocks) -> Any:
    """Return mpi4py's specification of an array's blocks, None for no array; equal ones follow each other."""
    kind, number = _type(operands)
    if flat is None:
        return None
    counts, displacements = ([number * one for one in part] for part in blocks)  # only of what is moved: in bytes
    if operands.method in IN_EQUAL_BLOCKS:
        return [_memory(flat, displacements[0]), counts[0], kind]
    return [_memory(flat), (counts, displacements), kind]


def _memory(flat: Flat, start: int = 0) -> MPI.buffer:
    """Return a flat array's memory from a byte on."""
    nbytes = flat.size * flat.array.dtype.itemsize
    return MPI.buffer.fromaddress(flat.pointer + start if nbytes else 0, max(nbytes - start, 0))


def _sent(operands: Operands, spec: Any) -> Any:
    """Return what a call sends: MPI.IN_PLACE where that lies in the output."""
    return MPI.IN_PLACE if operands.aliased else spec


def _barrier(operands: Operands, comm: MPI.Intracomm) -> Action:
    return comm.Barrier


def _bcast(operands: Operands, comm: MPI.Intracomm) -> Action:
    return partial(comm.Bcast, _whole(operands, operands.output, operands.count), operands.root)


def _reduction(operands: Operands, comm: MPI.Intracomm) -> Action:
    """Return Reduce, Allreduce, Scan or Exscan."""
    assert operands.op is not None
    sent = _sent(operands, _whole(operands, operands.input, operands.count))
    received, op = _whole(operands, operands.output, operands.count), MPI_OPS[operands.op.name]
    root = (operands.root,) if operands.row.rooted else ()
    return partial(getattr(comm, operands.method.capitalize()), sent, received, op, *root)


def _gather(operands: Operands, comm: MPI.Intracomm) -> Action:
    """Return Gather(v) or Allgather(v)."""
    method, root = getattr(comm, operands.method.capitalize()), (operands.root,) if operands.row.rooted else ()
    sent = _sent(operands, _whole(operands, operands.input, sum(operands.in_blocks[0])))
    return partial(method, sent, _blocks(operands, operands.output, operands.out_blocks), *root)


def _scatter(operands: Operands, comm: MPI.Intracomm) -> Action:
    """Return Scatter(v)."""
    sent = _blocks(operands, operands.input, operands.in_blocks)
    received = _sent(operands, _whole(operands, operands.output, sum(operands.out_blocks[0])))
    return partial(getattr(comm, operands.method.capitalize()), sent, received, operands.root)


def _alltoall(operands: Operands, comm: MPI.Intracomm) -> Action:
    """Return Alltoall(v)."""
    sent = _blocks(operands, operands.input, operands.in_blocks)
    received = _blocks(operands, operands.output, operands.out_blocks)
    return partial(getattr(comm, operands.method.capitalize()), sent, received)


def _reduce_scatter(operands: Operands, comm: MPI.Intracomm) -> Action:
    """Return Reduce_scatter or Reduce_scatter_block; MPI allows no output within the input."""
    assert operands.op is not None
    counts, own = list(operands.in_blocks[0]), operands.out_blocks[0][0]
    equal, op = operands.method in IN_EQUAL_BLOCKS, MPI_OPS[operands.op.name]
    sent = _whole(operands, operands.input, own if equal else sum(counts))  # of equal blocks MPI counts one
    memory, number, kind = _whole(operands, operands.output, own)
    call, rest = getattr(comm, operands.method.capitalize()), (op,) if equal else (counts, op)
    if not operands.aliased:
        return partial(call, sent, [memory, number, kind], *rest)
    result = np.empty(own, operands.dtype)
    return partial(_and_copied, partial(call, sent, [result, number, kind], *rest), result.view("u1").data, memory)


def _and_copied(call: Action, source: memoryview, target: Any) -> None:
    """Make a call, and copy its result to the beginning of other memory."""
    call()
    target[: len(source)] = source


#: methods whose blocks are equal, and follow each other
IN_EQUAL_BLOCKS = ("gather", "scatter", "allgather", "alltoall", "reduce_scatter_block")
#: from operands and a communicator to MPI's own call, by method
CALLS: dict[str, Callable[[Operands, MPI.Intracomm], Action]] = {
    "barrier": _barrier,
    "bcast": _bcast,
    **dict.fromkeys(("reduce", "allreduce", "scan", "exscan"), _reduction),
    **dict.fromkeys(("gather", "gatherv", "allgather", "allgatherv"), _gather),
    **dict.fromkeys(("scatter", "scatterv"), _scatter),
    **dict.fromkeys(("alltoall", "alltoallv"), _alltoall),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_block"), _reduce_scatter),
}
