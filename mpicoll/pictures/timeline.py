"""The timeline of a simulation: what each rank sends, receives and computes, and the critical path in red.

    rank 0   sends      [->1      ][->1      ]
             receives              [<-3          ]
             work                                 [  ]      0   10   20 us

Bars that are too narrow to be told apart are drawn as one.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import log10

from mpicoll.pictures.colours import ink, palette
from mpicoll.pictures.drawing import Drawing, Point, number, polyline
from mpicoll.pictures.units import time_text
from mpicoll.schedule.ir import runs
from mpicoll.simulate.result import LocalWork, Message, Run

#: most rows, and fewest where they are not all ranks; most bars that are drawn one by one
MOST_RANKS, FEWEST_RANKS, MOST_BARS = 64, 16, 3000
#: narrowest bar that is drawn by itself, in pixels; steps of a critical path that is drawn from rank to rank
NARROW, MOST_STEPS = 1.5, 120
#: pixels: margin, names of ranks and lanes, time, a lane, between ranks, above the rows
MARGIN, NAMES, TIME, LANE, GAP, TOP = 16.0, 104.0, 1080.0, 13.0, 7.0, 66.0
CRITICAL, WORK, MANY = "#d00000", "#8c8c8c", "#7f9bb8"
LANES = ("sends", "receives", "work")


@dataclass(frozen=True)
class Bar:
    """A message or local work of a rank, from its start to its end.

    Attributes:
        rank: whose it is.
        lane: 0 sends, 1 receives, 2 computes.
        start: second.
        end: second.
        of: the message or local work.
    """

    rank: int
    lane: int
    start: float
    end: float
    of: Message | LocalWork

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.end - self.start

    @property
    def peer(self) -> int | None:
        """The other rank of a message."""
        if isinstance(self.of, LocalWork):
            return None
        return self.of.source if self.lane else self.of.target


def timeline_svg(run: Run, title: str = "") -> str:
    """Return the timeline of a simulation."""
    path = run.critical_path()
    return _Timeline(run, path, _chosen(run, path)).svg(title or f"{run.ranks} ranks")


def _chosen(run: Run, path: Sequence[Message | LocalWork]) -> list[int]:
    """Return the ranks to draw: all, or those of the critical path and then those with most messages."""
    if run.ranks <= MOST_RANKS:
        return list(range(run.ranks))
    found = dict.fromkeys(rank for one in path for rank in _ranks(one))
    busy = [0] * run.ranks
    for column in (run.source, run.target):
        for rank in column:
            busy[rank] += 1
    busiest = sorted(set(range(run.ranks)) - set(found), key=lambda rank: (-busy[rank], rank))
    return sorted([*found, *busiest[: max(FEWEST_RANKS - len(found), 0)]][:MOST_RANKS])


def _ranks(one: Message | LocalWork) -> tuple[int, ...]:
    return (one.source, one.target) if isinstance(one, Message) else (one.rank,)


def _bars(run: Run, ranks: Container[int]) -> Iterator[Bar]:
    """Yield what some ranks do."""
    for m in run.messages():
        if m.source in ranks:
            yield Bar(m.source, 0, m.start, m.freed, m)
        if m.target in ranks:
            yield Bar(m.target, 1, m.start, m.end, m)
    for w in run.works:
        if w.rank in ranks:
            yield Bar(w.rank, 2, w.start, w.end, w)


def _about(of: Message | LocalWork) -> str:
    """Return the words of a bar, for the mouse."""
    times = f"{time_text(of.start)} to {time_text(of.end)}"
    if isinstance(of, Message):
        return f"{of.source}→{of.target}: {of.nbytes:,.0f} bytes, {times}"
    return f"local work: {times}"


class _Timeline:
    """The picture of a run: rows of some of its ranks."""

    def __init__(self, run: Run, path: Sequence[Message | LocalWork], ranks: Sequence[int]) -> None:
        self.run, self.path, self.ranks = run, path, ranks
        self.lanes = 3 if run.works else 2
        self.colours = palette(run.ranks)
        self.rows = {rank: MARGIN + TOP + n * (self.lanes * LANE + GAP) for n, rank in enumerate(ranks)}
        self.bottom = MARGIN + TOP + len(ranks) * (self.lanes * LANE + GAP)

    def svg(self, title: str) -> str:
        """Return the picture."""
        drawing = Drawing()
        drawing.text(MARGIN, MARGIN + 14, title, class_="head")
        drawing.text(MARGIN, MARGIN + 32, self._summary())
        self._draw_rows(drawing)
        _draw_axis(drawing, self.run.seconds, self.bottom)
        bars = list(_bars(self.run, self.rows))
        least = nlargest(MOST_BARS + 1, [bar.seconds for bar in bars])[-1] if len(bars) > MOST_BARS else 0.0
        single = [bar for bar in bars if bar.seconds > least and bar.seconds * self._scale >= NARROW]
        self._draw_many(drawing, [bar for bar in bars if bar.seconds <= least or bar.seconds * self._scale < NARROW])
        for bar in single:
            self._draw_bar(drawing, bar)
        self._draw_path(drawing)
        lines = self._notes(len(bars) - len(single))
        for place, line in enumerate(lines):
            drawing.text(MARGIN, self.bottom + 40 + 18 * place, line)
        return drawing.svg(2 * MARGIN + NAMES + TIME + 20, self.bottom + 40 + 18 * len(lines), title)

    def _summary(self) -> str:
        works = sum(isinstance(one, LocalWork) for one in self.path)
        return (
            f"{time_text(self.run.seconds)} for {len(self.run):,} messages. "
            f"The critical path, in red, has {len(self.path) - works} messages and {works} pieces of local work."
        )

    def _notes(self, together: int) -> list[str]:
        lines = [
            "A bar is a message, in the colour of the rank at its other end. "
            "Sending ends when its bytes have left, receiving when they have arrived."
        ]
        if together:
            lines.append(f"Where {together:,} short bars are too many to be told apart, a lane is light blue.")
        if len(self.ranks) < self.run.ranks:
            lines.append(f"{len(self.ranks)} of {self.run.ranks} ranks: of the critical path, and with most messages.")
        return lines

    def _draw_rows(self, drawing: Drawing) -> None:
        for rank, top in self.rows.items():
            drawing.text(MARGIN + 44, top + self.lanes * LANE / 2 + 4, f"rank {rank}", "end", class_="strong")
            drawing.rect(MARGIN + NAMES, top, TIME, self.lanes * LANE, fill="#f5f5f5")
            for lane in range(self.lanes):
                drawing.text(MARGIN + NAMES - 6, top + (lane + 0.8) * LANE, LANES[lane], "end", class_="digit soft")

    def _draw_many(self, drawing: Drawing, bars: Sequence[Bar]) -> None:
        """Draw bars that are too narrow to be told apart: the pixels in which there are any."""
        pixels: dict[tuple[int, int], set[int]] = {}
        for bar in bars:
            first, last = int(bar.start * self._scale), int(bar.end * self._scale)
            pixels.setdefault((bar.rank, bar.lane), set()).update(range(first, last + 1))
        for (rank, lane), found in pixels.items():
            left, top = self._point(rank, lane, 0.0)
            y, high = number(top - LANE / 2 + 1), number(LANE - 2)
            spans = [(first, last - first + 1) for first, last in runs(sorted(found))]
            shapes = (f"M{number(left + x)} {y}h{many}v{high}h-{many}z" for x, many in spans)
            drawing.path("".join(shapes), class_="many", fill=MANY)

    def _draw_bar(self, drawing: Drawing, bar: Bar) -> None:
        left, top = self._point(bar.rank, bar.lane, bar.start)
        width = bar.seconds * self._scale
        colour = WORK if bar.peer is None else self.colours[bar.peer]
        with drawing.group(_about(bar.of), class_="bar"):
            drawing.rect(left, top - LANE / 2 + 1, width, LANE - 2, fill=colour, stroke="#fff", stroke_width=0.5)
            text = "" if bar.peer is None else f"{'→←'[bar.lane]}{bar.peer}"
            if text and width >= 8 * len(text):
                drawing.text(left + width / 2, top + 4, text, "middle", class_="digit", fill=ink(colour))

    def _draw_path(self, drawing: Drawing) -> None:
        """Draw the critical path through its bars: as one line from rank to rank, or where it is long only in them."""
        steps = [step for step in map(self._step, self.path) if step]
        if len(steps) <= MOST_STEPS:
            d = polyline([point for step in steps for point in step]) if steps else ""
        else:
            d = "".join(polyline([(first[0], last[1]), last]) for first, last in steps)
        if d:
            drawing.path(d, class_="critical", fill="none", stroke="#fff", stroke_width=3.6, opacity=0.7)
            drawing.path(d, class_="critical", fill="none", stroke=CRITICAL, stroke_width=1.8)

    def _step(self, one: Message | LocalWork) -> tuple[Point, Point] | None:
        """Return both ends of a step of the critical path, None if it is not on the drawn ranks."""
        first, last = _ranks(one)[0], _ranks(one)[-1]
        if first not in self.rows or last not in self.rows:
            return None
        lanes = (0, 1) if isinstance(one, Message) else (2, 2)
        return self._point(first, lanes[0], one.start), self._point(last, lanes[1], one.end)

    @property
    def _scale(self) -> float:
        """Pixels of a second."""
        return TIME / self.run.seconds if self.run.seconds else 0.0

    def _point(self, rank: int, lane: int, time: float) -> Point:
        """Return the middle of a rank's lane at a time."""
        return MARGIN + NAMES + time * self._scale, self.rows[rank] + (lane + 0.5) * LANE


def _draw_axis(drawing: Drawing, seconds: float, bottom: float) -> None:
    """Draw the times below the rows, at round numbers.

    Args:
        drawing: that they are added to.
        seconds: the whole time.
        bottom: y below the rows.
    """
    ticks = round_times(seconds)
    for tick in ticks:
        x = MARGIN + NAMES + (tick / seconds * TIME if seconds else 0.0)
        drawing.path(polyline([(x, MARGIN + TOP - 6), (x, bottom)]), stroke="#dddddd")
        drawing.text(x, bottom + 14, time_text(tick), "middle", class_="soft")


def round_times(seconds: float, most: int = 10) -> list[float]:
    """Return at most so many times from 0 on, whose distance is 1, 2 or 5 of a power of ten."""
    if seconds <= 0:
        return [0.0]
    power = 10.0 ** int(log10(seconds / most) // 1)
    step = next(power * k for k in (1, 2, 5, 10) if seconds / (power * k) <= most)
    return [k * step for k in range(int(seconds / step * (1 + 1e-9)) + 1)]
