"""Who hears from whom: where a sender needs credit, and where a message of the receiver's tells it enough."""

import pytest

from mpicoll.algorithms import registry
from mpicoll.errors import ScheduleError
from mpicoll.runtime.paths.mapped.credits import unheard
from mpicoll.runtime.paths.mapped.lowering import Get, Put, lower
from mpicoll.schedule import Recv, Schedule, Send
from mpicoll.schedule.ir import Scratch, inp, out, step
from serving import served


def schedules(*ranks, blocks=4):
    """One schedule for each rank, given as steps."""
    return [Schedule.of(steps, blocks) for steps in ranks]


def of(name, size=4, root=0):
    return unheard(registry.get(*name.split(".")).schedules(size, root))


def test_an_answer_is_heard():
    """In either order of the receiver's steps: it sends nothing for a run before it is done with the last."""
    sender = [step(Send(inp(0), 1)), step(Recv(out(1), 1))]
    first, last = step(Send(inp(1), 0)), step(Recv(out(0), 0))
    assert not unheard(schedules(sender, [last, first]))
    assert not unheard(schedules(sender, [first, last]))
    assert not unheard(schedules([step(Send(inp(0), 1), Recv(out(1), 1))], [step(Recv(out(0), 0), Send(inp(1), 0))]))


def test_no_answer_is_not_heard():
    assert unheard(schedules([step(Send(inp(0), 1))], [step(Recv(out(0), 0))])) == {(0, 1)}


def test_heard_through_others():
    """Rank 0 hears from 1 through 2.  What 0 sends to 1 comes before that, so 1 hears from 2 only the second time."""
    ring = schedules(
        [step(Send(inp(0), 1)), step(Recv(out(0), 2))],
        [step(Recv(out(0), 0)), step(Send(out(0), 2))],
        [step(Recv(out(0), 1)), step(Send(out(0), 0))],
    )
    assert unheard(ring) == {(1, 2)}
    first = ring[0].steps
    passed_on = Schedule.of([*first, step(Send(out(0), 1)), first[1]], ring[0].blocks)
    assert not unheard([passed_on, *(Schedule.of([*s.steps, *s.steps], s.blocks) for s in ring[1:])])


def test_what_a_step_receives_is_not_known_when_it_sends():
    """All messages of a step may be in flight together."""
    together = schedules(
        [step(Send(inp(0), 1)), step(Recv(out(0), 2))],
        [step(Recv(out(0), 0), Send(inp(1), 2))],
        [step(Recv(out(1), 1), Send(inp(0), 0))],
    )
    assert (0, 1) in unheard(together)


def test_a_step_may_wait_for_two_messages_of_one_rank():
    sender = [step(Send(inp(0), 1)), step(Send(inp(1), 1))]
    assert unheard(schedules(sender, [step(Recv(out(0), 0), Recv(out(1), 0))])) == {(0, 1)}


def test_nobody_sends_nothing_is_unheard():
    assert not unheard(schedules([], []))
    assert not unheard(schedules([]))


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("bcast.ring", {(0, 1), (1, 2), (2, 3)}),
        ("bcast.linear", {(0, 1), (0, 2), (0, 3)}),
        ("bcast.scatter_allgather", set()),
        ("reduce.ring", {(3, 2), (2, 1), (1, 0)}),
        ("gather.linear", {(1, 0), (2, 0), (3, 0)}),
        ("scatter.linear", {(0, 1), (0, 2), (0, 3)}),
        ("scan.ring", {(0, 1), (1, 2), (2, 3)}),
        ("allreduce.one_shot", set()),
        ("allreduce.two_shot", set()),
        ("allreduce.ring", set()),
        ("allgather.ring", set()),
        ("alltoall.linear", set()),
    ],
)
def test_of_known_algorithms(name, pairs):
    assert of(name) == pairs


def test_the_root_counts():
    assert of("bcast.ring", root=2) == {(2, 3), (3, 0), (0, 1)}


def knowing(programs):
    """Return (sender, receiver) where the sender does not hear from the receiver, of lowered programs.

    In these a received value may be waited for long after the step that receives it.
    """
    ranks = range(len(programs))
    known, places, boxes = [{rank} for rank in ranks], [0 for _ in ranks], {}
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            for one in program.instructions[places[rank] :]:
                if isinstance(one, Put):
                    boxes[rank, one.peer, one.place] = set(known[rank])
                if isinstance(one, Get):
                    if (one.peer, rank, one.place) not in boxes:
                        break
                    known[rank] |= boxes[one.peer, rank, one.place]
                places[rank], moved = places[rank] + 1, True
    assert places == [len(program.instructions) for program in programs]
    return {(sender, receiver) for sender, receiver, _ in boxes if receiver not in known[sender]}


def test_what_is_heard_is_heard_by_the_lowered_program(card):
    """Though it waits later than the schedule says."""
    for size in served(card, (2, 3, 4, 5, 7, 8, 12)):
        for root in range(size) if card.row.rooted else (0,):
            made = card.schedules(size, root)
            for early in (False, True):
                assert knowing([lower(s, False, early=early) for s in made]) <= unheard(made)


def test_a_message_that_is_waited_for_later_is_heard_later():
    """Rank 2 receives from 1 before it sends to 0, but does not need what it received: 0 does not hear of it."""
    made = schedules(
        [step(Send(inp(0), 1)), step(Recv(out(2), 2))],
        [step(Send(inp(1), 2)), step(Recv(out(0), 0))],
        [step(Recv(out(1), 1)), step(Send(inp(2), 0))],
    )
    assert (0, 1) in unheard(made)


def test_blocks_that_arrive_as_others_are_refused():
    with pytest.raises(ScheduleError, match=r"rank 1 receives blocks \(0,\) of rank 0 as others: recv output\[1\]"):
        unheard(schedules([step(Send(inp(0), 1))], [step(Recv(out(1), 0))]))


def test_blocks_in_another_order_are_refused():
    with pytest.raises(ScheduleError, match="as others"):
        unheard(schedules([step(Send(inp([0, 1]), 1))], [step(Recv(out([1, 0]), 0))]))


def test_scratch_is_what_it_is_sized_for():
    scratch = Scratch()
    cells = scratch.take([1, 2])
    receiver = Schedule.of([step(Recv(cells, 0))], 4, scratch)
    (sender,) = schedules([step(Send(inp([1, 2]), 1))])
    assert unheard([sender, receiver]) == {(0, 1)}
    (wrong,) = schedules([step(Send(inp([2, 1]), 1))])
    with pytest.raises(ScheduleError, match="as others"):
        unheard([wrong, receiver])


@pytest.mark.parametrize("peer", [0, 2])
def test_a_message_that_is_never_sent_is_refused(peer):
    with pytest.raises(ScheduleError, match=r"^rank 1 waits for messages that are never sent$"):
        unheard(schedules([], [step(Recv(out(0), peer))], []))


def test_ranks_that_wait_for_each_other_are_refused():
    """Each would send only when it has received."""
    one = [step(Recv(out(0), 1)), step(Send(out(0), 1))]
    other = [step(Recv(out(0), 0)), step(Send(out(0), 0))]
    with pytest.raises(ScheduleError, match=r"^rank 0 waits"):
        unheard(schedules(one, other))
