"""Measurements on several hosts, which the setting `topology` makes of one: link, rules, regret, bytes."""

import pytest
from mpi4py import MPI

import mpicoll
from mpi.benching import bench, results
from mpi.calling import on_all
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.output.results import read
from mpicoll.bench.run import run as bench_run
from mpicoll.dispatch.table import parse_table
from mpicoll.runtime.context.contexts import context_of
from mpicoll.tuning.pings import measured_link
from mpicoll.tuning.run import TunerOptions, run
from mpicoll.tuning.tuner import Tuner

WORLD = MPI.COMM_WORLD
SIZE, RANK = WORLD.size, WORLD.rank
HOSTS = list(dict.fromkeys(["hosts=2", "0,1-9", f"hosts={SIZE}"]))

pytestmark = [pytest.mark.many_ranks, pytest.mark.mpi(min_size=2)]


@pytest.fixture(params=HOSTS)
def comm(request):
    with mpicoll.override(topology=request.param, tuning="model"):
        made = mpicoll.Communicator(WORLD.Dup())
        made.Barrier()
        yield made
        made.Free()


def test_the_link_is_measured_alike_on_all_ranks(comm):
    clock = Clock(MPI.Intracomm(comm), True, lambda: None)
    link = on_all(measured_link(MPI.Intracomm(comm), context_of(comm).topology, clock))
    assert 0 < link.alpha < 1
    assert 0 <= link.beta < 1e-3
    assert 0 <= link.rank_beta < 1e-3


def test_a_tuner_s_table_has_the_link_the_models_of_a_host_and_rules_for_these_hosts(comm):
    tuner = Tuner(comm, HostBackend(), Clock(WORLD, True, lambda: None), 1.0)
    table = tuner.run(["allreduce"], 1 << 12)
    topology = context_of(comm).topology
    counts = [len(group) for group in topology.groups]
    assert on_all(table.link) == table.link
    assert (table.link.alpha > 0, table.machine.hosts) == (True, str(len(counts)))
    assert bool(table.models) == (max(counts) > 1)
    assert on_all(table.text())
    assert {rule.hosts for rule in table.rules} == {(len(counts), len(counts))}
    assert {rule.perhost for rule in table.rules} == {(min(counts), max(counts))}
    assert all(rule.serves("allreduce", SIZE, "host", 0, topology) for rule in table.rules)
    assert {choice.algorithm for _, choice, _ in tuner.runners} & {"striped", "leader"}
    assert parse_table(table.text(), "again").text() == table.text()


def test_a_table_of_several_hosts_is_found_again_on_as_many(tmp_path, monkeypatch):
    file = WORLD.bcast(str(tmp_path / "hosts.rules"))
    with mpicoll.override(topology="hosts=2"):
        asked = TunerOptions(("bcast",), (), 1.0, 1 << 10, type(tmp_path)(file), "numpy")
        assert on_all(run(asked)) == 0
        with mpicoll.override(tuning=file):
            own = mpicoll.Communicator(WORLD.Dup())
            assert ":hosts=2:perhost=" in own.Get_plan("Bcast", bytearray(8)).reason
            assert context_of(own).tuning().link.source == f"measured, {file}"
            own.Free()
    with mpicoll.override(tuning=file, topology="flat"):
        own = mpicoll.Communicator(WORLD.Dup())
        assert own.Get_plan("Bcast", bytearray(8)).reason.startswith("cost model")
        own.Free()


def test_regret_is_measured_against_the_algorithms_for_hosts_too(folder):
    file = folder / "regret.json"
    with mpicoll.override(topology="hosts=2"):
        on_all(bench_run(f"--regret --op allreduce --bytes 1024 --budget 4 --buffers numpy --json {file}".split()))
    if RANK == 0:
        assert {choice.partition("/")[0] for choice in read(file)["rows"][0]["times"]} & {"striped", "leader"}


#: bytes between two hosts over the least possible, by algorithm, on 4 ranks
RATIOS = {"striped": 1.0, "two_shot": 2.0, "one_shot": 4.0, "recursive_doubling": 2.0}


@pytest.mark.ranks(4)
def test_the_benchmark_says_bytes_between_hosts_over_the_least_possible(folder, capfd):
    with mpicoll.override(topology="hosts=2"):
        status, found = results(folder, f"--op allreduce --bytes 1600 --algorithm {','.join(RATIOS)} --outofplace")
    assert status == 0
    figures = {row["algorithm"]: row["figures"] for row in found["rows"]}
    for name, ratio in RATIOS.items():
        assert figures[name]["bytes between hosts / least possible"] == {"value": ratio, "unit": ""}
        assert figures[name]["bytes between hosts"] == {"value": 1600 * ratio, "unit": "B"}
    if RANK == 0:
        out = capfd.readouterr().out
        assert "between hosts" in out
        assert "/ least" in out


@pytest.mark.ranks(4)
def test_what_has_no_ratio_has_a_reason(folder, capfd):
    with mpicoll.override(topology="hosts=2"):
        _, found = results(folder, "--op barrier,allgather --algorithm auto,native --bytes 1600 --outofplace")
    for row in found["rows"]:
        ratio = row["figures"]["bytes between hosts / least possible"]
        if row["algorithm"] == "native":
            assert ratio == {"value": None, "unit": "", "reason": "the messages of MPI's own collective are not known"}
        elif row["op"] == "barrier":
            assert ratio == {"value": None, "unit": "", "reason": "a barrier has no bytes"}
        else:
            assert ratio["value"] >= 1
    assert "between hosts / least of barrier: n/a, a barrier has no bytes" in found["end"]["notes"]


@pytest.mark.ranks(4)
def test_uneven_blocks_count_with_their_bytes(folder):
    """On hosts of ranks 0 to 1 and 2 to 3 blocks of 1, 2, 3 and 4 shares: the first host must receive 7 of 10."""
    with mpicoll.override(topology="hosts=2"):
        _, found = results(folder, "--op allgatherv --algorithm linear --bytes 4000 --outofplace")
    figures = found["rows"][0]["figures"]
    assert figures["bytes between hosts"]["value"] == 2 * 2800  # each of its two ranks receives all of them
    assert figures["bytes between hosts / least possible"]["value"] == 2


def test_on_one_host_there_is_no_such_column(folder, capfd):
    _, found = results(folder, "--op allreduce --bytes 64 --outofplace")
    assert "bytes between hosts" not in found["rows"][0]["figures"]
    assert "between hosts" not in capfd.readouterr().out
    assert bench("--op barrier") == 0
