"""Published programs' own tests, unchanged, on mpicoll: python tests/clients/run.py FOLDER MPI [NAME ...].

Each program comes from its source distribution, through pip, and is installed into an environment of its own in the
folder, with mpicoll and the MPI library.  Its tests run with `python -m mpicoll run --report`; what they print last,
and the report, are shown.  The exit status is 1 if a test fails, or fewer calls are served than there should be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path

#: options for unpacking; older releases of Python have none
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}

ROOT = Path(__file__).parents[2]
#: seconds for one job
LIMIT = 600


@dataclass(frozen=True)
class Client:
    """A program.

    Attributes:
        release: its name and version.
        needs: requirements that pip installs as wheels.
        builds: requirements for building it.
        jobs: its tests: arguments of `mpicoll run`, in its folder of tests.
        ranks: numbers of ranks on which they run.
        served: calls that mpicoll serves in each job at least.
    """

    release: str
    needs: tuple[str, ...]
    builds: tuple[str, ...]
    jobs: tuple[str, ...]
    ranks: tuple[int, ...]
    served: int

    @property
    def name(self) -> str:
        return self.release.partition("==")[0]


CLIENTS = (
    Client(
        "mpi4py-fft==2.0.6",
        ("numpy", "scipy"),
        ("cython", "setuptools", "wheel"),
        ("test_pencil.py", "test_darray.py"),
        (2, 3, 4),
        100,
    ),
    Client(
        "pylops-mpi==0.8.0",
        ("numpy", "scipy", "pylops", "pyproximal", "matplotlib", "pytest<9", "pytest-mpi"),
        ("setuptools", "setuptools-scm", "wheel"),
        ("-m pytest --with-mpi -q -p no:cacheprovider test_distributedarray.py test_stack.py",),
        (2, 3),
        100,
    ),
)


def main(folder: Path, mpi: str, names: list[str]) -> int:
    """Run the clients of these names, all if there are none; return the exit status."""
    wrong = 0
    for client in CLIENTS:
        if not names or client.name in names:
            home = folder.absolute() / mpi / client.name
            tests = installed(client, home, mpi)
            wrong += sum(not passed(client, home, tests, job, ranks) for job in client.jobs for ranks in client.ranks)
    return bool(wrong)


def installed(client: Client, home: Path, mpi: str) -> Path:
    """Return a client's folder of tests, after it was installed where it was not."""
    ready = home / "ready"
    if not ready.exists():
        venv.create(home / "venv", with_pip=True, clear=True)
        pip(home, "install", *client.builds, *client.needs, "-e", f"{ROOT}[{mpi}]")
        pip(home, "download", *FROM_SOURCE, "--dest", str(home), client.release)
        (source,) = home.glob("*.tar.gz")
        pip(home, "install", *FROM_SOURCE, str(source))
        with tarfile.open(source) as archive:
            archive.extractall(home / "source", **SAFELY)
        ready.touch()
    (tests,) = home.glob("source/*/tests")
    return tests


#: options of pip: only this, as its source, with what is installed
FROM_SOURCE = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:")


def pip(home: Path, command: str, *arguments: str) -> None:
    """Run pip in a client's environment."""
    subprocess.run([home / "venv/bin/python", "-m", "pip", command, "--quiet", *arguments], check=True)


def passed(client: Client, home: Path, tests: Path, job: str, ranks: int) -> bool:
    """Run a job; show its last words, and tell whether its tests passed and its calls were served."""
    report, begin = home / "report.json", ["timeout", str(LIMIT), home / "venv/bin/mpirun", "-n", str(ranks)]
    report.unlink(missing_ok=True)
    command = [*begin, home / "venv/bin/python", "-m", "mpicoll", "run", "--json", report, *job.split()]
    print(f"==> {client.release}, {job} on {ranks} ranks", flush=True)
    ended = subprocess.run(
        command,
        cwd=tests,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    rows = json.loads(report.read_text())["calls"] if report.exists() else []
    counts = {kind: sum(row["calls"] for row in rows if row["what"] == kind) for kind in ("served", "passed", "raised")}
    well = ended.returncode == 0 and counts["served"] >= client.served and not counts["raised"]
    words = [line for line in ended.stdout.splitlines() if " passed" in line][-1:]
    print("".join(f"    {line}\n" for line in (*words, f"{counts}")), end="")
    if not well:
        print(ended.stdout[-4000:], ended.stderr[-4000:], f"exit status {ended.returncode}", sep="\n")
    return well


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
