"""Groups on the path mapped, from the communicator to what is enqueued: one launch, over a table of arrays."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import ctypes
import gc
import importlib
import weakref

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.made_up_device import Memory
from mpicoll.errors import StalledError
from unit.recorded_cuda import CALLER, OTHER, comm, late, made, mapped, peers, peers_of

IN_PLACE = MPI.IN_PLACE
COUNTS = (8, 0, 300, 1)


@pytest.fixture
def tables(made, monkeypatch):
    """Copies are done at once; returns the addresses of the tables, the last one at the end."""
    found = []

    def copy(to, origin, nbytes, kind, stream):
        made.log.append(("copy", nbytes, stream))
        ctypes.memmove(to, origin, nbytes)
        found.append(to)

    monkeypatch.setattr(made.module.cuda.runtime, "memcpyAsync", copy)
    monkeypatch.setattr(made.module.cuda, "alloc_pinned_memory", Memory)
    return found


@pytest.fixture
def grouping(comm):
    """The communicator, which has had its first group."""
    comm._get_context().attached["channels"] = "there are none"
    return comm


def arrays(counts=COUNTS):
    return [np.ones(n) for n in counts], [np.zeros(n) for n in counts]


def kernels_in(log):
    """What was launched on the caller's stream: names of kernels, and graphs."""
    return [one[1] for one in log if one[0] in ("launch", "graph") or (one[0] == "captured" and one[2] == CALLER)]


def read(address, rows, columns=2):
    """The addresses in a table, sorted in each row: the input and output of a call."""
    flat = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint64)), (rows * columns,))
    return [sorted(row) for row in flat.reshape(rows, columns).tolist()]


def addresses(xs, ys):
    return [sorted((x.ctypes.data, y.ctypes.data)) for x, y in zip(xs, ys, strict=True)]


def test_calls_that_are_alike_are_one_launch(made, comm):
    """With other arrays each time, too; what is launched often is a graph."""
    held = [arrays() for _ in range(3)]
    found = []
    for xs, ys in (*held, held[0], held[0]):
        comm.Allreduce(xs, ys)
        found.append(kernels_in(made.taken()))
    assert found == [["collective"]] * 2 + [["graph"]] * 3
    assert comm._get_context().calls == 5


@pytest.mark.parametrize(
    ("method", "blocks"),
    [("Allgather", (1, 2)), ("Alltoall", (2, 2)), ("Reduce_scatter_block", (2, 1)), ("Gather", (1, 2))],
)
def test_all_methods_are_one_launch(made, comm, method, blocks):
    xs, ys = ([np.ones(n * b) for n in COUNTS] for b in blocks)
    getattr(comm, method)(xs, ys)
    assert kernels_in(made.taken()) == ["collective"]


def test_the_kernel_finds_each_calls_arrays_in_the_table(made, comm, tables):
    held = [arrays() for _ in range(4)]
    for xs, ys in (*held, held[1], held[1], held[2]):
        comm.Allreduce(xs, ys)
        assert read(tables[-1], 4) == addresses(xs, ys)
    assert len(set(tables)) == 1


def test_the_same_arrays_are_not_looked_at_again(made, comm, tables):
    xs, ys = arrays()
    for _ in range(4):
        comm.Allreduce(xs, ys)
        comm.Allreduce([x[:] for x in xs], [y[:] for y in ys])
    assert len(tables) == 1


def test_a_group_holds_no_arrays(made, comm):
    xs, ys = arrays()
    comm.Allreduce(xs, ys)
    watched = [weakref.ref(one) for one in (*xs, *ys)]
    del xs, ys
    gc.collect()
    assert not any(ref() is not None for ref in watched)


def test_each_stream_has_a_table_of_its_own(made, comm, tables):
    """Kernels on two streams would read what is written for the other's."""
    xs, ys = arrays()
    comm.Allreduce(xs, ys)
    made.current = OTHER
    comm.Allreduce(ys, xs)
    assert tables[0] != tables[-1]
    assert [one[2] for one in made.taken() if one[0] in ("launch", "copy")] == [CALLER, CALLER, OTHER, OTHER]


