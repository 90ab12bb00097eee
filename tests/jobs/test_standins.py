"""Programs as they are, started by `python -m mpicoll run` or with its variable."""

import re
import subprocess
import sys

import pytest

from mpicoll.standin.start import SITE

#: what a program finds that uses MPI in the usual way
CHECK = """
import sys
assert not {"numpy", "rich", "mpi4py.MPI"} & set(sys.modules), sorted(sys.modules)
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
kinds = type(comm), type(MPI.COMM_SELF), type(comm.Split(0)), type(MPI)
names = [kind.__name__ for kind in kinds]
assert names == ["Communicator"] * 3 + ["module"], names
x, y = np.full(50, rank, "f8"), np.zeros(50)
for _ in range(10):
    comm.Allreduce(x, y)
assert (y == sum(range(size))).all()
assert comm.allreduce(1) == size and MPI.COMM_SELF.size == 1

def last_words():
    import time
    sys.stdout.write(f"done {rank} {time.time()}\\n")
    sys.stdout.flush()
"""


def test_a_script_runs_as_python_runs_it(run, tmp_path):
    body = f"""
        assert sys.argv == ["program.py", "--report", "-m", "x"], sys.argv
        assert (__name__, __file__, sys.path[0]) == ("__main__", {str(tmp_path / "program.py")!r}, {str(tmp_path)!r})
        assert vars(sys.modules["__main__"]) is globals()
        last_words()
    """
    run(CHECK, body, arguments=("program.py", "--report", "-m", "x")).is_clean(2)


def test_a_module_runs_as_python_runs_it(run, tmp_path):
    body = f"""
        assert sys.argv == [{str(tmp_path / "program.py")!r}, "--json", "x"], sys.argv
        assert (__name__, __spec__.name) == ("__main__", "program")
        last_words()
    """
    run(CHECK, body, arguments=("-m", "program", "--json", "x")).is_clean(2)


