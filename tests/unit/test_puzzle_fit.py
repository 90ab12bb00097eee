"""The fit of a message's time, and what is said of it."""

import pytest

from mpicoll.bench.puzzles import bandwidth
from mpicoll.bench.puzzles.fit import fit, reached_half
from mpicoll.bench.puzzles.link import Link

SIZES = [8, 512, 1 << 15, 1 << 20, 1 << 24]


def times(latency, speed):
    return {size: latency + size / speed for size in SIZES}


def test_latency_and_bandwidth_are_found_again():
    found = fit(times(5e-6, 10e9))
    assert (found.latency, found.bandwidth) == (pytest.approx(5e-6), pytest.approx(10e9))
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.half == pytest.approx(50_000)
    assert found.seconds(50_000) == pytest.approx(10e-6)


def test_errors_are_relative_so_that_small_messages_count():
    """One long message that is 10 % off does not spoil the latency."""
    off = times(5e-6, 10e9)
    off[1 << 24] *= 1.1
    found = fit(off)
    assert found.latency == pytest.approx(5e-6, rel=0.02)
    assert 0.01 < found.error < abs(found.worst) < 0.1


def test_the_worst_error_is_named_with_its_size():
    off = times(5e-6, 10e9)
    off[1 << 15] *= 2
    found = fit(off)
    assert (found.at, found.worst < -0.3) == (1 << 15, True)


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        ({8: 1e-6}, "a fit needs two sizes"),
        ({8: 2e-6, 64: 1e-6}, "times do not grow with the size: the sizes are too small, or the times too noisy"),
    ],
)
def test_times_that_determine_no_fit_say_why(seconds, why):
    with pytest.raises(ValueError, match=why):
        fit(seconds)
    assert bandwidth.fitted_or_why(seconds) == why
    assert bandwidth.summary(Link("a"), why, seconds)[-1] == "no fit"
    said = bandwidth.sentences(Link("a"), why, seconds)[-1]
    assert said == f"No fit: {why}; take more and larger sizes with --bytes."


def test_no_latency_is_below_0_where_long_messages_do_not_show_it():
    """A line with both parameters begins at -37.5 us; one through 0 has the least squares of relative errors."""
    seconds = {1 << 20: 100e-6, 4 << 20: 500e-6, 16 << 20: 2200e-6}
    found = fit(seconds)
    assert (found.latency, found.half) == (0, 0)

    def squares(bandwidth):
        return sum((size / bandwidth / time - 1) ** 2 for size, time in seconds.items())

    assert squares(found.bandwidth) < min(squares(0.999 * found.bandwidth), squares(1.001 * found.bandwidth))
    assert found.error == pytest.approx((squares(found.bandwidth) / 3) ** 0.5)
    cells = bandwidth.summary(Link("a"), found, seconds)
    assert (cells[4], cells[6]) == ("-", "-")
    said = bandwidth.sentences(Link("a"), found, seconds)
    assert said[1].startswith("T = size / (9 GB/s), off by 14 %")
    assert said[2] == "These sizes do not show the latency; take smaller ones with --bytes."


def test_half_of_the_bandwidth_is_reached_where_it_was_measured():
    assert reached_half(times(5e-6, 10e9)) == 1 << 20
    assert reached_half({}) is None


def test_what_is_achieved_is_compared_with_the_theoretical_limit():
    seconds, link = times(5e-6, 10e9), Link("PCIe 3 x16", 15.75)
    assert bandwidth.achieved(seconds) == (1 << 24, pytest.approx(9.97, abs=0.01))
    cells = bandwidth.summary(link, fit(seconds), seconds)
    assert cells == ("PCIe 3 x16", "15.75", "9.97", "63 %", "5.00", "10.00", "50000", "±0 %")
    first, formula, half = bandwidth.sentences(link, fit(seconds), seconds)
    assert first == "PCIe 3 x16: 9.97 GB/s at 16M B; 63 % of the theoretical 15.75."
    assert formula.startswith("T = 5 us + size / (10 GB/s), off by 0 %")
    assert "n_1/2 = 50000 B by the fit, measured from 1M B on" in half


def test_memory_has_no_limit_that_is_reported():
    seconds = times(5e-6, 10e9)
    assert bandwidth.summary(Link("memory"), fit(seconds), seconds)[1:4] == ("not reported", "9.97", "-")
    assert bandwidth.sentences(Link("memory"), fit(seconds), seconds)[0].endswith("; the limit is not reported.")
