import threading
import warnings
from contextlib import ExitStack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mpicoll.settings import TABLE, Settings, format_bytes, parse_bytes

#: for each setting: a variable's text, its value, and a text that is wrong (None: there is none)
TEXTS = {
    "algorithms": ("allreduce:ring", "allreduce:ring", None),
    "tuning": ("/a/file", "/a/file", None),
    "segment_bytes": ("64K", 65536, "64Q"),
    "scratch_limit": ("1.5GiB", 3 << 29, "a lot"),
    "mapped_bytes": ("64M", 64 << 20, "many"),
    "mapped_shared": ("yes", True, "maybe"),
    "cuda_aware": ("yes", True, "maybe"),
    "path": ("staged", "staged", "mapped?"),
    "topology": ("hosts=2", "hosts=2", "hosts=0"),
    "debug": ("1", 1, "very"),
    "timeout": ("2.5", 2.5, "soon"),
    "errors": ("agree", "agree", "disagree"),
    "reproducible": ("ranks", "ranks", "always"),
    "progress": ("thread", "thread", "fast"),
    "trace": ("/a/trace.json", "/a/trace.json", None),
    "plan_cache": ("16", 16, "1e3"),
    "yield_wait": ("no", False, "perhaps"),
    "mpi_requests": ("no", False, "2"),
    "native": ("yes", True, "auto"),
    "prepare": ("0", False, "2"),
    "standin": ("report", "report", "all"),
}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("65536", 65536),
        ("64K", 65536),
        ("64k", 65536),
        ("64 KiB", 65536),
        ("64KB", 65536),
        ("1.5M", 3 << 19),
        ("2G", 2 << 30),
        ("1T", 1 << 40),
        ("8B", 8),
        (" 8 ", 8),
        ("inf", 1 << 62),
        (4096, 4096),
    ],
)
def test_bytes_are_read(text, number):
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5.2K", "64Q", "64 K B", "0x10", "1e6", "64K-1M", "nan"])
def test_what_is_no_number_of_bytes_is_quoted(text):
    with pytest.raises(ValueError, match="is not a number of bytes such as 65536, 64K or 2M") as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)


@given(st.integers(0, 1 << 62) | st.integers(0, 60).map(lambda k: 1 << k) | st.integers(0, 5000))
@example(2**53 + 1)
def test_what_is_written_is_read_again(number):
    assert parse_bytes(format_bytes(number)) == number


@pytest.mark.parametrize(("number", "text"), [(1023, "1023"), (1024, "1K"), (1025, "1025"), (3 << 20, "3M")])
def test_only_whole_units_are_written(number, text):
    assert format_bytes(number) == text


def test_each_setting_is_tested_here():
    assert set(TEXTS) == set(TABLE)
    assert all(row.meaning and row.variable == f"MPICOLL_{name.upper()}" for name, row in TABLE.items())


@pytest.mark.parametrize("name", TEXTS)
def test_a_variable_is_read_and_changes_nothing_else(name):
    text, value, _ = TEXTS[name]
    settings = Settings({TABLE[name].variable: text})
    assert getattr(settings, name) == value
    assert settings.as_dict() == Settings({}).as_dict() | {name: value}
    assert value != TABLE[name].default


@pytest.mark.parametrize("name", [name for name, (_, _, wrong) in TEXTS.items() if wrong])
def test_a_bad_value_names_the_variable_and_quotes_the_value(name):
    wrong = TEXTS[name][2]
    with pytest.raises(ValueError, match=f"^{TABLE[name].variable}: ") as caught:
        Settings({TABLE[name].variable: wrong})
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("name", [name for name, (_, _, wrong) in TEXTS.items() if wrong])
def test_a_bad_value_in_a_program_names_the_setting(name):
    settings, wrong = Settings({}), TEXTS[name][2]
    with pytest.raises(ValueError, match=name), settings.override(**{name: wrong}):
        pass
    with pytest.raises(ValueError, match=name):
        setattr(settings, name, wrong)
    assert settings.as_dict() == Settings({}).as_dict()


