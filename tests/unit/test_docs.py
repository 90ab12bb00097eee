"""The documentation says what the code does."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mpicoll

ROOT = Path(mpicoll.__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)
PAGES = generate.PAGES
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name):
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


@pytest.mark.slow
def test_the_algorithm_in_the_readme_runs():
    snippet = next(b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "@mpicoll.algorithm" in b)
    ask = "print(mpicoll.plan('bcast', size=5, nbytes=8, algorithm='one_by_one').algorithm)"
    code = f"import mpicoll\n{snippet}\n{ask}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "one_by_one\n"), done.stderr


def test_files_that_the_readme_names_exist():
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|rules))`", README))
    assert named, "the table of files is gone"
    missing = [name for name in named if not (ROOT / "mpicoll" / name).exists() and not (ROOT / name).exists()]
    assert not missing


def test_links_of_the_readme_exist():
    for link in re.findall(r"\]\((docs/[a-z-]+\.md)\)", README):
        assert (ROOT / link).exists(), link


def test_versions_agree():
    assert f"version = {mpicoll.__version__}\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
