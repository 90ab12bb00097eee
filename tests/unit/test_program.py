"""The planner's programs: complete, free of hazards, and without a wait that nothing needs."""

import random
from dataclasses import replace

import pytest

from mpicoll import ScheduleError
from mpicoll.algorithms import get
from mpicoll.analysis.machine import run
from mpicoll.analysis.registration import verify_algorithm
from mpicoll.analysis.values import Values
from mpicoll.schedule import (
    Copy,
    Recv,
    Reduce,
    Schedule,
    Send,
    compile_program,
    inp,
    out,
    step,
    stepwise_program,
)
from mpicoll.schedule.program import Launch, Start, Sync, Wait
from serving import served
from unit.replay import Replay, programs_of, rooted, simulate

PIPELINES = [(segments, lanes) for segments in range(1, 5) for lanes in range(1, segments + 1)]
SIZES = [1, 2, 5, 8]


@pytest.mark.slow
@pytest.mark.parametrize("aliased", [False, True], ids=["apart", "in place"])
def test_all_is_started_and_waited_for_once_and_nothing_races(card, aliased):
    for size in served(card, SIZES):
        for program in (stepwise_program(s, aliased) for s in rooted(card, size)):
            Replay(program)
        for segments, lanes in PIPELINES:
            for program in programs_of(card, size, segments, lanes, aliased):
                Replay(program)
                steps = program.schedule.steps
                assert len(program.transfers) == segments * sum(len(one.messages) for one in steps)
                assert len(program.works) == segments * sum(len(one.local) for one in steps)


@pytest.mark.slow
@pytest.mark.parametrize("aliased", [False, True], ids=["apart", "in place"])
def test_no_order_of_segments_and_lanes_deadlocks(card, aliased):
    """Lanes that run many segments in turn too: the verifier proves only some of these."""
    for size in served(card, (4, 5)):
        for segments, lanes in [*PIPELINES, (9, 4)]:
            simulate(card, programs_of(card, size, segments, lanes, aliased))


@pytest.mark.parametrize(("segments", "lanes"), [(1, 1), (3, 2)])
def test_operations_of_a_segment_keep_the_authors_order(card, segments, lanes):
    """Messages between two ranks in order, and local work in order."""
    for program in programs_of(card, 4, segments, lanes, False):
        for segment in range(segments):
            works = [w.operation for w in program.works if w.segment == segment]
            assert works == [o for one in program.schedule.steps for o in one.local]
            mine = [t for t in program.transfers if t.segment == segment]
            for sends, kind in ((True, Send), (False, Recv)):
                for peer in range(4):
                    messages = [m for one in program.schedule.steps for m in one.messages]
                    authors = [m for m in messages if isinstance(m, kind) and m.peer == peer]
                    got = sorted((t for t in mine if t.sends == sends and t.peer == peer), key=lambda t: t.number)
                    assert [t.number for t in got] == list(range(len(authors)))
                    assert [t.ref for t in got] == [m.source if sends else m.target for m in authors]


def without(program, place, item=None):
    """The program without an instruction, or without one message of a Wait."""
    order = list(program.instructions)
    if item is None:
        del order[place]
    else:
        order[place] = Wait(tuple(t for t in order[place].transfers if t != item))
    return replace(program, instructions=tuple(order))


def loosened(programs):
    """Yield the programs of all ranks with one Sync, or the Wait for one message, left out."""
    for rank, program in enumerate(programs):
        for place, instruction in enumerate(program.instructions):
            if isinstance(instruction, Sync):
                yield [*programs[:rank], without(program, place), *programs[rank + 1 :]]
            elif isinstance(instruction, Wait) and place + 1 < len(program.instructions):
                for t in instruction.transfers:
                    yield [*programs[:rank], without(program, place, t), *programs[rank + 1 :]]


@pytest.mark.slow
@pytest.mark.parametrize(("segments", "lanes"), [(1, 1), (3, 3), (3, 2)])
def test_every_wait_and_sync_is_needed_and_missed(card, segments, lanes):
    """Aside from waits that bound what is in flight, and those with which a lane's scratch is handed over whole."""
    size = 4
    programs = programs_of(card, size, segments, lanes, False)
    if programs[0].schedule.window or (lanes < segments and any(p.schedule.scratch for p in programs)):
        return
    changed = list(loosened(programs))
    draw = random.Random(f"{card.collective} {card.name} {segments} {lanes}")
    for wrong in draw.sample(changed, min(12, len(changed))):
        with pytest.raises(ScheduleError, match=r"^rank \d, step \d+: race: "):
            simulate(card, wrong)


def test_there_are_waits_and_syncs_to_miss():
    """So that the test before this one tests something: of each kind, with and without segments."""
    for segments in (1, 3):
        ring = programs_of(get("allreduce", "ring"), 4, segments, segments, False)
        kinds = [type(i) for program in ring for i in program.instructions[:-1]]
        assert kinds.count(Wait) >= 12
        assert kinds.count(Sync) >= 8
        assert len(list(loosened(ring))) >= 20


