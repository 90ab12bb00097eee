"""What ranks say of a call to each other: fingerprints, counts, troubles, and what is raised of them."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

import mpicoll
from mpicoll.runtime.arguments.methods import read_call
from mpicoll.runtime.call.agreement import LONGEST, Fingerprint, Flow, Word, asked, settle
from mpicoll.runtime.progress.exchange import SHORT

PLAN = SimpleNamespace(algorithm="ring", segments=1, path="host")
SIZE = 3


def said(method, *arguments, form="blocking", plan=PLAN, rank=0):
    """Return the fingerprint of a call."""
    return Fingerprint.of(form, read_call(method, rank, SIZE, arguments, {}), plan)


def zeros(count=6, dtype="f8"):
    return np.zeros(count, dtype)


def record(*columns, **more):
    return np.dtype({"names": [n for n, _ in columns], "formats": [f for _, f in columns], "itemsize": 16, **more})


def larger(a, b):
    return np.maximum(a, b)


def smaller(a, b):
    return np.minimum(a, b)


def shifted(by):
    def combine(a, b):
        return a + b + by

    return combine


def user(function=larger, **named):
    return mpicoll.Op(function, name="mine", **named)


#: what differs -> two calls that do not fit together, and the attribute that says so
DIFFERENT = {
    "count": (("Bcast", zeros(6)), ("Bcast", zeros(5)), "count"),
    "collective": (("Allreduce", zeros(), zeros()), ("Scan", zeros(), zeros()), "collective"),
    "v-variant": (("Allgather", zeros(2), zeros()), ("Allgatherv", zeros(2), [zeros(), [2] * 3]), "collective"),
    "root": (("Bcast", zeros(), 0), ("Bcast", zeros(), 1), "root"),
    "operator": (("Allreduce", zeros(), zeros()), ("Allreduce", zeros(), zeros(), MPI.MAX), "op"),
    "order": (("Scan", zeros(), zeros(), user()), ("Scan", zeros(), zeros(), user(commute=True)), "op"),
    "a user's code": (("Scan", zeros(), zeros(), user()), ("Scan", zeros(), zeros(), user(smaller)), "function"),
    "a user's expression": (
        ("Scan", zeros(), zeros(), user(cuda="a + b")),
        ("Scan", zeros(), zeros(), user(cuda="b + a")),
        "function",
    ),
    "precision": (("Bcast", zeros(6, "f8")), ("Bcast", zeros(6, "i8")), "dtype"),
    "byte order": (("Bcast", zeros(6, "<f8")), ("Bcast", zeros(6, ">f8")), "dtype"),
    "fields": (
        ("Bcast", zeros(2, record(("a", "f8"), ("b", "i8")))),
        ("Bcast", zeros(2, record(("a", "i8"), ("b", "f8")))),
        "dtype",
    ),
    "fields' names": (
        ("Bcast", zeros(2, record(("a", "f8"), ("b", "f8")))),
        ("Bcast", zeros(2, record(("a", "f8"), ("c", "f8")))),
        "dtype",
    ),
    "fields' places": (
        ("Bcast", zeros(2, record(("a", "f4"), ("b", "f4"), offsets=[0, 4]))),
        ("Bcast", zeros(2, record(("a", "f4"), ("b", "f4"), offsets=[0, 8]))),
        "dtype",
    ),
    "fields' byte order": (
        ("Bcast", zeros(2, record(("a", "<f8")))),
        ("Bcast", zeros(2, record(("a", ">f8")))),
        "dtype",
    ),
    "fields of fields": (
        ("Bcast", zeros(2, record(("a", [("x", "i4")])))),
        ("Bcast", zeros(2, record(("a", [("x", "f4")])))),
        "dtype",
    ),
    "fields' shape": (
        ("Bcast", zeros(2, record(("a", "(2,)f4")))),
        ("Bcast", zeros(2, record(("a", "(3,)f4")))),
        "dtype",
    ),
    "counts of equal sum": (
        ("Allgatherv", zeros(2), [zeros(), [2, 2, 2]]),
        ("Allgatherv", zeros(2), [zeros(), [2, 1, 3]]),
        "counts",
    ),
    "blocks of equal sum": (
        ("Reduce_scatter", zeros(), zeros(2), [2, 2, 2]),
        ("Reduce_scatter", zeros(), zeros(2), [2, 3, 1]),
        "counts",
    ),
}


@pytest.mark.parametrize("differs", DIFFERENT)
def test_a_fingerprint_differs_in_what_the_calls_differ_in(differs):
    one, other, attribute = DIFFERENT[differs]
    first, second = said(*one), said(*other)
    assert first == said(*one), "an equal call has an equal one"
    assert getattr(first, attribute) != getattr(second, attribute)
    with mpicoll.override(debug=1), pytest.raises(mpicoll.MismatchError) as caught:
        settle("call #3", [Word("x", first), Word("x", first), Word("x", second)], None)
    text = str(caught.value)
    assert text.startswith(f"call #3: rank 0 calls {first}, rank 2 calls {second} (they differ in ")
    assert f"{attribute} {getattr(first, attribute)} and {getattr(second, attribute)}" in text
    assert text.endswith("ranks unlike rank 0: [2])")


@pytest.mark.parametrize("name", ["algorithm", "segments", "path"])
def test_a_fingerprint_says_what_was_chosen(name):
    other = SimpleNamespace(**{**vars(PLAN), name: "other"})
    assert said("Bcast", zeros()).algorithm == "ring/1@host"
    assert said("Bcast", zeros()) != said("Bcast", zeros(), plan=other)


def test_forms_that_match_and_one_that_does_not():
    blocking, nonblocking, persistent = (
        said("Bcast", zeros(), form=form) for form in ("blocking", "nonblocking", "persistent")
    )
    assert blocking == nonblocking != persistent
    assert str(persistent) == "persistent bcast float64[6] root 0"


def test_ranks_may_differ_in_what_is_their_own_affair():
    """Buffers that only the root has, a block's size in v-variants, in place or not."""
    assert said("Gather", zeros(2), zeros(), rank=0) == said("Gather", zeros(2), None, rank=1)
    assert said("Gather", MPI.IN_PLACE, zeros(), rank=0) == said("Gather", zeros(2), None, rank=1)
    assert said("Gatherv", zeros(1), [zeros(), [1, 2, 3]]) == said("Gatherv", zeros(2), None, rank=1)
    assert said("Allreduce", zeros(), zeros()) == said("Allreduce", MPI.IN_PLACE, zeros())
    assert said("Barrier").dtype == ""


