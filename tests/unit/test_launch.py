"""Launches, with stand-ins for CuPy: when a graph takes a kernel's place, and when not."""

import ctypes
import gc
import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest

FUNCTION, STREAM, GRID, INVALID_CONTEXT = 77, 5, (3, 64), 201


class CudaError(Exception):
    def __init__(self, status=1):
        super().__init__(status)
        self.status = status


class DriverError(CudaError):
    pass


class ApiError(CudaError):
    pass


class Machine:
    """The parts of CuPy that `cuda/launch.py` and `paths/mapped/launch.py` use; `log` has what was done."""

    def __init__(self):
        self.log, self.capturing, self.graphs, self.fails, self.blocks = [], set(), 0, [], []
        machine = self

        class Stream:
            def __init__(self, non_blocking):
                self.ptr = 1000 + machine.graphs

            def begin_capture(self):
                machine.capturing.add(self.ptr)

            def end_capture(self):
                machine.capturing.remove(self.ptr)
                machine.graphs += 1
                return SimpleNamespace(graphExec=machine.graphs)

        class Device:
            def __init__(self, number):
                self.number = number

            def __enter__(self):
                machine.log.append(("device", self.number))

            def __exit__(self, *_):
                pass

        runtime = SimpleNamespace(
            graphLaunch=lambda graph, stream: self.log.append(("graph", graph, stream)),
            streamIsCapturing=lambda stream: stream in self.capturing,
            setDevice=lambda number: self.log.append(("set", number)),
            CUDARuntimeError=ApiError,
        )
        driver = SimpleNamespace(launchKernel=self.launch, CUDADriverError=DriverError)
        self.module = ModuleType("cupy")
        self.module.cuda = SimpleNamespace(runtime=runtime, driver=driver, Stream=Stream, Device=Device)

    def launch(self, *given):
        function, blocks, _, _, threads, _, _, shared, stream, where, extra = given
        assert (function, threads, shared, extra) == (FUNCTION, GRID[1], 0, 0)
        self.blocks.append(blocks)
        if self.fails:
            raise self.fails.pop(0)
        argument = ctypes.c_void_p.from_address(where).value
        self.log.append(("kernel", stream, ctypes.string_at(argument, 3)))

    def done(self):
        """What was done since the last time."""
        done, self.log = self.log, []
        return done


#: modules that import CuPy
MODULES = ["cuda.launch", "paths.mapped.order", "paths.mapped.launch", "paths.mapped.residents"]
MODULES = [f"mpicoll.runtime.{name}" for name in MODULES]


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setitem(sys.modules, "cupy", made.module)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield made
    for name in MODULES:
        sys.modules.pop(name, None)


def launcher(order=None, owner=None, room=None):
    """Return the module of whole calls' launches, and one of them."""
    part, whole = (importlib.import_module(name) for name in (MODULES[0], MODULES[2]))
    plain = part.plain_launch(FUNCTION, ctypes.create_string_buffer(b"abc"), GRID, 2, object())
    room = SimpleNamespace(stream=STREAM, blocks=128) if room is None else room
    order = order or SimpleNamespace(stream=STREAM)
    return whole, whole.call_launcher(plain, GRID[0], STREAM, 2, order, room, owner)


KERNEL = ("kernel", STREAM, b"abc")


def test_the_third_launch_is_that_of_a_graph(machine):
    _, call = launcher()
    call()
    assert machine.done() == [KERNEL]
    call()
    assert machine.done() == [KERNEL, ("device", 2), ("kernel", 1000, b"abc")]
    for _ in range(3):
        call()
    assert machine.done() == [("graph", 1, STREAM)] * 3


def test_no_graph_of_a_part_of_a_call(machine):
    part = importlib.import_module(MODULES[0])
    call = part.launcher(FUNCTION, ctypes.create_string_buffer(b"abc"), GRID, STREAM, 2, object())
    for _ in range(5):
        call()
    assert machine.done() == [KERNEL] * 5


def test_what_is_captured_is_the_kernel(machine):
    _, call = launcher()
    for _ in range(2):
        machine.capturing.add(STREAM)
        for _ in range(5):
            call()
        assert machine.done() == [KERNEL] * 5
        machine.capturing.clear()
        for _ in range(3):
            call()
        assert machine.done()[-1] == ("graph", 1, STREAM)


@pytest.mark.parametrize("error", [ApiError, DriverError])
def test_no_graph_where_none_can_be_made(machine, error):
    _, call = launcher()
    call()
    machine.module.cuda.Stream = lambda non_blocking: (_ for _ in ()).throw(error())
    machine.done()
    for _ in range(5):
        call()
    assert [one for one in machine.done() if one[0] != "device"] == [KERNEL] * 5


def test_graphs_are_counted_while_they_live(machine, monkeypatch):
    launch, first = launcher()
    monkeypatch.setattr(launch, "MOST", 1)

    def third(call):
        for _ in range(3):
            call()
        return machine.done()[-1][0]

    assert third(first) == "graph"
    assert third(launcher()[1]) == "kernel"
    del first
    gc.collect()
    assert third(launcher()[1]) == "graph"


def test_a_thread_that_has_not_used_the_device(machine):
    _, call = launcher()
    machine.fails = [DriverError(INVALID_CONTEXT)]
    call()
    assert machine.done() == [("set", 2), KERNEL]
    machine.fails = [DriverError(700)]
    with pytest.raises(DriverError):
        call()


def test_launches_take_their_turn(machine):
    order = SimpleNamespace(stream=4)

    def switch(stream, owner):
        order.stream = stream
        machine.log.append(("switch", stream, owner))

    order.switch = switch
    _, call = launcher(order=order, owner="owner")
    call()
    call()
    assert machine.done()[:3] == [("switch", STREAM, "owner"), KERNEL, KERNEL]
    order.stream = 6
    call()
    assert machine.done() == [("switch", STREAM, "owner"), ("graph", 1, STREAM)]


def test_where_there_is_little_room_the_kernel_has_fewer_blocks(machine):
    """The graph has all of them, so that it is not taken then; what is captured has all, too."""
    room = SimpleNamespace(stream=STREAM, blocks=128)
    _, call = launcher(room=room)
    for _ in range(3):
        call()
    assert machine.done()[-1] == ("graph", 1, STREAM)
    room.blocks = 2
    room.switch = lambda stream, owner: machine.log.append(("room", stream, owner)) or room.blocks
    call()
    machine.capturing.add(STREAM)
    call()
    assert machine.done() == [("room", STREAM, None), KERNEL, KERNEL]
    assert machine.blocks[-2:] == [2, GRID[0]]
    machine.capturing.clear()
    room.blocks = GRID[0]
    call()
    assert machine.done() == [("graph", 1, STREAM)]


def test_the_room_is_asked_for_when_another_stream_has_launched(machine):
    room = SimpleNamespace(stream=4, blocks=1)

    def switch(stream, owner):
        room.stream, room.blocks = stream, 2
        machine.log.append(("room", stream, owner))
        return 2

    room.switch = switch
    _, call = launcher(owner="owner", room=room)
    call()
    call()
    assert machine.done() == [("room", STREAM, "owner"), KERNEL] * 2  # again: it could use more
    assert machine.blocks == [2, 2]
