"""What may import what, how long files are, and what an import costs."""

import ast
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import mpicoll

ROOT = Path(mpicoll.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
IDS = [str(file.relative_to(ROOT)) for file in FILES]

#: programs that users run on GPUs, each by itself
CAMPAIGNS = sorted((ROOT.parent / "bench").glob("*.py"))

#: each may import those before it; what is not named here is above all of them
LAYERS = ["version", "errors", "settings", "schedule", "algorithms", "analysis", "dispatch", "runtime", "communicator"]
#: the layers that know neither arrays nor MPI
PURE = LAYERS[: LAYERS.index("runtime")]
#: parts of the class in communicator.py
WITH_COMMUNICATOR = {"blocking", "nonblocking", "persistent", "point_to_point", "request"}
#: (file, module) that may point the other way, and why
EXCEPTIONS = {
    # verification at registration; within the function, so that the registry itself needs no verifier
    ("algorithms/registry.py", "mpicoll.analysis.proof"),
}


def imports(file):
    """Yield (module, whether it is imported when the file is, whether for type checkers only)."""
    return _imports(ast.parse(file.read_text(encoding="utf-8")).body, at_once=True, checked=False)


def _imports(nodes, at_once, checked):
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_once, checked) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are written in full"
            yield from ((f"{node.module}.{alias.name}", at_once, checked) for alias in node.names)
        else:
            inside = at_once and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            types = checked or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            yield from _imports(ast.iter_child_nodes(node), inside, types)


def layer(parts):
    """The place of a module, given as its names below mpicoll, among the layers."""
    first = Path(parts[0]).stem if parts else ""
    first = "communicator" if first in WITH_COMMUNICATOR else first
    return LAYERS.index(first) if first in LAYERS else len(LAYERS)


@pytest.mark.parametrize("file", FILES, ids=IDS)
def test_imports_point_one_way(file):
    path = file.relative_to(ROOT)
    mine = layer(path.parts)
    for module, _, checked in imports(file):
        names = module.split(".")
        excepted = any(path.as_posix() == f and module.startswith(m) for f, m in EXCEPTIONS)
        if names[0] == "mpicoll" and not (checked or excepted):
            assert layer(names[1:]) <= mine, f"{path} imports {module}"


@pytest.mark.parametrize(("path", "module"), EXCEPTIONS)
def test_exceptions_are_still_there_and_wait_for_the_call(path, module):
    found = {at_once for name, at_once, _ in imports(ROOT / path) if name.startswith(module)}
    assert found == {False}


@pytest.mark.parametrize("file", FILES, ids=IDS)
def test_arrays_and_mpi_appear_from_the_runtime_on(file):
    path = file.relative_to(ROOT)
    if layer(path.parts) >= len(PURE):
        return
    for module, _, _ in imports(file):
        package = module.partition(".")[0]
        assert package == "mpicoll" or package in sys.stdlib_module_names, f"{path} imports {module}"


def modules_after(statements):
    """The modules that are loaded after the statements, in a process of their own."""
    code = f"{statements}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.case("GTL-CRAY")
@pytest.mark.slow
def test_importing_it_starts_neither_mpi_nor_cuda():
    """Importing the library imports no other one that would start something."""
    assert not modules_after("import mpicoll") & {"mpi4py.MPI", "cupy", "rich"}


@pytest.mark.slow
def test_listing_verifying_and_planning_need_neither_arrays_nor_mpi():
    statements = """
import mpicoll
assert "ring" in mpicoll.algorithms("allreduce")["allreduce"]
plan = mpicoll.plan("allreduce", size=4, nbytes=1 << 20, algorithm="ring", device="cuda")
assert "candidates" in str(plan)
from mpicoll.algorithms import registry
assert registry.verify_algorithm(registry.get("allreduce", "ring"), [4]) == 1
"""
    assert not modules_after(statements) & {"numpy", "cupy", "mpi4py"}


@pytest.mark.slow
def test_importing_it_is_quick():
    """At most 0.2 s beyond NumPy: processor time, for the clock also measures what else runs."""
    code = "import time, numpy; start = time.process_time(); import mpicoll; print(time.process_time() - start)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, timeout=60, check=True) for _ in range(5)]
    seconds = statistics.median(float(run.stdout) for run in runs)
    assert seconds <= 0.2 * 1.5


@pytest.mark.parametrize("file", FILES, ids=IDS)
def test_no_file_is_longer_than_300_lines(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 300


# Splitting: style.md's lesson from count splitting that was written twenty times.

#: numbers of parts into which something may be split
PARTS = {"size", "p", "parts", "ranks", "nranks", "blocks", "segments"}
#: functions that divide by a number of parts without splitting a count, and what they do
DIVIDES = {
    ("analysis/draw.py", "_cell"): "takes an id of alltoall apart, which is source*size+target",
    ("dispatch/select.py", "best_segments"): "a number of segments",
    ("runtime/reader.py", "_each"): "refuses a count that is no multiple",
    ("functional.py", "_divided_shape"): "refuses a shape that is no multiple",
}


def divisions(function):
    """What a function splits: (dividend, divisor) of divmod, of a rounded-up //, of // and % of the same."""
    whole, rest = set(), set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "divmod":
            pair = tuple(map(ast.unparse, node.args))
            whole.add(pair)
            rest.add(pair)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
            pair = ast.unparse(node.left), ast.unparse(node.right)
            (whole if isinstance(node.op, ast.FloorDiv) else rest).add(pair)
            if isinstance(node.op, ast.FloorDiv) and isinstance(node.left, ast.UnaryOp):
                rest.add(pair)
    return {pair for pair in whole & rest if pair[1].split(".")[-1] in PARTS}


def test_uneven_counts_are_split_in_one_place_only():
    """Quotient and remainder by a number of parts: only partition.py spreads one over the other."""
    found = set()
    for file in FILES:
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and divisions(function):
                found.add((file.relative_to(ROOT).as_posix(), function.name))
    assert ("schedule/partition.py", "split") in found
    assert found - set(DIVIDES) - {("schedule/partition.py", "split")} == set()


def test_public_names_are_there_and_an_unknown_one_is_no_attribute():
    public = [name for name in mpicoll.__all__ if name not in ("AVG", "Communicator")]  # which need MPI
    assert all(getattr(mpicoll, name).__doc__ for name in public)
    with pytest.raises(AttributeError, match="module 'mpicoll' has no attribute 'allredduce'"):
        mpicoll.allredduce  # noqa: B018


def test_errors_are_of_builtin_kinds_that_callers_know():
    kinds = {
        "ScheduleError": ValueError,
        "UnsupportedError": NotImplementedError,
        "MismatchError": RuntimeError,
        "StalledError": TimeoutError,
        "TransportError": RuntimeError,
    }
    for name, kind in kinds.items():
        assert issubclass(getattr(mpicoll, name), kind)
    assert set(mpicoll.errors.__all__) == set(kinds)


@pytest.mark.parametrize("file", CAMPAIGNS, ids=lambda file: file.name)
def test_campaigns_import_mpicoll_before_mpi(file):
    """Once MPI has started, no UCX can be put under it: device arrays would take the path staged."""
    found = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = [node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in found]
    if "mpi4py" in names:
        assert "mpicoll" in names[: names.index("mpi4py")]
