"""Cases of users: what MPI can do with device pointers, which device a rank has, what the report says.

The machine is made up: each answer on which a decision rests is replaced.
"""

import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll.bench import facts
from mpicoll.bench.memory import Host
from mpicoll.runtime import awareness, environment, info
from mpicoll.runtime.awareness import Awareness

SIZE = MPI.COMM_WORLD.Get_size()
#: what makes this MPI not use UCX
SWITCHED_OFF = {"Open MPI": [("OMPI_MCA_pml", "ob1")], "MPICH": [("MPIR_CVAR_CH4_NETMOD", "ofi")]}.get(
    MPI.get_vendor()[0], []
)


@pytest.fixture
def machine(monkeypatch):
    """A machine with a driver, on which nothing else is known; afterwards all is found out again."""
    for name in ("UCX_TLS", "OMPI_MCA_pml", "MPIR_CVAR_CH4_NETMOD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(awareness, "has_driver", lambda: True)
    monkeypatch.setattr(awareness, "prepared", environment.Prepared())
    monkeypatch.setattr(awareness, "library_answer", lambda: None)
    monkeypatch.setattr(awareness, "probe", lambda: Awareness(False, "a probe failed"))
    yield monkeypatch
    awareness.decide.cache_clear()


def decide(**override):
    awareness.decide.cache_clear()
    with mpicoll.override(**override):
        return awareness.decide()


@pytest.mark.case("AWARE-DETECT")
def test_who_decides(machine):
    """The setting, the UCX that was loaded, the library, a probe; each gives its reason."""
    assert decide() == Awareness(False, "a probe failed")
    machine.setattr(awareness, "library_answer", lambda: Awareness(True, "the library says so"))
    assert decide() == Awareness(True, "the library says so")
    machine.setattr(awareness, "prepared", environment.Prepared(ucx="1.2"))
    assert decide() == Awareness(True, "UCX 1.2 with CUDA was loaded under the MPI library")
    assert decide(cuda_aware="no") == Awareness(False, "setting cuda_aware")
    assert decide(cuda_aware="yes") == Awareness(True, "setting cuda_aware")
    machine.setattr(awareness, "has_driver", lambda: False)
    assert not decide().aware


@pytest.mark.case("AWARE-DETECT")
@pytest.mark.parametrize(("name", "value"), [("UCX_TLS", "tcp,sm,self"), ("UCX_TLS", "^cuda"), *SWITCHED_OFF])
def test_the_loaded_library_is_told_not_to(machine, name, value):
    """A UCX that knows CUDA is loaded, but the user has switched that, or UCX itself, off."""
    machine.setenv(name, value)
    overridden = {} if name == "UCX_TLS" else {name: value}
    machine.setattr(awareness, "prepared", environment.Prepared(ucx="1.2", overridden=overridden))
    assert not decide().aware


@pytest.mark.case("AWARE-SEGV")
def test_one_rank_that_cannot_is_enough():
    """Device pointers are used only where all ranks say yes; the reason names the rank."""
    yes, no = Awareness(True, "of course"), Awareness(False, "no idea")
    assert awareness.agree([yes, yes]) == yes
    assert awareness.agree([yes, no, yes]) == Awareness(False, "rank 1: no idea")


@pytest.mark.case("AWARE-SEGV")
def test_no_pointer_without_knowledge(world):
    """Where nothing is known, device arrays have the path through the host only."""
    channel = world._get_channel()
    assert channel.paths() == (("direct", "staged") if channel.awareness.aware else ("staged",))
    if not channel.awareness.aware:
        with mpicoll.override(path="direct"):
            assert channel.paths() == ("staged",)


@pytest.mark.case("AWARE-DETECT")
def test_the_probe_is_a_process_of_its_own(machine, world):
    """A crash or a hang of the probe is an answer; it is no rank of this job."""
    environ = awareness.probe_environment({"PMI_RANK": "1", "PMIX_RANK": "1", "OMPI_MCA_pml": "ucx", "HOME": "/"})
    assert set(environ) == {"OMPI_MCA_pml", "HOME", "MPICOLL_PREPARE"}
    for code, text in (("raise SystemExit(3)", "exit status 3"), ("import os; os.abort()", "exit status -6")):
        machine.undo()
        machine.setattr(awareness, "_PROBE", code)
        found = awareness.probe()
        assert (found.aware, text in found.reason) == (False, True)
    machine.setattr(awareness, "_PROBE", "pass")
    assert awareness.probe().aware
    check(world, Case("Allreduce"))


@pytest.mark.case("ABI-MIX")
@pytest.mark.parametrize(("launcher", "ranks", "warned"), [("PMI_SIZE", SIZE, False), ("PMI_SIZE", SIZE + 3, True)])
def test_launcher_and_library_that_differ(monkeypatch, launcher, ranks, warned):
    """Mpirun of one MPI and mpi4py of another: every process would be alone."""
    for name in info.SIZES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(launcher, str(ranks))
    text = "\n".join(info.lines())
    assert (f"the launcher started {ranks} ranks, MPI sees {SIZE}" in text) is warned
    assert MPI.Get_library_version().split()[0] in text


@pytest.mark.case("AWARE-DETECT")
def test_the_report_tells_decision_and_reason(monkeypatch):
    """`python -m mpicoll info` prints whether MPI gets device pointers, and why."""
    awareness.decide.cache_clear()
    monkeypatch.setattr(awareness, "has_driver", lambda: False)
    try:
        lines = [line for line in info.lines() if line.startswith(("device pointers", "paths for"))]
    finally:
        awareness.decide.cache_clear()
    if mpicoll.settings.cuda_aware is None:
        assert lines[0].endswith("no: no NVIDIA driver on this machine")
        assert lines[1].endswith(" staged")


@pytest.mark.case("GTL-CRAY")
def test_the_report_shows_what_makes_mpi_ask_for_a_gpu(monkeypatch):
    """GPU support is asked for by a variable; the report shows it beside the library."""
    monkeypatch.setenv("MPICH_GPU_SUPPORT_ENABLED", "1")
    assert "MPICH_GPU_SUPPORT_ENABLED" in "\n".join(info.lines())


@pytest.mark.case("DEV-RANKMAP")
@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PMI_LOCAL_RANK"])
def test_the_rank_on_the_node(monkeypatch, name):
    """It comes from the launcher, whichever it is; modulo the devices it is a rank's device."""
    for other in ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PMI_LOCAL_RANK"):
        monkeypatch.delenv(other, raising=False)
    assert environment.local_rank() == 0
    monkeypatch.setenv(name, "5")
    assert environment.local_rank() == 5
    monkeypatch.setenv(name, "x")
    assert environment.local_rank() == 0


@pytest.mark.case("STAGED-SLOW")
def test_all_ways_are_candidates():
    """Of every size, the mapped, direct and staged way of each algorithm are compared."""
    for nbytes in (8, 1 << 16, 1 << 26):
        plan = mpicoll.plan("allreduce", size=4, nbytes=nbytes, device="cuda")
        timed = [c for c in plan.candidates() if c.seconds is not None]
        assert {c.choice.path for c in timed} == {"mapped", "direct", "staged"}


@pytest.mark.case("OVERSUB")
def test_a_crowded_machine_is_named(world):
    """The benchmark warns where there are more ranks than cores."""
    found = facts.collect(["--op", "barrier"], MPI.COMM_WORLD, world, Host())
    for hosts, warned in ((["here"], True), ([], False)):
        text = "\n".join(facts.lines({**found, "oversubscribed": hosts}))
        assert ("WARNING: more ranks than cores on here" in text) is warned
    assert bool(found["oversubscribed"]) == any(n > found["cores"][host] for host, n in found["hosts"].items())
