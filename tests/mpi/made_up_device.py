"""A device that is made up: NumPy memory behind streams that work when they please.

It stands in for CuPy under `mpicoll.runtime.cuda.work`, so that the order of what is enqueued can be
tested where there is no GPU.  What is enqueued is done at once ("early"), not before something
waits for it ("late"), or by chance in between ("random"): whatever a program leaves open to chance
goes wrong in one of them.
"""

import ctypes
import random
import sys
import threading
from collections import deque
from functools import cache
from types import ModuleType, SimpleNamespace

import numpy as np

from mpicoll.runtime.call import decision, execute, flight, starting
from mpicoll.runtime.cuda import kernels
from mpicoll.runtime.host.work import Host
from mpicoll.runtime.paths import table

#: modules that import CuPy
WITH_CUPY = [f"cuda.{name}" for name in ("work", "order", "launch", "migrate", "batch", "table")] + ["paths.staged"]
MAPPED = ["path", "kernel", "items", "inboxes", "nvlink", "order", "launch"]
MAPPED += ["enqueued", "exchange", "watchdog", "residents"]
WITH_CUPY += [f"paths.mapped.{name}" for name in MAPPED]

NOT_READY = 600


def one_at_a_time(method):
    """As CUDA's functions are: threads may call them at the same time."""

    def locked(self, *arguments):
        with self.lock:
            return method(self, *arguments)

    return locked


class Streams:
    """All streams of the device, by address; a stream is a queue of calls, which say whether they could be done."""

    def __init__(self, manner):
        self.manner, self.chance, self.lock = manner, random.Random(1), threading.RLock()
        self.queues, self.current, self.log = {}, 0, []
        self.capturing, self.graph = set(), []

    @one_at_a_time
    def enqueue(self, pointer, call, what=None):
        if pointer in self.capturing:
            self.graph.append(call)
            return
        self.queues.setdefault(pointer, deque()).append(call)
        if what:
            self.log.append((pointer, *what))
        self.look()

    @one_at_a_time
    def look(self):
        """Work as far as the manner demands."""
        for pointer in list(self.queues):
            if self.manner == "early":
                self.advance(pointer, len(self.queues[pointer]))
            elif self.manner == "random":
                self.advance(pointer, self.chance.randrange(3))

    @one_at_a_time
    def advance(self, pointer, number):
        queue = self.queues.setdefault(pointer, deque())
        for _ in range(number):
            if not queue or not queue[0]():
                return
            queue.popleft()

    @one_at_a_time
    def synchronize(self, pointer, until=lambda: False):
        while self.queues.get(pointer) and not until():
            self.advance(pointer, 1)

    @one_at_a_time
    def query(self, pointer, done):
        """Be ready at the second question at the latest, for who asks has to ask again."""
        if done():
            return 0
        self.advance(pointer, 1)
        return NOT_READY

    def finish(self):
        for pointer in list(self.queues):
            self.synchronize(pointer)


class Event:
    """Complete if it was never recorded."""

    def __init__(self, made_up, **_):
        self.ptr = made_up.number()
        self.stream, self.recorded, self.reached = 0, 0, 0
        made_up.events[self.ptr] = self

    @property
    def done(self):
        return self.reached >= self.recorded


