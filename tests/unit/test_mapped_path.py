"""The path mapped on a CuPy that only takes notes: what is enqueued, on which stream, in which order."""

import struct
import sys
from functools import cache
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.errors import StalledError
from mpicoll.runtime.arguments import arrays
from mpicoll.runtime.arguments.operators import operator_of
from mpicoll.runtime.call import conductor, execute, flight, planning
from mpicoll.runtime.cuda import kernels, streams
from mpicoll.runtime.paths import offer, table
from mpicoll.runtime.program.bound import LAUNCH, ORDER, SYNC, Bound
from mpicoll.runtime.progress import turns

#: modules that import CuPy
MODULES = [f"mpicoll.runtime.cuda.{name}" for name in ("work", "order", "launch", "migrate")]
MODULES += [f"mpicoll.runtime.paths.{name}" for name in ("staged", "direct")]
MODULES += [f"mpicoll.runtime.paths.mapped.{name}" for name in ("path", "order", "launch", "inboxes", "nvlink")]
#: the caller's streams
CALLER, OTHER = 1, 2


class CudaError(RuntimeError):
    status = 0


class Words(bytearray):
    """Pinned memory."""

    ptr = 4096


class Device:
    id = 0

    def __init__(self, number=None):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class DriverError(RuntimeError):
    #: CUDA_ERROR_INVALID_CONTEXT
    status = 201


def stream_class(made):
    """Return the class of a recorder's streams."""

    class Stream:
        def __init__(self, pointer=None, non_blocking=False):
            self.ptr, self.outer = pointer or made.number(), []

        def __enter__(self):
            self.outer.append(made.current)
            made.current = self.ptr
            return self

        def __exit__(self, *_):
            made.current = self.outer.pop()

        def begin_capture(self):
            made.capturing.add(self.ptr)

        def end_capture(self):
            made.capturing.discard(self.ptr)
            return SimpleNamespace(graphExec="graph")

        @staticmethod
        def from_external(other):
            return Stream(other.ptr)

    return Stream


class Recorder:
    """What stands for CuPy: it enqueues nothing, and notes what was to be."""

    def __init__(self):
        self.log, self.last, self.current, self.capturing, self.ready = [], 100, CALLER, set(), True
        self.strange = False  # to this thread, the device is
        note = self.note
        runtime = SimpleNamespace(
            getDevice=lambda: 0,
            CUDARuntimeError=CudaError,
            streamIsCapturing=lambda stream: stream in self.capturing,
            eventRecord=note("record"),
            streamWaitEvent=note("wait"),
            eventSynchronize=note("await"),
            eventQuery=lambda event: 0 if self.ready else 600,
            graphLaunch=note("graph"),
            deviceSynchronize=note("device"),
            ipcCloseMemHandle=note("unmap"),
            free=note("free"),
            setDevice=self.set_device,
            memcpyPeer=note("copy"),
        )
        self.module = ModuleType("cupy")
        self.module.empty = np.empty
        self.module.ndarray = type("ndarray", (), {})
        stream = stream_class(self)
        self.module.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(launchKernel=self.launch, CUDADriverError=DriverError),
            Event=lambda **_: SimpleNamespace(ptr=self.number()),
            Stream=stream,
            Device=Device,
            get_current_stream=lambda device=0: stream(self.current),
            alloc_pinned_memory=Words,
        )

    def set_device(self, number):
        self.strange = False
        self.log.append(("set device", number))

    def number(self):
        self.last += 1
        return self.last

    def note(self, what):
        return lambda *arguments: self.log.append((what, *arguments))

    def launch(self, function, *rest):
        if self.strange:
            raise DriverError
        stream = rest[7]
        self.log.append(("captured" if stream in self.capturing else "launch", function, stream))

    def taken(self):
        """Return what was noted since the last time."""
        found, self.log[:] = list(self.log), []
        return found


@pytest.fixture
def made(monkeypatch):
    """CuPy's stand-in, the modules over it, and NumPy arrays as device arrays."""
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "cupy", recorder.module)
    for name in MODULES:  # imported anew, now and after the test
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    monkeypatch.setattr(table, "path", cache(table.path.__wrapped__))
    for module in (execute, flight, conductor):
        monkeypatch.setattr(module, "path", table.path)
    monkeypatch.setattr(streams, "_no_device", None)
    monkeypatch.setattr(arrays, "device_of", lambda array: 0)
    monkeypatch.setattr(kernels, "compiled", lambda source, name, device: (name, "module"))
    yield recorder
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def mapped(made):
    return table.path("mapped")