WAYS = {
    "import": ("import mpicoll", "yes", ""),
    "path": ("", "yes", str(SITE)),
    "off": ("", "no", str(SITE)),
    "none": ("import mpicoll", "", ""),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_variable_is_enough_where_mpicoll_is_imported_or_on_the_path(run, way, monkeypatch):
    first, value, path = WAYS[way]
    body = "from mpi4py import MPI; print(type(MPI.COMM_WORLD).__name__)"
    if path:
        monkeypatch.setenv("PYTHONPATH", path, prepend=":")
    job = run(first, body, ranks=0, launch=(), MPICOLL_STANDIN=value)
    assert job.output == {"yes": "Communicator\n"}.get(value, "Intracomm\n")


def test_names_that_were_taken_from_the_module_are_stand_ins(run):
    body = """
        from mpi4py.MPI import *
        from mpi4py.MPI import COMM_WORLD as world
        import mpi4py.MPI, pickle
        assert world is COMM_WORLD is mpi4py.MPI.COMM_WORLD, (world, COMM_WORLD)
        assert type(world) is type(COMM_SELF) is __import__("mpicoll").Communicator
        print("well")
    """
    assert run(body, ranks=0).output == "well\n"


@pytest.mark.parametrize("first", ["mpicoll.AVG", "mpicoll.Communicator", "mpicoll.allreduce"])
def test_mpicoll_may_be_the_first_to_import_mpi(run, first):
    """Its own modules import mpi4py.MPI, in the middle of their own import."""
    body = f"""
        import mpicoll
        {first}
        from mpi4py import MPI
        assert type(MPI.COMM_WORLD) is mpicoll.Communicator
        assert mpicoll.allreduce(1.0) == mpicoll.Communicator().size == MPI.COMM_WORLD.size
        print("well")
    """
    assert run(body, ranks=0).output == "well\n"


def test_communicators_are_pickled_as_without_stand_ins(run):
    body = """
        import copy, pickle
        from mpi4py import MPI
        for comm in (MPI.COMM_WORLD, MPI.COMM_SELF, MPI.Intracomm(MPI.COMM_WORLD)):
            for again in (pickle.loads(pickle.dumps(comm)), copy.copy(comm), copy.deepcopy(comm)):
                assert again == comm and type(again) is type(comm), (again, comm)
        try:
            pickle.dumps(MPI.COMM_WORLD.Dup())
        except ValueError as error:
            print(error)
    """
    assert run(body, ranks=0).output == "cannot serialize 'mpi4py.MPI.Intracomm' instance\n"


def test_a_program_may_start_mpi_itself(run):
    body = """
        import mpi4py
        mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
        import numpy as np
        comm = MPI.COMM_WORLD
        assert type(comm).__name__ == "ReportedCommunicator"
        assert not MPI.Is_initialized()
        MPI.Init_thread()
        y = np.zeros(5)
        comm.Allreduce(np.ones(5), y)
        assert (y == comm.size).all()
        MPI.Finalize()
        print("well")
    """
    job = run(body, launch=("-m", "mpicoll", "run", "--report"))
    assert job.code == 0, job.output
    assert job.output.count("well") == 2
    assert re.search(r"^mpicoll: 2 calls served, .*; 2 of 2 ranks reported$", job.output, re.MULTILINE), job.output


CHILD = """
import sys
from mpi4py import MPI
print(type(MPI.COMM_WORLD).__name__, *(entry for entry in sys.path if "standin" in entry))
"""


def test_processes_that_it_starts_have_stand_ins(run):
    """Those of subprocess and those of multiprocessing, which are spawned; a process without MPI imports nothing."""
    body = f"""
        import multiprocessing, subprocess, sys

        def child():
            exec({CHILD!r})

        if __name__ == "__main__":
            for code in ({CHILD!r}, "import sys; print('mpicoll' in sys.modules)"):
                print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout, end="")
            process = multiprocessing.get_context("spawn").Process(target=child)
            process.start()
            process.join()
    """
    assert run(body, ranks=0).output == "Communicator\nFalse\nCommunicator\n"


def test_a_sitecustomize_of_the_users_is_run_in_children_too(run, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import sys\nsys.mine = __file__\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"), prepend=":")
    code = "import sys, sitecustomize; print(sys.mine == sitecustomize.__file__, sys.mine)"
    body = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code + CHILD!r}])\n"
    assert run(body, ranks=0).output == f"True {tmp_path}/mine/sitecustomize.py\nCommunicator\n"


@pytest.mark.parametrize(
    "body",
    [
        "raise SystemExit(3)",
        "raise SystemExit('a text')",
        "raise SystemExit",
        "def f():\n    raise ValueError('a mistake')\nf()\n",
        "x = (\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError(1) from error\n",
    ],
)
def test_it_ends_as_with_python_alone(run, body):
    """Status and output are the same, for a program without MPI."""
    mine, plain = run(body, ranks=0), run(body, ranks=0, launch=())
    assert (mine.code, mine.output) == (plain.code, plain.output)


def test_an_error_on_one_rank_ends_the_job(run):
    body = """
        last_words()
        if rank == 1:
            raise ValueError("a mistake")
        comm.Barrier()
    """
    for options in ((), ("--report",)):
        job = run(CHECK.replace("assert names", "_ = names"), body, launch=("-m", "mpicoll", "run", *options))
        assert job.code != 0
        assert job.output.count("ValueError: a mistake") == 1, job.output
        job.ends_soon()


def test_an_installed_package_needs_the_variable_only(run, tmp_path, monkeypatch):
    """A build has a file beside the package that Python reads when it starts, as from site-packages."""
    pytest.importorskip("setuptools")
    root = SITE.parents[2]
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(tmp_path / "build")]
    subprocess.run(command, cwd=root, capture_output=True, timeout=120, check=True)
    body = f"""
        import site
        site.addsitedir({str(tmp_path / "build" / "lib")!r})
        from mpi4py import MPI
        print(type(MPI.COMM_WORLD).__name__)
    """
    for value, name in (("yes", "Communicator"), ("", "Intracomm"), ("no", "Intracomm")):
        assert run(body, ranks=0, launch=(), MPICOLL_STANDIN=value).output == f"{name}\n"
