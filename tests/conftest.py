"""The harness of the tests.

Three folders, and the folder decides; no marker is needed:

- `tests/unit` runs in one process (`make test-unit`) and never sees MPI.
- `tests/jobs` runs in one process, too, with each MPI (`make test-jobs`): a test there starts a job of its own,
  in which ranks may die, hang or raise.
- `tests/mpi` runs under mpirun with `--with-mpi` (`make test-4`).  Every test there runs on every
  rank at the same time and in the same order; without `--with-mpi` the folder is not collected.
  `@pytest.mark.mpi(min_size=2)` leaves a test out where there are fewer ranks, `@pytest.mark.ranks(2, 3)` where
  there are others.  On more than 3 ranks only tests marked `many_ranks` run, of algorithms and whatever else
  depends on the number, and those on GPUs; MPICOLL_TEST_EVERYTHING=1 runs all.

With more than one rank the first failure anywhere ends the job, for the others would wait for the
rank that failed.  Where a rank must not fail alone, assert on a fact that all ranks share (reduce
it first): all reports say the same, and one is enough.

A test that does not finish within MPICOLL_TEST_TIMEOUT seconds (120; 0 is never) ends the job too,
and every rank says where it was.  Without MPI these are seconds of work: of waiting, for a loaded machine
or for a job, a test may do ten times as much.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import gc
import importlib.util
import os
import runpy
import shutil
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import hypothesis
import pytest

TIMEOUT = float(os.environ.get("MPICOLL_TEST_TIMEOUT", "120"))
# Seconds for the other ranks to say where they hang, before the first of them ends the job.
GRACE = 2.0
# Seconds from one rank's turn to report a failure to the next one's.  What a rank prints goes through
# mpirun, which drops what it has not read when the job is aborted.
TURN = 0.5
# Seconds of waiting that count as one, for a test without MPI.
PATIENCE = 10
# Run as a file, for an import would make mpicoll ready before a test does.
PACKAGE: Any = importlib.util.find_spec("mpicoll")
VERSIONS = runpy.run_path(str(Path(PACKAGE.origin).with_name("versions.py")))["versions"]
# On more ranks than this only the tests marked many_ranks run, unless MPICOLL_TEST_EVERYTHING is set.
FEW = 3
EVERYTHING = "MPICOLL_TEST_EVERYTHING" in os.environ
MPI_TESTS, JOBS = Path(__file__).parent / "mpi", Path(__file__).parent / "jobs"

# What is chosen must not depend on the tuning tables of who runs the tests, nor on the packaged ones of their machine;
# jobs that tests start inherit it.
os.environ["MPICOLL_TUNING"] = "model"
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="mpicoll-config-")
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)

# All ranks must draw the same examples, so nothing may depend on a database, a clock or chance.
hypothesis.settings.register_profile(
    "mpi",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.register_profile("unit", deadline=None)


class World:
    """This process among the others; alone, without MPI, in the other runs."""

    def __init__(self, with_mpi: bool) -> None:
        self.comm: Any = None
        self.rank, self.size, self.library = 0, 1, "no MPI"
        if with_mpi:
            mpi = _load_mpi()
            self.comm = mpi.COMM_WORLD
            self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
            vendor, version = mpi.get_vendor()
            self.library = f"{vendor} {'.'.join(map(str, version))}"
        # pytest will take file descriptor 2 for itself; what must be seen goes here.
        self.stderr = os.dup(2)

    def say(self, text: str) -> None:
        """Print a text whole, with the rank in front, whatever pytest has captured."""
        name = f"rank {self.rank} of {self.size}: " if self.size > 1 else ""
        os.write(self.stderr, f"\n{name}{text.rstrip()}\n".encode())

    def abort(self, text: str) -> NoReturn:
        """Print a text and end all ranks; where several fail alike, only the lowest comes to it."""
        time.sleep(TURN * min(self.rank, 16))
        self.say(text)
        time.sleep(0.8 * TURN)
        self.comm.Abort(1)
        os._exit(1)  # MPICH's Abort may return before the process is killed


def _load_mpi() -> Any:
    """Import MPI as a user of mpicoll gets it: after the UCX that knows CUDA, where there is one."""
    from mpicoll.runtime.mpi.environment import prepare

    prepare()
    from mpi4py import MPI

    return MPI


class Watchdog:
    """Ends a process that has not finished a test for some time, and says where it was.

    A thread, and not an alarm, for MPI calls do not return to run a signal's handler.  It ends the
    process without MPI, which may be what hangs; mpirun then ends the other ranks.
    """

    def __init__(self, world: World, seconds: float) -> None:
        self.world, self.seconds = world, seconds
        self.clock, self.most = (time.monotonic, seconds) if world.comm else (_work, seconds * PATIENCE)
        self.what, self.since = "", self.clock()
        self.main = threading.get_ident()
        if seconds:
            threading.Thread(target=self._run, daemon=True).start()

    def watch(self, what: str) -> None:
        """Start to wait for the end of something else."""
        self.what, self.since = what, self.clock()
        if self.seconds:
            # Where C code holds the interpreter lock the thread cannot run, but this can.
            faulthandler.dump_traceback_later(self.most + 2 * GRACE, exit=True, file=self.world.stderr)

    def _run(self) -> None:
        while self.clock() < self.since + self.seconds:
            time.sleep(min(0.5, self.seconds))
        stack = "".join(traceback.format_list(_own_frames(sys._current_frames()[self.main])))
        self.world.say(f"TIMEOUT, {self.what} did not end in {self.seconds:g} s; it is at\n{stack}")
        time.sleep(GRACE if self.world.size > 1 else 0)
        os._exit(1)


def _work() -> float:
    """Return seconds of this process's work, and a tenth of those that have passed."""
    return time.process_time() + time.monotonic() / PATIENCE


