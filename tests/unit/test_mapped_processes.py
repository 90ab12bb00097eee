"""Lowered programs with a process for every rank, over inboxes in shared memory."""

import multiprocessing
import os
import random
import sys
import time

import numpy as np
import pytest

from mpicoll.algorithms import registry
from unit.mapped_interpreter import Call, Rank, Rules, blocks_of, programs_of

SIZE, CALLS, SLOTS, PLACES = 3, 12, 2, 8
#: seconds for all calls
LIMIT = 30
#: shape of each kind of word
SHAPES = {
    "data": (SIZE, SIZE, 2, 2, SLOTS * PLACES),
    "flag": (SIZE, SIZE, PLACES, SLOTS),
    "credit": (SIZE, SIZE, SLOTS),
    "token": (SIZE, SIZE),
}


class SharedInboxes:
    """Words in memory that all processes see."""

    def __init__(self, raw):
        self.words = {kind: np.frombuffer(raw[kind], "i8").reshape(shape) for kind, shape in SHAPES.items()}

    def write(self, kind, address, word):
        self.words[kind][address] = word

    def read(self, kind, address):
        return int(self.words[kind][address])


def value(rank, block, tile, call):
    """A number whose sums over ranks tell the ranks."""
    return (1 + block + 8 * tile + 64 * call) * 1000**rank


def memory_of(card, schedule, rank, call, lengths):
    ids = card.row.before(rank, SIZE, 0, schedule.blocks)
    buffer = "output" if card.row.shared else "input"
    memory = {("output", b): [-1] * lengths[b] for b in range(schedule.blocks)}
    return memory | {(buffer, b): [value(rank, b, t, call) for t in range(lengths[b])] for b in ids}


def wanted(card, schedule, rank, call, lengths):
    """What the output of a rank must be."""
    after = card.row.after(rank, SIZE, 0, schedule.blocks)
    made = {b: [sum(value(r, b, t, call) for r in after[b]) for t in range(lengths[b])] for b in after}
    return {("output", b): made.get(b, [-1] * lengths[b]) for b in range(schedule.blocks)}


def make(collective, name):
    """Return some calls."""
    card, draw, calls = registry.get(collective, name), random.Random(1), []
    schedules = card.schedules(SIZE)
    programs = programs_of(schedules, set(range(SIZE)) if card.row.shared else set())
    for number in range(CALLS):
        lengths = [draw.choice((1, 4, 7))] * schedules[0].blocks
        memory = [memory_of(card, s, r, number, lengths) for r, s in enumerate(schedules)]
        calls.append(Call(programs, memory, lengths, [blocks_of(s) for s in schedules], SLOTS))
    return card, schedules, calls


def run_rank(number, collective, name, raw):
    """One process: exits with 0 if all its results are right."""
    card, schedules, calls = make(collective, name)
    rank = Rank(number, SIZE, calls, SharedInboxes(raw), Rules("slices"))
    while not rank.done:
        rank.start()
        moved = [rank.advance(warp, 50) for warp in reversed(range(len(rank.warps)))]
        if not any(moved):
            os.sched_yield()
    for turn, call in enumerate(calls):
        expected = wanted(card, schedules[number], number, turn, call.lengths)
        found = {cell: tiles for cell, tiles in call.memory[number].items() if cell[0] == "output"}
        if found != expected:
            sys.exit(f"rank {number}, call {turn}: {found}, not {expected}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collective", "name"),
    [("bcast", "ring"), ("allreduce", "two_shot"), ("allgather", "ring"), ("scan", "ring"), ("alltoall", "linear")],
)
def test_a_process_for_every_rank(collective, name):
    context = multiprocessing.get_context("spawn")
    raw = {kind: context.RawArray("q", int(np.prod(shape))) for kind, shape in SHAPES.items()}
    workers = [context.Process(target=run_rank, args=(rank, collective, name, raw)) for rank in range(SIZE)]
    for worker in workers:
        worker.start()
    end = time.monotonic() + LIMIT
    try:
        for worker in workers:
            worker.join(max(end - time.monotonic(), 0))
        assert [worker.exitcode for worker in workers] == [0] * SIZE
    finally:
        for worker in workers:
            worker.kill()
