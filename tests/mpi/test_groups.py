"""Groups of collective calls: those that are alike are one call; results are those of single calls."""

import gc

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.made_up_device import install
from mpicoll.errors import UnsupportedError
from mpicoll.runtime.groups import calls as grouped_calls
from mpicoll.runtime.groups.packed import PACKABLE
from mpicoll.runtime.mpi.cuda_aware import Awareness
from mpicoll.runtime.point_to_point import parcel

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE
#: elements of a block of each array
COUNTS = (3, 0, 1000, 17, 1)
ROOT = SIZE - 1
REST = {"Bcast": (ROOT,), "Reduce": (MPI.SUM, ROOT), "Gather": (ROOT,), "Scatter": (ROOT,)}
IN_PLACE = MPI.IN_PLACE


def values(method, number, count):
    """What a rank sends: a block, or one for each rank."""
    blocks = SIZE if PACKABLE[method][0] else 1
    return np.arange(count * blocks) + 1000.0 * RANK + 100_000.0 * number


def buffers(method, number, count, in_place):
    """The arguments of a call, and the array in which its result will be."""
    x = values(method, number, count)
    if method == "Bcast":
        return (x, ROOT), x
    y = np.full(count * (SIZE if PACKABLE[method][1] else 1), -1.0)
    at_root = "Bcast" not in method and (method not in REST or RANK == ROOT)
    if in_place and at_root and method != "Scatter":
        if len(x) >= len(y):
            y = x
        else:
            y[RANK * count : (RANK + 1) * count] = x
        return (IN_PLACE, y, *REST.get(method, ())), y
    return (x, y, *REST.get(method, ())), y


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("method", PACKABLE)
def test_a_group_gives_what_single_calls_give(comm, method, in_place):
    """Three times, with other numbers each time; the second time it is known."""
    made = [buffers(method, number, count, in_place) for number, count in enumerate(COUNTS)]
    for turn in range(3):
        alone = [buffers(method, number, count, in_place) for number, count in enumerate(COUNTS)]
        for ours, theirs in zip(made, alone, strict=True):
            set_alike(ours[0], theirs[0], turn)
        for arguments, _ in alone:
            getattr(comm, method)(*arguments)
        with mpicoll.group(comm):
            for arguments, _ in made:
                getattr(comm, method)(*arguments)
        for (_, got), (_, wanted) in zip(made, alone, strict=True):
            assert (got == wanted).all()


def set_alike(ours, theirs, turn):
    """Give the arrays of two calls the same numbers, other ones each turn."""
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, np.ndarray):
            other += turn
            one[...] = other


def calls_made(comm, act):
    """The number of calls that an act makes on the communicator."""
    context = comm._get_context()
    before = context.calls
    act()
    return context.calls - before


def test_calls_that_are_alike_are_one_call(comm):
    xs, ys = [np.full(n, 1.0) for n in range(50)], [np.zeros(n) for n in range(50)]
    small = [np.ones(4, "f4") for _ in range(5)]

    def act():
        with mpicoll.group(comm):
            for x, y in zip(xs, ys, strict=True):
                comm.Allreduce(x, y)
            for x in small:
                comm.Allreduce(IN_PLACE, x, MPI.MAX)
            comm.Barrier()
            comm.Allreduce(xs[3], np.zeros(3), MPI.MIN)

    for _ in range(3):
        assert calls_made(comm, act) == 4
    assert all((y == SIZE).all() for y in ys)
    assert all((x == 1).all() for x in small)


def test_lists_of_arrays_are_one_call(comm):
    xs, ys = [np.full(n, 2.0) for n in (1, 5, 9)], [np.zeros(n) for n in (1, 5, 9)]
    assert calls_made(comm, lambda: comm.Allreduce(xs, ys)) == 1
    assert all((y == 2 * SIZE).all() for y in ys)
    assert calls_made(comm, lambda: comm.Allreduce(IN_PLACE, ys, MPI.MAX, algorithm="ring")) == 1
    assert all((y == 2 * SIZE).all() for y in ys)
    for y in ys:
        y.fill(RANK)
    comm.Bcast(tuple(ys), ROOT)
    assert all((y == ROOT).all() for y in ys)
    comm.Reduce(xs, ys if RANK == ROOT else None, MPI.SUM, ROOT)
    with pytest.raises(ValueError, match="allreduce: the buffers are not lists of equally many arrays"):
        comm.Allreduce(xs, ys[:2])


def test_an_array_and_its_count_are_no_list_of_arrays(comm):
    x = np.full(9, 2.0)
    comm.Allreduce(IN_PLACE, [x, np.array([4])])
    assert x.tolist() == [2.0 * SIZE] * 4 + [2.0] * 5


def test_lists_of_arrays_in_a_group_are_as_single_ones(comm):
    xs, ys, z = [np.full(n, 2.0) for n in (1, 5)], [np.zeros(n) for n in (1, 5)], np.full(3, 2.0)

    def act():
        with mpicoll.group(comm):
            comm.Allreduce(xs, ys)
            comm.Allreduce(IN_PLACE, z)

    assert calls_made(comm, act) == 1
    assert all((y == 2 * SIZE).all() for y in (*ys, z))


