"""The room that kernels of several streams have on a device, on a CuPy that only takes notes."""

# Fixtures are imported, and parameters have their names.
# ruff: noqa: F401, F811

import numpy as np
import pytest

import mpicoll
from unit.recorded_cuda import CALLER, OTHER, comm, made, mapped, peers, x, y

#: places of 132 multiprocessors
PLACES = 264


@pytest.fixture
def residents(mapped):
    from mpicoll.runtime.paths.mapped.residents import Residents

    return Residents(132)


def launched(residents, made, *streams):
    """Return the limit of each stream, which is busy from then on."""
    found = []
    for stream in streams:
        residents.switch(stream, "owner")
        made.busy.add(stream)
        found.append(residents.blocks)
    return found


def test_streams_that_are_busy_leave_room_for_another(residents, made):
    assert launched(residents, made, 1) == [128]
    assert launched(residents, made, 2) == [68]
    assert launched(residents, made, 3) == [34]
    made.busy.clear()
    assert launched(residents, made, 4, 5, 6) == [88, 88, 44]


def test_streams_that_were_busy_together_share_from_then_on(residents, made):
    """Not the first one has most; one that is alone for some time has all again."""
    launched(residents, made, *range(1, 7))
    made.busy.clear()
    found = launched(residents, made, *range(6, 0, -1))
    assert min(found) >= 20
    assert sum(found) <= PLACES
    made.busy.clear()
    for _ in range(7):
        residents.switch(1, "owner")
    assert residents.blocks == 128


@pytest.mark.parametrize("seed", range(20))
def test_there_is_always_room(residents, made, seed):
    """Whatever streams are busy, and come back with another limit while their earlier kernels are still there."""
    draw = np.random.default_rng(seed)
    most = {}
    for _ in range(200):
        stream = int(draw.integers(1, 8))
        if stream != residents.stream:
            residents.switch(stream, "owner")
        assert 1 <= residents.blocks <= 128
        most[stream] = max(most.get(stream, 0) if stream in made.busy else 0, residents.blocks)
        made.busy.add(stream)
        assert sum(most[one] for one in made.busy) <= PLACES
        for one in [one for one in made.busy if draw.random() < 0.2]:
            made.busy.discard(one)


def test_a_captured_stream_is_not_asked(residents, made):
    """The question would end the capture; its kernels may be anywhere."""
    launched(residents, made, 1)
    made.busy.clear()
    made.capturing.add(1)
    assert launched(residents, made, 2) == [68]


def test_a_small_device_has_room_for_two_kernels(mapped):
    from mpicoll.runtime.paths.mapped.residents import Residents

    small = Residents(20)
    small.switch(1, "owner")
    assert (small.most, small.blocks) == (20, 20)


def test_kernels_of_two_communicators_share_a_device(made, comm, peers, x, y):
    """The second one's kernel has what the first one's leaves, also of calls that do not block."""
    from mpicoll.runtime.paths.mapped.residents import residents_of

    long, peers.larger = np.ones(1 << 18), "there is none"
    comm.Allreduce(long, np.ones(1 << 18))
    made.busy.add(CALLER)
    comm.Iallreduce(long, np.ones(1 << 18)).Wait()
    found = residents_of(0)
    assert (found.stream, found.blocks) == (peers.side.ptr, 68)
