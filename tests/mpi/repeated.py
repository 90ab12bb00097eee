"""A persistent call that is started again and again."""

import data
import mpicoll
import oracle
from mpi.cases import HOST, MANY_RECEIVED, MANY_SENT, REDUCING, ROOTED
from mpicoll.algorithms import registry


class Repeated:
    """A persistent call whose input is different at every start."""

    def __init__(self, comm, method, count, memory=HOST, root=0, algorithm=None):
        self.comm, self.method, self.memory, self.root = comm, method, memory, root % comm.size
        collective, p = registry.collective(method).name, comm.size
        self.counts = [[count] * p] * p if collective == "alltoall" else [count] * p
        self.sent = count * (p if collective in MANY_SENT else 1)
        self.x = memory.xp.zeros(self.sent)
        self.y = self.x if method == "Bcast" else memory.xp.zeros(count * (p if collective in MANY_RECEIVED else 1))
        spelled = [self.y, self.counts] if method in ("Gatherv", "Allgatherv") else self.y
        arguments = (self.x,) if method == "Bcast" else (self.x, spelled)
        if method == "Reduce_scatter":
            arguments += (self.counts,)
        named = {"root": self.root} if method in ROOTED else {}
        with mpicoll.override(path=memory.path):
            self.request = getattr(comm, f"{method}_init")(*arguments, **named, algorithm=algorithm)

    def fill(self, turn):
        """Change the input; what the output must be then is compared by the next compare()."""
        op, p, rank = "SUM" if self.method in REDUCING else "", self.comm.size, self.comm.rank
        inputs = [data.values("float64", self.sent, r + 3 * turn, op) for r in range(p)]
        self.y[...] = -1
        self.x[...] = self.memory.xp.asarray(inputs[rank])
        self.expected = oracle.EXPECTED[self.method](inputs, rank, root=self.root, op=op, counts=self.counts)

    def compare(self):
        if self.expected is not None:
            assert (self.memory.to_host(self.y) == self.expected).all(), self.method

    def turn(self, number):
        self.fill(number)
        self.request.Start()
        self.request.Wait()
        self.compare()
