"""How often the benchmark times a call, and what it says about the times."""

import io
import threading

import numpy as np
import pytest

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.budget import FIRST, GRACE, MOST, PATIENCE, Budget, measure
from mpicoll.bench.measure.statistics import FEWEST, Statistics, figure, interval, noise
from mpicoll.bench.output.report import COMPLAINTS, Report
from mpicoll.bench.output.results import SCHEMA, Results, read
from mpicoll.bench.output.rows import MeasuredCall, Measurement
from mpicoll.bench.request.cases import CALLS, make_case
from mpicoll.bench.tables import times


class Alone:
    """The only rank."""

    def bcast(self, value, root):
        return value


class Clock:
    """Calls take a second each, all about them two; or so many times less."""

    def __init__(self, scale=1.0):
        self.now, self.taken, self.scale = 0.0, [], scale

    def take(self, call, calls):
        for _ in range(calls):
            call()
        self.now += 2.0 * calls * self.scale
        self.taken.append(calls)
        return np.ones(calls)


def timed(seconds, measurements, **how):
    clock, calls = Clock(), []
    budget = Budget(Alone(), seconds, measurements, lambda: clock.now)
    numbers = []
    for _ in range(measurements):
        budget.begin()
        how = {"iterations": None, "warmup": 0} | how
        numbers.append(measure([lambda: calls.append(1)], clock, budget, **how)[0].size)
    return numbers, len(calls), clock.now


def test_the_budget_is_shared_by_what_is_left():
    numbers, _, now = timed(100, 5)
    assert numbers == [10] * 5
    assert now == 100


def test_a_spent_budget_still_gives_a_call():
    numbers, calls, _ = timed(0, 4, warmup=2)
    assert numbers == [1] * 4
    assert calls == 4


def test_a_spent_budget_gives_many_calls_if_they_are_short():
    """What was slow was the preparation, and a cold call is no measurement."""
    clock, calls = Clock(1e-4), []
    budget = Budget(Alone(), 0, 1, lambda: clock.now)
    budget.begin()
    (found,) = measure([lambda: calls.append(1)], clock, budget, iterations=None, warmup=5)
    assert found.size == MOST
    assert clock.taken == [1, FIRST, MOST - FIRST]
    assert len(calls) == 1 + 5 + MOST
    assert clock.now < 2 * GRACE


def test_a_small_budget_gives_a_few_calls():
    assert timed(1, 1)[0] == [FIRST]


def test_an_ample_budget_does_not_give_more_than_enough():
    assert timed(1e9, 2)[0] == [MOST] * 2


def test_a_given_number_of_calls_is_kept():
    numbers, calls, _ = timed(0, 3, iterations=7, warmup=2)
    assert numbers == [7] * 3
    assert calls == 3 * 9


def test_calls_are_timed_in_turn():
    clock, made = Clock(), []
    budget = Budget(Alone(), 0, 1, lambda: clock.now)
    budget.begin()
    calls = [lambda: made.append("a"), lambda: made.append("b")]
    first, second = measure(calls, clock, budget, iterations=11, warmup=1)
    assert (first.size, second.size) == (11, 11)
    assert clock.taken == [3, 3, 2, 2, 2, 2, 2, 2, 2, 2]
    assert made[:2] == ["a", "b"]
    assert "".join(made[2:]) == "aaaabbbb" + "aaabbb" * 4  # one call of each block is not timed


def test_the_budget_is_shared_by_calls_in_turn():
    clock = Clock()
    budget = Budget(Alone(), 100, 1, lambda: clock.now)
    budget.begin()
    times = measure([lambda: None] * 2, clock, budget, iterations=None, warmup=0)
    assert [found.size for found in times] == [25, 25]


def test_rank_0_decides():
    class Second(Alone):
        def bcast(self, value, root):
            return 5

    budget = Budget(Second(), 1000, 1, lambda: 0.0)
    budget.begin()
    assert budget.calls(1.0) == 5


@pytest.mark.case("BENCH-NOSYNC")
def test_statistics():
    """Median, least, mean and spread are those of the samples."""
    found = Statistics.of(np.array([5.0, 1.0, 2.0, 4.0, 3.0]))
    assert (found.median, found.least, found.mean, found.number) == (3.0, 1.0, 3.0, 5)
    assert found.p99 == pytest.approx(4.96)
    assert found.spread == 1.0


