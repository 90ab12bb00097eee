"""Tuning tables: what they say, how they are written, and every kind of mistake."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoll.algorithms import catalogue
from mpicoll.analysis.cost import CostModel
from mpicoll.dispatch.machine_facts import FACTS, MachineFacts
from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.paths import PATHS
from mpicoll.dispatch.rules import Choice, Rule
from mpicoll.dispatch.table import PARAMETERS, Table, merged, parse_table

TEXT = """\
# a comment
machine:mpi=MPICH:cpu=Intel(R) Xeon(R) CPU @ 2.20GHz:cores=2:hosts=1   # where
model:host:alpha=5e-06:beta=2.5e-10
allreduce:64K-inf:p=8:mem=host:linear/1; bcast:p=8:binomial
measured:allreduce:64K:p=8:mem=host:ring/4=1234.5:linear/1=980
measured:bcast:8:p=2:mem=device:gpus=2:linear/1@mapped=7.25
"""


def test_a_table_says_machine_models_rules_and_times():
    table = parse_table(TEXT, "mine")
    assert table.name == "mine"
    assert table.machine == MachineFacts("MPICH", "Intel(R) Xeon(R) CPU @ 2.20GHz", "2", "1")
    assert table.models == {"host": CostModel(5e-6, 0, 2.5e-10, 0, 0, source="measured, mine")}
    assert list(map(str, table.rules)) == ["allreduce:64K-inf:p=8:mem=host:linear/1", "bcast:p=8:binomial"]
    first, second = table.timings
    assert (first.calls, first.nbytes) == (("allreduce", 8, "host", 0), 64 << 10)
    assert first.times == pytest.approx({Choice("ring", 4): 1234.5e-6, Choice("linear", 1): 980e-6})
    assert (second.calls, second.nbytes) == (("bcast", 2, "device", 2), 8)
    assert second.times == pytest.approx({Choice("linear", 1, "mapped"): 7.25e-6})


def test_it_is_written_in_the_same_order_the_fastest_time_first():
    assert parse_table(TEXT, "mine").text().splitlines() == [
        "machine:mpi=MPICH:cpu=Intel(R) Xeon(R) CPU @ 2.20GHz:cores=2:hosts=1",
        "model:host:alpha=5e-06:beta=2.5e-10",
        "allreduce:64K-inf:p=8:mem=host:linear/1",
        "bcast:p=8:binomial",
        "measured:allreduce:64K:p=8:mem=host:linear/1=980:ring/4=1234",
        "measured:bcast:8:p=2:mem=device:gpus=2:linear/1@mapped=7.25",
    ]


def test_an_empty_table_is_for_all_machines_and_knows_nothing():
    table = parse_table("# nothing yet\n\n;;\n", "empty")
    assert (table.machine, table.rules, table.models, table.timings) == (MachineFacts(), (), {}, ())
    assert table.text() == ""


MISTAKES = {
    "allreduce:rings": "allreduce: no algorithm 'rings'; known: ",
    "allreduce:8-64:p=2:q=3:ring": "unknown condition 'q'; known: p, mem, gpus, hosts, perhost, and a range of bytes",
    "machine:mpi=MPICH:core=2": "'core=2' is none of mpi=, cpu=, cores=, hosts=, gpu=",
    "machine:MPICH": "'MPICH' is none of mpi=",
    "machine:mpi=MPICH:mpi=Open MPI": "mpi is given twice",
    "model:alpha=1e-6": "unknown path 'alpha=1e-6'; known: host, ",
    "model": "unknown path ''",
    "model:host": "all parameters are 0",
    "model:host:alpha=0": "all parameters are 0",
    "model:host:speed=1": "'speed=1' is none of alpha=, ",
    "model:host:alpha=fast": "'fast' is not a time, 0 or more",
    "model:host:alpha=-1e-6": "'-1e-6' is not a time, 0 or more",
    "model:host:alpha=inf": "'inf' is not a time, 0 or more",
    "model:host:alpha=1:alpha=2": "alpha is given twice",
    "measured": "needs a collective, a size in bytes, p=, mem=, and algorithm=microseconds",
    "measured:allreduce:8:p=2:mem=host": "needs a collective, a size in bytes, p=, mem=, and algorithm=microseconds",
    "measured:allreduce:p=2:mem=host:ring=1": "'p=2' is not a number of bytes",
    "measured:allreduce:8:mem=host:ring=1": "needs one number of ranks, and a memory",
    "measured:allreduce:8:p=2-4:mem=host:ring=1": "needs one number of ranks, and a memory",
    "measured:allreduce:8:p=pow2:mem=host:ring=1": "needs one number of ranks, and a memory",
    "measured:allreduce:8:p=2:ring=1": "needs one number of ranks, and a memory",
    "measured:allreduce:8:p=0:mem=host:ring=1": "empty range of ranks '0'",
    "measured:allreduce:8:p=2:8-9:mem=host:ring=1": "needs one number of ranks, and a memory",
    "measured:allreduce:8:p=2:mem=host:gpus=0:ring=1": "'0' is not a number of GPUs, 1 or more",
    "measured:allreduse:8:p=2:mem=host:ring=1": "no collective 'allreduse'",
    "measured:allreduce:8:p=2:mem=host:rings=1": "allreduce: no algorithm 'rings'",
    "measured:allreduce:8:p=2:mem=host:ring=slow": "'slow' is not a time, 0 or more",
    "measured:allreduce:8:p=2:mem=host:ring=nan": "'nan' is not a time, 0 or more",
    "measured:allreduce:8:p=2:mem=host:ring@x=1": "unknown path 'x'",
    "measured:allreduce:8:p=2:mem=host:ring=1:ring=2": "ring is given twice",
    "\N{REPLACEMENT CHARACTER}PNG": "needs a collective, a colon and an algorithm",
}


@pytest.mark.parametrize("statement", MISTAKES)
def test_a_mistake_names_table_line_and_statement_and_says_what_is_wrong(statement):
    text = f"# mine\nallreduce:ring; {statement}; bcast:ring\n"
    start = f"mine, line 2: {statement!r}: {MISTAKES[statement]}"
    with pytest.raises(ValueError, match=f"^{re.escape(start)}"):
        parse_table(text, "mine")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("machine:cores=2", "machine:cores=4"),
        ("model:host:alpha=1e-6", "model:host:alpha=2e-6"),
        ("measured:bcast:8K:p=2:mem=host:ring=1", "measured:Bcast:8192:p=2:mem=host:linear=2"),
    ],
)
def test_what_a_table_can_say_once_only_must_not_stand_there_twice(first, second):
    others = ["model:direct:alpha=1e-6", *(f"measured:bcast:{rest}:mem=host:ring=1" for rest in ("8K:p=3", "8:p=2"))]
    with pytest.raises(ValueError, match=rf"^mine, line 5: '{second}': stands there for the second time$"):
        parse_table("\n".join([first, *others, second]), "mine")
    parse_table("\n".join([first, *others]), "mine")


# What is written is read again as it was.

#: four digits are kept of each number
NUMBERS = st.builds(lambda digits, power: float(f"{digits}e{power}"), st.integers(1, 9999), st.integers(-12, 0))
PLAIN = st.text("abcXYZ019 ()@.-/", min_size=1).map(str.strip).filter(bool)
MACHINES = st.builds(MachineFacts, **dict.fromkeys(FACTS, PLAIN | st.just("")))
MODELS = st.dictionaries(st.sampled_from(PARAMETERS), NUMBERS, min_size=1)
NAMES = st.sampled_from([(name, algorithm) for name, algorithms in catalogue().items() for algorithm in algorithms])


@st.composite
def timings(draw):
    memory = draw(st.sampled_from(["host", "device"]))
    gpus = draw(st.integers(0, 8)) if memory == "device" else 0
    name = draw(st.sampled_from(list(catalogue())))
    algorithms, segments = st.sampled_from(list(catalogue()[name])), st.integers(0, 64)
    choices = st.builds(Choice, algorithms, segments, st.sampled_from(["", *PATHS]))
    times = draw(st.dictionaries(choices, NUMBERS, min_size=1, max_size=4))
    micro = {choice: float(f"{seconds:.4g}") * 1e-6 for choice, seconds in times.items()}
    return Timing(name, draw(st.integers(0, 1 << 40)), draw(st.integers(1, 64)), memory, gpus, micro)


@st.composite
def rules(draw):
    name, algorithm = draw(NAMES)
    low = draw(st.integers(0, 1 << 40))
    high = draw(st.integers(low + 1, 1 << 41) | st.just(1 << 62))
    size, gpus = draw(st.integers(1, 64)), draw(st.integers(0, 8))
    choice = Choice(algorithm, draw(st.integers(0, 64)), draw(st.sampled_from(["", *PATHS])))
    return Rule(name, choice, low, high, (size, size), False, draw(st.sampled_from(["host", "device"])), gpus)


@st.composite
def tables(draw):
    models = draw(st.dictionaries(st.sampled_from(list(PATHS)), MODELS, max_size=3))
    full = {path: CostModel(**dict.fromkeys(PARAMETERS, 0.0) | given) for path, given in models.items()}
    unique = draw(st.lists(timings(), max_size=4, unique_by=lambda one: (one.calls, one.nbytes)))
    return Table("made up", draw(MACHINES), tuple(draw(st.lists(rules(), max_size=4))), full, tuple(unique))


@pytest.mark.slow
@settings(max_examples=50)
@given(tables())
def test_a_table_is_written_as_it_is_read(table):
    again = parse_table(table.text(), "again")
    assert (again.machine, again.rules) == (table.machine, table.rules)
    assert again.models.keys() == table.models.keys()
    for path, model in table.models.items():
        found = again.models[path]
        assert [getattr(found, name) for name in PARAMETERS] == [getattr(model, name) for name in PARAMETERS]
    assert [(one.calls, one.nbytes) for one in again.timings] == [(one.calls, one.nbytes) for one in table.timings]
    for one, other in zip(again.timings, table.timings, strict=True):
        assert one.times == pytest.approx(other.times, rel=1e-9)
    assert again.text() == table.text()


# What is known of other numbers of ranks stays.


def tuned(size, algorithm, alpha, collective="bcast"):
    return parse_table(
        f"machine:cores=2\nmodel:host:alpha={alpha}\n{collective}:p={size}:mem=host:{algorithm}\n"
        f"measured:{collective}:8:p={size}:mem=host:{algorithm}=5",
        f"of {size}",
    )


def test_a_new_table_keeps_what_an_old_one_knows_of_other_calls():
    old = merged(tuned(4, "ring", 1e-6), tuned(2, "ring", 2e-6))
    new = merged(old, tuned(2, "linear", 3e-6))
    assert list(map(str, new.rules)) == ["bcast:p=2:mem=host:linear", "bcast:p=4:mem=host:ring"]
    assert [(one.size, *map(str, one.times)) for one in new.timings] == [(2, "linear"), (4, "ring")]
    assert (new.name, new.models["host"].alpha) == ("of 2", 3e-6)
    both = merged(new, tuned(2, "ring", 4e-6, "reduce"))
    assert [rule.collective for rule in both.rules] == ["reduce", "bcast", "bcast"]
    parse_table(both.text(), "both")
