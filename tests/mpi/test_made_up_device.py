"""What goes around a program, on a device that is made up: order, copies by segment, memory that cannot be mapped."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import REDUCING, VECTOR, Case, Memory, forms
from mpi.made_up_device import install
from mpi.neighbours import TOPOLOGIES
from mpi.neighbours import Call as NeighbourCall
from mpicoll.algorithms import registry
from mpicoll.runtime.arguments.neighbours import NEIGHBOUR_CALLS
from mpicoll.runtime.mpi.cuda_aware import Awareness
from mpicoll.runtime.mpi.waiter import Waiter
from mpicoll.runtime.paths import mirror
from mpicoll.runtime.program.binder import Binder

SIZE = MPI.COMM_WORLD.Get_size()
#: what goes around a program is one rank's own affair: more ranks take time and show nothing new
pytestmark = pytest.mark.ranks(1, 3)
#: the first one hides least, and is tried on one rank only
MANNERS = (pytest.param("early", marks=pytest.mark.ranks(1)), "late", "random")
METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier" and m not in VECTOR]
#: more segments than are in flight
MANY = 9


@dataclass(frozen=True)
class OnDevice(Memory):
    """Arrays of the made-up device."""

    made_up: Any = None

    def to_host(self, array):
        self.made_up.streams.finish()
        return array


@pytest.fixture(params=MANNERS)
def made_up(request, monkeypatch):
    return install(monkeypatch, request.param)


@pytest.fixture
def comm(made_up):
    """A communicator whose MPI takes device pointers; it has done nothing yet."""
    comm = mpicoll.Communicator(MPI.COMM_WORLD.Dup())
    comm._get_context().cuda_aware = Awareness(True, "made up")
    yield comm
    made_up.streams.finish()
    comm.Free()


@pytest.fixture
def nothing_can_be_mapped(monkeypatch):
    monkeypatch.setattr(mirror, "can_be_mapped", lambda address: False)


@pytest.fixture(params=["direct", "staged", "copied"])
def memory(request, made_up):
    """The paths; "copied" is the direct path for memory that peers cannot map."""
    if request.param == "copied":
        request.getfixturevalue("nothing_can_be_mapped")
        return OnDevice(np, "direct", made_up)
    if request.param == "direct":
        request.getfixturevalue("monkeypatch").setattr(mirror, "can_be_mapped", lambda address: True)
    return OnDevice(np, request.param, made_up)


@pytest.mark.parametrize("segments", [1, MANY])
@pytest.mark.parametrize("method", METHODS)
def test_every_algorithm(comm, memory, method, segments):
    """All forms, all algorithms; the sentinels around the arrays stay."""
    for name in next(iter(mpicoll.algorithms(method).values())):
        for form in forms(method):
            count = 40 * SIZE * segments + 7
            check(comm, Case(method, f"{name}/{segments}", count, root=SIZE - 1, form=form), memory)


@pytest.mark.parametrize("method", VECTOR)
@pytest.mark.parametrize("layout", ["gaps", "permuted"])
def test_blocks_of_unequal_lengths(comm, memory, method, layout):
    for form in forms(method)[:2]:
        for pattern in ("uneven", "alternating", "last"):
            case = Case(method, None, pattern=pattern, layout=layout, form=form, spelling="list")
            check(comm, case, memory)


@pytest.mark.parametrize("method", REDUCING)
def test_averages(comm, memory, method):
    for segments in (1, 3):
        check(comm, Case(method, f"linear/{segments}", 500, op="AVG", dtype="float64"), memory)


def test_the_same_arrays_again_and_again(comm, memory):
    """Nothing is awaited in between: what one call enqueues, the next one must come behind."""
    xp_stream = memory.made_up.streams
    x, y = np.zeros(5000), np.zeros(5000)
    for turn in range(1, 8):
        xp_stream.enqueue(0, lambda turn=turn: x.fill(turn) or True)
        with mpicoll.override(path=memory.path):
            comm.Allreduce(x, y, algorithm=f"ring/{1 + turn % 3}")
        got = np.zeros_like(y)
        xp_stream.enqueue(0, lambda got=got: np.copyto(got, y) or True)
        xp_stream.enqueue(0, lambda: y.fill(-1) or x.fill(-2) or True)
        xp_stream.synchronize(0)
        assert (got == turn * SIZE).all()


def test_calls_on_two_streams_share_memory(comm, memory):
    """The second call must not overwrite copies or scratch that the first one still needs."""
    import cupy

    streams = memory.made_up.streams
    first, second = cupy.cuda.Stream(), cupy.cuda.Stream()
    pairs = [(np.zeros(3000), np.zeros(3000)) for _ in range(6)]
    for turn, (x, y) in enumerate(pairs):
        stream = (first, second)[turn % 2]
        streams.enqueue(stream.ptr, lambda x=x, turn=turn: x.fill(turn) or True)
        with mpicoll.override(path=memory.path):
            comm.Allreduce(x, y, stream=stream, algorithm="ring/3")
    streams.finish()
    for turn, (_, y) in enumerate(pairs):
        assert (y == turn * SIZE).all()


def test_calls_that_do_not_block(comm, memory):
    """Several in flight, persistent ones too; each waiting call of theirs can be asked whether it would wait."""
    pairs = [(np.full(2000, 1.0 + k), np.zeros(2000)) for k in range(4)]
    with mpicoll.override(path=memory.path):
        requests = [comm.Iallreduce(x, y, algorithm="ring/3") for x, y in pairs[:3]]
        kept = comm.Allreduce_init(*pairs[3], algorithm="ring/3")
        for _ in range(2):
            kept.Start()
            kept.Wait()
        for request in requests:
            request.Wait()
    memory.made_up.streams.finish()
    for k, (_, y) in enumerate(pairs):
        assert (y == (1.0 + k) * SIZE).all()
    kept.Free()


class Listening:
    """Notes what a communicator's program does, in order: copies, and messages as they are awaited."""

    def __init__(self, monkeypatch, made_up):
        self.messages, self.log = [], made_up.streams.log
        request, waiter = Binder._request, Waiter.waiter

        def noted_request(binder, transfer, lanes, run):
            self.messages.append(run)
            return request(binder, transfer, lanes, run)

        def noted_waiter(own, requests):
            wait = waiter(own, requests)

            def noted():
                self.log.append((0, "wait"))
                wait()

            return noted

        monkeypatch.setattr(Binder, "_request", noted_request)
        monkeypatch.setattr(Waiter, "waiter", noted_waiter)

    def copies(self, *arrays):
        """The log as letters: < a copy from an array, > one to an array, . messages awaited."""
        spans = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays]
        text = ""
        for _, what, *rest in self.log:
            if what == "copy":
                to, origin, _ = rest
                text += "<" * any(a <= origin < b for a, b in spans) + ">" * any(a <= to < b for a, b in spans)
            else:
                text += "."
        return text


