"""What users, editors and type checkers find in mpicoll."""

import inspect
import pydoc
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from types import SimpleNamespace

import pytest

import mpicoll
from mpicoll import functional
from mpicoll.settings import TABLE, Settings, SettingValues
from unit.test_layers import modules_after

ROOT = Path(mpicoll.__file__).parent.parent
FUNCTIONS = [name for name in functional.__all__ if name != "communicator"]


def test_every_public_name_is_listed_and_there():
    assert {*mpicoll.__all__, "request", "buffers"} <= set(dir(mpicoll))
    assert all(getattr(mpicoll, name) is not None for name in dir(mpicoll))
    assert set(FUNCTIONS) <= set(mpicoll.__all__)


def test_help_shows_the_functions_with_their_arguments():
    text = pydoc.render_doc(mpicoll, renderer=pydoc.plaintext)
    for name in FUNCTIONS:
        assert re.search(rf"^    {name}\(", text, re.MULTILINE), name
    for name in FUNCTIONS:
        parameters = inspect.signature(getattr(mpicoll, name)).parameters
        assert "algorithm" in parameters
        assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values())


@pytest.mark.slow
def test_listing_the_names_starts_nothing():
    assert not modules_after("import mpicoll; dir(mpicoll); mpicoll.__all__") & {"mpi4py.MPI", "numpy", "cupy"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["request.Request.Waitall", "request.PersistentRequest.Startall", "buffers.Buffer"])
def test_modules_of_public_names_need_no_import(name):
    code = f"import mpicoll; mpicoll.{name}"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_an_argument_that_no_function_has_is_told_of_that_function():
    with pytest.raises(TypeError, match=r"^allreduce\(\) got an unexpected keyword argument 'algoritm'$"):
        mpicoll.allreduce(1.0, algoritm="ring")


def test_type_checkers_know_the_settings_of_the_table():
    assert list(SettingValues.__annotations__) == list(TABLE)
    assert list(Settings.__annotations__)[: len(TABLE)] == list(TABLE)


def test_settings_tell_what_differs_from_the_defaults():
    settings = Settings({})
    assert repr(settings) == "Settings(all as by default)"
    settings.timeout = "60"
    with settings.override(debug="plan"):
        assert repr(settings) == "Settings(debug='plan', timeout=60.0)"
    assert repr(settings) == "Settings(timeout=60.0)"


class Ended:
    """An operation that has ended, with an error or without one."""

    done = True
    error = None

    def check(self):
        if self.error:
            raise self.error

    def let_go(self):
        return False


def test_a_request_tells_how_far_its_call_is():
    call, operation = SimpleNamespace(method="Reduce_scatter"), Ended()
    request = mpicoll.request.PlainRequest(call, operation)
    assert repr(request) == "Request(Ireduce_scatter, complete)"
    operation.error = mpicoll.StalledError("late")
    assert repr(request) == "Request(Ireduce_scatter, failed: StalledError)"
    operation.done = False
    assert repr(request) == "Request(Ireduce_scatter, in flight)"
    request.Free()
    assert repr(request) == "Request(Ireduce_scatter, freed)"


def test_every_public_name_has_a_section_in_the_reference():
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^### (\w+)$", page, re.MULTILINE))
    elsewhere = {"AVG", "override", "settings"}  # in the text
    assert set(mpicoll.__all__) - headings == elsewhere
    assert all(f"mpicoll.{name}" in page for name in elsewhere)


def test_the_clients_are_type_checked():
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert "tests/typing" in config["mypy"]["files"]
    assert config["mypy"]["strict"] == "true"  # so that a mistake that is not found is an error
    assert (ROOT / "tests/typing/wrong.py").read_text(encoding="utf-8").count("# type: ignore[") > 15
