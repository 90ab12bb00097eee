"""Films of schedules and their drawings: what moved is seen, all fits, and rounds are those of the costs."""

from itertools import pairwise

import pytest

from mpicoll.algorithms import registry
from mpicoll.pictures.film import film
from mpicoll.pictures.links import link_chart
from mpicoll.pictures.text import View, brief, draw, draw_before_and_after, fitted_cells, legend
from mpicoll.ranges import whole_numbers
from mpicoll.schedule.collectives import COLLECTIVES
from mpicoll.schedule.topology import laid_out


def made(collective, algorithm, size, root=0, segments=1, hosts=()):
    card = registry.get(collective, algorithm)
    return film(card.row, card.schedules(size, root), root=root, segments=segments, hosts=hosts)


def test_every_round_changes_what_is_seen(card):
    """No drawing has a round in which data moved and nothing visible changes, also where cells are cut short."""
    drawn = 0
    for size, segments in ((2, 1), (3, 1), (4, 1), (4, 3), (8, 1), (13, 1)):
        if card.refuses(size):
            continue
        root = size // 2 if card.row.rooted else 0
        one = film(card.row, card.schedules(size, root), root=root, segments=segments)
        _, tables = fitted_cells(one, 80, range(size))
        assert all(frame.arrows for frame in one.frames[1:])
        for k, (before, after) in enumerate(pairwise(tables)):
            assert before != after, f"round {k} on {size} ranks in {segments} segments"
        drawn += 1
    assert drawn >= 3


def test_all_ends_complete_and_fits_the_terminal(card):
    for size in (1, 4, 8, 13):
        if card.refuses(size):
            continue
        one = film(card.row, card.schedules(size))
        for rank in range(size):
            assert all(one.frames[-1].held[rank][block, 0].complete for block in one.wanted(rank))
        for line in (draw(one, View(80)) + "\n" + legend(one, View(80)) + "\n" + brief(one, View(80))).splitlines():
            assert len(line) <= 80, line


def test_partial_sums_in_scratch_are_drawn():
    one = made("allreduce", "ring", 4)
    _, tables = fitted_cells(one, 80, range(4))
    assert [table[0] for table in tables[:4]] == [
        ["0", "0", "0", "0"],
        ["0", "0", "30", "0"],
        ["0", "2-0", "30", "0"],
        ["✓", "2-0", "30", "0"],
    ]


def test_a_root_sends_one_message_in_a_round():
    """The binomial tree takes 3 rounds on 8 ranks from any root, as its cost says."""
    one = made("bcast", "binomial", 8, root=3)
    assert [len(frame.arrows) for frame in one.frames] == [0, 1, 2, 4]


@pytest.mark.parametrize("segments", [1, 2, 4, 8])
def test_the_ring_broadcasts_segments_in_as_many_rounds_as_the_formula_says(segments):
    assert made("bcast", "ring", 6, segments=segments).rounds == segments + 6 - 2


def test_the_chart_shows_all_links_at_work_at_once():
    chart = link_chart(made("bcast", "ring", 4, segments=4))
    assert "2>3   . . 0 1 2 3" in chart
    assert "12 of 18 places used: 67%" in chart


def test_a_collective_is_drawn_before_and_after():
    drawing = draw_before_and_after(COLLECTIVES["allgather"], 3)
    assert drawing.splitlines()[3].split() == ["1", ".", "1", ".", "0", "1", "2"]


def test_only_what_is_asked_for_is_drawn():
    one = made("allgather", "ring", 4)
    drawing = draw(one, View(80, ranks=[2], rounds=[1]))
    assert "round 1: 1>2 b0   2>3 b1" in drawing
    assert "round 0" not in drawing
    with pytest.raises(ValueError, match="no round 3; they are 0 to 2"):
        draw(one, View(80, rounds=[3]))


def test_on_several_hosts_a_rank_sends_inside_and_to_others_in_one_round():
    assert made("bcast", "linear", 4).rounds == 3
    assert made("bcast", "linear", 4, hosts=(0, 0, 1, 1)).rounds == 2  # two of its three messages leave the host
    assert made("bcast", "linear", 4, hosts=(0, 0, 0, 0)).rounds == 3


def test_hosts_are_named_at_their_first_rank():
    drawing = draw(made("allgather", "ring", 4, hosts=(0, 0, 0, 1)), View(80))
    assert [line.split()[:2] for line in drawing.splitlines() if line.startswith("host")][:2] == [
        ["host", "0"],
        ["host", "1"],
    ]


def test_numbers_of_the_command_line():
    assert whole_numbers("1-3,8") == (1, 2, 3, 8)
    assert laid_out("2", 5).host_of == (0, 0, 1, 1, 1)
    assert laid_out("0-2,3-4", 5).host_of == (0, 0, 0, 1, 1)
    for wrong in ("a", "1-", "-1", ""):
        with pytest.raises(ValueError, match="no number"):
            whole_numbers(wrong)
    with pytest.raises(ValueError, match="each of the ranks"):
        laid_out("0-2,2-4", 5)
