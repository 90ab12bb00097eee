"""Which sizes the tuner measures, and how often: where the winner changes, and where something disturbed a race."""

import pytest
from mpi4py import MPI

from mpi.calling import on_all
from mpicoll.bench.measure.backends import HostBackend
from mpicoll.bench.measure.clock import Clock
from mpicoll.bench.measure.visits import VISITS
from mpicoll.dispatch.measured import Timing
from mpicoll.dispatch.rules import Choice
from mpicoll.tuning.contenders import PROBES
from mpicoll.tuning.contenders import sizes as planned
from mpicoll.tuning.tuner import Tuner

everybody = MPI.COMM_WORLD
RANK = everybody.rank

pytestmark = pytest.mark.ranks(2, 3)


class MadeUp(Tuner):
    """A tuner whose machine has made-up times: up to some message size linear is faster, from there on the ring.

    Attributes:
        asked: (visit, call, message size in bytes) of each measurement, in order.
    """

    def __post_init__(self):
        super().__post_init__()
        self.asked = []

    def _measure(self, name, nbytes, seconds, only="", hopeless=4.0):
        """Bcasts have multiples of 60 kB, so that there are few sizes, and cross at 100 kB; others cross at 4 kB."""
        self.asked.append((self.visit, name, nbytes))
        whole, equal = (-(-nbytes // 60_000) * 60_000, 1e5) if name == "bcast" else (nbytes, 4e3)
        times = {Choice("linear", 1, "host"): 1 + whole / equal, Choice("ring", 1, "host"): 1.5 + whole / equal / 2}
        micro = {choice: 1e-5 * time for choice, time in times.items()}
        self.timings[name, whole] = Timing(name, whole, self.comm.size, "host", 0, micro)


def test_more_sizes_are_measured_where_the_winner_changes_each_of_them_once(comm):
    tuner = MadeUp(comm, HostBackend(), Clock(everybody, True, lambda: None), 60.0)
    table = tuner.run(["allreduce", "bcast"], 1 << 20)
    for name, crossing in (("allreduce", 4e3), ("bcast", 1e5)):
        first, second = [rule for rule in table.rules if rule.collective == name]
        assert (first.choice.algorithm, second.choice.algorithm) == ("linear", "ring")
        assert crossing / 1.5 < first.high < crossing * 1.5
        sizes = sorted(timing.nbytes for timing in table.timings if timing.collective == name)
        below, above = max(n for n in sizes if n < first.high), min(n for n in sizes if n >= first.high)
        assert (below, above) == (60_000, 120_000) if name == "bcast" else 1.05 < above / below < 1.35
    probes = sum(len(nbytes) for _, _, nbytes in PROBES)
    made = tuner.asked[probes:]
    assert len(made) == len(set(made))
    assert {visit for visit, _, _ in made} == set(range(VISITS))
    new = {one[1:] for one in made if one[0] == VISITS - 1} - {one[1:] for one in made if one[0] < VISITS - 1}
    assert not new
    assert on_all(str(made))


class Disturbed(MadeUp):
    """A tuner whose race of 256 B is so disturbed that the ring is the faster one: each race, or the first one."""

    once = True

    def _measure(self, name, nbytes, seconds, only="", hopeless=4.0):
        again = (0, name, nbytes) in self.asked
        super()._measure(name, nbytes, seconds, only, hopeless)
        if (name, nbytes) == ("allreduce", 256) and not (again and self.once):
            linear, ring = self.timings[name, 256].times.values()
            slow = {Choice("linear", 1, "host"): 90 * linear, Choice("ring", 1, "host"): 9 * ring}
            self.timings[name, 256] = Timing(name, 256, self.comm.size, "host", 0, slow)


def test_a_size_that_takes_longer_than_longer_ones_is_measured_again(comm):
    tuner = Disturbed(comm, HostBackend(), Clock(everybody, True, lambda: None), 60.0)
    first, second = tuner.run(["allreduce"], 1 << 20).rules
    assert (first.choice.algorithm, first.low, second.choice.algorithm) == ("linear", 0, "ring")
    assert tuner.asked.count((0, "allreduce", 256)) == 2
    assert tuner.asked.count((1, "allreduce", 256)) == 1
    assert max(tuner.timings["allreduce", 256].times.values()) < 2e-5


def test_a_size_that_is_disturbed_in_each_visit_is_left_out(comm):
    tuner = Disturbed(comm, HostBackend(), Clock(everybody, True, lambda: None), 60.0)
    tuner.once = False
    table = tuner.run(["allreduce"], 1 << 20)
    assert 256 not in {timing.nbytes for timing in table.timings}
    first, second = table.rules
    assert (first.choice.algorithm, first.low, second.choice.algorithm) == ("linear", 0, "ring")


def test_no_more_sizes_are_measured_when_the_time_is_over(comm):
    """Rank 0 decides that it is; what was planned is measured once."""
    seconds = 0.0 if RANK == 0 else 60.0
    tuner = MadeUp(comm, HostBackend(), Clock(everybody, True, lambda: None), seconds, now=lambda: 0.0)
    tuner.run(["allreduce"], 1 << 20)
    assert len(tuner.asked) == sum(len(nbytes) for _, _, nbytes in PROBES) + len(planned(1 << 20))
