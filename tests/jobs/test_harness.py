"""What the harness does when a test fails or hangs: each test here runs a job of its own."""

import shutil
import textwrap
from pathlib import Path

import pytest

from jobs.runner import TOGETHER, Job, python

TESTS = Path(__file__).parents[1]


@pytest.fixture
def session(tmp_path):
    """Run pytest on one file with the harness: on some ranks, or on 0 without MPI."""

    def run(body, ranks=0, timeout=60):
        shutil.copy(TESTS / "conftest.py", tmp_path)
        (tmp_path / "test_it.py").write_text(textwrap.dedent(body))
        options = ["-c", TESTS.parent / "setup.cfg", "--rootdir", tmp_path, "-p", "no:cacheprovider"]
        with_mpi = [*TOGETHER, "-m", "pytest", "--with-mpi"] if ranks else ["-m", "pytest"]
        command = python(ranks, *with_mpi, *options, tmp_path)
        return Job(tmp_path, command, MPICOLL_TEST_TIMEOUT=str(timeout)).end()

    return run


def test_ranks_that_pass_speak_with_one_voice(session):
    ended = session("def test_passes(): print('quiet')", ranks=3)
    assert ended.code == 0, ended.output
    assert ended.output.count("1 passed") == 1
    assert ended.output.count("rank 0 of 3") == 1
    assert "rank 1" not in ended.output
    assert "quiet" not in ended.output


@pytest.mark.case("HANG-EXC")
@pytest.mark.parametrize("rank", [0, 1])
def test_one_failure_ends_the_job(session, rank):
    """The ranks that did not fail are not left waiting."""
    body = f"""
        from mpi4py import MPI

        def test_fails_somewhere():
            if MPI.COMM_WORLD.rank == {rank}:
                print("printed before")
                assert [1, 2] == [1, 3]
            MPI.COMM_WORLD.Barrier()
    """
    ended = session(body, ranks=2)
    assert ended.code != 0, ended.output
    assert "TIMEOUT" not in ended.output
    assert f"rank {rank} of 2: FAILED test_it.py::test_fails_somewhere (call)" in ended.output
    assert "At index 1 diff: 2 != 3" in ended.output
    assert "printed before" in ended.output
    assert ended.output.count("FAILED") == 1


def test_a_file_that_one_rank_cannot_import_ends_the_job(session):
    body = """
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 1:
            import no_such_module

        def test_waits():
            MPI.COMM_WORLD.Barrier()
    """
    ended = session(body, ranks=2)
    assert ended.code != 0, ended.output
    assert "TIMEOUT" not in ended.output
    assert "rank 1 of 2: ERROR collecting test_it.py" in ended.output
    assert "no_such_module" in ended.output


def test_a_rank_that_hangs_ends_the_job(session):
    body = """
        import time
        from mpi4py import MPI

        def test_hangs():
            if MPI.COMM_WORLD.rank == 1:
                while True:
                    time.sleep(1)  # for ever
            MPI.COMM_WORLD.Barrier()  # for the one that sleeps
    """
    ended = session(body, ranks=2, timeout=2)
    assert ended.code != 0, ended.output
    for rank in range(2):
        assert f"rank {rank} of 2: TIMEOUT, test_it.py::test_hangs did not end in 2 s" in ended.output
    assert ended.output.count("time.sleep(1)  # for ever") == 1
    assert ended.output.count("MPI.COMM_WORLD.Barrier()  # for the one that sleeps") == 1
    assert "pluggy/" not in ended.output


@pytest.mark.parametrize("hang", ["time.sleep(100)", "while True: pass"])
def test_a_hang_ends_a_unit_run_too(session, hang):
    ended = session(f"import time\ndef test_hangs():\n    {hang}", timeout=2)
    assert ended.code == 1, ended.output
    assert "TIMEOUT, test_it.py::test_hangs did not end in 2 s" in ended.output


def test_a_test_in_time_is_left_alone(session):
    """On ranks, too, the time of one test is not that of the next."""
    body = """
        import time

        def test_some_time(): time.sleep(1.2)
        def test_more_time(): time.sleep(1.2)
    """
    ended = session(body, ranks=1, timeout=2)
    assert ended.code == 0, ended.output


def test_a_unit_run_may_wait_for_others(session):
    """Without MPI, a test that does nothing waits for a loaded machine, or for a process that it has started."""
    ended = session("import time\ndef test_waits(): time.sleep(4)", timeout=2)
    assert ended.code == 0, ended.output


def test_ranks_that_collect_other_tests_are_stopped(session):
    body = """
        import pytest
        from mpi4py import MPI

        @pytest.mark.parametrize("number", [1, 2] if MPI.COMM_WORLD.rank == 0 else [2, 1])
        def test_some(number):
            pass
    """
    ended = session(body, ranks=2)
    assert ended.code != 0, ended.output
    expected = "COLLECTION differs: test_it.py::test_some[2] where rank 0 has test_it.py::test_some[1]"
    assert f"rank 1 of 2: {expected}" in ended.output


def test_a_failing_example_ends_the_job_unshrunk(session):
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
    ended = session(body, ranks=2)
    assert ended.code != 0, ended.output
    assert "TIMEOUT" not in ended.output
    assert "rank 1 of 2: FAILED test_it.py::test_numbers[3] (call)" in ended.output
    assert "example: limit=3, number=" in ended.output or "example: number=" in ended.output


def test_a_unit_run_starts_no_mpi(session):
    body = """
        import sys

        def test_modules():
            assert "mpi4py.MPI" not in sys.modules
            assert "mpicoll" not in sys.modules
    """
    ended = session(body)
    assert ended.code == 0, ended.output
    assert "mpicoll: no MPI, " in ended.output


def test_a_unit_run_leaves_the_mpi_tests_alone(session, tmp_path):
    (tmp_path / "mpi").mkdir()
    (tmp_path / "mpi" / "test_that.py").write_text("raise ImportError('collected')")
    ended = session("def test_passes(): pass")
    assert ended.code == 0, ended.output
    assert "1 passed" in ended.output


def test_gpu_tests_are_left_out_and_say_why(session, tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('no CUDA here')")
    body = """
        import pytest

        @pytest.mark.gpu
        def test_device(): raise AssertionError

        def test_host(): pass
    """
    ended = session(body)
    assert ended.code == 0, ended.output
    assert "1 passed, 1 deselected" in ended.output
    assert "mpicoll: left out 1 for no GPU: ImportError: no CUDA here" in ended.output


@pytest.mark.case("DEV-RANKMAP")
def test_each_rank_of_a_node_gets_a_device_in_turn(session, tmp_path, monkeypatch):
    """The fourth rank of a node with two devices uses the second one."""
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
    ended = session(body)
    assert ended.code == 0, ended.output
    assert "1 passed" in ended.output
