"""A call in flight that cannot complete before its test says so."""

import numpy as np
from mpi4py import MPI

from mpicoll.runtime.progress import turns

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
#: elements for whose message MPI waits for the receiver
LARGE = 40_000


class InFlight:
    """A call in flight, on all ranks but those that come late, until its end."""

    def __init__(self, comm, late=()):
        self.comm, self.late = comm, RANK in late
        self.x, self.y = np.full(LARGE, RANK + 1.0), np.zeros(LARGE)
        self.request = None if self.late else self.start()

    def start(self):
        return self.comm.Iallreduce(self.x, self.y, algorithm="ring/2")

    def finish(self):
        MPI.COMM_WORLD.Barrier()
        request = self.start() if self.request is None else self.request  # a complete one is false
        request.Wait()
        assert (self.y == SIZE * (SIZE + 1) / 2).all()
        assert not turns.in_flight
