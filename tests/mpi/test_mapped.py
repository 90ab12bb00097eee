"""The path mapped gives what every other path gives, in both protocols, in one wave and in many.

The inboxes of the narrow communicators are so small that a few thousand elements take several waves.
"""

import numpy as np
import pytest
from mpi4py import MPI

import data
import mpicoll
import oracle
from mpi import calling
from mpi.calling import check
from mpi.cases import REDUCING, ROOTED, UNKNOWN_COUNTS, VECTOR, Case, Memory, forms, refusal
from mpi.mapped_comms import KINDS, names
from mpicoll.algorithms import registry

pytestmark = pytest.mark.gpu

SIZE = MPI.COMM_WORLD.Get_size()
RANK = MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier" and m not in VECTOR]
ALGORITHMS = [(m, a) for m in METHODS for a in names(m)]
COUNTS = {0, 1, SIZE - 1, SIZE, SIZE + 1, 1000}
#: elements of several waves: of narrow inboxes, of the usual ones
MANY, MOST = 100_003, 3_000_000
#: elements of rank r's block: very long, short, and none
STEEP = (200_003, 1, 0, 5000)


@pytest.fixture(params=KINDS)
def comm(request, kinds, monkeypatch):
    """A communicator for each protocol, with usual and with narrow inboxes."""
    return kinds.comm(request.param, monkeypatch)


@pytest.fixture
def memory():
    import cupy

    return Memory(cupy, "mapped")


def on_path(algorithm):
    return f"{algorithm}@mapped"


def test_the_plan_says_so(comm, memory):
    with mpicoll.override(path=None):
        x, y = memory.xp.zeros(10), memory.xp.zeros(10)
        assert comm.Get_plan("Allreduce", x, y, algorithm="ring@mapped").path == "mapped"


@pytest.mark.parametrize("name", ["lines", "slices"])
def test_the_protocol_is_the_one_that_is_tested_and_narrow_inboxes_have_fewer_slots(kinds, monkeypatch, memory, name):
    """On a machine without NVLink both are `slices`."""
    from mpicoll.runtime.paths.mapped import kernel

    choose, taken = kernel.protocol_for, []
    monkeypatch.setattr(kernel, "protocol_for", lambda *given: taken.append(choose(*given)) or taken[-1])
    for kind in (name, f"narrow {name}"):
        comm = kinds.comm(kind, monkeypatch)
        comm.Allreduce(memory.xp.ones(1234), memory.xp.zeros(1234), algorithm="ring@mapped")
    (wide, slots), (narrow, fewer) = taken
    assert {wide.name, narrow.name} == {name if comm._get_context().attached["mapped"].linked else "slices"}
    assert fewer < slots


@pytest.mark.parametrize(("method", "algorithm"), ALGORITHMS)
def test_every_algorithm(comm, memory, method, algorithm):
    """Each count, root and form meets every other."""
    roots = (0, SIZE - 1) if method in ROOTED else (0,)
    for row in data.pairwise({"count": sorted(COUNTS), "root": roots, "form": forms(method)}):
        check(comm, Case(method, on_path(algorithm), **row), memory)


@pytest.mark.parametrize(("method", "algorithm"), ALGORITHMS)
def test_every_algorithm_in_several_waves(comm, memory, method, algorithm):
    for turn, form in enumerate(forms(method)):
        check(comm, Case(method, on_path(algorithm), MANY, root=-turn, form=form), memory)


