"""What the harness does when a test fails or hangs: each test here runs a job of its own."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
# A job that nothing ends fails its test; within the time that a test here has, 120 s.
LIMIT = 100
ENVIRONMENT = {
    "NO_COLOR": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

pytestmark = pytest.mark.slow
needs_mpirun = pytest.mark.skipif(MPIRUN is None, reason="no mpirun on the PATH")


class Job:
    """A pytest run of one file with the harness: its exit code and what it printed."""

    def __init__(self, folder, body, ranks=0, timeout=60):
        shutil.copy(TESTS / "conftest.py", folder)
        (folder / "test_it.py").write_text(textwrap.dedent(body))
        options = ["-c", TESTS.parent / "setup.cfg", "--rootdir", folder, "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, folder]
        if ranks:
            command[1:1] = ["-m", "mpi4py"]
            command = [MPIRUN, "-n", str(ranks), *command, "--with-mpi"]
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | ENVIRONMENT | {"MPICOLL_TEST_TIMEOUT": str(timeout)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            text=True,
            check=False,
        )
        self.code, self.output = done.returncode, done.stdout


@needs_mpirun
def test_ranks_that_pass_speak_with_one_voice(tmp_path):
    job = Job(tmp_path, "def test_passes(): print('quiet')", ranks=3)
    assert job.code == 0, job.output
    assert job.output.count("1 passed") == 1
    assert job.output.count("rank 0 of 3") == 1
    assert "rank 1" not in job.output
    assert "quiet" not in job.output


@needs_mpirun
@pytest.mark.parametrize("rank", [0, 2])
def test_one_failure_ends_the_job(tmp_path, rank):
    """HANG-EXC."""
    body = f"""
        from mpi4py import MPI

        def test_fails_somewhere():
            if MPI.COMM_WORLD.rank == {rank}:
                print("printed before")
                assert [1, 2] == [1, 3]
            MPI.COMM_WORLD.Barrier()
    """
    job = Job(tmp_path, body, ranks=3)
    assert job.code != 0, job.output
    assert "TIMEOUT" not in job.output
    assert f"rank {rank} of 3: FAILED test_it.py::test_fails_somewhere (call)" in job.output
    assert "At index 1 diff: 2 != 3" in job.output
    assert "printed before" in job.output
    assert job.output.count("FAILED") == 1


@needs_mpirun
def test_a_file_that_one_rank_cannot_import_ends_the_job(tmp_path):
    body = """
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 1:
            import no_such_module

        def test_waits():
            MPI.COMM_WORLD.Barrier()
    """
    job = Job(tmp_path, body, ranks=2)
    assert job.code != 0, job.output
    assert "TIMEOUT" not in job.output
    assert "rank 1 of 2: ERROR collecting test_it.py" in job.output
    assert "no_such_module" in job.output


@needs_mpirun
def test_a_rank_that_hangs_ends_the_job(tmp_path):
    body = """
        import time
        from mpi4py import MPI

        def test_hangs():
            if MPI.COMM_WORLD.rank == 1:
                while True:
                    time.sleep(1)  # for ever
            MPI.COMM_WORLD.Barrier()  # for the one that sleeps
    """
    job = Job(tmp_path, body, ranks=3, timeout=2)
    assert job.code != 0, job.output
    for rank in range(3):
        assert f"rank {rank} of 3: TIMEOUT, test_it.py::test_hangs did not end in 2 s" in job.output
    assert job.output.count("time.sleep(1)  # for ever") == 1
    assert job.output.count("MPI.COMM_WORLD.Barrier()  # for the one that sleeps") == 2
    assert "pluggy/" not in job.output


def test_a_hang_ends_a_unit_run_too(tmp_path):
    job = Job(tmp_path, "import time\ndef test_hangs(): time.sleep(100)", timeout=1)
    assert job.code == 1, job.output
    assert "TIMEOUT, test_it.py::test_hangs did not end in 1 s" in job.output


def test_a_test_in_time_is_left_alone(tmp_path):
    body = """
        import time

        def test_some_time(): time.sleep(1.2)
        def test_more_time(): time.sleep(1.2)
    """
    job = Job(tmp_path, body, timeout=2)
    assert job.code == 0, job.output


@needs_mpirun
def test_ranks_that_collect_other_tests_are_stopped(tmp_path):
    body = """
        import pytest
        from mpi4py import MPI

        @pytest.mark.parametrize("number", [1, 2] if MPI.COMM_WORLD.rank == 0 else [2, 1])
        def test_some(number):
            pass
    """
    job = Job(tmp_path, body, ranks=2)
    assert job.code != 0, job.output
    expected = "COLLECTION differs: test_it.py::test_some[2] where rank 0 has test_it.py::test_some[1]"
    assert f"rank 1 of 2: {expected}" in job.output


@needs_mpirun
def test_a_failing_example_ends_the_job_unshrunk(tmp_path):
    body = """
        import pytest
        from hypothesis import given, strategies as st
        from mpi4py import MPI

        @pytest.mark.parametrize("limit", [3])
        @given(number=st.integers(0, 100))
        def test_numbers(number, limit):
            failed = MPI.COMM_WORLD.rank == 1 and number > limit
            MPI.COMM_WORLD.Barrier()
            assert not failed
    """
    job = Job(tmp_path, body, ranks=2)
    assert job.code != 0, job.output
    assert "TIMEOUT" not in job.output
    assert "rank 1 of 2: FAILED test_it.py::test_numbers[3] (call)" in job.output
    assert "example: limit=3, number=" in job.output or "example: number=" in job.output


def test_a_unit_run_starts_no_mpi(tmp_path):
    body = """
        import sys

        def test_modules():
            assert "mpi4py.MPI" not in sys.modules
            assert "mpicoll" not in sys.modules
    """
    job = Job(tmp_path, body)
    assert job.code == 0, job.output
    assert "mpicoll: no MPI, " in job.output


def test_a_unit_run_leaves_the_mpi_tests_alone(tmp_path):
    (tmp_path / "mpi").mkdir()
    (tmp_path / "mpi" / "test_that.py").write_text("raise ImportError('collected')")
    job = Job(tmp_path, "def test_passes(): pass")
    assert job.code == 0, job.output
    assert "1 passed" in job.output


def test_gpu_tests_say_why_they_are_skipped(tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('no CUDA here')")
    body = """
        import pytest

        @pytest.mark.gpu
        def test_device(): raise AssertionError

        def test_host(): pass
    """
    job = Job(tmp_path, body)
    assert job.code == 0, job.output
    assert "1 passed, 1 skipped" in job.output
    assert "no GPU: ImportError: no CUDA here" in job.output


def test_each_rank_of_a_node_gets_a_device_in_turn(tmp_path, monkeypatch):
    """DEV-RANKMAP."""
    monkeypatch.setenv("MPI_LOCALRANKID", "3")
    cupy = """
        from types import SimpleNamespace

        class Device:
            used = None

            def __init__(self, number):
                self.number = number

            def use(self):
                Device.used = self.number

        cuda = SimpleNamespace(Device=Device, runtime=SimpleNamespace(getDeviceCount=lambda: 2))
    """
    (tmp_path / "cupy.py").write_text(textwrap.dedent(cupy))
    body = """
        import cupy
        import pytest

        @pytest.mark.gpu
        def test_device():
            assert cupy.cuda.Device.used == 1
    """
    job = Job(tmp_path, body)
    assert job.code == 0, job.output
    assert "1 passed" in job.output
