"""Lowering: which instructions a schedule becomes, and in which order."""

import pytest

from mpicoll.runtime.paths.mapped.lowering import (
    Await,
    Combine,
    Credit,
    Get,
    Load,
    Put,
    Store,
    Total,
    lower,
)
from mpicoll.schedule import Copy, Recv, Reduce, Schedule, Send
from mpicoll.schedule.ir import Scratch, inp, out, step
from serving import served


def program(*steps, aliased=False, scratch=None, **named):
    return list(lower(Schedule.of(steps, 4, scratch), aliased, **named).instructions)


def cell(ref):
    """The one cell of a reference."""
    (number,) = ref.cells
    return ref.buffer, number


def of_kind(instructions, *kinds):
    return [one for one in instructions if isinstance(one, kinds)]


IN, OUT = [cell(inp(k)) for k in range(4)], [cell(out(k)) for k in range(4)]


def test_nothing():
    found = lower(Schedule.of([], 1), False)
    assert (found.instructions, found.cells, found.values, found.sums) == ((), (), 0, 0)


def test_a_send_loads_and_puts():
    assert program(step(Send(inp(2), 1))) == [Load(0, IN[2]), Put(0, 1, 0, IN[2])]


def test_places_count_the_cells_from_rank_to_rank():
    """Over all steps, each pair of ranks on its own."""
    found = program(
        step(Send(inp([0, 1]), 5), Send(inp(0), 6), Recv(out([2, 3]), 5)), step(Send(inp(2), 5), Recv(out(1), 5))
    )
    assert [(p.peer, p.place, p.cell) for p in of_kind(found, Put)] == [
        (5, 0, IN[0]),
        (5, 1, IN[1]),
        (6, 0, IN[0]),
        (5, 2, IN[2]),
    ]
    assert sorted((g.place, g.cell) for g in of_kind(found, Get)) == [(0, OUT[2]), (1, OUT[3]), (2, OUT[1])]


def test_a_value_is_loaded_once():
    found = program(step(Send(inp(0), 1), Send(inp(0), 2)), step(Copy(out(0), inp(0))))
    assert found == [Load(0, IN[0]), Put(0, 1, 0, IN[0]), Put(0, 2, 0, IN[0]), Store(OUT[0], 0)]


def test_what_is_received_and_not_used_is_waited_for_at_the_end():
    """In the order of the schedule, and stored at once."""
    found = program(step(Recv(out([0, 1]), 1)), step(Send(inp(2), 1)), step(Recv(out(3), 2)))
    assert found == [
        Load(2, IN[2]),
        Put(2, 1, 0, IN[2]),
        Get(0, 1, 0, OUT[0]),
        Store(OUT[0], 0),
        Get(1, 1, 1, OUT[1]),
        Store(OUT[1], 1),
        Get(3, 2, 0, OUT[3]),
        Store(OUT[3], 3),
    ]


def test_what_is_received_is_waited_for_where_it_is_used_first():
    found = program(step(Recv(out([0, 1]), 1)), step(Send(out(1), 2)), step(Send(out(0), 2)))
    assert found == [
        Get(1, 1, 1, OUT[1]),
        Store(OUT[1], 1),
        Put(1, 2, 0, OUT[1]),
        Get(0, 1, 0, OUT[0]),
        Store(OUT[0], 0),
        Put(0, 2, 1, OUT[0]),
    ]


def test_a_step_sends_what_was_there_before_it_receives():
    """The messages of a step may be in flight together."""
    found = program(step(Recv(out(0), 1), Send(inp(0), 1)), aliased=True)
    assert found == [Load(0, IN[0]), Put(0, 1, 0, IN[0]), Get(1, 1, 0, OUT[0]), Store(OUT[0], 1)]


def test_operands_are_combined_in_order_as_they_come():
    scratch = Scratch()
    cells = scratch.take([0, 0])
    found = program(
        step(Recv(cells[0], 1), Recv(cells[1], 2)),
        step(Reduce(out(0), (cells[1], inp(0), cells[0]))),
        scratch=scratch,
        early=False,
    )
    assert found == [
        Get(1, 2, 0, cell(cells[1])),
        Combine(0, 1),
        Load(2, IN[0]),
        Combine(0, 2),
        Get(0, 1, 0, cell(cells[0])),
        Combine(0, 0),
        Total(3, 0),
        Store(OUT[0], 3),
    ]


