import re

import pytest

from mpicoll.algorithms import get
from mpicoll.schedule import Copy, Recv, Reduce, Schedule, Send, Step, inp, out, reverse, step


def test_the_example_of_the_module_is_so():
    rows = [re.split(r" {4,}", row.strip()) for row in reverse.__doc__.splitlines() if "step " in row]
    gather, scatter = ("\n".join(column) for column in zip(*rows, strict=True))
    assert str(get("gather", "binomial").schedule(2, 4, 0)) == gather
    assert str(get("scatter", "binomial").schedule(2, 4, 0)) == scatter
    assert str(reverse.reverse(get("gather", "binomial").schedule(2, 4, 0))) == scatter


@pytest.mark.parametrize("name", ["binomial", "ring"])
def test_twice_reversed_is_the_same(name):
    for rank in range(6):
        schedule = get("gather", name).schedule(rank, 6, 2)
        assert reverse.reverse(schedule) != schedule
        assert reverse.reverse(reverse.reverse(schedule)) == schedule


def test_what_is_local_comes_before_the_messages_and_all_is_in_opposite_order():
    copies = [Copy(out(0), inp(0)), Copy(out(1), out(0))]
    schedule = Schedule.of([step(Send(inp(0), 1), Recv(out(2), 3), copies)], 3, window=2)
    assert reverse.reverse(schedule) == Schedule(
        (Step((), (Copy(inp(0), inp(1)), Copy(out(0), inp(0)))), Step((Send(inp(2), 3), Recv(out(0), 1)), ())),
        3,
        window=2,
    )


def test_steps_alone_keep_their_buffers():
    assert reverse.reverse_steps([step(Send(out(0), 1)), step(Recv(inp(1), 2))]) == [
        step(Send(inp(1), 2)),
        step(Recv(out(0), 1)),
    ]


def test_a_reduction_has_no_reversal():
    with pytest.raises(ValueError, match=r"a reduction cannot be reversed: output\[0\] = input\[0\] \+ input\[1\]"):
        reverse.reverse_steps([step(Reduce(out(0), (inp(0), inp(1))))])
