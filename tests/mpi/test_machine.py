"""Cases of users: what MPI can do with device pointers, which device a rank has, what the report says.

The machine is made up: each answer on which a decision rests is replaced.
"""

import pytest
from mpi4py import MPI

import mpicoll
from mpi.calling import check
from mpi.cases import Case
from mpicoll import info
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.output import environment as facts
from mpicoll.dispatch.paths import serving
from mpicoll.runtime.mpi import cuda_aware, environment
from mpicoll.runtime.mpi.cuda_aware import Awareness
from mpicoll.runtime.paths.table import path

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
    monkeypatch.setattr(cuda_aware, "has_driver", lambda: True)
    monkeypatch.setattr(cuda_aware, "prepared", environment.Preparation())
    monkeypatch.setattr(cuda_aware, "library_answer", lambda: None)
    monkeypatch.setattr(cuda_aware, "probe", lambda: Awareness(False, "a probe failed"))
    yield monkeypatch
    cuda_aware.decide.cache_clear()


def decide(**override):
    cuda_aware.decide.cache_clear()
    with mpicoll.override(**override):
        return cuda_aware.decide()


@pytest.mark.case("AWARE-DETECT")
def test_who_decides(machine):
    """The setting, the UCX that was loaded, the library, a probe; each gives its reason."""
    assert decide() == Awareness(False, "a probe failed")
    machine.setattr(cuda_aware, "library_answer", lambda: Awareness(True, "the library says so"))
    assert decide() == Awareness(True, "the library says so")
    machine.setattr(cuda_aware, "prepared", environment.Preparation(ucx="1.2"))
    assert decide() == Awareness(True, "UCX 1.2 with CUDA was loaded under the MPI library")
    assert decide(cuda_aware="no") == Awareness(False, "setting cuda_aware")
    assert decide(cuda_aware="yes") == Awareness(True, "setting cuda_aware")
    machine.setattr(cuda_aware, "has_driver", lambda: False)
    assert not decide().aware


@pytest.mark.case("AWARE-DETECT")
@pytest.mark.parametrize(("name", "value"), [("UCX_TLS", "tcp,sm,self"), ("UCX_TLS", "^cuda"), *SWITCHED_OFF])
def test_the_loaded_library_is_told_not_to(machine, name, value):
    """A UCX that knows CUDA is loaded, but the user has switched that, or UCX itself, off."""
    machine.setenv(name, value)
    overridden = {} if name == "UCX_TLS" else {name: value}
    machine.setattr(cuda_aware, "prepared", environment.Preparation(ucx="1.2", overridden=overridden))
    assert not decide().aware


@pytest.mark.case("AWARE-SEGV")
def test_one_rank_that_cannot_is_enough():
    """Device pointers are used only where all ranks say yes; the reason names the rank."""
    yes, no = Awareness(True, "of course"), Awareness(False, "no idea")
    assert cuda_aware.agree([yes, yes]) == yes
    assert cuda_aware.agree([yes, no, yes]) == Awareness(False, "rank 1: no idea")


@pytest.mark.case("AWARE-SEGV")
def test_no_pointer_without_knowledge(world):
    """Where nothing is known, device arrays have the path through the host only."""
    context = world._get_context()
    why = path("direct").unoffered(context, None)
    assert (why == "") is context.cuda_aware.aware
    assert context.cuda_aware.aware or context.cuda_aware.reason in why


@pytest.mark.case("AWARE-DETECT")
def test_the_probe_is_a_process_of_its_own(machine, world):
    """A crash or a hang of the probe is an answer; it is no rank of this job."""
    environ = cuda_aware.probe_environment({"PMI_RANK": "1", "PMIX_RANK": "1", "OMPI_MCA_pml": "ucx", "HOME": "/"})
    assert set(environ) == {"OMPI_MCA_pml", "HOME", "MPICOLL_PREPARE", "MPICOLL_STANDIN"}
    assert environ["MPICOLL_STANDIN"] == "no"  # else mpicoll's own messages would be tried
    for code, text in (("raise SystemExit(3)", "exit status 3"), ("import os; os.abort()", "exit status -6")):
        machine.undo()
        machine.setattr(cuda_aware, "_PROBE", code)
        found = cuda_aware.probe()
        assert (found.aware, text in found.reason) == (False, True)
    machine.setattr(cuda_aware, "_PROBE", "pass")
    assert cuda_aware.probe().aware
    check(world, Case("Allreduce"))


@pytest.mark.case("ABI-MIX")
@pytest.mark.parametrize(("launcher", "ranks", "warned"), [("PMI_SIZE", SIZE, False), ("PMI_SIZE", SIZE + 3, True)])
def test_launcher_and_library_that_differ(monkeypatch, launcher, ranks, warned):
    """Mpirun of one MPI and mpi4py of another: every process would be alone."""
    for name in info.SIZES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(launcher, str(ranks))
    text = str(info.rows())
    assert (f"the launcher started {ranks} ranks, MPI sees {SIZE}" in text) is warned
    assert MPI.Get_library_version().split()[0] in text


@pytest.mark.case("AWARE-DETECT")
def test_the_report_tells_decision_and_reason(monkeypatch):
    """`python -m mpicoll info` prints whether MPI gets device pointers, and why."""
    cuda_aware.decide.cache_clear()
    monkeypatch.setattr(cuda_aware, "has_driver", lambda: False)
    try:
        found = dict(info.rows())
    finally:
        cuda_aware.decide.cache_clear()
    if mpicoll.settings.cuda_aware is None:
        assert found["device pointers in MPI"] == "no: no NVIDIA driver on this machine"
        assert {f"path {name}" for name in serving("device")} <= found.keys()


@pytest.mark.case("GTL-CRAY")
def test_the_report_shows_what_makes_mpi_ask_for_a_gpu(monkeypatch):
    """GPU support is asked for by a variable; the report shows it beside the library."""
    monkeypatch.setenv("MPICH_GPU_SUPPORT_ENABLED", "1")
    assert ("  environment MPICH_GPU_SUPPORT_ENABLED", "1") in info.rows()


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
    found = facts.collect(["--op", "barrier"], MPI.COMM_WORLD, world, HostBackend())
    for hosts, warned in ((["here"], True), ([], False)):
        text = "\n".join(facts.lines({**found, "oversubscribed": hosts}))
        assert ("WARNING: more ranks than cores on here" in text) is warned
    assert bool(found["oversubscribed"]) == any(n > found["cores"][host] for host, n in found["hosts"].items())