def test_each_cell_of_a_reduction_is_a_sum_of_its_own():
    found = lower(Schedule.of([step(Reduce(out([0, 1]), (inp([0, 1]), inp([2, 3]))))], 4), False)
    assert found.sums == 2
    assert [(c.sum, c.value) for c in of_kind(found.instructions, Combine)] == [(0, 0), (0, 2), (1, 1), (1, 3)]
    assert [one.cell for one in of_kind(found.instructions, Load)] == [IN[0], IN[1], IN[2], IN[3]]


def test_a_reduction_of_one_operand_is_a_copy():
    assert program(step(Reduce(out(0), (inp(0),)))) == [Load(0, IN[0]), Store(OUT[0], 0)]


def test_a_cell_is_stored_once_right_after_it_is_written_last():
    """What it held in between is only put."""
    found = program(
        step(Copy(out(0), inp(0))),
        step(Send(out(0), 1)),
        step(Reduce(out(0), (out(0), inp(1)))),
        step(Send(inp(2), 1)),
        early=False,
    )
    assert found == [
        Load(0, IN[0]),
        Put(0, 1, 0, OUT[0]),
        Combine(0, 0),
        Load(1, IN[1]),
        Combine(0, 1),
        Total(2, 0),
        Store(OUT[0], 2),
        Load(3, IN[2]),
        Put(3, 1, 1, IN[2]),
    ]


def test_scratch_and_input_are_never_stored():
    scratch = Scratch()
    mine = scratch.take(0)
    found = program(step(Copy(mine, inp(0))), step(Send(mine, 1)), step(Recv(mine, 1)), scratch=scratch)
    assert not of_kind(found, Store)
    assert of_kind(found, Put, Get) == [Put(0, 1, 0, cell(mine)), Get(1, 1, 0, cell(mine))]


def test_two_cells_with_the_same_value_are_both_stored():
    found = program(step(Recv(out(0), 1)), step(Copy(out(1), out(0)), Copy(out(2), inp(3))), early=False)
    assert found == [
        Get(0, 1, 0, OUT[0]),
        Store(OUT[0], 0),
        Store(OUT[1], 0),
        Load(1, IN[3]),
        Store(OUT[2], 1),
    ]


def test_a_cell_that_is_overwritten_before_it_is_stored_has_the_last_value():
    found = program(step(Recv(out(0), 1)), step(Recv(out(0), 2)))
    assert [one.value for one in of_kind(found, Store)] == [1]
    assert [(one.peer, one.value) for one in of_kind(found, Get)] == [(1, 0), (2, 1)]


def test_input_and_output_are_one_where_they_are_aliased():
    """A cell is read once, under the name that it has first: its address is that name's."""
    steps = step(Send(inp(1), 1)), step(Send(out(1), 2)), step(Reduce(out(0), (inp(0), out(1))))
    apart, aliased = program(*steps), program(*steps, aliased=True)
    assert [one.cell for one in of_kind(apart, Load)] == [IN[1], OUT[1], IN[0]]
    assert [one.cell for one in of_kind(aliased, Load)] == [IN[1], IN[0]]
    assert of_kind(aliased, Put) == [Put(0, 1, 0, IN[1]), Put(0, 2, 0, OUT[1])]
    assert of_kind(aliased, Store) == [Store(OUT[0], 2)]


def test_what_is_aliased_is_not_read_again_once_it_is_written():
    """The input's block is the output's: its old value is gone."""
    steps = step(Recv(out(0), 1)), step(Send(inp(0), 2))
    assert program(*steps, aliased=True) == [Get(0, 1, 0, OUT[0]), Store(OUT[0], 0), Put(0, 2, 0, IN[0])]
    assert program(*steps)[:2] == [Load(1, IN[0]), Put(1, 2, 0, IN[0])]