def test_one_function_on_all_ranks_is_the_same_though_its_object_is_not():
    """Made anew, as in another process; what it closes over is not looked at."""
    assert said("Scan", zeros(), zeros(), user(shifted(0))) == said("Scan", zeros(), zeros(), user(shifted(0)))
    assert said("Scan", zeros(), zeros(), user(np.maximum)) == said("Scan", zeros(), zeros(), user(np.maximum))


#: operators whose code holds other code, or a set
NESTED = {
    "a function within": "def f(a, b):\n    key = lambda x: x + {}\n    return key(a)",
    "a loop within": "def f(a, b):\n    return [x + {} for x in zip(a, b)]",
    "a set": "def f(a, b):\n    return a if a in {{'one', 'two', 'three', {}}} else b",
    "sets in a tuple": "def f(a, b):\n    return a in (1, 'x', {})",
}


def in_another_process(number):
    """Return the checksums of all NESTED, each with two constants; by the number, all addresses and orders differ."""
    script = (
        "import json, sys; from mpicoll.runtime.call.agreement import _checksum\n"
        "keep = [object() for _ in range(int(sys.argv[2]))]\n"
        "for source in json.loads(sys.argv[1]):\n"
        "    own = {}; exec(source, own); print(_checksum(own['f'], ''))\n"
    )
    sources = json.dumps([source.format(constant) for source in NESTED.values() for constant in (1, 2)])
    command = [sys.executable, "-c", script, sources, str(number)]
    done = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": str(number)}, capture_output=True, check=True)
    return done.stdout.split()


def test_code_within_an_operators_code():
    """Neither its place in memory nor the order of a set is the same in every process; what they say is."""
    found = in_another_process(1)
    assert found == in_another_process(5000)
    assert len(set(found)) == 2 * len(NESTED)


def flow(method, *arguments, rank):
    return Flow.of(read_call(method, rank, SIZE, arguments, {}), SIZE)


COUNTS = [1, 2, 3]


def test_the_flow_of_v_variants():
    assert flow("Gatherv", zeros(1), [zeros(), COUNTS], 0, rank=0) == Flow({0: 1}, {0: 1, 1: 2, 2: 3})
    assert flow("Gatherv", zeros(2), None, 0, rank=1) == Flow({0: 2}, {})
    assert flow("Scatterv", [zeros(), COUNTS], zeros(1), 0, rank=0) == Flow({0: 1, 1: 2, 2: 3}, {0: 1})
    assert flow("Scatterv", None, zeros(3), 0, rank=2) == Flow({}, {0: 3})
    square = flow("Alltoallv", [zeros(), [2, 1, 3]], [zeros(), [2, 0, 1]], rank=0)
    assert square == Flow({0: 2, 1: 1, 2: 3}, {0: 2, 1: 0, 2: 1})
    assert flow("Allreduce", zeros(), zeros(), rank=0) == Flow()


def words(flows):
    return [Word("gatherv", flow=one) for one in flows]


