"""Communicators with a topology in which each rank has two neighbours: to the left and to the right, in a ring."""


def ring(comm):
    """Return the ranks to the left and to the right."""
    return [(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size]


def ring_graph(comm):
    size = comm.size
    edges = [neighbour for rank in range(size) for neighbour in ((rank - 1) % size, (rank + 1) % size)]
    return comm.Create_graph([2 * (rank + 1) for rank in range(size)], edges)


#: by name, what makes one from a communicator
MAKERS = {
    "cart": lambda comm: comm.Create_cart([comm.size], periods=[True]),
    "graph": ring_graph,
    "dist_graph": lambda comm: comm.Create_dist_graph([comm.rank], [2], ring(comm)),
    "dist_graph_adjacent": lambda comm: comm.Create_dist_graph_adjacent(ring(comm), ring(comm)),
}
