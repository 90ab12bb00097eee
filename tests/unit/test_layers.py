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

#: each may import those before it, and itself; what a line names stands on one floor
LAYERS = [
    ["version"],
    ["errors"],
    ["kinds"],
    ["settings"],
    ["ranges"],
    ["schedule"],
    ["algorithms"],
    ["analysis"],
    ["simulate"],
    ["pictures"],
    ["dispatch"],
    ["runtime.mpi.environment"],
    ["versions"],
    ["recorder"],
    ["runtime.arguments"],
    ["runtime.mpi"],
    ["runtime.program"],
    ["runtime.host"],
    ["runtime.cuda"],
    ["runtime.progress"],
    ["runtime.context"],
    ["runtime.point_to_point"],
    ["runtime.paths"],
    ["runtime.call"],
    ["runtime.groups"],
    ["several"],
    ["request"],
    ["native"],
    ["forms", "buffers"],
    ["blocking", "point_to_point", "derived"],
    ["nonblocking", "persistent"],
    ["typed"],
    ["neighbours"],
    ["communicator"],
    ["functional", "info", "grouping"],
    ["training"],
    ["standin"],
    ["mpicoll"],
    ["learn"],
    ["bench.errors"],
    ["bench.request"],
    ["bench.measure"],
    ["bench.contestants"],
    ["bench.output"],
    ["report"],
    ["bench.tables"],
    ["bench.run", "bench.interruption", "bench.warm"],
    ["bench.puzzles"],
    ["tuning"],
    ["compare"],
    ["cli"],
    ["bench.__main__", "__main__", "demo"],
]
#: the layers that know neither arrays nor MPI
PURE = LAYERS.index(["runtime.mpi.environment"])
#: module -> file; a package is the module of its __init__
MODULES = {
    ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): file for file in FILES
}


def imports(file):
    """Yield (module, imported name or nothing), wherever it stands: in a function and for type checkers, too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are written in full"
            yield from ((node.module, alias.name) for alias in node.names)


def imported(file):
    """The modules of mpicoll that a file imports; a package for what is taken from its __init__."""
    names = ((module, f"{module}.{name}") for module, name in imports(file) if module.split(".")[0] == "mpicoll")
    return {whole if whole in MODULES else module for module, whole in names}


def layer(module):
    """The floor of a module: that of the longest name that begins its own."""
    name = module.removeprefix("mpicoll.")
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        found = [n for n, names in enumerate(LAYERS) if ".".join(parts[:length]) in names]
        if found:
            return found[0]
    raise AssertionError(f"{module} is in no layer")


#: packages whose __init__ is nothing but a sentence, and belongs to all their layers
EMPTY = {name for name, file in MODULES.items() if file.name == "__init__.py" and not list(imports(file))}


@pytest.mark.parametrize("module", sorted(MODULES.keys() - EMPTY))
def test_imports_point_one_way(module):
    for other in imported(MODULES[module]) - EMPTY:
        assert layer(other) <= layer(module), f"{module} imports {other}"


def test_no_module_imports_itself_by_others():
    left = {name: imported(file) - {name} for name, file in MODULES.items()}
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert not left, f"in circles or above them: {sorted(left)}"


def test_the_runtime_is_all_in_its_rooms():
    assert [file.name for file in (ROOT / "runtime").iterdir() if file.is_file()] == ["__init__.py"]


@pytest.mark.parametrize("file", FILES, ids=IDS)
def test_arrays_and_mpi_appear_from_the_runtime_on(file):
    (name,) = [name for name, other in MODULES.items() if other == file]
    if name in EMPTY or layer(name) >= PURE:
        return
    for module, _ in imports(file):
        package = module.partition(".")[0]
        known = package in ("mpicoll", "typing_extensions")  # the latter for type checkers alone
        assert known or package in sys.stdlib_module_names, f"{name} imports {module}"


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
from mpicoll.analysis.registration import verify_algorithm
assert verify_algorithm(registry.get("allreduce", "ring"), [4]) == 1
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
    ("pictures/notation.py", "ends_of"): "takes an id of alltoall apart, which is source*size+target",
    ("dispatch/predict.py", "best_segments"): "a number of segments",
    ("runtime/arguments/reader.py", "_each"): "refuses a count that is no multiple",
    ("functional/results.py", "divided_shape"): "refuses a shape that is no multiple",
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
    need_mpi = "AVG", "Communicator", "GradientBuckets"
    public = [name for name in mpicoll.__all__ if name not in need_mpi]
    assert all(getattr(mpicoll, name).__doc__ for name in public)
    with pytest.raises(AttributeError, match="module 'mpicoll' has no attribute 'allredduce'"):
        mpicoll.allredduce  # noqa: B018


def test_errors_are_of_builtin_kinds_that_callers_know():
    kinds = {
        "Error": Exception,
        "ScheduleError": ValueError,
        "UnsupportedError": NotImplementedError,
        "MismatchError": RuntimeError,
        "StalledError": TimeoutError,
        "TransportError": RuntimeError,
    }
    for name, kind in kinds.items():
        assert issubclass(getattr(mpicoll, name), kind)
        assert issubclass(getattr(mpicoll, name), mpicoll.Error)
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