def test_all_give_credit(made, comm, monkeypatch):
    """In a ring of equal blocks each rank hears of the others in each wave, but blocks of an item may have no tile."""
    from mpicoll.runtime.paths.mapped import kernel

    sources, write = [], kernel.kernel_source
    monkeypatch.setattr(kernel, "kernel_source", lambda *given: sources.append(write(*given)) or sources[-1])
    xs, ys = arrays()
    comm.Allreduce(xs, ys, algorithm="ring")
    comm.Allreduce(xs[0], ys[0], algorithm="ring")
    assert ["give_credit(a.credit_out" in source for source in sources] == [True, False]
    assert ["#define ITEMS\n" in source for source in sources] == [True, False]


def test_what_was_captured_keeps_its_table(made, comm, tables):
    """Arrays that were there before the capture are captured as one kernel, without a copy."""
    first, second, third = arrays(), arrays(), arrays()
    comm.Allreduce(*first)
    comm.Allreduce(*first)
    made.taken()
    made.capturing.add(CALLER)
    comm.Allreduce(*first)
    assert [one[0] for one in made.taken() if one[0] != "record"] == ["captured"]
    made.capturing.discard(CALLER)
    comm.Allreduce(*third)
    made.capturing.add(CALLER)
    made.taken()
    comm.Allreduce(*second)
    assert [one[0] for one in made.taken() if one[0] != "record"] == ["copy", "captured"]
    captured = tables[0], tables[-1]
    made.capturing.discard(CALLER)
    for _ in range(3):
        comm.Allreduce(*third)
        comm.Allreduce(*first)
        assert tables[-1] not in captured
        gc.collect()
        assert [read(at, 4) for at in captured] == [addresses(*first), addresses(*second)]


def test_an_average_is_packed(made, comm):
    """There is a division behind it."""
    comm.Allreduce(*arrays(), mpicoll.AVG)
    assert kernels_in(made.taken())[:2] == ["copies", "collective"]


def test_calls_on_which_ranks_agree_first_are_packed(made, comm):
    """They agree on one call."""
    comm._get_context().size = 1  # else another rank's word would be awaited
    with mpicoll.override(debug=1):
        comm.Allreduce(*arrays())
    assert "copies" in kernels_in(made.taken())


def test_calls_on_a_path_that_does_not_fuse_are_packed(made, comm, mapped, monkeypatch):
    monkeypatch.setattr(type(mapped), "fuses", False)
    comm.Allreduce(*arrays())
    assert kernels_in(made.taken()) == ["copies", "collective", "copies"]


def test_calls_in_place_are_one_launch_beside_others(made, grouping, tables):
    """Where each thread has read an element before it writes over it."""
    xs, ys = arrays((300, 8))
    for _ in range(2):
        with mpicoll.group(grouping):
            grouping.Allreduce(xs[0], ys[0])
            grouping.Allreduce(IN_PLACE, ys[1])
    assert kernels_in(made.taken()) == ["collective"] * 2
    assert read(tables[-1], 2) == addresses([xs[0], ys[1]], ys)


def test_an_input_that_would_be_written_over_too_early_is_copied(made, grouping, tables, monkeypatch):
    """By one kernel before, for all such calls of a group; no other rank takes notice of it."""
    from mpicoll.runtime.paths.mapped import items

    monkeypatch.setattr(items, "reads_first", lambda *_: False)
    xs, ys = arrays((300, 8, 40))
    for turn in range(2):
        with mpicoll.group(grouping):
            grouping.Allreduce(xs[0], ys[0])
            grouping.Allreduce(IN_PLACE, ys[1])
            grouping.Allreduce(IN_PLACE, ys[2])
        assert kernels_in(made.taken()) == ["copies", "collective"]
        batch, table = tables[-2:] if not turn else tables[:0:-1][:2]
        mine = addresses(ys, ys)
        rows = read(table, 3)
        assert rows[0] == addresses(xs, ys)[0]
        copies = read(batch, 2)
        for row, copy, (y, _) in zip(rows[1:], copies, mine[1:], strict=True):
            (own,) = set(row) - {y}
            assert copy == sorted((own, y))
        xs, ys = (xs, ys) if turn else arrays((300, 8, 40))
    with mpicoll.group(grouping):
        for y in ys:
            grouping.Allreduce(IN_PLACE, y)  # a program of its own, for all are in place
    assert kernels_in(made.taken()) == ["collective"]