def test_a_figure_below_its_noise_is_not_printed():
    """Neither one that is negative by noise; the noise is printed with each."""
    assert figure(4.0, 0.25) == "4.00 ±0.25"
    assert figure(-4.0, 0.25) == "-4.00 ±0.25"
    assert figure(4.0, 4.5) == figure(-4.0, 4.5) == figure(0.0, 4.5) == "below noise ±4.50"
    parts = [Statistics(1.0, spread, 1.0, 1.0, 1.0, 1.0, 1.0, 0, 3) for spread in (3.0, 4.0)]
    assert noise(*parts) == 5.0


def test_a_run_ends_when_it_has_taken_many_times_its_budget():
    clock = Clock()
    budget = Budget(Alone(), 2, 5, lambda: clock.now)
    clock.now = 2 * PATIENCE
    assert not budget.overrun()
    clock.now += 0.1
    assert budget.overrun()


def measured(name, in_place, wrong=0, size=4):
    case = make_case(CALLS[name], 4000, "float32", size, "SUM", 1)
    call = MeasuredCall(case, Way("ring", 2, "host", "test"), in_place, "ring/2")
    return Measurement(call, np.array([2e-6, 4e-6, 4e-6]), wrong)


def test_a_line_has_both_forms():
    report = Report({}, io.StringIO())
    report.begin(["# header"])
    report.head(times.columns(()), *times.above(()))
    for line in ([measured("allreduce", False), measured("allreduce", True)], [measured("bcast", True)]):
        for one in line:
            report.keep(one)
        report.line(*times.cells(line, ()))
    report.wrong = 3
    report.end()
    *head, first, second, last = report.out.getvalue().splitlines()
    assert head[0] == "# header"
    assert all(line.startswith("#") for line in head)
    words = " ".join(first.split())
    assert words == "allreduce 4000 1000 float32 sum -1 ring/2@host 4.00 1.000 1.500 0 4.00 1.000 1.500 0"
    words = " ".join(second.split())
    assert words == "bcast 4000 1000 float32 none 1 ring/2@host - - - - 4.00 1.000 1.000 0"
    assert "3 measurements" in last
    assert "wrong elements: 3 FAILED" in last


def test_a_line_has_the_baselines():
    report = Report({}, io.StringIO())
    one = measured("allreduce", False)
    one.baselines["nccl"] = np.array([3e-6, 2e-6, 2e-6])
    report.begin([])
    baselines = ("nccl", "limit")
    report.head(times.columns(baselines), *times.above(baselines))
    report.refuse("allreduce", "baseline limit:", "is lazy")
    report.refuse("allreduce", "baseline limit:", "is lazy")
    report.line(*times.cells([one], baselines))
    *head, refused, line = report.out.getvalue().splitlines()
    assert head[-2].split()[-8:] == ["time", "algbw", "busbw", "#wrong", "nccl", "ratio", "limit", "ratio"]
    assert refused == "# left out: allreduce: baseline limit: is lazy"
    ours = "allreduce 4000 1000 float32 sum -1 ring/2@host 4.00 1.000 1.500 0"
    assert " ".join(line.split()) == f"{ours} 2.00 0.50 - - - - - - - - - -"
    assert len(head[-2]) == len(line)
    assert one.record()["times"]["nccl"] == {
        "median": 2.0,
        "ci_low": 2.0,
        "ci_high": 3.0,
        "spread": 0.25,
        "least": 2.0,
        "mean": 2.333,
        "p99": 2.98,
        "outliers": 0,
        "invalid": 0,
        "number": 3,
        "samples": [3.0, 2.0, 2.0],
    }
    assert one.record()["figures"]["ratio nccl"] == {"value": 0.5, "unit": ""}


