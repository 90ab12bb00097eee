"""The user's tuning tables on disk."""

import pytest

from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.table import parse_table
from mpicoll.tuning import file as files
from mpicoll.tuning.file import place, refusal, write

HERE = MachineFacts("Open MPI", "Intel(R) Xeon(R) CPU @ 2.20GHz", "2", "1", "none")


def table(size, algorithm="linear", machine="cores=2"):
    measured = f"measured:bcast:8:p={size}:mem=host:{algorithm}=5"
    return parse_table(f"machine:{machine}\nbcast:p={size}:mem=host:{algorithm}\n{measured}", f"of {size}")


def rules(file):
    return list(map(str, parse_table(file.read_text(), str(file)).rules))


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "folder" / "mine.rules"


def test_each_machine_has_a_file_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    name = "mpi-open-mpi-cpu-intel-r-xeon-r-cpu-2-20ghz-cores-2-hosts-1-gpu-none.rules"
    assert place(HERE) == tmp_path / "mpicoll" / "tuning" / name
    assert place(MachineFacts(mpi="a/../b")).name == "mpi-a-b.rules"


def test_a_table_is_written_with_its_head_into_a_folder_that_is_made(target):
    write(table(4), target, ["tuned today", "on 4 ranks"])
    assert target.read_text().splitlines()[:3] == ["# tuned today", "# on 4 ranks", "machine:cores=2"]
    assert rules(target) == ["bcast:p=4:mem=host:linear"]
    assert list(target.parent.iterdir()) == [target]


def test_other_numbers_of_ranks_of_the_same_machine_stay(target):
    for size, algorithm in ((2, "ring"), (4, "linear"), (2, "linear")):
        write(table(size, algorithm), target, [])
    assert rules(target) == ["bcast:p=2:mem=host:linear", "bcast:p=4:mem=host:linear"]


def test_what_was_known_of_another_machine_goes(target):
    write(table(2), target, [])
    write(table(4, machine="cores=8"), target, [])
    assert rules(target) == ["bcast:p=4:mem=host:linear"]
    assert parse_table(target.read_text(), "").machine == MachineFacts(cores="8")


def test_a_file_that_is_something_else_is_not_written_over(target):
    target.parent.mkdir(parents=True)
    target.write_text("Dear diary\n")
    with pytest.raises(ValueError, match=r"mine\.rules, line 1: 'Dear diary'"):
        write(table(2), target, [])
    assert target.read_text() == "Dear diary\n"
    assert "line 1: 'Dear diary'" in refusal(target)


@pytest.mark.parametrize("at", ["write_text", "replace"])
def test_a_write_that_fails_leaves_the_old_table_and_nothing_else(target, monkeypatch, at):
    write(table(2), target, [])
    before = target.read_text()

    def full(self, *rest, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.Path, at, full)
    with pytest.raises(OSError, match="No space left"):
        write(table(4), target, [])
    assert target.read_text() == before
    assert list(target.parent.iterdir()) == [target]


def test_whether_it_can_be_written_is_known_before_anything_is_measured(target, monkeypatch, tmp_path):
    assert refusal(target) == ""
    assert list(target.parent.iterdir()) == []
    write(table(2), target, [])
    assert refusal(target) == ""
    assert list(target.parent.iterdir()) == [target]
    (tmp_path / "file").write_text("")
    assert "File exists" in refusal(tmp_path / "file" / "mine.rules")
    assert "Is a directory" in refusal(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert "Not a directory" in refusal(None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert refusal(None) == ""
    assert list((tmp_path / "mpicoll" / "tuning").iterdir()) == []


def test_a_folder_in_which_nothing_can_be_written_is_a_refusal(target, monkeypatch):
    def read_only(self, *rest, **named):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(files.Path, "touch", read_only)
    assert refusal(target).startswith("[Errno 13] Permission denied: ")