def _own_frames(frame: FrameType) -> list[traceback.FrameSummary]:
    """A stack without what every test has below it: the interpreter's start, pytest and pluggy."""
    frames = traceback.extract_stack(frame)
    below = [i for i, f in enumerate(frames) if {"_pytest", "pluggy"} & set(Path(f.filename).parts)]
    return frames[below[-1] + 1 :] if below and below[-1] + 1 < len(frames) else frames


class Harness:
    """What all runs have: the watchdog, the header, and only those tests that can run here."""

    def __init__(self, world: World, watchdog: Watchdog) -> None:
        self.world, self.watchdog = world, watchdog
        self.left_out: Counter[str] = Counter()

    def pytest_report_header(self) -> str:
        """One line of what the tests ran with."""
        world = self.world
        where = f"rank {world.rank} of {world.size}" if world.comm else "one process"
        found = [f"{name} {version}" for name, version in VERSIONS().items()]
        return "mpicoll: " + ", ".join([world.library, *found, where])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect what cannot run here, of what was asked for: a skip costs each rank time."""
        why_not = {item: self._why_not(item) for item in items}
        self.left_out.update(filter(None, why_not.values()))
        config.hook.pytest_deselected(items=[item for item in items if why_not[item]])
        items[:] = [item for item in items if not why_not[item]]

    def _why_not(self, item: pytest.Item) -> str:
        """Return why a test is left out, nothing if it runs."""
        gpu = item.get_closest_marker("gpu")
        if gpu and (trouble := _gpu_trouble()):
            return f"no GPU: {trouble}"
        return "" if self.world.comm is None or _is_for(item, self.world.size, bool(gpu)) else "another number of ranks"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line of how many were left out, and why."""
        if self.left_out:
            parts = [f"{number} for {why}" for why, number in sorted(self.left_out.items())]
            terminalreporter.line(f"mpicoll: left out {', '.join(parts)}")

    def pytest_collection_finish(self) -> None:
        """Keep the tests themselves out of garbage collections, which tests ask for hundreds of times."""
        gc.collect()
        gc.freeze()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self.watchdog.watch(nodeid)

    def pytest_sessionfinish(self) -> None:
        """The last test has ended, but not yet what remains of the run."""
        self.watchdog.watch("the end of the run")


