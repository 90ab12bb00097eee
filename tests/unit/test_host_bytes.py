"""The benchmark's bytes between hosts: counted for the very blocks, over the least possible, or a reason."""

import numpy as np
import pytest

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.output.host_bytes import HostBytes, host_bytes_of
from mpicoll.bench.output.rows import MeasuredCall, Measurement
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.request.options import parse
from mpicoll.bench.tables.times import figures
from mpicoll.schedule.topology import forced

RATIO = "bytes between hosts / least possible"


def case(name, nbytes=4000, size=8, root=0):
    return make_case(CALLS[name], nbytes, "float32", size, "SUM", root)


def found(name, algorithm, topology="0-3,4-7", **more):
    one = case(name, **more)
    return host_bytes_of(one, algorithm, forced(topology, one.size))


@pytest.mark.parametrize(
    ("name", "algorithm", "nbytes", "ratio"),
    [
        ("allreduce", "striped", 4000, 1),
        ("allreduce", "two_shot", 16000, 4),
        ("bcast", "linear", 16000, 4),
        ("allgather", "linear", 4 * 2000, 4),
        ("alltoall", "linear", 4 * 4 * 500, 1),
        ("gather", "linear", 2000, 1),
    ],
)
def test_bytes_are_those_of_the_busiest_host(name, algorithm, nbytes, ratio):
    one = found(name, algorithm)
    assert (one.nbytes, one.ratio, one.why) == (nbytes, ratio, "")


def test_uneven_blocks_count_with_their_own_bytes():
    """Blocks of 1 to 8 shares of 360: the first host receives 26, each of them once for each of its ranks."""
    one = found("allgatherv", "linear", nbytes=4 * 360)
    assert (one.nbytes, one.ratio) == (4 * 4 * 260, 4)


def test_few_elements_that_are_not_in_all_blocks_count_as_they_are():
    """One element on 8 ranks is in one of the blocks of two_shot."""
    assert found("allreduce", "two_shot", nbytes=4).nbytes == 4 * 4


@pytest.mark.parametrize(
    ("name", "algorithm", "more", "why"),
    [
        ("barrier", "linear", {}, "a barrier has no bytes"),
        ("bcast", "native", {}, "the messages of MPI's own collective are not known"),
        ("bcast", "linear", {"nbytes": 0}, "no bytes must be sent"),
        ("bcast", "linear", {"size": 65, "topology": "hosts=2"}, "messages of more than 64 ranks are not counted"),
    ],
)
def test_a_ratio_that_is_not_known_has_a_reason(name, algorithm, more, why):
    one = found(name, algorithm, **more)
    assert (one.ratio, one.why) == (None, why)
    assert measured(one).record()["figures"][RATIO] == {"value": None, "unit": "", "reason": why}


def measured(host_bytes):
    return Measurement(
        MeasuredCall(case("bcast"), Way("linear", 1, "host"), False), np.ones(3), 0, host_bytes=host_bytes
    )


def test_the_column_is_there_on_several_hosts_only():
    (column,) = [one for one in figures(parse([]), (), several_hosts=True) if one.column.name == "between hosts"]
    assert column.column.unit == "/ least"
    assert column.cell(measured(HostBytes(8000, 4000))) == "2.00"
    assert column.cell(measured(HostBytes(why="a barrier has no bytes"))) == "n/a"
    assert "between hosts" not in {one.column.name for one in figures(parse([]), ())}


def test_the_file_has_bytes_and_ratio_with_their_units():
    assert measured(HostBytes(8000, 4000)).record()["figures"] | {"algbw": 0, "busbw": 0} == {
        "algbw": 0,
        "busbw": 0,
        "bytes between hosts": {"value": 8000, "unit": "B"},
        RATIO: {"value": 2, "unit": ""},
    }
    assert RATIO not in measured(None).record()["figures"]
