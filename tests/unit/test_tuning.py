"""Which tuning tables are in force: the one that is set, the user's own, the packaged ones of this machine."""

import os
import pickle

import pytest

import mpicoll
from mpicoll.dispatch import tuning
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.select import select
from mpicoll.dispatch.tuning import asked_for, fingerprint, folder, in_force, packaged, users_tables

HERE = MachineFacts("MPICH", "Xeon", "2", "1", "none")
GPUS = MachineFacts("MPICH", "Xeon", "2", "1", "NVIDIA H200")
NOTHING = asked_for("")


def text(name, *statements):
    return name, "\n".join(statements), ""


def chosen(found, nbytes=8, memory="host", **more):
    paths = ("host",) if memory == "host" else ("mapped", "direct", "staged")
    return select(Facts("bcast", 4, nbytes, memory, paths=paths, **more), "", "", "", found)


@pytest.fixture(autouse=True)
def one_packaged_table(monkeypatch):
    """As if there were one packaged table, however many there are."""
    one = {"h200": packaged()["h200"]}
    in_force.cache_clear()
    monkeypatch.setattr(tuning, "packaged", lambda: one)
    yield
    in_force.cache_clear()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The user's folder of tables, which is there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "mpicoll" / "tuning").mkdir(parents=True)
    return tmp_path / "mpicoll" / "tuning"


def test_the_users_tables_come_before_the_packaged_ones_in_the_order_of_their_names():
    mine = text("mine", "bcast:0-1K:mem=device:binomial"), text("other", "bcast:mem=device:ring")
    found = in_force(NOTHING, mine, GPUS)
    assert [table.name for table in found.tables] == ["mine", "other", "packaged h200"]
    (first, why), (second, _) = (chosen(found, n, "device") for n in (8, 1024))
    assert (first.algorithm, second.algorithm) == ("binomial", "ring")
    assert why == "tuning table mine: bcast:0-1K:mem=device:binomial"
    assert found.described() == "mine; other; packaged h200"
    (packaged_one, why) = chosen(in_force(NOTHING, (), GPUS), 8, "device", gpus=4)
    assert packaged_one.path == "mapped"
    assert why.startswith("tuning table packaged h200: bcast:")


def test_a_table_of_another_machine_is_not_used_but_listed():
    far = text("far", "machine:cores=64", "bcast:ring", "model:host:alpha=1")
    found = in_force(NOTHING, (far,), HERE)
    assert found.unused == (("far", "cores 64, here 2"), ("packaged h200", "gpu *H[12]00*, here none"))
    assert found.described() == "none, the cost model alone"
    assert "cost model for host" in chosen(found)[1]
    assert found.model("host") == PATHS["host"].model


def test_a_table_that_is_set_is_alone_in_force_on_any_machine_and_said_to_be_of_another(home):
    file = home / "set"
    file.write_text("machine:cores=64\nbcast:ring\n")
    found = in_force(asked_for(str(file)), (text("mine", "bcast:linear"),), GPUS)
    assert [table.name for table in found.tables] == [str(file)]
    choice, why = chosen(found)
    assert choice.algorithm == "ring"
    assert why == f"tuning table {file}, of another machine (cores 64, here 2): bcast:ring"
    assert found.described() == f"{file}, of another machine (cores 64, here 2)"


def test_a_packaged_table_can_be_set_by_its_name():
    found = in_force(asked_for("h200"), (text("mine", "bcast:mem=device:linear"),), HERE)
    assert found.tables == (packaged()["h200"],)
    assert ", of another machine (gpu *H[12]00*, here none): " in chosen(found, memory="device", gpus=4)[1]


def test_the_model_alone_can_be_set():
    found = in_force(asked_for("model"), (text("mine", "bcast:ring"),), GPUS)
    assert (found.tables, found.described()) == ((), "none, the cost model alone")


def test_what_the_first_table_does_not_know_the_next_one_says():
    one = text("one", "model:host:alpha=1e-6", "measured:bcast:8:p=4:mem=host:ring=5")
    two = text(
        "two",
        "model:host:alpha=2e-6",
        "model:direct:alpha=3e-6",
        "measured:bcast:8:p=4:mem=host:ring=6:linear=7",
        "measured:bcast:64:p=4:mem=device:gpus=2:ring@direct=8",
    )
    found = in_force(NOTHING, (one, two), HERE)
    assert (found.model("host").alpha, found.model("direct").alpha) == (1e-6, 3e-6)
    assert found.model("mapped") == PATHS["mapped"].model
    assert "measured, one" in found.model("host").source
    ring, linear = (found.curve("bcast", 4, "host", 0, name, "host") for name in ("ring", "linear"))
    assert (ring.points[8][1], linear.points[8][1]) == pytest.approx((5e-6, 7e-6))
    assert found.curve("bcast", 4, "host", 0, "binomial", "host") is None
    assert found.timing("bcast", 4, "host", 0, 8).times.keys() == {mpicoll.dispatch.rules.Choice("ring")}
    assert found.timing("bcast", 4, "device", 2, 64) is not None
    assert found.timing("bcast", 4, "device", 4, 64) is None
    assert found.timing("bcast", 4, "host", 0, 9) is None