def test_a_rank_may_have_strided_arrays(comm):
    """What one rank packs is packed by all, or they would make different calls."""
    step = 2 if RANK == 0 else 1
    for turn in range(2):
        xs = [np.arange(20.0 * step)[::step] + turn for _ in range(3)]
        wholes = [np.full(20 * step, -1.0) for _ in range(3)]
        assert calls_made(comm, lambda xs=xs, wholes=wholes: comm.Allreduce(xs, [w[::step] for w in wholes])) == 1
        total = 2 * np.arange(20.0) + (SIZE - 1) * np.arange(20.0) + turn * SIZE
        assert all((w[::step] == total).all() for w in wholes)
        assert step == 1 or all((w[1::2] == -1).all() for w in wholes)


def test_arrays_that_are_other_ones_by_now_are_read_anew(comm):
    """New ones in the place of old ones, and one that was resized in place."""
    for turn in range(20):
        xs = [np.full(3 + turn % 3, 1.0 + k) for k in range(3)]
        with mpicoll.group(comm):
            for x in xs:
                comm.Allreduce(IN_PLACE, x)
        assert [x.tolist() for x in xs] == [[(1.0 + k) * SIZE] * (3 + turn % 3) for k in range(3)]
    for x in xs:
        x.resize(8, refcheck=False)
        x.fill(1)
    with mpicoll.group(comm):
        for x in xs:
            comm.Allreduce(IN_PLACE, x)
    assert all((x == SIZE).all() for x in xs)


def test_a_group_holds_no_arrays(comm):
    import weakref

    x, z = np.ones(5), np.ones(2_000_000)
    with mpicoll.group(comm):
        comm.Allreduce(IN_PLACE, x)
        comm.Allreduce(IN_PLACE, x[:0])
        comm.Bcast(z)
        if SIZE > 1:
            comm.Sendrecv(x, RIGHT, 0, np.zeros(5), LEFT)
    watched = [weakref.ref(a) for a in (x, z)]
    del x, z
    gc.collect()
    assert [ref() for ref in watched] == [None, None]


def test_many_arrays_make_more_than_one_call(comm, monkeypatch):
    """So that packed copies stay small."""
    monkeypatch.setattr(grouped_calls, "MOST", 1000)
    xs = [np.full(50, 1.0) for _ in range(7)]
    assert calls_made(comm, lambda: comm.Allreduce(IN_PLACE, xs)) == 4
    assert all((x == SIZE).all() for x in xs)


def test_a_block_that_raises_makes_nothing(comm):
    x = np.ones(3)
    with pytest.raises(KeyError), mpicoll.group(comm):
        comm.Allreduce(IN_PLACE, x)
        raise KeyError
    assert (x == 1).all()
    comm.Allreduce(IN_PLACE, x)
    assert (x == SIZE).all()


def test_what_a_group_cannot_have_is_refused(comm):
    x = np.ones(3)
    with mpicoll.group(comm):
        for call in (
            lambda: comm.Iallreduce(IN_PLACE, x),
            lambda: comm.Bcast_init(x),
            lambda: comm.Isend(x, RIGHT),
            lambda: comm.Ssend(x, RIGHT),
            lambda: comm.Dup(),
            lambda: comm.Free(),
        ):
            with pytest.raises(UnsupportedError, match="blocking collectives, Send, Recv and Sendrecv only"):
                call()
        for arguments in ((x,), (x, LEFT, 0, MPI.Status())):
            with pytest.raises(ValueError, match="name the source"):
                comm.Recv(*arguments)
        with pytest.raises(RuntimeError, match="in a group already"), mpicoll.group(comm):
            pass
    with pytest.raises(ValueError, match=f"rank {SIZE} is out of range"), mpicoll.group(comm):
        comm.Send(x, SIZE)
    with pytest.raises(ValueError, match="what is sent and received differ"), mpicoll.group(comm):
        comm.Send(x, RANK, 3)


@pytest.mark.parametrize("manner", ["early", "late", "random"])
@pytest.mark.parametrize("path", ["direct", "staged"])
def test_groups_of_device_arrays_are_in_stream_order(monkeypatch, manner, path):
    """Copies, the call and copies back follow each other on the stream; nothing is awaited in between."""
    made_up = install(monkeypatch, manner)
    monkeypatch.setattr(parcel, "can_be_mapped", lambda address: True)
    monkeypatch.setattr("mpicoll.runtime.paths.mirror.can_be_mapped", lambda address: True)
    monkeypatch.setattr("mpicoll.runtime.groups.packed.batch_of", made_up_batch(made_up))
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    comm._get_context().cuda_aware = Awareness(path == "direct", "made up")
    xs, ys = [np.zeros(n) for n in (5, 3000, 1)], [np.zeros(n) for n in (5, 3000, 1)]
    with mpicoll.override(path=path):
        for turn in range(1, 5):
            for x in xs:
                made_up.streams.enqueue(0, lambda x=x, turn=turn: x.fill(turn) or True)
            with mpicoll.group(comm):
                for x, y in zip(xs, ys, strict=True):
                    comm.Allreduce(x, y)
            got = [np.zeros_like(y) for y in ys]
            for z, y in zip(got, ys, strict=True):
                made_up.streams.enqueue(0, lambda y=y, z=z: np.copyto(z, y) or True)
                made_up.streams.enqueue(0, lambda y=y: y.fill(-1) or True)
            made_up.streams.finish()
            assert all((z == turn * SIZE).all() for z in got)
    comm.Free()


def made_up_batch(made_up):
    """Batches of the made-up device: copies, one after the other, on the stream."""

    class Batch:
        def __init__(self, device, copies, stream):
            self.copies = list(copies)

        def aim(self, copies, stream):
            self.copies = list(copies)

        def action(self, stream):
            return lambda: [made_up.copy(to, origin, nbytes, 4, stream) for to, origin, nbytes in self.copies]

    return Batch