@pytest.mark.parametrize("method", ["Alltoall", "Reduce_scatter_block"])
def test_methods_that_hold_a_copy_otherwise_are_one_launch_in_place(made, comm, tables, method):
    ys = [np.ones(2 * n) for n in (8, 300)]
    getattr(comm, method)(IN_PLACE, ys)
    assert kernels_in(made.taken()) == ["collective"]
    columns = 4 if method == "Alltoall" else 3
    rows = read(tables[-1], 2, columns)
    for row, y in zip(rows, ys, strict=True):
        assert set(row) == {y.ctypes.data, y.ctypes.data + y.nbytes // 2}


def test_a_long_group_gets_larger_inboxes(made, comm, peers, mapped, monkeypatch):
    """As one call of that size does, once; programs that were made before are made anew."""
    larger = peers_of(2)
    asked = []

    def connect(*given):
        asked.append(given[2])
        return larger
        yield

    monkeypatch.setattr("mpicoll.runtime.paths.mapped.path.connect", connect)
    xs, ys = arrays((100_000,) * 20)
    with mpicoll.override(mapped_bytes=8 << 20):
        comm.Allreduce(xs, ys)
    assert not asked
    for _ in range(2):
        comm.Allreduce(xs, ys)
        assert len(asked) == 1
    with mpicoll.override(mapped_bytes=8 << 20):
        fused = next(iter(comm._get_context().others["groups"].joined.values()))
        assert not fused._items.bound.alive
        comm.Allreduce(xs, ys)
        assert fused._items.bound.alive


def test_a_rank_that_does_not_come_is_told_by_the_next_group(made, comm, peers):
    xs, ys = arrays()
    context = comm._get_context()
    with mpicoll.override(timeout=5):
        comm.Allreduce(xs, ys)
        late(peers, 1)
        with pytest.raises(StalledError, match="rank 1 did not come"):
            comm.Allreduce(xs, ys)
    context.broken, peers._view[4:8] = "", bytes(4)


def test_strided_arrays_are_not_captured(made, comm):
    """Their copies would be freed while the graph still reads them."""
    wholes = [np.ones(16) for _ in range(2)]
    made.capturing.add(CALLER)
    with pytest.raises(mpicoll.UnsupportedError, match="must be copied around the call"):
        comm.Allreduce([w[::2] for w in wholes], [np.zeros(8) for _ in range(2)])


@pytest.mark.parametrize("change", ["rules", "settings"])
def test_another_choice_is_another_program(made, comm, peers, change):
    xs, ys = arrays((300, 8))
    comm.Allreduce(xs, ys)
    with mpicoll.override(algorithms="allreduce:ring" if change == "settings" else ""):
        comm._rules = "allreduce:ring" if change == "rules" else ""
        comm.Allreduce(xs, ys)
    joined = comm._get_context().others["groups"].joined
    assert [one._decision.plan.algorithm == "ring" for one in joined.values()] == [False, True]


def test_the_pinned_memory_of_a_table_is_kept_until_it_was_read(made):
    """CuPy gives it to others at once, but the copy may still be on its way."""
    table = importlib.import_module("mpicoll.runtime.cuda.table")
    one = table.DeviceTable(0, b"12345678", CALLER)
    pinned, made.ready = one._pinned, False
    del one
    table.DeviceTable(0, b"1", CALLER)
    assert any(kept is pinned for _, kept in table._leaving)
    made.ready = True
    table.DeviceTable(0, b"1", CALLER)
    assert not any(kept is pinned for _, kept in table._leaving)
