"""A program that only launches, beside messages in flight."""

import pytest

from mpicoll.runtime.program.bound import LAUNCH, SYNC, Bound
from mpicoll.runtime.progress import running
from mpicoll.runtime.progress.operations import Operation, steps


@pytest.mark.parametrize("messages", [["one"], []], ids=["messages", "a kernel"])
def test_its_end_is_awaited_where_messages_are_in_flight(world, messages):
    """Other ranks may need these messages before they launch their part, and the caller may wait for the device."""
    context, looks, launched = world._get_context(), [], []
    other = Bound(requests=messages)
    other.add(SYNC, lambda: None, poll=lambda: looks.append(1) or len(looks) > 20)
    operation = Operation(context, lambda own: steps(own, other))
    bound = Bound(mark=lambda: lambda: operation.done)
    bound.add(LAUNCH, lambda: launched.append(1))
    running.run(bound, context)
    assert launched == [1]
    assert operation.done is bool(messages)
    operation.wait()


def test_alone_it_is_not(world):
    bound = Bound(mark=lambda: pytest.fail("nothing is in flight"))
    bound.add(LAUNCH, lambda: None)
    running.run(bound, world._get_context())