NAN = float("nan")
#: for each setting: values in a program that are not allowed
NOT_ALLOWED = {
    "algorithms": [None, 5, True, b"allreduce:ring"],
    "tuning": [None, 5, True],
    "segment_bytes": [None, 1.5, -5, True, NAN, "-1"],
    "scratch_limit": [None, 2.0**20, 0, -1, True, "0"],
    "cuda_aware": [1, 0, 1.0, [], "both"],
    "path": [5, True, "mapped,direct"],
    "topology": [None, 2, "0-", "hosts=", "0-3;4-7"],
    "mapped_bytes": [None, -1, 1.0, False],
    "mapped_shared": [None, 1, "auto"],
    "debug": [None, 2.7, -1, True, [1], "1.5"],
    "timeout": [None, [1], -1, NAN, float("inf"), -float("inf"), True, "nan", "-0.5", 10**400],
    "errors": [None, True, 0, ["agree"]],
    "reproducible": [None, True, 1],
    "progress": [None, True, False],
    "trace": [None, 5, True],
    "plan_cache": [None, -3, 2.0, True],
    "yield_wait": [1, "maybe"],
    "mpi_requests": [None, 1, "auto"],
    "native": [None, 1, "auto"],
    "prepare": [None, 1, "auto"],
    "standin": [None, 1, "file", ".txt"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NOT_ALLOWED.items() for value in values])
def test_a_value_that_is_not_allowed_is_an_error_with_name_value_and_what_is(name, value):
    """One rule for assignments and overrides; nothing is changed."""
    settings, allowed = Settings({}), TABLE[name].kind.allowed.replace("`", "")
    for change in (lambda: setattr(settings, name, value), settings.override(**{name: value}).__enter__):
        with pytest.raises(ValueError, match=f"^setting {name}: ") as caught:
            change()
        assert str(caught.value) == f"setting {name}: {value!r} is not {allowed}"
    assert settings.as_dict() == Settings({}).as_dict()


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, vs in NOT_ALLOWED.items() for t in vs if isinstance(t, str)])
def test_a_text_that_is_not_allowed_is_none_in_a_variable_either(name, text):
    with pytest.raises(ValueError, match=f"^{TABLE[name].variable}: "):
        Settings({TABLE[name].variable: text})


def test_values_that_are_not_allowed_are_tried_for_each_setting():
    assert set(NOT_ALLOWED) == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_variable_or_text_is_the_default(name, text):
    assert Settings({TABLE[name].variable: text}).as_dict() == Settings({}).as_dict()
    settings = Settings({TABLE[name].variable: TEXTS[name][0]})
    setattr(settings, name, text)
    assert getattr(settings, name) == TABLE[name].default


@pytest.mark.parametrize("name", TABLE)
def test_a_setting_takes_its_own_values(name):
    """What a program reads it can set again: the default, and what a variable gave."""
    settings = Settings({TABLE[name].variable: TEXTS[name][0]})
    for value in (getattr(settings, name), TABLE[name].default):
        setattr(settings, name, value)
        assert getattr(settings, name) == value


def test_a_file_may_be_a_path(tmp_path):
    settings = Settings({})
    settings.tuning = tmp_path
    assert settings.tuning == str(tmp_path)


def test_debug_is_a_number_or_the_word_plan():
    settings = Settings({"MPICOLL_DEBUG": "plan"})
    assert settings.debug == "plan"
    with settings.override(debug=2):
        assert settings.debug == 2
    with pytest.raises(ValueError, match=r"^setting debug: 'plans' is not a whole number, 0 or more, or plan$"):
        settings.debug = "plans"


def test_words_for_yes_no_and_auto():
    for text, value in [("YES", True), ("true", True), ("1", True), ("No", False), ("0", False), ("auto", None)]:
        assert Settings({"MPICOLL_CUDA_AWARE": text}).cuda_aware is value
    assert Settings({"MPICOLL_PATH": "auto"}).path is None
    assert Settings({"MPICOLL_PATH": "AUTO"}).path is None
    assert Settings({"MPICOLL_PATH": "Direct"}).path == "direct"
    assert Settings({"MPICOLL_SEGMENT_BYTES": "auto"}).segment_bytes == 0


