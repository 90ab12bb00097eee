"""The documentation says what the code does."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import mpicoll
from mpicoll.__main__ import main
from unit.test_layers import LAYERS

ROOT = Path(mpicoll.__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)
PAGES = generate.PAGES
#: pages that name files of the project
NAMING = ["README.md", "CONTRIBUTING.md", "docs/architecture.md"]
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


#: sub-commands of the README that need files or ranks which are not here, or take long
NOT_HERE = ("trace", "warm", "verify", "info", "report", "compare")


@pytest.mark.slow
def test_commands_of_the_readme_run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^python -m mpicoll (.*?)(?:  +#.*)?$", README, re.MULTILINE)
    tried = [line for line in lines if line.split()[0] not in NOT_HERE]
    assert len(tried) >= 6
    for line in tried:
        assert main(shlex.split(line)) == 0, line
    assert capsys.readouterr().out.count("\n") > 100


@pytest.mark.parametrize("page", NAMING)
def test_files_that_a_page_names_exist(page):
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_-]+\.(?:py|rules|md|cu))`", (ROOT / page).read_text(encoding="utf-8")))
    assert named, "the table of files is gone"
    places = [ROOT / "mpicoll", ROOT, ROOT / "docs", ROOT / "mpicoll/runtime/paths/mapped"]
    assert not [name for name in named if not any((place / name).exists() for place in places)]


def test_the_rooms_are_those_that_a_test_keeps():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ((?:`[a-z_.]+`(?:, )?)+) \|", page.split("## The way of a call")[0], re.MULTILINE)
    assert [re.findall("`([a-z_.]+)`", line) for line in lines] == LAYERS[::-1]


def functions(file):
    """The names of functions, methods and classes in a file of mpicoll."""
    kinds = ast.FunctionDef | ast.ClassDef
    tree = ast.parse((ROOT / "mpicoll" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_functions_on_the_way_of_a_call_are_in_their_files():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Za-z_.]+)` \| ((?:`[a-z_/]+\.py`(?:, )?)+) \|", page, re.MULTILINE)
    assert rows, "the tables of functions are gone"
    for name, cell in rows:
        for file in re.findall(r"`([a-z_/]+\.py)`", cell):
            assert set(name.split(".")) <= functions(file), (name, file)


def test_links_of_the_readme_exist():
    links = re.findall(r"\]\(([A-Za-z0-9/-]+\.md)\)", README)
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} | {"CONTRIBUTING.md"} <= set(links)
    assert not [link for link in links if not (ROOT / link).exists()]


def test_every_example_has_a_row_in_its_page():
    page = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`([a-z_]+\.py)`\]\(\1\) \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(file.name for file in (ROOT / "examples").glob("[a-z]*.py"))


def test_versions_agree():
    assert f"version = {mpicoll.__version__}\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