@pytest.mark.parametrize("rank", range(3))
def test_a_program_that_ends_before_its_messages_is_refused(rank):
    card = get("allgather", "ring")
    programs = programs_of(card, 3, 1, 1, False)
    assert isinstance(programs[rank].instructions[-1], Wait)
    programs[rank] = without(programs[rank], len(programs[rank].instructions) - 1)
    with pytest.raises(ScheduleError, match=f"rank {rank}, "):
        simulate(card, programs)


@pytest.mark.parametrize(
    ("local", "race"),
    [
        (Copy(out(0), inp(0)), r"output\[0\] is still being received"),  # written
        (Reduce(out(1), (inp(1), out(1))), r"output\[1\] is still being received"),  # read and written
        (Copy(out(2), inp(2)), r"output\[2\] is still being sent"),
    ],
)
def test_work_that_does_not_wait_for_messages_is_a_race(local, race):
    """The one wait of a rank that receives two blocks, sends a third, and works on one of them."""
    hasty = [step(Recv(out((0, 1)), 1), Send(out(2), 1), local)]
    first = Schedule((step(Copy(out(2), inp(2))), *hasty), 3)
    second = Schedule((step(Send(inp((0, 1)), 0), Recv(out(2), 0)),), 3)
    programs = [compile_program(first), compile_program(second)]
    place = next(i for i, one in enumerate(programs[0].instructions) if isinstance(one, Wait))
    assert any(isinstance(one, Launch) for one in programs[0].instructions[place:])
    values = Values()
    memories = [{("input", 0, b): values.leaf(rank, b) for b in range(3)} for rank in (0, 1)]
    with pytest.raises(ScheduleError, match=f"^rank 0, step 1: race: {race}"):
        run([without(programs[0], place), programs[1]], memories, values)


def test_work_overwrites_what_is_sent_only_when_it_is_sent():
    """A doubling exchange sends the very block that it then reduces into."""
    program = compile_program(get("allreduce", "recursive_doubling").schedule(0, 4))
    sent = {t for t, transfer in enumerate(program.transfers) if transfer.sends and transfer.ref.buffer == "output"}
    waited = set()
    for instruction in program.instructions:
        if isinstance(instruction, Wait):
            waited |= set(instruction.transfers)
        if instruction == Launch(1):
            assert len(sent & waited) == 1
    assert sent


def in_flight(program):
    """What is in flight, by segment, when each instruction comes."""
    pending = set()
    for instruction in program.instructions:
        yield instruction, {program.transfers[t].segment for t in pending}
        if isinstance(instruction, Start):
            pending |= set(instruction.transfers)
        if isinstance(instruction, Wait):
            pending -= set(instruction.transfers)


@pytest.mark.parametrize(("collective", "name"), [("bcast", "ring"), ("reduce", "ring"), ("allreduce", "ring")])
def test_segments_overlap(collective, name):
    """A chain cut into segments receives the next one before the last one is sent."""
    schedule = get(collective, name).schedule(1, 4)
    assert max(len(segments) for _, segments in in_flight(compile_program(schedule, 4))) >= 2


def test_messages_move_while_another_segment_is_reduced():
    program = compile_program(get("allreduce", "ring").schedule(1, 4), 4, 4)
    launches = [(i, segments) for i, segments in in_flight(program) if isinstance(i, Launch)]
    moving = [i for i, segments in launches if segments - {program.works[i.work].segment}]
    assert len(moving) > len(launches) // 2


@pytest.mark.parametrize(("collective", "name"), [("alltoall", "ring"), ("reduce_scatter", "pairwise")])
@pytest.mark.parametrize("segments", [1, 3])
def test_a_window_bounds_the_steps_in_flight(collective, name, segments):
    schedule = get(collective, name).schedule(2, 8)
    assert schedule.window
    program = compile_program(schedule, segments)
    pending = set()
    for instruction in program.instructions:
        if isinstance(instruction, Start):
            pending |= set(instruction.transfers)
        if isinstance(instruction, Wait):
            pending -= set(instruction.transfers)
        for segment in range(segments):
            steps = {program.transfers[t].step for t in pending if program.transfers[t].segment == segment}
            assert max(steps, default=0) - min(steps, default=0) < schedule.window


@pytest.mark.parametrize("name", ["ring", "binomial"])
def test_a_segment_that_does_not_wait_for_the_lane_is_a_race(monkeypatch, name):
    """Segments of unequal lengths overlap in a lane's scratch, whatever their cells are called."""
    card = get("reduce_scatter", name)
    monkeypatch.setattr("mpicoll.schedule.planner._Emitter._take_over", lambda emitter, previous: None)
    with pytest.raises(ScheduleError, match="race: scratch of lane 0 is still in use by "):
        verify_algorithm(card, [4])
