"""One buffer for both sides, buffers that do not matter, and buffers that must not be written."""

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import VECTOR, Case, forms
from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.methods import read_call
from mpicoll.runtime.arguments.operands import MOST_HELD

pytestmark = pytest.mark.usefixtures("on_path")

METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
SIZE = MPI.COMM_WORLD.Get_size()


@pytest.mark.case("ALIAS")
def test_one_array_for_both_sides(world, memory):
    """Exactly the same memory is in place; a part of it is refused before anything is sent."""
    xp, rank = memory.xp, world.rank
    x = xp.full(6, rank + 1.0)
    world.Allreduce(x, x)
    assert memory.to_host(x).tolist() == [SIZE * (SIZE + 1) / 2] * 6
    many = xp.full(SIZE, -1.0)
    many[rank] = rank
    world.Allgather(many[rank : rank + 1], many)
    assert memory.to_host(many).tolist() == list(range(SIZE))
    x = xp.arange(8.0)
    for send, recv in ((x[0:6], x[2:8]), (x[2:8], x[0:6])):
        with pytest.raises(ValueError, match=r"^allreduce: recvbuf overlaps sendbuf; use MPI.IN_PLACE$"):
            world.Allreduce(send, recv)
    assert memory.to_host(x).tolist() == list(range(8))


@pytest.mark.case("INPLACE-RS", "INPLACE-DISPL", "INPLACE-ROOT")
@pytest.mark.parametrize("method", METHODS)
def test_in_place_with_every_method_that_has_it(world, memory, method):
    """Own blocks are read where they are, for any root."""
    for form in forms(method)[1:]:
        for root in {0, SIZE - 1}:
            vector = method in VECTOR
            case = Case(method, None, 5, "uneven" if vector else "", "permuted" if vector else "dense", root=root)
            check(world, Case(**{**vars(case), "form": form}), memory)


@pytest.mark.case("INPLACE-RS")
def test_in_place_at_the_front(world, memory):
    """The whole input is read, and the result lies at the front, as in MPI."""
    x = memory.xp.arange(3.0 * SIZE) + world.rank
    world.Reduce_scatter_block(MPI.IN_PLACE, x)
    mine = np.arange(3.0 * SIZE)[3 * world.rank : 3 * world.rank + 3]
    assert memory.to_host(x)[:3].tolist() == sum(mine + r for r in range(SIZE)).tolist()
    counts = [2 * r + 1 for r in range(SIZE)]
    x = memory.xp.arange(float(sum(counts))) + world.rank
    world.Reduce_scatter(MPI.IN_PLACE, x, counts)
    start = sum(counts[: world.rank])
    mine = np.arange(float(sum(counts)))[start : start + counts[world.rank]]
    assert memory.to_host(x)[: len(mine)].tolist() == sum(mine + r for r in range(SIZE)).tolist()


def exchanged(whole, counts, rank):
    """Return the array of a rank after an alltoall in place with these counts, from what each rank had."""
    starts = np.concatenate([[0], np.cumsum(counts[rank])])
    found = whole[rank].copy()
    for other in range(SIZE):
        start = sum(counts[other][:rank])
        found[starts[other] : starts[other + 1]] = whole[other][start : start + counts[other][rank]]
    return found


def in_place(method, rank, xp):
    """Return (arguments of a call in place, its array, what it must hold afterwards, from what all ranks had)."""
    even, sums = not method.endswith(("v", "scatter")), method.startswith("Reduce")
    counts = [[2 if even else 1 + (r + q) % 3 for q in range(SIZE)] for r in range(SIZE)]
    part = counts[0] if sums else counts[rank]
    x = xp.zeros(sum(part))
    lengths = [x.size if sums else sum(counts[r]) for r in range(SIZE)]

    def wanted(number):
        whole = [np.arange(1.0 * length) * (r + 1) + number for r, length in enumerate(lengths)]
        if not sums:
            return whole[rank], exchanged(whole, counts, rank)
        found, start = whole[rank].copy(), sum(part[:rank])
        found[: part[rank]] = sum(whole)[start : start + part[rank]]
        return whole[rank], found

    spec = (x, part) if method == "Alltoallv" else x
    return (MPI.IN_PLACE, spec, *([part] if method == "Reduce_scatter" else [])), x, wanted


