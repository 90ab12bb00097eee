"""Halo exchange: each rank has a tile of a grid, and receives the cells around it from its neighbours.

The problem.  In a step of a heat equation (or of Jacobi, or of a weather model) each cell becomes a mean of itself and
its four neighbours.  The grid is cut into tiles, one on each of p ranks.  The cells at a tile's edge have neighbours on
other ranks.  So a tile has a rim, one cell wide, for copies of those: the halo.

           tile of rank 0          tile of rank 1
          . . . . . . . .         . . . . . . . .
          . a a a a a A .   --->  A b b b b b b .      A: the last column of rank 0 becomes the left rim of rank 1
          . a a a a a A .   --->  A b b b b b b .      and the first column of rank 1 the right rim of rank 0;
          . . . . . . . .         . . . . . . . .      rows above and below in the same way

Messages, no collective: only neighbours speak with each other.  All are started, then all are waited for, so that no
order can make a rank wait for one that waits for it.  An allreduce of the largest change, now and then, tells all ranks
when to stop.

Cost.  Of n x n cells a rank sends up to 4 n/sqrt(p) in a step, and computes n*n/p: edge against area.  Tiles should be
large, and square: slabs of rows would send 2 n.  The edges of columns are not contiguous, so they are packed.

What to look at.  Bytes sent in a step against the bytes of the tile; the same bits as on one process.
"""

from __future__ import annotations

from dataclasses import dataclass

import mpicoll
import numpy as np
from mpi4py import MPI
from mpicoll.schedule import offsets, split

from _common import Array, Module, arguments, array_module, readable, say, timed

#: part of the difference to the neighbours' mean that a cell takes over in a step
RATE = 0.8
#: steps between two looks at whether all is still
LOOK = 10
Place = tuple[int | slice, int | slice]
#: for a neighbour (rows down, columns right) the edge that it is sent, and the rim that its edge fills
SIDES: dict[tuple[int, int], tuple[Place, Place]] = {
    (-1, 0): (np.s_[1, 1:-1], np.s_[0, 1:-1]),
    (1, 0): (np.s_[-2, 1:-1], np.s_[-1, 1:-1]),
    (0, -1): (np.s_[1:-1, 1], np.s_[1:-1, 0]),
    (0, 1): (np.s_[1:-1, -2], np.s_[1:-1, -1]),
}


@dataclass(frozen=True)
class Mesh:
    """The ranks as a mesh of rows and columns: rank r is at (r // columns, r % columns)."""

    comm: mpicoll.Communicator
    rows: int
    columns: int

    def neighbours(self) -> list[tuple[int, Place, Place]]:
        """Return (rank, edge of the tile, rim of the tile) for each neighbour; at the border there is none."""
        row, column = divmod(self.comm.rank, self.columns)
        places = [(row + down, column + right, edge, rim) for (down, right), (edge, rim) in SIDES.items()]
        inside = [place for place in places if 0 <= place[0] < self.rows and 0 <= place[1] < self.columns]
        return [(row * self.columns + column, edge, rim) for row, column, edge, rim in inside]

    def tile(self, height: int, width: int) -> tuple[slice, slice]:
        """Return the rows and columns of this rank's tile in the grid, with its rim."""
        row, column = divmod(self.comm.rank, self.columns)
        return part(height, self.rows, row), part(width, self.columns, column)


def part(extent: int, parts: int, which: int) -> slice:
    """Return one of the parts of an axis, with a cell on each side; the axis' first and last cell are the border."""
    counts = split(extent - 2, parts)
    start = offsets(counts)[which]
    return slice(start, start + counts[which] + 2)


def exchange(mesh: Mesh, tile: Array) -> int:
    """Fill the rim of the tile with the edges of its neighbours; returns the bytes sent."""
    neighbours = mesh.neighbours()
    with mpicoll.group(mesh.comm):  # no message waits for another, and arrays may be strided
        for peer, edge, rim in neighbours:
            mesh.comm.Send(tile[edge], peer)
            mesh.comm.Recv(tile[rim], peer)
    return sum(tile[edge].nbytes for _, edge, _ in neighbours)


def step(tile: Array) -> Array:
    """Return the tile after a step; its rim, and so the border of the grid, stays."""
    after = tile.copy()
    mean = 0.25 * (tile[:-2, 1:-1] + tile[2:, 1:-1] + tile[1:-1, :-2] + tile[1:-1, 2:])
    after[1:-1, 1:-1] += RATE * (mean - tile[1:-1, 1:-1])
    return after


def change(xp: Module, after: Array, before: Array) -> Array:
    """Return the largest change of a cell in a step."""
    return xp.abs(after - before).max()


def solve(mesh: Mesh, xp: Module, tile: Array, enough: float, most: int) -> tuple[Array, int, int]:
    """Do steps until no cell of any rank changes much.

    Args:
        mesh: the ranks.
        xp: NumPy or CuPy.
        tile: this rank's part of the grid, with its rim.
        enough: a change that is small enough.
        most: steps at most.

    Returns:
        (The tile, the number of steps, the bytes sent in a step.)
    """
    for steps in range(1, most + 1):
        nbytes = exchange(mesh, tile)
        before, tile = tile, step(tile)
        if steps % LOOK == 0 and mpicoll.allreduce(change(xp, tile, before), MPI.MAX, mesh.comm) < enough:
            break
    return tile, steps, nbytes


def main() -> None:
    """Let heat flow through a plate that is spread over ranks, and compare with one process."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD)
    chosen = arguments(__doc__, height=302, width=402, enough=2e-3, most=500)
    xp, mesh = array_module(chosen.buffers, comm), Mesh(comm, *MPI.Compute_dims(comm.size, 2))
    grid = xp.asarray(np.random.default_rng(1).random((chosen.height, chosen.width)))
    grid[0] = 1  # the border stays as it is: warm above
    place = mesh.tile(chosen.height, chosen.width)

    (tile, steps, nbytes), milliseconds = timed(
        comm, xp, solve, mesh, xp, grid[place].copy(), chosen.enough, chosen.most
    )
    for _ in range(steps):
        before, grid = grid, step(grid)
    inner = np.s_[1:-1, 1:-1]
    assert xp.array_equal(tile[inner], grid[place][inner]), "the tile has not the bits of one process"
    assert steps == chosen.most or change(xp, grid, before) < chosen.enough, "the ranks have stopped too early"

    count = len(mesh.neighbours())
    say(
        comm,
        f"Halo exchange, p = {comm.size}: {mesh.rows} x {mesh.columns} tiles of {chosen.height} x {chosen.width} cells",
        f"  rank 0 sends {readable(nbytes)} a step, to neighbours: {count}; its tile is {readable(tile.nbytes)}",
        f"  {steps} steps, {milliseconds / steps:.2f} ms each; the same bits as on one process",
    )


if __name__ == "__main__":
    main()
