"""Algorithms for several hosts in phases: kernels of a host's ranks, messages between hosts, kernels again.

The kernels are interpreted (`mapped_interpreter.py`), with scratch that outlives them; the messages are steps, done
one after the other.
"""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mpicoll.algorithms import known
from mpicoll.algorithms.registry import get
from mpicoll.schedule import COLLECTIVES
from mpicoll.schedule.ir import Copy, Recv, Ref, Schedule, Send, Step, inp, out, step
from mpicoll.schedule.phases import Phases, touched
from mpicoll.schedule.reverse import reverse
from mpicoll.schedule.topology import tried
from unit.mapped_interpreter import Call, Rules, SpoiledError, blocks_of, memory_of, programs_of, run_interleaved
from unit.test_mapped_program import aliasing, check, lengths_of, roots

CARDS = [card for row in COLLECTIVES for card in known(row) if card.by_hosts and row != "barrier"]
NAMED = {"ids": lambda card: f"{card.collective}.{card.name}"}


def whole_memory(card, schedule, rank, size, root, aliased, lengths):
    """Return a rank's input, output and scratch."""
    scratch = {("scratch", cell): [None] * lengths[block] for cell, block in enumerate(schedule.scratch)}
    return memory_of(card.row, schedule, rank, size, root, 0, aliased, lengths) | scratch


def by_kernel(schedules, group, memory, lengths, aliased, draw, stored=True):
    """Let the ranks of a host do a phase."""
    if not schedules:
        return
    even, early = draw.random() < 0.5, draw.random() < 0.5
    inside = {place for place, rank in enumerate(group) if rank in aliased}
    programs = programs_of(list(schedules), inside, even, early, stored)
    call = Call(programs, [memory[r] for r in group], lengths, [blocks_of(s) for s in schedules], draw.randint(1, 3))
    run_interleaved([call], len(group), draw, Rules(draw.choice(("lines", "slices"))))


def by_messages(schedules, memory):
    """Let all ranks do the steps of what hosts exchange, each as far as what was sent allows."""
    sent = {}
    left = [steps_of(rank, s, memory[rank], sent) for rank, s in enumerate(schedules)]
    for _ in range(1000):
        left = [one for one in left if next(one, "done") != "done"]
    assert not left
    assert not any(sent.values())


def steps_of(rank, schedule, memory, sent):
    """Do a rank's steps; yield while a message has not come."""
    for one in schedule.steps:
        for message in (m for m in one.messages if isinstance(m, Send)):
            tiles = [list(memory[cell.buffer, cell.cells[0]]) for cell in message.source]
            sent.setdefault((rank, message.peer), []).append(tiles)
        for message in (m for m in one.messages if isinstance(m, Recv)):
            while not sent.get((message.peer, rank)):
                yield "waiting"
            for cell, tiles in zip(message.target, sent[message.peer, rank].pop(0), strict=True):
                memory[cell.buffer, cell.cells[0]][:] = tiles
        for work in one.local:
            locally(work, memory)


def locally(work, memory):
    sources = (work.source,) if isinstance(work, Copy) else work.sources
    for k, cell in enumerate(work.target):
        columns = [memory[ref.buffer, ref.cells[k]] for ref in sources]
        memory[cell.buffer, cell.cells[0]][:] = [sum(parts, ()) for parts in zip(*columns, strict=True)]


def run(card, topology, root, seed, change=lambda phases: phases, stored=True):
    """Make a call of an algorithm on a topology, in phases, and check what ranks have then."""
    size = len(topology.host_of)
    draw, schedules = random.Random(f"{size} {root} {seed}"), card.schedules(size, root, topology)
    aliased = aliasing(card, size, root, draw)
    lengths = lengths_of(card, schedules[0].blocks, True, draw)
    memory = [whole_memory(card, s, r, size, root, r in aliased, lengths) for r, s in enumerate(schedules)]
    phases = {}
    for group in topology.groups:
        phases |= {r: change(Phases.of([schedules[k] for k in group], group, r)) for r in group}
    for group in topology.groups:
        by_kernel(phases[group[0]].before, group, memory, lengths, aliased, draw, stored)
    by_messages([phases[r].between for r in range(size)], memory)
    for group in topology.groups:
        by_kernel(phases[group[0]].after, group, memory, lengths, aliased, draw, stored)
    for rank in range(size):
        memory[rank] = {cell: tiles for cell, tiles in memory[rank].items() if cell[0] != "scratch"}
    hosted = SimpleNamespace(row=card.row, ordered=card.ordered, schedules=lambda size, root: schedules)
    check(hosted, Call([], memory, lengths, []), aliased, size, root, 0)