def test_an_unknown_variable_warns_and_names_the_known_ones():
    with pytest.warns(UserWarning, match=r"unknown setting MPICOLL_ALGORITHM; known: MPICOLL_ALGORITHMS, .*"):
        Settings({"MPICOLL_ALGORITHM": "ring"})


def test_variables_of_others_are_left_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Settings({"MPICOLL_TEST_TIMEOUT": "5", "MPICOLL_BENCH_X": "1", "MPI_X": "2", "OMPI_MCA_pml": "ucx"})


def test_an_unknown_name_raises_and_lists_the_known_ones():
    settings = Settings({})
    message = r"no setting 'algorithm'; known: algorithms, .*tuning"
    with pytest.raises(AttributeError, match=message):
        settings.algorithm = "ring"
    with pytest.raises(AttributeError, match=message):
        settings.algorithm  # noqa: B018
    with pytest.raises(AttributeError, match=message), settings.override(debug=1, algorithm="ring"):
        pass
    assert settings.debug == 0


def test_overrides_nest_and_restore():
    settings = Settings({"MPICOLL_DEBUG": "1"})
    before = settings.as_dict()
    with settings.override(algorithms="bcast:ring", debug=2):
        with settings.override(algorithms="bcast:linear", segment_bytes="2K"):
            assert (settings.algorithms, settings.debug, settings.segment_bytes) == ("bcast:linear", 2, 2048)
        assert (settings.algorithms, settings.debug, settings.segment_bytes) == ("bcast:ring", 2, 0)
    assert settings.as_dict() == before


def test_an_override_ends_with_an_error_too():
    settings = Settings({})
    with pytest.raises(ZeroDivisionError), settings.override(debug=3):
        raise ZeroDivisionError
    assert settings.debug == 0


def test_an_override_can_go_back_to_the_default():
    settings = Settings({"MPICOLL_PATH": "staged"})
    with settings.override(path=None):
        assert settings.path is None
    with settings.override(path="auto"):
        assert settings.path is None
    assert settings.path == "staged"


def test_an_assignment_under_an_override_is_seen_when_it_ends():
    settings = Settings({})
    with settings.override(debug=1):
        settings.debug = 2
        assert settings.debug == 1
    assert settings.debug == 2


def test_threads_see_assignments_of_others_but_not_their_overrides():
    settings = Settings({})
    inside, looked = threading.Barrier(2, timeout=10), threading.Barrier(2, timeout=10)
    seen = {}

    def other():
        inside.wait()
        seen["other"] = settings.debug, settings.plan_cache
        with settings.override(debug=7):
            looked.wait()
            looked.wait()
        seen["after"] = settings.debug

    thread = threading.Thread(target=other)
    thread.start()
    settings.plan_cache = 3
    with settings.override(debug=5):
        inside.wait()
        looked.wait()
        seen["mine"] = settings.debug
        looked.wait()
    thread.join(10)
    assert seen == {"other": (0, 3), "mine": 5, "after": 0}
    assert settings.debug == 0


def test_the_version_tells_every_state_from_the_others():
    """What is cached under a version holds for as long as it is the version."""
    settings = Settings({})
    versions = [settings.version]
    with ExitStack() as stack:
        stack.enter_context(settings.override(debug=1))
        versions.append(settings.version)
        stack.enter_context(settings.override(debug=2))
        versions.append(settings.version)
        settings.plan_cache = 5
        versions.append(settings.version)
    settings.plan_cache = 6
    versions.append(settings.version)
    with settings.override(debug=1):
        versions.append(settings.version)
    assert len(set(versions)) == len(versions)
    last = settings.version
    with settings.override(debug=1):
        pass
    assert settings.version == last
