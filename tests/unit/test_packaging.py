"""The source distribution and the wheel hold what they should; both are made here, without a package index."""

import importlib.util
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

import mpicoll

#: options for unpacking; older releases of Python have none
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}

ROOT = Path(mpicoll.__file__).parent.parent
NAME = f"mpicoll-{mpicoll.__version__}"
#: what stands in a checkout, but belongs to nobody else
PRIVATE = (".git", ".venv", ".conformance", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info")
#: folders whose files are all in the source distribution
FOLDERS = ("mpicoll", "docs", "tests", "examples", "bench")
SINGLE = ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "MANIFEST.in", "setup.cfg", ".ci/run")

setuptools = pytest.importorskip("setuptools")
if not importlib.util.find_spec("setuptools.command.bdist_wheel") and not importlib.util.find_spec("wheel"):
    pytest.skip("this setuptools cannot make wheels: the extra `test` has a newer one", allow_module_level=True)
pytestmark = pytest.mark.slow


def build(what, tree, folder):
    """Build in a tree, as pip does but without an index, and return the file."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{what}(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=tree, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the project, since building writes into its folder."""
    copy = tmp_path_factory.mktemp("packaging") / "tree"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*PRIVATE), symlinks=True)
    return copy


@pytest.fixture(scope="module")
def sdist(tree, tmp_path_factory):
    return build("sdist", tree, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """A wheel that is made of the source distribution, which must have all that it needs."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, **SAFELY)
    with zipfile.ZipFile(build("wheel", folder / NAME, tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


def files(tree, folder):
    """The files of a folder of the project."""
    return {path.relative_to(tree).as_posix() for path in (tree / folder).rglob("*") if path.is_file()}


def test_the_source_distribution_has_documentation_and_tests(tree, sdist):
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    wanted = set().union(*(files(tree, folder) for folder in FOLDERS), SINGLE)
    assert len(wanted) > 500
    assert not wanted - names
    assert not [name for name in names if "__pycache__" in name or ".venv" in name]


def test_the_wheel_has_the_package_and_nothing_else(tree, wheel):
    names = set(wheel.namelist())
    own = {name for name in names if not name.startswith(f"{NAME}.dist-info/")}
    assert own == files(tree, "mpicoll") | {"mpicoll.pth"}  # by which the variable for stand-ins is heard
    assert {"mpicoll/py.typed", "mpicoll/runtime/paths/mapped/path.cu", "mpicoll/dispatch/tables/h200.rules"} <= names


def test_the_wheel_brings_a_command(wheel):
    points = ConfigParser()
    points.read_string(wheel.read(f"{NAME}.dist-info/entry_points.txt").decode())
    assert dict(points["console_scripts"]) == {"mpicoll": "mpicoll.__main__:main"}


def test_the_page_of_the_wheel_is_the_readme(wheel):
    text = wheel.read(f"{NAME}.dist-info/METADATA").decode()
    head, _, body = text.partition("\n\n")
    assert f"\nVersion: {mpicoll.__version__}\n" in head
    assert "\nDescription-Content-Type: text/markdown" in head
    assert body.strip() == Path(ROOT / "README.md").read_text(encoding="utf-8").strip()