def test_early_loads_come_before_a_steps_first_wait():
    scratch = Scratch()
    came = scratch.take(0)
    steps = step(Recv(came, 1)), step(Reduce(out(0), (came, inp(0), inp(1))))
    early, late = (program(*steps, scratch=scratch, early=early) for early in (True, False))
    kinds = lambda found: [type(one).__name__ for one in found]  # noqa: E731
    assert kinds(early) == ["Load", "Load", "Get", "Combine", "Combine", "Combine", "Total", "Store"]
    assert kinds(late) == ["Get", "Combine", "Load", "Combine", "Load", "Combine", "Total", "Store"]


def test_early_loads_read_only_what_is_in_memory():
    """Not what the step itself receives, what was written before, or scratch."""
    scratch = Scratch()
    own = scratch.take(0)
    found = program(
        step(Copy(own, inp(3))),
        step(Recv(out(0), 1), Recv(out(1), 1)),
        step(Recv(out(2), 1), Send(out(0), 2)),
        step(Send(own, 2), Reduce(out(3), (out(2), own))),
        scratch=scratch,
    )
    assert [one.cell for one in of_kind(found, Load)] == [IN[3]]


@pytest.mark.parametrize("early", [True, False])
def test_awaited_before_the_first_put_to_a_peer(early):
    """Once for each peer that gives credit, for all that is put to it."""
    found = program(
        step(Send(inp(0), 1), Send(inp(0), 2), Send(inp(1), 1)),
        step(Send(inp(2), 3), Send(inp(2), 1)),
        awaited=frozenset({1, 3}),
        early=early,
    )
    assert of_kind(found, Await, Put) == [
        Await(1, (IN[0], IN[1], IN[2])),
        Put(0, 1, 0, IN[0]),
        Put(0, 2, 0, IN[0]),
        Put(1, 1, 1, IN[1]),
        Await(3, (IN[2],)),
        Put(2, 3, 0, IN[2]),
        Put(2, 1, 2, IN[2]),
    ]


def test_credited_after_the_last_get_of_a_peer():
    """The last in the program, which is not the last in the schedule: a late one may come behind it."""
    found = program(
        step(Recv(out([0, 1]), 1)),
        step(Recv(out(2), 2)),
        step(Send(out(1), 3)),
        credited=frozenset({1, 2}),
    )
    assert found == [
        Get(1, 1, 1, OUT[1]),
        Store(OUT[1], 1),
        Put(1, 3, 0, OUT[1]),
        Get(0, 1, 0, OUT[0]),
        Store(OUT[0], 0),
        Credit(1),
        Get(2, 2, 0, OUT[2]),
        Store(OUT[2], 2),
        Credit(2),
    ]


def test_no_credit_unless_it_is_wanted():
    found = program(step(Send(inp(0), 1), Recv(out(0), 1)))
    assert not of_kind(found, Await, Credit)


def test_cells_are_named_once_and_in_order():
    found = lower(Schedule.of([step(Send(inp(1), 1), Recv(out(0), 1)), step(Send(inp(1), 2))], 4), False)
    assert found.cells == (IN[1], OUT[0])
    assert found.values == 2


def test_of_every_algorithm_each_value_is_made_once_and_before_it_is_used(card):
    for size in served(card, (1, 2, 5, 8)):
        for schedule in card.schedules(size, size - 1):
            for aliased in (False, True):
                for early in (False, True):
                    consistent(lower(schedule, aliased, early=early))


def consistent(lowered):
    made, begun, total = set(), set(), set()
    for one in lowered.instructions:
        if isinstance(one, Load | Get | Total):
            assert one.value not in made
            made.add(one.value)
        elif isinstance(one, Put | Store | Combine):
            assert one.value in made
        if isinstance(one, Combine):
            assert one.sum not in total
            begun.add(one.sum)
        elif isinstance(one, Total):
            total.add(one.sum)
    assert begun == total == set(range(lowered.sums))
    assert made == set(range(lowered.values))
    stores = [one.cell for one in lowered.instructions if isinstance(one, Store)]
    assert len(stores) == len(set(stores))
