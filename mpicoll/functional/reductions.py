"""Functions that combine arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from mpi4py import MPI

from mpicoll.buffers import A, AnyOp, Buffer, Comm, Number, S
from mpicoll.functional.results import array_of, communicator, divided, result_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from mpicoll.buffers import Options


@overload
def allreduce(
    x: NDArray[S], op: AnyOp = ..., comm: Comm = ..., out: NDArray[S] | None = ..., **options: Unpack[Options]
) -> NDArray[S]: ...
@overload
def allreduce(x: A, op: AnyOp = ..., comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]) -> A: ...
@overload
def allreduce(
    x: Buffer | Number, op: AnyOp = ..., comm: Comm = ..., out: Any = ..., **options: Unpack[Options]
) -> Any: ...
def allreduce(
    x: Any,
    op: AnyOp = MPI.SUM,
    comm: Comm = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """Combine all ranks' arrays on every rank."""
    return _reduction("Allreduce", x, (op,), comm, out, algorithm, stream)


@overload
def reduce(
    x: NDArray[S],
    op: AnyOp = ...,
    root: int = ...,
    comm: Comm = ...,
    out: NDArray[S] | None = ...,
    **options: Unpack[Options],
) -> NDArray[S] | None: ...
@overload
def reduce(
    x: A, op: AnyOp = ..., root: int = ..., comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]
) -> A | None: ...
@overload
def reduce(
    x: Buffer | Number, op: AnyOp = ..., root: int = ..., comm: Comm = ..., out: Any = ..., **options: Unpack[Options]
) -> Any: ...
def reduce(
    x: Any,
    op: AnyOp = MPI.SUM,
    root: int = 0,
    comm: Comm = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """Combine all ranks' arrays at the root; None elsewhere."""
    where = communicator(comm)
    if where.rank == root:
        return _reduction("Reduce", x, (op, root), comm, out, algorithm, stream)
    where.Reduce(array_of(where, "reduce", x), None, op, root, algorithm=algorithm, stream=stream)
    return None


@overload
def scan(
    x: NDArray[S], op: AnyOp = ..., comm: Comm = ..., out: NDArray[S] | None = ..., **options: Unpack[Options]
) -> NDArray[S]: ...
@overload
def scan(x: A, op: AnyOp = ..., comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]) -> A: ...
@overload
def scan(x: Buffer | Number, op: AnyOp = ..., comm: Comm = ..., out: Any = ..., **options: Unpack[Options]) -> Any: ...
def scan(
    x: Any,
    op: AnyOp = MPI.SUM,
    comm: Comm = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """Combine the arrays of ranks 0 to r on each rank r."""
    return _reduction("Scan", x, (op,), comm, out, algorithm, stream)


@overload
def exscan(
    x: NDArray[S], op: AnyOp = ..., comm: Comm = ..., out: NDArray[S] | None = ..., **options: Unpack[Options]
) -> NDArray[S]: ...
@overload
def exscan(x: A, op: AnyOp = ..., comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]) -> A: ...
@overload
def exscan(
    x: Buffer | Number, op: AnyOp = ..., comm: Comm = ..., out: Any = ..., **options: Unpack[Options]
) -> Any: ...
def exscan(
    x: Any,
    op: AnyOp = MPI.SUM,
    comm: Comm = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """Combine the arrays of the ranks before r on each rank r; zeros on rank 0 unless `out` is given."""
    return _reduction("Exscan", x, (op,), comm, out, algorithm, stream)


@overload
def reduce_scatter(
    x: NDArray[S], op: AnyOp = ..., comm: Comm = ..., out: NDArray[S] | None = ..., **options: Unpack[Options]
) -> NDArray[S]: ...
@overload
def reduce_scatter(x: A, op: AnyOp = ..., comm: Comm = ..., out: A | None = ..., **options: Unpack[Options]) -> A: ...
@overload
def reduce_scatter(
    x: Buffer | Number, op: AnyOp = ..., comm: Comm = ..., out: Any = ..., **options: Unpack[Options]
) -> Any: ...
def reduce_scatter(
    x: Any,
    op: AnyOp = MPI.SUM,
    comm: Comm = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    stream: Any = None,
) -> Any:
    """Combine all ranks' arrays, and return this rank's part of the first axis, which the ranks must divide."""
    where = communicator(comm)
    array = array_of(where, "reduce_scatter", x)
    part = divided(where, "reduce_scatter", array)
    result, target = result_of("reduce_scatter", x, array, part, out)
    where.Reduce_scatter_block(array, target, op, algorithm=algorithm, stream=stream)
    return result


def _reduction(
    method: str, x: Any, rest: tuple[Any, ...], comm: Comm, out: Any, algorithm: str | None, stream: Any
) -> Any:
    """Return the result of a reduction whose result has the shape of x.

    Args:
        method: of the communicator.
        x: as in the call.
        rest: positional arguments of the method after the buffers.
        comm: as in the call.
        out: as in the call.
        algorithm: as in the call.
        stream: as in the call.
    """
    where = communicator(comm)
    array = array_of(where, method.lower(), x)
    blank = method == "Exscan" and where.rank == 0  # which receives nothing
    result, target = result_of(method.lower(), x, array, array.shape, out, blank)
    getattr(where, method)(array, target, *rest, algorithm=algorithm, stream=stream)
    return result
