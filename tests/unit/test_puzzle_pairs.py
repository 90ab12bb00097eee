"""The first puzzle's pure parts: which pairs are alike, what the machine reports, and how both are shown."""

from types import SimpleNamespace

import pytest

from mpicoll.bench.measure.statistics import Statistics
from mpicoll.bench.puzzles import nvml, topology
from mpicoll.bench.puzzles.case import events
from mpicoll.bench.puzzles.clusters import clusters, named, sentences
from mpicoll.bench.puzzles.heat import heat, shade
from mpicoll.bench.puzzles.link import Link
from mpicoll.bench.puzzles.links import Site, between, numa_of_cores
from mpicoll.bench.puzzles.pairs import all_one_way, alone, both_ways, kinds

HOST = Link("the memory of one host")
FOUR, TWO = Link("NVLink 2, 4 links", 100.0), Link("NVLink 2, 2 links", 50.0)
PCIE = Link("PCIe 3 x16 between NUMA nodes", 15.75)


def figures(speeds, spread=0.1):
    """Bandwidths by pair, each with the same spread."""
    return {pair: Statistics(speed, spread, speed, speed, speed, speed, speed, 0, 5) for pair, speed in speeds.items()}


#: 400 MB in 4.5, 53.2 and 8.8 ms
PUZZLE = {(0, 1): 89.0, (0, 2): 7.5, (0, 4): 45.0}
LINKS = {(0, 1): FOUR, (0, 2): PCIE, (0, 4): TWO}


def test_the_puzzle_has_three_clusters_and_the_links_explain_them():
    found = clusters(figures(PUZZLE), LINKS)
    assert [(one.link, one.pairs) for one in found] == [(FOUR, "0>1"), (TWO, "0>4"), (PCIE, "0>2")]
    assert sentences(found) == [
        "0>1: 89 GB/s over NVLink 2, 4 links, 89 % of its 100 GB/s: the fastest.",
        "0>4: 45 GB/s over NVLink 2, 2 links, 90 % of its 50 GB/s. "
        "2.0 times slower than 0>1; by the links it would be 2.0 times: the link explains it.",
        "0>2: 7.5 GB/s over PCIe 3 x16 between NUMA nodes, 48 % of its 15.75 GB/s. 11.9 times slower than 0>1; "
        "by the links it would be 6.3 times: the link explains a part only.",
    ]


def test_three_bandwidths_are_three_clusters_also_where_the_machine_reports_one_link():
    found = clusters(figures(PUZZLE), dict.fromkeys(PUZZLE, HOST))
    assert [one.middle for one in found] == [89.0, 45.0, 7.5]
    assert sentences(found)[2].endswith(
        "11.9 times slower than 0>1, but the machine reports the same link: cores, memory or load differ."
    )


def test_equal_pairs_are_said_to_be_equal_with_their_distance():
    found = clusters(figures({(0, 1): 10.0, (1, 0): 11.0, (0, 2): 10.5}), dict.fromkeys([(0, 1), (1, 0), (0, 2)], HOST))
    assert sentences(found) == ["All 3 pairs are equal within 11 %: 10.5 GB/s (10 to 11) over the memory of one host."]


def test_pairs_without_a_step_are_one_cluster_but_not_called_equal():
    speeds = {(0, 1): 10.0, (1, 0): 12.0, (0, 2): 14.4}
    (line,) = sentences(clusters(figures(speeds), dict.fromkeys(speeds, HOST)))
    assert line.startswith("All 3 pairs have one link and differ by 44 %, no step above the spread: 12 GB/s")


def test_a_step_within_the_spread_is_none():
    speeds = {(0, 1): 10.0, (1, 0): 15.0}
    assert len(clusters(figures(speeds, spread=1.0), dict.fromkeys(speeds, HOST))) == 2
    assert len(clusters(figures(speeds, spread=2.6), dict.fromkeys(speeds, HOST))) == 1


def test_another_link_that_is_as_fast_and_one_without_a_limit():
    network = Link("the network between hosts")
    _, second = sentences(clusters(figures({(0, 1): 10.0, (0, 2): 9.0}), {(0, 1): HOST, (0, 2): network}))
    assert second.endswith("As fast as 0>1, though the link is another.")
    _, second = sentences(clusters(figures({(0, 1): 10.0, (0, 2): 2.0}), {(0, 1): HOST, (0, 2): network}))
    assert second.endswith("5.0 times slower than 0>1: its link is another, whose bandwidth is not reported.")


def test_pairs_are_named_once_for_both_directions():
    assert named(dict.fromkeys([(1, 0), (0, 1), (2, 0)], 1.0)) == "0-1, 2>0"
    assert named(dict.fromkeys(alone_pairs(6), 1.0)).endswith("1-4 and 7 more")


def alone_pairs(size):
    return [pair for (pair,) in alone(size)]


def test_each_pair_is_measured_once_in_each_kind():
    for size in (2, 3, 4):
        for name, sets in kinds(size).items():
            assert sorted(pair for together in sets for pair in together) == sorted(alone_pairs(size)), name
    assert list(kinds(2)) == ["alone", "both directions"]
    assert all_one_way(3) == [((0, 1), (0, 2), (1, 2)), ((1, 0), (2, 0), (2, 1))]
    assert both_ways(2) == [((0, 1), (1, 0))]


def test_what_is_left_beside_others_is_compared_with_alone():
    line = topology.shared("all at once", figures({(0, 1): 2.0, (1, 0): 3.0}), 6.0, figures({(0, 1): 4.0, (1, 0): 4.0}))
    assert line == (
        "All at once: a pair has 62 % of its bandwidth alone (50 to 75); together they carry 6 GB/s, "
        "1.5 times one pair alone."
    )


