"""The path mapped on a CuPy that only takes notes: what is enqueued, on which stream, in which order."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import struct
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.errors import StalledError
from mpicoll.runtime.arguments.operators import operator_of
from mpicoll.runtime.call import conductor
from mpicoll.runtime.paths import offer
from mpicoll.runtime.program.bound import LAUNCH, ORDER, SYNC, Bound
from unit.recorded_cuda import CALLER, OTHER, bound_for, comm, finished, late, made, mapped, peers, peers_of, x, y


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


def test_a_time_limit_waits_for_nothing(made, mapped, comm, x, y):
    """The kernel leaves by itself; each call looks at what the kernels before it have noted."""
    with mpicoll.override(timeout=5):
        bound = bound_for(mapped, comm, x, y, mpicoll.AVG)
    assert (bound.kinds, bound.last_start, bound.limited) == ([ORDER, LAUNCH, LAUNCH], 2, False)
    assert bound.polls == [None] * 3
    bound.run()
    assert [what for what, *_ in made.taken()] == ["launch", "launch"]


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
    context.check()
    late(peers, 1)
    context.calls = 7
    for look in (bound.run, context.check):  # a call of any kind looks
        context.broken = ""
        with pytest.raises(StalledError, match=r"before #8: rank 0, waiting in its kernel for 5 s; rank 1 did not"):
            look()
    assert "before #8" in context.broken
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
    first, kernel, division, end, waited = made.taken()
    assert first == ("wait", 9, 50)
    assert (kernel, division) == (("launch", "collective", 9), ("launch", "divide", 9))
    assert (end, waited) == (("record", 51, 9), ("await", 51))
    assert len(bound.actions) == 3


def test_the_wait_for_the_end_asks_for_the_event(made, mapped, comm):
    from mpicoll.runtime.paths.mapped.path import add_wait

    bound = Bound(name="bcast #{}")
    add_wait(bound, comm._get_context(), 77)
    assert bound.kinds == [SYNC]
    assert bound.polls[0]() is True
    bound.run()
    assert made.taken() == [("await", 77)]


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

    room = SimpleNamespace(stream=stream, blocks=128)
    return call_launcher(lambda where, _=0: made.launch("kernel", *[0] * 7, where), 1, stream, 0, order, room, "owner")


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
