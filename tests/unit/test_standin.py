"""Stand-ins as far as they need no MPI: the command line, what Python does when it starts, and the counts."""

import argparse
import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import mpi4py.run
import pytest

from mpicoll.__main__ import main
from mpicoll.cli import run
from mpicoll.recorder.entry import Entry
from mpicoll.settings import settings
from mpicoll.standin import hook, program, start
from mpicoll.standin.page import as_json, as_text
from mpicoll.standin.tally import MOST_ERRORS, Tally, merged


def chosen(line):
    """What the command line says, in words."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    run.add(commands.add_parser("run"))
    return parser.parse_args(["run", *line.split()])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-m module", "-m module"),
        ("--report -m module --report --json x", "-m module --report --json x"),
        ("-m module -m other -- --path", "-m module -m other -- --path"),
        ("-m module -- -m x", "-m module -- -m x"),
    ],
)
def test_a_programs_own_options_are_left_alone(line, words):
    found = chosen(line)
    assert run.program(found) == words.split()
    assert (found.report, found.json, found.path) == (line.startswith("--report"), None, False)


def test_a_scripts_own_options_are_left_alone(tmp_path):
    script = tmp_path / "script.py"
    script.touch()
    found = chosen(f"--report {script} --report -m x -- --json y")
    assert run.program(found) == f"{script} --report -m x -- --json y".split()
    assert (found.report, found.json, found.module) == (True, None, None)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("run", "name a script, or -m and a module"),
        ("run nowhere.py", "there is no script nowhere.py"),
        ("run --json x.txt -m module", "--json x.txt: the name must end in .json"),
    ],
)
def test_what_cannot_be_run_is_said(line, text, capsys):
    assert main(line.split()) == 2
    assert text in capsys.readouterr().err


def test_the_folder_for_the_path_is_printed(capsys):
    assert main(["run", "--path"]) == 0
    assert capsys.readouterr().out == f"{start.SITE}\n"
    assert (start.SITE / "sitecustomize.py").exists()


@pytest.mark.parametrize(
    ("line", "before", "value"),
    [("-m m", False, "yes"), ("--report -m m", False, "report"), ("-m m", "report", "report"), ("-m m", True, "yes")],
)
def test_a_report_that_a_variable_asks_for_stays(line, before, value, monkeypatch):
    monkeypatch.setattr(run, "settings", SimpleNamespace(standin=before))
    assert run.wanted(chosen(line)) == value


def test_children_get_the_variable_and_the_folder_once(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":/mine")  # the empty part is the current folder
    monkeypatch.setenv("MPICOLL_STANDIN", "")
    monkeypatch.setattr(hook, "install", lambda: None)
    before = settings.standin
    try:
        for _ in range(2):
            start.start("report")
            assert settings.standin == start.os.environ["MPICOLL_STANDIN"] == "report"
            assert start.os.environ["PYTHONPATH"] == f"{start.SITE}::/mine"
    finally:
        settings.standin = before


class Finder:
    """A finder of a module that counts how often it is run."""

    def __init__(self):
        self.runs = 0

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name == hook.MODULE else None

    def exec_module(self, module):
        self.runs += 1
        assert type(module) is ModuleType


def test_the_hook_leaves_the_module_to_its_own_loader(monkeypatch):
    theirs = Finder()
    monkeypatch.setattr(sys, "meta_path", [hook.finder, theirs])
    assert hook.finder.find_spec("mpi4py.run") is None
    assert hook.finder.find_spec("json") is None
    spec = hook.finder.find_spec(hook.MODULE, [])
    module = ModuleType(hook.MODULE)
    spec.loader.exec_module(module)
    assert (spec.loader, theirs.runs, type(module)) == (theirs, 1, hook.Unasked)


def test_the_class_goes_when_a_communicator_is_asked_for(monkeypatch):
    class Intracomm:
        pass

    module = ModuleType(hook.MODULE)
    world, alone = Intracomm(), Intracomm()
    module.__dict__.update(Intracomm=Intracomm, COMM_WORLD=world, COMM_SELF=alone, Is_finalized=lambda: False)
    monkeypatch.setattr(hook, "_kind", lambda _: lambda own: ("standin", own))
    monkeypatch.setattr(hook, "settings", SimpleNamespace(standin=True))
    hook.hold(module)
    module.COMM_SELF = "the program's own"
    assert module.Intracomm is Intracomm
    assert type(module) is hook.Unasked
    assert ("standin", world) == module.COMM_WORLD
    assert (type(module), module.COMM_SELF) == (ModuleType, "the program's own")


START = f"import runpy; runpy.run_path({str(start.SITE.parent / 'waiting.py')!r});"


@pytest.mark.slow
@pytest.mark.parametrize(("value", "waits"), [("yes", 1), ("REPORT", 1), ("", 0), ("No", 0), ("0", 0)])
def test_a_process_that_starts_waits_without_mpicoll(value, waits, monkeypatch):
    """A Python in which mpicoll is not installed does as if nothing was there."""
    monkeypatch.setenv("MPICOLL_STANDIN", value)
    code = f"""import sys; {START}