def peers_of(size, device=0):
    from mpicoll.runtime.paths.mapped.inbox_layout import InboxLayout
    from mpicoll.runtime.paths.mapped.inboxes import Peers

    return Peers(device, InboxLayout(size, 8 << 20), [1 << 30, 2 << 30][:size], 0, True)


@pytest.fixture
def comm(mapped):
    """A communicator of one rank that takes itself for one of two, whose kernels need nobody."""
    found = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    context = found._get_context()
    context.size, context.attached["mapped"] = 2, peers_of(2)
    yield found
    turns.in_flight.clear()
    found.Free()


@pytest.fixture
def peers(comm):
    return comm._get_context().attached["mapped"]


@pytest.fixture
def x():
    return np.ones(8)


@pytest.fixture
def y():
    return np.zeros(8)


def late(peers, rank):
    peers._view[4:8] = struct.pack("=I", rank + 1)


def bound_for(mapped, comm, x, y, op=MPI.SUM, stream=CALLER):
    call = conductor.Call(comm._get_context(), "blocking", "Allreduce", (x, y, op), None, None, "")
    operands, context = call.read(), comm._get_context()
    plan = planning.plan_for(operands, context, None, "")
    assert plan.path == "mapped"
    return execute.bind_new(plan, operands, context, stream, context.slot(0))


def test_a_call_is_one_launch(made, mapped, comm, x, y):
    bound = bound_for(mapped, comm, x, y)
    assert (bound.kinds, bound.polls, bound.last_start) == ([LAUNCH], [None], 0)
    made.taken()
    bound.run()
    assert made.taken() == [("launch", "collective", CALLER)]
    assert bound.mark()() is True
    assert made.taken() == [("record", made.last, CALLER)]


def test_an_average_is_divided_behind_the_kernel(made, mapped, comm, x, y):
    bound = bound_for(mapped, comm, x, y, mpicoll.AVG)
    assert (bound.kinds, bound.last_start) == ([LAUNCH, LAUNCH], 1)
    bound.run()
    assert made.taken() == [("launch", "collective", CALLER), ("launch", "divide", CALLER)]


def test_a_time_limit_waits_for_the_end(made, mapped, comm, x, y):
    with mpicoll.override(timeout=5):
        bound = bound_for(mapped, comm, x, y, mpicoll.AVG)
    assert (bound.kinds, bound.last_start, bound.limited) == ([LAUNCH, LAUNCH, ORDER, SYNC], 1, True)
    assert [poll is None for poll in bound.polls] == [True] * 3 + [False]
    bound.run()
    *launched, (record, event, stream), waited = made.taken()
    assert [what for what, *_ in launched] == ["launch", "launch"]
    assert (record, stream, waited) == ("record", CALLER, ("await", event))
    made.ready = False
    assert bound.polls[3]() is False


def test_a_captured_call_waits_for_nothing(made, mapped, comm, x, y):
    made.capturing.add(CALLER)
    with mpicoll.override(timeout=5):
        bound = bound_for(mapped, comm, x, y)
    assert (bound.kinds, bound.limited, bound.mark) == ([LAUNCH], False, None)
    for _ in range(4):  # what is captured is never a graph itself
        bound.run()
    assert made.taken() == [("captured", "collective", CALLER)] * 4


def test_a_late_rank_is_named(made, mapped, comm, peers, x, y):
    context = comm._get_context()
    with mpicoll.override(timeout=5):
        bound = bound_for(mapped, comm, x, y)
        bound.run()
        late(peers, 1)
        context.calls = 7
        with pytest.raises(StalledError, match=r"allreduce #7 .*rank 0, waiting in its kernel for 5 s; rank 1 did not"):
            bound.run()
    assert "allreduce #7" in context.broken
    assert bytes(peers._view[:4]) == struct.pack("=I", 1)  # kernels that wait are told to leave
    context.broken = ""


