"""Many mixed collectives on communicators that come and go: does anything grow?

    make soak CALLS=10000 N=3          # or: mpirun -n 3 python bench/soak.py --calls 10000

Every call is checked.  After each tenth of the calls rank 0 prints a line: resident memory of the rank
that has most, communicators and slots that mpicoll holds, calls in flight, and how many of some more
communicators the MPI library can make.  A job in which any of them grows from the third tenth on ends
with exit code 1.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import mpicoll  # before MPI starts: it puts a UCX that knows CUDA under the MPI

# isort: split
import numpy as np
from mpi4py import MPI

from mpicoll.algorithms import registry
from mpicoll.runtime.context import context
from mpicoll.runtime.progress import turns

PAGE = os.sysconf("SC_PAGE_SIZE")
#: tenths of the calls until caches are full
WARM = 3
#: MiB by which memory may grow afterwards
SLACK = 2.0
#: communicators that are made to see how many are left; MPICH has 2048 for a process
PROBES = 64
#: few, so that every plan was made before long
COUNTS = (7, 1000)
OPERATORS = ((MPI.SUM, np.sum), (MPI.MAX, np.max), (MPI.MIN, np.min))
DTYPES = ("f4", "i8", "c8")


def resident() -> float:
    """Return this process's resident memory in MiB."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE / 2**20


def can_make() -> int:
    """Return how many of PROBES more communicators can be made."""
    made: list[MPI.Intracomm] = []
    while len(made) < PROBES:
        try:
            made.append(MPI.COMM_WORLD.Dup())
        except MPI.Exception:
            break
    for comm in made:
        comm.Free()
    return len(made)


class Soak:
    """The calls, the same on all ranks; `made` counts the ones of each kind."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = mpicoll.Communicator(MPI.COMM_WORLD)
        self.comms: list[Any] = []
        self.pending: list[tuple[Any, np.ndarray, np.ndarray]] = []
        self.kept: list[tuple[Any, Any, np.ndarray, np.ndarray]] = []
        self.made: dict[str, int] = {}

    def count(self, what: str) -> None:
        """Count something that was done."""
        self.made[what] = self.made.get(what, 0) + 1

    def call(self) -> None:
        """Make one call of a random kind, and now and then change the communicators."""
        chance = self.chance
        if chance.random() < 0.05:
            self.change()
        comm = chance.choice([self.world, *self.comms])
        kind = chance.choices(("blocking", "nonblocking", "persistent", "functional"), (6, 3, 2, 1))[0]
        self.count(kind)
        getattr(self, kind)(comm)

    def blocking(self, comm: Any) -> None:
        """Make a blocking call, of any collective, with any algorithm."""
        method = self.chance.choice(list(METHODS))
        n, dtype, root = self.chance.choice(COUNTS), self.chance.choice(DTYPES), self.chance.choice((0, comm.size - 1))
        names = [a.name for a in registry.usable(method, comm.size)]
        number = self.chance.randrange(16)  # half of the calls leave the choice to mpicoll
        named = {"algorithm": names[number % len(names)]} if number < 8 else {}
        METHODS[method](self, comm, method, np.full(n, comm.rank + 1, dtype), root, named)

    def reducing(self, comm: Any, method: str, x: np.ndarray, root: int, named: dict[str, Any]) -> None:
        """Allreduce, Reduce, Scan."""
        op, wanted = self.chance.choice(OPERATORS[:1] if x.dtype.kind == "c" else OPERATORS)
        y = np.zeros_like(x)
        getattr(comm, method)(x, y, op, *([root] if method == "Reduce" else []), **named)
        last = comm.rank if method == "Scan" else comm.size - 1
        assert (y == wanted(np.arange(1, last + 2))).all() or (method == "Reduce" and comm.rank != root)

    def gathering(self, comm: Any, method: str, x: np.ndarray, root: int, named: dict[str, Any]) -> None:
        """Gather, Allgather, Allgatherv."""
        y = np.zeros(x.size * comm.size, x.dtype)
        into: Any = [y, [x.size] * comm.size] if method == "Allgatherv" else y
        getattr(comm, method)(x, into, *([root] if method == "Gather" else []), **named)
        assert (y == blocks(comm, x)).all() or (method == "Gather" and comm.rank != root)

    def spreading(self, comm: Any, method: str, x: np.ndarray, root: int, named: dict[str, Any]) -> None:
        """Bcast, Scatter, Alltoall, Barrier."""
        if method == "Barrier":
            comm.Barrier(**named)
        elif method == "Bcast":
            comm.Bcast(x, root, **named)
            assert (x == root + 1).all()
        elif method == "Scatter":
            comm.Scatter(blocks(comm, x) if comm.rank == root else None, x, root, **named)
            assert (x == comm.rank + 1).all()
        else:
            y = np.zeros_like(blocks(comm, x))
            comm.Alltoall(blocks(comm, x), y, **named)
            assert (y == comm.rank + 1).all()

    def nonblocking(self, comm: Any) -> None:
        """Start a call that is completed some calls later."""
        x = np.full(self.chance.choice(COUNTS), 1.0)
        y = np.zeros_like(x)
        self.pending.append((comm.Iallreduce(x, y), y, np.full_like(y, comm.size)))
        if len(self.pending) > self.chance.randrange(5):
            self.complete()

    def complete(self) -> None:
        """Complete all nonblocking calls, in some order."""
        self.chance.shuffle(self.pending)
        for request, y, wanted in self.pending:
            request.Wait()
            assert (y == wanted).all()
        self.pending.clear()

    def persistent(self, comm: Any) -> None:
        """Make a persistent call, or start one again, or free one."""
        if len(self.kept) < 4:
            x = np.full(self.chance.choice(COUNTS), 1.0)
            y = np.zeros_like(x)
            self.kept.append((comm, comm.Allreduce_init(x, y), x, y))
        number = self.chance.randrange(len(self.kept))
        comm, request, x, y = self.kept[number]
        for turn in range(2):
            x[:] = turn
            request.Start()
            request.Wait()
            assert (y == turn * comm.size).all()
        if self.chance.random() < 0.3:
            request.Free()
            del self.kept[number]

    def functional(self, comm: Any) -> None:
        """Call functions on the communicator."""
        assert mpicoll.allreduce(2, comm=comm) == 2 * comm.size
        found, counts = mpicoll.allgatherv(np.full(comm.rank + 1, comm.rank), comm=comm)
        assert found.size == sum(counts)

    def change(self) -> None:
        """Make communicators, or free one."""
        if len(self.comms) >= 4:
            self.complete()
            comm = self.comms.pop(self.chance.randrange(len(self.comms)))
            for kept in [k for k in self.kept if k[0] is comm]:
                kept[1].Free()
                self.kept.remove(kept)
            comm.Free()
            self.count("freed")
            return
        rank = self.world.rank
        make = self.chance.choice(
            (self.world.Dup, lambda: self.world.Split(0, -rank), lambda: self.world.Split(rank % 2, rank))
        )
        self.comms.append(make())
        self.count("made")

    def clear(self) -> None:
        """Free everything."""
        self.complete()
        for _, request, _, _ in self.kept:
            request.Free()
        self.kept.clear()
        while self.comms:
            self.comms.pop().Free()
            self.count("freed")


METHODS = {
    **dict.fromkeys(("Allreduce", "Reduce", "Scan"), Soak.reducing),
    **dict.fromkeys(("Gather", "Allgather", "Allgatherv"), Soak.gathering),
    **dict.fromkeys(("Bcast", "Scatter", "Alltoall", "Barrier"), Soak.spreading),
}


def blocks(comm: Any, x: np.ndarray) -> np.ndarray:
    """Return a block of every rank's."""
    return np.repeat(np.arange(1, comm.size + 1), x.size).astype(x.dtype)


