"""Pictures as SVG and HTML: every frame, message and mark is in them, and nothing from elsewhere."""

import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from hashlib import sha256
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from mpicoll.algorithms import registry
from mpicoll.pictures import boxes
from mpicoll.pictures.chart import chart_svg
from mpicoll.pictures.colours import ink, palette
from mpicoll.pictures.film import film
from mpicoll.pictures.html import film_html
from mpicoll.pictures.notation import arrow_text
from mpicoll.pictures.svg import before_after_svg, film_svg
from mpicoll.pictures.timeline import round_times, timeline_svg
from mpicoll.pictures.units import time_text
from mpicoll.schedule.collectives import COLLECTIVES
from mpicoll.simulate.actions import Sizes, of_messages, of_schedule
from mpicoll.simulate.engine import simulate
from mpicoll.simulate.machine import machine
from mpicoll.simulate.network import switch
from mpicoll.simulate.result import LocalWork

SVG = "{http://www.w3.org/2000/svg}"
SIZES = (2, 4, 5, 8)


def made(collective, algorithm, size, root=0, segments=1, hosts=()):
    card = registry.require(collective, algorithm, size)
    return film(card.row, card.schedules(size, root), root=root, segments=segments, hosts=hosts)


def some_films():
    """A film of each collective for each number of ranks, of another algorithm each time."""
    for name, row in COLLECTIVES.items():
        for size in SIZES:
            cards = registry.usable(name, size)
            yield made(name, cards[size % len(cards)].name, size, size - 1 if row.rooted else 0)


FILMS = {f"{one.row.name}-{one.size}": one for one in some_films()}


def elements(svg, tag, kind=None):
    """All elements of a tag, in order; those of a class."""
    found = ElementTree.fromstring(svg).iter(SVG + tag)
    return [one for one in found if kind is None or kind in one.get("class", "").split()]


def titles(svg, kind):
    return [group.find(SVG + "title").text for group in elements(svg, "g", kind)]


def complete(one):
    return sum(what.complete for frame in one.frames for held in frame.held for what in held.values())


@pytest.mark.parametrize("name", FILMS)
def test_a_film_shows_every_frame_message_and_mark(name):
    one = FILMS[name]
    svg = film_svg(one, title="<ring> & more")
    assert len(elements(svg, "g", "frame")) == one.rounds + 1
    assert titles(svg, "message") == [arrow_text(one, arrow) for frame in one.frames for arrow in frame.arrows]
    assert len(elements(svg, "path", "done")) == complete(one) > 0
    assert bool(elements(svg, "rect", "root")) == one.row.rooted
    assert not elements(svg, "rect", "host")
    assert "<ring> & more" in [text.text for text in elements(svg, "text", "head")]