def test_a_thread_that_has_not_used_the_device_can_launch(made, mapped, comm, x, y):
    bound, made.strange = bound_for(mapped, comm, x, y), True
    bound.run()
    assert made.taken() == [("set device", 0), ("launch", "collective", CALLER)]


def test_what_is_handed_over_comes_after_the_caller_and_ends_with_its_kernel(made, mapped, comm, x, y):
    with mpicoll.override(timeout=5):  # whose wait is left out, for there is one at the end
        bound = bound_for(mapped, comm, x, y, mpicoll.AVG, stream=9)
    handover = SimpleNamespace(side=9, begin=SimpleNamespace(ptr=50), end=SimpleNamespace(ptr=51))
    whole = mapped.handed_over(bound, handover, comm._get_context())
    assert whole.kinds == [ORDER, LAUNCH, LAUNCH, LAUNCH, ORDER, SYNC]
    assert (whole.last_start, whole.keep, whole.device, whole.name) == (3, bound, 0, bound.name)
    made.taken()
    whole.run()
    first, kernel, division, own, end, waited = made.taken()
    assert first == ("wait", 9, 50)
    assert (kernel, division) == (("launch", "collective", 9), ("launch", "divide", 9))
    assert (own[0], own[2], end, waited) == ("record", 9, ("record", 51, 9), ("await", 51))
    assert len(bound.actions) == 4


def test_the_wait_for_the_end_asks_for_the_event(made, mapped, comm):
    from mpicoll.runtime.paths.mapped.path import add_wait

    bound = Bound(name="bcast #{}")
    add_wait(bound, comm._get_context(), 77)
    assert bound.kinds == [SYNC]
    assert bound.polls[0]() is True
    bound.run()
    assert made.taken() == [("await", 77)]


def finished(routine):
    """Return the result of a routine that waits for nothing, and how often it waited."""
    waited = 0
    while True:
        try:
            next(routine)
            waited += 1
        except StopIteration as stop:
            return stop.value, waited


@pytest.mark.parametrize("found", ["ranks are on several hosts", "peers"])
def test_peers_are_prepared_once(made, mapped, monkeypatch, found):
    from mpicoll.runtime.paths.mapped import path

    found, asked = peers_of(2) if found == "peers" else found, []

    def connect(*given):
        asked.append(given)
        yield lambda: True
        return found

    monkeypatch.setattr(path, "connect", connect)
    context = SimpleNamespace(size=2, comm="comm", attached={})
    assert not mapped.is_prepared(context)
    with mpicoll.override(mapped_bytes=1 << 20, mapped_shared=True):
        assert finished(mapped.prepare(context, 3)) == (None, 1)
    assert asked == [("comm", 3, 1 << 20, True)]
    assert mapped.is_prepared(context)
    assert context.attached == {"mapped": found}
    assert mapped.home(context) == (-1 if isinstance(found, str) else 0)


@pytest.mark.parametrize(
    ("size", "nbytes", "why"), [(1, 1 << 20, "there is one rank"), (2, 0, "mapped_bytes is 0"), (1, 0, "there is one")]
)
def test_what_needs_no_peers_asks_none(made, mapped, size, nbytes, why):
    context = SimpleNamespace(size=size, attached={})
    with mpicoll.override(mapped_bytes=nbytes):
        assert finished(mapped.prepare(context, 0)) == (None, 0)
    assert context.attached["mapped"].startswith(why)
    assert mapped.home(context) == -1


def test_why_it_is_not_offered(made, mapped):
    context, operands = SimpleNamespace(size=2, attached={}), SimpleNamespace(op=None, dtype=np.dtype("f4"))
    with mpicoll.override(path="direct"):
        assert mapped.is_prepared(context)  # not wanted now
        assert mapped.unoffered(context, operands) == "path='direct' is set"
    assert not mapped.is_prepared(context)
    context.attached["mapped"] = "ranks share a GPU"
    assert mapped.unoffered(context, operands) == "ranks share a GPU"
    context.attached["mapped"] = peers_of(2)
    assert mapped.unoffered(context, operands) == ""
    python = operator_of("allreduce", mpicoll.Op(max))
    assert "without a CUDA expression" in mapped.unoffered(context, SimpleNamespace(op=python, dtype=operands.dtype))


