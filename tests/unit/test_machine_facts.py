"""The fingerprint of a machine: what is found, what a pattern matches, and hosts that differ."""

from dataclasses import replace
from pathlib import Path

import pytest

from mpicoll.dispatch import machine_facts
from mpicoll.dispatch.machine_facts import MachineFacts, common, cpu, local, of_ranks

HERE = MachineFacts("MPICH", "Intel(R) Xeon(R) CPU @ 2.20GHz", "2", "1", "none")


@pytest.mark.parametrize(
    "pattern",
    [
        MachineFacts(),
        HERE,
        MachineFacts(mpi="mpich"),
        MachineFacts(cpu="*xeon*", cores="2"),
        MachineFacts(cpu="Intel(R) Xeon(R) CPU @ 2.?0GHz"),
        MachineFacts(cores="[1-4]", gpu="none"),
    ],
)
def test_a_pattern_matches_as_names_of_files_do_and_what_it_leaves_out_is_anything(pattern):
    assert pattern.differs(HERE) == ""


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (MachineFacts(mpi="Open MPI"), "mpi Open MPI, here MPICH"),
        (MachineFacts(cpu="Xeon"), "cpu Xeon, here Intel(R) Xeon(R) CPU @ 2.20GHz"),
        (MachineFacts(mpi="MPICH", cores="22"), "cores 22, here 2"),
        (MachineFacts(hosts="2"), "hosts 2, here 1"),
        (MachineFacts(gpu="*H[12]00*"), "gpu *H[12]00*, here none"),
    ],
)
def test_the_first_fact_that_differs_is_told(pattern, text):
    assert pattern.differs(HERE) == text


def test_a_fact_that_is_not_known_is_another_one():
    assert HERE.differs(MachineFacts()) == "mpi MPICH, here unknown"
    assert MachineFacts().differs(MachineFacts()) == ""


@pytest.mark.parametrize(
    ("gpu", "matches"), [("NVIDIA H200", True), ("NVIDIA H100 80GB HBM3", True), ("NVIDIA A100-SXM4-40GB", False)]
)
def test_the_packaged_pattern_is_of_two_kinds_of_gpus(gpu, matches):
    assert (MachineFacts(gpu="*H[12]00*").differs(MachineFacts(gpu=gpu)) == "") is matches


def test_it_is_written_without_what_it_leaves_out():
    assert str(MachineFacts(mpi="Open MPI", hosts="1")) == "mpi=Open MPI:hosts=1"
    assert str(MachineFacts()) == ""


def test_hosts_are_counted_by_their_names():
    assert of_ranks([("a", HERE), ("b", HERE), ("a", HERE)]) == replace(HERE, hosts="2")


def test_a_fact_on_which_hosts_differ_is_mixed():
    other = MachineFacts("MPICH", "AMD EPYC", "8", "1", "none")
    assert of_ranks([("a", HERE), ("b", other)]) == MachineFacts("MPICH", "mixed", "mixed", "2", "none")


def test_what_machines_share_is_a_pattern_of_all_of_them():
    far = MachineFacts("MPICH", HERE.cpu, "2", "3", "none")
    shared = common([HERE, far])
    assert shared == MachineFacts("MPICH", HERE.cpu, "2", "", "none")
    assert not shared.differs(HERE)
    assert not shared.differs(far)
    assert common([HERE]) == HERE


# What is found here.


@pytest.fixture
def proc(monkeypatch, tmp_path):
    """Files of the kernel's and the driver's, made up: path from /proc on -> text."""

    def make(**files):
        read = Path.read_text

        def read_text(self, *rest, **named):
            if self == Path("/proc/cpuinfo"):
                if "cpuinfo" not in files:
                    raise FileNotFoundError
                return files["cpuinfo"]
            return read(self, *rest, **named)

        monkeypatch.setattr(Path, "read_text", read_text)
        monkeypatch.setattr(machine_facts, "_GPUS", tmp_path)
        for number, text in enumerate(files.get("gpus", ())):
            (tmp_path / str(number)).mkdir()
            (tmp_path / str(number) / "information").write_text(text)
        local.cache_clear()

    yield make
    local.cache_clear()


def test_names_are_free_of_signs_that_part_facts_or_are_patterns(proc):
    proc(cpuinfo="processor\t: 0\nmodel name\t: A:B;C #1*  [x]=y?\nmodel name\t: other\n")
    assert cpu() == "A B C 1 x y"


def test_a_processor_without_a_name_is_its_architecture(proc, monkeypatch):
    monkeypatch.setattr(machine_facts.platform, "machine", lambda: "riscv64")
    proc(cpuinfo="hart\t: 1\n")
    assert cpu() == "riscv64"
    proc()
    assert cpu() == "riscv64"


@pytest.mark.parametrize(
    ("gpus", "found"),
    [
        ((), "none"),
        (("Model: \t NVIDIA H200\nIRQ: 1\n", "Model: NVIDIA H200\n"), "NVIDIA H200"),
        (("Model: NVIDIA H200\n", "Model: NVIDIA T4\n"), "mixed"),
        (("IRQ: 1\n",), "none"),
    ],
)
def test_gpus_are_told_by_the_driver(proc, gpus, found):
    proc(cpuinfo="model name : x\n", gpus=gpus)
    machine = local("MPICH")
    assert (machine.mpi, machine.cpu, machine.hosts, machine.gpu) == ("MPICH", "x", "1", found)
    assert int(machine.cores) >= 1
