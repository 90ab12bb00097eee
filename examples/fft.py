"""Distributed FFT: rows are transformed where they are, and an all-to-all turns columns into rows.

The problem.  A transform of a grid is one of all its rows, then one of all its columns.  The grid is cut into
slabs of rows, one on each of p ranks, so that no rank has a whole column.  A transposition brings them together:

    rank 0   A0 A1 A2 A3            A0' B0' C0' D0'        each rank cuts its slab into p tiles, sends tile q
    rank 1   B0 B1 B2 B3    --->    A1' B1' C1' D1'        to rank q, and puts the tiles that it receives,
    rank 2   C0 C1 C2 C3            A2' B2' C2' D2'        transposed (A0'), side by side: then its rows are
    rank 3   D0 D1 D2 D3            A3' B3' C3' D3'        columns of the grid

The tiles of the lists of rank r are the r-th tiles of all ranks: an all-to-all is a transposition of a matrix
whose rows are spread over the ranks.

Collective.  Alltoallv, since p need not divide the grid: rank r has rows[r] rows, and sends rows[r] * columns[q]
elements to rank q.

Cost.  A rank sends (p-1)/p of its n/p bytes in each transposition, all ranks together nearly the whole
grid: the bytes that can cross the middle of the machine limit large transforms.  To gather the grid on each rank costs
(p-1)/p n, p times as much.

What to look at.  The result stays transposed.  Programs that come back, such as solvers, do so by the same way in
reverse, and so need two transpositions instead of four.
"""

from __future__ import annotations

import mpicoll
import numpy as np
from mpi4py import MPI
from mpicoll.schedule import offsets, split

from _common import Array, Module, arguments, array_module, readable, say, timed

Counts = tuple[int, ...]


def transposed(comm: mpicoll.Communicator, xp: Module, slab: Array, rows: Counts, columns: Counts) -> Array:
    """Return this rank's rows of the transposed grid.

    Args:
        comm: the ranks.
        xp: NumPy or CuPy.
        slab: this rank's rows of the grid.
        rows: number of rows of each rank in the grid.
        columns: number of rows of each rank in the transposed grid.
    """
    mine, own = rows[comm.rank], columns[comm.rank]
    tiles = xp.split(slab.T, offsets(columns)[1:])  # tile q: columns[q] x mine
    sent = xp.concatenate([tile.ravel() for tile in tiles])
    received = xp.empty(sum(rows) * own, slab.dtype)
    comm.Alltoallv([sent, [mine * n for n in columns]], [received, [n * own for n in rows]])
    parts = xp.split(received, [start * own for start in offsets(rows)[1:]])
    return xp.concatenate([part.reshape(own, n) for part, n in zip(parts, rows, strict=True)], axis=1)


def forward(comm: mpicoll.Communicator, xp: Module, slab: Array, rows: Counts, columns: Counts) -> Array:
    """Return this rank's rows of the transposed transform; arguments as in `transposed`."""
    return xp.fft.fft(transposed(comm, xp, xp.fft.fft(slab, axis=1), rows, columns), axis=1)


def backward(comm: mpicoll.Communicator, xp: Module, slab: Array, rows: Counts, columns: Counts) -> Array:
    """Return this rank's rows of the grid, given those of its transposed transform; arguments as in `transposed`."""
    return xp.fft.ifft(transposed(comm, xp, xp.fft.ifft(slab, axis=1), columns, rows), axis=1)


def main() -> None:
    """Transform a grid and back, and compare with a transform on one process."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD)
    chosen = arguments(__doc__, height=500, width=360)
    xp, rank, size = array_module(chosen.buffers, comm), comm.rank, comm.size
    rows, columns = (split(extent, size) for extent in (chosen.height, chosen.width))
    grid = xp.asarray(np.random.default_rng(1).normal(size=(chosen.height, chosen.width)).astype(complex))
    first, left = offsets(rows)[rank], offsets(columns)[rank]
    slab = grid[first : first + rows[rank]]

    spectrum, milliseconds = timed(comm, xp, forward, comm, xp, slab, rows, columns)
    wanted = xp.fft.fft2(grid)[:, left : left + columns[rank]].T
    assert xp.allclose(spectrum, wanted), "the transform is not that of one process"
    again, _ = timed(comm, xp, backward, comm, xp, spectrum, rows, columns)
    assert xp.allclose(again, slab), "there and back is not the grid"

    sent = slab.nbytes - rows[rank] * columns[rank] * slab.itemsize
    say(
        comm,
        f"FFT, p = {size}: {chosen.height} x {chosen.width} complex numbers, {rows[rank]} rows on rank 0",
        f"  a rank holds {readable(slab.nbytes)} of {readable(grid.nbytes)}",
        f"  a rank sends {readable(sent)} in a transposition; an allgather: {readable(slab.nbytes * (size - 1))}",
        f"  forward {milliseconds:.1f} ms; equal to fft2, and back to the grid",
    )


if __name__ == "__main__":
    main()
