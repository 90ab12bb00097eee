import dataclasses

import pytest

from mpicoll.schedule import Copy, Recv, Reduce, Ref, Schedule, Scratch, Send, Step, inp, out, step
from mpicoll.schedule.ir import block_ids


def test_a_slice_of_cells_is_cells_in_the_same_order():
    ref = out((4, 2, 7, 0))
    assert ref[1:3] == out((2, 7))
    assert ref[2] == out(7)
    assert ref[-1:] == out(0)
    assert list(ref) == [out(4), out(2), out(7), out(0)]
    assert len(ref) == 4


def test_cells_join_in_order():
    assert inp((3, 1)) + inp(2) == inp((3, 1, 2))


def test_cells_of_two_buffers_do_not_join():
    with pytest.raises(ValueError, match="cannot join cells of input and output"):
        inp(0) + out(1)


def test_scratch_hands_out_each_cell_once_next_to_each_other():
    scratch = Scratch()
    taken = [scratch.take((7, 3)), scratch.take(()), scratch.take(5), scratch.take(range(2))]
    assert [tuple(ref.cells) for ref in taken] == [(0, 1), (), (2,), (3, 4)]
    assert {ref.buffer for ref in taken} == {"scratch"}
    assert scratch.ids == [7, 3, 5, 0, 1]


def test_cells_know_the_blocks_that_they_are_sized_for():
    scratch = Scratch()
    ref = scratch.take((7, 3, 5))
    schedule = Schedule.of([], 8, scratch)
    assert block_ids(ref[1:], schedule) == (3, 5)
    assert block_ids(inp((6, 2)), schedule) == (6, 2)


def test_a_step_puts_messages_before_local_work_and_keeps_their_order():
    first, second = Send(inp(0), 1), Recv(out(0), 1)
    reduction, copy = Reduce(out(0), (out(0), inp(0))), Copy(out(1), inp(1))
    made = step(reduction, [first], (), [copy, second])
    assert made == Step((first, second), (reduction, copy))


def test_a_step_takes_an_iterator():
    assert step(Send(inp(0), peer) for peer in (2, 1)).messages == (Send(inp(0), 2), Send(inp(0), 1))


def test_empty_steps_are_dropped():
    real = step(Copy(out(0), inp(0)))
    assert Schedule.of([step(), real, step([])], 1).steps == (real,)


def test_a_schedule_is_a_value():
    def make():
        return Schedule.of([step(Send(inp(0), 1), Reduce(out(0), (inp(0),)))], 1)

    assert make() == make()
    assert hash(make()) == hash(make())
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().blocks = 2


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (out(3), "output[3]"),
        (inp((0, 1, 2, 5, 4)), "input[0-2,5,4]"),
        (Ref("scratch", ()), "scratch[]"),
        (Send(inp((2, 3)), 1), "send input[2-3] to 1"),
        (Recv(out(0), 4), "recv output[0] from 4"),
        (Reduce(out(0), (inp(0), out(0))), "output[0] = input[0] + output[0]"),
        (Copy(out(1), inp(1)), "output[1] = input[1]"),
        (step(Copy(out(1), inp(1)), Send(inp(1), 0)), "send input[1] to 0; output[1] = input[1]"),
        (Step((), ()), "nothing"),
    ],
)
def test_what_it_looks_like(thing, text):
    assert str(thing) == text


def test_a_schedule_lists_its_numbered_steps():
    schedule = Schedule.of([step(Send(inp(0), 1)), step(Recv(out(0), 1))], 1)
    assert str(schedule) == "step 0: send input[0] to 1\nstep 1: recv output[0] from 1"


def test_equal_cells_are_equal_references_however_they_are_given():
    given = [
        out((2, 3, 4)),
        out(range(2, 5)),
        out([2, 3, 4]),
        out(range(9))[2:5],
        out(2) + out((3, 4)),
        Ref("output", range(2, 5)),
    ]
    assert set(given) == {out((2, 3, 4))}
    assert {type(ref.cells) for ref in given} == {range}
    assert Schedule.of([step(Send(given[0], 1))], 5) == Schedule.of([step(Send(given[1], 1))], 5)


@pytest.mark.parametrize("cells", [(), (5,), (3, 1), (0, 2, 1, 3), (1, 1), (2, 1, 0)])
def test_cells_that_do_not_follow_each_other_stay_as_they_are(cells):
    assert out(cells).cells == cells
    assert list(out(cells)) == [out(cell) for cell in cells]


@pytest.mark.parametrize("cells", [range(0), range(7, 8), range(0, 6, 2), range(3, 0, -1)])
def test_a_range_of_one_cell_or_with_gaps_is_a_tuple(cells):
    assert out(cells).cells == tuple(cells)
    assert out(cells) == out(tuple(cells))


def test_a_slice_of_consecutive_cells_is_normal_too():
    ref = out(range(4, 8))
    assert (ref[1:3], ref[1:2], ref[2:2]) == (out((5, 6)), out(5), out(()))
    assert (ref[2], ref[::-1], ref[-1]) == (out(6), out((7, 6, 5, 4)), out(7))


def test_blocks_of_consecutive_cells_are_a_tuple():
    assert block_ids(out(range(2)), Schedule.of([], 2)) == (0, 1)


def test_many_blocks_take_no_memory():
    assert out(range(65536))[:32768].cells == range(32768)
