"""The benchmark's parts, and what each may import: only what comes after it, for type checkers too; no circles."""

import ast
from pathlib import Path

import pytest

import mpicoll

ROOT = Path(mpicoll.__file__).parent / "bench"
FILES = {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in sorted(ROOT.rglob("*.py"))}
ORDER = ["__main__", "run", "interruption", "tables", "output", "contestants", "measure", "request", "errors"]


def imports(name):
    """The modules of the benchmark that one of them imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("mpicoll.bench"):
            module = node.module.removeprefix("mpicoll.bench").removeprefix(".")
            inner = {f"{module}.{alias.name}".removeprefix(".") for alias in node.names}
            found |= {module} if module in FILES else inner
    return found


@pytest.mark.parametrize("name", FILES)
def test_imports_point_one_way(name):
    if name == "__init__":
        assert not imports(name)
        return
    mine = ORDER.index(name.partition(".")[0])
    for module in imports(name):
        assert module in FILES
        assert ORDER.index(module.partition(".")[0]) >= mine, f"{name} imports {module}"


def test_no_module_imports_itself_by_others():
    left = {name: imports(name) for name in FILES}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert not left


@pytest.mark.parametrize("name", FILES)
def test_no_file_is_longer_than_225_lines(name):
    assert len(FILES[name].read_text(encoding="utf-8").splitlines()) <= 225
