"""The choice of MPI's own collective: by a call, a rule, the setting or a table, and where it is passed over."""

import pytest

import mpicoll
from mpicoll import UnsupportedError
from mpicoll.algorithms import catalogue
from mpicoll.dispatch.explain import REFUSED
from mpicoll.dispatch.facts import Facts
from mpicoll.dispatch.machine_facts import MachineFacts
from mpicoll.dispatch.plan import make_plan
from mpicoll.dispatch.plan_key import PlanKey
from mpicoll.dispatch.rules import NATIVE, Choice, parse_choice, parse_rules
from mpicoll.dispatch.select import select
from mpicoll.dispatch.table import parse_table
from mpicoll.dispatch.tuning import Tuning
from mpicoll.schedule.ir import Schedule
from mpicoll.tuning.choose import rules
from mpicoll.tuning.contenders import contenders
from mpicoll.tuning.fit import samples
from mpicoll.tuning.gaps import bends

FACTS = Facts("allreduce", 4, 4096)
OTHERWISE = Facts("allreduce", 4, 4096, not_native="op MAX of float32 is another one in MPI, or undefined")
#: MPI's own is the fastest one at 8 B, ring at 64 KiB
TABLE = """
measured:allreduce:8:p=4:mem=host:native=2:ring/1=9
measured:allreduce:4K:p=4:mem=host:native=10:ring/1=20
measured:allreduce:64K:p=4:mem=host:native=90:ring/1=70
allreduce:0-16K:p=4:mem=host:native
allreduce:16K-inf:p=4:mem=host:ring/1
"""


def tuning(text=TABLE):
    return Tuning((parse_table(text, "made"),), MachineFacts())


def chosen(facts, call="", communicator="", setting="", tables=None, native=False):
    return select(facts, call, communicator, setting, tables or Tuning(), native)


def test_it_may_be_named_by_the_call_and_by_rules():
    assert chosen(FACTS, call=NATIVE) == (Choice(NATIVE), "algorithm= in the call")
    assert chosen(FACTS, communicator="allreduce:native")[0] == Choice(NATIVE)
    assert chosen(FACTS, setting="allreduce:0-8K:native; allreduce:ring")[0] == Choice(NATIVE)


def test_where_it_would_not_do_the_same_the_call_is_refused_and_rules_are_passed_over():
    with pytest.raises(UnsupportedError, match=r"^allreduce: 'native' would not do the same: op MAX of float32"):
        chosen(OTHERWISE, call=NATIVE)
    assert chosen(OTHERWISE, setting="allreduce:native; allreduce:linear")[0].algorithm == "linear"
    assert chosen(OTHERWISE, tables=tuning())[0].algorithm != NATIVE
    assert chosen(OTHERWISE, native=True)[0].algorithm in catalogue()["allreduce"]


def test_the_setting_takes_it_unless_a_table_has_measured_it():
    assert chosen(FACTS, native=True) == (Choice(NATIVE), "the setting native")
    assert chosen(FACTS, setting="allreduce:ring", native=True)[0].algorithm == "ring"
    for nbytes, algorithm in ((4096, NATIVE), (1 << 20, "ring")):
        facts = Facts("allreduce", 4, nbytes)
        for native in (False, True):
            choice, why = chosen(facts, tables=tuning(), native=native)
            assert (choice.algorithm, why.startswith("tuning table made")) == (algorithm, True)
    ours = tuning("measured:allreduce:8:p=4:mem=host:ring/1=9\nallreduce:p=4:mem=host:ring")
    assert chosen(FACTS, tables=ours, native=True)[0].algorithm == NATIVE
    assert chosen(FACTS, tables=ours)[0].algorithm == "ring"


def test_a_plan_says_what_runs_where_calls_do_not_block():
    tables = tuning()
    plan = make_plan(PlanKey(FACTS, 0, tuning=tables, native=True))
    other = make_plan(PlanKey(FACTS, 0, tuning=tables).beside())
    assert (plan.algorithm, plan.path, str(plan.choice)) == (NATIVE, "host", "native")
    assert plan.beside is other
    assert other.algorithm in catalogue()["allreduce"]
    assert isinstance(plan.schedule, Schedule)
    found = plan.explanation()
    assert found.chosen.choice == Choice(NATIVE)
    assert [one.choice.algorithm for one in found.verdicts if "do not block" in one.why] == [other.algorithm]
    assert found.changes == ((0, "native"), (16384, "ring@host"))
    assert "native: MPI's own collective; calls that do not block: " in str(plan)
    assert plan.line == "allreduce of 4K on 4 ranks: native, tuning table made: allreduce:0-16K:p=4:mem=host:native"


def test_a_forced_one_leaves_the_rest_to_who_speaks_next():
    plan = make_plan(PlanKey(FACTS, 0, call=NATIVE, setting="allreduce:ring"))
    assert plan.beside.algorithm == "ring"
    assert REFUSED not in {label for _, label in plan.explanation().changes}


@pytest.mark.parametrize("text", ["native/2", "native@direct", "native/1@host"])
def test_it_has_no_segments_and_one_path(text):
    assert parse_choice("native@host") == Choice(NATIVE)
    with pytest.raises(ValueError, match="native takes no segments, and no path but host"):
        parse_rules(f"bcast:{text}")


def test_no_algorithm_has_its_name():
    with pytest.raises(ValueError, match="'native' stands for MPI's own collective"):

        @mpicoll.algorithm("bcast", verified=False)
        def native(rank, size, root):
            """Nothing."""


def test_arrays_on_devices_are_not_its():
    with pytest.raises(UnsupportedError, match="the arrays are on a device"):
        mpicoll.plan("allreduce", size=4, nbytes=4096, device="cuda", algorithm=NATIVE)
    with mpicoll.override(native=True):
        assert mpicoll.plan("allreduce", size=4, nbytes=4096, device="cuda").algorithm != NATIVE
        assert mpicoll.plan("allreduce", size=4, nbytes=4096).algorithm == NATIVE


def test_a_table_keeps_its_times():
    table = parse_table(TABLE, "made")
    assert parse_table(table.text(), "again").text() == table.text()
    assert "native=2" in table.text()


def test_the_tuner_races_it_where_it_is_asked_for_and_fits_no_formula_to_it():
    assert Choice(NATIVE) not in contenders(FACTS, Tuning())
    assert contenders(FACTS, Tuning(), native=True)[-1] == Choice(NATIVE)
    assert Choice(NATIVE) not in contenders(OTHERWISE, Tuning(), native=True)
    timings = parse_table(TABLE, "made").timings
    assert len(samples(timings, "host", Tuning().model("host"))) == 3
    assert len(list(bends(timings, tuning()))) in (0, 2)
    found = rules(timings)
    assert [(rule.choice.algorithm, rule.low, rule.high) for rule in found] == [
        (NATIVE, 0, found[0].high),
        ("ring", 0, 1 << 62),
    ]
    assert 4096 < found[0].high <= 65536