def test_the_file_has_everything(tmp_path):
    file = tmp_path / "run.json"
    report = Report({"ranks": 4}, None, Results(file), total=1)
    report.refuse("allgather", "bruck", "is tired")
    report.refuse("allgather", "bruck", "is tired")
    report.results.begin(mode="times", measurements=1, facts=report.header, options={"op": ("allreduce",)})
    report.begin([])
    report.keep(measured("allreduce", False))
    report.end()
    found = read(file)
    assert (found["schema"], found["mode"], found["facts"]) == (SCHEMA, "times", {"ranks": 4})
    assert found["refused"] == [{"what": "allgather", "name": "bruck", "reason": "is tired"}]
    (row,) = found["rows"]
    ours = row["times"]["mpicoll"]
    assert (ours["median"], ours["ci_low"], ours["ci_high"], ours["spread"]) == (4.0, 2.0, 4.0, 0.5)
    assert (ours["least"], ours["mean"], ours["number"], ours["samples"]) == (2.0, 3.333, 3, [2.0, 4.0, 4.0])
    assert row["figures"]["busbw"] == {"value": 1.5, "unit": "GB/s"}
    assert (row["mode"], row["algorithm"], row["asked"], row["root"]) == ("times", "ring", "ring/2", None)
    assert (row["ranks"], row["memory"]) == (4, "host")
    end = found["end"]
    assert (end["verdict"], end["wrong"], end["measured"], end["of"]) == ("OK", 0, 1, 1)


def test_a_report_that_is_interrupted_says_after_how_many_of_how_many():
    report = Report({}, io.StringIO(), total=7)
    report.begin([])
    report.keep(measured("bcast", True))
    out = report.out
    report.interrupt("SIGINT")
    report.say("what the main thread still has to say")
    assert out.getvalue() == "# interrupted after 1 of 7 measurements (SIGINT), wrong elements: 0\n"
    assert report.verdict == "interrupted"


def test_the_end_counts_the_rows_of_the_file_whenever_a_signal_comes(tmp_path):
    """The end is written by another thread, as late as just before the file has a row."""
    file = tmp_path / "run.json"
    results = Results(file)
    report = Report({}, None, results, total=3)
    results.begin()
    add = results.add

    def add_late(kind, **line):
        if kind == "row" and len(report.rows) == 2:
            signalled.start()
            signalled.join(0.2)
        add(kind, **line)

    results.add = add_late
    signalled = threading.Thread(target=report.interrupt, args=("SIGINT",))
    for _ in range(3):
        report.keep(measured("bcast", True))
    signalled.join()
    found = read(file)
    assert found["end"]["measured"] == len(found["rows"]) >= 2


def test_an_end_is_not_followed_by_another(tmp_path):
    report = Report({}, io.StringIO(), total=1)
    report.keep(measured("bcast", True))
    report.end()
    out = report.out
    report.interrupt("SIGINT")
    assert "interrupted" not in out.getvalue()


def test_wrong_elements_are_the_verdict_of_an_interrupted_report_too():
    report = Report({}, io.StringIO(), total=7, wrong=2, interruption="SIGINT")
    assert report.conclusion.endswith("wrong elements: 2 FAILED")


def test_what_is_not_validated_is_not_called_right():
    report = Report({}, io.StringIO(), mode="overhead", rows=[measured("bcast", True)])
    assert (report.verdict, "wrong" in report.conclusion) == ("measured", False)


def test_not_every_wrong_result_is_described():
    report = Report({}, io.StringIO())
    for number in range(COMPLAINTS + 5):
        report.complain(str(number))
    assert report.out.getvalue().count("# WRONG") == COMPLAINTS


@pytest.mark.parametrize("number", [*range(FEWEST, 60), 100, 250, 999, 1000, 5000])
def test_the_interval_of_a_median_is_the_narrowest_by_ranks_that_has_its_confidence(number):
    binomial = pytest.importorskip("scipy.stats").binom
    place = interval(number)
    assert 1 - 2 * binomial.cdf(place, number, 0.5) >= 0.95
    if number < 1000:
        assert 1 - 2 * binomial.cdf(place + 1, number, 0.5) < 0.95


def test_too_few_samples_have_all_of_them_as_the_interval_and_no_width():
    few = Statistics.of(np.arange(1.0, FEWEST))
    assert (few.low, few.high, few.half_width) == (1.0, FEWEST - 1.0, np.inf)


def test_the_half_width_is_the_farther_end_in_parts_of_the_median():
    found = Statistics.of(np.array([90.0, 100, 100, 100, 100, 130]))
    assert found.half_width == pytest.approx(0.3)


def test_outliers_are_counted_and_kept():
    found = Statistics.of(np.array([*range(100, 120), 1000.0]))
    assert (found.outliers, found.number, found.p99 > 500) == (1, 21, True)