def test_counts_of_pairs_are_compared():
    """Who sends how many to whom, where the receiver expects another number."""
    flows = [
        flow("Gatherv", zeros(1), [zeros(), COUNTS], 0, rank=0),
        flow("Gatherv", zeros(2), None, 0, rank=1),
        flow("Gatherv", zeros(3), None, 0, rank=2),
    ]
    with mpicoll.override(debug=1):
        settle("gatherv #1", words(flows), None)
        wrong = [*flows[:2], flow("Gatherv", zeros(4), None, 0, rank=2)]
        text = r"^gatherv #1: rank 2 sends 4 elements to rank 0, which expects 3$"
        with pytest.raises(mpicoll.MismatchError, match=text):
            settle("gatherv #1", words(wrong), None)


def test_counts_of_pairs_in_both_directions():
    flows = [flow("Alltoallv", [zeros(), COUNTS], [zeros(), [1 + rank] * 3], rank=0) for rank in (0,)]
    right = Flow({0: 2, 1: 2, 2: 2}, {0: 2, 1: 2, 2: 2})
    assert flows == [Flow({0: 1, 1: 2, 2: 3}, {0: 1, 1: 1, 2: 1})]
    with mpicoll.override(debug=1):
        settle("alltoallv #1", words([right] * 3), None)
        for sender, receiver in ((0, 1), (2, 0), (1, 2)):
            wrong = [right] * 3
            wrong[sender] = replace(right, sent={**right.sent, receiver: 5})
            text = f"rank {sender} sends 5 elements to rank {receiver}, which expects 2"
            with pytest.raises(mpicoll.MismatchError, match=text):
                settle("alltoallv #1", words(wrong), None)


ONE = said("Bcast", zeros())


def test_ranks_own_trouble_is_raised_as_it_is():
    trouble = ValueError("mine")
    with pytest.raises(ValueError, match=r"^mine$") as caught:
        settle("bcast #1", [Word.refusing("bcast", trouble), Word.refusing("bcast", KeyError("other"))], trouble)
    assert caught.value is trouble


def test_troubles_of_others_are_told_with_their_ranks():
    """All of them, also where calls differ besides, and without comparing."""
    spoken = [Word("bcast", ONE), Word.refusing("bcast", ValueError("a")), Word.refusing("scan", KeyError("b"))]
    text = r"^bcast #1: rank 1 raised ValueError\('a'\); rank 2 raised KeyError\('b'\)$"
    for debug in (0, 1):
        with mpicoll.override(debug=debug), pytest.raises(mpicoll.MismatchError, match=text):
            settle("bcast #1", spoken, None)


def test_different_calls_of_which_one_was_never_read():
    """Such as the finding of counts on one rank, a Bcast on the others; without comparing, too."""
    spoken = [Word("bcast", ONE), Word("the counts of reduce_scatter", told=4)]
    text = r"^bcast #1: rank 0 calls bcast, rank 1 calls the counts of reduce_scatter$"
    for debug in (0, 1):
        with mpicoll.override(debug=debug), pytest.raises(mpicoll.MismatchError, match=text):
            settle("bcast #1", spoken, None)


def test_equal_calls_are_settled_in_silence():
    for debug in (0, 1):
        with mpicoll.override(debug=debug):
            settle("bcast #1", [Word("bcast", ONE)] * 3, None)
            settle("the counts", [Word("the counts", told=n) for n in range(3)], None)


def test_calls_are_compared_only_where_that_is_asked_for():
    spoken = [Word("bcast", ONE), Word("bcast", said("Bcast", zeros(5)))]
    with mpicoll.override(errors="agree"):
        settle("bcast #1", spoken, None)


def test_arrays_in_different_kinds_of_memory():
    text = r"^bcast #1: arrays are not all in the same memory: rank 0 on a device, rank 1 on a host$"
    with pytest.raises(mpicoll.MismatchError, match=text):
        settle("bcast #1", [Word("bcast", unconnected=True), Word("bcast", ONE)], None)


def test_a_word_of_trouble_is_short():
    """It travels with the first message, though not whole."""
    word = Word.refusing("bcast", ValueError("x" * 10_000))
    assert len(word.trouble) == LONGEST
    assert len(pickle.dumps(word)) <= SHORT
    assert Word.refusing("bcast", MemoryError("none")).short
    assert not word.short


def test_a_word_of_an_ordinary_call_is_short():
    """So that asking costs one message."""
    word = Word("allreduce", said("Allreduce", zeros(), zeros()), Flow())
    assert len(pickle.dumps(word)) <= SHORT
    assert pickle.loads(pickle.dumps(word)) == word


def test_whether_ranks_ask_each_other():
    assert not asked()
    for setting in ({"debug": 1}, {"debug": 2}, {"errors": "agree"}):
        with mpicoll.override(**setting):
            assert asked()


def test_every_attribute_of_a_fingerprint_is_changed_here():
    assert {f.name for f in fields(Fingerprint)} == {attribute for *_, attribute in DIFFERENT.values()} | {
        "form",
        "algorithm",
    }
