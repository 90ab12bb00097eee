"""What the benchmark says about times: statistics, the report and the file."""

import io
import threading

import numpy as np
import pytest

from mpicoll.bench.contestants.contestant import Way
from mpicoll.bench.measure.statistics import FEWEST, Statistics, cost, figure, interval, noise
from mpicoll.bench.measure.steady import TIMES, Steadiness
from mpicoll.bench.output.report import COMPLAINTS, Report
from mpicoll.bench.output.results import SCHEMA, Results, read
from mpicoll.bench.output.rows import MeasuredCall, Measurement
from mpicoll.bench.request.cases import CALLS, make_case


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


def test_what_cannot_be_below_zero_has_the_spread_of_what_it_is_below():
    assert cost(3.0, 1.0) == (3.0, 1.0)
    assert cost(-3.0, 1.0) == (0.0, 3.0)
    assert figure(*cost(-3.0, 1.0)) == "below noise ±3.00"


def test_invalid_samples_are_counted_and_count_for_nothing_else():
    found = Statistics.of(np.array([2.0, np.inf, 4.0, 3.0, np.inf]))
    assert (found.median, found.most, found.number, found.invalid, found.outliers) == (3.0, 4.0, 3, 2, 0)


@pytest.mark.parametrize(("last", "words"), [(1.04, ""), (1.25, "took 1000.000 to 1250.000 ms, which are 25 % apart")])
def test_a_clock_that_is_not_steady_is_said(last, words):
    """The fastest of some loops counts each time; those before the first time do not, in which a processor wakes up."""
    loops = iter([*np.full(TIMES, 0.5), *np.linspace(1, 3, TIMES), *np.linspace(last, 3, TIMES)])
    steady = Steadiness(lambda: next(loops))
    for _ in range(2):
        steady.look(Only())
    assert steady.apart == pytest.approx(last - 1)
    assert words in steady.warning
    assert bool(steady.warning) == bool(words)


class Only:
    """A communicator of one rank."""

    rank = 0

    def Ibarrier(self):
        return type("Done", (), {"Test": lambda self: True})()


def measured(name, in_place, wrong=0, size=4):
    case = make_case(CALLS[name], 4000, "float32", size, "SUM", 1)
    call = MeasuredCall(case, Way("ring", 2, "host", "test"), in_place, "ring/2")
    return Measurement(call, np.array([2e-6, 4e-6, 4e-6]), wrong)


def summary(samples, **more):
    """The file's summary of samples in microseconds, given those of its figures that need a calculation."""
    ordered = sorted(samples)
    return {
        "median": ordered[len(ordered) // 2],
        "ci_low": ordered[0],
        "ci_high": ordered[-1],
        "least": ordered[0],
        "most": ordered[-1],
        "outliers": 0,
        "invalid": 0,
        "number": len(samples),
        "samples": samples,
        **more,
    }


def test_the_file_has_the_baselines():
    one = measured("allreduce", False)
    one.baselines["nccl"] = np.array([3e-6, 2e-6, 2e-6])
    times = summary([3.0, 2.0, 2.0], spread=0.25, mean=2.333, p99=2.98)
    assert one.record()["times"]["nccl"] == times
    assert one.record()["figures"]["ratio nccl"] == {"value": 0.5, "unit": ""}


def test_invalid_samples_are_null_in_the_file():
    one = measured("bcast", True)
    one.seconds[1] = np.inf
    found = one.record()["times"]["mpicoll"]
    assert (found["samples"], found["invalid"], found["number"]) == ([2.0, None, 4.0], 1, 2)


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
    assert row["times"]["mpicoll"] == summary([2.0, 4.0, 4.0], spread=0.5, mean=3.333, p99=4.0)
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