class Lockstep:
    """What runs of several ranks have besides: the same tests in the same order, and one end for all."""

    def __init__(self, world: World) -> None:
        self.world = world

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Ranks that run different tests would wait for each other for ever."""
        mine = [item.nodeid for item in session.items]
        first = self.world.comm.bcast(mine, root=0)
        if mine != first:
            pairs = zip([*mine, "nothing"], [*first, "nothing"], strict=False)
            mine_has, first_has = next((a, b) for a, b in pairs if a != b)
            self.world.abort(f"COLLECTION differs: {mine_has} where rank 0 has {first_has}")
        # No rank goes on before all have compared.
        self.world.comm.Barrier()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Hypothesis runs a failing example again, alone: what it calls must end the job at once."""
        handle = getattr(getattr(item, "obj", None), "hypothesis", None)
        # The items of a parametrized test share one function.
        if handle is not None and not hasattr(handle.inner_test, "ends_all"):
            handle.inner_test = self._ends_all(handle.inner_test)

    def _ends_all(self, test: Any) -> Any:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return test(*args, **kwargs)
            except hypothesis.errors.HypothesisException:  # assume() and its like
                raise
            except (Exception, pytest.fail.Exception):
                example = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
                where = os.environ["PYTEST_CURRENT_TEST"]
                self.world.abort(f"FAILED {where}\nexample: {example}\n{traceback.format_exc()}")

        run.ends_all = True  # type: ignore[attr-defined]
        return run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The first failure ends the job."""
        self._check(report, f"FAILED {report.nodeid} ({report.when})")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """So does a file that cannot be imported."""
        self._check(report, f"ERROR collecting {report.nodeid}")

    def _check(self, report: pytest.TestReport | pytest.CollectReport, title: str) -> None:
        if report.failed:
            captured = [f"--- {name} ---\n{text}" for name, text in report.sections if text.strip()]
            self.world.abort("\n".join([title, report.longreprtext, *captured]))

    def pytest_internalerror(self, excrepr: object) -> None:
        """And an error of pytest's own."""
        self.world.abort(f"INTERNAL ERROR\n{excrepr}")


@functools.cache
def _gpu_trouble() -> str:
    """Give each rank of a node a device of its own, and return why that failed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what CuPy says when imported is no reason
            import cupy

        from mpicoll.runtime.mpi.environment import local_rank

        devices = cupy.cuda.runtime.getDeviceCount()
        cupy.cuda.Device(local_rank() % devices).use()
    except Exception as error:  # not installed, no library, no driver, no device: all are reasons
        return f"{type(error).__name__}: {error}"
    return ""


def _is_for(item: pytest.Item, size: int, gpu: bool) -> bool:
    """Tell whether a test is for so many ranks, by its markers `mpi`, `ranks` and `many_ranks`."""
    few = size <= FEW or gpu or EVERYTHING or item.path.parent != MPI_TESTS
    return (
        all(size >= mark.kwargs.get("min_size", 0) for mark in item.iter_markers("mpi"))
        and all(size in mark.args for mark in item.iter_markers("ranks"))
        and (few or item.get_closest_marker("many_ranks") is not None)
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the MPI tests to runs that asked for MPI, and the jobs to those that did not."""
    if collection_path == (JOBS if config.getoption("--with-mpi") else MPI_TESTS):
        return True
    return None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Find out where we are, and set up accordingly."""
    with_mpi = config.getoption("--with-mpi")
    hypothesis.settings.load_profile("mpi" if with_mpi else "unit")
    world = World(with_mpi)
    if world.size > 1:  # ranks that shared a folder would clear each other's away at their end
        root = tempfile.mkdtemp(prefix=f"rank{world.rank}-")
        os.environ["PYTEST_DEBUG_TEMPROOT"] = root
        atexit.register(shutil.rmtree, root, ignore_errors=True)
    watchdog = Watchdog(world, 0 if config.getoption("usepdb") else TIMEOUT)
    watchdog.watch("collection")
    plugins = config.pluginmanager
    plugins.register(Harness(world, watchdog))
    if with_mpi:
        # pytest-mpi closes each run with a page on the MPI library; the header says it in a line.
        for plugin in plugins.get_plugins():
            if hasattr(plugin, "_is_testing_mpi"):
                plugin._is_testing_mpi = False
    if world.size > 1:
        plugins.register(Lockstep(world))
    if world.rank > 0:
        # One rank reports; the others speak up when they fail.
        reporter: Any = plugins.unregister(name="terminalreporter")
        silent = type(reporter)(config, Path(os.devnull).open("w"))  # noqa: SIM115  (open to the end)
        plugins.register(silent, "terminalreporter")
