"""Neighbour collectives in tests: topologies, and what each rank must receive."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from mpi.topologies import ring_graph

#: in the place of a rank beyond the edge of a grid
NOBODY = MPI.PROC_NULL


def grid(comm, number, periods):
    return comm.Create_cart(MPI.Compute_dims(comm.size, number), periods=periods)


def doubled(comm):
    """Two edges to the right, one to itself."""
    right, left, me = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size, comm.rank
    return comm.Create_dist_graph_adjacent([left, me, left], [right, right, me])


def star(comm):
    """Rank 0 sends to all others, which send to nobody."""
    others = list(range(1, comm.size))
    return comm.Create_dist_graph_adjacent([0] if comm.rank else [], [] if comm.rank else others)


TOPOLOGIES = {
    "row": lambda comm: grid(comm, 1, [False]),
    "ring": lambda comm: grid(comm, 1, [True]),
    "cylinder": lambda comm: grid(comm, 2, [True, False]),
    "torus": lambda comm: grid(comm, 2, [True, True]),
    "graph": ring_graph,
    "doubled": doubled,
    "star": star,
}


@dataclass
class Expected:
    """Who sends which of its blocks as which of this rank's, found from all ranks' neighbours.

    Attributes:
        sources: (rank, number of its block) for each block that this rank receives, None for nobody.
        targets: this rank's targets.
    """

    sources: list[Any]
    targets: list[int]

    @staticmethod
    def of(comm):
        plain = MPI.Intracomm(comm)
        sources, targets = comm.inoutedges
        everybody = plain.allgather(targets)
        if comm.topology == MPI.CART:  # what comes from below was sent up
            return Expected([None if s == NOBODY else (s, k ^ 1) for k, s in enumerate(sources)], targets)
        found = []
        for k, source in enumerate(sources):
            before = sources[:k].count(source)
            mine = [j for j, target in enumerate(everybody[source]) if target == comm.rank]
            found.append((source, mine[before]))
        return Expected(found, targets)


def count_of(rank, block):
    """Elements of a rank's block in the v-variants; some blocks are empty."""
    return (2 * rank + 3 * block) % 5


def values(rank, block, count):
    return 100.0 * rank + 10 * block + np.arange(count) / 8


class Call:
    """A neighbour collective on one rank: its arguments, and what must be there afterwards.

    Blocks that nobody sends, and the gaps between blocks, must stay as they are.
    """

    def __init__(self, comm, method, xp=np, gap=0):
        expected = Expected.of(comm)
        shared, vector = "allgather" in method, method.endswith("v")
        rank = comm.rank
        length = count_of if vector else lambda rank, block: 3
        numbers = [0] if shared else range(len(expected.targets))
        blocks = [values(rank, k, length(rank, k)) for k in numbers]
        sent = np.concatenate([np.full(0, 0.0), *blocks])
        self.counts = [2 if s is None else length(s[0], 0 if shared else s[1]) for s in expected.sources]
        if not vector:
            self.counts = [3] * len(expected.sources)
        self.displs = [sum(self.counts[:k]) + gap * k for k in range(len(self.counts))]
        self.model = np.full(sum(self.counts) + gap * len(self.counts), -7.0)
        self.received = xp.asarray(self.model.copy())
        for source, count, start in zip(expected.sources, self.counts, self.displs, strict=True):
            if source is not None:
                self.model[start : start + count] = values(source[0], 0 if shared else source[1], count)
        self.sent = xp.asarray(sent)
        sendcounts = [len(block) for block in blocks]
        self.arguments = (
            [self.sent, sendcounts] if vector and not shared else self.sent,
            [self.received, (self.counts, self.displs)] if vector else self.received,
        )

    def compare(self, to_host=lambda array: array):
        found = to_host(self.received)
        assert found.tolist() == self.model.tolist()
        self.received[...] = -7.0
