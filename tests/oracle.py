"""What a collective must give, by plain NumPy from all ranks' inputs; nothing of mpicoll is used.

Inputs and results are flat, blocks one after the other.  `counts[s][r]` is the number of elements
that go from rank s to rank r where that depends on both (Alltoall); elsewhere `counts[r]` belongs
to rank r.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Vectors = Sequence[np.ndarray]

_FOLDS: dict[str, np.ufunc] = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "LAND": np.logical_and,
    "LOR": np.logical_or,
    "LXOR": np.logical_xor,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def supports(op: str, dtype: Any) -> bool:
    """Tell whether an operator is defined for a dtype."""
    dtype = np.dtype(dtype)
    kind = "f" if dtype.name == "bfloat16" else dtype.kind
    if op in ("BAND", "BOR", "BXOR"):
        return kind in "biu"
    if op in ("MAX", "MIN"):
        return kind in "biuf"
    return kind in ("fc" if op == "AVG" else "biufc")


def fold(inputs: Vectors, op: str) -> np.ndarray:
    """Combine vectors in rank order; one alone is what it is."""
    first, *others = inputs
    if op == "AVG":
        wide = "complex128" if first.dtype.kind == "c" else "float64"
        return np.mean([x.astype(wide) for x in inputs], axis=0).astype(first.dtype)
    half = first.dtype.itemsize == 2 and first.dtype.kind in "fV"
    total = first.astype("f4") if half else first
    for other in others:
        total = _FOLDS[op](total, other.astype(total.dtype)).astype(total.dtype)
    return total.astype(first.dtype)


def cut(vector: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """Cut a vector into blocks."""
    return np.split(vector, np.cumsum(counts)[:-1])


def bcast(inputs: Vectors, rank: int, root: int, **_: Any) -> np.ndarray:
    return inputs[root]


def gather(inputs: Vectors, rank: int, root: int, **_: Any) -> np.ndarray | None:
    return np.concatenate(inputs) if rank == root else None


def scatter(inputs: Vectors, rank: int, root: int, counts: Any, **_: Any) -> np.ndarray:
    return cut(inputs[root], counts)[rank]


def allgather(inputs: Vectors, rank: int, **_: Any) -> np.ndarray:
    return np.concatenate(inputs)


def alltoall(inputs: Vectors, rank: int, counts: Any, **_: Any) -> np.ndarray:
    return np.concatenate([cut(x, c)[rank] for x, c in zip(inputs, counts, strict=True)])


def reduce(inputs: Vectors, rank: int, root: int, op: str, **_: Any) -> np.ndarray | None:
    return fold(inputs, op) if rank == root else None


def allreduce(inputs: Vectors, rank: int, op: str, **_: Any) -> np.ndarray:
    return fold(inputs, op)


def reduce_scatter(inputs: Vectors, rank: int, op: str, counts: Any, **_: Any) -> np.ndarray:
    return cut(fold(inputs, op), counts)[rank]


def scan(inputs: Vectors, rank: int, op: str, **_: Any) -> np.ndarray:
    return fold(inputs[: rank + 1], op)


def exscan(inputs: Vectors, rank: int, op: str, **_: Any) -> np.ndarray | None:
    return fold(inputs[:rank], op) if rank else None


#: method -> (inputs, rank, root=, op=, counts=) -> what the rank must have, None for nothing
EXPECTED: dict[str, Callable[..., np.ndarray | None]] = {
    "Bcast": bcast,
    "Gather": gather,
    "Gatherv": gather,
    "Scatter": scatter,
    "Scatterv": scatter,
    "Allgather": allgather,
    "Allgatherv": allgather,
    "Alltoall": alltoall,
    "Alltoallv": alltoall,
    "Reduce": reduce,
    "Allreduce": allreduce,
    "Reduce_scatter_block": reduce_scatter,
    "Reduce_scatter": reduce_scatter,
    "Scan": scan,
    "Exscan": exscan,
}