def test_which_paths_are_offered(made, comm, peers, x, y):
    context = comm._get_context()
    call = conductor.Call(context, "blocking", "Allreduce", (x, y, MPI.SUM), None, None, "")
    operands = call.read()
    for aware in (True, False):
        context.cuda_aware = SimpleNamespace(aware=aware, reason="no UCX")
        expected = ("mapped", "direct", "staged") if aware else ("mapped", "staged")
        assert offer.offered(context, operands) == expected
        assert offer.offered(context, operands, captured=True) == ("mapped",)
    assert offer.reasons(context, operands)["direct"] == "MPI is not given device pointers: no UCX"
    for path, usable in (("staged", ("staged",)), ("direct", ("mapped", "staged")), ("host", ("mapped", "staged"))):
        with mpicoll.override(path=path):
            assert offer.offered(context, operands) == usable
    unwanted = pytest.raises(mpicoll.UnsupportedError, match=r"mapped can be.*path='staged'")
    with mpicoll.override(path="staged"), unwanted:
        offer.offered(context, operands, captured=True)
    context.attached["mapped"] = "ranks share a GPU"
    with pytest.raises(mpicoll.UnsupportedError, match="not offered: ranks share a GPU"):
        offer.offered(context, operands, captured=True)
    operands.before.append(lambda: None)
    with pytest.raises(mpicoll.UnsupportedError, match="must be copied"):
        offer.offered(context, operands, captured=True)
    context.attached["mapped"] = peers


def test_calls_that_do_not_block_share_a_stream(mapped, comm, peers):
    context = comm._get_context()
    assert mapped.ordered
    for slot in (context.slot(0), context.slot(3)):
        assert mapped.side(context, None, slot) is peers.side


def launched(made, order, stream=CALLER):
    from mpicoll.runtime.paths.mapped.launch import call_launcher

    return call_launcher(lambda where: made.launch("kernel", *[0] * 7, where), stream, 0, order, "owner")


def test_a_call_becomes_a_graph_after_two_launches(made, peers):
    call = launched(made, peers.order)
    made.taken()
    call()
    assert made.taken() == [("launch", "kernel", CALLER)]
    call()
    assert made.taken() == [("launch", "kernel", CALLER), ("captured", "kernel", made.last)]
    for _ in range(2):
        call()
    assert made.taken() == [("graph", "graph", CALLER)] * 2
    made.capturing.add(CALLER)
    call()
    assert made.taken() == [("captured", "kernel", CALLER)]


def test_a_call_on_another_stream_waits_for_the_last_one(made, peers):
    first, second = launched(made, peers.order), launched(made, peers.order, OTHER)
    first()
    assert (peers.order.stream, peers.order.owner) == (CALLER, "owner")
    made.taken()
    second()
    event = peers.order.event.ptr
    assert made.taken() == [("record", event, CALLER), ("wait", OTHER, event), ("launch", "kernel", OTHER)]
    second()
    assert made.taken()[0] == ("launch", "kernel", OTHER)


def test_blocking_calls(made, comm, x, y):
    """On the caller's stream, bound once for each."""
    for stream in (CALLER, CALLER, CALLER, OTHER, OTHER):
        made.current = stream
        comm.Allreduce(x, y)
    done = [one for one in made.taken() if one[0] in ("launch", "graph", "wait")]
    switch = ("wait", OTHER, comm._get_context().attached["mapped"].order.event.ptr)
    assert done[:3] == [("launch", "collective", CALLER)] * 2 + [("graph", "graph", CALLER)]
    assert done[3:] == [switch] + [("launch", "collective", OTHER)] * 2
    found = comm._get_context().cache.calls.values()
    assert [list(one.programs) for one in found] == [[(id(comm._get_context().slot(0)), s)] for s in (CALLER, OTHER)]


