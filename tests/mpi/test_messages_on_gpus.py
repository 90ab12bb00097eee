"""Messages and groups of arrays on GPUs: every path, memory of every kind, streams, captures."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.busy import spin
from mpi.device_arrays import allocating
from mpi.mapped_comms import connected
from mpi.test_groups import buffers
from mpicoll.runtime.groups.packed import PACKABLE

pytestmark = [pytest.mark.gpu, pytest.mark.mpi(min_size=2)]

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
RIGHT, LEFT = (RANK + 1) % SIZE, (RANK - 1) % SIZE
#: elements of a message
COUNTS = (0, 1, 111, 5000, 1_000_003)
#: elements of a block of each call of a group
MANY = (3, 0, 1000, 17, 1, 6000)


@pytest.fixture(params=["direct", "staged"])
def comm(request):
    """A communicator whose messages take a path."""
    with mpicoll.override(path=request.param):
        made = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        made.Barrier()
        yield made
        made.Free()


@pytest.fixture(scope="module")
def mapped():
    """A communicator with channels; skipped where there can be none."""
    import cupy

    comm = connected(mapped_shared=True)
    with mpicoll.override(mapped_shared=True), mpicoll.group(comm):
        comm.Allreduce(MPI.IN_PLACE, cupy.ones(1))
    if isinstance(comm._get_context().attached["channels"], str):
        pytest.skip(comm._get_context().attached["channels"])
    yield comm
    comm.Free()


def values(xp, count, rank, turn=0):
    return xp.arange(count, dtype="f8") + 1000.0 * rank + 7.0 * turn


@pytest.mark.parametrize("kind", ["pool", "async", "managed"])
def test_messages_of_every_kind_of_memory(comm, kind):
    import cupy as xp

    with allocating(kind):
        for count in COUNTS:
            x, y = xp.zeros(count), xp.full(count, -1.0)
            spin(1_000_000)
            x += values(xp, count, RANK)
            comm.Sendrecv(x, RIGHT, 3, y, LEFT, 3)
            assert (y == values(xp, count, LEFT)).all()
            y.fill(-1)
            spin(1_000_000)
            x += 1
            requests = [comm.Irecv(y, LEFT, 4), comm.Isend(x, RIGHT, 4)]
            MPI.Request.Waitall(requests)
            assert (y == values(xp, count, LEFT) + 1).all()


def test_strided_messages_of_all_dtypes(comm):
    import cupy as xp

    for dtype in ("?", "i1", "u2", "f2", "f4", "f8", "c8", "c16"):
        x = (xp.arange(400).reshape(20, 20) % 5 + RANK % 2).astype(dtype)
        y = xp.zeros((20, 30), dtype)
        comm.Sendrecv(x.T[::2], RIGHT, 0, y[::2, 1:21], LEFT, 0)
        wanted = (xp.arange(400).reshape(20, 20) % 5 + LEFT % 2).astype(dtype).T[::2]
        assert (y[::2, 1:21] == wanted).all()
        assert not y[1::2].any()


def test_either_end_may_be_on_the_host(comm):
    import cupy as xp

    x, y = np.arange(70_000.0), np.zeros(70_000)
    on_device = xp.asarray(x)
    for sender, target in ((on_device, y), (x, xp.zeros(70_000)), (on_device, xp.zeros(70_000))):
        if RANK == 0:
            comm.Send(sender, 1, 1)
        if RANK == 1:
            status = MPI.Status()
            comm.Recv(target, MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            assert status.Get_count(MPI.DOUBLE) == 70_000
            assert (target == on_device).all() if target is not y else (y == x).all()


def test_torch_tensors_are_sent(comm):
    torch = pytest.importorskip("torch")
    x = torch.arange(3000.0, device="cuda") + RANK
    y = torch.zeros(3000, device="cuda")
    comm.Sendrecv(x, RIGHT, 0, y, LEFT, 0)
    assert torch.equal(y, torch.arange(3000.0, device="cuda") + LEFT)


def halo(comm, x, y, tags=(1, 2)):
    """Send halves of x to both neighbours, and receive into halves of y."""
    half = len(x) // 2
    with mpicoll.group(comm):
        comm.Send(x[:half], LEFT, tags[0])
        comm.Send(x[half:], RIGHT, tags[1])
        comm.Recv(y[half:], RIGHT, tags[0])
        comm.Recv(y[:half], LEFT, tags[1])


def came(xp, count, turn=0):
    """What halo brings."""
    half = count // 2
    return xp.concatenate([values(xp, count, LEFT, turn)[half:][:half], values(xp, count, RIGHT, turn)[: count - half]])


def test_groups_of_messages_through_channels(mapped):
    """Sizes up and down, on two streams in turn, each after what is on its stream."""
    import cupy as xp

    streams = [xp.cuda.Stream(non_blocking=True), xp.cuda.get_current_stream()]
    for turn in range(6):
        for count in (0, 2, 222, 10_000, 2_000_006):
            with streams[turn % 2]:
                x, y = xp.zeros(count), xp.full(count, -1.0)
                spin(300_000)
                x += values(xp, count, RANK, turn)
                halo(mapped, x, y)
                assert (y == came(xp, count, turn)).all()


def test_the_same_messages_again_and_again(mapped):
    """They are found by their arrays, whose contents change."""
    import cupy as xp

    x, y = xp.zeros(16_384), xp.zeros(16_384)
    parts = x[:8192], x[8192:], y[8192:], y[:8192]
    for turn in range(50):
        x[:] = values(xp, 16_384, RANK, turn)
        with mpicoll.group(mapped):
            mapped.Send(parts[0], LEFT, 1)
            mapped.Send(parts[1], RIGHT, 2)
            mapped.Recv(parts[2], RIGHT, 1)
            mapped.Recv(parts[3], LEFT, 2)
        got = y.copy()
        y.fill(-1)
        assert (got == came(xp, 16_384, turn)).all()


def test_groups_are_captured_and_replayed(mapped):
    """Between replays other messages and calls go through the same memory."""
    import cupy as xp

    x, y, z = xp.zeros(16_384), xp.zeros(16_384), xp.zeros(100)
    halo(mapped, x, y)
    xp.cuda.get_current_stream().synchronize()  # a replay does not wait for what is on other streams
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        halo(mapped, x, y)
        mapped.Allreduce(MPI.IN_PLACE, z)
        graph = stream.end_capture()
        for turn in range(10):
            x[:] = values(xp, 16_384, RANK, turn)
            z[:] = RANK
            graph.launch(stream)
            assert (y == came(xp, 16_384, turn)).all()
            assert (z == sum(range(SIZE))).all()
            if turn % 3 == 0:
                a, b = xp.full(5000, RANK + 0.0), xp.zeros(5000)
                halo(mapped, a, b)
                assert (b[:2500] == LEFT).all()
                assert (b[2500:] == RIGHT).all()


def test_many_messages_in_other_orders_of_tags(mapped):
    import cupy as xp

    sizes = (10, 100_000, 3, 7000)
    sent, got = [xp.full(n, RANK * 10.0 + k) for k, n in enumerate(sizes)], [xp.zeros(n) for n in sizes]
    for _ in range(3):
        with mpicoll.group(mapped):
            for k in range(4):
                mapped.Send(sent[k], RIGHT, k)
            for k in reversed(range(4)):
                mapped.Recv(got[k], LEFT, k)
            mapped.Send(sent[0], RANK, 9)
            mapped.Recv(got[0], RANK, 9) if SIZE == 0 else mapped.Recv(xp.zeros(10), RANK, 9)
        assert all((g == LEFT * 10.0 + k).all() for k, g in enumerate(got))


@pytest.mark.parametrize("path", ["mapped", "direct", "staged"])
def test_many_small_calls_in_a_group(path):
    """They are as single ones, with new numbers each time and other arrays in between."""
    import cupy as xp

    with mpicoll.override(path=path, mapped_shared=True):
        comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
        for turn in range(6):
            xs = [xp.full(1 + 37 * k, RANK + turn + k, "f4") for k in range(40)]
            ys = [xp.zeros_like(x) for x in xs]
            for again in range(2):
                spin(300_000)
                with mpicoll.group(comm):
                    for x, y in zip(xs, ys, strict=True):
                        comm.Allreduce(x, y)
                for k, y in enumerate(ys):
                    assert (y == sum(range(SIZE)) + SIZE * (turn + k)).all(), (turn, again, k)
            comm.Allreduce(MPI.IN_PLACE, ys, MPI.MAX)
            assert all((y == sum(range(SIZE)) + SIZE * (turn + k)).all() for k, y in enumerate(ys))
        comm.Free()


def device_buffers(xp, method, number, count, in_place):
    """The arguments of a call on device arrays, and the array in which its result will be."""
    arguments, result = buffers(method, number, count, in_place)
    arrays = {id(one): xp.asarray(one) for one in (*arguments, result) if isinstance(one, np.ndarray)}
    return tuple(arrays.get(id(one), one) for one in arguments), arrays[id(result)]


def in_manner(manner, number):
    """Whether a call of a group is in place."""
    return manner == "in place" or (manner == "some in place" and number % 2 == RANK % 2)


def device_calls(xp, method, manner, turn):
    """Calls of a group; other numbers each turn."""
    return [
        device_buffers(xp, method, number + 10 * turn, count, in_manner(manner, number))
        for number, count in enumerate(MANY)
    ]


def grouped(comm, method, calls):
    with mpicoll.group(comm):
        for arguments, _ in calls:
            getattr(comm, method)(*arguments)


def single(comm, method, calls):
    for arguments, _ in calls:
        getattr(comm, method)(*arguments)


def same(calls, others):
    """Whether all results are equal."""
    return all((one == other).all() for (_, one), (_, other) in zip(calls, others, strict=True))


@pytest.mark.parametrize("manner", ["apart", "in place", "some in place"])
@pytest.mark.parametrize("method", PACKABLE)
def test_groups_of_every_method_are_as_single_calls(mapped, method, manner):
    """With other arrays each time, and the same ones again; a rank may do in place what another one does not."""
    import cupy as xp

    for turn in range(4):
        for again in range(2):
            made, alone = (device_calls(xp, method, manner, turn) for _ in range(2))
            spin(300_000)
            single(mapped, method, alone)
            grouped(mapped, method, made)
            assert same(made, alone), (turn, again)
    if manner == "apart":
        for _ in range(3):
            grouped(mapped, method, made)
            assert same(made, alone)


@pytest.mark.parametrize("manner", ["apart", "in place", "some in place"])
@pytest.mark.parametrize("method", PACKABLE)
def test_groups_of_every_method_are_captured_and_replayed(mapped, method, manner):
    """Between replays other groups of the same sizes have other arrays; what was captured keeps its own."""
    import cupy as xp

    made, first = (device_calls(xp, method, manner, 0) for _ in range(2))
    grouped(mapped, method, first)
    stream = xp.cuda.Stream(non_blocking=True)
    with stream:
        grouped(mapped, method, device_calls(xp, method, manner, 1))
        stream.begin_capture()
        try:
            grouped(mapped, method, made)
        finally:
            graph = stream.end_capture()
        for turn in range(2, 8):
            alone, others = (device_calls(xp, method, manner, turn) for _ in range(2))
            for (ours, _), (theirs, _) in zip(made, alone, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    if isinstance(one, xp.ndarray):
                        one[...] = other
            single(mapped, method, alone)
            graph.launch(stream)
            assert same(made, alone), turn
            grouped(mapped, method, others)
            assert same(others, alone), turn


def test_long_groups_of_calls(mapped):
    """More tiles than slots, in several waves; the larger inboxes are mapped on the way."""
    import cupy as xp

    for turn in range(3):
        xs = [xp.full(count, 1.0 + RANK + k + turn) for k, count in enumerate((120_000, 5, 90_001, 0, 77_777) * 6)]
        ys = [xp.full_like(x, -1) for x in xs]
        for algorithm in ("one_shot", "two_shot", "ring", None):
            mapped.Allreduce(xs, ys, algorithm=algorithm)
            wanted = [SIZE * (1 + k + turn) + sum(range(SIZE)) for k in range(len(xs))]
            assert all((y == value).all() for y, value in zip(ys, wanted, strict=True)), (turn, algorithm)
            for y in ys:
                y.fill(-1)
