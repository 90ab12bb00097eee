"""Tags: messages are matched right for any number of segments and of messages, with few tags too."""

from dataclasses import replace

import pytest

from mpicoll import ScheduleError, verify
from mpicoll.algorithms import get
from mpicoll.analysis import verify as verifier
from mpicoll.analysis.registration import verify_algorithm
from mpicoll.dispatch.rules import MOST_SEGMENTS, parse_choice
from mpicoll.schedule import Recv, Schedule, Send, out, program, step
from mpicoll.schedule.planner import compile_program
from mpicoll.schedule.program import TAGS, Start, Transfer, tag_of


@pytest.fixture
def few(monkeypatch):
    """Four tags, which three segments of a ring use up."""
    monkeypatch.setattr(program, "TAGS", 4)


def named(segment, number):
    return Transfer(True, out(0), 1, segment, number, 0)


@pytest.mark.parametrize("lanes", [1, 3, 4, TAGS])
def test_tags_are_in_their_range_and_lanes_share_none(lanes):
    tags = [{tag_of(named(segment, n), lanes) for n in range(0, 3 * TAGS, 7)} for segment in range(min(lanes, 9))]
    assert all(0 <= tag < TAGS for found in tags for tag in found)
    assert sum(map(len, tags)) == len(set().union(*tags))


def test_a_segment_uses_the_tags_of_its_lane_whatever_its_number():
    assert tag_of(named(9, 1030), 4) == tag_of(named(4097, 6), 4) == 1024 + 6


@pytest.mark.slow
def test_four_tags_are_enough_for_every_algorithm(card, few):
    verify_algorithm(card, [4, 5], lambda size: [size - 1])


def by_segment(transfer, lanes, segments=5):
    """A name that counts segments and wraps, which lanes reach at different times."""
    return (transfer.number * segments + transfer.segment) % 4


def test_a_tag_that_wraps_while_lanes_are_in_flight_is_seen(monkeypatch):
    monkeypatch.setattr("mpicoll.analysis.machine.tag_of", by_segment)
    monkeypatch.setattr("mpicoll.schedule.planner.tag_of", by_segment)
    with pytest.raises(ScheduleError, match=r"receives message \d of segment \d .* which has the same tag"):
        verify_algorithm(get("allreduce", "ring"), [3])


def many(messages):
    """A broadcast from rank 0 to rank 1 of as many messages in one step."""
    sends, receives = ([kind(out(b), peer) for b in range(messages)] for kind, peer in ((Send, 1), (Recv, 0)))
    return [Schedule.of([step(sends)], messages), Schedule.of([step(receives)], messages)]


def test_more_messages_in_a_step_than_tags_are_started_one_after_the_other(few):
    starts = [i for i in compile_program(many(9)[0]).instructions if isinstance(i, Start)]
    assert [len(start.transfers) for start in starts] == [4, 4, 1]
    verify("bcast", many(9))


def test_two_messages_of_one_tag_that_start_at_once_are_refused(few, monkeypatch):
    """All that starts at once starts in any order."""

    def joined(*arguments):
        found = compile_program(*arguments)
        start = tuple(t for i in found.instructions if isinstance(i, Start) for t in i.transfers)
        return replace(found, instructions=(Start(start), *(i for i in found.instructions if not isinstance(i, Start))))

    monkeypatch.setattr(verifier, "compile_program", joined)
    with pytest.raises(ScheduleError, match=r"rank 0, step 0: starts two messages with rank 1 at once by one tag"):
        verify("bcast", many(5))


@pytest.mark.parametrize("number", [str(MOST_SEGMENTS + 1), "9" * 20, "9" * 5000])
def test_an_absurd_number_of_segments_is_refused_with_the_bound(number):
    with pytest.raises(ValueError, match=f"the number of segments is at least 1 and at most {MOST_SEGMENTS}"):
        parse_choice(f"ring/{number}")


def test_the_largest_number_of_segments_is_served():
    assert parse_choice(f"ring/{MOST_SEGMENTS}").segments == MOST_SEGMENTS
