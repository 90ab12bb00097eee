"""Where the tuner wants more sizes: at changes of the winner, at bends, and where something disturbed a race."""

from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.predict import UNTUNED
from mpicoll.dispatch.rules import Choice
from mpicoll.tuning.gaps import bends, changes, disturbed

SIZES = [1 << power for power in range(10, 22, 2)]


def timings(**seconds):
    """Return timings of allreduce on 2 ranks: for each algorithm a function of the message size."""
    return [
        Timing("allreduce", n, 2, "host", 0, {Choice(name, 1, "host"): of(n) for name, of in seconds.items()})
        for n in SIZES
    ]


def smooth(n):
    return 1e-5 + n / 1e10


def stepped(n):
    """Another protocol from 64 KiB on."""
    return smooth(n) + (3e-5 if n >= 1 << 16 else 0.0)


def test_times_that_follow_the_formula_have_no_bend():
    assert list(bends(timings(ring=smooth), UNTUNED)) == []


def test_a_step_wants_sizes_on_both_sides_of_it():
    found = list(bends(timings(ring=stepped), UNTUNED))
    assert any(1 << 14 < nbytes < 1 << 16 for _, nbytes in found)
    assert all(far > 0.1 for far, _ in found)


def test_sizes_near_a_step_are_enough():
    near = [timing for timing in timings(ring=stepped) if timing.nbytes in (1 << 14, 1 << 16)]
    between = [
        Timing("allreduce", n, 2, "host", 0, {Choice("ring", 1, "host"): stepped(n)})
        for n in (50_000, 60_000, 65_535, 70_000, 80_000)
    ]
    everywhere = sorted(near + between, key=lambda timing: timing.nbytes)
    assert all(not 60_000 < nbytes < 70_000 for _, nbytes in bends(everywhere, UNTUNED))


def test_the_bend_of_an_algorithm_that_cannot_win_is_of_no_interest():
    assert list(bends(timings(ring=smooth, linear=lambda n: 5 * stepped(n)), UNTUNED)) == []


def test_a_change_of_the_winner_is_where_they_cross():
    ((ratio, nbytes),) = changes(timings(ring=smooth, linear=lambda n: smooth(n) * (n / 100_000) ** 0.5))
    assert 65_536 < nbytes < 262_144
    assert 3.9 < ratio < 4.1


def test_a_size_that_takes_longer_than_a_longer_one_was_disturbed():
    assert list(disturbed(timings(ring=lambda n: smooth(n) * (9 if n == 4096 else 1)))) == [4096]
    assert list(disturbed(timings(ring=smooth))) == []