@pytest.mark.parametrize("name", ["striped(reduce_scatter=ring,allreduce=ring,allgather=bruck)", "leader(bcast=ring)"])
def test_phases_of_inner_algorithms_that_are_chosen(name):
    for seed, topology in enumerate(tried(6)):
        run(get("allreduce", name), topology, 0, seed)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", CARDS, **NAMED)
def test_phases_do_what_the_algorithm_does(chosen):
    """On hosts of any kind, in place and out of place, whatever the order of the ranks."""
    done = 0
    for size in (2, 3, 5, 6):
        for seed, topology in enumerate(tried(size)):
            for root in roots(chosen, size):
                run(chosen, topology, root, seed)
                done += 1
    assert done > 30


def test_without_scratch_in_memory_a_phase_does_not_know_the_sums_of_the_one_before():
    """A mutant."""
    card, topology = next(c for c in CARDS if (c.collective, c.name) == ("allreduce", "striped")), next(tried(4))
    with pytest.raises((SpoiledError, TypeError, KeyError)):
        for seed in range(8):
            run(card, topology, 0, seed, stored=False)


def test_without_its_last_phase_an_algorithm_is_wrong():
    """A mutant."""
    card, topology = next(c for c in CARDS if (c.collective, c.name) == ("allgather", "striped")), next(tried(4))
    with pytest.raises(SpoiledError):
        for seed in range(8):
            run(card, topology, 0, seed, change=lambda phases: replace(phases, after=()))


def test_a_schedule_without_phases_has_none():
    flat = next(c for c in known("allreduce") if c.name == "ring")
    assert Phases.of(flat.schedules(4)[:2], [0, 1], 0) is None


def test_peers_inside_a_host_are_counted_there():
    card, topology = next(c for c in CARDS if c.name == "striped"), list(tried(6))[1]
    group = topology.groups[1]
    assert group == [1, 3, 5]
    found = Phases.of([card.schedule(r, 6, 0, topology) for r in group], group, 3)
    inside = {m.peer for s in (*found.before, *found.after) for one in s.steps for m in one.messages}
    assert inside == {0, 1, 2}
    assert {m.peer for one in found.between.steps for m in one.messages} <= {0, 2, 4}


def test_a_reversed_schedule_has_its_phases_in_opposite_order():
    """A step with messages and work becomes two."""
    gather = known("gather")
    card, topology = next(c for c in gather if c.by_hosts), next(tried(4))
    for rank in range(4):
        forth = card.schedule(rank, 4, 0, topology)
        back = reverse(forth)
        begin, end = forth.outside
        sent = [m for one in forth.steps[begin:end] for m in one.messages]
        returned = [m for one in back.steps[slice(*back.outside)] for m in one.messages]
        assert {m.peer for m in sent} == {m.peer for m in returned}
        assert len(sent) == len(returned)


def test_empty_steps_are_not_counted():
    empty, work = Step((), ()), step(Copy(out([0]), inp([0])))
    assert Schedule.of([empty, work, empty, work, work], 1, outside=(2, 4)).outside == (1, 2)
    assert Schedule.of([empty, work], 1).outside is None


def test_what_a_program_reads_is_what_it_has_not_written_before():
    schedule = Schedule.of([step(Send(inp([0, 1]), 1), Recv(out([2]), 1), Copy(out([0]), out([2])))], 3)
    assert touched(schedule) == ([Ref("input", (0,)), Ref("input", (1,))], [out([2]), out([0])])
