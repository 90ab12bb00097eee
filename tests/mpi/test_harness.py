"""What the harness promises to the tests under MPI, seen from inside a run."""

import hypothesis
import hypothesis.strategies as st
import pytest
from mpi4py import MPI

pytestmark = pytest.mark.many_ranks

WORLD = MPI.COMM_WORLD


def test_ranks_run_the_same_test(request):
    assert len(set(WORLD.allgather(request.node.nodeid))) == 1


@pytest.mark.parametrize("number", range(3))
def test_parameters_come_in_the_same_order(number):
    assert WORLD.allgather(number) == [number] * WORLD.size


@hypothesis.given(st.lists(st.integers()), st.floats(allow_nan=False))
def test_ranks_draw_the_same_examples(numbers, number):
    assert len({repr(drawn) for drawn in WORLD.allgather((numbers, number))}) == 1


@hypothesis.given(st.integers(0, 9))
def test_assume_is_no_failure(number):
    hypothesis.assume(number % 2)
    assert WORLD.allreduce(number) == number * WORLD.size


@pytest.mark.mpi(min_size=2)
def test_min_size_is_kept():
    assert WORLD.size >= 2


@pytest.mark.case("DEV-RANKMAP")
@pytest.mark.gpu
def test_ranks_of_a_node_spread_over_its_devices():
    """The ranks of a node use as many devices as there are for them."""
    import cupy

    node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    used = set(node.allgather(cupy.cuda.Device().id))
    node.Free()
    assert len(used) == min(node_size(), cupy.cuda.runtime.getDeviceCount())


def node_size():
    node = WORLD.Split_type(MPI.COMM_TYPE_SHARED)
    size = node.Get_size()
    node.Free()
    return size
