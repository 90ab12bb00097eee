"""Put the tests of the installed mpi4py into a folder: python fetch.py FOLDER.

They come from mpi4py's source distribution, through pip, and are kept: nothing is fetched twice.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

#: options for unpacking; older releases of Python have none
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def fetch(name: str, into: Path) -> None:
    """Download the source distribution `name`, such as mpi4py-4.1.2, and unpack its tests."""
    options = ["--quiet", "--no-deps", "--no-binary", "mpi4py"]
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", place]
        subprocess.run([*command, name.replace("-", "==", 1)], check=True)
        with tarfile.open(next(Path(place).glob("*.tar.gz"))) as archive:
            tests = [m for m in archive if m.isfile() and m.name.startswith(f"{name}/test/")]
            for member in tests:
                member.name = Path(member.name).name
            unfinished = Path(tempfile.mkdtemp(dir=into))
            archive.extractall(unfinished, tests, **SAFELY)
    unfinished.rename(into / name)


if __name__ == "__main__":
    folder, release = Path(sys.argv[1]), f"mpi4py-{version('mpi4py')}"
    if not (folder / release).exists():
        print(f"fetching the tests of {release}")
        folder.mkdir(exist_ok=True)
        fetch(release, folder)