def listened(monkeypatch, made_up, comm, path, algorithm, x, y):
    listening = Listening(monkeypatch, made_up)
    with mpicoll.override(path=path):
        comm.Allreduce(x, y, algorithm=algorithm)
    made_up.streams.finish()
    assert (y == SIZE).all()
    return listening


@pytest.mark.mpi(min_size=2)
def test_staged_segments_go_back_while_others_travel(monkeypatch, made_up, comm):
    """All copies to the host are enqueued first, the first copy back long before the last message is awaited."""
    x, y = np.ones(40_000 * SIZE), np.zeros(40_000 * SIZE)
    text = listened(monkeypatch, made_up, comm, "staged", f"ring/{MANY}", x, y).copies(x, y)
    assert text.startswith("<" * MANY + ".")
    assert text.count(">") == MANY
    assert text[text.index(">") :].count(".") >= text.count(".") // 3
    streams = {pointer for pointer, what, *rest in made_up.streams.log if what == "copy" and rest[1] != x.ctypes.data}
    assert len(streams) == 2


def test_one_staged_segment_is_copied_whole(monkeypatch, made_up, comm):
    """Small messages: one copy each way, all on the stream of the call."""
    x, y = np.ones(100), np.zeros(100)
    text = listened(monkeypatch, made_up, comm, "staged", "linear", x, y).copies(x, y)
    assert (text.count("<"), text.count(">")) == (1, 1)
    assert {pointer for pointer, *_ in made_up.streams.log} == {0}


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("which", ["input", "output", "both"])
def test_only_what_cannot_be_mapped_is_copied(monkeypatch, made_up, comm, which):
    """No message touches such an array, and the other one has no copy."""
    x, y = np.ones(40_000), np.zeros(40_000)
    bad = {"input": [x], "output": [y], "both": [x, y]}[which]
    monkeypatch.setattr(mirror, "can_be_mapped", lambda address: address not in [a.ctypes.data for a in bad])
    listening = listened(monkeypatch, made_up, comm, "direct", "two_shot/3", x, y)
    text = listening.copies(*bad)
    assert ("<" in text, ">" in text) == (which != "output", which != "input")
    for array in bad:
        start = array.ctypes.data
        assert not any(start <= address < start + array.nbytes for address, _ in listening.messages)


def test_memory_that_cannot_be_mapped_in_place(made_up, comm, nothing_can_be_mapped):
    """Input and output are one copy; it is made once and kept."""
    y = np.ones(40_000)
    for turn in range(3):
        with mpicoll.override(path="direct"):
            comm.Allreduce(MPI.IN_PLACE, y, algorithm="ring/3")
        made_up.streams.finish()
        assert (y == float(SIZE) ** (turn + 1)).all()
    arenas = comm._get_context().slot(0).arenas
    assert [kind for kind, _ in arenas] == ["device"]
    assert arenas["device", 0].nbytes <= 1 << 20


@pytest.mark.case("MEM-SCRATCH")
def test_memory_runs_short_on_all_ranks(monkeypatch, made_up, comm, nothing_can_be_mapped):
    """With errors="agree" copies are reserved before the first message, and all ranks raise."""
    import cupy

    def none(nbytes):
        if comm.rank == SIZE - 1:
            raise MemoryError("made up")
        return memory(nbytes)

    memory = cupy.cuda.Memory
    monkeypatch.setattr(cupy.cuda, "Memory", none)
    x, y = np.ones(400_000), np.zeros(400_000)
    wanted = MemoryError if comm.rank == SIZE - 1 else mpicoll.MismatchError
    with mpicoll.override(path="direct", errors="agree"), pytest.raises(wanted, match=r"MemoryError|no .* of device"):
        comm.Allreduce(x, y)


@pytest.mark.parametrize("method", [one for one in NEIGHBOUR_CALLS if one != "Neighbor_alltoallw"])  # of the host
def test_neighbours(comm, memory, method):
    """Blocks that nobody sends stay as they are."""
    for name in ("torus", "row", "star"):
        made = TOPOLOGIES[name](comm)
        made._get_context().cuda_aware = Awareness(True, "made up")
        call = NeighbourCall(made, method, gap=2 if method.endswith("v") else 0)
        for _ in range(3):
            with mpicoll.override(path=memory.path):
                getattr(made, method)(*call.arguments)
                getattr(made, f"I{method.lower()}")(*call.arguments).Wait()
            call.compare(memory.to_host)
        assert made.history(1)[0].path == memory.path
        made.Free()
