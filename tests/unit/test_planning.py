"""Planning that scales: one schedule a plan, whatever the number of ranks, in bounded time and memory."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

import mpicoll
from mpicoll.algorithms import known, registry
from mpicoll.dispatch.plan import _planned, schedule_of
from mpicoll.schedule import COLLECTIVES

MIB = 1 << 20
#: how much longer than its budget something may take, on a machine that does other work, too
PATIENCE = 3


@pytest.fixture
def made(monkeypatch):
    """Count the schedules that the project's algorithms make: (algorithm, rank) -> number."""
    made = Counter()

    def counting(card):
        def function(rank, *rest):
            made[card.name, rank] += 1
            return card.function(rank, *rest)

        return replace(card, function=function)

    cards = {name: {card.name: counting(card) for card in known(name)} for name in COLLECTIVES}
    monkeypatch.setattr(registry, "_ALGORITHMS", cards)
    for cache in (_planned, schedule_of):
        cache.cache_clear()
    yield made
    _planned.cache_clear()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_only_the_chosen_schedule_of_the_own_rank_is_made(made, collective, device):
    for nbytes in (8, 64 * MIB, 5 << 30):
        made.clear()
        plan = mpicoll.plan(collective, size=12, nbytes=nbytes, rank=5, device=device)
        assert set(made) <= {(plan.algorithm, 5)}
        assert str(plan)
        assert set(made) <= {(plan.algorithm, 5)}


def test_a_forced_one_makes_no_other(made, card):
    if card.refuses(16) or card.by_hosts:  # whose phases are other algorithms
        return
    mpicoll.plan(card.collective, size=16, nbytes=256 * MIB, rank=3, algorithm=card.name)
    assert made == {(card.name, 3): 1}


def test_a_schedule_is_made_once_for_all_message_sizes(made):
    plans = [mpicoll.plan("allreduce", size=9, nbytes=n, rank=4, algorithm="ring") for n in (100, 200, 64 * MIB)]
    assert made == {("ring", 4): 1}
    assert len({id(plan.schedule) for plan in plans}) == 1


# Budgets, each from cold caches in a process of its own.

MEASURED = """
import json, time, tracemalloc
import mpicoll
from mpicoll.algorithms import registry
def make():
    return {make}
if {traced}:
    tracemalloc.start()
start = time.process_time()
make()
print(json.dumps([time.process_time() - start, tracemalloc.get_traced_memory()[1] if {traced} else 0]))
"""

PLAN = 'mpicoll.plan("{}", size={}, nbytes={}, algorithm={!r}).schedule'
SCHEDULE = 'registry.get("{}", "{}").schedule({}, {})'
DOUBLING = "recursive_doubling"
BUDGETS = [
    (PLAN.format("allreduce", 4096, MIB, None), 0.3),
    (PLAN.format("allreduce", 512, 256 * MIB, None), 0.3),
    (PLAN.format("allreduce", 4096, 1 << 30, "ring"), 0.1),
    (SCHEDULE.format("allreduce", "ring", 17, 4096), 0.1),
    *[(PLAN.format(name, 65536, MIB, DOUBLING), 0.01) for name in ("allreduce", "barrier", "scan", "allgather")],
    *[
        (SCHEDULE.format(name, DOUBLING, 12345, 65536), 0.01)
        for name in ("allreduce", "barrier", "exscan", "allgather")
    ],
]


def measured(make, traced):
    """The seconds of processor time and the peak of Python's memory in bytes of an expression."""
    code = MEASURED.format(make=make, traced=traced)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "budget"), BUDGETS, ids=[make for make, _ in BUDGETS])
def test_it_takes_no_longer_than_its_budget(make, budget):
    assert any(measured(make, False)[0] <= PATIENCE * budget for _ in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("make", [make for make, _ in BUDGETS])
def test_it_takes_little_memory(make):
    assert measured(make, True)[1] <= 50 * MIB
