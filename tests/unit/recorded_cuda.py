"""A CUDA that records what is enqueued, under the path mapped, and a communicator on it."""

import struct
import sys
from functools import cache
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.arguments import arrays
from mpicoll.runtime.call import conductor, decision, execute, flight, planning, starting
from mpicoll.runtime.cuda import kernels, streams
from mpicoll.runtime.groups import fused
from mpicoll.runtime.paths import table
from mpicoll.runtime.progress import turns

#: modules that import CuPy
MODULES = [f"mpicoll.runtime.cuda.{name}" for name in ("work", "order", "launch", "migrate", "table", "batch")]
MODULES += [f"mpicoll.runtime.paths.{name}" for name in ("staged", "direct")]
MAPPED = "path", "kernel", "order", "launch", "inboxes", "nvlink", "enqueued", "watchdog", "residents", "items"
MODULES += [f"mpicoll.runtime.paths.mapped.{name}" for name in (*MAPPED, "protocols", "exchange")]
MODULES += [f"mpicoll.runtime.paths.bridged.{name}" for name in ("path", "bridge")]
#: the caller's streams
CALLER, OTHER = 1, 2


class CudaError(RuntimeError):
    status = 0


class Words(bytearray):
    """Pinned memory."""

    ptr = 4096


class DriverError(RuntimeError):
    #: CUDA_ERROR_INVALID_CONTEXT
    status = 201


class Current:
    """What a with block makes current: a recorder's attribute of a name has its number then."""

    def __init__(self, made, name, number):
        self.made, self.name, self.own, self.outer = made, name, number, []

    def __enter__(self):
        self.outer.append(getattr(self.made, self.name))
        setattr(self.made, self.name, self.own)
        return self

    def __exit__(self, *_):
        setattr(self.made, self.name, self.outer.pop())


def stream_class(made):
    """Return the class of a recorder's streams."""

    class Stream(Current):
        def __init__(self, pointer=None, non_blocking=False):
            self.ptr = pointer or made.number()
            super().__init__(made, "current", self.ptr)

        def begin_capture(self):
            made.capturing.add(self.ptr)

        def end_capture(self):
            made.capturing.discard(self.ptr)
            return SimpleNamespace(graphExec="graph")

        @staticmethod
        def from_external(other):
            return Stream(other.ptr)

    return Stream


def device_class(made):
    """Return the class of a recorder's devices."""

    class Device(Current):
        id = 0

        def __init__(self, number=None):
            super().__init__(made, "device", number or 0)

    return Device


class Recorder:
    """What stands for CuPy: it enqueues nothing, and notes what was to be."""

    def __init__(self):
        self.log, self.last, self.current, self.capturing, self.ready = [], 100, CALLER, set(), True
        self.device, self.devices = 0, []  # the current one, and that of each note
        self.strange, self.busy, self.asked = False, set(), []  # to this thread, the device is; streams
        note = self.note
        runtime = SimpleNamespace(
            getDevice=lambda: self.device,
            deviceGetPCIBusId=lambda device: f"0000:0{device}:00.0",
            CUDARuntimeError=CudaError,
            streamIsCapturing=lambda stream: stream in self.capturing,
            eventRecord=note("record"),
            streamWaitEvent=note("wait"),
            eventSynchronize=note("await"),
            streamSynchronize=note("await stream"),
            eventQuery=lambda event: 0 if self.ready else 600,
            streamQuery=lambda stream: self.asked.append(stream) or (600 if stream in self.busy else 0),
            deviceGetAttribute=lambda attribute, device: 132,
            graphLaunch=note("graph"),
            deviceSynchronize=note("device"),
            ipcCloseMemHandle=note("unmap"),
            free=note("free"),
            setDevice=self.set_device,
            memcpyPeer=note("copy"),
            memcpyAsync=note("copy"),
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
            Device=device_class(self),
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
        return lambda *arguments: self.devices.append(self.device) or self.log.append((what, *arguments))

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
    for module in (execute, flight, starting, decision, fused):
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
    context.attached["bridged"] = "all ranks are on one host"
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


def finished(routine):
    """Return the result of a routine that waits for nothing, and how often it waited."""
    waited = 0
    while True:
        try:
            next(routine)
            waited += 1
        except StopIteration as stop:
            return stop.value, waited