@pytest.mark.parametrize("kind", ["lines", "slices"])
@pytest.mark.parametrize(("method", "algorithm"), ALGORITHMS)
def test_every_algorithm_with_megabytes(kinds, monkeypatch, memory, method, algorithm, kind):
    """Several waves of inboxes of the usual size."""
    free = registry.collective(method).free
    check(kinds.comm(kind, monkeypatch), Case(method, on_path(algorithm), MOST // (1 if free else SIZE)), memory)


@pytest.mark.parametrize("dtype", data.DTYPES)
def test_every_operator_on_every_dtype(kinds, monkeypatch, memory, dtype):
    """The protocols and two algorithms take turns; other methods are test_operators'."""
    for turn, op in enumerate(op for op in data.OPERATORS if oracle.supports(op, dtype)):
        comm = kinds.comm(("lines", "slices")[(turn + data.DTYPES.index(dtype)) % 2], monkeypatch)
        algorithm = ("one_shot", "two_shot")[turn // 2 % 2]
        check(comm, Case("Allreduce", on_path(algorithm), 1003, dtype=dtype, op=op), memory)


@pytest.mark.parametrize("dtype", [*data.FLOATS, *data.COMPLEX])
def test_average(comm, memory, dtype):
    for method in REDUCING:
        check(comm, Case(method, on_path(names(method)[0]), 1000, dtype=dtype, op="AVG"), memory)


def test_bfloat16(comm, memory):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    try:
        memory.xp.asarray(np.ones(3, bfloat16))
    except Exception as error:  # CuPy says it in more than one way
        pytest.skip(f"this CuPy has no bfloat16: {error}")
    for op in ("SUM", "PROD", "MAX", "MIN", "LAND"):
        check(comm, Case("Allreduce", "one_shot@mapped", 1001, dtype="bfloat16", op=op), memory)


@pytest.mark.parametrize("dtype", data.DTYPES)
def test_every_dtype_is_moved(comm, memory, dtype):
    for method in (m for m in METHODS if m not in REDUCING):
        for algorithm in names(method):
            check(comm, Case(method, on_path(algorithm), 1001, dtype=dtype, root=-1), memory)


@pytest.mark.parametrize(("method", "algorithm"), [(m, a) for m in (*VECTOR, "Reduce_scatter") for a in names(m)])
def test_uneven_blocks(comm, memory, method, algorithm, monkeypatch):
    """Some are empty, or have many waves where others have one."""
    monkeypatch.setitem(calling.PATTERNS, "steep", lambda r, p: STEEP[r % 4])
    layouts = ("dense", "gaps", "permuted") if method in VECTOR else ("dense",)
    roots = (0, SIZE - 1) if method in ROOTED else (0,)
    axes = {"pattern": tuple(calling.PATTERNS), "root": roots, "layout": layouts, "form": forms(method)}
    refused = method in UNKNOWN_COUNTS and refusal(Case(method, algorithm), SIZE)
    for row in [{"pattern": "uneven"}] if refused else data.pairwise(axes):
        check(comm, Case(method, on_path(algorithm), **row), memory)


@pytest.mark.parametrize(("dtype", "start"), [("f8", 1), ("f4", 1), ("f2", 3), ("u1", 3), ("c16", 1), ("u1", 15)])
def test_slices_that_are_not_aligned(comm, memory, dtype, start):
    """Input and output at addresses that differ in what is left over from 16."""
    xp, count = memory.xp, 5003
    for algorithm in ("one_shot", "two_shot", "ring", "recursive_doubling"):
        x, y = xp.full(count + start, RANK + 1, dtype), xp.zeros(count + 2, dtype)
        comm.Allreduce(x[start:], y[1:-1], algorithm=on_path(algorithm))
        found = y.get()
        assert found[0] == found[-1] == 0
        assert (found[1:-1] == SIZE * (SIZE + 1) // 2).all()


def test_arrays_that_are_not_contiguous(comm, memory):
    """Packed before, unpacked behind."""
    xp = memory.xp
    x, y = xp.arange(6000.0).reshape(60, 100) + RANK, xp.zeros((60, 100))
    comm.Allreduce(x[::2, 1::3], y[1::2, ::3][:, :33], algorithm="two_shot@mapped")
    expected = np.zeros((60, 100))
    whole = np.arange(6000.0).reshape(60, 100)
    expected[1::2, ::3][:, :33] = SIZE * whole[::2, 1::3] + SIZE * (SIZE - 1) / 2
    assert (y.get() == expected).all()
    z = xp.full((40, 50), float(RANK))
    comm.Bcast(z.T[3:7], root=SIZE - 1, algorithm="ring@mapped")
    expected = np.full((40, 50), float(RANK))
    expected[:, 3:7] = SIZE - 1
    assert (z.get() == expected).all()


def test_fortran_order_is_kept(comm, memory):
    """Elements are counted in C order, wherever they lie."""
    xp = memory.xp
    x = xp.asfortranarray(xp.arange(600.0).reshape(20, 30) * (RANK + 1))
    y = xp.zeros((20, 30))
    comm.Allreduce(x, y, algorithm="ring@mapped")
    assert (y.get() == np.arange(600.0).reshape(20, 30) * (SIZE * (SIZE + 1) / 2)).all()


@pytest.mark.parametrize("algorithm", names("Allreduce"))
def test_in_place_many_times(comm, memory, algorithm):
    """What was read of a block is what it held before the call."""
    if refusal(Case("Allreduce", algorithm), SIZE):
        pytest.skip("not for so many ranks")
    x = memory.xp.ones(MANY, "i8")
    for _ in range(20):
        comm.Allreduce(MPI.IN_PLACE, x, algorithm=on_path(algorithm))
    assert (x.get() == np.array(SIZE, "i8") ** 20).all()


@pytest.mark.parametrize("odd", [False, True], ids=["all ranks", "odd ranks"])
def test_arrays_of_another_device_than_the_inboxes(comm, memory, odd):
    """They are copied, on the ranks that have them; the current device stays."""
    cuda = memory.xp.cuda
    mine, count = cuda.Device().id, cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip("one device")
    with cuda.Device((mine + 1) % count if RANK % 2 or not odd else mine):
        here = cuda.Device().id
        for method in ("Allreduce", "Bcast", "Alltoall", "Reduce_scatter_block"):
            for form in forms(method):
                check(comm, Case(method, on_path(names(method)[0]), 1001, form=form), memory)
        assert cuda.Device().id == here