@pytest.mark.case("INPLACE-RS")
@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
@pytest.mark.parametrize("most", [MOST_HELD, 0], ids=["own copy", "copy for each call"])
@pytest.mark.parametrize("method", ["Alltoall", "Alltoallv", "Reduce_scatter_block", "Reduce_scatter"])
def test_copies_of_calls_in_place_are_new_each_time(world, memory, monkeypatch, method, most, form):
    """Whether the remembered program has the copy, or each call makes one."""
    monkeypatch.setattr("mpicoll.runtime.arguments.operands.MOST_HELD", most)
    arguments, x, wanted = in_place(method, world.rank, memory.xp)
    request = getattr(world, f"{method}_init")(*arguments) if form == "persistent" else None
    calls = {
        "blocking": lambda: getattr(world, method)(*arguments),
        "nonblocking": lambda: getattr(world, f"I{method.lower()}")(*arguments).Wait(),
        "persistent": lambda: (request.Start(), request.Wait()),
    }
    for number in range(4):
        before, after = wanted(number)
        x[:] = memory.xp.asarray(before)
        calls[form]()
        assert memory.to_host(x).tolist() == after.tolist(), number
    if request is not None:
        request.Free()


def test_a_call_in_place_is_remembered_if_its_copy_is_small(world, monkeypatch):
    x, calls = np.arange(77.0 * SIZE), []  # which no other test has
    monkeypatch.setattr("mpicoll.runtime.call.decision.read_call", lambda *given: calls.append(1) or read_call(*given))
    for _ in range(3):
        world.Alltoall(MPI.IN_PLACE, x)
        world.Reduce_scatter_block(MPI.IN_PLACE, x)
    assert len(calls) == 2
    large = np.zeros(SIZE * MOST_HELD // 8 + SIZE)
    for _ in range(2):
        world.Alltoall(MPI.IN_PLACE, large)
    assert len(calls) == 4


@pytest.mark.case("GATHER-NONE")
@pytest.mark.parametrize("method", ["Gather", "Gatherv", "Reduce", "Scatter", "Scatterv"])
@pytest.mark.parametrize("root", {0, SIZE - 1})
def test_none_where_it_does_not_matter(world, memory, method, root):
    """Off the root the other buffer may be None, whoever is the root."""
    rank = world.rank
    one = memory.xp.full(2, float(rank))
    many = memory.xp.arange(2.0 * SIZE) if rank == root else None
    if method == "Reduce":
        world.Reduce(one, many[:2] if rank == root else None, root=root)
    elif method.startswith("Gather"):
        getattr(world, method)(one, many, root)
    else:
        getattr(world, method)(many, one, root)
        assert memory.to_host(one).tolist() == [2 * rank, 2 * rank + 1]
    if rank == root and method.startswith("Gather"):
        assert memory.to_host(many).tolist() == np.repeat(range(SIZE), 2).tolist()


@pytest.mark.case("READONLY")
def test_arrays_that_must_not_be_written(world):
    """Fine where they are only read; refused where they are received into."""
    frozen = np.full(3, 2.0)
    frozen.flags.writeable = False
    assert mpicoll.allreduce(frozen, comm=world).tolist() == [2.0 * SIZE] * 3
    mpicoll.bcast(frozen if world.rank == 0 else np.zeros(3), comm=world)
    for arguments in ((np.ones(3), frozen), (MPI.IN_PLACE, frozen)):
        with pytest.raises(ValueError, match=r"^allreduce: recvbuf is read-only$"):
            world.Allreduce(*arguments)
    assert frozen.tolist() == [2.0] * 3
    world.Bcast(memoryview(b"abc") if world.rank == 0 else bytearray(3))
