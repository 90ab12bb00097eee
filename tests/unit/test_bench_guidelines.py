"""What is said of a guideline, and from which times."""

import numpy as np
import pytest

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.affinity import Affinity
from mpicoll.bench.measure.race import Goal, race
from mpicoll.bench.measure.statistics import FEWEST, Statistics
from mpicoll.bench.output.earlier import Earlier
from mpicoll.bench.output.guidelines import (
    COLUMNS,
    HOLDS,
    OURS,
    SURE,
    TOLERANCE,
    UNCLEAR,
    VIOLATED,
    Guidelines,
    Side,
    verdict,
)
from mpicoll.bench.output.report import Report
from mpicoll.bench.output.rows import MeasuredCall
from mpicoll.bench.request.cases import CALLS, in_equal_blocks, make_case
from mpicoll.bench.run import ended


def rounds(ratio, width=0.001, number=FEWEST):
    """Ratios of a rival's time to ours, of so many rounds."""
    return Statistics.of(np.linspace(ratio - width, ratio + width, number))


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (rounds(2), HOLDS),
        (rounds(1 / (1 + TOLERANCE) + 0.001), HOLDS),
        (rounds(1 / (1 + TOLERANCE) - 0.001), VIOLATED),
        (rounds(0.8, width=0.1), VIOLATED),
        (rounds(0.8, width=0.3), UNCLEAR),
        (rounds(0.8, number=FEWEST - 1), UNCLEAR),
        (rounds(1.2, number=FEWEST - 1), UNCLEAR),
        (rounds(SURE, width=0, number=1), HOLDS),
    ],
)
def test_a_guideline_is_violated_beyond_tolerance_and_noise(ratio, said):
    assert verdict(ratio) == said


class Alone:
    """The only rank."""

    def bcast(self, value, root):
        return value


class Clock:
    """Calls take as many seconds as they say; all else takes none."""

    now, affinity = 0.0, Affinity(0, 1, [0])

    def take(self, call, calls):
        seconds = np.array([call() for _ in range(calls)])
        self.now += seconds.sum()
        return seconds


def guidelines(**seconds):
    """Those of a call of 10 us with rivals that take so many seconds; the machine is ten times slower now and then."""
    clock, made = Clock(), []

    def side(name, time):
        return Side(name, Way(f"way of {name}"), lambda: made.append(name) or time * (1 + 9 * (len(made) // 1000 % 2)))

    sides = [side(OURS, 10e-6), *(side(name, time) for name, time in seconds.items())]
    ours, *others = race([one.call for one in sides], clock, Alone(), Goal(0.01, 1e9, 0), lambda: clock.now)
    case = make_case(CALLS["allreduce"], 64, "float32", 4, "SUM", 0)
    call = MeasuredCall(case, Way("linear", 1, "host", "model"), False)
    return Guidelines(call, ours, tuple(zip(sides[1:], others, strict=True)), 0)


def test_a_machine_that_is_slower_at_times_changes_no_verdict():
    found = guidelines(ring=10e-6, native=8e-6, tree=30e-6)
    assert found.verdicts == {"ring": HOLDS, "native": VIOLATED, "tree": HOLDS}
    assert found.violations == 1


def test_the_table_has_a_line_for_what_is_violated_with_its_figures():
    (row,) = guidelines(ring=10e-6, native=8e-6).cells()
    assert row[1:4] == ("1/2", "", "native")
    assert row[5:] == ("1.25", "0.0", "way of native")
    assert float(row[4]) == pytest.approx(0.8 * float(row[0]))


def test_a_call_that_violates_none_has_a_line():
    (row,) = guidelines(ring=10e-6).cells()
    assert row[1:] == ("1/1", *[""] * 6)
    assert len(row) == len(COLUMNS)


def test_the_file_has_every_side():
    found = guidelines(ring=10e-6, native=8e-6).record()
    assert set(found["times"]) == {OURS, "ring", "native"}
    assert found["figures"]["ratio native"] == {"value": 1.25, "unit": ""}
    said = {"verdict": VIOLATED, "way": "way of native", "ratio_low": 1.25, "ratio_high": 1.25}
    assert found["guidelines"]["native"] == said


def test_violations_of_an_earlier_run_count():
    assert Earlier([guidelines(ring=10e-6, native=8e-6, linear=5e-6).record(), {"op": "bcast"}]).violations == 2


def test_vectors_are_cut_into_equal_blocks():
    counts = [in_equal_blocks(make_case(CALLS["allreduce"], n, "float32", 3, "SUM", 0)).count for n in (0, 4, 12, 16)]
    assert counts == [0, 3, 3, 6]
    uneven = make_case(CALLS["allgatherv"], 16, "float32", 3, "", 0)
    assert in_equal_blocks(uneven) is uneven


@pytest.mark.parametrize(
    ("wrong", "violations", "interruption", "status", "word"),
    [
        (0, 0, "", 0, "OK"),
        (0, 0, "late", 3, "interrupted"),
        (0, 2, "late", 4, "VIOLATED"),
        (1, 2, "late", 1, "FAILED"),
    ],
)
def test_wrong_elements_count_before_violations_before_time(wrong, violations, interruption, status, word):
    report = Report({}, None, mode="guidelines", rows=[guidelines(ring=10e-6)])
    report.wrong, report.violations, report.interruption = wrong, violations, interruption
    assert (ended(report, Alone()), report.verdict) == (status, word)