print(sum(one.__class__.__name__ == "Finder" for one in sys.meta_path), "mpicoll" in sys.modules)
sys.modules["mpicoll"] = None
try:
    import mpi4py.MPI
except ModuleNotFoundError as error:
    print(error.name)
"""
    done = subprocess.run([sys.executable, "-Sc", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{waits} False\nmpi4py\n", done.stderr


def test_a_traceback_begins_with_the_program(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("def f():\n    1 / 0\nf()\n")
    statuses, shown = [], []
    with pytest.raises(SystemExit) as caught, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [])
        patch.setattr(sys, "path", list(sys.path))
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        patch.setattr(program, "patience", None)
        patch.setattr(mpi4py.run, "set_abort_status", statuses.append)
        patch.setattr(sys, "excepthook", lambda *found: shown.append(found))
        program.run_program([str(script)])
    (kind, _, traceback) = shown[0]
    assert (caught.value.code, statuses, kind) == (1, [1], ZeroDivisionError)
    assert (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno) == (str(script), 3)


PLAN = SimpleNamespace(algorithm="ring", segments=8, path="host")
KNOWN = SimpleNamespace(plan=PLAN, operands=SimpleNamespace(nbytes=400))


def test_calls_are_counted_by_what_became_of_them():
    tally = Tally()
    tally.serve("Allreduce", KNOWN, 0.5)
    tally.serve("Allreduce", KNOWN, 0.25)
    tally.serve("Allreduce_init", KNOWN, 0.1)
    tally.serve("Bcast", None, 0.1)
    tally.add(("passed", "bcast", "why"), 0.1)
    tally.refuse("Scan", ValueError("no\nmore"), 0.1)
    assert tally.closed() == {
        ("served", "Allreduce", "ring/8@host"): [2, 800, 0.75],
        ("served", "Allreduce_init", "ring/8@host"): [1, 0, 0.1],
        ("served", "Bcast", "made with its group"): [1, 0, 0.1],
        ("passed", "bcast", "why"): [1, 0, 0.1],
        ("raised", "Scan", "ValueError: no"): [1, 0, 0.1],
    }


def test_a_call_that_is_planned_later_is_counted_at_the_end():
    tally, early, never = Tally(), *(Entry("nonblocking", "Scan", n, None) for n in (1, 2))
    tally.serve("Iscan", early, 0.5)
    tally.serve("Iscan", never, 0.25)
    assert not tally.counts
    early.known = KNOWN
    assert tally.closed() == {
        ("served", "Iscan", "ring/8@host"): [1, 400, 0.5],
        ("served", "Iscan", "not planned"): [1, 0, 0.25],
    }


def test_errors_that_differ_without_end_are_counted_together():
    tally = Tally()
    for number in range(MOST_ERRORS + 5):
        tally.refuse("Scan", ValueError(f"{number}"), 0.0)
    tally.refuse("Scan", ValueError("3"), 0.0)
    counts = {key[2]: row[0] for key, row in tally.closed().items()}
    assert len(counts) == MOST_ERRORS + 1
    assert (counts["other errors"], counts["ValueError: 3"]) == (5, 2)


SERVED, PASSED = ("served", "Allreduce", "ring@host"), ("passed", "bcast", "why")
ONE = {PASSED: [1, 0, 3.0], SERVED: [2, 16, 0.5]}
OTHER = {SERVED: [3, 24, 0.75], ("served", "Scan", "ring@host"): [1, 8, 1.0]}


def test_ranks_are_summed_and_the_slowest_ones_time_is_kept():
    assert list(merged([ONE, OTHER]).items()) == [
        (("served", "Scan", "ring@host"), [1, 8, 1.0]),
        (SERVED, [5, 40, 0.75]),
        (PASSED, [1, 0, 3.0]),
    ]
    assert ONE[SERVED] == [2, 16, 0.5]


def test_the_report_says_how_many_ranks_it_is_of():
    text = as_text(merged([ONE, OTHER]), 2, 3)
    first, _, *lines = text.splitlines()
    said = "6 calls served, 1 passed to mpi4py, 0 raised; 2 of 3 ranks reported; the others did not come in time"
    assert first == f"mpicoll: {said}"
    assert [line.split() for line in lines] == [
        ["served", "Scan", "1", "8", "1.0000", "ring@host"],
        ["served", "Allreduce", "5", "40", "0.7500", "ring@host"],
        ["passed", "bcast", "1", "3.0000", "why"],
    ]
    assert as_text({}, 3, 3) == "mpicoll: 0 calls served, 0 passed to mpi4py, 0 raised; 3 of 3 ranks reported\n"


def test_the_report_is_written_as_json():
    found = json.loads(as_json(merged([ONE]), 1, 2))
    assert (found["ranks"], found["reported"]) == (2, 1)
    assert found["calls"] == [
        {"what": "served", "call": "Allreduce", "calls": 2, "bytes": 16, "seconds": 0.5, "algorithm": "ring@host"},
        {"what": "passed", "call": "bcast", "why": "why", "calls": 1, "bytes": 0, "seconds": 3.0},
    ]