def main() -> int:
    """Run, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=10_000, help="collective calls on every rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plan-cache", type=int, default=16, help="small, so that it is full before long")
    asked = parser.parse_args()
    mpicoll.settings.plan_cache = asked.plan_cache
    soak, world = Soak(asked.seed), MPI.COMM_WORLD
    first, begin = world.rank == 0, time.monotonic()
    if first:
        vendor, version = MPI.get_vendor()
        print(f"{vendor} {'.'.join(map(str, version))}, {world.size} ranks, {asked.calls} calls, seed {asked.seed}")
        print(f"{'calls':>8} {'seconds':>8} {'MiB':>8} {'contexts':>8} {'slots':>6} {'in flight':>9} {'can make':>8}")
    rows = []
    for tenth in range(1, 11):
        for _ in range(asked.calls // 10):
            soak.call()
        soak.clear()
        gc.collect()
        slots = sum(len(found.slots) for found in context.live)
        row = (resident(), len(context.live), slots, len(turns.in_flight), can_make())
        row = (*(max(column) for column in zip(*world.allgather(row[:4]), strict=True)), row[4])
        rows.append(row)
        if first:
            memory, live, slots, flying, left = row
            done, seconds = tenth * asked.calls // 10, time.monotonic() - begin
            print(f"{done:8} {seconds:8.1f} {memory:8.1f} {live:8} {slots:6} {flying:9} {left:5}/{PROBES}", flush=True)
    grown = max(row[0] for row in rows[WARM:]) - rows[WARM - 1][0]
    same = len({row[1:] for row in rows[WARM - 1 :]}) == 1 and rows[-1][4] == PROBES
    if first:
        print("done:", ", ".join(f"{number} {what}" for what, number in sorted(soak.made.items())))
        print(
            f"after {WARM} tenths: memory grew by {grown:.1f} MiB, the rest is {'constant' if same else 'NOT constant'}"
        )
    return 0 if grown <= SLACK and same else 1


if __name__ == "__main__":
    sys.exit(main())