def test_sizes_are_in_the_words_of_the_puzzle():
    assert (topology.in_words(40_000_000), topology.in_words(1 << 20)) == ("40 MB", "1M B")


# The heat map.


def test_a_heat_map_has_a_number_and_a_shade_for_each_pair():
    assert heat({(0, 1): 89.0, (1, 0): 7.5}, 2, 80) == [
        "         to 0   to 1",
        "from 0         89 ██",
        "from 1 7.5 ░░",
    ]
    assert [shade(value, 100.0) for value in (0.0, 24.9, 25.0, 50.0, 75.0, 100.0, None)] == list("░░▒▓██ ")


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_heat_map_fits_its_width(width):
    size = 40
    lines = heat(dict.fromkeys(alone_pairs(size), 1.25), size, width)
    assert max(map(len, lines)) <= width
    assert len(lines) == size + 1


# What the machine reports.


def test_links_between_ranks_without_gpus():
    assert between(Site("a"), Site("b")).words == "the network between hosts"
    assert between(Site("a", "0"), Site("a", "0")) == between(Site("a"), Site("a", "1")) == HOST
    assert between(Site("a", "0"), Site("a", "1")).words == "the memory of one host, between NUMA nodes"
    assert between(Site("a", "0", "0000:01"), Site("a", "0", "0000:01")).words == "the memory of one GPU"


def test_the_numa_node_of_cores(tmp_path):
    for name, cores in (("node0", "0-3,8-11\n"), ("node1", "4-7\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(cores, encoding="ascii")
    assert [numa_of_cores(set(cores), tmp_path) for cores in ([3, 8], [5], [3, 4])] == ["0", "1", ""]


class NoLinkError(Exception):
    """NVML's answer for a link that a GPU does not have."""


def library(*, nvlink=True, switch=False, version=3, links=2, level=50, slots=((3, 16), (3, 16))):
    """A made-up NVML: links that end at GPU 0000:02:00.0, the last one somewhere else, or all at switches."""
    ends = ["00000000:02:00.0"] * links + ["00000000:03:00.0"]

    def state(_, number):
        if number > links:
            raise NoLinkError
        return 1

    slot = {b"0000:01:00.0": slots[0], b"0000:02:00.0": slots[1]}
    return SimpleNamespace(
        NVMLError=NoLinkError,
        NVML_NVLINK_MAX_LINKS=36,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        nvmlDeviceGetP2PStatus=lambda one, two, what: 0 if nvlink else 3,
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda one, number: 2 if switch else 0,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda one, number: SimpleNamespace(busId=ends[number].encode()),
        nvmlDeviceGetNvLinkVersion=lambda one, number: version,
        nvmlDeviceGetMaxPcieLinkGeneration=lambda one: slot[one][0],
        nvmlDeviceGetMaxPcieLinkWidth=lambda one: slot[one][1],
        nvmlDeviceGetTopologyCommonAncestor=lambda one, two: level,
    )


@pytest.mark.parametrize(
    ("what", "link"),
    [
        ({"version": 2}, Link("NVLink 2, 2 links", 50.0)),
        ({"version": 2, "links": 1}, Link("NVLink 2, 1 link", 25.0)),
        ({"version": 6, "links": 17, "switch": True}, Link("NVLink 4, 18 links through switches", 450.0)),
        ({"version": 99}, Link("NVLink, 2 links")),
        ({"nvlink": False}, Link("PCIe 3 x16 between NUMA nodes", 0.985 * 16)),
        (
            {"nvlink": False, "level": 10, "slots": ((5, 16), (4, 8))},
            Link("PCIe 4 x8 through one PCIe switch", 1.969 * 8),
        ),
    ],
)
def test_links_between_gpus_as_nvml_reports_them(what, link):
    found = nvml.link("0000:01:00.0", "0000:02:00.0", library(**what))
    assert (found.words, found.theoretical) == (link.words, pytest.approx(link.theoretical))


def test_what_nvml_does_not_tell_is_said():
    found = nvml.link("0000:01:00.0", "0000:02:00.0", SimpleNamespace())
    assert found.words.startswith("unknown: NVML does not tell (AttributeError")
    assert (found.limit, found.share(1.0)) == ("not reported", "")


def test_the_numa_node_of_a_gpu(tmp_path):
    (tmp_path / "0000:c1:00.0").mkdir()
    (tmp_path / "0000:c1:00.0" / "numa_node").write_text("1\n", encoding="ascii")
    assert nvml.numa_node("00000000:C1:00.0", tmp_path) == "1"
    assert nvml.numa_node("0000:02:00.0", tmp_path) == ""


def test_the_trace_has_a_thread_for_each_stream():
    found = list(events({(0, 1): [(1.0, 1.5), (1.5, 2.5)], (0, 2): [(1.0, 3.0)]}, 1_000_000_000))
    assert [one["args"]["name"] for one in found if one["name"] == "thread_name"] == [
        "stream to rank 1",
        "stream to rank 2",
    ]
    messages = [one for one in found if one["ph"] == "X"]
    assert [(one["tid"], one["ts"], one["dur"]) for one in messages] == [(1, 1e6, 5e5), (1, 1.5e6, 1e6), (2, 1e6, 2e6)]
    assert [one["args"]["bandwidth (GB/s)"] for one in messages] == [2.0, 1.0, 0.5]
