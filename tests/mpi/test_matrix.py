"""Every algorithm of every method, with every count, root, segment count, form and communicator.

The full product would be about 300 000 calls.  A mistake nearly always shows in the combination of
two of them (a root and a count, a form and a segment count), so that for each algorithm all *pairs*
are run: about 30 calls, 60 where there is a root.  What the data are (dtype, operator) does not
change which messages travel; test_operators crosses that with the algorithms.  v-variants have
axes of their own, in test_vector.
"""

import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.calling import check
from mpi.cases import COMMUNICATORS, REDUCING, ROOTED, VECTOR, Case, forms
from mpicoll.algorithms import registry

pytestmark = pytest.mark.many_ranks

SIZE = MPI.COMM_WORLD.Get_size()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier" and m not in VECTOR]
ALGORITHMS = [(m, a) for m in METHODS for names in mpicoll.algorithms(m).values() for a in names]

#: fewer elements than ranks, as many, more, and enough for every segment of every block
COUNTS = {
    "0": lambda p: 0,
    "1": lambda p: 1,
    "p-1": lambda p: p - 1,
    "p": lambda p: p,
    "p+1": lambda p: p + 1,
    "2p+3": lambda p: 2 * p + 3,
    "40p+7": lambda p: 40 * p + 7,
}


def rows(method):
    roots = range(SIZE) if method in ROOTED else (0,)
    axes = {"count": COUNTS, "root": roots, "segments": (1, 3), "form": forms(method), "comm": COMMUNICATORS}
    return data.pairwise(axes)


@pytest.mark.case("ALGO-NPOF2", "ALGO-SMALLCOUNT")
@pytest.mark.parametrize(("method", "algorithm"), ALGORITHMS)
def test_pairs(comms, memory, method, algorithm):
    """Any two of count, root, segments, form and communicator meet."""
    for row in rows(method):
        comm = comms[row["comm"]]
        count = COUNTS[row["count"]](comm.size)
        name = f"{algorithm}/{row['segments']}"
        check(comm, Case(method, name, count, root=row["root"], form=row["form"]), memory)


@pytest.mark.parametrize("method", METHODS)
def test_chosen_algorithm(comms, memory, method):
    """Nobody says which: whatever the dispatcher takes for small and larger messages."""
    for count in (1, 700, 40_000):
        for name in ("world", "halves"):
            check(comms[name], Case(method, None, count, root=-1), memory)


@pytest.mark.case("GUARD-OVERRUN")
@pytest.mark.parametrize("dtype", data.DTYPES)
def test_any_dtype_can_be_moved(world, memory, dtype):
    """Elements of every width are moved, and nothing around them is written."""
    for method in (m for m in METHODS if m not in REDUCING):
        check(world, Case(method, None, 6, dtype=dtype, root=1), memory)


@pytest.mark.case("DTYPE-STRUCT")
@pytest.mark.parametrize("dtype", [*data.HOST_DTYPES, *data.RECORDS])
def test_any_fixed_size_can_be_moved(world, dtype):
    """Records, dates and strings are moved as bytes."""
    for method in (m for m in METHODS if m not in REDUCING):
        check(world, Case(method, None, 6, dtype=dtype, root=1))