class MadeUp:
    """The parts of CuPy that `runtime/cuda/work.py` uses."""

    def __init__(self, manner):
        self.streams, self.events, self.last = Streams(manner), {}, 0

    def number(self):
        self.last += 1
        return self.last

    def module(self):
        runtime = SimpleNamespace(
            memcpyAsync=self.copy,
            eventRecord=self.record,
            eventSynchronize=lambda e: self.wait(self.events[e]),
            eventQuery=lambda e: self.streams.query(self.events[e].stream, lambda: self.events[e].done),
            streamSynchronize=self.streams.synchronize,
            streamQuery=lambda s: self.streams.query(s, lambda: not self.streams.queues.get(s)),
            streamWaitEvent=self.wait_later,
            getDevice=lambda: 0,
            deviceGetPCIBusId=lambda device: f"0000:0{device}:00.0",
            CUDARuntimeError=CudaError,
            streamIsCapturing=lambda stream: stream in self.streams.capturing,
            deviceSynchronize=self.streams.finish,
            deviceGetAttribute=lambda attribute, device: 132,
        )
        made_up = self

        class Stream:
            def __init__(self, pointer=None, non_blocking=False):
                self.ptr, self.outer = made_up.number() if pointer is None else pointer, []

            def __enter__(self):
                self.outer.append(made_up.streams.current)
                made_up.streams.current = self.ptr
                return self

            def __exit__(self, *_):
                made_up.streams.current = self.outer.pop()

            @staticmethod
            def from_external(other):
                return Stream(other.ptr)

        class Device:
            def __init__(self, number=None):
                self.id = 0

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

        Stream.null = Stream(0)
        module = ModuleType("cupy")
        module.ndarray, module.empty = type("ndarray", (), {}), np.empty
        module.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(launchKernel=self.launch, CUDADriverError=CudaError),
            Event=lambda **_: Event(made_up),
            Stream=Stream,
            Device=Device,
            get_current_stream=lambda device=0: Stream(made_up.streams.current),
            alloc_pinned_memory=Memory,
            Memory=Memory,
        )
        return module

    def copy(self, to, origin, nbytes, kind, stream):
        def done():
            ctypes.memmove(to, origin, nbytes)
            return True

        self.streams.enqueue(stream, done, ("copy", to, origin, nbytes))

    def record(self, pointer, stream):
        event = self.events[pointer]
        event.stream, event.recorded = stream, event.recorded + 1
        number = event.recorded

        def done():
            event.reached = max(event.reached, number)
            return True

        self.streams.enqueue(stream, done)

    def wait(self, event):
        self.streams.synchronize(event.stream, lambda: event.done)

    def wait_later(self, stream, pointer):
        event = self.events[pointer]
        number = event.recorded

        def done():
            if event.reached < number:
                self.streams.advance(event.stream, 1)
            return event.reached >= number

        self.streams.enqueue(stream, done)

    def launch(self, function, *rest):
        """What stands for the kernel of a batch: it reads its table when it runs."""
        assert function == "copies"
        stream, argument = rest[7], ctypes.c_void_p.from_address(rest[8]).value
        table, count, _ = (ctypes.c_uint64 * 3).from_address(argument)

        def done():
            words = (ctypes.c_uint64 * (3 * count)).from_address(table)
            for k in range(count):
                ctypes.memmove(words[2 * k], words[2 * k + 1], words[2 * count + k])
            return True

        self.streams.enqueue(stream, done)

    def reduce(self, worker, op, dtype, target, sources):
        """What stands for a kernel: NumPy's work, on the stream."""
        return self._later(worker, Host().reduce(op, dtype, target, sources))

    def divide(self, worker, dtype, target, divisor):
        return self._later(worker, Host().divide(dtype, target, divisor))

    def _later(self, worker, work):
        def done():
            work()
            return True

        return lambda: self.streams.enqueue(worker.stream, done)


class CudaError(RuntimeError):
    pass


class Memory(np.ndarray):
    """Memory of any kind, full of what nobody expects."""

    def __new__(cls, nbytes):
        return np.full(nbytes, 0xEE, "u1").view(cls)

    @property
    def ptr(self):
        return self.ctypes.data


def install(monkeypatch, manner):
    """Put the made-up device under mpicoll: NumPy arrays are device arrays then."""
    made_up = MadeUp(manner)
    monkeypatch.setitem(sys.modules, "cupy", made_up.module())
    for name in WITH_CUPY:  # imported anew, now and after the test
        monkeypatch.setitem(sys.modules, f"mpicoll.runtime.{name}", None)
        del sys.modules[f"mpicoll.runtime.{name}"]
    monkeypatch.setattr(table, "path", cache(table.path.__wrapped__))
    for module in (execute, flight, starting, decision):
        monkeypatch.setattr(module, "path", table.path)
    from mpicoll.runtime.arguments import arrays
    from mpicoll.runtime.cuda.work import Device

    on_the_host = execute.unpack

    def unpack(operands):  # with CuPy, too, this is work on the current stream
        if operands.device < 0:
            return on_the_host(operands)
        return made_up.streams.enqueue(made_up.streams.current, lambda: [call() for call in operands.after] or True)

    monkeypatch.setattr(kernels, "compiled", lambda source, name, device: (name, "module"))
    monkeypatch.setattr(Device, "reduce", lambda *args: made_up.reduce(*args))
    monkeypatch.setattr(Device, "divide", lambda *args: made_up.divide(*args))
    monkeypatch.setattr(arrays, "device_of", lambda array: 0)
    monkeypatch.setattr(execute, "unpack", unpack)
    return made_up