def test_a_call_that_does_not_block_goes_through_its_flight(made, comm, peers, x, y):
    side = peers.side.ptr
    for again in range(3):
        request = comm.Iallreduce(x, y)
        (begin, *_), middle, (*_, end, waited) = made.log[:1], made.log[1:-2], made.log
        request.Wait()
        log = made.taken()
        assert (begin[0], begin[2]) == ("record", CALLER)
        assert middle[0] == ("wait", side, begin[1])
        assert middle[-1][:1] + middle[-1][2:] in [("launch", side), ("captured", made.last), ("graph", side)], again
        assert (end[0], end[2], waited) == ("record", side, ("await", end[1]))
        assert log[-1] == waited  # the caller's stream need not wait, for the host has
    (one,) = comm._get_context().cache.calls.values()
    assert list(one.programs) == [(id(comm._get_context().slot(0)), side)]
    comm.Allreduce(x, y)
    assert len(one.programs) == 2
    assert ("wait", CALLER, peers.order.event.ptr) in made.taken()


def test_a_call_that_does_not_block_waits_for_its_kernel(made, comm, x, y):
    made.ready = False
    request = comm.Iallreduce(x, y)
    assert not request.Test()
    assert made.taken()[-1][0] == "record"
    made.ready = True
    assert request.Test()
    assert [what for what, *_ in made.taken()] == ["await"]


def test_a_persistent_call_is_bound_once(made, comm, peers, x, y):
    side = peers.side.ptr
    request = comm.Allreduce_init(x, y)
    prepared = request._prepared
    assert (prepared.side, prepared.plan.path, prepared.lane) == (side, "mapped", 0)
    assert made.taken() == []
    begun = set()
    for times in range(4):
        made.current = CALLER if times < 3 else OTHER
        request.Start()
        request.Wait()
        log = made.taken()
        assert (log[0][0], log[0][2], log[1]) == ("record", made.current, ("wait", side, log[0][1]))
        kind = ("launch", "launch", "graph", "graph")[times]
        assert [one for one in log if one[0] in ("launch", "graph")] == [(kind, log[2][1], side)]
        assert (log[-2][0], log[-2][2], log[-1]) == ("record", side, ("await", log[-2][1]))
        begun.add(log[0][1])
    assert len(begun) == 4
    request.Free()
    assert prepared.bound.actions == []
    assert not any(call.programs for call in comm._get_context().cache.calls.values())


def test_a_late_rank_ends_a_call_that_does_not_block(made, comm, peers, x, y):
    late(peers, 1)
    context, request = comm._get_context(), comm.Iallreduce(x, y)
    with pytest.raises(StalledError, match="rank 1 did not come"):
        request.Wait()
    assert context.broken
    context.broken = ""


def test_a_communicator_gives_back_what_is_mapped(made, mapped):
    comm = mpicoll.Communicator(MPI.COMM_SELF.Dup())
    comm._get_context().attached |= {"other": "there is none", "mapped": peers_of(2)}
    comm.Free()
    assert made.taken() == [("device",), ("unmap", 2 << 30), ("free", 1 << 30)]


def test_a_stalled_communicator_tells_its_kernels(mapped, comm, peers):
    context = comm._get_context()
    error = context.stalled("a call", "nobody came")
    assert str(error) == "a call; nobody came"
    assert bytes(peers._view[:4]) == struct.pack("=I", 1)
    context.broken = ""


@pytest.mark.parametrize("form", ["Allreduce", "Iallreduce"])
def test_arrays_of_another_device_are_copied_around_the_call(made, comm, x, y, form):
    """Each time anew, and nothing of it is kept."""
    context = comm._get_context()
    context.attached["mapped"] = peers_of(2, device=1)
    side = context.attached["mapped"].side.ptr
    for _ in range(2):
        request = getattr(comm, form)(x, y)
        if request is not None:
            request.Wait()
        log = [one for one in made.taken() if one[0] in ("copy", "launch", "graph", "wait")]
        copies = [one for one in log if one[0] == "copy"]
        assert [(copy[2], copy[4]) for copy in copies] == [(1, 0), (1, 0), (0, 1)]  # to a device, from another
        assert [copies[0][3], copies[1][3], copies[2][1]] == [x.ctypes.data, y.ctypes.data, y.ctypes.data]
        stream = CALLER if request is None else side
        (kernel,) = [place for place, one in enumerate(log) if one[2:] == (stream,) and one[0] in ("launch", "graph")]
        assert log.index(copies[1]) < kernel < log.index(copies[2])
    assert not any(isinstance(key[0], str) for key in context.cache.calls)
    assert all(one.operands.input is None for one in context.cache.calls.values())
