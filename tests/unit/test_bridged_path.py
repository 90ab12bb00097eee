"""The path bridged on a CuPy that only takes notes: kernels, copies and messages, in which order."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.algorithms import registry
from mpicoll.runtime.call import conductor, execute, planning
from mpicoll.runtime.mpi.cuda_aware import Awareness
from mpicoll.runtime.paths import table
from mpicoll.runtime.program import binder
from mpicoll.schedule.topology import Topology
from unit.recorded_cuda import CALLER, comm, late, made, mapped, peers, peers_of, x, y

#: memory that stands for pinned memory: what is there is really combined
PINNED = np.zeros(4096, "u1")


class Request:
    """A message that is never sent."""

    def __init__(self, made, what, peer):
        self.note = lambda: made.log.append((what, peer))

    def Start(self):
        self.note()

    def Free(self):
        """Nothing is held."""


@pytest.fixture
def bridged(made, comm, monkeypatch):
    """Rank 0 of 4, on a host with rank 1."""
    table.path("bridged")
    bridge = sys.modules["mpicoll.runtime.paths.bridged.bridge"]
    context = comm._get_context()
    context.size, context.topology = 4, Topology.of("aabb")
    context.attached |= {"mapped": "ranks are on several hosts", "bridged": peers_of(2)}

    def message(what):
        return lambda buffer, peer, tag: Request(made, what, peer)

    private = context.comm
    context.comm = SimpleNamespace(Send_init=message("send"), Recv_init=message("receive"))
    context.waiter = SimpleNamespace(
        waiter=lambda requests: lambda: made.log.append(("waited", len(requests))), poll=lambda requests: lambda: True
    )
    monkeypatch.setattr(
        binder, "_starter", lambda messages: lambda: [request.Start() for one in messages for request in one]
    )
    monkeypatch.setattr(bridge, "unmappable", lambda operands: set())
    made.monkeypatch = monkeypatch

    def arena(slot, kind, device, nbytes):
        made.reserved = nbytes
        return SimpleNamespace(pointer=PINNED.ctypes.data if kind == "pinned" else 3 << 30)

    monkeypatch.setattr("mpicoll.runtime.context.slot.Slot.arena", arena)
    yield table.path("bridged")
    context.comm, context.size = private, 1


def bound_of(comm, method, *arguments, aware=True, **kinds):
    context = comm._get_context()
    context.cuda_aware = Awareness(aware, "")
    operands = conductor.Call(context, "blocking", method, arguments, None, None, "").read()
    plan = planning.plan_for(operands, context, kinds.get("algorithm"), "")
    assert plan.path == "bridged", str(plan)
    return execute.bind_new(plan, operands, context, CALLER, context.slot(0))


def events(made, bound):
    """Return what a run does, without what only asks."""
    made.taken()
    bound.run()
    return [what for what, *_ in made.taken()]


def test_an_allreduce_is_a_kernel_messages_and_a_kernel(made, bridged, comm, x, y):
    with mpicoll.override(path="bridged"):
        bound = bound_of(comm, "Allreduce", x, y, algorithm="striped")
    words = events(made, bound)
    assert words == ["launch", "await stream", "receive", "send", "waited", "launch", "waited", "launch", "record"]
    assert bound.last_start == len(bound.actions) - 1


def test_a_rank_without_messages_waits_for_nothing(made, bridged, comm):
    """Rank 1 of a host whose rank 0 is its leader: two kernels, one behind the other."""
    context = comm._get_context()
    context.rank = 1
    context.attached["bridged"].rank = 1
    with mpicoll.override(path="bridged"):
        bound = bound_of(comm, "Allreduce", np.ones(1), np.zeros(1), algorithm="leader")
    assert events(made, bound) == ["launch", "launch", "record"]
    assert not bound.requests


def test_without_device_pointers_messages_are_between_copies_on_the_host(made, bridged, comm, x, y):
    with mpicoll.override(path="bridged"):
        bound = bound_of(comm, "Allreduce", x, y, aware=False, algorithm="striped")
    made.taken()
    bound.run()
    log = made.taken()
    copies = [(to, origin, nbytes) for what, to, origin, nbytes, *_ in (e for e in log if e[0] == "copy")]
    half = x.nbytes // 2
    device, pinned = 3 << 30, range(PINNED.ctypes.data, PINNED.ctypes.data + PINNED.nbytes)
    (down, source, count), (up, target, returned) = copies
    assert (down in pinned, source, count) == (True, device, half)
    assert (up, target in pinned, returned) == (y.ctypes.data, True, half)
    words = [what for what, *_ in log]
    assert words.index("copy") < words.index("await stream") < words.index("send") < words.index("waited")


@pytest.mark.parametrize("method", ["Allreduce", "Reduce", "Bcast"])
def test_all_that_messages_and_work_touch_is_reserved(made, bridged, comm, method):
    """What is received only to be combined, too."""
    from mpicoll.runtime.program.placement import located

    bridge = sys.modules["mpicoll.runtime.paths.bridged.bridge"]
    module = sys.modules["mpicoll.runtime.paths.bridged.path"]
    context, seen = comm._get_context(), []
    made.monkeypatch.setattr(module, "bridge_of", lambda *given: seen.append(bridge.bridge_of(*given)) or seen[-1])
    arrays = (np.ones(1000), np.zeros(1000)) if method != "Bcast" else (np.ones(1000),)
    with mpicoll.override(path="bridged"):
        bound_of(comm, method, *arrays, aware=False, algorithm="striped")
    (one,) = seen
    placement, begin, end = one.placement, PINNED.ctypes.data, PINNED.ctypes.data + made.reserved
    spans = [*placement.messages, *(span for work in placement.works for row in work for span in row)]
    assert spans
    for address, nbytes in (located(span, one.near) for span in spans):
        assert begin <= address <= address + nbytes <= end
    assert context.size == 4


def test_what_a_kernel_leaves_is_not_sent_where_it_has_waited_in_vain(made, bridged, comm, x, y):
    """Other hosts would take it for a result."""
    context = comm._get_context()
    peers = context.attached["bridged"]
    made.monkeypatch.setattr(made.module.cuda.runtime, "streamSynchronize", lambda stream: late(peers, 1))
    with mpicoll.override(path="bridged", timeout=5):
        bound = bound_of(comm, "Allreduce", x, y, algorithm="striped")
        with pytest.raises(mpicoll.StalledError, match="rank 1 did not come"):
            bound.run()
    assert "send" not in [what for what, *_ in made.taken()]
    late(peers, -1)
    context.broken = ""


def test_arrays_of_another_device_come_to_that_of_the_inboxes(bridged, comm):
    assert bridged.home(comm._get_context()) == 0
    comm._get_context().attached["bridged"] = "each host has one rank"
    assert bridged.home(comm._get_context()) == -1


def test_many_hosts_without_nvlink_are_refused(bridged, comm, x, y):
    """A rank would send more cells to another one than there are places in the protocol `slices`."""
    context = comm._get_context()
    operands = conductor.Call(context, "blocking", "Allreduce", (x, y, MPI.SUM), None, None, "").read()
    context.topology = Topology.of([k // 2 for k in range(66)])
    assert bridged.unoffered(context, operands) == ""
    context.attached["bridged"].linked = False
    assert "more than 32 hosts" in bridged.unoffered(context, operands)


def test_why_it_is_not_offered(bridged, comm, x, y, monkeypatch):
    context = comm._get_context()

    def why(method, *arguments):
        return bridged.unoffered(context, conductor.Call(context, "blocking", method, arguments, None, None, "").read())

    assert why("Allreduce", x, y, MPI.SUM) == ""
    assert why("Scan", x, y, MPI.SUM) == ""
    with monkeypatch.context() as changed:
        changed.setattr(registry, "known", lambda name: ())
        assert why("Scan", x, y, MPI.SUM) == "scan has no algorithm for several hosts"
    last = mpicoll.Op(lambda a, b: b, cuda="b")
    assert why("Allreduce", x, y, last) == "operands must keep their order"
    context.attached["bridged"] = "each host has one rank"
    assert why("Allreduce", x, y, MPI.SUM) == "each host has one rank"


def test_flat_algorithms_are_refused_on_it(bridged, comm, x, y):
    with mpicoll.override(path="bridged"), pytest.raises(mpicoll.UnsupportedError, match="'bridged' cannot serve"):
        bound_of(comm, "Allreduce", x, y, algorithm="ring")


def test_a_host_maps_its_own_ranks_only(made, comm, monkeypatch):
    """Nothing is asked where all ranks are on one host, or each on a host of its own."""
    asked, bridged, context = [], table.path("bridged"), comm._get_context()
    module = sys.modules["mpicoll.runtime.paths.bridged.path"]

    def connect(private, device, nbytes, shared, groups):
        asked.append(groups)
        yield from ()
        return "mapped"

    monkeypatch.setattr(module, "connect", connect)
    found = {}
    for hosts in ("aaaa", "abcd", "aabb", "abaa"):
        context.topology = Topology.of(hosts)
        context.attached.pop("bridged", None)
        list(bridged.prepare(context, 0))
        found[hosts] = context.attached["bridged"]
    assert found == {
        "aaaa": "all ranks are on one host",
        "abcd": "each host has one rank",
        "aabb": "mapped",
        "abaa": "mapped",
    }
    assert asked == [[[0, 1], [2, 3]], [[0, 2, 3], [1]]]
