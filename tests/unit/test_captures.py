"""What a capture into a CUDA graph does to streams and calls, with stand-ins for CuPy and PyTorch."""

import importlib
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.recorder.recent import MASK
from mpicoll.runtime.arguments import tensors
from mpicoll.runtime.call import conductor
from mpicoll.runtime.cuda import streams
from mpicoll.runtime.program.bound import Bound

#: cudaErrorStreamCaptureImplicit, and any other error
IMPLICIT, OTHER = 906, 700
DEFAULT, CAPTURED, PLAIN = 0, 5, 6


class CudaError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


class Machine:
    """A device with a default stream that cannot be used, one that is captured, and one that has failed."""

    def __init__(self):
        self.log, self.error = [], None
        self.module = ModuleType("cupy")
        runtime = SimpleNamespace(
            getDevice=lambda: 0,
            streamIsCapturing=self.is_capturing,
            CUDARuntimeError=CudaError,
            eventRecord=lambda event, stream: self.log.append(("record", stream)),
            streamWaitEvent=lambda stream, event: self.log.append(("wait", stream)),
            graphLaunch=None,
        )
        self.module.ndarray = type("ndarray", (), {})
        self.module.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(launchKernel=None),
            Event=lambda **_: SimpleNamespace(ptr=1),
            get_current_stream=lambda device=0: SimpleNamespace(ptr=DEFAULT),
        )

    def is_capturing(self, stream):
        if stream == DEFAULT:
            raise self.error or CudaError(IMPLICIT)
        return stream == CAPTURED


#: modules that import CuPy
MODULES = [f"mpicoll.runtime.cuda.{name}" for name in ("work", "order", "launch", "migrate")]
MODULES += [f"mpicoll.runtime.paths.mapped.{name}" for name in ("path", "order", "launch", "inboxes", "nvlink")]


@pytest.fixture
def machine(monkeypatch):
    made, within = Machine(), MODULES
    monkeypatch.setitem(sys.modules, "cupy", made.module)
    for name in within:  # imported anew, now and after the test
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    monkeypatch.setattr(streams, "_no_device", None)
    yield made
    for name in within:
        sys.modules.pop(name, None)


def test_a_default_stream_that_a_capture_bars_is_named(machine):
    with pytest.raises(mpicoll.UnsupportedError, match=r"default stream cannot be used while .* pass stream="):
        streams.is_captured(DEFAULT)
    assert not streams.is_open(DEFAULT)
    machine.error = RuntimeError("an error has invalidated the capture sequence")
    with pytest.raises(mpicoll.UnsupportedError, match="invalidated"):
        streams.is_captured(DEFAULT)
    machine.error = CudaError(OTHER)
    with pytest.raises(CudaError):
        streams.is_captured(DEFAULT)


@pytest.mark.parametrize("status", [IMPLICIT, OTHER])
def test_a_barred_default_stream_is_no_missing_device(machine, status):
    """Calls on host arrays go on, and later calls still know streams apart."""
    machine.error, comm = CudaError(status), mpicoll.Communicator(MPI.COMM_SELF)
    for value in (1.0, 2.0):
        result = np.zeros(3)
        comm.Allreduce(np.full(3, value), result)
        assert (result == value).all()
    assert streams.where(None) == (0, False, DEFAULT, None)
    assert streams.where(SimpleNamespace(ptr=CAPTURED)) == (0, True, CAPTURED, True)


def order(last):
    found = importlib.import_module("mpicoll.runtime.paths.mapped.order").Order()
    found.stream = last
    return found


def test_a_captured_call_is_not_ordered_with_others(machine):
    found = order(PLAIN)
    found.switch(CAPTURED, None)
    assert (machine.log, found.stream) == ([], PLAIN)


def test_a_call_behind_one_on_another_stream_waits_for_it(machine):
    found = order(PLAIN)
    found.switch(PLAIN + 1, None)
    assert (machine.log, found.stream) == ([("record", PLAIN), ("wait", PLAIN + 1)], PLAIN + 1)


def test_a_call_behind_one_on_a_stream_that_is_captured_by_now_is_refused(machine):
    """It would become part of the graph."""
    found = order(CAPTURED)
    with pytest.raises(mpicoll.UnsupportedError, match="before or after the capture"):
        found.switch(PLAIN, None)
    assert (machine.log, found.stream) == ([], CAPTURED)


def test_a_launch_on_a_barred_default_stream_is_explained(machine):
    launch = importlib.import_module("mpicoll.runtime.paths.mapped.launch")
    at_default = SimpleNamespace(stream=DEFAULT, blocks=128)
    call = launch.call_launcher(lambda stream: None, 1, DEFAULT, 0, at_default, at_default, None)
    with pytest.raises(mpicoll.UnsupportedError, match="default stream cannot be used"):
        call()


@pytest.mark.parametrize(("captured", "noted"), [(False, 1), (None, 1), (True, 0)])
def test_a_captured_call_is_not_found_by_its_arrays(monkeypatch, captured, noted):
    """It has no wait for its end, which a time limit demands outside of the graph."""
    kept = []
    cache = SimpleNamespace(find=lambda key: SimpleNamespace(blocking=None, found=0), find_mobile=None)
    places = [None] * (MASK + 1)  # of the calls made last
    context = SimpleNamespace(broken="", barred=False, cache=cache, recent=places, began=places.copy(), count=lambda: 1)
    monkeypatch.setattr(conductor, "where", lambda stream: (0, False, PLAIN, captured))
    monkeypatch.setattr(conductor, "_bound_again", lambda *_: Bound())
    monkeypatch.setattr(conductor.running, "run", lambda *_: None)
    monkeypatch.setattr(conductor.shortcut, "note", lambda *given: kept.append(given))
    conductor.blocking(context, ("Allreduce", (None, None), None, None, ""))
    assert len(kept) == noted


@pytest.mark.parametrize(("torch_on", "capturing", "reads"), [(5, True, False), (0, True, True), (5, False, True)])
def test_a_tensor_whose_stream_is_captured_must_be_on_the_stream_of_the_call(
    machine, monkeypatch, torch_on, capturing, reads
):
    """PyTorch would make the other stream wait for the captured one, which ends the capture."""
    current = SimpleNamespace(cuda_stream=torch_on)
    cuda = SimpleNamespace(is_current_stream_capturing=lambda: capturing, current_stream=lambda: current)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    machine.module.from_dlpack = lambda tensor: "array"
    expected = nullcontext() if reads else pytest.raises(mpicoll.UnsupportedError, match=r"pass stream=torch")
    with expected:
        assert tensors._on_device("allreduce", object()) == "array"
