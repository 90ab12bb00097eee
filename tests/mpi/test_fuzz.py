"""Random calls: Hypothesis draws everything about a call, NumPy says what must come out.

All ranks draw the same cases.  A failure ends the job and prints the case, `check(comms, Drawn(...))`
makes the same call again; so does a call that hangs.

MPICOLL_TEST_EXAMPLES says how many cases, MPICOLL_TEST_SEED which ones (`make fuzz` goes on with new
seeds); without a seed they are always the same, and more than 2,000 over the numbers of ranks that
`make test-mpi` runs.
"""

import os
from dataclasses import replace

import hypothesis
import pytest
from hypothesis import strategies as st
from mpi4py import MPI

import data
import oracle
from mpi.cases import PATTERNS, REDUCING, VECTOR, forms
from mpi.drawn import FLAT, MEMORY, Drawn, Started
from mpicoll.algorithms import registry
from mpicoll.schedule.program import TAGS

pytestmark = pytest.mark.many_ranks

SIZE = MPI.COMM_WORLD.Get_size()
#: many ranks on few cores are slow
EXAMPLES = int(os.environ.get("MPICOLL_TEST_EXAMPLES", 0)) or {4: 300, 5: 300}.get(SIZE, 400 if SIZE < 4 else 150)
SEED = os.environ.get("MPICOLL_TEST_SEED")
#: calls that are in flight together, at most
TOGETHER = 4

METHODS = [m for row in registry.COLLECTIVES.values() for m in row.methods if m != "Barrier"]
COMMS = ("world", "reversed", "halves", "self", "dup")
#: "mixed": every second rank blocks; "first": not blocking, on a communicator that has done nothing yet;
#: "freed": the same, and the communicator is freed while the call is on its way
MODES = ("blocking", "nonblocking", "persistent", "mixed") * 3 + ("first", "freed")  # those take more time
MOVED = (*data.DTYPES, *data.BFLOAT16, *data.RECORDS)
REDUCED = (*data.DTYPES, *data.BFLOAT16)
#: of the operator USER, which works on integers of any width
USERS = ("int8", "uint8", "int16", "int32", "uint64")


def communicators(comms, together):
    """Return the communicator of each case: its own where it is the first call there.

    They are made while nothing is in flight, for a rank that waits in MPI's Dup passes nothing on.
    """
    return [comms[case.comm].Dup() if case.mode in ("first", "freed") else comms[case.comm] for case in together]


def check(comms, *together, order=(0,)):
    """Make calls, complete them in some order, and compare all memory."""
    started = [Started(comm, case) for comm, case in zip(communicators(comms, together), together, strict=True)]
    for number in order:
        if number < len(started):
            started[number].finish()


@st.composite
def cases(draw, modes=MODES):
    """Draw a case; what does not matter for a method is left as it is."""
    method = draw(st.sampled_from(METHODS))
    drawn = {"method": method, "comm": draw(st.sampled_from(COMMS)), "mode": draw(st.sampled_from(modes))}
    drawn["number"] = draw(st.none() | st.integers(0, 9))
    drawn["segments"] = draw(st.integers(1, 4))
    drawn["form"] = draw(st.sampled_from(forms(method)))
    drawn["memory"] = tuple(
        draw(st.sampled_from(FLAT if drawn["form"] == "alias" else tuple(MEMORY))) for _ in range(2)
    )
    drawn["root"] = draw(st.integers(0, 7))
    drawn["count"] = draw(st.integers(0, 40) | st.integers(0, 3000))
    if drawn["form"] != "alias":
        drawn["displ"], drawn["typed"] = draw(st.just(0) | st.integers(0, 9)), draw(st.booleans())
    if method in REDUCING:
        op = drawn["op"] = draw(st.sampled_from((*data.OPERATORS, "USER", "USER")))
        usable = USERS if op == "USER" else tuple(d for d in REDUCED if oracle.supports(op, d))
        drawn["dtype"] = draw(st.sampled_from(usable))
    else:
        drawn["dtype"] = draw(st.sampled_from(MOVED))
    if method in VECTOR:
        drawn["pattern"] = draw(st.sampled_from(tuple(PATTERNS)))
        drawn["layout"] = draw(st.sampled_from(("dense", "gaps", "permuted")))
        drawn["spelling"] = draw(st.sampled_from(("counts", "list", "tuple", "array")))
    elif method == "Reduce_scatter":
        drawn["pattern"] = draw(st.sampled_from(("", *PATTERNS)))
        drawn["spelling"] = draw(st.sampled_from(("list", "tuple", "array")))
    return Drawn(**drawn)


def fuzzed(share, least=1):
    """Decorate a test: its share of the examples, at least so many, and the seed."""

    def decorate(test):
        test = hypothesis.settings(max_examples=max(EXAMPLES * share // 100, least))(test)
        return hypothesis.seed(int(SEED))(test) if SEED else test

    return decorate


@pytest.fixture(scope="session")
def fuzz_comms(comms):
    """COMMS."""
    made = comms["world"].Dup()
    yield {**comms, "dup": made}
    made.Free()


@pytest.fixture(scope="session")
def watch(pytestconfig):
    """Return what tells the watchdog which case is on its way: it is printed if it hangs."""
    plugins = pytestconfig.pluginmanager.get_plugins()
    return next(p.watchdog for p in plugins if hasattr(p, "watchdog")).watch


@fuzzed(80)
@hypothesis.given(case=cases())
def test_any_call(fuzz_comms, watch, case):
    watch(f"check(comms, {case})")
    check(fuzz_comms, case)


@pytest.mark.skipif(SIZE > 3 and not SEED, reason="slow with more ranks")
@fuzzed(0, least=2)  # each takes seconds, and Hypothesis begins with the simplest one
@hypothesis.given(case=cases(), segments=st.integers(TAGS - 2, TAGS + 904))
def test_more_segments_than_tags(fuzz_comms, watch, case, segments):
    """As many elements as every segment of every block needs to have one."""
    count = 2 * segments * fuzz_comms[case.comm].size
    case = replace(case, number=case.number or 0, segments=segments, count=count)
    watch(f"check(comms, {case})")
    check(fuzz_comms, case)


@fuzzed(20)
@hypothesis.given(together=st.lists(cases(), min_size=2, max_size=TOGETHER), order=st.permutations(range(TOGETHER)))
def test_calls_in_flight_together(fuzz_comms, watch, together, order):
    """Started in one order on all ranks, completed in another."""
    watch(f"check(comms, *{together}, order={order})")
    check(fuzz_comms, *together, order=order)
