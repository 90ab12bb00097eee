"""The path bridged gives what every other path gives: kernels inside hosts, messages between them.

Hosts are forced on one machine by the setting `topology`.
"""

import pytest
from mpi4py import MPI

import data
import mpicoll
from mpi.calling import check
from mpi.cases import ROOTED, VECTOR, Case, Memory, forms
from mpicoll.algorithms import known, registry
from mpicoll.runtime.paths import offer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MPI.COMM_WORLD.size < 3, reason="two hosts need 3 ranks")]

SIZE, RANK = MPI.COMM_WORLD.Get_size(), MPI.COMM_WORLD.Get_rank()
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier" and m not in VECTOR]
ALGORITHMS = [(m, card.name) for m in METHODS for card in known(registry.collective(m).name) if card.by_hosts]
COUNTS = (0, 1, SIZE - 1, SIZE + 1, 1000, 100_003)
#: hosts in blocks, in turns, and one with a single rank
HOSTS = {
    "blocks": "hosts=2",
    "turns": ",".join("+".join(str(r) for r in range(host, SIZE, 2)) for host in range(2)),
    "uneven": f"0-{SIZE - 2},{SIZE - 1}",
}
ITS = {"mapped_shared": True}


@pytest.fixture(scope="module")
def hosts():
    """Communicators on forced hosts, by name."""
    made = {}
    yield made
    for comm in made.values():
        comm.Free()


@pytest.fixture(params=HOSTS)
def comm(request, hosts):
    import cupy

    if request.param not in hosts:
        with mpicoll.override(topology=HOSTS[request.param], **ITS):
            hosts[request.param] = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
            offer.connect(hosts[request.param]._get_context(), cupy.cuda.Device().id)
    found = hosts[request.param]
    if isinstance(why := found._get_context().attached["bridged"], str):
        pytest.skip(f"path bridged is not offered: {why}")
    return found


@pytest.fixture(params=[None, False], ids=["direct", "staged"])
def memory(request, monkeypatch, comm):
    """Arrays of CuPy; messages from them, or from copies on the host."""
    import cupy

    context = comm._get_context()
    if request.param is None and not context.cuda_aware.aware:
        pytest.skip(f"MPI is not given device pointers: {context.cuda_aware.reason}")
    if request.param is False:
        monkeypatch.setattr(context, "cuda_aware", type(context.cuda_aware)(False, "the test says so"))
        monkeypatch.setattr(context, "cache", type(context.cache)())
    return Memory(cupy, "bridged")


@pytest.mark.parametrize(("method", "algorithm"), ALGORITHMS)
def test_every_algorithm(comm, memory, method, algorithm):
    """Each count, root and form meets every other."""
    roots = (0, SIZE - 1) if method in ROOTED else (0,)
    for row in data.pairwise({"count": COUNTS, "root": roots, "form": forms(method)}):
        check(comm, Case(method, f"{algorithm}@bridged", **row), memory)


@pytest.mark.parametrize("op", ["MAX", "PROD"])
@pytest.mark.parametrize("dtype", ["float64", "int32", "float16"])
def test_operators_and_types(comm, memory, dtype, op):
    for algorithm in ("striped", "leader"):
        check(comm, Case("Allreduce", f"{algorithm}@bridged", 999, dtype=dtype, op=op), memory)


def test_calls_that_do_not_block_take_their_turn(comm, memory):
    """Twenty at once, with calls of another algorithm between them, on streams of their own."""
    xp, calls = memory.xp, []
    with mpicoll.override(path=memory.path):
        for k in range(20):
            x, y = xp.full(1000 + k, RANK + k, "f4"), xp.zeros(1000 + k, "f4")
            algorithm = "striped@bridged" if k % 3 else "leader@bridged"
            calls.append((comm.Iallreduce(x, y, algorithm=algorithm), y, k, x))
        for request, y, k, _ in reversed(calls):
            request.Wait()
            assert (y == SIZE * k + SIZE * (SIZE - 1) // 2).all()


def test_persistent_calls(comm, memory):
    xp = memory.xp
    x, y = xp.zeros(5000, "f4"), xp.zeros(5000, "f4")
    with mpicoll.override(path=memory.path):
        request = comm.Allreduce_init(x, y, algorithm="striped@bridged")
        for turn in range(5):
            x.fill(RANK + turn)
            request.Start()
            request.Wait()
            assert (y == SIZE * turn + SIZE * (SIZE - 1) // 2).all()
        request.Free()


def test_results_are_there_for_what_comes_later_on_the_stream(comm, memory):
    import cupy

    with mpicoll.override(path=memory.path), cupy.cuda.Stream(non_blocking=True):
        x, y = cupy.ones(300_000, "f4"), cupy.zeros(300_000, "f4")
        for _ in range(20):
            x.fill(1)
            comm.Allreduce(x, y, algorithm="striped@bridged")
            x[...] = y / SIZE
            comm.Bcast(x, algorithm="leader@bridged")
        assert float(x.sum()) == x.size


def test_it_is_chosen_by_the_cost_model_where_peers_are_on_several_hosts(comm, memory):
    """The path mapped is left out, as it is on several machines."""
    context = comm._get_context()
    kept, context.attached["mapped"] = context.attached.get("mapped"), "ranks are on several hosts"
    try:
        with mpicoll.override(path=None, tuning="model"):
            plan = comm.Get_plan("Allreduce", memory.xp.ones(1 << 20), memory.xp.ones(1 << 20))
        assert plan.choice.path in ("bridged", "direct")
        assert any(one.choice.path == "bridged" for one in plan.candidates())
    finally:
        context.attached["mapped"] = kept
