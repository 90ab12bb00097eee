"""Phases that several algorithms are composed of; each returns steps over the given cells.

They take `rank`, `size` (number of ranks) and `root`; `source` and `target`, the cells that are read and written;
`held`, cells that a rank has already; `tmp`, from which they take scratch; and `name`, which turns a place into a rank.
On 4 ranks `ring_allgather(0, 4, out)` has 3 steps; rank 0 sends blocks 0, 3, 2 and receives blocks 3, 2, 1.
"""

from mpicoll.algorithms.phases.folds import (
    doubling_allgather,
    doubling_allreduce,
    fold_in,
    fold_out,
    halves_gather,
    halving_reduce_scatter,
)
from mpicoll.algorithms.phases.rings import (
    all_pairs_allgather,
    all_pairs_reduce_scatter,
    chain_bcast,
    chain_reduce,
    ring_allgather,
    ring_reduce_scatter,
    shifted_allgather,
    shifted_reduce_scatter,
)
from mpicoll.algorithms.phases.trees import (
    absolute,
    combine,
    gather_ranges,
    relative,
    rooted,
    scatter_ranges,
    tree_bcast,
    tree_pair,
    tree_reduce,
)

__all__ = [
    "absolute",
    "all_pairs_allgather",
    "all_pairs_reduce_scatter",
    "chain_bcast",
    "chain_reduce",
    "combine",
    "doubling_allgather",
    "doubling_allreduce",
    "fold_in",
    "fold_out",
    "gather_ranges",
    "halves_gather",
    "halving_reduce_scatter",
    "relative",
    "ring_allgather",
    "ring_reduce_scatter",
    "rooted",
    "scatter_ranges",
    "shifted_allgather",
    "shifted_reduce_scatter",
    "tree_bcast",
    "tree_pair",
    "tree_reduce",
]