def test_the_same_tables_are_the_same_object_so_that_plans_are_found_again():
    mine = (text("mine", "bcast:ring"),)
    again = (text("mine", "bcast:" + "ring"),)
    assert in_force(NOTHING, mine, HERE) is in_force(asked_for(""), again, HERE)
    assert in_force(NOTHING, (text("mine", "bcast:linear"),), HERE) is not in_force(NOTHING, mine, HERE)


# Files.


def test_the_users_tables_are_the_rules_in_one_folder(home):
    for name in ("b.rules", "a.rules", "notes.txt", "c.rules.123"):
        (home / name).write_text(f"# {name}")
    assert [name for name, _, _ in users_tables()] == [str(home / "a.rules"), str(home / "b.rules")]
    (home / "a.rules").write_text("bcast:ring")
    assert users_tables()[0] == (str(home / "a.rules"), "bcast:ring", "")


def test_the_folder_is_in_the_home_where_nothing_else_is_set(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for other in (None, "", "relative"):
        if other is None:
            monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        else:
            monkeypatch.setenv("XDG_CONFIG_HOME", other)
        assert folder() == tmp_path / ".config" / "mpicoll" / "tuning"
    assert users_tables() == ()


def test_without_a_home_there_are_no_tables(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(tuning.Path, "home", homeless)
    assert users_tables() == ()
    with pytest.raises(OSError, match=r"^no folder for tuning tables: Could not .* Set XDG_CONFIG_HOME$"):
        folder()


def test_a_file_that_cannot_be_read_is_listed_and_the_others_are_used(home):
    (home / "a.rules").mkdir()
    (home / "b.rules").write_text("bcast:ring")
    (home / "c.rules").symlink_to("nowhere")
    found = in_force(NOTHING, users_tables(), HERE)
    assert [table.name for table in found.tables] == [str(home / "b.rules")]
    assert found.unused[:2] == (
        (str(home / "a.rules"), "Is a directory"),
        (str(home / "c.rules"), "No such file or directory"),
    )


def test_what_is_no_text_is_a_mistake_with_its_line(home):
    (home / "photo.rules").write_bytes(b"bcast:ring\n\xff\xd8\x00")
    with pytest.raises(ValueError, match=r"photo\.rules, line 2: "):
        in_force(NOTHING, users_tables(), HERE)


def test_a_name_that_is_no_text_can_be_told(home):
    file = os.fsencode(home) + b"/\xff.rules"
    with open(file, "w") as out:  # noqa: PTH123  (a name of bytes)
        out.write("bcast:ring")
    ((name, statements, trouble),) = users_tables()
    assert (name.encode("utf-8").decode(), statements, trouble) == (f"{home}/?.rules", "bcast:ring", "")
    assert pickle.loads(pickle.dumps(name)) == name


@pytest.mark.parametrize("broken", ["bcast:rings", "machine:cores=64\nbcast:rings"])
def test_a_mistake_in_a_users_table_is_an_error_even_if_it_is_of_another_machine(broken):
    with pytest.raises(ValueError, match=r"^mine, line \d: 'bcast:rings': bcast: no algorithm 'rings'"):
        in_force(NOTHING, (text("mine", broken),), HERE)


def test_a_file_that_is_missing_names_the_setting_and_what_there_is(tmp_path):
    for name, why in (("nowhere", "No such file or directory"), (str(tmp_path), "Is a directory")):
        known = "beside files there are: model, h200"
        with pytest.raises(ValueError) as caught:
            in_force(asked_for(name), (), HERE)
        assert str(caught.value) == f"the setting `tuning`, {name}: {why}; {known}"


def test_a_file_that_is_mended_is_read_again(home):
    file = home / "set"
    for statements, algorithm in (("bcast:ring", "ring"), ("bcast:rings", None), ("bcast:linear", "linear")):
        file.write_text(statements)
        if algorithm:
            assert chosen(in_force(asked_for(str(file)), (), HERE))[0].algorithm == algorithm
        else:
            with pytest.raises(ValueError, match=r"line 1: 'bcast:rings'"):
                in_force(asked_for(str(file)), (), HERE)


def test_tables_of_one_name_differ_by_their_fingerprints(home):
    one, two = home / "one", home / "two"
    one.write_text("bcast:ring\n")
    two.write_text("bcast:linear\n")
    prints = [fingerprint(asked_for(str(file))) for file in (one, two, one, home / "none")]
    assert prints[0] == prints[2] != prints[1]
    assert prints[0].startswith("1 lines, checksum ")
    assert prints[3] == "No such file or directory"
    assert [fingerprint(asked_for(name)) for name in ("", "model", "h200")] == ["", "", ""]


def test_plans_without_mpi_take_the_users_tables_too(home):
    with mpicoll.override(tuning=""):
        assert "cost model" in mpicoll.plan("bcast", size=4, nbytes=8).reason
        (home / "mine.rules").write_text("bcast:ring")
        assert mpicoll.plan("bcast", size=4, nbytes=8).reason == f"tuning table {home / 'mine.rules'}: bcast:ring"
    with mpicoll.override(tuning="model"):
        assert "cost model" in mpicoll.plan("bcast", size=4, nbytes=8).reason
