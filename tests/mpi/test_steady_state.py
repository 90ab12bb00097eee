"""COST-STEADY: a call that was made before allocates, compiles, plans and binds nothing.

On NumPy arrays, and on a device that is made up, by each path.
"""

import gc
import tracemalloc
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.cases import VECTOR
from mpi.made_up_device import Memory, install
from mpicoll.algorithms import registry
from mpicoll.runtime.call import execute, planning
from mpicoll.runtime.context.scratch import Arena
from mpicoll.runtime.mpi.cuda_aware import Awareness
from mpicoll.runtime.paths import messages, mirror
from mpicoll.runtime.program.binder import Binder
from mpicoll.schedule import pack as packing

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m not in VECTOR]
TIMES = 100
COUNT = 40 * SIZE


def arguments(method):
    """Arrays, and what a call is made with; arguments that do not change."""
    many = method.split("_")[0] in ("Alltoall", "Scatter", "Reduce") and method not in ("Reduce",)
    gathers = method in ("Allgather", "Gather", "Alltoall")
    x = np.ones(COUNT * (SIZE if many else 1))
    y = np.zeros(COUNT * (SIZE if gathers else 1))
    if method == "Barrier":
        return ()
    if method == "Bcast":
        return (x,)
    if method == "Reduce_scatter":
        return x, y, (COUNT,) * SIZE
    return x, y


@contextmanager
def counted(monkeypatch, *places):
    """Count calls of functions, given as (owner, name)."""
    counts = Counter()

    def counting(name, function):
        def call(*args, **named):
            counts[name] += 1
            return function(*args, **named)

        return call

    with monkeypatch.context() as patch:
        for owner, name in places:
            patch.setattr(owner, name, counting(name, getattr(owner, name)))
        yield counts


WORK = [
    (planning, "make_plan"),
    (messages, "compile_program"),
    (packing, "pack"),
    (execute, "bind_new"),
    (Binder, "bind"),
    (Arena, "reserve"),
]


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_made_again(monkeypatch, comm, method):
    call, given = getattr(comm, method), arguments(method)
    with counted(monkeypatch, *WORK) as first:
        call(*given)
    assert first["bind"] == first["bind_new"] == 1
    with counted(monkeypatch, *WORK) as again:
        for _ in range(TIMES):
            call(*given)
    assert not again


@pytest.mark.parametrize("method", METHODS)
def test_other_arrays_of_that_shape_are_only_bound(monkeypatch, comm, method):
    first, *others = [arguments(method) for _ in range(4)]  # all kept, or memory would be the same again
    getattr(comm, method)(*first)
    with counted(monkeypatch, *WORK) as again:
        for given in others:
            getattr(comm, method)(*given)
    assert not again["compile_program"]
    assert not again["pack"]
    assert again["bind"] == (0 if method == "Barrier" else 3)


@pytest.mark.ranks(1, 2)  # the others would do the same
@pytest.mark.parametrize("method", METHODS)
def test_memory_does_not_grow(comm, method):
    """Neither what is kept, nor what a single call needs while it runs."""
    call, given = getattr(comm, method), arguments(method)
    for _ in range(3):
        call(*given)
    gc.collect()
    tracemalloc.start()
    try:
        call(*given)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(TIMES):
            call(*given)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4096
    assert peak - before < 16384


@pytest.mark.parametrize("persistent", [False, True], ids=["nonblocking", "persistent"])
def test_calls_that_do_not_block(monkeypatch, comm, persistent):
    """A nonblocking call binds in each of its slots once, a persistent one when it is made."""
    x, y = arguments("Allreduce")
    made = comm.Allreduce_init(x, y) if persistent else None
    for _ in range(10):
        comm.Iallreduce(x, y).Wait()
    with counted(monkeypatch, *[w for w in WORK if w[1] not in ("make_plan", "find")]) as again:
        for _ in range(TIMES):
            if made:
                made.Start()
                made.Wait()
            else:
                comm.Iallreduce(x, y).Wait()
    assert not again


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.parametrize("path", ["direct", "staged", "copied"])
def test_on_a_device(monkeypatch, comm, path, segments):
    """No memory, event or stream is made either, and no address is looked at."""
    made_up = install(monkeypatch, "random")
    comm._get_context().cuda_aware = Awareness(True, "made up")
    monkeypatch.setattr(mirror, "can_be_mapped", lambda address: path != "copied")
    import cupy

    x, y = arguments("Allreduce")
    places = [*WORK, (Memory, "__init__"), (cupy.cuda, "Event"), (mirror, "can_be_mapped")]
    with mpicoll.override(path="staged" if path == "staged" else "direct"):
        comm.Allreduce(x, y, algorithm=f"ring/{segments}")
        numbers = made_up.last
        with counted(monkeypatch, *places) as again:
            for _ in range(TIMES):
                comm.Allreduce(x, y, algorithm=f"ring/{segments}")
    made_up.streams.finish()
    assert not again
    assert made_up.last == numbers
    assert (y == SIZE).all()
