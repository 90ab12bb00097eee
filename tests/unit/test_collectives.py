"""The table of collectives against what MPI says that they do, written out by hand.

Here a send buffer is a list of tokens (rank, position), and a collective is a function from all
ranks' send buffers to all ranks' receive buffers; a received element is the tokens that are
combined into it, in rank order.
"""

import pytest

from mpicoll.schedule import COLLECTIVES, collective

BLOCKS = [1, 2, 3, 5]


def barrier(sent, root):
    return [[tuple(mine[i] for mine in sent) for i in range(len(sent[0]))] for _ in sent]


def bcast(sent, root):
    return [[(token,) for token in sent[root]] for _ in sent]


def reduce(sent, root):
    return [row if rank == root else [] for rank, row in enumerate(allreduce(sent, root))]


def allreduce(sent, root):
    return barrier(sent, root)


def gather(sent, root):
    return [row if rank == root else [] for rank, row in enumerate(allgather(sent, root))]


def scatter(sent, root):
    return [[(sent[root][rank],)] for rank in range(len(sent))]


def allgather(sent, root):
    return [[(token,) for mine in sent for token in mine] for _ in sent]


def reduce_scatter(sent, root):
    return [[whole[rank]] for rank, whole in enumerate(allreduce(sent, root))]


def alltoall(sent, root):
    return [[(mine[rank],) for mine in sent] for rank in range(len(sent))]


def scan(sent, root):
    return [barrier(sent[: rank + 1], root)[0] for rank in range(len(sent))]


def exscan(sent, root):
    return [[], *scan(sent, root)[:-1]]  # rank 0's buffer is undefined


DEFINITIONS = {
    f.__name__: f
    for f in (
        barrier, bcast, reduce, allreduce, gather, scatter, allgather, reduce_scatter, alltoall, scan, exscan,
    )
}  # fmt: skip


def test_the_table_has_the_collectives_of_mpi():
    assert set(COLLECTIVES) == set(DEFINITIONS)
    assert all(name == row.name for name, row in COLLECTIVES.items())


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("size", range(1, 8))
def test_before_and_after_are_what_mpi_says(name, size):
    row = COLLECTIVES[name]
    for blocks in BLOCKS if row.free else [row.blocks(size)]:
        for root in range(size):
            before = [sorted(row.before(rank, size, root, blocks)) for rank in range(size)]
            after = [row.after(rank, size, root, blocks) for rank in range(size)]
            each = blocks if row.free else 1 if name in ("gather", "allgather") else size
            sent = [[(rank, position) for position in range(each)] for rank in range(size)]
            assert [table_row(one, before) for one in after] == DEFINITIONS[name](sent, root)


def table_row(after, before):
    """A receive buffer as the table has it: block ids turned into positions in the senders' buffers."""
    return [tuple((rank, before[rank].index(block)) for rank in after[block]) for block in sorted(after)]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_row_is_rooted_where_ranks_parts_depend_on_the_root(name):
    row = COLLECTIVES[name]
    blocks = 2 if row.free else row.blocks(4)
    depends = len({str(([*row.before(0, 4, r, blocks)], row.after(0, 4, r, blocks))) for r in range(4)}) > 1
    assert row.rooted == depends


@pytest.mark.parametrize("name", COLLECTIVES)
def test_what_combines_has_an_operator_or_does_no_harm(name):
    row = COLLECTIVES[name]
    blocks = 2 if row.free else row.blocks(4)
    combines = any(len([*of]) > 1 for rank in range(4) for of in row.after(rank, 4, 0, blocks).values())
    assert combines == (row.reducing or row.idempotent)
    assert not (row.reducing and row.idempotent)


# as nccl-tests defines them, doc/PERFORMANCE.md
@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("allreduce", lambda p: 2 * (p - 1) / p),
        ("reduce_scatter", lambda p: (p - 1) / p),
        ("allgather", lambda p: (p - 1) / p),
        ("alltoall", lambda p: (p - 1) / p),
        ("gather", lambda p: (p - 1) / p),
        ("scatter", lambda p: (p - 1) / p),
        ("bcast", lambda p: 1),
        ("reduce", lambda p: 1),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_bus_bandwidth_factors(name, factor, size):
    assert COLLECTIVES[name].bus(size) == pytest.approx(factor(size))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("Allreduce", "allreduce"),
        ("allreduce", "allreduce"),
        ("Gatherv", "gather"),
        ("scatterv", "scatter"),
        ("Allgatherv", "allgather"),
        ("Alltoallv", "alltoall"),
        ("Reduce_scatter_block", "reduce_scatter"),
        ("REDUCE_SCATTER", "reduce_scatter"),
    ],
)
def test_a_row_is_found_by_any_name_of_its_mpi_methods(spelling, name):
    assert collective(spelling) is COLLECTIVES[name]


def test_every_method_belongs_to_one_row():
    methods = [method for row in COLLECTIVES.values() for method in row.methods]
    assert len(set(methods)) == len(methods)
    assert all(name in {m.lower() for m in row.methods} for name, row in COLLECTIVES.items())


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no collective 'allreduse'; known: .*allreduce.*exscan"):
        collective("allreduse")