def test_pictures_are_equal_in_every_process():
    code = (
        "import test_pictures_svg as t\n"
        "print(t.digest())"  # of films that this process has made by itself
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.strip() == digest(), done.stderr


def digest():
    texts = [draw(one) for one in FILMS.values() if one.size == 4 for draw in (film_svg, film_html, chart_svg)]
    texts += [before_after_svg(row, 4) for row in COLLECTIVES.values()]
    return sha256("".join([*texts, timeline_svg(run_of("ring", 4))]).encode()).hexdigest()


def test_slivers_are_the_ranks_in_each_value():
    one = made("allreduce", "ring", 4)
    svg = film_svg(one)
    drawn = sum(path.get("d").count("M") for path in elements(svg, "path", "value"))
    held = [what for frame in one.frames for ranks in frame.held for what in ranks.values()]
    assert drawn == sum(value.bit_count() for what in held for value in what.values)


def test_values_that_are_not_combined_yet_are_drawn_apart():
    one = made("allreduce", "two_shot", 4)
    frame = film_svg(one, frames=[2])
    assert "not combined yet, one below the other" in frame
    assert len(elements(frame, "path", "value")) == sum(
        len(what.values) for held in one.frames[2].held for what in held.values()
    )


def test_what_has_arrived_is_framed():
    one = made("allgather", "bruck", 5)
    for number, frame in enumerate(one.frames):
        framed = sum(path.get("d").count("M") for path in elements(film_svg(one, [number]), "path", "new"))
        assert framed == sum(len(arrow.pieces) for arrow in frame.arrows)


def test_only_the_frames_that_are_asked_for_are_drawn():
    one = made("bcast", "binomial", 8, 3)
    texts = [text.text for text in elements(film_svg(one, frames=[0, 2]), "text")]
    assert "start" in texts
    assert "round 1" in texts
    assert "round 0" not in texts
    with pytest.raises(ValueError, match="no frame 4; they are 0 to 3"):
        film_svg(one, frames=[4])


def test_hosts_are_boxes_and_messages_between_them_dashed():
    one = made("allreduce", "recursive_doubling", 8, hosts=[0] * 4 + [1] * 4)
    svg = film_svg(one)
    assert len(elements(svg, "rect", "host")) == 2 * (one.rounds + 1)
    groups = elements(svg, "g", "message")
    dashed = [g for g in groups if any(path.get("stroke-dasharray") for path in g)]
    arrows = [arrow for frame in one.frames for arrow in frame.arrows]
    assert len(dashed) == sum(one.hosts[a.source] != one.hosts[a.target] for a in arrows) == 8


@pytest.mark.parametrize("algorithm", ["linear", "pairwise", "bruck", "binomial"])
def test_each_block_of_an_alltoall_stays_in_its_place_until_it_goes(algorithm):
    one = made("alltoall", algorithm, 4)
    tables = boxes.tables(one)
    for frame, rows in zip(one.frames, tables.rows, strict=True):
        for held, row in zip(frame.held, rows, strict=True):
            texts = sorted(box.text for box in row if box)
            assert texts == sorted(f"{block // 4}→{block % 4}" for block, _ in held)
    for before, after in pairwise(tables.rows):
        for old, new in zip(before, after, strict=True):
            first, then = ({box.text: k for k, box in enumerate(row) if box and not box.complete} for row in (old, new))
            assert all(first[text] == then[text] for text in first.keys() & then.keys())
    assert [box.text for box in tables.rows[-1][1][tables.columns.first :]] == ["0→1", "1→1", "2→1", "3→1"]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_before_and_after_shows_what_the_table_of_collectives_says(name):
    row = COLLECTIVES[name]
    for size in SIZES:
        root = 1 if row.rooted else 0
        one, tables = boxes.tables_before_and_after(row, size, root)
        svg = before_after_svg(row, size, root)
        texts = [text.text for text in elements(svg, "text")]
        assert {"before", "after"} <= set(texts)
        counts = [sum(box is not None for ranks in rows for box in ranks) for rows in tables.rows]
        before = [list(row.before(rank, size, root, one.blocks)) for rank in range(size)]
        assert counts == [sum(map(len, before)), sum(len(one.wanted(rank)) for rank in range(size))]
        if name == "alltoall":
            both = [[[box.text for box in row] for row in rows] for rows in tables.rows]
            assert both[1] == [list(column) for column in zip(*both[0], strict=True)]


def test_a_picture_that_nobody_could_look_at_is_refused(monkeypatch):
    monkeypatch.setattr("mpicoll.pictures.svg.MOST_BOXES", 100)
    with pytest.raises(ValueError, match="a picture of 112 boxes is too large"):
        film_svg(made("allreduce", "ring", 4))


@pytest.mark.parametrize("name", [f"{name}-4" for name in COLLECTIVES])
def test_a_page_holds_all_steps_and_needs_nothing_else(name):
    one = FILMS[name]
    page = film_html(one, "a <title>", "a card: 1 < 2")
    assert page.count("<section>") == one.rounds + 1
    assert page.count("<svg ") == one.rounds + 2, "each step once, and the legend"
    assert "<h1>a &lt;title&gt;</h1>" in page
    assert "a card: 1 &lt; 2" in page
    listed = re.findall("<li>(.*?)</li>", page)
    assert listed == [arrow_text(one, a).replace(">", "&gt;") for frame in one.frames for a in frame.arrows]
    rest = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//\w|\bsrc=|\bhref=|url\(|@import|\bfetch\(", rest)
    for svg in re.findall("<svg .*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(svg)


def test_a_pipeline_is_a_staircase_in_the_chart():
    one = made("bcast", "ring", 8, segments=8)
    svg = chart_svg(one)
    groups = elements(svg, "g", "message")
    places = [(float(g[1].get("x")), g[1].get("y"), g[-1].text) for g in groups]
    assert len(groups) == len({place[:2] for place in places}) == 7 * 8
    wide = places[1][0] - places[0][0]
    for link in range(7):
        xs = [(round((x - places[0][0]) / wide), text) for x, _, text in places[8 * link : 8 * link + 8]]
        assert xs == [(link + k, f"s{k}") for k in range(8)]
    assert "56 of 98 places hold a message" in svg


def run_of(algorithm, size, name="host"):
    card, where = registry.require("allreduce", algorithm, size), machine(name)
    sizes = Sizes((1 << 20) / card.vector_blocks(size), where.gamma, where.launch)
    actions = [of_schedule(schedule, sizes) for schedule in card.schedules(size)]
    return simulate(actions, where.of_ranks(size), where.extra)


def test_a_timeline_has_a_bar_for_all_that_is_done():
    run = run_of("ring", 4)
    svg = timeline_svg(run, "a & b")
    assert len(titles(svg, "bar")) == 2 * len(run) + len(run.works)
    assert not elements(svg, "path", "many")
    assert "0→1: 262,144 bytes, 0 to 53.4 us" in titles(svg, "bar")


def test_the_critical_path_leads_from_the_first_moment_to_the_last():
    run = run_of("recursive_doubling", 8)
    line = elements(timeline_svg(run), "path", "critical")[-1].get("d")
    xs = [float(point.split()[0]) for point in line.removeprefix("M").split("L")]
    assert xs == sorted(xs)
    assert xs[-1] - xs[0] == pytest.approx(1080, abs=0.2)
    path = run.critical_path()
    assert len(xs) == 2 * len(path)
    ys = [float(point.split()[1]) for point in line.split("L")]
    works = [k for k, one in enumerate(path) if isinstance(one, LocalWork)]
    tops = [float(rect.get("y")) for rect in elements(timeline_svg(run), "rect") if rect.get("width") == "1080"]
    assert [ys[2 * k] for k in works] == [tops[path[k].rank] + 2.5 * 13 for k in works]


def test_many_ranks_and_messages_are_drawn_as_few():
    pairs = [(k % 100, (k % 100 + 1) % 100, 1e6) for k in range(20_000)]
    run = simulate(of_messages(pairs, 100), machine("host").of_ranks(100), 1e-6)
    svg = timeline_svg(run)
    names = [text.text for text in elements(svg, "text", "strong")]
    on_path = {rank for one in run.critical_path() for rank in (one.source, one.target)}
    assert {f"rank {rank}" for rank in on_path} <= set(names)
    assert len(names) == 16
    assert len(elements(svg, "g", "bar")) <= 3000
    assert len(elements(svg, "path", "many")) > 0
    assert "16 of 100 ranks" in svg


def test_a_run_without_time_has_a_timeline():
    nothing = switch(2, alpha=0.0, bandwidth=math.inf)
    run = simulate(of_messages([(0, 1, 8.0)], 2), nothing)
    assert "0 for 1 messages" in timeline_svg(run)


def test_times_have_round_ticks_and_units():
    assert round_times(480e-6) == pytest.approx([k * 50e-6 for k in range(10)])
    assert round_times(1.0, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert [time_text(t) for t in (0, 3e-9, 12.5e-6, 1e-3, 2)] == ["0", "3 ns", "12.5 us", "1 ms", "2 s"]


def test_colours_differ_and_text_on_them_is_seen():
    for count in (1, 8, 9, 13, 64):
        parts = [[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in palette(count)]
        assert min([math.dist(*pair) for pair in combinations(parts, 2)], default=99) > (40 if count < 16 else 5)
    assert ink("#000000") != ink("#ffffff")
