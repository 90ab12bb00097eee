"""Programs whose segments are done early: nothing races or deadlocks, whichever ranks have them."""

import pytest

from mpicoll.algorithms import get
from mpicoll.schedule.program import Launch, Start, Wait
from mpicoll.schedule.segment_waits import Edges, finished_early
from serving import served
from unit.replay import Replay, programs_of, simulate

#: (segments, lanes), also with many turns of a lane
PIPELINES = [(2, 2), (3, 2), (3, 1), (5, 2), (9, 4)]


def early(programs, ranks):
    return [finished_early(p) if ranks(r) else p for r, p in enumerate(programs)]


@pytest.mark.slow
@pytest.mark.parametrize("aliased", [False, True], ids=["apart", "in place"])
def test_waits_for_finished_segments_neither_race_nor_deadlock(card, aliased):
    """On all ranks, and on some of them: where arrays lie is a fact of one rank alone."""
    for size in served(card, (4, 5)):
        for segments, lanes in PIPELINES:
            programs = programs_of(card, size, segments, lanes, aliased)
            for ranks in (lambda r: True, lambda r: r % 2, lambda r: r == 0):
                changed = early(programs, ranks)
                simulate(card, changed)
                for program in changed:
                    Replay(program)


def test_one_segment_stays_as_it_is(card):
    for program in programs_of(card, 4, 1, 1, False):
        assert finished_early(program) is program


def writes(program, instruction):
    """Segments of the output that an instruction writes, read naively."""
    if isinstance(instruction, Launch):
        work = program.works[instruction.work]
        return {work.segment} if work.operation.target.buffer == "output" else set()
    if isinstance(instruction, Wait):
        transfers = [program.transfers[t] for t in instruction.transfers]
        return {t.segment for t in transfers if not t.sends and t.ref.buffer == "output"}
    return set()


@pytest.mark.parametrize(("segments", "lanes"), [(1, 1), (3, 3), (9, 4)])
def test_edges_enclose_each_segment(card, segments, lanes):
    for program in programs_of(card, 4, segments, lanes, False):
        edges = Edges.of(finished_early(program))
        begin = {s: place for place, found in edges.begin.items() for s in found}
        end = {s: place for place, found in edges.end.items() for s in found}
        order = finished_early(program).instructions
        for place, instruction in enumerate(order):
            touched = (
                {program.transfers[t].segment for t in instruction.transfers}
                if hasattr(instruction, "transfers")
                else {program.works[instruction.work].segment}
            )
            assert all(begin[s] <= place for s in touched)
            assert all(place <= end[s] for s in writes(program, instruction))
        assert all(s in writes(program, order[place]) for s, place in end.items())


@pytest.mark.parametrize(("collective", "name"), [("allreduce", "ring"), ("allgather", "ring"), ("bcast", "ring")])
def test_output_is_complete_while_later_segments_have_not_begun(collective, name):
    """As a rule of the planner's alone, whatever a rank receives last is awaited at the very end."""
    (program,) = [p for r, p in enumerate(programs_of(get(collective, name), 4, 12, 4, False)) if r == 1]
    late, soon = Edges.of(program), Edges.of(finished_early(program))
    assert min(soon.end) < max(soon.begin)
    assert sum(place < max(soon.begin) for place in soon.end) >= 8 - 4
    if collective != "bcast":
        assert min(late.end) > max(late.begin)
    assert sum(isinstance(i, Start) for i in program.instructions) == sum(
        isinstance(i, Start) for i in finished_early(program).instructions
    )
